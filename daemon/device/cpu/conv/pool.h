/* Pools over float planes, one set per instruction set; pool.c divides the work. */
#ifndef DEVICE_CPU_POOL_H
#define DEVICE_CPU_POOL_H

#include "device/cpu/cpu.h"
#include "ops/window.h"

enum pool_kind { POOL_MAX, POOL_AVERAGE };
enum { POOL_MAX_REACH = 2048 }; /* of a window along plain rows, cells */

struct pool_plane {
    enum pool_kind kind;
    bool count_padding;   /* average: padding counts as zeros */
    struct window window; /* of three dimensions, the leading ones 1 where there are fewer */
    size_t block;         /* channels side by side: 1 (plain) or the device's channel block */
};

struct pool_ops {
    /* One plane: [cells][block] to [places][block]. */
    void (*window)(const struct pool_plane *pool, const float *x, float *y);
    /* Rows [from, to) of the result of a plane of two dimensions, blocked, from the cells that are
     * there: x begins with row `top` of the plane.  y: the first of these rows. */
    void (*rows)(const struct pool_plane *pool, const float *x, int64_t top, int64_t from,
                 int64_t to, float *y);
    /* Mean or maximum of all cells of `block` channels; out[block]. */
    void (*global)(enum pool_kind kind, const float *x, size_t cells, size_t block, float *out);
    /* x / (bias + scale * sum of squares over the `size` channels around)^beta for one cell's
     * channels side by side; squares: room for channels + size + 16 floats. */
    void (*normalize)(const float *x, size_t channels, size_t size, float scale, float bias,
                      float beta, float *y, float *squares);
};

const struct pool_ops *pool_ops_for(enum cpu_isa isa);

#endif
