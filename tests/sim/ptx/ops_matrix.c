/* mma: the fragments of the PTX manual.
 *
 * A lane belongs to a group (lane / 4) and has a place in it (lane % 4).  With e elements in a
 * register, register r and element j hold
 *     a: row group + 8 (r % 2), column place e + j + 4 e (r / 2)     (of 8 rows: r counts columns)
 *     b: row place e + j + 4 e r, column group
 *     c: row group + 8 (i / 2), column 2 place + i % 2, for i counted through the registers
 * which is the same rule for every shape and type.
 */
#include "matrix.h"

#include "narrow.h"

#include <stdio.h>
#include <string.h>

struct product {
    unsigned m;
    unsigned n;
    unsigned k;
    enum type types[4]; /* d, a, b, c */
    struct operand *registers[4];
    unsigned counts[4]; /* of registers */
};

enum part { PART_D, PART_A, PART_B, PART_C };

static void element_place(const struct product *product, enum part part, int lane, unsigned r,
                          unsigned j, unsigned each, unsigned *out_row, unsigned *out_column)
{
    unsigned group = (unsigned)lane / 4;
    unsigned place = (unsigned)lane % 4;
    unsigned i = r * each + j;

    switch (part) {
    case PART_A:
        *out_row = product->m == 16 ? group + 8 * (r % 2) : group;
        *out_column = place * each + j + 4 * each * (product->m == 16 ? r / 2 : r);
        break;
    case PART_B:
        *out_row = place * each + j + 4 * each * r;
        *out_column = group;
        break;
    default:
        *out_row = group + 8 * (i / 2);
        *out_column = 2 * place + i % 2;
        break;
    }
}

static void gather(const struct warp *warp, const struct product *product, enum part part,
                   struct matrix *matrix)
{
    enum type type = product->types[part];
    unsigned bits = element_bits(type);
    unsigned each = bits >= 32 ? 1 : 32 / bits;

    matrix->rows = part == PART_B ? product->k : product->m;
    matrix->columns = part == PART_A ? product->k : product->n;
    for (unsigned r = 0; r < product->counts[part]; r++)
        for (int lane = 0; lane < LANES; lane++)
            for (unsigned j = 0; j < each; j++) {
                unsigned row;
                unsigned column;
                element_place(product, part, lane, r, j, each, &row, &column);
                struct operand operand = product->registers[part][r];
                matrix->values[row * matrix->columns + column] =
                    element_value(warp, operand, type, lane, j);
                matrix->good[row * matrix->columns + column] =
                    (written(warp, operand) >> lane & 1) != 0;
            }
}

static void scatter(struct warp *warp, const struct product *product, const struct matrix *matrix)
{
    enum type type = product->types[PART_D];
    unsigned bits = element_bits(type);
    unsigned each = bits >= 32 ? 1 : 32 / bits;

    for (unsigned r = 0; r < product->counts[PART_D]; r++) {
        struct operand operand = product->registers[PART_D][r];
        uint32_t good = UINT32_MAX;
        for (int lane = 0; lane < LANES; lane++)
            for (unsigned j = 0; j < each; j++) {
                unsigned row;
                unsigned column;
                element_place(product, PART_D, lane, r, j, each, &row, &column);
                element_set(warp, operand, type, lane, j,
                            matrix->values[row * matrix->columns + column]);
                if (!matrix->good[row * matrix->columns + column])
                    good &= ~((uint32_t)1 << lane);
            }
        mark_result(warp, operand, UINT32_MAX, good);
    }
}

static void op_mma(struct warp *warp, const struct op *op, uint32_t mask)
{
    const struct product *product = op->extra;
    struct matrix a;
    struct matrix b;
    struct matrix c;
    struct matrix d;

    if (!whole_warp(warp, op, mask))
        return;
    gather(warp, product, PART_A, &a);
    gather(warp, product, PART_B, &b);
    gather(warp, product, PART_C, &c);
    matrix_multiply(&a, &b, &c, &d);
    scatter(warp, product, &d);
}

/* Shapes and types of a and b that are simulated. */
static const struct {
    unsigned m;
    unsigned n;
    unsigned k;
    unsigned bits;
} shapes[] = {
    {16, 8, 8, 16}, {16, 8, 16, 16}, {16, 8, 4, 32}, {16, 8, 8, 32},
    {16, 8, 16, 8}, {16, 8, 32, 8},  {8, 8, 16, 8},  {8, 8, 4, 64},
};

static bool shape_read(struct statement *statement, struct product *product)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        char name[32];
        snprintf(name, sizeof(name), "m%un%uk%u", shapes[i].m, shapes[i].n, shapes[i].k);
        if (!modifier(statement, name))
            continue;
        product->m = shapes[i].m;
        product->n = shapes[i].n;
        product->k = shapes[i].k;
        return true;
    }
    return false;
}

static bool shape_fits(const struct product *product)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (shapes[i].m == product->m && shapes[i].n == product->n && shapes[i].k == product->k &&
            shapes[i].bits == element_bits(product->types[PART_A]) &&
            shapes[i].bits == element_bits(product->types[PART_B]))
            return true;
    return false;
}

static void registers_read(struct builder *builder, struct statement *statement,
                           struct product *product, unsigned argument, enum part part)
{
    const struct argument *vector = &statement->arguments[argument];
    enum type type = product->types[part];
    unsigned bytes = element_bits(type) == 64 ? 8 : 4;
    unsigned elements = part == PART_A   ? product->m * product->k
                        : part == PART_B ? product->k * product->n
                                         : product->m * product->n;
    unsigned need = elements / LANES * element_bits(type) / (8 * bytes);
    bool scalar = vector->kind == ARGUMENT_REGISTER;

    if ((scalar ? 1 : vector->count) != need)
        refuse(builder, "%s: operand %u has not %u registers", statement->name, argument, need);
    product->counts[part] = need;
    product->registers[part] = own(builder, need * sizeof(struct operand));
    for (unsigned i = 0; i < need; i++) {
        const struct argument *one = scalar ? vector : &vector->items[i];
        product->registers[part][i] =
            part == PART_D ? destination(builder, one, bytes) : source(builder, one, bytes);
    }
}

static void decode_mma(struct builder *builder, struct statement *statement)
{
    struct product *product = own(builder, sizeof(*product));

    if (!modifier(statement, "sync") || !modifier(statement, "aligned") ||
        !shape_read(statement, product) || !modifier(statement, "row") ||
        !modifier(statement, "col"))
        return;
    need_arguments(builder, statement, 4, 4);
    for (int part = PART_D; part <= PART_C; part++)
        product->types[part] = type_needed(builder, statement);
    if (!shape_fits(product))
        return;
    for (unsigned part = PART_D; part <= PART_C; part++)
        registers_read(builder, statement, product, part, (enum part)part);
    emit(builder, statement, op_mma)->extra = product;
}

const struct decoder decode_matrix[] = {
    {"mma", decode_mma},
    {NULL, NULL},
};
