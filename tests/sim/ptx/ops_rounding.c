/* Single and double precision under the directed roundings: .rz, .rm, .rp.  This file is compiled
 * with -frounding-math: the host's own rounding is switched for each instruction. */
#include "arms.h"
#include "narrow.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

/* op->kind: 1 to zero, 2 down, 3 up. */
static const int host_modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};

#define ROUNDED(name, T, flush, expression)                                                        \
    static void name(struct warp *warp, const struct op *op, uint32_t mask)                        \
    {                                                                                              \
        T *d = reg(warp, op->d);                                                                   \
        const T *a_ = reg(warp, op->a);                                                            \
        const T *b_ = reg(warp, op->b);                                                            \
        const T *c_ = reg(warp, op->c);                                                            \
        uint32_t good = written(warp, op->a) & written(warp, op->b) & written(warp, op->c);        \
        fesetround(host_modes[op->kind]);                                                          \
        for (uint32_t left = mask; left != 0; left &= left - 1) {                                  \
            int lane = __builtin_ctz(left);                                                        \
            volatile T a = flush(a_[lane]);                                                        \
            volatile T b = flush(b_[lane]);                                                        \
            volatile T c = flush(c_[lane]);                                                        \
            (void)b, (void)c;                                                                      \
            volatile T r = expression;                                                             \
            d[lane] = flush(r);                                                                    \
        }                                                                                          \
        fesetround(FE_TONEAREST);                                                                  \
        mark_result(warp, op->d, mask, good);                                                      \
    }
#define SAME(value) (value)
#define ALL(name, narrow, wide)                                                                    \
    ROUNDED(name##_f32, float, SAME, narrow)                                                       \
    ROUNDED(name##_ftz, float, flushed, narrow)                                                    \
    ROUNDED(name##_f64, double, SAME, wide)

ALL(add, a + b, a + b)
ALL(sub, a - b, a - b)
ALL(mul, a *b, a *b)
ALL(div, a / b, a / b)
ALL(fma, fmaf(a, b, c), fma(a, b, c))
ALL(sqrt, sqrtf(a), sqrt(a))
ALL(rcp, 1 / a, 1 / a)

struct row {
    const char *name;
    op_fn *single;
    op_fn *flushing;
    op_fn *wide;
};

#define ROW(name)                                                                                  \
    {                                                                                              \
#name, name##_f32, name##_ftz, name##_f64                                                  \
    }
static const struct row rows[] = {
    ROW(add), ROW(sub),  ROW(mul), ROW(div),
    ROW(fma), ROW(sqrt), ROW(rcp), {"mad", fma_f32, fma_ftz, fma_f64},
};

op_fn *rounded_fn(const char *name, enum type type, unsigned mode, bool ftz)
{
    (void)mode;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].name, name) == 0)
            return type == TYPE_F64 ? rows[i].wide : ftz ? rows[i].flushing : rows[i].single;
    return NULL;
}
