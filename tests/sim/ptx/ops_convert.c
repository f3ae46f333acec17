/* cvt: the conversions that kernels do often as loops of their own, all others through one general
 * path that rounds exactly once. */
#include "arms.h"
#include "narrow.h"

#include <math.h>
#include <string.h>

#define CONVERT(name, S, D, expression)                                                            \
    static void name(struct warp *warp, const struct op *op, uint32_t mask)                        \
    {                                                                                              \
        D *d = reg(warp, op->d);                                                                   \
        const S *a_ = reg(warp, op->a);                                                            \
        EACH_LANE(mask, const S a = a_[lane]; d[lane] = (D)(expression));                          \
        mark_result(warp, op->d, mask, written(warp, op->a));                                      \
    }
CONVERT(u32_u64, uint64_t, uint32_t, a)
CONVERT(u64_u32, uint32_t, uint64_t, a)
CONVERT(s64_s32, int32_t, int64_t, a)
CONVERT(u16_u32, uint32_t, uint16_t, a)
CONVERT(u16_u64, uint64_t, uint16_t, a)
CONVERT(u32_u16, uint16_t, uint32_t, a)
CONVERT(s32_s16, int16_t, int32_t, a)
CONVERT(f32_s32, int32_t, float, a)
CONVERT(f32_u32, uint32_t, float, a)
CONVERT(f64_s32, int32_t, double, a)
CONVERT(f64_f32, float, double, a)
CONVERT(f32_f64, double, float, a)
CONVERT(f32_f16, uint16_t, float, half_float(a))
CONVERT(f16_f32, float, uint16_t, float_half(a))
CONVERT(f32_bf16, uint16_t, float, brain_float(a))
CONVERT(bf16_f32, float, uint16_t, float_brain(a))
CONVERT(f64_s16, int16_t, double, a)
CONVERT(f64_u16, uint16_t, double, a)
CONVERT(f64_u32, uint32_t, double, a)
CONVERT(f64_s64, int64_t, double, a)
CONVERT(f64_u64, uint64_t, double, a)
CONVERT(f32_s64, int64_t, float, a)
CONVERT(f32_u64, uint64_t, float, a)

/* To integers: towards zero, the ends of the range beyond them; for NaN as to_integer() has it. */
#define WHOLE(a, T, low, beyond, most, nan)                                                        \
    ((a) != (a) ? (nan) : (a) >= (beyond) ? (most) : (a) <= (low) ? (T)(low) : (T)(a))
CONVERT(s64_f64, double, int64_t, WHOLE(a, int64_t, -0x1p63, 0x1p63, INT64_MAX, INT64_MIN))
CONVERT(s64_f32, float, int64_t, WHOLE(a, int64_t, -0x1p63f, 0x1p63f, INT64_MAX, INT64_MIN))
CONVERT(u64_f64, double, uint64_t, WHOLE(a, uint64_t, 0.0, 0x1p64, UINT64_MAX, (uint64_t)1 << 63))
CONVERT(s32_f32, float, int32_t, WHOLE(a, int32_t, -0x1p31f, 0x1p31f, INT32_MAX, 0))

/* Whole numbers of the same type; every NaN of single precision is the canonical one. */
#define ROUND(function, a) ((a) != (a) ? bits_float(0x7FFFFFFF) : function(a))
CONVERT(rint_f32, float, float, ROUND(rintf, a))
CONVERT(trunc_f32, float, float, ROUND(truncf, a))
CONVERT(floor_f32, float, float, ROUND(floorf, a))
CONVERT(ceil_f32, float, float, ROUND(ceilf, a))
CONVERT(sat_f32, float, float, a != a || a < 0 ? 0 : a > 1 ? 1 : a)

static const struct {
    enum type to;
    enum type from;
    const char *mode; /* NULL: none */
    op_fn *fn;
    bool saturates;
} direct[] = {
    {TYPE_U32, TYPE_U64, NULL, u32_u64},    {TYPE_U64, TYPE_U32, NULL, u64_u32},
    {TYPE_S64, TYPE_S32, NULL, s64_s32},    {TYPE_U16, TYPE_U32, NULL, u16_u32},
    {TYPE_U16, TYPE_U64, NULL, u16_u64},    {TYPE_U32, TYPE_U16, NULL, u32_u16},
    {TYPE_S32, TYPE_S16, NULL, s32_s16},    {TYPE_F32, TYPE_S32, "rn", f32_s32},
    {TYPE_F32, TYPE_U32, "rn", f32_u32},    {TYPE_F64, TYPE_S32, "rn", f64_s32},
    {TYPE_F64, TYPE_F32, NULL, f64_f32},    {TYPE_F32, TYPE_F64, "rn", f32_f64},
    {TYPE_F32, TYPE_F16, NULL, f32_f16},    {TYPE_F16, TYPE_F32, "rn", f16_f32},
    {TYPE_F32, TYPE_BF16, NULL, f32_bf16},  {TYPE_BF16, TYPE_F32, "rn", bf16_f32},
    {TYPE_F64, TYPE_S16, "rn", f64_s16},    {TYPE_F64, TYPE_U16, "rn", f64_u16},
    {TYPE_F64, TYPE_U32, "rn", f64_u32},    {TYPE_F64, TYPE_S64, "rn", f64_s64},
    {TYPE_F64, TYPE_U64, "rn", f64_u64},    {TYPE_F32, TYPE_S64, "rn", f32_s64},
    {TYPE_F32, TYPE_U64, "rn", f32_u64},    {TYPE_S64, TYPE_F64, "rzi", s64_f64},
    {TYPE_S64, TYPE_F32, "rzi", s64_f32},   {TYPE_U64, TYPE_F64, "rzi", u64_f64},
    {TYPE_S32, TYPE_F32, "rzi", s32_f32},   {TYPE_F32, TYPE_F32, "rni", rint_f32},
    {TYPE_F32, TYPE_F32, "rzi", trunc_f32}, {TYPE_F32, TYPE_F32, "rmi", floor_f32},
    {TYPE_F32, TYPE_F32, "rpi", ceil_f32},  {TYPE_F32, TYPE_F32, NULL, sat_f32, true},
};

/* The general form: what is read, how it is rounded, what is written. */
struct conversion {
    enum type to;
    enum type from;
    enum rounding mode;
    bool integral; /* .rni and the like: a float that is a whole number */
    bool saturates;
    bool finite;
    bool relu;
    bool ftz;
    unsigned from_store; /* bytes of a lane of the registers */
    unsigned to_store;
};

static int64_t extended(enum type type, uint64_t bits)
{
    unsigned unused = 64 - 8 * type_bytes(type);

    return type_is_signed(type) ? (int64_t)(bits << unused) >> unused
                                : (int64_t)(bits << unused >> unused);
}

static long double least_of(enum type type)
{
    return type_is_signed(type) ? -ldexpl(1, (int)type_bytes(type) * 8 - 1) : 0;
}

static long double most_of(enum type type)
{
    return ldexpl(1, (int)type_bytes(type) * 8 - (type_is_signed(type) ? 1 : 0)) - 1;
}

/* Beyond the range of the result: its end.  NaN: zero, or the lowest bit pattern of 64-bit ends. */
static uint64_t to_integer(const struct conversion *how, long double value)
{
    if (isnan(value)) {
        bool wide = how->from == TYPE_F64 || type_bytes(how->to) == 8;
        return wide ? (uint64_t)1 << (type_bytes(how->to) * 8 - 1) : 0;
    }
    value = round_integral(value, how->mode);
    if (value < least_of(how->to))
        value = least_of(how->to);
    if (value > most_of(how->to))
        value = most_of(how->to);
    return value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value;
}

static uint64_t integer_to_integer(const struct conversion *how, uint64_t bits)
{
    int64_t value = extended(how->from, bits);

    if (!how->saturates)
        return (uint64_t)value;
    long double exact =
        type_is_signed(how->from) ? (long double)value : (long double)(uint64_t)value;
    return to_integer(&(struct conversion){.to = how->to, .from = how->from}, exact);
}

static long double flush_to(enum type type, long double value)
{
    const struct format *format = format_of(type);

    return fabsl(value) < ldexpl(1, format->least) ? copysignl(0, value) : value;
}

static uint64_t to_float(const struct conversion *how, long double value)
{
    if (how->integral)
        value = round_integral(value, how->mode);
    if (how->saturates)
        value = isnan(value) || value < 0 ? 0 : value > 1 ? 1 : value;
    if (how->relu && value < 0)
        value = 0;
    value = round_format(value, format_of(how->to), how->integral ? ROUND_NEAREST : how->mode,
                         how->finite);
    if (how->ftz && how->to == TYPE_F32)
        value = flush_to(TYPE_F32, value);
    return value_bits(how->to, value);
}

static uint64_t converted(const struct conversion *how, uint64_t bits)
{
    if (!type_is_float(how->from)) {
        if (!type_is_float(how->to))
            return integer_to_integer(how, bits);
        int64_t value = extended(how->from, bits);
        return to_float(how, type_is_signed(how->from) ? (long double)value
                                                       : (long double)(uint64_t)value);
    }
    long double value = bits_value(how->from, bits);
    if (how->ftz && how->from == TYPE_F32)
        value = flush_to(TYPE_F32, value);
    return type_is_float(how->to) ? to_float(how, value) : to_integer(how, value);
}

/* A result narrower than its register fills it: sign or zeros. */
static void op_convert(struct warp *warp, const struct op *op, uint32_t mask)
{
    const struct conversion *how = op->extra;
    unsigned from_bits = type_bytes(how->from) * 8;
    uint64_t low = from_bits == 64 ? UINT64_MAX : ((uint64_t)1 << from_bits) - 1;

    for (uint32_t left = mask; left != 0; left &= left - 1) {
        size_t lane = (size_t)__builtin_ctz(left);
        uint64_t bits = 0;
        memcpy(&bits, (char *)reg(warp, op->a) + lane * how->from_store, how->from_store);
        bits = converted(how, bits & low);
        if (!type_is_float(how->to))
            bits = (uint64_t)extended(how->to, bits);
        memcpy((char *)reg(warp, op->d) + lane * how->to_store, &bits, how->to_store);
    }
    mark_result(warp, op->d, mask, written(warp, op->a));
}

/* Two at a time: d = {a in the upper half, b in the lower}. */
static void op_convert_pair(struct warp *warp, const struct op *op, uint32_t mask)
{
    const struct conversion *how = op->extra;
    unsigned bits_each = op->bytes * 4u;

    for (uint32_t left = mask; left != 0; left &= left - 1) {
        size_t lane = (size_t)__builtin_ctz(left);
        uint32_t high = ((const uint32_t *)reg(warp, op->a))[lane];
        uint32_t low = ((const uint32_t *)reg(warp, op->b))[lane];
        uint32_t bits = (uint32_t)(converted(how, high) << bits_each | converted(how, low));
        memcpy((char *)reg(warp, op->d) + lane * op->bytes, &bits, op->bytes);
    }
    mark_result(warp, op->d, mask, written(warp, op->a) & written(warp, op->b));
}

/* A pair from a pair. */
static void op_convert_packed(struct warp *warp, const struct op *op, uint32_t mask)
{
    const struct conversion *how = op->extra;
    unsigned from_bits = how->from_store * 4;
    unsigned to_bits = how->to_store * 4;

    for (uint32_t left = mask; left != 0; left &= left - 1) {
        size_t lane = (size_t)__builtin_ctz(left);
        uint32_t bits = 0;
        memcpy(&bits, (char *)reg(warp, op->a) + lane * how->from_store, how->from_store);
        uint32_t low = (uint32_t)converted(how, bits & ((1u << from_bits) - 1));
        uint32_t high = (uint32_t)converted(how, bits >> from_bits);
        bits = high << to_bits | low;
        memcpy((char *)reg(warp, op->d) + lane * how->to_store, &bits, how->to_store);
    }
    mark_result(warp, op->d, mask, written(warp, op->a));
}

static bool is_pair(enum type type)
{
    return type == TYPE_F16X2 || type == TYPE_BF16X2 || type == TYPE_E4M3X2 || type == TYPE_E5M2X2;
}

static enum type half_of_pair(enum type type)
{
    return type == TYPE_F16X2 ? TYPE_F16 : type == TYPE_BF16X2 ? TYPE_BF16 : type;
}

static void decode_pair(struct builder *builder, struct statement *statement,
                        struct conversion *how)
{
    unsigned bytes = type_bytes(how->to);

    how->to_store = bytes;
    how->from_store = type_bytes(how->from);
    if (is_pair(how->from)) {
        how->to = half_of_pair(how->to);
        how->from = half_of_pair(how->from);
        emit_operands(builder, statement, op_convert_packed, bytes, how->from_store, 0, 0)->extra =
            how;
        return;
    }
    if (how->from != TYPE_F32)
        refuse(builder, "cvt.%s.%s", type_name(how->to), type_name(how->from));
    how->to = half_of_pair(how->to);
    struct op *op = emit_operands(builder, statement, op_convert_pair, bytes, 4, 4, 0);
    op->bytes = (uint8_t)bytes;
    op->extra = how;
}

/* `mode`: the modifier that says how it is rounded, NULL where there is none. */
static op_fn *direct_of(const struct conversion *how, const char *mode)
{
    if (how->ftz || how->relu || how->finite)
        return NULL;
    for (size_t i = 0; i < sizeof(direct) / sizeof(direct[0]); i++) {
        bool same_mode = mode == NULL || direct[i].mode == NULL ? mode == direct[i].mode
                                                                : strcmp(mode, direct[i].mode) == 0;
        if (direct[i].to == how->to && direct[i].from == how->from && same_mode &&
            direct[i].saturates == how->saturates)
            return direct[i].fn;
    }
    return NULL;
}

/* cvt.pack.sat.t.s32: two integers, and the rest of c above them. */
static void op_pack(struct warp *warp, const struct op *op, uint32_t mask)
{
    const struct conversion *how = op->extra;
    unsigned bits = type_bytes(how->to) * 8;
    uint32_t low = ((uint32_t)1 << bits) - 1;

    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint32_t a = ((const uint32_t *)reg(warp, op->a))[lane];
        uint32_t b = ((const uint32_t *)reg(warp, op->b))[lane];
        uint32_t c = op->second ? ((const uint32_t *)reg(warp, op->c))[lane] : 0;
        uint32_t pair =
            ((uint32_t)converted(how, a) & low) << bits | ((uint32_t)converted(how, b) & low);
        ((uint32_t *)reg(warp, op->d))[lane] = bits == 16 ? pair : c << 16 | pair;
    }
    mark_result(warp, op->d, mask,
                written(warp, op->a) & written(warp, op->b) &
                    (op->second ? written(warp, op->c) : UINT32_MAX));
}

static void decode_pack(struct builder *builder, struct statement *statement,
                        struct conversion *how)
{
    how->saturates = modifier(statement, "sat");
    how->to = type_needed(builder, statement);
    how->from = type_needed(builder, statement);
    bool third = type_next(statement) == TYPE_B32;
    if (!how->saturates || how->from != TYPE_S32 || type_bytes(how->to) > 2 ||
        third != (type_bytes(how->to) == 1))
        refuse(builder, "cvt.pack of these types");
    struct op *op = emit_operands(builder, statement, op_pack, 4, 4, 4, third ? 4 : 0);
    op->extra = how;
    op->second = third;
}

static void decode_cvt(struct builder *builder, struct statement *statement)
{
    static const char *const modes[] = {"rn", "rz", "rm", "rp", "rna", NULL};
    static const char *const integrals[] = {"rni", "rzi", "rmi", "rpi", NULL};
    struct conversion *how = own(builder, sizeof(*how));

    if (modifier(statement, "pack")) {
        decode_pack(builder, statement, how);
        return;
    }
    int mode = modifier_of(statement, modes);
    int integral = modifier_of(statement, integrals);
    how->mode = (enum rounding)(mode >= 0 ? mode : integral >= 0 ? integral : 0);
    how->integral = integral >= 0;
    how->ftz = modifier(statement, "ftz");
    how->saturates = modifier(statement, "sat");
    how->finite = modifier(statement, "satfinite");
    how->relu = modifier(statement, "relu");
    how->to = type_needed(builder, statement);
    how->from = type_needed(builder, statement);
    if (is_pair(how->to)) {
        decode_pair(builder, statement, how);
        return;
    }
    need_arguments(builder, statement, 2, 2);
    unsigned least_to = type_bytes(how->to) < 2 ? 2 : type_bytes(how->to);
    unsigned least_from = type_bytes(how->from) < 2 ? 2 : type_bytes(how->from);
    struct operand d =
        destination_wide(builder, &statement->arguments[0], least_to, &how->to_store);
    struct operand a = source_wide(builder, &statement->arguments[1], least_from, &how->from_store);
    op_fn *fn =
        how->to_store == type_bytes(how->to) && how->from_store == type_bytes(how->from)
            ? direct_of(how, integral >= 0 ? integrals[integral] : (mode >= 0 ? modes[mode] : NULL))
            : NULL;
    struct op *op = emit(builder, statement, fn != NULL ? fn : op_convert);
    op->d = d;
    op->a = a;
    op->extra = how;
}

const struct decoder decode_convert[] = {
    {"cvt", decode_cvt},
    {NULL, NULL},
};
