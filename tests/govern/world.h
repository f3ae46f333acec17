/* Time and memory are driven by hand: `world` is what a daemon would measure. */
#ifndef TESTS_GOVERN_WORLD_H
#define TESTS_GOVERN_WORLD_H

#include "base/clock.h"
#include "govern/governor.h"
#include "support/unit.h"

#define MIB    ((uint64_t)1 << 20)
#define SECOND ((int64_t)1000000)
#define TICK   (SECOND / 5)

struct world {
    struct governor governor;
    struct govern_input in;
    struct govern_verdict out;
    uint64_t weights; /* reserved = weights + used + cached */
    uint64_t used;
    uint64_t held; /* by lanes after the last tick */
};

static const struct govern_config standard = {
    .budget_bytes = 1000 * MIB,
    .headroom_bytes = 100 * MIB,
    .low = 0.75,
    .high = 0.88,
    .critical = 0.95,
    .dwell_us = 2 * SECOND,
    .idle_after_us = 5 * SECOND,
    .idle_decay_us = 10 * SECOND,
    .trim_minimum_bytes = 1 * MIB,
};

static inline int setup(void **state)
{
    static struct world w;

    w = (struct world){.in = {.now_us = 1000 * SECOND, .last_batch_us = 1000 * SECOND}};
    governor_init(&w.governor, &standard, w.in.now_us);
    *state = &w;
    return 0;
}

/* One tick; the world does what the verdict says. */
static inline void tick(struct world *w, int64_t after_us)
{
    w->in.now_us += after_us;
    w->in.planned_bytes = w->used;
    w->in.reserved_bytes = w->weights + w->used + w->in.cached_bytes;
    w->in.regrown_bytes =
        w->used + w->in.cached_bytes > w->held ? w->used + w->in.cached_bytes - w->held : 0;
    governor_tick(&w->governor, &w->in, &w->out);
    if (w->out.trim) {
        assert_true(w->out.keep_bytes < w->in.cached_bytes);
        assert_true(w->out.share > 0 && w->out.share <= 1);
        w->in.cached_bytes = w->out.keep_bytes;
    }
    w->held = w->used + w->in.cached_bytes;
    assert_true(w->out.next_tick_us > w->in.now_us);
    assert_true(w->out.next_tick_us <= w->in.now_us + SECOND);
}

static inline void busy_tick(struct world *w, int64_t after_us)
{
    w->in.last_batch_us = w->in.now_us + after_us;
    tick(w, after_us);
}

#endif
