#include "engine/min_cut.h"

#include <assert.h>
#include <string.h>

enum { UNREACHED = 0 }; /* levels count from 1 */

enum status min_cut_init(struct min_cut *cut, struct arena *arena, uint32_t things, uint32_t costs)
{
    *cut = (struct min_cut){.arena = arena,
                            .things = MIN_CUT_FIRST,
                            .things_room = things,
                            .edges = 2, /* edge 0 means none */
                            .edges_room = 2 * costs + 2};
    cut->first = arena_take_array(arena, things, sizeof(*cut->first));
    cut->level = arena_take_array(arena, things, sizeof(*cut->level));
    cut->cursor = arena_take_array(arena, things, sizeof(*cut->cursor));
    cut->queue = arena_take_array(arena, things, sizeof(*cut->queue));
    cut->edge = arena_take_array(arena, cut->edges_room, sizeof(*cut->edge));
    return cut->first == NULL || cut->level == NULL || cut->cursor == NULL || cut->queue == NULL ||
                   cut->edge == NULL
               ? STATUS_NO_MEMORY
               : STATUS_OK;
}

uint32_t min_cut_thing(struct min_cut *cut)
{
    assert(cut->things < cut->things_room);
    return cut->things++;
}

static void add_edge(struct min_cut *cut, uint32_t from, uint32_t to, uint64_t room)
{
    assert(cut->edges < cut->edges_room);
    cut->edge[cut->edges] = (struct min_cut_edge){.to = to, .next = cut->first[from], .room = room};
    cut->first[from] = cut->edges++;
}

void min_cut_cost(struct min_cut *cut, uint32_t on_0, uint32_t on_1, uint64_t cost)
{
    if (on_0 == on_1 || cost == 0)
        return;
    add_edge(cut, on_0, on_1, cost);
    add_edge(cut, on_1, on_0, 0);
}

/* Distances from side 0 along edges with room; true when side 1 is reached. */
static bool find_levels(struct min_cut *cut)
{
    uint32_t head = 0, tail = 0;

    memset(cut->level, 0, cut->things * sizeof(*cut->level));
    cut->level[MIN_CUT_SIDE_0] = 1;
    cut->queue[tail++] = MIN_CUT_SIDE_0;
    while (head < tail) {
        uint32_t from = cut->queue[head++];

        for (uint32_t e = cut->first[from]; e != 0; e = cut->edge[e].next) {
            uint32_t to = cut->edge[e].to;

            if (cut->edge[e].room == 0 || cut->level[to] != UNREACHED)
                continue;
            cut->level[to] = cut->level[from] + 1;
            cut->queue[tail++] = to;
        }
    }
    return cut->level[MIN_CUT_SIDE_1] != UNREACHED;
}

/* Pushes along one path from side 0; the path is kept in `queue` as edges.  Returns what was
 * pushed. */
static uint64_t push_path(struct min_cut *cut)
{
    uint32_t *path = cut->queue, length = 0, at = MIN_CUT_SIDE_0;
    uint64_t pushed = UINT64_MAX;

    while (at != MIN_CUT_SIDE_1) {
        uint32_t e = cut->cursor[at];

        while (e != 0 &&
               (cut->edge[e].room == 0 || cut->level[cut->edge[e].to] != cut->level[at] + 1))
            e = cut->edge[e].next;
        cut->cursor[at] = e;
        if (e != 0) {
            path[length++] = e;
            at = cut->edge[e].to;
            continue;
        }
        if (length == 0)
            return 0;
        cut->level[at] = UNREACHED; /* a dead end: step back and pass it by */
        at = cut->edge[path[--length] ^ 1].to;
    }
    for (uint32_t i = 0; i < length; i++)
        if (cut->edge[path[i]].room < pushed)
            pushed = cut->edge[path[i]].room;
    for (uint32_t i = 0; i < length; i++) {
        cut->edge[path[i]].room -= pushed;
        cut->edge[path[i] ^ 1].room += pushed;
    }
    return pushed;
}

void min_cut_solve(struct min_cut *cut)
{
    while (find_levels(cut)) {
        memcpy(cut->cursor, cut->first, cut->things * sizeof(*cut->cursor));
        while (push_path(cut) > 0)
            continue;
    }
}

bool min_cut_side(const struct min_cut *cut, uint32_t thing)
{
    return cut->level[thing] == UNREACHED;
}
