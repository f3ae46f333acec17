/* wmma: matrices in fragments whose layout is the implementation's own.
 *
 * Here lane l and element i of a fragment with e elements a lane hold element l e + i of the
 * matrix, row by row; where the lanes have more room than the matrix has elements it is there
 * twice, as it is in hardware.  A kernel may change all elements of a fragment alike, and nothing
 * else.
 */
#include "access.h"
#include "matrix.h"

#include "narrow.h"

#include <stdio.h>
#include <string.h>

struct fragment {
    enum type type;
    unsigned rows;
    unsigned columns;
    unsigned count; /* of registers */
    struct operand *registers;
    bool by_columns; /* in memory */
};

struct wmma {
    struct fragment d;
    struct fragment a;
    struct fragment b;
    struct fragment c;
};

static unsigned per_register(const struct fragment *fragment)
{
    unsigned bits = element_bits(fragment->type);

    return bits >= 32 ? 1 : 32 / bits;
}

static void fragment_read(const struct warp *warp, const struct fragment *fragment,
                          struct matrix *matrix)
{
    unsigned each = per_register(fragment);
    unsigned all = fragment->rows * fragment->columns;

    matrix->rows = fragment->rows;
    matrix->columns = fragment->columns;
    for (int lane = 0; lane < LANES; lane++)
        for (unsigned i = 0; i < fragment->count * each; i++) {
            unsigned at = ((unsigned)lane * fragment->count * each + i) % all;
            struct operand operand = fragment->registers[i / each];
            matrix->values[at] = element_value(warp, operand, fragment->type, lane, i % each);
            matrix->good[at] = (written(warp, operand) >> lane & 1) != 0;
        }
}

static void fragment_write(struct warp *warp, const struct fragment *fragment,
                           const struct matrix *matrix)
{
    unsigned each = per_register(fragment);
    unsigned all = fragment->rows * fragment->columns;

    for (unsigned r = 0; r < fragment->count; r++) {
        uint32_t good = UINT32_MAX;
        for (int lane = 0; lane < LANES; lane++)
            for (unsigned j = 0; j < each; j++) {
                unsigned at = ((unsigned)lane * fragment->count * each + r * each + j) % all;
                element_set(warp, fragment->registers[r], fragment->type, lane, j,
                            matrix->values[at]);
                if (!matrix->good[at])
                    good &= ~((uint32_t)1 << lane);
            }
        mark_result(warp, fragment->registers[r], UINT32_MAX, good);
    }
}

static void op_wmma(struct warp *warp, const struct op *op, uint32_t mask)
{
    const struct wmma *wmma = op->extra;
    struct matrix a;
    struct matrix b;
    struct matrix c;
    struct matrix d;

    if (!whole_warp(warp, op, mask))
        return;
    fragment_read(warp, &wmma->a, &a);
    fragment_read(warp, &wmma->b, &b);
    fragment_read(warp, &wmma->c, &c);
    matrix_multiply(&a, &b, &c, &d);
    fragment_write(warp, &wmma->d, &d);
}

/* Where an element lies: op->a is the address of the first, list[0] the distance of rows (or
 * columns) in elements.  Both must be the same in all lanes. */
static uint64_t element_address(const struct warp *warp, const struct op *op,
                                const struct fragment *fragment, unsigned row, unsigned column)
{
    uint64_t base = op->wide_address ? ((const uint64_t *)reg(warp, op->a))[0]
                                     : ((const uint32_t *)reg(warp, op->a))[0];
    uint32_t stride = ((const uint32_t *)reg(warp, op->list[0]))[0];
    unsigned major = fragment->by_columns ? column : row;
    unsigned minor = fragment->by_columns ? row : column;

    return base + (uint64_t)op->offset +
           ((uint64_t)major * stride + minor) * type_bytes(fragment->type);
}

static bool move_ready(struct warp *warp, const struct op *op, uint32_t mask)
{
    return whole_warp(warp, op, mask) && !undefined(warp, op, mask, op->a, "an address") &&
           !undefined(warp, op, mask, op->list[0], "a stride");
}

static double number_at(const uint8_t *at, enum type type)
{
    uint64_t bits = 0;
    unsigned unused = 64 - element_bits(type);

    memcpy(&bits, at, type_bytes(type));
    if (type == TYPE_TF32)
        bits &= 0xFFFFE000;
    if (type_is_float(type))
        return (double)bits_value(type, bits);
    return type_is_signed(type) ? (double)((int64_t)(bits << unused) >> unused) : (double)bits;
}

static void op_wmma_load(struct warp *warp, const struct op *op, uint32_t mask)
{
    const struct fragment *fragment = op->extra;
    unsigned bytes = type_bytes(fragment->type);
    struct matrix matrix = {.rows = fragment->rows, .columns = fragment->columns};

    if (!move_ready(warp, op, mask))
        return;
    for (unsigned i = 0; i < fragment->rows * fragment->columns; i++) {
        uint8_t *shadow;
        uint64_t address =
            element_address(warp, op, fragment, i / fragment->columns, i % fragment->columns);
        const uint8_t *at = access_one(warp, op, (int)(i % LANES), (enum space)op->space, address,
                                       bytes, RACE_READ, &shadow);
        if (at == NULL)
            return;
        unsigned want = (1u << bytes) - 1;
        matrix.values[i] = number_at(at, fragment->type);
        matrix.good[i] = shadow == NULL || (*shadow >> (address % 8) & want) == want;
    }
    fragment_write(warp, fragment, &matrix);
}

static void op_wmma_store(struct warp *warp, const struct op *op, uint32_t mask)
{
    const struct fragment *fragment = op->extra;
    unsigned bytes = type_bytes(fragment->type);
    struct matrix matrix;

    if (!move_ready(warp, op, mask))
        return;
    fragment_read(warp, fragment, &matrix);
    for (unsigned i = 0; i < fragment->rows * fragment->columns; i++) {
        uint8_t *shadow;
        uint64_t address =
            element_address(warp, op, fragment, i / fragment->columns, i % fragment->columns);
        uint8_t *at = access_one(warp, op, (int)(i % LANES), (enum space)op->space, address, bytes,
                                 RACE_WRITE, &shadow);
        if (at == NULL)
            return;
        uint64_t bits = type_is_float(fragment->type) ? value_bits(fragment->type, matrix.values[i])
                                                      : (uint64_t)(int64_t)matrix.values[i];
        memcpy(at, &bits, bytes);
        if (shadow == NULL)
            continue;
        uint8_t marks = (uint8_t)(((1u << bytes) - 1) << (address % 8));
        if (matrix.good[i])
            __atomic_fetch_or(shadow, marks, __ATOMIC_RELAXED);
        else
            __atomic_fetch_and(shadow, (uint8_t)~marks, __ATOMIC_RELAXED);
    }
}

/* m, n, k of the shapes that C++ has. */
static const unsigned shapes[][3] = {{16, 16, 16}, {32, 8, 16}, {8, 32, 16}, {16, 16, 8}};

static bool shape_read(struct statement *statement, unsigned *m, unsigned *n, unsigned *k)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        char name[32];
        snprintf(name, sizeof(name), "m%un%uk%u", shapes[i][0], shapes[i][1], shapes[i][2]);
        if (!modifier(statement, name))
            continue;
        *m = shapes[i][0];
        *n = shapes[i][1];
        *k = shapes[i][2];
        return true;
    }
    return false;
}

static void fragment_fill(struct builder *builder, const struct argument *vector, bool writes,
                          enum type type, unsigned rows, unsigned columns,
                          struct fragment *fragment)
{
    unsigned bits = element_bits(type);

    if (vector->kind != ARGUMENT_VECTOR || bits > 32 ||
        vector->count * LANES * (bits == 32 ? 1 : 32 / bits) < rows * columns)
        refuse(builder, "a wmma fragment of %u registers", vector->count);
    *fragment =
        (struct fragment){.type = type,
                          .rows = rows,
                          .columns = columns,
                          .count = vector->count,
                          .registers = own(builder, vector->count * sizeof(struct operand))};
    for (unsigned i = 0; i < vector->count; i++)
        fragment->registers[i] = writes ? destination(builder, &vector->items[i], 4)
                                        : source(builder, &vector->items[i], 4);
}

static void decode_product(struct builder *builder, struct statement *statement)
{
    struct wmma *wmma = own(builder, sizeof(*wmma));
    unsigned m;
    unsigned n;
    unsigned k;

    while (modifier(statement, "row") || modifier(statement, "col"))
        ; /* of memory: the fragments know rows and columns */
    if (!shape_read(statement, &m, &n, &k))
        return;
    enum type d = type_needed(builder, statement);
    enum type second = type_needed(builder, statement);
    enum type third = type_next(statement);
    enum type a = third == TYPE_NONE ? TYPE_F16 : second;
    enum type b = third == TYPE_NONE ? TYPE_F16 : third;
    enum type c = third == TYPE_NONE ? second : type_needed(builder, statement);
    need_arguments(builder, statement, 4, 4);
    fragment_fill(builder, &statement->arguments[0], true, d, m, n, &wmma->d);
    fragment_fill(builder, &statement->arguments[1], false, a, m, k, &wmma->a);
    fragment_fill(builder, &statement->arguments[2], false, b, k, n, &wmma->b);
    fragment_fill(builder, &statement->arguments[3], false, c, m, n, &wmma->c);
    emit(builder, statement, op_wmma)->extra = wmma;
}

static void decode_transfer(struct builder *builder, struct statement *statement, bool load)
{
    static const char *const parts[] = {"a", "b", "c", "d", NULL};
    struct fragment *fragment = own(builder, sizeof(*fragment));
    int part = modifier_of(statement, parts);
    bool by_columns = modifier(statement, "col");
    unsigned m;
    unsigned n;
    unsigned k;

    if (part < 0 || (!by_columns && !modifier(statement, "row")) ||
        !shape_read(statement, &m, &n, &k))
        return;
    enum space space = space_of(builder, statement);
    enum type type = type_needed(builder, statement);
    need_arguments(builder, statement, 2, 3);
    fragment_fill(builder, &statement->arguments[load ? 0 : 1], load, type, part == 1 ? k : m,
                  part == 0 ? k : n, fragment);
    fragment->by_columns = by_columns;
    unsigned packed = part == 0   ? (by_columns ? m : k)
                      : part == 1 ? (by_columns ? k : n)
                                  : (by_columns ? m : n);
    struct operand stride = statement->argument_count == 3
                                ? source(builder, &statement->arguments[2], 4)
                                : constant(builder, packed, 4);
    struct op *op = emit(builder, statement, load ? op_wmma_load : op_wmma_store);
    address_of(builder, op, &statement->arguments[load ? 1 : 0], space);
    op = &builder->kernel->ops[builder->kernel->op_count - 1];
    op->list = own_list(builder, &stride, 1);
    op->extra = fragment;
}

static void decode_wmma_op(struct builder *builder, struct statement *statement)
{
    if (!modifier(statement, "sync") || !modifier(statement, "aligned"))
        return;
    if (modifier(statement, "mma"))
        decode_product(builder, statement);
    else if (modifier(statement, "load"))
        decode_transfer(builder, statement, true);
    else if (modifier(statement, "store"))
        decode_transfer(builder, statement, false);
}

const struct decoder decode_wmma[] = {
    {"wmma", decode_wmma_op},
    {NULL, NULL},
};
