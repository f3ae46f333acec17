/* Which idle models leave the device, and in which order.  Numbers in, order out: no I/O, no clock.
 *
 * What it costs to let a model go is the wait for its reload, as often as it will be asked for;
 * what it brings is its bytes.  A model's worth is therefore
 *
 *                        reload_us
 *      worth = ─────────────────────────────        (cost per byte, over the time to its next use)
 *              bytes x (idle_us + interval_us)
 *
 * and the least worth goes first.  With equal bytes, reloads and intervals this is least recently
 * used; a large model that reloads fast goes before a small one that reloads slowly; one that is
 * asked for often (interval_us, the mean time between uses, is small) stays longer, but not for
 * ever: with every second that it is idle its past counts less.
 *
 * Source: GreedyDual-Size-Frequency (Cherkasova 1998: frequency x cost / size + age), with ageing
 * by the time since the last use instead of an inflating constant, as in hyperbolic caching
 * (Blankstein, Sen, Freedman 2017: n·c / (t·s)): so the order is a function of the numbers alone.
 *
 * Taking victims in that order until enough is free may take a small one in vain that a larger one
 * behind it made unnecessary: the last pass spares those, most worth first.
 */
#ifndef GOVERN_EVICTION_H
#define GOVERN_EVICTION_H

#include <stddef.h>
#include <stdint.h>

struct eviction_candidate { /* an idle model that may go */
    uint64_t bytes;         /* that come free */
    int64_t reload_us;   /* what the next request would wait; 0: nothing is known, counts as 1 ms */
    int64_t idle_us;     /* since its last use */
    int64_t interval_us; /* mean time between uses; 0: never used: counts as never again */
};

/* The worth of the formula above, per byte and second; for people and tests. */
double eviction_worth(const struct eviction_candidate *candidate);

/* Fills out_order (room for `count`) with the indices of those that must go so that at least
 * `bytes` come free, least worth first; returns how many.  All of them when even that is too
 * little. Candidates without bytes are never chosen. */
size_t eviction_choose(const struct eviction_candidate *candidates, size_t count, uint64_t bytes,
                       size_t *out_order);

#endif
