#include "govern/governor.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"

enum { MAX_CAP_SHIFT = 4, DECAY_STEPS = 20 };

#define TARGET_GAP      0.08 /* TRIM aims so far below the low mark: just under its exit */
#define RECLAIM_CALM    1.25 /* RECLAIM is left at so many headrooms free */
#define TRIM_SLICE      4    /* TRIM gives at most 1/4 of what it could a tick */
#define REFAULT_US      5000000
#define REFAULT_SHARE   4 /* 1/4 of a trim back within REFAULT_US: it was felt */
#define PEAK_HOLD_US    60000000
#define BUSY_PERIOD_US  200000
#define QUIET_PERIOD_US 1000000

/* u below (mark of the level) − gap is calm. */
static const double exit_gaps[] = {
    [LEVEL_TRIM] = 0.07,
    [LEVEL_RECLAIM] = 0.08,
    [LEVEL_EVICT] = 0.07,
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
    governor->calm_since_us = CLOCK_NEVER;
    governor->idle_from_us = CLOCK_NEVER;
    governor->trim_us = CLOCK_NEVER;
    governor->recent_peak_us = now_us;
    governor->cap_since_us = now_us;
}

void governor_configure(struct governor *governor, const struct govern_config *config)
{
    governor->config = *config;
    governor->idle_from_us = CLOCK_NEVER; /* a decay under way starts again from what is left */
}

static double usage_of(const struct governor *governor, const struct govern_input *input)
{
    if (governor->config.budget_bytes == 0)
        return input->reserved_bytes > 0 ? 1 : 0;
    return (double)input->reserved_bytes / (double)governor->config.budget_bytes;
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

static enum govern_level level_wanted(const struct governor *governor,
                                      const struct govern_input *input)
{
    const struct govern_config *config = &governor->config;
    uint64_t headroom = config->headroom_bytes;
    double usage = usage_of(governor, input);

    if (input->refused > 0)
        return LEVEL_REJECT;
    if (usage >= config->critical || (input->free_known && input->free_bytes < headroom / 2))
        return LEVEL_EVICT;
    if (usage >= config->high || (input->free_known && input->free_bytes < headroom))
        return LEVEL_RECLAIM;
    return usage >= config->low ? LEVEL_TRIM : LEVEL_NORMAL;
}

static bool is_calm(const struct governor *governor, const struct govern_input *input)
{
    enum govern_level level = governor->level;
    double factor = level == LEVEL_RECLAIM ? RECLAIM_CALM : level == LEVEL_EVICT ? 1 : 0;

    if (level == LEVEL_REJECT)
        return input->refused == 0;
    if (usage_of(governor, input) >= mark_of(&governor->config, level) - exit_gaps[level])
        return false;
    return !input->free_known || factor == 0 ||
           (double)input->free_bytes > factor * (double)governor->config.headroom_bytes;
}

static void enter(struct governor *governor, enum govern_level level)
{
    governor->level = level;
    governor->calm_since_us = CLOCK_NEVER;
    governor->transitions_total++;
    governor->level_entries[level]++;
}

static bool step_level(struct governor *governor, const struct govern_input *input)
{
    enum govern_level wanted = level_wanted(governor, input);

    if (wanted > governor->level) {
        enter(governor, wanted);
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
    if (input->now_us - governor->calm_since_us < governor->config.dwell_us)
        return false;
    enter(governor, governor->level - 1);
    if (governor->level != LEVEL_NORMAL && is_calm(governor, input))
        governor->calm_since_us = input->now_us;
    return true;
}

/* ---- KEEP ---- */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t governor_keep_bytes(const struct governor *governor, bool forced)
{
    return forced ? 0 : governor->config.floor_bytes;
}

/* KEEP: what came back counts only while batches run, for an idle lane needs nothing. */
static uint64_t keep_now(const struct governor *governor, const struct govern_input *input)
{
    bool in_use = input->planned_bytes > 0 ||
                  input->now_us - input->last_batch_us < governor->config.dwell_us;

    return in_use ? larger(governor->config.floor_bytes, governor->recent_peak_bytes)
                  : governor->config.floor_bytes;
}

/* Watches what comes back after the last trim, and forgets what nobody needed for a minute. */
static void watch_refaults(struct governor *governor, const struct govern_input *input)
{
    uint64_t demand = input->cached_bytes + input->planned_bytes;
    uint64_t felt = governor->trim_to_bytes +
                    (governor->trim_from_bytes - governor->trim_to_bytes) / REFAULT_SHARE;

    if (governor->trim_us != CLOCK_NEVER) {
        if (input->now_us - governor->trim_us > REFAULT_US)
            governor->trim_us = CLOCK_NEVER;
        else if (input->last_batch_us > governor->trim_us && demand > felt) {
            uint64_t back = demand < governor->trim_from_bytes ? demand : governor->trim_from_bytes;

            governor->recent_peak_bytes = larger(governor->recent_peak_bytes, back);
            governor->recent_peak_us = input->now_us;
            governor->trim_us = CLOCK_NEVER;
        }
    }
    if (input->planned_bytes >= governor->recent_peak_bytes / 2 && input->planned_bytes > 0)
        governor->recent_peak_us = input->now_us;
    if (input->now_us - governor->recent_peak_us > PEAK_HOLD_US)
        governor->recent_peak_bytes = 0;
}

/* ---- what a level does ---- */

/* The floor of the level, however slowly it gets there: what decides whether acting is worth it. */
static uint64_t keep_in_the_end(const struct governor *governor, const struct govern_input *input)
{
    return governor->level == LEVEL_EVICT ? governor->config.floor_bytes
                                          : keep_now(governor, input);
}

/* How much cached memory the level leaves this time; UINT64_MAX: all of it. */
static uint64_t keep_for_level(const struct governor *governor, const struct govern_input *input)
{
    const struct govern_config *config = &governor->config;
    uint64_t keep = keep_in_the_end(governor, input);
    uint64_t cached = input->cached_bytes;
    double excess;
    uint64_t give;

    if (governor->level != LEVEL_TRIM || cached <= keep)
        return keep;

    excess =
        (double)input->reserved_bytes - (config->low - TARGET_GAP) * (double)config->budget_bytes;
    if (excess <= 0)
        return UINT64_MAX;
    give = (cached - keep) / TRIM_SLICE;
    give = larger(give, config->trim_minimum_bytes);
    if ((double)give > excess)
        give = (uint64_t)excess;
    return give < cached - keep ? cached - give : keep;
}

/* Whether what nobody can take back holds the level by itself. */
static bool is_pinned(const struct governor *governor, const struct govern_input *input)
{
    uint64_t movable = input->cached_bytes + input->planned_bytes;
    struct govern_input rest = *input;

    rest.reserved_bytes -= movable < rest.reserved_bytes ? movable : rest.reserved_bytes;
    return input->planned_bytes == 0 || !is_calm(governor, &rest);
}

static void act_on_level(struct governor *governor, const struct govern_input *input,
                         struct govern_verdict *verdict)
{
    uint64_t keep = keep_for_level(governor, input);
    uint64_t last = keep_in_the_end(governor, input);
    uint64_t worth = input->cached_bytes > last ? input->cached_bytes - last : 0;

    if (governor->level == LEVEL_NORMAL || is_calm(governor, input))
        return;
    if (worth == 0 || worth < governor->config.trim_minimum_bytes) {
        verdict->pinned = is_pinned(governor, input);
        return;
    }
    if (keep >= input->cached_bytes)
        return;
    verdict->trim = true;
    verdict->keep_bytes = keep;
    if (governor->trim_us == CLOCK_NEVER)
        governor->trim_from_bytes = input->cached_bytes;
    governor->trim_us = input->now_us;
    governor->trim_to_bytes = keep;
}

/* What idle models should give at EVICT: down to the exit mark and, where others press, up to the
 * headroom, less what the trim of the same tick already gives. */
static uint64_t evict_now(const struct governor *governor, const struct govern_input *input,
                          const struct govern_verdict *verdict)
{
    const struct govern_config *config = &governor->config;
    double mark = config->critical - exit_gaps[LEVEL_EVICT];
    double over =
        (double)input->reserved_bytes - (mark > 0 ? mark * (double)config->budget_bytes : 0);
    uint64_t trimmed = verdict->trim ? input->cached_bytes - verdict->keep_bytes : 0;
    uint64_t want = over > 0 ? (uint64_t)over : 0;

    if (governor->level < LEVEL_EVICT || is_calm(governor, input))
        return 0;
    if (input->free_known && input->free_bytes < config->headroom_bytes)
        want = larger(want, config->headroom_bytes - input->free_bytes);
    return want > trimmed ? want - trimmed : 0;
}

/* Batch caps under EVICT: halved on entering and once a dwell while it stays hot, doubled back once
 * a calm dwell.  Halving helps only when activations, not weights, are what is held. */
static void step_cap(struct governor *governor, const struct govern_input *input,
                     bool level_changed)
{
    bool is_hot = governor->level >= LEVEL_EVICT && !is_calm(governor, input) &&
                  input->cached_bytes + input->planned_bytes >=
                      larger(governor->config.trim_minimum_bytes, 1);
    bool is_due = input->now_us - governor->cap_since_us >= governor->config.dwell_us;

    if (is_hot && governor->cap_shift == MAX_CAP_SHIFT)
        governor->cap_since_us = input->now_us;
    else if (is_hot && (is_due || level_changed))
        governor->cap_shift++;
    else if (!is_hot && governor->cap_shift > 0 && is_due)
        governor->cap_shift--;
    else
        return;
    governor->cap_since_us = input->now_us;
}

/* ---- idle decay ---- */

/* 0 at 0, 1 at 1, flat at both ends. */
static double smootherstep(double x)
{
    return x * x * x * (x * (x * 6 - 15) + 10);
}

static unsigned decay_step(const struct governor *governor, int64_t now_us)
{
    int64_t past = now_us - governor->idle_from_us;

    if (past >= governor->config.idle_decay_us)
        return DECAY_STEPS;
    return (unsigned)((double)past / (double)governor->config.idle_decay_us * DECAY_STEPS);
}

static bool is_idle(const struct governor *governor, const struct govern_input *input)
{
    int64_t after = governor->config.idle_after_us;

    return after > 0 && after != CLOCK_NEVER && input->planned_bytes == 0 &&
           input->now_us - input->last_batch_us >= after;
}

static void decay(struct governor *governor, const struct govern_input *input,
                  struct govern_verdict *verdict)
{
    unsigned step;
    uint64_t keep;

    if (!is_idle(governor, input)) {
        governor->idle_from_us = CLOCK_NEVER;
        return;
    }
    if (governor->idle_from_us == CLOCK_NEVER) {
        governor->idle_from_us = input->now_us;
        governor->idle_from_bytes = input->cached_bytes;
    }
    step = decay_step(governor, input->now_us);
    keep = step == DECAY_STEPS ? 0
                               : (uint64_t)((double)governor->idle_from_bytes *
                                            (1 - smootherstep((double)step / DECAY_STEPS)));
    keep = larger(keep, governor->config.floor_bytes);
    if (input->cached_bytes <= keep || (verdict->trim && verdict->keep_bytes <= keep))
        return;
    verdict->is_decay = !verdict->trim;
    verdict->trim = true;
    verdict->keep_bytes = keep;
}

/* ---- when to ask again ---- */

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t next_tick(const struct governor *governor, const struct govern_input *input)
{
    const struct govern_config *config = &governor->config;
    bool is_busy = governor->level != LEVEL_NORMAL || input->planned_bytes > 0 ||
                   input->now_us - input->last_batch_us < QUIET_PERIOD_US;
    int64_t next = input->now_us + (is_busy ? BUSY_PERIOD_US : QUIET_PERIOD_US);

    if (input->cached_bytes <= config->floor_bytes || config->idle_after_us <= 0 ||
        config->idle_after_us == CLOCK_NEVER)
        return next;
    if (governor->idle_from_us == CLOCK_NEVER) {
        int64_t idle_us = input->last_batch_us + config->idle_after_us;

        return idle_us > input->now_us ? earlier(next, idle_us) : next;
    }
    if (decay_step(governor, input->now_us) < DECAY_STEPS) {
        unsigned step = decay_step(governor, input->now_us) + 1;
        double share = (double)step / DECAY_STEPS;

        next = earlier(next, governor->idle_from_us +
                                 (int64_t)(share * (double)config->idle_decay_us) + 1);
    }
    return next;
}

void governor_tick(struct governor *governor, const struct govern_input *input,
                   struct govern_verdict *out_verdict)
{
    bool level_changed = step_level(governor, input);

    *out_verdict = (struct govern_verdict){.level_changed = level_changed};
    watch_refaults(governor, input);
    act_on_level(governor, input, out_verdict);
    step_cap(governor, input, level_changed);
    decay(governor, input, out_verdict);
    out_verdict->evict_bytes = evict_now(governor, input, out_verdict);
    out_verdict->may_load = governor->level < LEVEL_EVICT;
    out_verdict->level = governor->level;
    out_verdict->batch_cap_shift = governor->cap_shift;
    out_verdict->next_tick_us = next_tick(governor, input);
}
