/* Levels, and what each of them does.  KEEP is in keep.c, idle decay in decay.c. */
#include "govern/governor.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "govern/internal.h"

#define TARGET_GAP      0.08 /* TRIM aims so far below the low mark: just under its exit */
#define RECLAIM_CALM    1.25 /* RECLAIM is left at so many headrooms free */
#define TRIM_SLICE      4    /* TRIM gives at most 1/4 of what it could a tick */
#define STALL_WINDOW_US 1000000
#define STALL_ENTER     0.10 /* of a window */
#define STALL_LEAVE     0.02
#define STUCK_US        1000000 /* RECLAIM without success for so long becomes EVICT */
#define REJECT_CALM_US  1000000
#define RAISE_US        1000000 /* batch caps grow once a quiet second */
#define BUSY_PERIOD_US  200000
#define QUIET_PERIOD_US 1000000

/* u below (mark of the level) − gap is calm. */
static const double exit_gaps[] = {
    [LEVEL_TRIM] = 0.07,
    [LEVEL_RECLAIM] = 0.08,
    [LEVEL_EVICT] = 0.07,
};

/* Of wall time, for giving back, when the level is entered. */
static const double shares[] = {
    [LEVEL_NORMAL] = 0.01, [LEVEL_TRIM] = 0.01,   [LEVEL_RECLAIM] = 0.05,
    [LEVEL_EVICT] = 0.25,  [LEVEL_REJECT] = 0.25,
};

const char *govern_level_name(enum govern_level level)
{
    static const char *const names[] = {"normal", "trim", "reclaim", "evict", "reject"};

    assert((unsigned)level < sizeof(names) / sizeof(names[0]));
    return names[level];
}

void governor_init(struct governor *governor, const struct govern_config *config, int64_t now_us)
{
    memset(governor, 0, sizeof(*governor));
    governor->config = *config;
    governor->entered_us = now_us;
    governor->calm_since_us = CLOCK_NEVER;
    governor->window_us = now_us;
    governor->caps_us = now_us;
    governor->admitted = true;
    keep_init(governor, now_us);
    decay_init(governor, now_us);
}

void governor_configure(struct governor *governor, const struct govern_config *config)
{
    governor->config = *config;
    governor->idle_from_us = CLOCK_NEVER; /* a decay under way starts again from what is left */
}

uint64_t governor_keep_bytes(const struct governor *governor, bool forced)
{
    return forced ? 0 : governor->config.floor_bytes;
}

static double usage_of(const struct governor *governor, const struct govern_input *input)
{
    if (governor->config.budget_bytes == 0)
        return input->reserved_bytes > 0 ? 1 : 0;
    return (double)input->reserved_bytes / (double)governor->config.budget_bytes;
}

/* ---- stalls ---- */

double governor_stall_share(const struct governor *governor)
{
    double now = (double)governor->stalled_us / STALL_WINDOW_US;

    return now > governor->stall_share ? now : governor->stall_share;
}

static void watch_stalls(struct governor *governor, const struct govern_input *input)
{
    int64_t past = input->now_us - governor->window_us;

    governor->stalled_us += input->stall_us;
    if (past < STALL_WINDOW_US)
        return;
    governor->stall_share = (double)governor->stalled_us / (double)past;
    governor->stalled_us = 0;
    governor->window_us = input->now_us;
}

/* ---- levels ---- */

static double mark_of(const struct govern_config *config, enum govern_level level)
{
    switch (level) {
    case LEVEL_TRIM:
        return config->low;
    case LEVEL_RECLAIM:
        return config->high;
    case LEVEL_EVICT:
        return config->critical;
    default:
        return 0;
    }
}

static bool has_less_free(const struct govern_input *input, uint64_t bytes)
{
    return input->free_known && input->free_bytes < bytes;
}

static uint64_t excess(uint64_t bytes, uint64_t over)
{
    return bytes > over ? bytes - over : 0;
}

static bool is_worth(const struct governor *governor, uint64_t bytes)
{
    return bytes >= larger(governor->config.trim_minimum_bytes, 1);
}

/* Nothing runs that would make room for the batch that waits: only idle models can. */
static bool is_starved(const struct govern_input *input)
{
    return input->wanted_bytes > 0 && input->planned_bytes == 0 && input->evictable_bytes > 0;
}

static bool wants_reclaim(const struct governor *governor, const struct govern_input *input)
{
    return usage_of(governor, input) >= governor->config.high || input->system_presses ||
           has_less_free(input, governor->config.headroom_bytes);
}

/* RECLAIM has given all it may, the reason for it stays, and EVICT would have something. */
static bool is_stuck(const struct governor *governor, const struct govern_input *input)
{
    uint64_t floor = governor->config.floor_bytes, keep = keep_bytes(governor, input);
    bool is_outside = has_less_free(input, governor->config.headroom_bytes);

    if (governor->level != LEVEL_RECLAIM || input->now_us - governor->entered_us < STUCK_US ||
        !wants_reclaim(governor, input) || is_worth(governor, excess(input->cached_bytes, keep)))
        return false;
    return is_worth(governor, input->evictable_bytes) ||
           (is_outside && is_worth(governor, excess(input->cached_bytes, floor)));
}

static enum govern_level level_wanted(const struct governor *governor,
                                      const struct govern_input *input)
{
    const struct govern_config *config = &governor->config;
    double usage = usage_of(governor, input);

    if (input->refused > 0)
        return LEVEL_REJECT;
    if (usage >= config->critical || has_less_free(input, config->headroom_bytes / 2) ||
        governor_stall_share(governor) > STALL_ENTER || is_starved(input) ||
        is_stuck(governor, input))
        return LEVEL_EVICT;
    if (wants_reclaim(governor, input))
        return LEVEL_RECLAIM;
    return usage >= config->low ? LEVEL_TRIM : LEVEL_NORMAL;
}

static bool is_under_exit(const struct governor *governor, const struct govern_input *input)
{
    enum govern_level level = governor->level;

    return usage_of(governor, input) < mark_of(&governor->config, level) - exit_gaps[level];
}

static bool has_free(const struct governor *governor, const struct govern_input *input,
                     double headrooms)
{
    return !input->free_known ||
           (double)input->free_bytes > headrooms * (double)governor->config.headroom_bytes;
}

static bool is_calm(const struct governor *governor, const struct govern_input *input)
{
    switch (governor->level) {
    case LEVEL_REJECT:
        return input->refused == 0 && governor->admitted;
    case LEVEL_EVICT:
        return is_under_exit(governor, input) && has_free(governor, input, 1) &&
               governor_stall_share(governor) < STALL_LEAVE && !is_starved(input);
    case LEVEL_RECLAIM:
        return is_under_exit(governor, input) && has_free(governor, input, RECLAIM_CALM) &&
               !input->system_presses;
    case LEVEL_TRIM:
        return is_under_exit(governor, input);
    case LEVEL_NORMAL:
        break;
    }
    return true;
}

static void enter(struct governor *governor, enum govern_level level, int64_t now_us)
{
    governor->level = level;
    governor->entered_us = now_us;
    governor->calm_since_us = CLOCK_NEVER;
    governor->transitions_total++;
    governor->level_entries[level]++;
}

static int64_t dwell_of(const struct governor *governor)
{
    int64_t dwell_us = governor->config.dwell_us;

    return governor->level == LEVEL_REJECT && dwell_us > REJECT_CALM_US ? REJECT_CALM_US : dwell_us;
}

static bool step_level(struct governor *governor, const struct govern_input *input)
{
    enum govern_level wanted = level_wanted(governor, input);

    if (input->refused > 0)
        governor->admitted = false;
    else if (input->admitted > 0 || input->wanted_bytes == 0)
        governor->admitted = true;
    if (wanted > governor->level) {
        enter(governor, wanted, input->now_us);
        return true;
    }
    if (governor->level == LEVEL_NORMAL)
        return false;
    if (!is_calm(governor, input)) {
        governor->calm_since_us = CLOCK_NEVER;
        return false;
    }
    if (governor->calm_since_us == CLOCK_NEVER)
        governor->calm_since_us = input->now_us;
    if (input->now_us - governor->calm_since_us < dwell_of(governor))
        return false;
    enter(governor, governor->level - 1, input->now_us);
    if (governor->level != LEVEL_NORMAL && is_calm(governor, input))
        governor->calm_since_us = input->now_us;
    return true;
}

/* ---- what a level does ---- */

/* The floor of the level, however slowly it gets there: what decides whether acting is worth it. */
static uint64_t keep_in_the_end(const struct governor *governor, const struct govern_input *input)
{
    return governor->level >= LEVEL_EVICT ? governor->config.floor_bytes
                                          : keep_bytes(governor, input);
}

/* How much cached memory the level leaves this time; UINT64_MAX: all of it. */
static uint64_t keep_for_level(const struct governor *governor, const struct govern_input *input)
{
    const struct govern_config *config = &governor->config;
    uint64_t keep = keep_in_the_end(governor, input);
    uint64_t cached = input->cached_bytes;
    double over;
    uint64_t give;

    if (governor->level != LEVEL_TRIM || cached <= keep)
        return keep;

    over =
        (double)input->reserved_bytes - (config->low - TARGET_GAP) * (double)config->budget_bytes;
    if (over <= 0)
        return UINT64_MAX;
    give = (cached - keep) / TRIM_SLICE;
    give = larger(give, config->trim_minimum_bytes);
    if ((double)give > over)
        give = (uint64_t)over;
    return give < cached - keep ? cached - give : keep;
}

/* A quarter, a half, all of wall time: what does not get calm gets more of it every second. */
static double share_of(const struct governor *governor, const struct govern_input *input)
{
    double share = shares[governor->level];
    int64_t past = input->now_us - governor->entered_us;

    if (has_less_free(input, governor->config.headroom_bytes / 2))
        return 1;
    if (governor->level < LEVEL_RECLAIM)
        return share;
    for (; past >= STUCK_US && share < 1; past -= STUCK_US)
        share *= 2;
    return share < 1 ? share : 1;
}

/* Whether what nobody can take back holds the level by itself. */
static bool is_pinned(const struct governor *governor, const struct govern_input *input)
{
    uint64_t movable = input->cached_bytes + input->planned_bytes;
    struct govern_input rest = *input;

    if (governor->level >= LEVEL_EVICT && is_worth(governor, input->evictable_bytes))
        return false;
    rest.reserved_bytes = excess(rest.reserved_bytes, movable);
    return input->planned_bytes == 0 || !is_calm(governor, &rest);
}

static void act_on_level(struct governor *governor, const struct govern_input *input,
                         struct govern_verdict *verdict)
{
    uint64_t keep = keep_for_level(governor, input);
    uint64_t last = keep_in_the_end(governor, input);

    if (governor->level == LEVEL_NORMAL || is_calm(governor, input))
        return;
    if (!is_worth(governor, excess(input->cached_bytes, last))) {
        verdict->pinned = is_pinned(governor, input);
        return;
    }
    if (keep >= input->cached_bytes)
        return;
    verdict->trim = true;
    verdict->keep_bytes = keep;
    verdict->share = share_of(governor, input);
    keep_note_trim(governor, input, keep, false);
}

/* Down to where EVICT lets idle models leave. */
static double evict_goal(const struct govern_config *config)
{
    double mark = config->critical - exit_gaps[LEVEL_EVICT];

    mark = mark > config->high ? config->high : mark;
    return mark > 0 ? mark * (double)config->budget_bytes : 0;
}

static uint64_t may_hold(const struct governor *governor, const struct govern_input *input)
{
    uint64_t headroom = governor->config.headroom_bytes;
    uint64_t goal = (uint64_t)evict_goal(&governor->config), there;

    if (governor->level < LEVEL_EVICT)
        return UINT64_MAX;
    if (!input->free_known)
        return goal;
    there = excess(input->reserved_bytes + input->free_bytes, headroom);
    return there < goal ? there : goal;
}

/* What idle models should give at EVICT: down to where RECLAIM is enough, up to the headroom where
 * others press, what a batch lacks; less what the trim of the same tick already gives. */
static uint64_t evict_now(struct governor *governor, const struct govern_input *input,
                          const struct govern_verdict *verdict)
{
    const struct govern_config *config = &governor->config;
    double over;
    uint64_t trimmed = verdict->trim ? input->cached_bytes - verdict->keep_bytes : 0;
    uint64_t want;

    if (governor->level < LEVEL_EVICT || is_calm(governor, input))
        return 0;
    over = (double)input->reserved_bytes - evict_goal(config);
    want = over > 0 ? (uint64_t)over : 0;
    if (has_less_free(input, config->headroom_bytes))
        want = larger(want, config->headroom_bytes - input->free_bytes);
    want = larger(excess(want, trimmed), input->wanted_bytes);
    governor->evict_bytes_total += want;
    return want;
}

/* Batch caps: halved on entering EVICT and once a dwell while it stays hot, a step up every quiet
 * second.  Halving helps only when activations, not weights, are what is held. */
static enum cap_step step_caps(struct governor *governor, const struct govern_input *input,
                               bool level_changed)
{
    bool is_hot = governor->level >= LEVEL_EVICT && !is_calm(governor, input);
    uint64_t activations = input->cached_bytes + input->planned_bytes + input->wanted_bytes;
    int64_t past = input->now_us - governor->caps_us;
    enum cap_step step = CAPS_STAY;

    if (is_hot && is_worth(governor, activations) &&
        (level_changed || past >= governor->config.dwell_us))
        step = CAPS_HALVE;
    else if (!is_hot && input->capped && past >= RAISE_US)
        step = CAPS_RAISE;
    if (step != CAPS_STAY)
        governor->caps_us = input->now_us;
    return step;
}

/* ---- when to ask again ---- */

static int64_t next_tick(const struct governor *governor, const struct govern_input *input)
{
    bool is_busy = governor->level != LEVEL_NORMAL || input->planned_bytes > 0 ||
                   input->wanted_bytes > 0 || input->capped ||
                   input->now_us - input->last_batch_us < QUIET_PERIOD_US;
    int64_t next = input->now_us + (is_busy ? BUSY_PERIOD_US : QUIET_PERIOD_US);
    int64_t decay_us = decay_next_us(governor, input);

    return decay_us < next ? (decay_us > input->now_us ? decay_us : input->now_us + 1) : next;
}

void governor_tick(struct governor *governor, const struct govern_input *input,
                   struct govern_verdict *out_verdict)
{
    bool level_changed;

    watch_stalls(governor, input);
    level_changed = step_level(governor, input);
    *out_verdict = (struct govern_verdict){.level_changed = level_changed, .share = 1};
    keep_watch(governor, input);
    act_on_level(governor, input, out_verdict);
    decay_act(governor, input, out_verdict);
    out_verdict->caps = step_caps(governor, input, level_changed);
    out_verdict->evict_bytes = evict_now(governor, input, out_verdict);
    out_verdict->may_hold_bytes = may_hold(governor, input);
    out_verdict->level = governor->level;
    out_verdict->next_tick_us = next_tick(governor, input);
}
