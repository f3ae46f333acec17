/* Operators of two or more operands with broadcasting: one tile function for each (operator, type).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/broadcast.h"
#include "device/cpu/convert.h"
#include "device/cpu/cpu.h"
#include "device/cpu/flat.h"
#include "device/cpu/loops.h"
#include "ops/elementwise.h"

/* ---- tiles of the other types ---- */

#define TILE(name, type, out_type, expression)                                                     \
    static void name##_##type(void *arg, const struct tile *tile, const void *const *in,           \
                              void *out)                                                           \
    {                                                                                              \
        const type *a = in[0], *b = in[1];                                                         \
        out_type *c = out;                                                                         \
        ptrdiff_t sa = tile->column_strides[0], sb = tile->column_strides[1];                      \
                                                                                                   \
        (void)arg;                                                                                 \
        for (size_t r = 0; r < tile->rows; r++) {                                                  \
            for (size_t i = 0; i < tile->columns; i++) {                                           \
                type x = a[(ptrdiff_t)i * sa], y = b[(ptrdiff_t)i * sb];                           \
                                                                                                   \
                c[i] = (out_type)(expression);                                                     \
            }                                                                                      \
            a += tile->row_strides[0];                                                             \
            b += tile->row_strides[1];                                                             \
            c += tile->out_row_stride;                                                             \
        }                                                                                          \
    }

#define LOOP(name, ns, on_vectors, on_doubles) TILE(name, double, double, on_doubles)
#include "device/cpu/elements/binary_loops.def"
#undef LOOP

/* Integers wrap: sums are made on an unsigned type that is at least as wide.  A division by zero,
 * which ONNX leaves open, gives zero; the smallest integer by -1 gives itself. */
#define SIGNED_QUOTIENT(type, wide) (y == 0 ? 0 : y == -1 ? (type)((wide)0 - (wide)x) : x / y)
#define SIGNED_REST(type)           (y == 0 || y == -1 ? 0 : x % y)

#define INT_TILES(type, wide)                                                                      \
    TILE(add, type, type, (wide)x + (wide)y)                                                       \
    TILE(sub, type, type, (wide)x - (wide)y)                                                       \
    TILE(mul, type, type, (wide)x *(wide)y)                                                        \
    TILE(max, type, type, x > y ? x : y)                                                           \
    TILE(min, type, type, x < y ? x : y)                                                           \
    TILE(bitwise_and, type, type, x &y)                                                            \
    TILE(bitwise_or, type, type, x | y)                                                            \
    TILE(bitwise_xor, type, type, x ^ y)
#define SIGNED_TILES(type, wide)                                                                   \
    INT_TILES(type, wide)                                                                          \
    TILE(div, type, type, SIGNED_QUOTIENT(type, wide))                                             \
    TILE(fmod, type, type, SIGNED_REST(type))                                                      \
    TILE(mod, type, type, floor_mod(x, y))                                                         \
    TILE(prelu, type, type, x < 0 ? (wide)x * (wide)y : (wide)x)
#define UNSIGNED_TILES(type, wide)                                                                 \
    INT_TILES(type, wide)                                                                          \
    TILE(div, type, type, y == 0 ? 0 : x / y)                                                      \
    TILE(fmod, type, type, y == 0 ? 0 : x % y)                                                     \
    TILE(mod, type, type, y == 0 ? 0 : x % y)                                                      \
    TILE(prelu, type, type, ((void)y, x))                                                          \
    TILE(shift_left, type, type, y < sizeof(x) * 8 ? (wide)x << y : 0)                             \
    TILE(shift_right, type, type, y < sizeof(x) * 8 ? x >> y : 0)

/* The rest with the divisor's sign, as Python has it. */
static int64_t floor_mod(int64_t x, int64_t y)
{
    int64_t rest = y == 0 || y == -1 ? 0 : x % y;

    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

SIGNED_TILES(int8_t, uint32_t)
SIGNED_TILES(int16_t, uint32_t)
SIGNED_TILES(int32_t, uint32_t)
SIGNED_TILES(int64_t, uint64_t)
UNSIGNED_TILES(uint8_t, uint32_t)
UNSIGNED_TILES(uint16_t, uint32_t)
UNSIGNED_TILES(uint32_t, uint32_t)
UNSIGNED_TILES(uint64_t, uint64_t)

#define COMPARE_TILES(type)                                                                        \
    TILE(equal, type, uint8_t, x == y)                                                             \
    TILE(less, type, uint8_t, x < y)                                                               \
    TILE(less_or_equal, type, uint8_t, x <= y)                                                     \
    TILE(greater, type, uint8_t, x > y)                                                            \
    TILE(greater_or_equal, type, uint8_t, x >= y)
COMPARE_TILES(float)
COMPARE_TILES(double)
COMPARE_TILES(int8_t)
COMPARE_TILES(int16_t)
COMPARE_TILES(int32_t)
COMPARE_TILES(int64_t)
COMPARE_TILES(uint8_t)
COMPARE_TILES(uint16_t)
COMPARE_TILES(uint32_t)
COMPARE_TILES(uint64_t)

typedef struct bytes text;
static bool text_is_equal(const struct bytes *a, const struct bytes *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}
TILE(equal, text, uint8_t, text_is_equal(&x, &y))

typedef uint8_t truth;
TILE(and, truth, truth, x != 0 && y != 0)
TILE(or, truth, truth, x != 0 || y != 0)
TILE(xor, truth, truth, (x != 0) != (y != 0))
TILE(equal, truth, truth, (x != 0) == (y != 0))

/* ---- which tile ---- */

#define SIGNED_ROWS(name)                                                                          \
    [DTYPE_INT8] = name##_int8_t, [DTYPE_INT16] = name##_int16_t, [DTYPE_INT32] = name##_int32_t,  \
    [DTYPE_INT64] = name##_int64_t
#define UNSIGNED_ROWS(name)                                                                        \
    [DTYPE_UINT8] = name##_uint8_t, [DTYPE_UINT16] = name##_uint16_t,                              \
    [DTYPE_UINT32] = name##_uint32_t, [DTYPE_UINT64] = name##_uint64_t
#define INT_ROWS(name) SIGNED_ROWS(name), UNSIGNED_ROWS(name)

typedef tile_fn tile_table[DTYPE_COUNT];
#define NUMBER_TABLE(name)                                                                         \
    static const tile_table tiles_##name = {INT_ROWS(name), [DTYPE_DOUBLE] = name##_double};
#define COMPARE_TABLE(name)                                                                        \
    static const tile_table tiles_##name = {                                                       \
        INT_ROWS(name), [DTYPE_FLOAT] = name##_float, [DTYPE_DOUBLE] = name##_double};
#define INT_TABLE(name) static const tile_table tiles_##name = {INT_ROWS(name)};
NUMBER_TABLE(add)
NUMBER_TABLE(sub)
NUMBER_TABLE(mul)
NUMBER_TABLE(div)
NUMBER_TABLE(max)
NUMBER_TABLE(min)
NUMBER_TABLE(fmod)
NUMBER_TABLE(prelu)
COMPARE_TABLE(less)
COMPARE_TABLE(less_or_equal)
COMPARE_TABLE(greater)
COMPARE_TABLE(greater_or_equal)
INT_TABLE(mod)
INT_TABLE(bitwise_and)
INT_TABLE(bitwise_or)
INT_TABLE(bitwise_xor)
static const tile_table tiles_pow = {[DTYPE_DOUBLE] = pow_double};
static const tile_table tiles_equal = {
    INT_ROWS(equal), [DTYPE_FLOAT] = equal_float, [DTYPE_DOUBLE] = equal_double,
    [DTYPE_BOOL] = equal_truth, [DTYPE_STRING] = equal_text};
static const tile_table tiles_shift_left = {UNSIGNED_ROWS(shift_left)};
static const tile_table tiles_shift_right = {UNSIGNED_ROWS(shift_right)};
static const tile_table tiles_and = {[DTYPE_BOOL] = and_truth};
static const tile_table tiles_or = {[DTYPE_BOOL] = or_truth};
static const tile_table tiles_xor = {[DTYPE_BOOL] = xor_truth};

enum { NO_LOOP = BINARY_LOOPS };

static const struct row {
    const struct op_def *op;
    int loop; /* enum binary_loop on floats, or NO_LOOP: the table's */
    const tile_table *tiles;
} rows[] = {
#define BINARY(operator, loop, tiles, in_place) {&op_##operator, loop, &tiles_##tiles},
#include "device/cpu/elements/binary.def"
#undef BINARY
};

static struct row find_row(const struct kernel_call *call)
{
    struct row row = {NULL, NO_LOOP, &tiles_mod};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].op == call->op)
            row = rows[i];
    if (call->op == &op_mod && ((const struct mod_attrs *)call->attrs)->fmod != 0)
        row = (struct row){call->op, BINARY_fmod, &tiles_fmod};
    if (call->op == &op_bit_shift &&
        ((const struct bit_shift_attrs *)call->attrs)->direction == SHIFT_RIGHT)
        row.tiles = &tiles_shift_right;
    return row;
}

/* ---- 16-bit floats: widened row by row ---- */

struct narrow_job {
    const struct loops *loops;
    enum dtype dtype;
    bool to_bool;
    tile_fn on_floats;
};

static void widen_operand(const struct narrow_job *job, const uint16_t *x, ptrdiff_t stride,
                          size_t from, size_t count, float *wide)
{
    if (stride != 0)
        widen(job->loops, job->dtype, x + from, wide, count);
    else
        widen(job->loops, job->dtype, x, wide, 1);
}

static void narrow_row(const struct narrow_job *job, const struct tile *tile, const uint16_t *a,
                       const uint16_t *b, void *c)
{
    float x[LOOPS_CHUNK], y[LOOPS_CHUNK];
    const void *wide[] = {x, y};
    struct tile one = *tile;

    one.rows = 1;
    for (size_t i = 0; i < tile->columns; i += LOOPS_CHUNK) {
        one.columns = tile->columns - i < LOOPS_CHUNK ? tile->columns - i : LOOPS_CHUNK;
        widen_operand(job, a, tile->column_strides[0], i, one.columns, x);
        widen_operand(job, b, tile->column_strides[1], i, one.columns, y);
        if (job->to_bool) {
            job->on_floats(NULL, &one, wide, (uint8_t *)c + i);
        } else {
            float z[LOOPS_CHUNK];

            job->on_floats(NULL, &one, wide, z);
            narrow(job->loops, job->dtype, z, (uint16_t *)c + i, one.columns);
        }
    }
}

static void narrow_tile(void *arg, const struct tile *tile, const void *const *in, void *out)
{
    const struct narrow_job *job = arg;
    const uint16_t *a = in[0], *b = in[1];
    size_t out_bytes = job->to_bool ? 1 : 2;

    for (size_t r = 0; r < tile->rows; r++) {
        narrow_row(job, tile, a, b,
                   (char *)out + (ptrdiff_t)r * tile->out_row_stride * (ptrdiff_t)out_bytes);
        a += tile->row_strides[0];
        b += tile->row_strides[1];
    }
}

/* ---- the kernel ---- */

/* What one operand more does to the result so far. */
struct step {
    struct broadcast broadcast;
    const void *packed[2]; /* constants in the layout of the output, else NULL */
};

struct binary_state {
    tile_fn fn;
    struct narrow_job narrow;
    double ns;
    size_t bytes; /* an element in */
    size_t out_bytes;
    bool is_mean;
    size_t count;        /* steps */
    struct step steps[]; /* 0: in[0] with in[1]; k: the output with in[k + 1] */
};

static bool is_narrow(enum dtype dtype)
{
    return dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16;
}

static const char *refuses(const struct kernel_call *call)
{
    struct row row = find_row(call);
    enum dtype dtype = call->in[0]->dtype;

    if (row.op == NULL)
        return "no loop for this operator";
    if (row.loop == NO_LOOP || !dtype_is_float(dtype) || dtype == DTYPE_DOUBLE)
        if ((*row.tiles)[is_narrow(dtype) ? DTYPE_FLOAT : dtype] == NULL)
            return "no loop for this type";
    for (size_t i = 0; i < call->inputs; i++)
        if (call->in[i] == NULL || call->in[i]->dtype != dtype)
            return "operands of different types";
    return broadcast_refuses(call->out[0], call->inputs, call->in);
}

/* Which vpow() says exactly. */
static bool is_square(const struct operand *exponent)
{
    float value;

    if (exponent->constant == NULL || exponent->dtype != DTYPE_FLOAT ||
        shape_count(&exponent->shape) != 1)
        return false;
    memcpy(&value, exponent->constant, sizeof(value));
    return value == 2.0f;
}

static void choose_loop(struct binary_state *state, const struct kernel_call *call)
{
    static const double ns[BINARY_LOOPS] = {
#define LOOP(name, cost, on_vectors, on_doubles) [BINARY_##name] = cost,
#include "device/cpu/elements/binary_loops.def"
#undef LOOP
    };
    struct row row = find_row(call);
    enum dtype dtype = call->in[0]->dtype;
    const struct loops *loops = loops_for(call->device);
    bool on_floats = dtype == DTYPE_FLOAT || is_narrow(dtype);

    state->ns = row.loop != NO_LOOP ? ns[row.loop] : 1;
    if (row.loop == BINARY_pow && is_square(call->in[1]))
        state->ns = 0.2;
    if (on_floats)
        state->fn = row.loop != NO_LOOP ? loops->binary[row.loop] : (*row.tiles)[DTYPE_FLOAT];
    else
        state->fn = (*row.tiles)[dtype];
    if (is_narrow(dtype)) {
        state->narrow =
            (struct narrow_job){loops, dtype, call->out[0]->dtype == DTYPE_BOOL, state->fn};
        state->fn = narrow_tile;
    }
}

static enum status make_step(struct kernel_prepare *prepare, struct step *step, size_t index)
{
    const struct operand *out = prepare->call.out[0];
    const struct operand *const in[2] = {index == 0 ? prepare->call.in[0] : out,
                                         prepare->call.in[index + 1]};

    for (size_t i = 0; i < 2; i++) {
        size_t input = i == 0 ? 0 : index + 1;

        if (in[i] == out && index > 0)
            continue;
        if (broadcast_wants_pack(out, in[i]))
            TRY(broadcast_pack(prepare, out, in[i], &step->packed[i]));
        else if (input < 32)
            prepare->constants_used |= UINT32_C(1) << input;
    }
    broadcast_make(&step->broadcast, out, 2, in, prepare->call.device);
    return STATUS_OK;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    size_t steps = call->inputs > 1 ? call->inputs - 1 : 0;
    struct binary_state *state = calloc(1, sizeof(*state) + steps * sizeof(struct step));

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a kernel's state");
    choose_loop(state, call);
    state->bytes = dtype_bytes(call->in[0]->dtype);
    state->out_bytes = dtype_bytes(call->out[0]->dtype);
    state->is_mean = call->op == &op_mean;
    state->count = steps;
    if (steps == 0)
        prepare->constants_used = 1;
    for (size_t i = 0; i < steps; i++) {
        enum status status = make_step(prepare, &state->steps[i], i);

        if (status != STATUS_OK) {
            free(state);
            return error_set(err, status, "no memory for packed constants");
        }
    }
    prepare->state = state;
    return STATUS_OK;
}

static void run_step(const struct binary_state *state, size_t index, const struct kernel_run *run)
{
    const struct step *step = &state->steps[index];
    const size_t bytes[2] = {state->bytes, state->bytes};
    const void *in[2] = {index == 0 ? run->in[0] : run->out[0], run->in[index + 1]};

    for (size_t i = 0; i < 2; i++)
        if (step->packed[i] != NULL)
            in[i] = step->packed[i];
    broadcast_run(&step->broadcast, in, bytes, run->out[0], state->out_bytes, run->lane->threads,
                  state->ns, state->fn, (void *)(uintptr_t)&state->narrow);
}

/* Mean: the sum divided by the number of operands. */
static void divide_piece(void *arg, const void *in, void *out, size_t count)
{
    const struct kernel_call *call = arg;
    const struct loops *loops = loops_for(call->device);
    enum dtype dtype = call->out[0]->dtype;

    if (dtype == DTYPE_DOUBLE)
        for (size_t i = 0; i < count; i++)
            ((double *)out)[i] = ((const double *)in)[i] / (double)call->inputs;
    else
        loops_unary(loops, dtype, UNARY_divide, (float)call->inputs, 0, in, out, count);
}

static void copy_piece(void *arg, const void *in, void *out, size_t count)
{
    const struct binary_state *state = arg;

    memcpy(out, in, count * state->bytes);
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct binary_state *binary = state;
    const struct operand *out = call->out[0];

    if (binary->count == 0) {
        struct flat flat = flat_make(call->in[0], out, call->device);

        flat_run(&flat, run->in[0], binary->bytes, run->out[0], binary->bytes, run->lane->threads,
                 0.1, copy_piece, (void *)(uintptr_t)binary);
    }
    for (size_t i = 0; i < binary->count; i++)
        run_step(binary, i, run);
    if (binary->is_mean && binary->count > 0) {
        struct flat flat = flat_make(out, out, call->device);

        flat_run(&flat, run->out[0], binary->bytes, run->out[0], binary->bytes, run->lane->threads,
                 0.2, divide_piece, (void *)(uintptr_t)call);
    }
    operand_zero_padding(out, call->device, run->out[0]);
    return STATUS_OK;
}

/* Operators of many operands overwrite none: the output is rewritten while later ones are read. */
enum { NEITHER = 0, BOTH = KERNEL_IN_PLACE | KERNEL_IN_PLACE_1 };

#define BINARY(operator, loop, tiles, in_place)                                                    \
    const struct kernel kernel_##operator##_tiles = {                                              \
        .name = "cpu:tiles",                                                                       \
        .flags = (in_place) | KERNEL_STRIDED,                                                      \
        .layouts = FLAT_LAYOUTS,                                                                   \
        .refuses = refuses,                                                                        \
        .prepare = prepare,                                                                        \
        .enqueue = enqueue,                                                                        \
        .release = free,                                                                           \
    };
#include "device/cpu/elements/binary.def"
#undef BINARY
