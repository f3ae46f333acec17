/* KEEP: what trimming leaves because it would come back at once. */
#include "base/clock.h"
#include "govern/internal.h"

enum {
    REFAULT_US = 5000000,
    FELT_SHARE = 4, /* a quarter of a trim back within REFAULT_US: it was felt */
    MEAN_US = 60000000,
};

void keep_init(struct governor *governor, int64_t now_us)
{
    governor->trim_us = CLOCK_NEVER;
    governor->felt_us = governor->mean_us = now_us;
}

uint64_t keep_bytes(const struct governor *governor, const struct govern_input *input)
{
    bool in_use = input->planned_bytes > 0 ||
                  input->now_us - input->last_batch_us < governor->config.dwell_us;
    uint64_t floor = governor->config.floor_bytes;

    if (!in_use)
        return floor;
    return larger(floor, larger(governor->felt_bytes, (uint64_t)governor->mean_planned));
}

void keep_note_trim(struct governor *governor, const struct govern_input *input, uint64_t to_bytes,
                    bool is_decay)
{
    if (governor->trim_us == CLOCK_NEVER) {
        governor->trim_from_bytes = input->cached_bytes;
        governor->regrown_bytes = 0;
    }
    governor->trim_us = input->now_us;
    governor->trim_to_bytes = to_bytes;
    governor->trim_is_decay = is_decay;
}

/* Ticks are far apart in idle times: what is planned at one end of an interval only was not planned
 * all through it, or one batch would count as seconds of load. */
static void update_mean(struct governor *governor, const struct govern_input *input)
{
    double past = (double)(input->now_us - governor->mean_us);
    uint64_t through =
        governor->mean_last < input->planned_bytes ? governor->mean_last : input->planned_bytes;

    governor->mean_us = input->now_us;
    governor->mean_last = input->planned_bytes;
    governor->mean_planned += ((double)through - governor->mean_planned) * past / (MEAN_US + past);
}

/* What came back of the trim under watch; 0: too little to matter, so far. */
static uint64_t back_now(const struct governor *governor)
{
    uint64_t from = governor->trim_from_bytes, to = governor->trim_to_bytes;
    uint64_t back = to + governor->regrown_bytes;

    if (from <= to || governor->regrown_bytes <= (from - to) / FELT_SHARE)
        return 0;
    return back < from ? back : from;
}

static void watch_refaults(struct governor *governor, const struct govern_input *input)
{
    uint64_t back;

    if (governor->trim_us == CLOCK_NEVER)
        return;
    governor->regrown_bytes += input->regrown_bytes;
    governor->refault_bytes_total += input->regrown_bytes;
    back = back_now(governor);
    if (input->now_us - governor->trim_us > REFAULT_US) {
        governor->trim_us = CLOCK_NEVER;
    } else if (back > 0) {
        governor->trim_us = CLOCK_NEVER;
        if (governor->trim_is_decay) {
            decay_was_felt(governor, input->now_us);
        } else {
            governor->felt_bytes = larger(governor->felt_bytes, back);
            governor->felt_us = input->now_us;
        }
    }
}

void keep_watch(struct governor *governor, const struct govern_input *input)
{
    update_mean(governor, input);
    watch_refaults(governor, input);
    if (input->planned_bytes > 0 && input->planned_bytes >= governor->felt_bytes / 2)
        governor->felt_us = input->now_us;
    if (input->now_us - governor->felt_us > FELT_HOLD_US)
        governor->felt_bytes = 0;
}
