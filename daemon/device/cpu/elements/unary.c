/* Unary operators: one loop for each (operator, type), chosen when the plan is made. */
#include "device/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/flat.h"
#include "device/cpu/loops.h"
#include "ops/elementwise.h"

static double clamp(double x, double low, double high)
{
    double floored = x < low ? low : x;

    return floored > high ? high : floored;
}

/* ---- doubles ---- */

typedef void (*double_fn)(const double *x, double *y, size_t count, double a, double b);

#define LOOP(name, ns, on_vectors, on_doubles)                                                     \
    static void double_##name(const double *in, double *y, size_t count, double a, double b)       \
    {                                                                                              \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        for (size_t i = 0; i < count; i++) {                                                       \
            double x = in[i];                                                                      \
                                                                                                   \
            y[i] = on_doubles;                                                                     \
        }                                                                                          \
    }
#include "device/cpu/elements/unary_loops.def"
#undef LOOP

static const double_fn double_loops[UNARY_LOOPS] = {
#define LOOP(name, ns, on_vectors, on_doubles) [UNARY_##name] = double_##name,
#include "device/cpu/elements/unary_loops.def"
#undef LOOP
};

static const double costs_ns[UNARY_LOOPS] = {
#define LOOP(name, ns, on_vectors, on_doubles) [UNARY_##name] = ns,
#include "device/cpu/elements/unary_loops.def"
#undef LOOP
};

/* ---- integers ---- */

typedef void (*int_fn)(const void *in, void *out, size_t count, double a, double b);

#define INT_LOOP(name, type, expression)                                                           \
    static void int_##name##_##type(const void *in, void *out, size_t count, double a, double b)   \
    {                                                                                              \
        const type *from = in;                                                                     \
        type *to = out;                                                                            \
                                                                                                   \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        for (size_t i = 0; i < count; i++) {                                                       \
            type x = from[i];                                                                      \
                                                                                                   \
            to[i] = (type)(expression);                                                            \
        }                                                                                          \
    }
/* Minus the smallest integer is itself: the subtraction is made on the unsigned type. */
#define SIGNED_LOOPS(type, wide)                                                                   \
    INT_LOOP(abs, type, x < 0 ? (wide)0 - (wide)x : (wide)x)                                       \
    INT_LOOP(neg, type, (wide)0 - (wide)x)                                                         \
    INT_LOOP(sign, type, (x > 0) - (x < 0))                                                        \
    INT_LOOP(relu, type, x > 0 ? x : 0)                                                            \
    INT_LOOP(bitwise_not, type, ~x)                                                                \
    INT_LOOP(shrink, type, (double)x<-b ? (double)x + a : (double)x> b ? (double)x - a : 0)
#define UNSIGNED_LOOPS(type)                                                                       \
    INT_LOOP(abs, type, x)                                                                         \
    INT_LOOP(sign, type, x > 0)                                                                    \
    INT_LOOP(bitwise_not, type, ~x)                                                                \
    INT_LOOP(shrink, type, (double)x<-b ? (double)x + a : (double)x> b ? (double)x - a : 0)

SIGNED_LOOPS(int8_t, uint32_t)
SIGNED_LOOPS(int16_t, uint32_t)
SIGNED_LOOPS(int32_t, uint32_t)
SIGNED_LOOPS(int64_t, uint64_t)
UNSIGNED_LOOPS(uint8_t)
UNSIGNED_LOOPS(uint16_t)
UNSIGNED_LOOPS(uint32_t)
UNSIGNED_LOOPS(uint64_t)

static void int_not_bool(const void *in, void *out, size_t count, double a, double b)
{
    const uint8_t *from = in;
    uint8_t *to = out;

    (void)a;
    (void)b;
    for (size_t i = 0; i < count; i++)
        to[i] = from[i] == 0;
}

#define SIGNED_ROWS(name)                                                                          \
    [DTYPE_INT8] = int_##name##_int8_t, [DTYPE_INT16] = int_##name##_int16_t,                      \
    [DTYPE_INT32] = int_##name##_int32_t, [DTYPE_INT64] = int_##name##_int64_t
#define UNSIGNED_ROWS(name)                                                                        \
    [DTYPE_UINT8] = int_##name##_uint8_t, [DTYPE_UINT16] = int_##name##_uint16_t,                  \
    [DTYPE_UINT32] = int_##name##_uint32_t, [DTYPE_UINT64] = int_##name##_uint64_t

typedef int_fn int_table[DTYPE_COUNT];
static const int_table ints_abs = {SIGNED_ROWS(abs), UNSIGNED_ROWS(abs)};
static const int_table ints_bitwise_not = {SIGNED_ROWS(bitwise_not), UNSIGNED_ROWS(bitwise_not)};
static const int_table ints_neg = {SIGNED_ROWS(neg)};
static const int_table ints_not = {[DTYPE_BOOL] = int_not_bool};
static const int_table ints_relu = {SIGNED_ROWS(relu)};
static const int_table ints_shrink = {SIGNED_ROWS(shrink), UNSIGNED_ROWS(shrink)};
static const int_table ints_sign = {SIGNED_ROWS(sign), UNSIGNED_ROWS(sign)};
static const int_table ints_none = {0};

/* ---- which loop ---- */

static const struct row {
    const struct op_def *op;
    enum unary_loop loop;
    const int_table *ints;
} rows[] = {
#define UNARY(operator, loop, ints) {&op_##operator, UNARY_##loop, &ints_##ints},
#include "device/cpu/elements/unary.def"
#undef UNARY
};

static const struct row *find_row(const struct op_def *op)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].op == op)
            return &rows[i];
    return NULL;
}

struct unary_state {
    const struct loops *loops;
    enum dtype dtype;
    enum unary_loop loop;
    double_fn on_doubles;
    int_fn on_ints;
    double a, b; /* parameters of the operator */
    double ns;
};

/* The operator's attributes as the loop's a and b; some attributes choose another loop. */
static enum unary_loop read_attrs(const struct kernel_call *call, enum unary_loop loop, double *a,
                                  double *b)
{
    const struct alpha_attrs *alpha = call->attrs;
    const struct hard_sigmoid_attrs *hard = call->attrs;
    const struct selu_attrs *selu = call->attrs;
    const struct shrink_attrs *shrink = call->attrs;
    const struct gelu_attrs *gelu = call->attrs;

    switch (loop) {
    case UNARY_leaky_relu:
    case UNARY_elu:
    case UNARY_celu:
    case UNARY_thresholded_relu:
        *a = (double)alpha->alpha;
        return loop;
    case UNARY_swish:
        *a = (double)alpha->alpha;
        return alpha->alpha == 1.0f ? UNARY_silu : loop;
    case UNARY_hard_sigmoid:
        *a = (double)hard->alpha;
        *b = (double)hard->beta;
        return loop;
    case UNARY_selu:
        *a = (double)selu->alpha;
        *b = (double)selu->gamma;
        return loop;
    case UNARY_shrink:
        *a = (double)shrink->bias;
        *b = (double)shrink->lambd;
        return loop;
    case UNARY_gelu:
        return call->op == &op_gelu && gelu->approximate == GELU_TANH ? UNARY_gelu_tanh : loop;
    default:
        return loop;
    }
}

static const char *refuses(const struct kernel_call *call)
{
    const struct row *row = find_row(call->op);
    enum dtype dtype = call->in[0]->dtype;

    if (!dtype_is_float(dtype) && (*row->ints)[dtype] == NULL)
        return "no loop for this type";
    return NULL;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct row *row = find_row(call->op);
    struct unary_state *state = calloc(1, sizeof(*state));
    enum unary_loop loop;

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a kernel's state");
    loop = read_attrs(call, row->loop, &state->a, &state->b);
    state->loops = loops_for(call->device);
    state->dtype = call->in[0]->dtype;
    state->loop = loop;
    state->on_doubles = double_loops[loop];
    state->on_ints = (*row->ints)[state->dtype];
    state->ns = costs_ns[loop] * (state->dtype == DTYPE_DOUBLE ? 8 : 1);
    prepare->constants_used = 1;
    prepare->state = state;
    return STATUS_OK;
}

static void run_piece(void *arg, const void *in, void *out, size_t count)
{
    const struct unary_state *state = arg;

    if (state->dtype == DTYPE_DOUBLE)
        state->on_doubles(in, out, count, state->a, state->b);
    else if (dtype_is_float(state->dtype))
        loops_unary(state->loops, state->dtype, state->loop, (float)state->a, (float)state->b, in,
                    out, count);
    else
        state->on_ints(in, out, count, state->a, state->b);
}

static void run_all(const struct unary_state *state, const struct kernel_call *call,
                    const struct kernel_run *run)
{
    const struct operand *in = call->in[0], *out = call->out[0];
    struct flat flat = flat_make(in, out, call->device);
    size_t bytes = dtype_bytes(state->dtype);

    flat_run(&flat, run->in[0], bytes, run->out[0], bytes, run->lane->threads, state->ns, run_piece,
             (void *)(uintptr_t)state);
    operand_zero_padding(out, call->device, run->out[0]);
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    run_all(state, call, run);
    return STATUS_OK;
}

#define UNARY(operator, loop, ints)                                                                \
    const struct kernel kernel_##operator##_vector = {                                             \
        .name = "cpu:vector",                                                                      \
        .flags = KERNEL_IN_PLACE | KERNEL_STRIDED,                                                 \
        .layouts = FLAT_LAYOUTS,                                                                   \
        .refuses = refuses,                                                                        \
        .prepare = prepare,                                                                        \
        .enqueue = enqueue,                                                                        \
        .release = free,                                                                           \
    };
#include "device/cpu/elements/unary.def"
#undef UNARY
