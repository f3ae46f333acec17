/* Plain loops in double for convolutions and pools, over windows of up to three dimensions. */
#ifndef TESTS_DEVICE_CPU_CONV_REFERENCE_H
#define TESTS_DEVICE_CPU_CONV_REFERENCE_H

#include "op_tester/op_tester.h"
#include "ops/conv.h"

/* Walks the taps of one output place: false when there are none left.  tap counts from 0. */
struct tap_walk {
    const struct window *window;
    int64_t out[WINDOW_MAX_RANK]; /* the place */
    int64_t tap;
    int64_t at; /* flat input place; only when inside */
    bool inside;
};

static inline int64_t window_taps(const struct window *window)
{
    int64_t taps = 1;

    for (size_t i = 0; i < window->spatial; i++)
        taps *= window->kernel[i];
    return taps;
}

static inline int64_t window_places(const struct window *window, bool of_output)
{
    int64_t places = 1;

    for (size_t i = 0; i < window->spatial; i++)
        places *= of_output ? window->out[i] : window->in[i];
    return places;
}

static inline void tap_walk_start(struct tap_walk *walk, const struct window *window, int64_t place)
{
    walk->window = window;
    walk->tap = -1;
    for (size_t i = window->spatial; i-- > 0; place /= window->out[i])
        walk->out[i] = place % window->out[i];
}

static inline bool tap_walk_next(struct tap_walk *walk)
{
    const struct window *w = walk->window;
    int64_t rest = ++walk->tap, k[WINDOW_MAX_RANK];

    if (walk->tap >= window_taps(w))
        return false;
    for (size_t i = w->spatial; i-- > 0; rest /= w->kernel[i])
        k[i] = rest % w->kernel[i];
    walk->at = 0;
    walk->inside = true;
    for (size_t i = 0; i < w->spatial; i++) {
        int64_t x = walk->out[i] * w->stride[i] - w->pad_begin[i] + k[i] * w->dilation[i];

        walk->inside = walk->inside && x >= 0 && x < w->in[i];
        walk->at = walk->at * w->in[i] + x;
    }
    return true;
}

#endif
