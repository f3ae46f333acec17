/* ldmatrix, stmatrix, movmatrix: 8 x 8 matrices of 16 bits between shared memory and registers.
 *
 * Lanes 8 m to 8 m + 7 give the addresses of the rows of matrix m; lane t holds row t / 4, columns
 * 2 (t % 4) and the next, or, transposed, column t / 4 and two rows.
 */
#include "access.h"
#include "matrix.h"

#include <string.h>

enum { ROWS = 8 };

struct tile {
    uint16_t values[ROWS][ROWS];
    bool good[ROWS][ROWS];
};

static void cell_of(const struct op *op, unsigned lane, unsigned half, unsigned *row,
                    unsigned *column)
{
    unsigned major = lane / 4;
    unsigned minor = 2 * (lane % 4) + half;

    *row = op->flip ? minor : major;
    *column = op->flip ? major : minor;
}

static uint32_t address_lanes(const struct op *op)
{
    return op->count == 4 ? UINT32_MAX : ((uint32_t)1 << (op->count * ROWS)) - 1;
}

static void tile_to_lanes(struct warp *warp, const struct op *op, struct operand d,
                          const struct tile *tile)
{
    uint32_t *values = reg(warp, d);
    uint32_t good = UINT32_MAX;

    for (unsigned lane = 0; lane < LANES; lane++) {
        uint32_t value = 0;
        for (unsigned half = 0; half < 2; half++) {
            unsigned row;
            unsigned column;
            cell_of(op, lane, half, &row, &column);
            value |= (uint32_t)tile->values[row][column] << (16 * half);
            if (!tile->good[row][column])
                good &= ~((uint32_t)1 << lane);
        }
        values[lane] = value;
    }
    mark_result(warp, d, UINT32_MAX, good);
}

static void tile_from_lanes(const struct warp *warp, const struct op *op, struct operand a,
                            struct tile *tile)
{
    const uint32_t *values = reg(warp, a);

    for (unsigned lane = 0; lane < LANES; lane++)
        for (unsigned half = 0; half < 2; half++) {
            unsigned row;
            unsigned column;
            cell_of(op, lane, half, &row, &column);
            tile->values[row][column] = (uint16_t)(values[lane] >> (16 * half));
            tile->good[row][column] = (written(warp, a) >> lane & 1) != 0;
        }
}

static void op_ldmatrix(struct warp *warp, const struct op *op, uint32_t mask)
{
    struct access access;

    if (!whole_warp(warp, op, mask) ||
        !access_find(warp, op, address_lanes(op), 16, RACE_READ, &access))
        return;
    for (unsigned m = 0; m < op->count; m++) {
        struct tile tile;
        for (unsigned row = 0; row < ROWS; row++) {
            unsigned lane = m * ROWS + row;
            memcpy(tile.values[row], access.at[lane], 16);
            for (unsigned column = 0; column < ROWS; column++)
                tile.good[row][column] =
                    access_written(&access, (uint32_t)1 << lane, column * 2, 2) != 0;
        }
        tile_to_lanes(warp, op, op->list[m], &tile);
    }
}

static void op_stmatrix(struct warp *warp, const struct op *op, uint32_t mask)
{
    struct access access;

    if (!whole_warp(warp, op, mask) ||
        !access_find(warp, op, address_lanes(op), 16, RACE_WRITE, &access))
        return;
    for (unsigned m = 0; m < op->count; m++) {
        struct tile tile;
        tile_from_lanes(warp, op, op->list[m], &tile);
        for (unsigned row = 0; row < ROWS; row++) {
            uint32_t bit = (uint32_t)1 << (m * ROWS + row);
            access_races(warp, op, bit, &access, 0,
                         (const char *)tile.values[row] - (size_t)(m * ROWS + row) * 16, 16, 16);
            memcpy(access.at[m * ROWS + row], tile.values[row], 16);
            for (unsigned column = 0; column < ROWS; column++)
                access_mark(&access, bit, column * 2, 2, tile.good[row][column] ? bit : 0);
        }
    }
}

static void op_movmatrix(struct warp *warp, const struct op *op, uint32_t mask)
{
    struct op straight = *op;
    struct tile tile;

    if (!whole_warp(warp, op, mask))
        return;
    straight.flip = false;
    tile_from_lanes(warp, &straight, op->a, &tile);
    tile_to_lanes(warp, op, op->d, &tile);
}

static void decode_tiles(struct builder *builder, struct statement *statement, bool load)
{
    static const char *const counts[] = {"x1", "x2", "x4", NULL};
    struct operand list[4];

    if (!modifier(statement, "sync") || !modifier(statement, "aligned") ||
        !modifier(statement, "m8n8"))
        return;
    int count = modifier_of(statement, counts);
    bool transposed = modifier(statement, "trans");
    enum space space = space_of(builder, statement);
    if (count < 0 || type_needed(builder, statement) != TYPE_B16)
        return;
    need_arguments(builder, statement, 2, 2);
    const struct argument *values = &statement->arguments[load ? 0 : 1];
    unsigned tiles = 1u << count;
    if (values->kind != ARGUMENT_VECTOR || values->count != tiles)
        refuse(builder, "%s of %u matrices", statement->name, tiles);
    for (unsigned m = 0; m < tiles; m++)
        list[m] = load ? destination(builder, &values->items[m], 4)
                       : source(builder, &values->items[m], 4);
    struct op *op = emit(builder, statement, load ? op_ldmatrix : op_stmatrix);
    address_of(builder, op, &statement->arguments[load ? 1 : 0], space);
    op = &builder->kernel->ops[builder->kernel->op_count - 1];
    op->list = own_list(builder, list, tiles);
    op->count = (uint8_t)tiles;
    op->flip = transposed;
}

static void decode_ldmatrix(struct builder *builder, struct statement *statement)
{
    decode_tiles(builder, statement, true);
}

static void decode_stmatrix(struct builder *builder, struct statement *statement)
{
    decode_tiles(builder, statement, false);
}

static void decode_movmatrix(struct builder *builder, struct statement *statement)
{
    if (!modifier(statement, "sync") || !modifier(statement, "aligned") ||
        !modifier(statement, "m8n8") || !modifier(statement, "trans") ||
        type_needed(builder, statement) != TYPE_B16)
        return;
    emit_operands(builder, statement, op_movmatrix, 4, 4, 0, 0)->flip = true;
}

const struct decoder decode_fragment[] = {
    {"ldmatrix", decode_ldmatrix},
    {"stmatrix", decode_stmatrix},
    {"movmatrix", decode_movmatrix},
    {NULL, NULL},
};
