#include "device/cpu/move.h"

#include <emmintrin.h>
#include <string.h>

#include "device/cpu/team.h"

/* Elements as plain words: any alignment, any type behind them. */
typedef uint8_t word1 __attribute__((may_alias));
typedef uint16_t word2 __attribute__((may_alias, aligned(1)));
typedef uint32_t word4 __attribute__((may_alias, aligned(1)));
typedef uint64_t word8 __attribute__((may_alias, aligned(1)));
typedef struct {
    uint64_t low, high;
} __attribute__((packed, may_alias)) word16;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

enum {
    TILE = 16
}; /* rows and columns of a transposition tile: one cache line of 4-byte elements */

/* Runs of any length, one memcpy each. */
static void copy_runs(const struct move *move, const char *from, char *to, int64_t rows,
                      int64_t columns)
{
    size_t r = move->rank - 2;

    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++)
            memcpy(to + row * move->to[r] + column * move->to[r + 1],
                   from + row * move->from[r] + column * move->from[r + 1], move->run_bytes);
}

/* Single words: strided, repeated (a source stride of 0), or dense on one side. */
#define COPY_WORDS(word)                                                                           \
    static void copy_##word(const struct move *move, const char *from, char *to, int64_t rows,     \
                            int64_t columns)                                                       \
    {                                                                                              \
        size_t r = move->rank - 2;                                                                 \
        const ptrdiff_t from_step = move->from[r + 1], to_step = move->to[r + 1];                  \
                                                                                                   \
        for (int64_t row = 0; row < rows; row++) {                                                 \
            const char *source = from + row * move->from[r];                                       \
            char *target = to + row * move->to[r];                                                 \
                                                                                                   \
            if (to_step == (ptrdiff_t)sizeof(word) && from_step == 0) {                            \
                const word value = *(const word *)(const void *)source;                            \
                                                                                                   \
                for (int64_t i = 0; i < columns; i++)                                              \
                    ((word *)(void *)target)[i] = value;                                           \
            } else if (to_step == (ptrdiff_t)sizeof(word)) {                                       \
                for (int64_t i = 0; i < columns; i++)                                              \
                    ((word *)(void *)target)[i] =                                                  \
                        *(const word *)(const void *)(source + i * from_step);                     \
            } else {                                                                               \
                for (int64_t i = 0; i < columns; i++)                                              \
                    *(word *)(void *)(target + i * to_step) =                                      \
                        *(const word *)(const void *)(source + i * from_step);                     \
            }                                                                                      \
        }                                                                                          \
    }

COPY_WORDS(word1)
COPY_WORDS(word2)
COPY_WORDS(word4)
COPY_WORDS(word8)
COPY_WORDS(word16)

/* Rows are dense in the source, columns in the destination: a transposition, tile by tile. */
#define TURN_WORDS(word)                                                                           \
    static void turn_tile_##word(const struct move *move, const char *from, char *to,              \
                                 int64_t rows, int64_t columns)                                    \
    {                                                                                              \
        size_t r = move->rank - 2;                                                                 \
                                                                                                   \
        for (int64_t row = 0; row < rows; row++)                                                   \
            for (int64_t column = 0; column < columns; column++)                                   \
                ((word *)(void *)(to + row * move->to[r]))[column] =                               \
                    ((const word *)(const void *)(from + column * move->from[r + 1]))[row];        \
    }

TURN_WORDS(word1)
TURN_WORDS(word2)
TURN_WORDS(word4)
TURN_WORDS(word8)
TURN_WORDS(word16)

static void turn_4x4(const char *from, ptrdiff_t from_step, char *to, ptrdiff_t to_step)
{
    __m128 a = _mm_loadu_ps((const float *)(const void *)from);
    __m128 b = _mm_loadu_ps((const float *)(const void *)(from + from_step));
    __m128 c = _mm_loadu_ps((const float *)(const void *)(from + 2 * from_step));
    __m128 d = _mm_loadu_ps((const float *)(const void *)(from + 3 * from_step));

    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps((float *)(void *)to, a);
    _mm_storeu_ps((float *)(void *)(to + to_step), b);
    _mm_storeu_ps((float *)(void *)(to + 2 * to_step), c);
    _mm_storeu_ps((float *)(void *)(to + 3 * to_step), d);
}

static void turn_tile_fast4(const struct move *move, const char *from, char *to, int64_t rows,
                            int64_t columns)
{
    size_t r = move->rank - 2;
    ptrdiff_t from_step = move->from[r + 1], to_step = move->to[r];
    int64_t whole_rows = rows & ~INT64_C(3), whole_columns = columns & ~INT64_C(3);

    for (int64_t row = 0; row < whole_rows; row += 4)
        for (int64_t column = 0; column < whole_columns; column += 4)
            turn_4x4(from + row * 4 + column * from_step, from_step,
                     to + row * to_step + column * 4, to_step);
    if (whole_columns < columns)
        turn_tile_word4(move, from + whole_columns * from_step, to + whole_columns * 4, whole_rows,
                        columns - whole_columns);
    if (whole_rows < rows)
        turn_tile_word4(move, from + whole_rows * 4, to + whole_rows * to_step, rows - whole_rows,
                        columns);
}

typedef void (*tile_fn)(const struct move *move, const char *from, char *to, int64_t rows,
                        int64_t columns);

static inline __attribute__((always_inline)) void turn(const struct move *move, const char *from,
                                                       char *to, int64_t rows, int64_t columns,
                                                       tile_fn tile)
{
    size_t r = move->rank - 2;
    int64_t size = (int64_t)move->run_bytes;

    for (int64_t column = 0; column < columns; column += TILE)
        for (int64_t row = 0; row < rows; row += TILE)
            tile(move, from + row * size + column * move->from[r + 1],
                 to + row * move->to[r] + column * size, least(TILE, rows - row),
                 least(TILE, columns - column));
}

#define TURN(name, tile)                                                                           \
    static void turn_##name(const struct move *move, const char *from, char *to, int64_t rows,     \
                            int64_t columns)                                                       \
    {                                                                                              \
        turn(move, from, to, rows, columns, tile);                                                 \
    }

TURN(word1, turn_tile_word1)
TURN(word2, turn_tile_word2)
TURN(word4, turn_tile_fast4)
TURN(word8, turn_tile_word8)
TURN(word16, turn_tile_word16)

/* ---- planning ---- */

static void drop_axis(struct move *move, size_t axis)
{
    move->rank--;
    for (size_t i = axis; i < move->rank; i++) {
        move->dims[i] = move->dims[i + 1];
        move->from[i] = move->from[i + 1];
        move->to[i] = move->to[i + 1];
    }
}

static void swap_axes(struct move *move, size_t a, size_t b)
{
    int64_t dim = move->dims[a], from = move->from[a], to = move->to[a];

    move->dims[a] = move->dims[b];
    move->from[a] = move->from[b];
    move->to[a] = move->to[b];
    move->dims[b] = dim;
    move->from[b] = from;
    move->to[b] = to;
}

/* The box without axes of one, in bytes, outermost axis of the destination first. */
static void load(struct move *move, const struct move_box *box)
{
    int64_t size = (int64_t)box->bytes;

    *move = (struct move){.run_bytes = box->bytes, .total_bytes = box->bytes};
    for (size_t i = 0; i < box->rank; i++) {
        move->total_bytes *= (uint64_t)box->dims[i];
        if (box->dims[i] == 1)
            continue;
        move->dims[move->rank] = box->dims[i];
        move->from[move->rank] = box->from[i] * size;
        move->to[move->rank++] = box->to[i] * size;
    }
    for (size_t i = 1; i < move->rank; i++) /* insertion sort: stable and short */
        for (size_t k = i; k > 0 && move->to[k - 1] < move->to[k]; k--)
            swap_axes(move, k - 1, k);
}

static void merge_axes(struct move *move)
{
    size_t last;

    for (size_t i = move->rank; i-- > 1;)
        if (move->from[i - 1] == move->from[i] * move->dims[i] &&
            move->to[i - 1] == move->to[i] * move->dims[i]) {
            move->from[i - 1] = move->from[i];
            move->to[i - 1] = move->to[i];
            move->dims[i - 1] *= move->dims[i];
            drop_axis(move, i);
        }
    if (move->rank == 0)
        return;
    last = move->rank - 1;
    if (move->from[last] == (int64_t)move->run_bytes &&
        move->to[last] == (int64_t)move->run_bytes) {
        move->run_bytes *= (size_t)move->dims[last];
        move->rank = last;
    }
}

/* Puts the axis that is dense in the source beside the innermost one, when that makes a plane that
 * can be turned.  The order of the axes outside does not matter. */
static bool find_turn(struct move *move)
{
    size_t last = move->rank - 1;

    if (move->to[last] != (int64_t)move->run_bytes || move->from[last] == 0)
        return false;
    for (size_t i = last; i-- > 0;)
        if (move->from[i] == (int64_t)move->run_bytes) {
            for (size_t k = i; k + 1 < last; k++)
                swap_axes(move, k, k + 1);
            return true;
        }
    return false;
}

static void pick_plane(struct move *move)
{
    bool turns = find_turn(move);

    switch (move->run_bytes) {
    case 1:
        move->plane = turns ? turn_word1 : copy_word1;
        break;
    case 2:
        move->plane = turns ? turn_word2 : copy_word2;
        break;
    case 4:
        move->plane = turns ? turn_word4 : copy_word4;
        break;
    case 8:
        move->plane = turns ? turn_word8 : copy_word8;
        break;
    case 16:
        move->plane = turns ? turn_word16 : copy_word16;
        break;
    default:
        move->plane = copy_runs;
    }
}

/* A long run is cut into columns, so that every move has something to share out. */
static void cut_run(struct move *move)
{
    enum { PIECE_BYTES = 32768 };
    size_t piece = PIECE_BYTES;

    if (move->rank > 0 || move->run_bytes < 2 * piece || move->run_bytes % 64 != 0)
        return;
    while (move->run_bytes % piece != 0)
        piece /= 2;
    move->rank = 1;
    move->dims[0] = (int64_t)(move->run_bytes / piece);
    move->from[0] = move->to[0] = (int64_t)piece;
    move->run_bytes = piece;
}

static int64_t round_up_tile(int64_t count)
{
    return (count + TILE - 1) / TILE * TILE;
}

/* Slabs of some ten kilobytes, whole tiles on either side. */
static void pick_slabs(struct move *move)
{
    enum { COLUMNS_BYTES = 16384, SLAB_BYTES = 32768 };
    int64_t run = (int64_t)move->run_bytes;
    int64_t columns = move->dims[move->rank - 1];

    move->slab_columns = round_up_tile(COLUMNS_BYTES / run);
    if (run >= COLUMNS_BYTES)
        move->slab_columns = 1;
    move->slab_rows = round_up_tile(SLAB_BYTES / (run * least(columns, move->slab_columns)) + 1);
}

void move_plan(struct move *move, const struct move_box *box)
{
    load(move, box);
    if (move->total_bytes == 0)
        return;
    merge_axes(move);
    cut_run(move);
    while (move->rank < 2) { /* axes of one before the rest */
        for (size_t i = move->rank; i > 0; i--)
            swap_axes(move, i, i - 1);
        move->dims[0] = 1;
        move->from[0] = move->to[0] = 0;
        move->rank++;
    }
    pick_plane(move);
    move->planes = 1;
    for (size_t i = 0; i + 2 < move->rank; i++)
        move->planes *= move->dims[i];
    pick_slabs(move);
}

/* ---- running ---- */

struct job {
    const struct move *move;
    const char *from;
    char *to;
};

static void run_slab(const struct job *job, int64_t plane, int64_t row, int64_t column)
{
    const struct move *move = job->move;
    size_t r = move->rank - 2;
    const char *from = job->from + row * move->from[r] + column * move->from[r + 1];
    char *to = job->to + row * move->to[r] + column * move->to[r + 1];

    for (size_t axis = r; axis-- > 0; plane /= move->dims[axis]) {
        from += plane % move->dims[axis] * move->from[axis];
        to += plane % move->dims[axis] * move->to[axis];
    }
    move->plane(move, from, to, least(move->slab_rows, move->dims[r] - row),
                least(move->slab_columns, move->dims[r + 1] - column));
}

/* Shares are slabs, counted through all planes. */
static void run_share(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const struct move *move = job->move;
    size_t r = move->rank - 2;
    int64_t across = (move->dims[r + 1] + move->slab_columns - 1) / move->slab_columns;
    int64_t down = (move->dims[r] + move->slab_rows - 1) / move->slab_rows;
    size_t first, last;

    team_share((size_t)(move->planes * down * across), member, members, &first, &last);
    for (int64_t i = (int64_t)first; i < (int64_t)last; i++)
        run_slab(job, i / across / down, i / across % down * move->slab_rows,
                 i % across * move->slab_columns);
}

/* Bytes a nanosecond, by one member. */
static double speed(const struct move *move)
{
    if (move->plane == copy_runs)
        return 16;
    return move->run_bytes < 4 ? 1.5 : 8;
}

void move_run(const struct move *move, const void *from, void *to, unsigned threads)
{
    struct job job = {move, from, to};

    if (move->total_bytes > 0)
        team_run(team_size(threads, (double)move->total_bytes / speed(move)), run_share, &job);
}

/* ---- geometry ---- */

void geometry_of(const struct operand *operand, const struct device *device, struct geometry *out)
{
    const struct shape *shape = &operand->shape;
    int64_t block = device->channel_block;
    int64_t stride = 1;
    bool nhwc = operand->layout == LAYOUT_NHWC, blocked = operand->layout == LAYOUT_BLOCKED;

    *out = (struct geometry){.rank = shape->rank};
    for (size_t i = 0; i < shape->rank; i++)
        out->dims[i] = shape->dims[i];
    if (blocked) {
        out->dims[1] = (shape->dims[1] + block - 1) / block;
        out->dims[out->rank] = block;
        out->strides[out->rank++] = 1;
        stride = block;
    } else if (nhwc) {
        out->strides[1] = 1;
        stride = out->dims[1];
    }
    for (size_t i = shape->rank; i-- > 0;) {
        if (nhwc && i == 1)
            continue;
        out->strides[i] = stride;
        stride *= out->dims[i];
    }
    if (operand->outer_stride != 0 && shape->rank > 0)
        out->strides[0] = operand->outer_stride;
}

const char *refuse_unknown_values(const struct kernel_call *call, uint32_t inputs)
{
    for (size_t i = 0; i < call->inputs && i < 32; i++)
        if ((inputs >> i & 1) != 0 && call->in[i] != NULL && call->in[i]->constant == NULL &&
            shape_count(&call->in[i]->shape) > 0)
            return "an input that decides the shape is not known";
    return NULL;
}
