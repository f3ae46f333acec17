/* Arithmetic of single and double precision.
 *
 * The exact operations are rounded as the hardware rounds them.  The approximate ones (.approx)
 * give what the host's library gives, which is nearer to the true value than the hardware promises:
 * a result here says nothing about their error.
 */
#include "arms.h"
#include "narrow.h"

#include <math.h>
#include <string.h>

/* Each with and without .ftz: subnormal operands and results become zero. */
#define FLOAT_1(name, expression)                                                                  \
    ARM_1(name##_f32, float, expression)                                                           \
    ARM_1(name##_ftz, float, flushed(name##_of(flushed(a))))
#define FLOAT_2(name)                                                                              \
    ARM_2(name##_f32, float, name##_of(a, b))                                                      \
    ARM_2(name##_ftz, float, flushed(name##_of(flushed(a), flushed(b))))                           \
    ARM_2(name##_f64, double, name##_wide(a, b))

static inline float add_of(float a, float b)
{
    return a + b;
}
static inline double add_wide(double a, double b)
{
    return a + b;
}
static inline float sub_of(float a, float b)
{
    return a - b;
}
static inline double sub_wide(double a, double b)
{
    return a - b;
}
static inline float mul_of(float a, float b)
{
    return a * b;
}
static inline double mul_wide(double a, double b)
{
    return a * b;
}
static inline float div_of(float a, float b)
{
    return a / b;
}
static inline double div_wide(double a, double b)
{
    return a / b;
}
/* A number wins over NaN, and -0 is less than +0. */
#define LEAST(a, b)                                                                                \
    ((a) != (a)   ? (b)                                                                            \
     : (b) != (b) ? (a)                                                                            \
     : (a) < (b)  ? (a)                                                                            \
     : (b) < (a)  ? (b)                                                                            \
     : signbit(a) ? (a)                                                                            \
                  : (b))
#define MOST(a, b)                                                                                 \
    ((a) != (a)   ? (b)                                                                            \
     : (b) != (b) ? (a)                                                                            \
     : (a) > (b)  ? (a)                                                                            \
     : (b) > (a)  ? (b)                                                                            \
     : signbit(a) ? (b)                                                                            \
                  : (a))
static inline float min_of(float a, float b)
{
    return LEAST(a, b);
}
static inline double min_wide(double a, double b)
{
    return LEAST(a, b);
}
static inline float max_of(float a, float b)
{
    return MOST(a, b);
}
static inline double max_wide(double a, double b)
{
    return MOST(a, b);
}

FLOAT_2(add)
FLOAT_2(sub)
FLOAT_2(mul)
FLOAT_2(div)
FLOAT_2(min)
FLOAT_2(max)
ARM_2(minnan_f32, float, a != a ? a : b != b ? b : LEAST(a, b))
ARM_2(maxnan_f32, float, a != a ? a : b != b ? b : MOST(a, b))
ARM_3(fma_f32, float, __builtin_fmaf(a, b, c))
ARM_3(fma_ftz, float, flushed(__builtin_fmaf(flushed(a), flushed(b), flushed(c))))
ARM_3(fma_f64, double, __builtin_fma(a, b, c))
ARM_1(neg_f32, uint32_t, a ^ 0x80000000u)
ARM_1(neg_ftz, float, -flushed(a))
ARM_1(neg_f64, uint64_t, a ^ (uint64_t)1 << 63)
ARM_1(abs_f32, uint32_t, a & 0x7FFFFFFFu)
ARM_1(abs_ftz, float, fabsf(flushed(a)))
ARM_1(abs_f64, uint64_t, a & ~((uint64_t)1 << 63))
ARM_2(copysign_f32, uint32_t, (b & 0x7FFFFFFFu) | (a & 0x80000000u))
ARM_2(copysign_f64, uint64_t, (b & ~((uint64_t)1 << 63)) | (a & (uint64_t)1 << 63))

static inline float sqrt_of(float a)
{
    return sqrtf(a);
}
static inline float rcp_of(float a)
{
    return 1 / a;
}
static inline float rsqrt_of(float a)
{
    return (float)(1 / sqrt((double)a));
}
static inline float ex2_of(float a)
{
    return exp2f(a);
}
static inline float lg2_of(float a)
{
    return log2f(a);
}
static inline float sin_of(float a)
{
    return sinf(a);
}
static inline float cos_of(float a)
{
    return cosf(a);
}
static inline float tanh_of(float a)
{
    return tanhf(a);
}
FLOAT_1(sqrt, sqrt_of(a))
FLOAT_1(rcp, rcp_of(a))
FLOAT_1(rsqrt, rsqrt_of(a))
FLOAT_1(ex2, ex2_of(a))
FLOAT_1(lg2, lg2_of(a))
FLOAT_1(sin, sin_of(a))
FLOAT_1(cos, cos_of(a))
FLOAT_1(tanh, tanh_of(a))
ARM_1(sqrt_f64, double, sqrt(a))
ARM_1(rcp_f64, double, 1 / a)

/* div.approx: an infinite or huge divisor gives zero of a finite dividend; beyond 2^126 too. */
static inline float quick_of(float a, float b)
{
    return fabsf(b) > 0x1p126f && !isinf(a) && a == a ? copysignf(0, a * copysignf(1, b)) : a / b;
}
ARM_2(quick_f32, float, quick_of(a, b))
ARM_2(quick_ftz, float, flushed(quick_of(flushed(a), flushed(b))))

/* The approximations in double precision know the upper half of the bits alone. */
static inline double upper(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    bits = (bits >> 52 & 0x7FF) == 0 ? bits & (uint64_t)1 << 63 : bits & ~(uint64_t)UINT32_MAX;
    memcpy(&value, &bits, sizeof(value));
    return value;
}
ARM_1(rcpa_f64, double, upper(1 / upper(a)))
ARM_1(rsqrta_f64, double, upper(1 / sqrt(upper(a))))

ARM_1(sat_f32, float, a != a ? 0 : a < 0 ? 0 : a > 1 ? 1 : a)

#define SINGLE(name)                                                                               \
    {                                                                                              \
#name, TYPE_F32, name##_f32                                                                \
    }
#define ALL(name)                                                                                  \
    {#name, TYPE_F32, name##_f32},                                                                 \
    {                                                                                              \
#name, TYPE_F64, name##_f64                                                                \
    }
#define FLUSH(name)                                                                                \
    {                                                                                              \
#name, TYPE_F32, name##_ftz                                                                \
    }

static const struct arm plain[] = {
    ALL(add),
    ALL(sub),
    ALL(mul),
    ALL(div),
    ALL(min),
    ALL(max),
    ALL(fma),
    ALL(neg),
    ALL(abs),
    ALL(copysign),
    ALL(sqrt),
    ALL(rcp),
    SINGLE(rsqrt),
    SINGLE(ex2),
    SINGLE(lg2),
    SINGLE(sin),
    SINGLE(cos),
    SINGLE(tanh),
    {"mad", TYPE_F32, fma_f32},
    {"mad", TYPE_F64, fma_f64},
    {NULL},
};
static const struct arm flushing[] = {
    FLUSH(add), FLUSH(sub), FLUSH(mul), FLUSH(div),  FLUSH(min),  FLUSH(max),
    FLUSH(fma), FLUSH(neg), FLUSH(abs), FLUSH(sqrt), FLUSH(rcp),  FLUSH(rsqrt),
    FLUSH(ex2), FLUSH(lg2), FLUSH(sin), FLUSH(cos),  FLUSH(tanh), {"mad", TYPE_F32, fma_ftz},
    {NULL},
};
static const struct arm quick[] = {{"div", TYPE_F32, quick_f32}, {NULL}};
static const struct arm quick_flushing[] = {{"div", TYPE_F32, quick_ftz}, {NULL}};
static const struct arm wide_approx[] = {
    {"rcp", TYPE_F64, rcpa_f64}, {"rsqrt", TYPE_F64, rsqrta_f64}, {NULL}};
static const struct arm nan_first[] = {
    {"min", TYPE_F32, minnan_f32}, {"max", TYPE_F32, maxnan_f32}, {NULL}};

static unsigned operand_count(const char *name)
{
    static const char *const twos[] = {"add", "sub", "mul", "div", "min", "max", "copysign", NULL};

    if (strcmp(name, "fma") == 0 || strcmp(name, "mad") == 0)
        return 3;
    for (size_t i = 0; twos[i] != NULL; i++)
        if (strcmp(name, twos[i]) == 0)
            return 2;
    return 1;
}

static op_fn *choose(struct statement *statement, enum type type, bool ftz, bool approx)
{
    const struct arm *arms = ftz ? flushing : plain;

    if (approx && type == TYPE_F64)
        return arm_find(wide_approx, statement->name, type);
    if (approx && strcmp(statement->name, "div") == 0)
        arms = ftz ? quick_flushing : quick;
    if (type == TYPE_F32 && modifier(statement, "NaN"))
        arms = nan_first;
    return arm_find(arms, statement->name, type);
}

static void decode_float_op(struct builder *builder, struct statement *statement)
{
    static const char *const modes[] = {"rn", "rz", "rm", "rp", NULL};
    int mode = modifier_of(statement, modes);
    bool ftz = modifier(statement, "ftz");
    bool saturates = modifier(statement, "sat");
    bool approx = modifier(statement, "approx");

    if (modifier(statement, "full")) /* within 2 ulp everywhere: as good as exact */
        approx = false;
    enum type type = type_next(statement);
    if (type != TYPE_F32 && type != TYPE_F64)
        return;
    op_fn *fn = mode > 0 ? rounded_fn(statement->name, type, (unsigned)mode, ftz)
                         : choose(statement, type, ftz, approx);
    if (fn == NULL)
        return;
    unsigned bytes = type_bytes(type);
    unsigned count = operand_count(statement->name);
    struct op *op = emit_operands(builder, statement, fn, bytes, bytes, count > 1 ? bytes : 0,
                                  count > 2 ? bytes : 0);
    op->kind = (uint8_t)(mode > 0 ? mode : 0);
    if (!saturates)
        return;
    struct operand d = op->d;
    if (type != TYPE_F32)
        refuse(builder, "%s.sat of type .%s", statement->name, type_name(type));
    op = emit(builder, statement, sat_f32);
    op->d = op->a = d;
}

/* testp: what kind of number it is. */
enum test { TEST_FINITE, TEST_INFINITE, TEST_NUMBER, TEST_NAN, TEST_NORMAL, TEST_SUBNORMAL };

static bool test_of(double value, bool subnormal, enum test test)
{
    switch (test) {
    case TEST_FINITE:
        return isfinite(value);
    case TEST_INFINITE:
        return isinf(value);
    case TEST_NUMBER:
        return !isnan(value);
    case TEST_NAN:
        return isnan(value);
    case TEST_NORMAL:
        return isfinite(value) && value != 0 && !subnormal;
    default:
        return subnormal;
    }
}

static void op_test(struct warp *warp, const struct op *op, uint32_t mask)
{
    uint32_t value = 0;

    for (int lane = 0; lane < LANES; lane++) {
        bool yes;
        if (op->bytes == 4) {
            float one = ((const float *)reg(warp, op->a))[lane];
            yes = test_of(one, fpclassify(one) == FP_SUBNORMAL, op->kind);
        } else {
            double one = ((const double *)reg(warp, op->a))[lane];
            yes = test_of(one, fpclassify(one) == FP_SUBNORMAL, op->kind);
        }
        value |= (uint32_t)yes << lane;
    }
    predicate_set(warp, op->d, mask, value);
    mark_result(warp, op->d, mask, written(warp, op->a));
}

static void decode_testp(struct builder *builder, struct statement *statement)
{
    static const char *const names[] = {"finite", "infinite",  "number", "notanumber",
                                        "normal", "subnormal", NULL};
    int test = modifier_of(statement, names);
    unsigned bytes = type_bytes(type_needed(builder, statement));

    need_arguments(builder, statement, 2, 2);
    if (test < 0)
        refuse(builder, "testp of this kind");
    struct operand d = destination_predicate(builder, &statement->arguments[0]);
    struct operand a = source(builder, &statement->arguments[1], bytes);
    struct op *op = emit(builder, statement, op_test);
    op->d = d;
    op->a = a;
    op->bytes = (uint8_t)bytes;
    op->kind = (uint8_t)test;
}

const struct decoder decode_float[] = {
    {"add", decode_float_op},      {"sub", decode_float_op},  {"mul", decode_float_op},
    {"div", decode_float_op},      {"min", decode_float_op},  {"max", decode_float_op},
    {"fma", decode_float_op},      {"mad", decode_float_op},  {"neg", decode_float_op},
    {"abs", decode_float_op},      {"sqrt", decode_float_op}, {"rcp", decode_float_op},
    {"rsqrt", decode_float_op},    {"ex2", decode_float_op},  {"lg2", decode_float_op},
    {"sin", decode_float_op},      {"cos", decode_float_op},  {"tanh", decode_float_op},
    {"copysign", decode_float_op}, {"testp", decode_testp},   {NULL, NULL},
};
