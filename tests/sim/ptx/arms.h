/* Instructions of one shape: functions by type, and the decoder that all of the shape share. */
#ifndef SLUICE_TESTS_SIM_PTX_ARMS_H
#define SLUICE_TESTS_SIM_PTX_ARMS_H

#include "build.h"

/* One function of an instruction, for one type. */
struct arm {
    const char *name;
    enum type type;
    op_fn *fn;
};

/* d = f(a), f(a, b) or f(a, b, c); the results count as written where all sources are. */
#define ARM_1(name, T, expression)                                                                 \
    static void name(struct warp *warp, const struct op *op, uint32_t mask)                        \
    {                                                                                              \
        T *d = reg(warp, op->d);                                                                   \
        const T *a_ = reg(warp, op->a);                                                            \
        EACH_LANE(mask, const T a = a_[lane]; d[lane] = (T)(expression));                          \
        mark_result(warp, op->d, mask, written(warp, op->a));                                      \
    }
#define ARM_2(name, T, expression)                                                                 \
    static void name(struct warp *warp, const struct op *op, uint32_t mask)                        \
    {                                                                                              \
        T *d = reg(warp, op->d);                                                                   \
        const T *a_ = reg(warp, op->a);                                                            \
        const T *b_ = reg(warp, op->b);                                                            \
        EACH_LANE(mask, const T a = a_[lane]; const T b = b_[lane]; d[lane] = (T)(expression));    \
        mark_result(warp, op->d, mask, written(warp, op->a) & written(warp, op->b));               \
    }
#define ARM_3(name, T, expression)                                                                 \
    static void name(struct warp *warp, const struct op *op, uint32_t mask)                        \
    {                                                                                              \
        T *d = reg(warp, op->d);                                                                   \
        const T *a_ = reg(warp, op->a);                                                            \
        const T *b_ = reg(warp, op->b);                                                            \
        const T *c_ = reg(warp, op->c);                                                            \
        EACH_LANE(mask, const T a = a_[lane]; const T b = b_[lane]; const T c = c_[lane];          \
                  d[lane] = (T)(expression));                                                      \
        mark_result(warp, op->d, mask,                                                             \
                    written(warp, op->a) & written(warp, op->b) & written(warp, op->c));           \
    }

/* The function of a list for this name and type; NULL: none. */
op_fn *arm_find(const struct arm *arms, const char *name, enum type type);

/* The function of an instruction under a directed rounding (1 to zero, 2 down, 3 up: op->kind);
 * NULL: it has none. */
op_fn *rounded_fn(const char *name, enum type type, unsigned mode, bool ftz);

/* Emits d = fn(a, b, c) with the sizes given; a size of 0 says that there is no such operand. */
struct op *emit_operands(struct builder *builder, struct statement *statement, op_fn *fn,
                         unsigned d, unsigned a, unsigned b, unsigned c);

#endif
