/* Walks the cells under a window at one place of its output: for kernels that take every rank. */
#ifndef DEVICE_CPU_TAPS_H
#define DEVICE_CPU_TAPS_H

#include "ops/window.h"

struct taps {
    const struct window *window;
    int64_t start[WINDOW_MAX_RANK]; /* first cell of the window, padding counts negative */
    int64_t k[WINDOW_MAX_RANK];     /* the tap now */
    int64_t tap;                    /* its flat number */
    int64_t cell;                   /* flat number of the cell under it */
    bool inside;                    /* false: the cell is padding */
};

static inline void taps_locate(struct taps *taps)
{
    const struct window *w = taps->window;

    taps->cell = 0;
    taps->inside = true;
    for (size_t i = 0; i < w->spatial; i++) {
        int64_t at = taps->start[i] + taps->k[i] * w->dilation[i];

        taps->inside = taps->inside && at >= 0 && at < w->in[i];
        taps->cell = taps->cell * w->in[i] + at;
    }
}

/* `place`: flat number in the output. */
static inline void taps_begin(struct taps *taps, const struct window *window, int64_t place)
{
    taps->window = window;
    taps->tap = 0;
    for (size_t i = window->spatial; i-- > 0; place /= window->out[i]) {
        taps->start[i] = place % window->out[i] * window->stride[i] - window->pad_begin[i];
        taps->k[i] = 0;
    }
    taps_locate(taps);
}

/* False behind the last tap. */
static inline bool taps_next(struct taps *taps)
{
    size_t i = taps->window->spatial;

    while (i-- > 0) {
        if (++taps->k[i] < taps->window->kernel[i]) {
            taps->tap++;
            taps_locate(taps);
            return true;
        }
        taps->k[i] = 0;
    }
    return false;
}

static inline int64_t window_cells(const struct window *window, const int64_t *dims)
{
    int64_t cells = 1;

    for (size_t i = 0; i < window->spatial; i++)
        cells *= dims[i];
    return cells;
}

#endif
