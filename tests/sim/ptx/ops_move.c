/* mov in its forms, selp and slct: values go where they go, bits unchanged. */
#include "build.h"

#include <string.h>
#include <time.h>

#define MOVE(name, T)                                                                              \
    static void name(struct warp *warp, const struct op *op, uint32_t mask)                        \
    {                                                                                              \
        T *d = reg(warp, op->d);                                                                   \
        const T *a = reg(warp, op->a);                                                             \
        EACH_LANE(mask, d[lane] = a[lane]);                                                        \
        mark_result(warp, op->d, mask, written(warp, op->a));                                      \
    }
MOVE(move_2, uint16_t)
MOVE(move_4, uint32_t)
MOVE(move_8, uint64_t)

static void move_predicate(struct warp *warp, const struct op *op, uint32_t mask)
{
    uint32_t value = predicate(warp, op->a);

    predicate_set(warp, op->d, mask, op->flip ? ~value : value);
    mark_result(warp, op->d, mask, written(warp, op->a));
}

/* {a, b, ...} to one register: op->bytes of each, the first lowest. */
static void pack(struct warp *warp, const struct op *op, uint32_t mask)
{
    uint32_t good = UINT32_MAX;

    for (unsigned i = 0; i < op->count; i++)
        good &= written(warp, op->list[i]);
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        char value[16];
        for (unsigned i = 0; i < op->count; i++)
            memcpy(value + i * op->bytes, (char *)reg(warp, op->list[i]) + (size_t)lane * op->bytes,
                   op->bytes);
        memcpy((char *)reg(warp, op->d) + (size_t)lane * op->store, value, op->store);
    }
    mark_result(warp, op->d, mask, good);
}

static void unpack(struct warp *warp, const struct op *op, uint32_t mask)
{
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        char value[16];
        memcpy(value, (char *)reg(warp, op->a) + (size_t)lane * op->store, op->store);
        for (unsigned i = 0; i < op->count; i++)
            memcpy((char *)reg(warp, op->list[i]) + (size_t)lane * op->bytes, value + i * op->bytes,
                   op->bytes);
    }
    for (unsigned i = 0; i < op->count; i++)
        mark_result(warp, op->list[i], mask, written(warp, op->a));
}

/* The same of two halves, which nearly all are. */
#define HALVES(name, T, HALF)                                                                      \
    static void pack_##name(struct warp *warp, const struct op *op, uint32_t mask)                 \
    {                                                                                              \
        T *d = reg(warp, op->d);                                                                   \
        const HALF *low = reg(warp, op->list[0]);                                                  \
        const HALF *high = reg(warp, op->list[1]);                                                 \
        EACH_LANE(mask, d[lane] = (T)(low[lane] | (T)high[lane] << (8 * sizeof(HALF))));           \
        mark_result(warp, op->d, mask, written(warp, op->list[0]) & written(warp, op->list[1]));   \
    }                                                                                              \
    static void unpack_##name(struct warp *warp, const struct op *op, uint32_t mask)               \
    {                                                                                              \
        const T *a = reg(warp, op->a);                                                             \
        HALF *low = reg(warp, op->list[0]);                                                        \
        HALF *high = reg(warp, op->list[1]);                                                       \
        uint32_t good = written(warp, op->a);                                                      \
        EACH_LANE(mask, const T value = a[lane]; low[lane] = (HALF)value;                          \
                  high[lane] = (HALF)(value >> (8 * sizeof(HALF))));                               \
        mark_result(warp, op->list[0], mask, good);                                                \
        mark_result(warp, op->list[1], mask, good);                                                \
    }
HALVES(4, uint32_t, uint16_t)
HALVES(8, uint64_t, uint32_t)

static op_fn *vector_fn(bool packs, unsigned count, unsigned bytes)
{
    if (count == 2 && bytes == 4)
        return packs ? pack_4 : unpack_4;
    if (count == 2 && bytes == 8)
        return packs ? pack_8 : unpack_8;
    return packs ? pack : unpack;
}

static void decode_vector(struct builder *builder, struct statement *statement, unsigned bytes)
{
    bool packs = statement->arguments[1].kind == ARGUMENT_VECTOR;
    const struct argument *vector = &statement->arguments[packs ? 1 : 0];
    struct operand list[8];

    if (vector->count < 2 || vector->count > 8 || bytes % vector->count != 0 ||
        bytes / vector->count < 2)
        refuse(builder, "mov of %u bytes and %u parts", bytes, vector->count);
    unsigned part = bytes / vector->count;
    for (unsigned i = 0; i < vector->count; i++)
        list[i] = packs ? source(builder, &vector->items[i], part)
                        : destination(builder, &vector->items[i], part);
    struct operand whole = packs ? destination(builder, &statement->arguments[0], bytes)
                                 : source(builder, &statement->arguments[1], bytes);
    struct op *op = emit(builder, statement, vector_fn(packs, vector->count, bytes));
    op->d = op->a = whole;
    op->list = own_list(builder, list, vector->count);
    op->count = (uint8_t)vector->count;
    op->bytes = (uint8_t)part;
    op->store = (uint8_t)bytes;
}

/* Time goes on, and never back. */
static void move_clock(struct warp *warp, const struct op *op, uint32_t mask)
{
    struct timespec now;
    uint64_t value;

    clock_gettime(CLOCK_MONOTONIC, &now);
    value = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    for (uint32_t left = mask; left != 0; left &= left - 1)
        memcpy((char *)reg(warp, op->d) + (size_t)__builtin_ctz(left) * op->bytes, &value,
               op->bytes);
    mark_result(warp, op->d, mask, mask);
}

static op_fn *move_of(struct builder *builder, unsigned bytes)
{
    if (bytes == 2)
        return move_2;
    if (bytes == 4)
        return move_4;
    if (bytes == 8)
        return move_8;
    refuse(builder, "a move of %u bytes", bytes);
}

static void decode_mov(struct builder *builder, struct statement *statement)
{
    enum type type = type_needed(builder, statement);
    unsigned bytes = type_bytes(type);
    const struct argument *a = &statement->arguments[1];

    need_arguments(builder, statement, 2, 2);
    if (type == TYPE_PRED) {
        bool flip;
        struct operand s = source_predicate(builder, a, &flip);
        struct operand d = destination_predicate(builder, &statement->arguments[0]);
        struct op *op = emit(builder, statement, move_predicate);
        op->d = d;
        op->a = s;
        op->flip = flip;
    } else if (a->kind == ARGUMENT_VECTOR || statement->arguments[0].kind == ARGUMENT_VECTOR) {
        decode_vector(builder, statement, bytes);
    } else if (a->kind == ARGUMENT_SPECIAL && a->special >= SPECIALS) {
        struct operand d = destination(builder, &statement->arguments[0], bytes);
        struct op *op = emit(builder, statement, move_clock);
        op->d = d;
        op->bytes = (uint8_t)bytes;
    } else {
        struct operand s = source(builder, a, bytes);
        struct operand d = destination(builder, &statement->arguments[0], bytes);
        struct op *op = emit(builder, statement, move_of(builder, bytes));
        op->d = d;
        op->a = s;
    }
}

#define SELECT(name, T)                                                                            \
    static void name(struct warp *warp, const struct op *op, uint32_t mask)                        \
    {                                                                                              \
        T *d = reg(warp, op->d);                                                                   \
        const T *a = reg(warp, op->a);                                                             \
        const T *b = reg(warp, op->b);                                                             \
        uint32_t p = predicate(warp, op->c) ^ (op->flip ? UINT32_MAX : 0);                         \
        uint32_t good =                                                                            \
            written(warp, op->c) & ((p & written(warp, op->a)) | (~p & written(warp, op->b)));     \
        EACH_LANE(mask, d[lane] = p >> lane & 1 ? a[lane] : b[lane]);                              \
        mark_result(warp, op->d, mask, good);                                                      \
    }
SELECT(select_2, uint16_t)
SELECT(select_4, uint32_t)
SELECT(select_8, uint64_t)

static void decode_selp(struct builder *builder, struct statement *statement)
{
    unsigned bytes = type_bytes(type_needed(builder, statement));
    op_fn *fn = bytes == 2 ? select_2 : bytes == 4 ? select_4 : bytes == 8 ? select_8 : NULL;
    bool flip;

    need_arguments(builder, statement, 4, 4);
    if (fn == NULL)
        refuse(builder, "selp of %u bytes", bytes);
    struct operand d = destination(builder, &statement->arguments[0], bytes);
    struct operand a = source(builder, &statement->arguments[1], bytes);
    struct operand b = source(builder, &statement->arguments[2], bytes);
    struct operand c = source_predicate(builder, &statement->arguments[3], &flip);
    struct op *op = emit(builder, statement, fn);
    op->d = d;
    op->a = a;
    op->b = b;
    op->c = c;
    op->flip = flip;
}

const struct decoder decode_move[] = {
    {"mov", decode_mov},
    {"selp", decode_selp},
    {NULL, NULL},
};
