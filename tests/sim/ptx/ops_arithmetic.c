/* Arithmetic of integers. */
#include "arms.h"

#include <string.h>

typedef unsigned __int128 u128;
typedef __int128 s128;

/* Unsigned arithmetic wraps; the signed types share it where the bits are the same. */
ARM_2(add_16, uint16_t, a + b)
ARM_2(add_32, uint32_t, a + b)
ARM_2(add_64, uint64_t, a + b)
ARM_2(sub_16, uint16_t, a - b)
ARM_2(sub_32, uint32_t, a - b)
ARM_2(sub_64, uint64_t, a - b)
ARM_2(mul_16, uint16_t, (uint32_t)a *b)
ARM_2(mul_32, uint32_t, a *b)
ARM_2(mul_64, uint64_t, a *b)
ARM_3(mad_16, uint16_t, (uint32_t)a *b + c)
ARM_3(mad_32, uint32_t, a *b + c)
ARM_3(mad_64, uint64_t, a *b + c)
ARM_2(mulhi_u16, uint16_t, ((uint32_t)a * b) >> 16)
ARM_2(mulhi_s16, int16_t, ((int32_t)a * b) >> 16)
ARM_2(mulhi_u32, uint32_t, ((uint64_t)a * b) >> 32)
ARM_2(mulhi_s32, int32_t, ((int64_t)a * b) >> 32)
ARM_2(mulhi_u64, uint64_t, ((u128)a * b) >> 64)
ARM_2(mulhi_s64, int64_t, ((s128)a * b) >> 64)
ARM_3(madhi_u32, uint32_t, (((uint64_t)a * b) >> 32) + c)
ARM_3(madhi_s32, uint32_t, (uint64_t)(((int64_t)(int32_t)a * (int32_t)b) >> 32) + c)
ARM_3(madhi_u64, uint64_t, (uint64_t)(((u128)a * b) >> 64) + c)
ARM_3(madhi_s64, uint64_t, (uint64_t)(((s128)(int64_t)a * (int64_t)b) >> 64) + c)
ARM_2(mul24_u32, uint32_t, (a & 0xFFFFFF) * (b & 0xFFFFFF))
ARM_2(mul24_s32, int32_t,
      (uint32_t)((int32_t)((uint32_t)a << 8) >> 8) * (uint32_t)((int32_t)((uint32_t)b << 8) >> 8))
ARM_3(mad24_u32, uint32_t, (a & 0xFFFFFF) * (b & 0xFFFFFF) + c)
ARM_3(mad24_s32, uint32_t,
      (uint32_t)((int32_t)(a << 8) >> 8) * (uint32_t)((int32_t)(b << 8) >> 8) + c)
/* Division by zero gives all ones, the rest is then the dividend. */
ARM_2(div_u16, uint16_t, b == 0 ? UINT16_MAX : a / b)
ARM_2(div_s16, int16_t, b == 0 ? -1 : a / b)
ARM_2(div_u32, uint32_t, b == 0 ? UINT32_MAX : a / b)
ARM_2(div_s32, int32_t, b == 0 ? -1 : (int64_t)a / b)
ARM_2(div_u64, uint64_t, b == 0 ? UINT64_MAX : a / b)
ARM_2(div_s64, int64_t, b == 0 ? -1 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b)
ARM_2(rem_u16, uint16_t, b == 0 ? a : a % b)
ARM_2(rem_s16, int16_t, b == 0 ? a : a % b)
ARM_2(rem_u32, uint32_t, b == 0 ? a : a % b)
ARM_2(rem_s32, int32_t, b == 0 ? a : (int64_t)a % b)
ARM_2(rem_u64, uint64_t, b == 0 ? a : a % b)
ARM_2(rem_s64, int64_t, b == 0 ? a : b == -1 ? 0 : a % b)
ARM_2(min_u16, uint16_t, a < b ? a : b)
ARM_2(min_s16, int16_t, a < b ? a : b)
ARM_2(min_u32, uint32_t, a < b ? a : b)
ARM_2(min_s32, int32_t, a < b ? a : b)
ARM_2(min_u64, uint64_t, a < b ? a : b)
ARM_2(min_s64, int64_t, a < b ? a : b)
ARM_2(max_u16, uint16_t, a > b ? a : b)
ARM_2(max_s16, int16_t, a > b ? a : b)
ARM_2(max_u32, uint32_t, a > b ? a : b)
ARM_2(max_s32, int32_t, a > b ? a : b)
ARM_2(max_u64, uint64_t, a > b ? a : b)
ARM_2(max_s64, int64_t, a > b ? a : b)
ARM_1(neg_16, uint16_t, 0 - a)
ARM_1(neg_32, uint32_t, 0 - a)
ARM_1(neg_64, uint64_t, 0 - a)
ARM_1(abs_16, uint16_t, (int16_t)a < 0 ? 0 - a : a)
ARM_1(abs_32, uint32_t, (int32_t)a < 0 ? 0 - a : a)
ARM_1(abs_64, uint64_t, (int64_t)a < 0 ? 0 - a : a)
ARM_3(sad_u32, uint32_t, c + (a > b ? a - b : b - a))
ARM_3(sad_s32, uint32_t, c + ((int32_t)a > (int32_t)b ? a - b : b - a))

static int32_t clamp_s32(int64_t value)
{
    return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}
ARM_2(addsat_s32, int32_t, clamp_s32((int64_t)a + b))
ARM_2(subsat_s32, int32_t, clamp_s32((int64_t)a - b))

static uint32_t halves(uint32_t a, uint32_t b, char what, bool is_signed)
{
    uint32_t result = 0;

    for (int shift = 0; shift < 32; shift += 16) {
        int32_t x = is_signed ? (int16_t)(a >> shift) : (uint16_t)(a >> shift);
        int32_t y = is_signed ? (int16_t)(b >> shift) : (uint16_t)(b >> shift);
        int32_t r = what == '+' ? x + y : what == '<' ? (x < y ? x : y) : (x > y ? x : y);
        result |= ((uint32_t)r & 0xFFFF) << shift;
    }
    return result;
}
ARM_2(add_16x2, uint32_t, halves(a, b, '+', false))
ARM_2(min_u16x2, uint32_t, halves(a, b, '<', false))
ARM_2(min_s16x2, uint32_t, halves(a, b, '<', true))
ARM_2(max_u16x2, uint32_t, halves(a, b, '>', false))
ARM_2(max_s16x2, uint32_t, halves(a, b, '>', true))

#define BOTH(name, bits)                                                                           \
    {#name, TYPE_U##bits, name##_##bits},                                                          \
    {                                                                                              \
#name, TYPE_S##bits, name##_##bits                                                         \
    }
#define ALL_BOTH(name) BOTH(name, 16), BOTH(name, 32), BOTH(name, 64)
#define EACH(name, bits)                                                                           \
    {#name, TYPE_U##bits, name##_u##bits},                                                         \
    {                                                                                              \
#name, TYPE_S##bits, name##_s##bits                                                        \
    }
#define ALL_EACH(name) EACH(name, 16), EACH(name, 32), EACH(name, 64)

static const struct arm one[] = {ALL_BOTH(neg), ALL_BOTH(abs), {NULL}};
static const struct arm two[] = {
    ALL_BOTH(add),
    ALL_BOTH(sub),
    {"add", TYPE_B32, add_32}, /* nvcc writes it so now and then */
    {"add", TYPE_B64, add_64},
    ALL_EACH(div),
    ALL_EACH(rem),
    ALL_EACH(min),
    ALL_EACH(max),
    {"add", TYPE_U16X2, add_16x2},
    {"add", TYPE_S16X2, add_16x2},
    {"min", TYPE_U16X2, min_u16x2},
    {"min", TYPE_S16X2, min_s16x2},
    {"max", TYPE_U16X2, max_u16x2},
    {"max", TYPE_S16X2, max_s16x2},
    {NULL},
};
static const struct arm three[] = {EACH(sad, 32), {NULL}};
static const struct arm multiply_lo[] = {ALL_BOTH(mul), ALL_BOTH(mad), {NULL}};
static const struct arm multiply_hi[] = {
    {"mul", TYPE_U16, mulhi_u16},
    {"mul", TYPE_S16, mulhi_s16},
    {"mul", TYPE_U32, mulhi_u32},
    {"mul", TYPE_S32, mulhi_s32},
    {"mul", TYPE_U64, mulhi_u64},
    {"mul", TYPE_S64, mulhi_s64},
    {"mad", TYPE_U32, madhi_u32},
    {"mad", TYPE_S32, madhi_s32},
    {"mad", TYPE_U64, madhi_u64},
    {"mad", TYPE_S64, madhi_s64},
    {NULL},
};
static const struct arm multiply_24[] = {
    {"mul24", TYPE_U32, mul24_u32},
    {"mul24", TYPE_S32, mul24_s32},
    {"mad24", TYPE_U32, mad24_u32},
    {"mad24", TYPE_S32, mad24_s32},
    {NULL},
};

/* Carries go from one instruction to the next of the same thread. */
static void decode_carry(struct builder *builder, struct statement *statement, enum type type);

static void decode_simple(struct builder *builder, struct statement *statement)
{
    if (modifier(statement, "cc")) {
        decode_carry(builder, statement, type_needed(builder, statement));
        return;
    }
    bool saturates = modifier(statement, "sat");
    enum type type = type_next(statement);
    unsigned bytes = type_bytes(type);
    op_fn *fn;

    if (saturates && type == TYPE_S32) {
        bool adds = strcmp(statement->name, "add") == 0;
        if (adds || strcmp(statement->name, "sub") == 0)
            emit_operands(builder, statement, adds ? addsat_s32 : subsat_s32, 4, 4, 4, 0);
    } else if (saturates) {
        return;
    } else if ((fn = arm_find(one, statement->name, type)) != NULL) {
        emit_operands(builder, statement, fn, bytes, bytes, 0, 0);
    } else if ((fn = arm_find(two, statement->name, type)) != NULL) {
        emit_operands(builder, statement, fn, bytes, bytes, bytes, 0);
    } else if ((fn = arm_find(three, statement->name, type)) != NULL) {
        emit_operands(builder, statement, fn, bytes, bytes, bytes, bytes);
    }
}

#define WIDE(name, S, D)                                                                           \
    static void mul_##name(struct warp *warp, const struct op *op, uint32_t mask)                  \
    {                                                                                              \
        D *d = reg(warp, op->d);                                                                   \
        const S *a = reg(warp, op->a);                                                             \
        const S *b = reg(warp, op->b);                                                             \
        EACH_LANE(mask, d[lane] = (D)a[lane] * (D)b[lane]);                                        \
        mark_result(warp, op->d, mask, written(warp, op->a) & written(warp, op->b));               \
    }                                                                                              \
    static void mad_##name(struct warp *warp, const struct op *op, uint32_t mask)                  \
    {                                                                                              \
        D *d = reg(warp, op->d);                                                                   \
        const S *a = reg(warp, op->a);                                                             \
        const S *b = reg(warp, op->b);                                                             \
        const D *c = reg(warp, op->c);                                                             \
        EACH_LANE(mask, d[lane] = (D)((uint64_t)((D)a[lane] * (D)b[lane]) + (uint64_t)c[lane]));   \
        mark_result(warp, op->d, mask,                                                             \
                    written(warp, op->a) & written(warp, op->b) & written(warp, op->c));           \
    }
WIDE(wide_u16, uint16_t, uint32_t)
WIDE(wide_s16, int16_t, int32_t)
WIDE(wide_u32, uint32_t, uint64_t)
WIDE(wide_s32, int32_t, int64_t)

static const struct arm multiply_wide[] = {
    {"mul", TYPE_U16, mul_wide_u16},
    {"mul", TYPE_S16, mul_wide_s16},
    {"mul", TYPE_U32, mul_wide_u32},
    {"mul", TYPE_S32, mul_wide_s32},
    {"mad", TYPE_U16, mad_wide_u16},
    {"mad", TYPE_S16, mad_wide_s16},
    {"mad", TYPE_U32, mad_wide_u32},
    {"mad", TYPE_S32, mad_wide_s32},
    {NULL},
};

static void decode_multiply(struct builder *builder, struct statement *statement)
{
    if (modifier(statement, "cc")) {
        decode_carry(builder, statement, type_needed(builder, statement));
        return;
    }
    bool wide = modifier(statement, "wide");
    bool low = !wide && modifier(statement, "lo");
    bool high = !wide && !low && modifier(statement, "hi");
    bool adds = strncmp(statement->name, "mad", 3) == 0;

    if (!wide && !low && !high)
        return; /* of floats */
    enum type type = type_needed(builder, statement);
    unsigned bytes = type_bytes(type);
    const struct arm *arms = wide ? multiply_wide
                             : strstr(statement->name, "24") != NULL
                                 ? (low ? multiply_24 : multiply_24 + 4)
                             : low ? multiply_lo
                                   : multiply_hi;
    op_fn *fn = arm_find(arms, statement->name, type);
    if (fn == NULL)
        refuse(builder, "%s of type .%s", statement->name, type_name(type));
    emit_operands(builder, statement, fn, wide ? 2 * bytes : bytes, bytes, bytes,
                  !adds  ? 0
                  : wide ? 2 * bytes
                         : bytes);
}

/* add.cc, addc, sub.cc, subc, mad.lo.cc, madc.hi.cc ...: `kind` says what is computed, `flip`
 * whether the carry is read, `second` whether it is written. */
enum carry_kind { CARRY_ADD, CARRY_SUB, CARRY_MAD_LO, CARRY_MAD_HI };

static u128 carry_compute(const struct op *op, uint64_t a, uint64_t b, uint64_t c, unsigned carry)
{
    unsigned bits = op->bytes * 8u;
    u128 product = (u128)a * b;
    u128 low = op->bytes == 4 ? (uint32_t)product : (uint64_t)product;

    if (op->is_signed && op->kind == CARRY_MAD_HI) {
        s128 exact = op->bytes == 4 ? (s128)(int32_t)a * (int32_t)b : (s128)(int64_t)a * (int64_t)b;
        product = (u128)exact;
    }
    u128 high = op->bytes == 4 ? (uint32_t)(product >> bits) : (uint64_t)(product >> bits);
    switch (op->kind) {
    case CARRY_ADD:
        return (u128)a + b + carry;
    case CARRY_SUB:
        return (u128)a - b - carry;
    case CARRY_MAD_LO:
        return low + c + carry;
    default:
        return high + c + carry;
    }
}

static uint64_t lane_value(const struct warp *warp, struct operand operand, unsigned bytes,
                           int lane)
{
    uint64_t value = 0;

    memcpy(&value, (const char *)reg(warp, operand) + (size_t)lane * bytes, bytes);
    return value;
}

/* op->list: the register of the carries, a predicate of the builder's own. */
static void op_carry(struct warp *warp, const struct op *op, uint32_t mask)
{
    struct operand carries = op->list[0];
    uint32_t in = op->flip ? predicate(warp, carries) : 0;
    uint32_t out = 0;
    bool mad = op->kind >= CARRY_MAD_LO;
    uint32_t good = written(warp, op->a) & written(warp, op->b) &
                    (mad ? written(warp, op->c) : UINT32_MAX) &
                    (op->flip ? written(warp, carries) : UINT32_MAX);

    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        u128 r = carry_compute(op, lane_value(warp, op->a, op->bytes, lane),
                               lane_value(warp, op->b, op->bytes, lane),
                               mad ? lane_value(warp, op->c, op->bytes, lane) : 0, in >> lane & 1);
        uint64_t value = (uint64_t)r;
        memcpy((char *)reg(warp, op->d) + (size_t)lane * op->bytes, &value, op->bytes);
        out |= (uint32_t)((r >> (op->bytes * 8u) & 1) != 0) << lane;
    }
    mark_result(warp, op->d, mask, good);
    if (op->second) {
        predicate_set(warp, carries, mask, out);
        mark_result(warp, carries, mask, good);
    }
}

static void decode_carry(struct builder *builder, struct statement *statement, enum type type)
{
    bool mad = strncmp(statement->name, "mad", 3) == 0;
    bool sub = strncmp(statement->name, "sub", 3) == 0;
    bool low = mad && modifier(statement, "lo");
    bool high = mad && !low && modifier(statement, "hi");
    unsigned bytes = type_bytes(type);

    if (bytes < 4 || (mad && !low && !high))
        refuse(builder, "a carry of type .%s", type_name(type));
    struct op *op =
        emit_operands(builder, statement, op_carry, bytes, bytes, bytes, mad ? bytes : 0);
    struct operand *list = own(builder, sizeof(*list));
    *list = carry_register(builder);
    op->list = list;
    op->bytes = (uint8_t)bytes;
    op->kind = sub ? CARRY_SUB : low ? CARRY_MAD_LO : high ? CARRY_MAD_HI : CARRY_ADD;
    op->is_signed = type_is_signed(type);
    op->flip = statement->name[strlen(statement->name) - 1] == 'c';
    op->second = true;
}

/* addc, subc, madc: with .cc they also write the carry. */
static void decode_with_carry(struct builder *builder, struct statement *statement)
{
    bool writes = modifier(statement, "cc");

    decode_carry(builder, statement, type_needed(builder, statement));
    builder->kernel->ops[builder->kernel->op_count - 1].second = writes;
}

const struct decoder decode_arithmetic[] = {
    {"add", decode_simple},
    {"sub", decode_simple},
    {"div", decode_simple},
    {"rem", decode_simple},
    {"min", decode_simple},
    {"max", decode_simple},
    {"neg", decode_simple},
    {"abs", decode_simple},
    {"sad", decode_simple},
    {"mul", decode_multiply},
    {"mad", decode_multiply},
    {"mul24", decode_multiply},
    {"mad24", decode_multiply},
    {"addc", decode_with_carry},
    {"subc", decode_with_carry},
    {"madc", decode_with_carry},
    {NULL, NULL},
};
