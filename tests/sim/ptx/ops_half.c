/* Half precision and bfloat16, one at a time and in pairs.
 *
 * Sums and products of two such numbers are rounded once in single precision and again to the
 * narrow format: single precision is wide enough (24 >= 2 x 11 + 2 bits) that this is as good as
 * rounding once.  A fused multiply-add is not safe that way and goes through double precision
 * rounded to odd.
 */
#include "arms.h"
#include "narrow.h"

#include <math.h>
#include <string.h>

enum half_kind { HALF_ADD, HALF_SUB, HALF_MUL, HALF_MIN, HALF_MAX, HALF_MIN_NAN, HALF_MAX_NAN };

/* a * b + c to double, rounded to odd: a later rounding to fewer bits is then right. */
static double fma_odd(float a, float b, float c)
{
    double product = (double)a * b; /* exact: 22 bits */
    double sum = product + c;
    double part = sum - product;
    double error = (product - (sum - part)) + (c - part);
    uint64_t bits;

    if (error == 0 || isnan(error) || isinf(sum))
        return sum;
    memcpy(&bits, &sum, sizeof(bits));
    if ((bits & 1) == 0) {
        bool away = (error > 0) == (sum > 0);
        bits = away ? bits + 1 : bits - 1;
        memcpy(&sum, &bits, sizeof(sum));
    }
    return sum;
}

/* Rounded to odd once more: single precision has more than two bits to spare. */
static float odd_float(double value)
{
    float narrow = (float)value;
    uint32_t bits = float_bits(narrow);

    if ((double)narrow == value || isnan(value) || isinf(narrow))
        return narrow;
    if (fabs((double)narrow) > fabs(value))
        bits--;
    return bits_float(bits | 1);
}

static uint16_t double_half(double value)
{
    return float_half(odd_float(value));
}

static uint16_t double_brain(double value)
{
    return float_brain(odd_float(value));
}

static inline float least(float a, float b)
{
    return a != a ? b : b != b ? a : a < b ? a : b < a ? b : signbit(a) ? a : b;
}

static inline float most(float a, float b)
{
    return a != a ? b : b != b ? a : a > b ? a : b > a ? b : signbit(a) ? b : a;
}

static inline float compute(unsigned kind, float a, float b)
{
    switch (kind) {
    case HALF_ADD:
        return a + b;
    case HALF_SUB:
        return a - b;
    case HALF_MUL:
        return a * b;
    case HALF_MIN:
        return least(a, b);
    case HALF_MAX:
        return most(a, b);
    case HALF_MIN_NAN:
        return a != a || b != b ? NAN : least(a, b);
    default:
        return a != a || b != b ? NAN : most(a, b);
    }
}

static inline float settle(const struct op *op, float value)
{
    if (op->flip) /* .sat */
        return value != value || value < 0 ? 0 : value > 1 ? 1 : value;
    if (op->second) /* .relu */
        return value != value ? value : value < 0 ? 0 : value;
    return value;
}

/* Each register is op->count numbers of 16 bits. */
#define HALF(name, widen, narrow, narrow_fma)                                                      \
    static void two_##name(struct warp *warp, const struct op *op, uint32_t mask)                  \
    {                                                                                              \
        uint16_t *d = reg(warp, op->d);                                                            \
        const uint16_t *a = reg(warp, op->a);                                                      \
        const uint16_t *b = reg(warp, op->b);                                                      \
        for (unsigned i = 0; i < op->count * (unsigned)LANES; i++)                                 \
            if (mask >> i / op->count & 1)                                                         \
                d[i] = narrow(settle(op, compute(op->kind, widen(a[i]), widen(b[i]))));            \
        mark_result(warp, op->d, mask, written(warp, op->a) & written(warp, op->b));               \
    }                                                                                              \
    static void fma_##name(struct warp *warp, const struct op *op, uint32_t mask)                  \
    {                                                                                              \
        uint16_t *d = reg(warp, op->d);                                                            \
        const uint16_t *a = reg(warp, op->a);                                                      \
        const uint16_t *b = reg(warp, op->b);                                                      \
        const uint16_t *c = reg(warp, op->c);                                                      \
        for (unsigned i = 0; i < op->count * (unsigned)LANES; i++) {                               \
            if ((mask >> i / op->count & 1) == 0)                                                  \
                continue;                                                                          \
            uint16_t r = narrow_fma(fma_odd(widen(a[i]), widen(b[i]), widen(c[i])));               \
            d[i] = op->flip || op->second ? narrow(settle(op, widen(r))) : r;                      \
        }                                                                                          \
        mark_result(warp, op->d, mask,                                                             \
                    written(warp, op->a) & written(warp, op->b) & written(warp, op->c));           \
    }                                                                                              \
    static void ex2_##name(struct warp *warp, const struct op *op, uint32_t mask)                  \
    {                                                                                              \
        uint16_t *d = reg(warp, op->d);                                                            \
        const uint16_t *a = reg(warp, op->a);                                                      \
        for (unsigned i = 0; i < op->count * (unsigned)LANES; i++)                                 \
            if (mask >> i / op->count & 1)                                                         \
                d[i] = narrow(exp2f(widen(a[i])));                                                 \
        mark_result(warp, op->d, mask, written(warp, op->a));                                      \
    }                                                                                              \
    static void tanh_##name(struct warp *warp, const struct op *op, uint32_t mask)                 \
    {                                                                                              \
        uint16_t *d = reg(warp, op->d);                                                            \
        const uint16_t *a = reg(warp, op->a);                                                      \
        for (unsigned i = 0; i < op->count * (unsigned)LANES; i++)                                 \
            if (mask >> i / op->count & 1)                                                         \
                d[i] = narrow(tanhf(widen(a[i])));                                                 \
        mark_result(warp, op->d, mask, written(warp, op->a));                                      \
    }
HALF(f16, half_float, float_half, double_half)
HALF(bf16, brain_float, float_brain, double_brain)

ARM_1(neg_16, uint16_t, a ^ 0x8000u)
ARM_1(neg_32, uint32_t, a ^ 0x80008000u)
ARM_1(abs_16, uint16_t, a & 0x7FFFu)
ARM_1(abs_32, uint32_t, a & 0x7FFF7FFFu)

static bool is_half(enum type type)
{
    return type == TYPE_F16 || type == TYPE_F16X2;
}

static bool is_brain(enum type type)
{
    return type == TYPE_BF16 || type == TYPE_BF16X2;
}

static void decode_unary(struct builder *builder, struct statement *statement, enum type type)
{
    unsigned bytes = type_bytes(type);
    op_fn *fn;

    if (strcmp(statement->name, "neg") == 0)
        fn = bytes == 2 ? neg_16 : neg_32;
    else if (strcmp(statement->name, "abs") == 0)
        fn = bytes == 2 ? abs_16 : abs_32;
    else if (strcmp(statement->name, "ex2") == 0)
        fn = is_half(type) ? ex2_f16 : ex2_bf16;
    else
        fn = is_half(type) ? tanh_f16 : tanh_bf16;
    emit_operands(builder, statement, fn, bytes, bytes, 0, 0)->count = (uint8_t)(bytes / 2);
}

static int kind_of(struct statement *statement)
{
    static const char *const names[] = {"add", "sub", "mul", "min", "max", NULL};
    bool nan = modifier(statement, "NaN");

    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(statement->name, names[i]) == 0)
            return nan ? i + 2 : i;
    return -1;
}

static void decode_half_op(struct builder *builder, struct statement *statement)
{
    bool ftz = modifier(statement, "ftz");
    bool saturates = modifier(statement, "sat");
    bool relu = modifier(statement, "relu");

    modifier(statement, "rn");
    modifier(statement, "approx");
    enum type type = type_next(statement);
    if (!is_half(type) && !is_brain(type))
        return;
    if (ftz && is_half(type) && strcmp(statement->name, "ex2") != 0)
        refuse(builder, "%s.ftz of half precision", statement->name);
    unsigned bytes = type_bytes(type);
    int kind = kind_of(statement);
    bool fma = strcmp(statement->name, "fma") == 0;
    if (kind < 0 && !fma) {
        decode_unary(builder, statement, type);
        return;
    }
    op_fn *fn = fma ? (is_half(type) ? fma_f16 : fma_bf16) : (is_half(type) ? two_f16 : two_bf16);
    struct op *op = emit_operands(builder, statement, fn, bytes, bytes, bytes, fma ? bytes : 0);
    op->kind = (uint8_t)(kind < 0 ? 0 : kind);
    op->count = (uint8_t)(bytes / 2);
    op->flip = saturates;
    op->second = relu;
}

const struct decoder decode_half[] = {
    {"add", decode_half_op},
    {"sub", decode_half_op},
    {"mul", decode_half_op},
    {"fma", decode_half_op},
    {"min", decode_half_op},
    {"max", decode_half_op},
    {"neg", decode_half_op},
    {"abs", decode_half_op},
    {"ex2", decode_half_op},
    {"tanh", decode_half_op},
    {NULL, NULL},
};
