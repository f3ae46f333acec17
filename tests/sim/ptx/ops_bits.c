/* Bits: logic, shifts, fields, permutations, counts; dot products of bytes. */
#include "arms.h"

#include <string.h>

ARM_2(and_16, uint16_t, a &b)
ARM_2(and_32, uint32_t, a &b)
ARM_2(and_64, uint64_t, a &b)
ARM_2(or_16, uint16_t, a | b)
ARM_2(or_32, uint32_t, a | b)
ARM_2(or_64, uint64_t, a | b)
ARM_2(xor_16, uint16_t, a ^ b)
ARM_2(xor_32, uint32_t, a ^ b)
ARM_2(xor_64, uint64_t, a ^ b)
ARM_1(not_16, uint16_t, ~a)
ARM_1(not_32, uint32_t, ~a)
ARM_1(not_64, uint64_t, ~a)
ARM_1(cnot_16, uint16_t, a == 0)
ARM_1(cnot_32, uint32_t, a == 0)
ARM_1(cnot_64, uint64_t, a == 0)

/* Counts beyond the width shift everything out. */
#define SHIFT(name, T, expression)                                                                 \
    static void name(struct warp *warp, const struct op *op, uint32_t mask)                        \
    {                                                                                              \
        T *d = reg(warp, op->d);                                                                   \
        const T *a_ = reg(warp, op->a);                                                            \
        const uint32_t *b_ = reg(warp, op->b);                                                     \
        const uint32_t width = sizeof(T) * 8;                                                      \
        EACH_LANE(mask, const T a = a_[lane]; const uint32_t n = b_[lane];                         \
                  d[lane] = (T)(expression));                                                      \
        mark_result(warp, op->d, mask, written(warp, op->a) & written(warp, op->b));               \
    }
SHIFT(shl_16, uint16_t, n >= width ? 0 : (uint32_t)a << n)
SHIFT(shl_32, uint32_t, n >= width ? 0 : a << n)
SHIFT(shl_64, uint64_t, n >= width ? 0 : a << n)
SHIFT(shr_u16, uint16_t, n >= width ? 0 : a >> n)
SHIFT(shr_u32, uint32_t, n >= width ? 0 : a >> n)
SHIFT(shr_u64, uint64_t, n >= width ? 0 : a >> n)
SHIFT(shr_s16, int16_t, a >> (n >= width ? width - 1 : n))
SHIFT(shr_s32, int32_t, a >> (n >= width ? width - 1 : n))
SHIFT(shr_s64, int64_t, a >> (n >= width ? width - 1 : n))

static uint32_t reversed_32(uint32_t a)
{
    a = (a >> 1 & 0x55555555) | (a & 0x55555555) << 1;
    a = (a >> 2 & 0x33333333) | (a & 0x33333333) << 2;
    a = (a >> 4 & 0x0F0F0F0F) | (a & 0x0F0F0F0F) << 4;
    return __builtin_bswap32(a);
}
ARM_1(brev_32, uint32_t, reversed_32(a))
ARM_1(brev_64, uint64_t,
      (uint64_t)reversed_32((uint32_t)a) << 32 | reversed_32((uint32_t)(a >> 32)))
ARM_1(popc_32, uint32_t, __builtin_popcount(a))
ARM_1(clz_32, uint32_t, a == 0 ? 32 : __builtin_clz(a))

static uint64_t field_of(uint64_t a, uint32_t start, uint32_t length, unsigned width,
                         bool is_signed)
{
    uint64_t sign;

    start &= 0xFF;
    length &= 0xFF;
    if (length == 0)
        return 0;
    uint32_t last = start + length - 1 < width - 1 ? start + length - 1 : width - 1;
    sign = is_signed ? a >> last & 1 : 0;
    uint64_t value = start >= width ? 0 : a >> start;
    uint32_t kept = start >= width ? 0 : length < width - start ? length : width - start;
    uint64_t low = kept >= 64 ? UINT64_MAX : ((uint64_t)1 << kept) - 1;
    return (value & low) | (sign != 0 ? ~low : 0);
}

#define FIELD(name, T, width, is_signed)                                                           \
    static void name(struct warp *warp, const struct op *op, uint32_t mask)                        \
    {                                                                                              \
        T *d = reg(warp, op->d);                                                                   \
        const T *a = reg(warp, op->a);                                                             \
        const uint32_t *b = reg(warp, op->b);                                                      \
        const uint32_t *c = reg(warp, op->c);                                                      \
        EACH_LANE(mask, d[lane] = (T)field_of(a[lane], b[lane], c[lane], width, is_signed));       \
        mark_result(warp, op->d, mask,                                                             \
                    written(warp, op->a) & written(warp, op->b) & written(warp, op->c));           \
    }
FIELD(bfe_u32, uint32_t, 32, false)
FIELD(bfe_s32, uint32_t, 32, true)
FIELD(bfe_u64, uint64_t, 64, false)
FIELD(bfe_s64, uint64_t, 64, true)

/* bfi d, a, b, start, length: the field a put into b; op->list[0] is the length. */
#define INSERT(name, T, width)                                                                     \
    static void name(struct warp *warp, const struct op *op, uint32_t mask)                        \
    {                                                                                              \
        T *d = reg(warp, op->d);                                                                   \
        const T *a = reg(warp, op->a);                                                             \
        const T *b = reg(warp, op->b);                                                             \
        const uint32_t *starts = reg(warp, op->c);                                                 \
        const uint32_t *lengths = reg(warp, op->list[0]);                                          \
        for (uint32_t left = mask; left != 0; left &= left - 1) {                                  \
            int lane = __builtin_ctz(left);                                                        \
            uint32_t start = starts[lane] & 0xFF;                                                  \
            uint32_t length = lengths[lane] & 0xFF;                                                \
            T low = length >= width ? (T) ~(T)0 : (T)(((T)1 << length) - 1);                       \
            T field = start >= width ? 0 : (T)(low << start);                                      \
            T put = start >= width ? 0 : (T)(a[lane] << start);                                    \
            d[lane] = (b[lane] & ~field) | (put & field);                                          \
        }                                                                                          \
        mark_result(warp, op->d, mask,                                                             \
                    written(warp, op->a) & written(warp, op->b) & written(warp, op->c) &           \
                        written(warp, op->list[0]));                                               \
    }
INSERT(bfi_32, uint32_t, 32)
INSERT(bfi_64, uint64_t, 64)

/* Results of 32 bits from sources of 64. */
#define COUNT_64(name, T, expression)                                                              \
    static void name(struct warp *warp, const struct op *op, uint32_t mask)                        \
    {                                                                                              \
        uint32_t *d = reg(warp, op->d);                                                            \
        const T *a_ = reg(warp, op->a);                                                            \
        EACH_LANE(mask, const T a = a_[lane]; d[lane] = (uint32_t)(expression));                   \
        mark_result(warp, op->d, mask, written(warp, op->a));                                      \
    }
COUNT_64(popc_64, uint64_t, __builtin_popcountll(a))
COUNT_64(clz_64, uint64_t, a == 0 ? 64 : __builtin_clzll(a))

static uint32_t highest(uint64_t value, unsigned width, bool from_top)
{
    if (value == 0)
        return UINT32_MAX;
    uint32_t at = 63 - (uint32_t)__builtin_clzll(value);
    return from_top ? width - 1 - at : at;
}
COUNT_64(bfind_u32, uint32_t, highest(a, 32, op->flip))
COUNT_64(bfind_s32, int32_t, highest((uint32_t)(a < 0 ? ~a : a), 32, op->flip))
COUNT_64(bfind_u64, uint64_t, highest(a, 64, op->flip))
COUNT_64(bfind_s64, int64_t, highest((uint64_t)(a < 0 ? ~a : a), 64, op->flip))

/* prmt: op->kind 0 is the general form, 1.. the named ones. */
enum permute { PERMUTE, F4E, B4E, RC8, ECL, ECR, RC16 };

static uint32_t permuted(uint32_t a, uint32_t b, uint32_t c, unsigned kind)
{
    static const uint16_t selectors[][4] = {
        [F4E] = {0x3210, 0x4321, 0x5432, 0x6543}, [B4E] = {0x5670, 0x6701, 0x7012, 0x0123},
        [RC8] = {0x0000, 0x1111, 0x2222, 0x3333}, [ECL] = {0x3210, 0x3211, 0x3222, 0x3333},
        [ECR] = {0x0000, 0x1110, 0x2210, 0x3210}, [RC16] = {0x1010, 0x3232, 0x1010, 0x3232},
    };
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t selector = kind == PERMUTE ? c : selectors[kind][c & 3];
    uint32_t result = 0;

    for (int i = 0; i < 4; i++) {
        uint32_t s = selector >> (4 * i) & 0xF;
        uint32_t byte = (uint32_t)(bytes >> (8 * (s & 7))) & 0xFF;
        if ((s & 8) != 0)
            byte = (byte & 0x80) != 0 ? 0xFF : 0;
        result |= byte << (8 * i);
    }
    return result;
}
ARM_3(prmt_b32, uint32_t, permuted(a, b, c, op->kind))

/* shf: 64 bits, the half that is asked for; `flip` wraps the count, `second` shifts left. */
static uint32_t funnel(const struct op *op, uint32_t a, uint32_t b, uint32_t c)
{
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t n = op->flip ? c & 31 : c > 32 ? 32 : c;

    return op->second ? (uint32_t)(both << n >> 32) : (uint32_t)(both >> n);
}
ARM_3(shf_b32, uint32_t, funnel(op, a, b, c))

static uint32_t logic(uint32_t a, uint32_t b, uint32_t c, unsigned table)
{
    uint32_t result = 0;

    for (unsigned i = 0; i < 8; i++)
        if ((table >> i & 1) != 0)
            result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}
ARM_3(lop3_b32, uint32_t, logic(a, b, c, op->kind))

/* dp4a and dp2a: kind bit 0 signed a, bit 1 signed b, bit 2 the upper half of b (dp2a.hi). */
static uint32_t dot(const struct op *op, uint32_t a, uint32_t b, uint32_t c)
{
    bool sa = (op->kind & 1) != 0;
    bool sb = (op->kind & 2) != 0;

    if (op->count == 4) {
        for (int i = 0; i < 32; i += 8)
            c += (uint32_t)((sa ? (int8_t)(a >> i) : (uint8_t)(a >> i)) *
                            (sb ? (int8_t)(b >> i) : (uint8_t)(b >> i)));
        return c;
    }
    uint32_t half = (op->kind & 4) != 0 ? b >> 16 : b;
    for (int i = 0; i < 2; i++)
        c += (uint32_t)((sa ? (int16_t)(a >> 16 * i) : (uint16_t)(a >> 16 * i)) *
                        (sb ? (int8_t)(half >> 8 * i) : (uint8_t)(half >> 8 * i)));
    return c;
}
ARM_3(dot_32, uint32_t, dot(op, a, b, c))

/* bmsk: length ones from start on; szext: the low bits, extended. */
static uint32_t ones(uint32_t start, uint32_t length, bool wraps)
{
    start = wraps ? start & 31 : start;
    length = wraps ? length & 31 : length;
    uint32_t low = length >= 32 ? UINT32_MAX : ((uint32_t)1 << length) - 1;
    return start >= 32 ? 0 : low << start;
}
ARM_2(bmsk_b32, uint32_t, ones(a, b, op->flip))

#define LOGIC(name)                                                                                \
    {#name, TYPE_B16, name##_16}, {#name, TYPE_B32, name##_32},                                    \
    {                                                                                              \
#name, TYPE_B64, name##_64                                                                 \
    }
static const struct arm twos[] = {LOGIC(and), LOGIC(or), LOGIC(xor), {NULL}};
static const struct arm ones_list[] = {LOGIC(not ), LOGIC(cnot), {NULL}};
static const struct arm shifts[] = {
    LOGIC(shl),
    {"shr", TYPE_U16, shr_u16},
    {"shr", TYPE_U32, shr_u32},
    {"shr", TYPE_U64, shr_u64},
    {"shr", TYPE_B16, shr_u16},
    {"shr", TYPE_B32, shr_u32},
    {"shr", TYPE_B64, shr_u64},
    {"shr", TYPE_S16, shr_s16},
    {"shr", TYPE_S32, shr_s32},
    {"shr", TYPE_S64, shr_s64},
    {NULL},
};
static const struct arm counts[] = {
    {"brev", TYPE_B32, brev_32},
    {"brev", TYPE_B64, brev_64},
    {"popc", TYPE_B32, popc_32},
    {"popc", TYPE_B64, popc_64},
    {"clz", TYPE_B32, clz_32},
    {"clz", TYPE_B64, clz_64},
    {"bfind", TYPE_U32, bfind_u32},
    {"bfind", TYPE_S32, bfind_s32},
    {"bfind", TYPE_U64, bfind_u64},
    {"bfind", TYPE_S64, bfind_s64},
    {NULL},
};
static const struct arm fields[] = {
    {"bfe", TYPE_U32, bfe_u32},
    {"bfe", TYPE_S32, bfe_s32},
    {"bfe", TYPE_U64, bfe_u64},
    {"bfe", TYPE_S64, bfe_s64},
    {"bfi", TYPE_B32, bfi_32},
    {"bfi", TYPE_B64, bfi_64},
    {NULL},
};

/* Logic of predicates. */
static void op_predicates(struct warp *warp, const struct op *op, uint32_t mask)
{
    uint32_t a = predicate(warp, op->a) ^ (op->flip ? UINT32_MAX : 0);
    uint32_t b = predicate(warp, op->b) ^ (op->second ? UINT32_MAX : 0);

    predicate_set(warp, op->d, mask, op->kind == 'a' ? a & b : op->kind == 'o' ? a | b : a ^ b);
    mark_result(warp, op->d, mask, written(warp, op->a) & written(warp, op->b));
}

static void decode_predicates(struct builder *builder, struct statement *statement)
{
    bool flip_a;
    bool flip_b = false;
    bool negates = strcmp(statement->name, "not") == 0;

    need_arguments(builder, statement, negates ? 2 : 3, negates ? 2 : 3);
    struct operand a = source_predicate(builder, &statement->arguments[1], &flip_a);
    struct operand b = negates ? a : source_predicate(builder, &statement->arguments[2], &flip_b);
    struct operand d = destination_predicate(builder, &statement->arguments[0]);
    struct op *op = emit(builder, statement, op_predicates);
    op->d = d;
    op->a = a;
    op->b = b;
    op->flip = negates ? !flip_a : flip_a;
    op->second = negates ? !flip_a : flip_b;
    op->kind = negates ? 'a' : (uint8_t)statement->name[0];
}

static void decode_logic(struct builder *builder, struct statement *statement)
{
    enum type type = type_needed(builder, statement);
    unsigned bytes = type_bytes(type);
    op_fn *fn;

    if (type == TYPE_PRED)
        decode_predicates(builder, statement);
    else if ((fn = arm_find(twos, statement->name, type)) != NULL)
        emit_operands(builder, statement, fn, bytes, bytes, bytes, 0);
    else if ((fn = arm_find(ones_list, statement->name, type)) != NULL)
        emit_operands(builder, statement, fn, bytes, bytes, 0, 0);
    else if ((fn = arm_find(shifts, statement->name, type)) != NULL)
        emit_operands(builder, statement, fn, bytes, bytes, 4, 0);
}

static void decode_count(struct builder *builder, struct statement *statement)
{
    bool from_top = modifier(statement, "shiftamt");
    enum type type = type_needed(builder, statement);
    op_fn *fn = arm_find(counts, statement->name, type);
    bool reverses = strcmp(statement->name, "brev") == 0;

    if (fn == NULL)
        return;
    emit_operands(builder, statement, fn, reverses ? type_bytes(type) : 4, type_bytes(type), 0, 0)
        ->flip = from_top;
}

static void decode_field(struct builder *builder, struct statement *statement)
{
    enum type type = type_needed(builder, statement);
    unsigned bytes = type_bytes(type);
    op_fn *fn = arm_find(fields, statement->name, type);

    if (fn == NULL)
        return;
    if (strcmp(statement->name, "bfe") == 0) {
        emit_operands(builder, statement, fn, bytes, bytes, 4, 4);
        return;
    }
    need_arguments(builder, statement, 5, 5);
    struct operand length = source(builder, &statement->arguments[4], 4);
    const struct operand *list = own_list(builder, &length, 1);
    struct operand a = source(builder, &statement->arguments[1], bytes);
    struct operand b = source(builder, &statement->arguments[2], bytes);
    struct operand c = source(builder, &statement->arguments[3], 4);
    struct operand d = destination(builder, &statement->arguments[0], bytes);
    struct op *op = emit(builder, statement, fn);
    op->d = d;
    op->a = a;
    op->b = b;
    op->c = c;
    op->list = list;
}

static void decode_permute(struct builder *builder, struct statement *statement)
{
    static const char *const names[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16", NULL};

    if (type_needed(builder, statement) != TYPE_B32)
        return;
    int kind = modifier_of(statement, names);
    emit_operands(builder, statement, prmt_b32, 4, 4, 4, 4)->kind = (uint8_t)(kind + 1);
}

static void decode_funnel(struct builder *builder, struct statement *statement)
{
    bool left = modifier(statement, "l");

    if (!left && !modifier(statement, "r"))
        return;
    bool wraps = modifier(statement, "wrap");
    if (!wraps && !modifier(statement, "clamp"))
        return;
    type_needed(builder, statement);
    struct op *op = emit_operands(builder, statement, shf_b32, 4, 4, 4, 4);
    op->flip = wraps;
    op->second = left;
}

static void decode_lop3(struct builder *builder, struct statement *statement)
{
    type_needed(builder, statement);
    need_arguments(builder, statement, 5, 5);
    if (statement->arguments[4].kind != ARGUMENT_NUMBER)
        refuse(builder, "lop3 with a table that is no number");
    uint64_t table = statement->arguments[4].number;
    statement->argument_count = 4;
    emit_operands(builder, statement, lop3_b32, 4, 4, 4, 4)->kind = (uint8_t)table;
}

static void decode_dot(struct builder *builder, struct statement *statement)
{
    bool high = modifier(statement, "hi");
    bool low = !high && modifier(statement, "lo");
    enum type a = type_needed(builder, statement);
    enum type b = type_needed(builder, statement);
    bool four = strcmp(statement->name, "dp4a") == 0;

    if (type_bytes(a) != 4 || type_bytes(b) != 4 || four == (high || low))
        return;
    struct op *op = emit_operands(builder, statement, dot_32, 4, 4, 4, 4);
    op->kind =
        (uint8_t)((type_is_signed(a) ? 1 : 0) | (type_is_signed(b) ? 2 : 0) | (high ? 4 : 0));
    op->count = four ? 4 : 2;
}

static void decode_bmsk(struct builder *builder, struct statement *statement)
{
    bool wraps = modifier(statement, "wrap");

    if (!wraps && !modifier(statement, "clamp"))
        return;
    type_needed(builder, statement);
    emit_operands(builder, statement, bmsk_b32, 4, 4, 4, 0)->flip = wraps;
}

const struct decoder decode_bits[] = {
    {"and", decode_logic},   {"or", decode_logic},
    {"xor", decode_logic},   {"not", decode_logic},
    {"cnot", decode_logic},  {"shl", decode_logic},
    {"shr", decode_logic},   {"brev", decode_count},
    {"popc", decode_count},  {"clz", decode_count},
    {"bfind", decode_count}, {"bfe", decode_field},
    {"bfi", decode_field},   {"prmt", decode_permute},
    {"shf", decode_funnel},  {"lop3", decode_lop3},
    {"dp4a", decode_dot},    {"dp2a", decode_dot},
    {"bmsk", decode_bmsk},   {NULL, NULL},
};
