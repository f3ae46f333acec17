/* Idle decay: cached memory along a smootherstep down to the floor, in steps that do not fall
 * together with those of other daemons. */
#include "base/clock.h"
#include "govern/internal.h"

enum { STEPS = 20, MAX_SHIFT = 3, JITTER_PARTS = 1024 };

#define DECAY_SHARE 0.25 /* of wall time: nobody runs, but somebody may come */

void decay_init(struct governor *governor, int64_t now_us)
{
    governor->idle_from_us = CLOCK_NEVER;
    governor->decay_felt_us = now_us;
    governor->jitter = (uint32_t)now_us;
}

void decay_was_felt(struct governor *governor, int64_t now_us)
{
    if (governor->decay_shift < MAX_SHIFT)
        governor->decay_shift++;
    governor->decay_felt_us = now_us;
}

/* 0 at 0, 1 at 1, flat at both ends. */
static double smootherstep(double x)
{
    return x * x * x * (x * (x * 6 - 15) + 10);
}

/* When step `step` is due: up to half a step late, the last one in time. */
static int64_t due_us(const struct governor *governor, unsigned step)
{
    uint32_t mixed = (governor->jitter + step) * UINT32_C(2654435761);
    double late = (double)(mixed >> 16 & (JITTER_PARTS - 1)) / (2 * JITTER_PARTS);
    double share = ((double)step + (step < STEPS ? late : 0)) / STEPS;
    double whole_us = (double)(governor->config.idle_decay_us << governor->decay_shift);

    return governor->idle_from_us + (int64_t)(share * whole_us);
}

static unsigned step_at(const struct governor *governor, int64_t now_us)
{
    unsigned step = 0;

    while (step < STEPS && due_us(governor, step + 1) <= now_us)
        step++;
    return step;
}

static bool is_on(const struct governor *governor)
{
    return governor->config.idle_after_us > 0 && governor->config.idle_after_us != CLOCK_NEVER;
}

static bool is_idle(const struct governor *governor, const struct govern_input *input)
{
    return is_on(governor) && input->planned_bytes == 0 &&
           input->now_us - input->last_batch_us >= governor->config.idle_after_us;
}

void decay_act(struct governor *governor, const struct govern_input *input,
               struct govern_verdict *verdict)
{
    uint64_t keep;
    double left;

    if (governor->decay_shift > 0 && input->now_us - governor->decay_felt_us > FELT_HOLD_US) {
        governor->decay_shift--;
        governor->decay_felt_us = input->now_us;
    }
    if (!is_idle(governor, input)) {
        governor->idle_from_us = CLOCK_NEVER;
        return;
    }
    if (governor->idle_from_us == CLOCK_NEVER) {
        governor->idle_from_us = input->now_us;
        governor->idle_from_bytes = input->cached_bytes;
        governor->jitter = governor->jitter * 1664525 + 1013904223;
    }
    left = 1 - smootherstep((double)step_at(governor, input->now_us) / STEPS);
    keep =
        larger((uint64_t)(left * (double)governor->idle_from_bytes), governor->config.floor_bytes);
    if (input->cached_bytes <= keep || (verdict->trim && verdict->keep_bytes <= keep))
        return;
    verdict->is_decay = !verdict->trim;
    if (verdict->is_decay)
        verdict->share = DECAY_SHARE;
    verdict->trim = true;
    verdict->keep_bytes = keep;
    keep_note_trim(governor, input, keep, verdict->is_decay);
}

int64_t decay_next_us(const struct governor *governor, const struct govern_input *input)
{
    unsigned step;

    if (!is_on(governor) || input->cached_bytes <= governor->config.floor_bytes)
        return CLOCK_NEVER;
    if (governor->idle_from_us == CLOCK_NEVER) {
        int64_t idle_us = input->last_batch_us + governor->config.idle_after_us;

        return idle_us > input->now_us ? idle_us : CLOCK_NEVER;
    }
    step = step_at(governor, input->now_us);
    return step < STEPS ? due_us(governor, step + 1) : CLOCK_NEVER;
}
