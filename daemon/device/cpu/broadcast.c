#include "device/cpu/broadcast.h"

#include <stdio.h>
#include <string.h>

#include "device/cpu/team.h"

enum { PIECE_COLUMNS = 4096 };

/* ---- geometry ---- */

/* Dimension `i` of `operand` aligned to an output of `rank` dimensions. */
static int64_t aligned_dim(const struct operand *operand, size_t rank, size_t i)
{
    size_t lead = rank - operand->shape.rank;

    return i < lead ? 1 : operand->shape.dims[i - lead];
}

bool broadcast_wants_pack(const struct operand *out, const struct operand *in)
{
    return out->layout == LAYOUT_BLOCKED && in->layout == LAYOUT_PLAIN &&
           aligned_dim(in, out->shape.rank, 1) > 1;
}

static const char *refuses_operand(const struct operand *out, const struct operand *in)
{
    if (in->outer_stride > 0 && in->shape.rank != out->shape.rank)
        return "rows that lie apart, of lower rank";
    if (in->layout != LAYOUT_PLAIN)
        return in->layout == out->layout && in->shape.rank == out->shape.rank
                   ? NULL
                   : "operands in different layouts or of different rank";
    if (out->layout == LAYOUT_PLAIN)
        return NULL;
    if (in->outer_stride > 0)
        return "a plain slice among operands in another layout";
    if (broadcast_wants_pack(out, in) && (in->constant == NULL || in->constant_key == NULL))
        return "a plain operand with channels that is no constant";
    if (out->layout == LAYOUT_NHWC && aligned_dim(in, out->shape.rank, 1) > 1)
        for (size_t i = 2; i < out->shape.rank; i++)
            if (aligned_dim(in, out->shape.rank, i) > 1)
                return "a plain operand that varies along channels and places";
    return NULL;
}

const char *broadcast_refuses(const struct operand *out, size_t count,
                              const struct operand *const *in)
{
    for (size_t i = 0; i < count; i++) {
        const char *refusal = refuses_operand(out, in[i]);

        if (refusal != NULL)
            return refusal;
    }
    return NULL;
}

/* Elements from index to index of each logical dimension of a plain operand, 0 where repeated. */
static void plain_strides(const struct operand *operand, size_t rank, int64_t *strides)
{
    int64_t stride = 1;

    for (size_t i = rank; i-- > 0;) {
        int64_t dim = aligned_dim(operand, rank, i);

        strides[i] = dim > 1 ? stride : 0;
        stride *= dim;
    }
    if (operand->outer_stride > 0 && operand->shape.rank == rank && strides[0] > 0)
        strides[0] = operand->outer_stride;
}

/* Dimensions in memory: n, C/b, places…, b; channels of a repeated operand count as one block. */
static void blocked_strides(const struct operand *operand, size_t rank, int64_t block,
                            int64_t *strides)
{
    int64_t channels = aligned_dim(operand, rank, 1), stride = block;

    strides[rank] = channels > 1 ? 1 : 0;
    for (size_t i = rank; i-- > 0;) {
        int64_t dim = aligned_dim(operand, rank, i);
        int64_t steps = i == 1 ? (channels + block - 1) / block : dim;

        strides[i] = dim > 1 && steps > 1 ? stride : 0;
        stride *= steps;
    }
    if (operand->outer_stride > 0 && strides[0] > 0)
        strides[0] = operand->outer_stride;
}

static void nhwc_strides(const struct operand *operand, size_t rank, int64_t *strides)
{
    int64_t stride = 1;

    for (size_t k = rank; k-- > 0;) { /* k: place in memory */
        size_t i = k == 0 ? 0 : k == rank - 1 ? 1 : k + 1;
        int64_t dim = aligned_dim(operand, rank, i);

        strides[k] = dim > 1 ? stride : 0;
        stride *= dim;
    }
    if (operand->outer_stride > 0 && strides[0] > 0)
        strides[0] = operand->outer_stride;
}

/* A plain operand's strides in the order of channels-last memory. */
static void plain_in_nhwc(const struct operand *operand, size_t rank, int64_t *strides)
{
    int64_t plain[SHAPE_MAX_RANK];

    plain_strides(operand, rank, plain);
    strides[0] = plain[0];
    for (size_t k = 1; k + 1 < rank; k++)
        strides[k] = plain[k + 1];
    strides[rank - 1] = plain[1];
}

/* A plain operand without channels among blocked ones. */
static void plain_in_blocked(const struct operand *operand, size_t rank, int64_t *strides)
{
    plain_strides(operand, rank, strides);
    strides[rank] = 0;
}

static void operand_strides(const struct operand *out, const struct operand *operand, int64_t block,
                            int64_t *strides)
{
    size_t rank = out->shape.rank;

    if (out->layout == LAYOUT_BLOCKED) {
        if (operand->layout == LAYOUT_BLOCKED || broadcast_wants_pack(out, operand))
            blocked_strides(operand, rank, block, strides);
        else
            plain_in_blocked(operand, rank, strides);
    } else if (out->layout == LAYOUT_NHWC) {
        if (operand->layout == LAYOUT_NHWC)
            nhwc_strides(operand, rank, strides);
        else
            plain_in_nhwc(operand, rank, strides);
    } else {
        plain_strides(operand, rank, strides);
    }
}

static size_t memory_dims(const struct operand *out, int64_t block, int64_t *dims)
{
    const struct shape *shape = &out->shape;
    size_t rank = shape->rank;

    for (size_t i = 0; i < rank; i++)
        dims[i] = shape->dims[i];
    if (out->layout == LAYOUT_BLOCKED) {
        dims[1] = (shape->dims[1] + block - 1) / block;
        dims[rank++] = block;
    } else if (out->layout == LAYOUT_NHWC) {
        for (size_t i = 1; i + 1 < rank; i++)
            dims[i] = shape->dims[i + 1];
        dims[rank - 1] = shape->dims[1];
    }
    return rank;
}

static bool merges(const struct broadcast *b, size_t outer, size_t inner)
{
    int64_t dim = b->dims[inner];

    if (b->out_strides[outer] != b->out_strides[inner] * dim)
        return false;
    for (size_t i = 0; i < b->count; i++)
        if (b->in_strides[i][outer] != b->in_strides[i][inner] * dim)
            return false;
    return true;
}

static void move_dim(struct broadcast *b, size_t to, size_t from)
{
    b->dims[to] = b->dims[from];
    b->out_strides[to] = b->out_strides[from];
    for (size_t i = 0; i < b->count; i++)
        b->in_strides[i][to] = b->in_strides[i][from];
}

/* Drops dimensions of one and merges those that all operands walk as one. */
static void simplify(struct broadcast *b)
{
    size_t kept = 0;

    for (size_t i = 0; i < b->rank; i++) {
        if (b->dims[i] == 1 && !(kept == 0 && i + 1 == b->rank))
            continue;
        if (kept > 0 && merges(b, kept - 1, i)) {
            int64_t dim = b->dims[kept - 1];

            move_dim(b, kept - 1, i);
            b->dims[kept - 1] *= dim;
        } else {
            move_dim(b, kept++, i);
        }
    }
    b->rank = kept;
}

/* A dimension of single elements that lie apart (slices of one element) becomes rows. */
static void keep_columns_together(struct broadcast *b)
{
    size_t last = b->rank - 1;
    bool apart = b->out_strides[last] > 1;

    for (size_t i = 0; i < b->count; i++)
        apart = apart || b->in_strides[i][last] > 1;
    if (!apart)
        return;
    b->dims[b->rank] = 1;
    b->out_strides[b->rank] = 0;
    for (size_t i = 0; i < b->count; i++)
        b->in_strides[i][b->rank] = 0;
    b->rank++;
}

void broadcast_make(struct broadcast *broadcast, const struct operand *out, size_t count,
                    const struct operand *const *in, const struct device *device)
{
    int64_t block = (int64_t)device->channel_block;
    struct broadcast b = {.count = count};

    b.rank = memory_dims(out, block, b.dims);
    for (size_t i = 0; i < count; i++)
        operand_strides(out, in[i], block, b.in_strides[i]);
    operand_strides(out, out, block, b.out_strides);
    if (b.rank == 0) { /* scalars */
        b.rank = 1;
        b.dims[0] = 1;
    }
    simplify(&b);
    keep_columns_together(&b);
    *broadcast = b;
}

/* ---- packing ---- */

static void pack_blocked(const struct operand *out, const struct operand *in, size_t block,
                         size_t bytes, char *packed)
{
    size_t rank = out->shape.rank, places = 1;
    size_t outer = (size_t)aligned_dim(in, rank, 0), channels = (size_t)aligned_dim(in, rank, 1);
    size_t blocks = (channels + block - 1) / block;
    const char *from = in->constant;

    for (size_t i = 2; i < rank; i++)
        places *= (size_t)aligned_dim(in, rank, i);
    memset(packed, 0, outer * blocks * places * block * bytes);
    for (size_t n = 0; n < outer; n++)
        for (size_t c = 0; c < channels; c++)
            for (size_t s = 0; s < places; s++, from += bytes)
                memcpy(packed +
                           (((n * blocks + c / block) * places + s) * block + c % block) * bytes,
                       from, bytes);
}

enum status broadcast_pack(const struct kernel_prepare *prepare, const struct operand *out,
                           const struct operand *in, const void **out_packed)
{
    size_t block = prepare->call.device->channel_block, bytes = dtype_bytes(in->dtype);
    size_t channels = (size_t)aligned_dim(in, out->shape.rank, 1);
    size_t total = (size_t)shape_count(&in->shape) / channels *
                   ((channels + block - 1) / block * block) * bytes;
    char format[48];
    void *packed;
    bool is_new;

    snprintf(format, sizeof(format), "blocked b=%zu rank=%zu", block, out->shape.rank);
    TRY(weights_share(prepare->weights, in->constant_key, format, total, &packed, &is_new));
    if (is_new)
        pack_blocked(out, in, block, bytes, packed);
    *out_packed = packed;
    return STATUS_OK;
}

/* ---- walking ---- */

struct walk {
    const struct broadcast *b;
    const void *const *in;
    const size_t *in_bytes;
    char *out;
    size_t out_bytes;
    size_t rows;   /* of all dimensions but the last */
    size_t pieces; /* a row is cut into */
    tile_fn fn;
    void *arg;
};

/* Offset in elements of flat row `row` (all dimensions but the last) by these strides. */
static int64_t row_offset(const struct broadcast *b, const int64_t *strides, size_t row)
{
    int64_t offset = 0;

    for (size_t i = b->rank - 1; i-- > 0;) {
        offset += (int64_t)(row % (size_t)b->dims[i]) * strides[i];
        row /= (size_t)b->dims[i];
    }
    return offset;
}

static void call_tile(const struct walk *walk, size_t row, size_t rows, size_t column,
                      size_t columns)
{
    const struct broadcast *b = walk->b;
    size_t last = b->rank - 1;
    struct tile tile = {.rows = rows, .columns = columns};
    const void *in[BROADCAST_IN];
    int64_t out = row_offset(b, b->out_strides, row) + (int64_t)column;

    tile.out_row_stride = last > 0 ? b->out_strides[last - 1] : 0;
    for (size_t i = 0; i < b->count; i++) {
        int64_t offset = row_offset(b, b->in_strides[i], row);

        tile.row_strides[i] = last > 0 ? b->in_strides[i][last - 1] : 0;
        tile.column_strides[i] = b->in_strides[i][last];
        offset += (int64_t)column * b->in_strides[i][last];
        in[i] = (const char *)walk->in[i] + (size_t)offset * walk->in_bytes[i];
    }
    walk->fn(walk->arg, &tile, in, walk->out + (size_t)out * walk->out_bytes);
}

static void walk_rows(const struct walk *walk, size_t from, size_t to)
{
    const struct broadcast *b = walk->b;
    size_t group = b->rank > 1 ? (size_t)b->dims[b->rank - 2] : 1;

    while (from < to) { /* rows of one tile share everything above their dimension */
        size_t rows = group - from % group;

        rows = rows < to - from ? rows : to - from;
        call_tile(walk, from, rows, 0, (size_t)b->dims[b->rank - 1]);
        from += rows;
    }
}

static void walk_member(void *arg, unsigned member, unsigned members)
{
    const struct walk *walk = arg;
    size_t columns = (size_t)walk->b->dims[walk->b->rank - 1];
    size_t from, to;

    team_share(walk->rows * walk->pieces, member, members, &from, &to);
    if (walk->pieces == 1) {
        walk_rows(walk, from, to);
        return;
    }
    for (size_t i = from; i < to; i++) {
        size_t start = i % walk->pieces * PIECE_COLUMNS;
        size_t left = columns - start;

        call_tile(walk, i / walk->pieces, 1, start, left < PIECE_COLUMNS ? left : PIECE_COLUMNS);
    }
}

void broadcast_run(const struct broadcast *broadcast, const void *const *in, const size_t *in_bytes,
                   void *out, size_t out_bytes, unsigned threads, double ns_each, tile_fn fn,
                   void *arg)
{
    struct walk walk = {.b = broadcast,
                        .in = in,
                        .in_bytes = in_bytes,
                        .out = out,
                        .out_bytes = out_bytes,
                        .rows = 1,
                        .fn = fn,
                        .arg = arg};
    size_t columns = (size_t)broadcast->dims[broadcast->rank - 1];

    for (size_t i = 0; i + 1 < broadcast->rank; i++)
        walk.rows *= (size_t)broadcast->dims[i];
    if (walk.rows * columns == 0)
        return;
    walk.pieces = (columns + PIECE_COLUMNS - 1) / PIECE_COLUMNS;
    team_run(team_size(threads, (double)(walk.rows * columns) * ns_each), walk_member, &walk);
}
