/* Reductions of doubles and integers: one element after the other. */
#include <math.h>

#include "device/cpu/lines/reduce_internal.h"
#include "device/cpu/team.h"

/* What all types keep while reducing: integers in `whole` (wrapping), the rest in `real`. */
struct total {
    double real;
    uint64_t whole;
};

/* Takes one more element, given as a real number, as wrapped bits, and as its size. */
static inline void take(struct total *total, enum way way, double shift, double real,
                        uint64_t whole, uint64_t size)
{
    switch (way) {
    case SUM:
    case MEAN:
    case LOG_SUM:
        total->whole += whole;
        total->real += real;
        break;
    case L1:
        total->whole += size;
        total->real += fabs(real);
        break;
    case L2:
    case SUM_SQUARE:
        total->whole += whole * whole;
        total->real += real * real;
        break;
    case LOG_SUM_EXP:
        total->real += exp(real - shift);
        break;
    case PROD:
        total->whole *= whole;
        total->real *= real;
        break;
    case MAX:
    case MIN:
        break;
    }
}

#define SIGNED_SIZE(value)   (value < 0 ? 0 - (uint64_t)value : (uint64_t)value)
#define UNSIGNED_SIZE(value) ((uint64_t)value)
#define NO_SIZE(value)       0

#define REDUCE_TYPE(type, bits, size, lowest, highest, result)                                     \
    static type extreme_##type(const struct axes *axes, const type *x, bool largest)               \
    {                                                                                              \
        type best = largest ? (lowest) : (highest);                                                \
                                                                                                   \
        for (size_t i = 0; i < axes->count; i++) {                                                 \
            type value = x[axes_offset(axes, i)];                                                  \
                                                                                                   \
            if ((largest ? value > best : value < best) || value != value)                         \
                best = value;                                                                      \
            if (best != best)                                                                      \
                break;                                                                             \
        }                                                                                          \
        return best;                                                                               \
    }                                                                                              \
    static type reduce_##type(const struct reduce_state *state, const type *x)                     \
    {                                                                                              \
        const struct axes *axes = &state->reduced;                                                 \
        enum way way = state->way;                                                                 \
        struct total total = {way == PROD ? 1 : 0, way == PROD ? 1 : 0};                           \
        double shift = 0;                                                                          \
                                                                                                   \
        if (way == MAX || way == MIN)                                                              \
            return extreme_##type(axes, x, way == MAX);                                            \
        if (way == LOG_SUM_EXP) {                                                                  \
            shift = axes->count > 0 ? (double)extreme_##type(axes, x, true) : 0;                   \
            shift = isinf(shift) ? 0 : shift;                                                      \
        }                                                                                          \
        for (size_t i = 0; i < axes->count; i++) {                                                 \
            type value = x[axes_offset(axes, i)];                                                  \
                                                                                                   \
            take(&total, way, shift, (double)value, bits(value), size(value));                     \
        }                                                                                          \
        return result;                                                                             \
    }                                                                                              \
    static void results_##type(const struct reduce_state *state, const void *in, void *out,        \
                               size_t from, size_t to)                                             \
    {                                                                                              \
        for (size_t i = from; i < to; i++)                                                         \
            ((type *)out)[i] =                                                                     \
                reduce_##type(state, (const type *)in + axes_offset(&state->kept, i));             \
    }

static bool is_real(enum way way)
{
    return way == L2 || way == LOG_SUM || way == LOG_SUM_EXP;
}

static double real_result(const struct reduce_state *state, const struct total *total, double shift)
{
    return reduce_finish(state, total->real, shift);
}

/* An integer result: cut towards zero where the way there is a real number. */
static int64_t whole_result(const struct reduce_state *state, const struct total *total,
                            double shift)
{
    double real;

    if (state->way == MEAN)
        return state->reduced_count > 0 ? (int64_t)total->whole / (int64_t)state->reduced_count : 0;
    if (!is_real(state->way))
        return (int64_t)total->whole;
    real = reduce_finish(state, total->real, shift);
    return real >= -9223372036854775808.0 && real < 9223372036854775808.0 ? (int64_t)real
                                                                          : INT64_MIN;
}
#define WHOLE(type) (type) whole_result(state, &total, shift)

REDUCE_TYPE(int8_t, UNSIGNED_SIZE, SIGNED_SIZE, INT8_MIN, INT8_MAX, WHOLE(int8_t))
REDUCE_TYPE(uint8_t, UNSIGNED_SIZE, UNSIGNED_SIZE, 0, UINT8_MAX, WHOLE(uint8_t))
REDUCE_TYPE(int32_t, UNSIGNED_SIZE, SIGNED_SIZE, INT32_MIN, INT32_MAX, WHOLE(int32_t))
REDUCE_TYPE(uint32_t, UNSIGNED_SIZE, UNSIGNED_SIZE, 0, UINT32_MAX, WHOLE(uint32_t))
REDUCE_TYPE(int64_t, UNSIGNED_SIZE, SIGNED_SIZE, INT64_MIN, INT64_MAX, WHOLE(int64_t))

static uint64_t unsigned_result(const struct reduce_state *state, const struct total *total,
                                double shift)
{
    if (state->way == MEAN)
        return state->reduced_count > 0 ? total->whole / state->reduced_count : 0;
    return (uint64_t)whole_result(state, total, shift);
}
REDUCE_TYPE(uint64_t, UNSIGNED_SIZE, UNSIGNED_SIZE, 0, UINT64_MAX,
            unsigned_result(state, &total, shift))

REDUCE_TYPE(double, NO_SIZE, NO_SIZE, -INFINITY, INFINITY, real_result(state, &total, shift))

typedef void (*results_fn)(const struct reduce_state *state, const void *in, void *out, size_t from,
                           size_t to);

static const results_fn results[DTYPE_COUNT] = {
    [DTYPE_DOUBLE] = results_double, [DTYPE_INT8] = results_int8_t,
    [DTYPE_UINT8] = results_uint8_t, [DTYPE_BOOL] = results_uint8_t,
    [DTYPE_INT32] = results_int32_t, [DTYPE_UINT32] = results_uint32_t,
    [DTYPE_INT64] = results_int64_t, [DTYPE_UINT64] = results_uint64_t,
};

bool reduce_any_takes(enum dtype dtype)
{
    return results[dtype] != NULL;
}

void reduce_any(void *arg, unsigned member, unsigned members)
{
    const struct reduce_any_job *job = arg;
    size_t from, to;

    team_share(job->state->kept.count, member, members, &from, &to);
    results[job->state->dtype](job->state, job->in, job->out, from, to);
}
