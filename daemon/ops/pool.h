/* Pools over windows and over everything, as kernels see them. */
#ifndef OPS_POOL_H
#define OPS_POOL_H

#include "ops/window.h"

struct pool_attrs {
    struct window_attrs window;
    int64_t ceil_mode;
    int64_t count_include_pad; /* average */
    int64_t storage_order;     /* max, for its indices: 1 is column major */
    int64_t p;                 /* lp */
};

MUST_CHECK enum status pool_resolve(const struct pool_attrs *attrs, const struct shape *x,
                                    struct window *out_window, struct error *err);

#endif
