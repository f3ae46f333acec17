/* Is there a packing below this peak?  An exact search, made for tight problems.
 *
 *   bytes ^  target -------------------------------
 *         |        what is left: nothing of it below
 *         |        its `low`, and in each section all
 *         |     __ of it on top of each other   ____
 *         |    |  |____________________________|    |   <- floor, per section
 *         |    |__|_____|______________|_______|____|
 *         +------------------------------------------> sections
 *
 * Buffers are placed from below.  For every buffer that is left, `low` is an offset it cannot go
 * under.  One decision takes a buffer j such that no other one would fit between the floor and j,
 * and splits all packings in two kinds:
 *
 *   placed    j is the lowest of all that are left and meet it: then it may stand at low(j), and
 *             whatever meets it stands above its end
 *   deferred  one of those stands below it: low(j) is at least the lowest end any of them can have
 *
 * No packing is in both, none is lost, and which j is asked about is free: the search works where
 * the fewest buffers may come next, and rather close to where it worked before, so that independent
 * places of a long network do not multiply each other (enum search_focus).  When nothing that is
 * left crosses a border between two sections, the parts are solved one by one, and a part that
 * fails sends the search straight back to the decision that parted it.
 *
 * A state is refuted by its sections: in each, the buffers left must stand on each other, every one
 * at or above its `low`.  Taken by rising `low` they reach the lowest end they can (as jobs with
 * release dates do on one machine); above the target: refuted.
 *
 * Related: MiniMalloc (ASPLOS 2023) searches in order of rising offset over one list of buffers
 * with a bound of floor + rest; section floors and parts at cuts are used there as well.
 */
#include "graph/planner_search.h"

#include <limits.h>
#include <string.h>

#include "base/clock.h"

enum {
    CHECK_WORK = 1 << 18, /* cells between looks at the clock */
    CHOICE_COST = 4       /* one choice more weighs as much as that many sections of distance */
};

/* ---- what is undone ---- */

static void set_cell(struct search *search, int32_t *cell, int32_t value)
{
    if (search->trail_count == search->trail_room) {
        search->is_spent = true; /* the state is wrong now, and the try is over */
        return;
    }
    search->trail[search->trail_count++] =
        (struct search_undo){.cell = (uint32_t)(cell - search->cells), .value = *cell};
    *cell = value;
}

static void undo_to(struct search *search, uint32_t mark)
{
    while (search->trail_count > mark) {
        const struct search_undo *undo = &search->trail[--search->trail_count];

        search->cells[undo->cell] = undo->value;
    }
}

/* ---- refutation ---- */

static bool overlap(struct search_range a, struct search_range b)
{
    return a.first < b.end && b.first < a.end;
}

static bool meet(const struct search *search, uint32_t a, uint32_t b)
{
    return overlap(search->life[a], search->life[b]);
}

/* Puts a buffer on the levels of its sections; returns the highest. */
static int32_t stack_up(int32_t *level, uint32_t count, int32_t low, int32_t size)
{
    int32_t highest = 0;

    for (uint32_t i = 0; i < count; i++) {
        int32_t top = (level[i] > low ? level[i] : low) + size;

        level[i] = top;
        highest = top > highest ? top : highest;
    }
    return highest;
}

static void insertion_sort(uint64_t *values, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint64_t value = values[i];
        uint32_t at = i;

        for (; at > 0 && values[at - 1] > value; at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
}

/* Those of list[from..to) that live in `where`, by rising low, as low << 32 | buffer.  They are put
 * back into the list in that order, so that they are nearly sorted the next time. */
static uint32_t collect_sorted(struct search *search, uint32_t from, uint32_t to,
                               struct search_range where)
{
    uint64_t *sorted = search->sorted;
    uint32_t count = 0, next = 0;

    for (uint32_t i = from; i < to; i++)
        if (overlap(search->life[search->list[i]], where))
            sorted[count++] = (uint64_t)search->low[search->list[i]] << 32 | search->list[i];
    insertion_sort(sorted, count);
    for (uint32_t i = from; next < count; i++)
        if (overlap(search->life[search->list[i]], where))
            search->list[i] = (uint32_t)sorted[next++];
    return count;
}

static void blame(struct search *search, uint32_t first, uint32_t end)
{
    while (first + 1 < end && search->level[first] <= search->target)
        first++;
    search->weight[first]++;
}

/* Whether list[from..to) may still fit in the sections of `where`, the only ones that changed. */
static bool may_fit(struct search *search, uint32_t from, uint32_t to, struct search_range where)
{
    uint32_t count = collect_sorted(search, from, to, where);
    int32_t *level = search->level;

    search->work += 5 * (to - from) + count;
    memcpy(level + where.first, search->floor + where.first,
           (where.end - where.first) * sizeof(*level));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t buffer = (uint32_t)search->sorted[i];
        struct search_range life = search->life[buffer];

        life.first = life.first > where.first ? life.first : where.first;
        life.end = life.end < where.end ? life.end : where.end;
        search->work += life.end - life.first;
        if (stack_up(level + life.first, life.end - life.first, search->low[buffer],
                     search->size[buffer]) > search->target) {
            blame(search, life.first, life.end);
            return false;
        }
    }
    return true;
}

/* ---- which decision ---- */

/* Counts, per section, the buffers that may come next in it. */
static void count_choices(struct search *search, const struct search_part *part)
{
    const int32_t *room = search->room;
    int32_t *choices = search->choices;

    memset(choices + part->sections.first, 0,
           (part->sections.end - part->sections.first) * sizeof(*choices));
    for (uint32_t i = part->from; i < part->to; i++) {
        uint32_t buffer = search->list[i], end = search->life[buffer].end;
        int32_t low = search->low[buffer];

        search->work += end - search->life[buffer].first;
        for (uint32_t s = search->life[buffer].first; s < end; s++)
            choices[s] += low <= room[s];
    }
}

static uint64_t distance(struct search_range from, uint32_t section)
{
    if (section < from.first)
        return from.first - section;
    return section >= from.end ? section - from.end + 1 : 0;
}

static uint32_t choose_section(struct search *search, const struct search_part *part)
{
    uint64_t best_cost = UINT64_MAX, best_weight = 1;
    uint32_t best = part->sections.first;

    count_choices(search, part);
    for (uint32_t s = part->sections.first; s < part->sections.end; s++) {
        uint64_t cost = CHOICE_COST * (uint64_t)search->choices[s] + distance(search->latest, s);
        uint64_t weight = search->focus == FOCUS_WEIGHTED ? search->weight[s] : 1;

        if (search->room[s] == search->target || /* nothing is left in it */
            (best_cost != UINT64_MAX && cost * best_weight >= best_cost * weight))
            continue;
        best = s;
        best_cost = cost;
        best_weight = weight;
    }
    return best;
}

/* Place in the list of the buffer with the least low, and of those the most preferred one, among
 * those that live in the sections. */
static uint32_t find_lowest(const struct search *search, const struct search_part *part,
                            struct search_range sections)
{
    uint64_t least = UINT64_MAX;
    uint32_t found = part->from;

    for (uint32_t i = part->from; i < part->to; i++) {
        uint32_t buffer = search->list[i];
        uint64_t key = (uint64_t)search->low[buffer] << 32 | buffer;

        if (key < least && overlap(search->life[buffer], sections)) {
            least = key;
            found = i;
        }
    }
    return found;
}

/* Place in the list of one that could stand wholly under the buffer at `over`; `over`: none can. */
static uint32_t find_under(const struct search *search, const struct search_part *part,
                           uint32_t over)
{
    uint32_t upper = search->list[over];
    int32_t low = search->low[upper];

    for (uint32_t i = part->from; i < part->to; i++) {
        uint32_t under = search->list[i];

        if (search->low[under] + search->size[under] <= low && meet(search, under, upper))
            return i;
    }
    return over;
}

/* Place in the list of the buffer to decide about. */
static uint32_t choose_buffer(struct search *search, const struct search_part *part)
{
    uint32_t chosen, under, section;

    search->work += 4 * (part->to - part->from);
    if (search->focus == FOCUS_LOWEST)
        return find_lowest(search, part, part->sections);
    section = choose_section(search, part);
    chosen = find_lowest(search, part, (struct search_range){section, section + 1});
    while ((under = find_under(search, part, chosen)) != chosen)
        chosen = under;
    return chosen;
}

/* ---- decisions ---- */

static void swap(uint32_t *list, uint32_t a, uint32_t b)
{
    uint32_t kept = list[a];

    list[a] = list[b];
    list[b] = kept;
}

/* Puts the frame's buffer at its low; false when the rest cannot fit then. */
static bool place(struct search *search, struct search_frame *frame)
{
    const struct search_part *part = &frame->part;
    struct search_range changed;
    uint32_t buffer;
    int32_t top;

    swap(search->list, part->from, choose_buffer(search, part));
    buffer = search->list[part->from];
    top = search->low[buffer] + search->size[buffer];
    search->offset[buffer] = search->low[buffer];
    search->latest = changed = search->life[buffer];
    frame->waiting = search->waiting_count;
    frame->trail_before = search->trail_count;
    for (uint32_t s = changed.first; s < search->latest.end; s++) {
        set_cell(search, &search->floor[s], top);
        set_cell(search, &search->room[s], search->room[s] + search->size[buffer]);
    }
    for (uint32_t i = part->from + 1; i < part->to; i++) {
        uint32_t other = search->list[i];
        struct search_range life = search->life[other];

        if (search->low[other] >= top || !overlap(life, search->latest))
            continue;
        set_cell(search, &search->low[other], top);
        changed.first = life.first < changed.first ? life.first : changed.first;
        changed.end = life.end > changed.end ? life.end : changed.end;
    }
    return may_fit(search, part->from + 1, part->to, changed);
}

/* Takes the frame's decision back for the other kind of packing; false when there is none. */
static bool defer(struct search *search, struct search_frame *frame)
{
    const struct search_part *part = &frame->part;
    uint32_t buffer = search->list[part->from];
    int32_t least = INT32_MAX;

    search->fails++;
    undo_to(search, frame->trail_before);
    search->waiting_count = frame->waiting;
    for (uint32_t i = part->from + 1; i < part->to; i++) {
        uint32_t other = search->list[i];
        int32_t end = search->low[other] + search->size[other];

        if (end < least && meet(search, buffer, other))
            least = end;
    }
    if (least > search->target - search->size[buffer])
        return false; /* or nothing meets it: being lowest was no restriction */
    set_cell(search, &search->low[buffer], least);
    return may_fit(search, part->from, part->to, search->life[buffer]);
}

/* ---- parts ---- */

static void add_part(struct search *search, const struct search_part *part)
{
    uint32_t at = search->waiting_count++;

    /* The smallest is next: what fails should fail cheaply. */
    for (; at > 0 && search->waiting[at - 1].parent == part->parent &&
           search->waiting[at - 1].to - search->waiting[at - 1].from < part->to - part->from;
         at--)
        search->waiting[at] = search->waiting[at - 1];
    search->waiting[at] = *part;
}

/* Brings those that end by section `end` to the front of list[from..to); returns how far. */
static uint32_t gather(struct search *search, uint32_t from, uint32_t to, uint32_t end)
{
    for (uint32_t i = from; i < to; i++)
        if (search->life[search->list[i]].end <= end)
            swap(search->list, from++, i);
    return from;
}

void search_divide(struct search *search, struct search_part whole)
{
    struct search_range sections = whole.sections;
    int32_t *crossing = search->level, open = 0;

    memset(crossing + sections.first, 0, (sections.end - sections.first) * sizeof(*crossing));
    for (uint32_t i = whole.from; i < whole.to; i++) {
        crossing[search->life[search->list[i]].first]++;
        crossing[search->life[search->list[i]].end - 1]--;
    }
    for (uint32_t s = sections.first; s < sections.end && whole.from < whole.to; s++) {
        struct search_part part = whole;

        open += crossing[s];
        if (open > 0)
            continue;
        part.sections.end = whole.sections.first = s + 1;
        if (s + 1 < sections.end)
            part.to = gather(search, whole.from, whole.to, s + 1);
        if (part.to > part.from)
            add_part(search, &part);
        whole.from = part.to;
    }
}

/* ---- the search ---- */

static bool is_spent(struct search *search)
{
    if (search->work - search->work_checked >= CHECK_WORK) {
        search->work_checked = search->work;
        if ((search->deadline_us != INT64_MAX && clock_now_us() >= search->deadline_us) ||
            (search->cancelled != NULL &&
             atomic_load_explicit(search->cancelled, memory_order_relaxed)))
            search->is_spent = true;
    }
    return search->is_spent || search->work > search->work_limit ||
           search->fails > search->fail_limit;
}

static struct search_frame *enter_next_part(struct search *search)
{
    struct search_frame *frame = &search->frames[search->depth++];

    frame->part = search->waiting[--search->waiting_count];
    return frame;
}

/* Back to the last decision whose other kind is open; NULL: there is none. */
static struct search_frame *back_up(struct search *search, struct search_frame *frame)
{
    while (!defer(search, frame)) {
        if (frame->part.parent == SEARCH_NO_FRAME)
            return NULL;
        search->depth = frame->part.parent + 1;
        frame = &search->frames[frame->part.parent];
    }
    return frame;
}

enum search_outcome search_explore(struct search *search)
{
    struct search_frame *frame;

    if (search->waiting_count == 0)
        return SEARCH_FOUND;
    frame = enter_next_part(search);
    while (!is_spent(search)) {
        if (place(search, frame)) {
            struct search_part left = frame->part;

            left.from++;
            left.parent = search->depth - 1;
            search_divide(search, left);
            if (search->waiting_count == 0)
                return search->is_spent ? SEARCH_GIVEN_UP : SEARCH_FOUND;
            frame = enter_next_part(search);
        } else {
            frame = back_up(search, frame);
            if (frame == NULL)
                return search->is_spent || !search->exact ? SEARCH_GIVEN_UP : SEARCH_IMPOSSIBLE;
        }
    }
    return SEARCH_GIVEN_UP;
}
