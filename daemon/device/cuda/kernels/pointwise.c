/* The element-wise operators as pointwise programs. */
#include "device/cuda/kernels/pointwise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels/pointwise_plan.h"
#include "device/cuda/kernels/rows.h"
#include "ops/chain.h"
#include "ops/elementwise.h"
#include "ops/normalize.h"

/* ---- what an operator is ---- */

enum { NO_STEP = 255 };

/* One row an operator: its step on real numbers and on integers. */
static const struct row {
    const struct op_def *op;
    uint8_t real;
    uint8_t whole;
} rows[] = {
#define ROW(operator, real, whole) {&op_##operator, real, whole},
#include "device/cuda/kernels/pointwise_rows.def"
#undef ROW
};

static const struct row *find_row(const struct op_def *op)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].op == op)
            return &rows[i];
    return NULL;
}

/* Pow may have a base and an exponent of two types. */
static enum pointwise_type computed_in(const struct kernel_call *call)
{
    enum dtype dtype = call->in[0]->dtype;
    const struct operand *second = call_input(call, 1);

    if (call->op != &op_pow || second->dtype == dtype)
        return pointwise_type_of(dtype);
    if (dtype_is_float(dtype) || dtype_is_float(second->dtype))
        return PW_DOUBLE;
    return PW_SIGNED;
}

static uint8_t step_of(const struct kernel_call *call, enum pointwise_type type)
{
    const struct row *row = find_row(call->op);

    if (row == NULL)
        return NO_STEP;
    if (call->op == &op_mod && ((const struct mod_attrs *)call->attrs)->fmod != 0)
        return pointwise_is_whole(type) ? (uint8_t)PW_WHOLE_fmod : (uint8_t)PW_fmod;
    if (call->op == &op_bit_shift &&
        ((const struct bit_shift_attrs *)call->attrs)->direction == SHIFT_RIGHT)
        return PW_WHOLE_shift_right;
    if (call->op == &op_gelu && ((const struct gelu_attrs *)call->attrs)->approximate == GELU_TANH)
        return PW_gelu_tanh;
    return pointwise_is_whole(type) ? row->whole : row->real;
}

/* The operator's attributes as the step's numbers. */
static void read_numbers(const struct kernel_call *call, double *a, double *b)
{
    const struct alpha_attrs *alpha = call->attrs;
    const struct hard_sigmoid_attrs *hard = call->attrs;
    const struct selu_attrs *selu = call->attrs;
    const struct shrink_attrs *shrink = call->attrs;
    const struct is_inf_attrs *inf = call->attrs;
    const struct op_def *op = call->op;

    if (op == &op_leaky_relu || op == &op_elu || op == &op_celu || op == &op_thresholded_relu ||
        op == &op_swish || op == &op_quick_gelu) {
        *a = (double)alpha->alpha;
    } else if (op == &op_hard_sigmoid) {
        *a = (double)hard->alpha;
        *b = (double)hard->beta;
    } else if (op == &op_hard_swish) {
        *a = 1.0 / 6;
        *b = 0.5;
    } else if (op == &op_selu) {
        *a = (double)selu->alpha;
        *b = (double)selu->gamma;
    } else if (op == &op_shrink) {
        *a = (double)shrink->bias;
        *b = (double)shrink->lambd;
    } else if (op == &op_is_inf) {
        *a = inf->detect_positive != 0;
        *b = inf->detect_negative != 0;
    } else if (op == &op_bit_shift) {
        *a = (double)(dtype_bytes(call->in[0]->dtype) * 8);
    } else if (op == &op_pow) {
        *a = call->in[1]->dtype == DTYPE_UINT64;
    }
}

/* ---- unary and binary operators, and those of any number of operands ---- */

/* Operators of many operands take several programs: the first POINTWISE_INPUTS, then the result so
 * far with the next ones. */
struct pointwise_state {
    size_t programs;
    size_t first[8]; /* of each program: its first input; the result so far comes before it */
    struct pointwise program[];
};

static size_t count_programs(size_t inputs)
{
    return inputs <= POINTWISE_INPUTS
               ? 1
               : 1 + (inputs - POINTWISE_INPUTS + POINTWISE_INPUTS - 2) / (POINTWISE_INPUTS - 1);
}

static const char *refuses(const struct kernel_call *call)
{
    enum pointwise_type type = computed_in(call);

    if (refuse_strings(call) != NULL)
        return refuse_strings(call);
    if (step_of(call, type) == NO_STEP)
        return "no step for this type";
    if (count_programs(call->inputs) > 8)
        return "too many operands";
    if (call->op != &op_pow)
        for (size_t i = 1; i < call->inputs; i++)
            if (call->in[i] == NULL || call->in[i]->dtype != call->in[0]->dtype)
                return "operands of different types";
    return NULL;
}

/* The steps of one program over `count` operands; `last` says that nothing comes behind it. */
static void write_steps(struct pointwise *program, const struct kernel_call *call, size_t count,
                        bool last)
{
    uint8_t step = step_of(call, (enum pointwise_type)program->type);
    uint8_t load = pointwise_is_whole((enum pointwise_type)program->type) ? (uint8_t)PW_WHOLE_load
                                                                          : (uint8_t)PW_load;
    double a = 0, b = 0;

    read_numbers(call, &a, &b);
    pointwise_step(program, load, 0, 0, 0);
    if (call->op->inputs == 1)
        pointwise_step(program, step, PW_FROM_NOTHING, a, b);
    for (size_t i = 1; i < count; i++)
        pointwise_step(program, step, (uint8_t)i, a, b);
    if (call->op == &op_mean && last)
        pointwise_step(program, PW_divide_by_number, PW_FROM_NOTHING, (double)call->inputs, 0);
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    size_t programs = count_programs(call->inputs), next = 0;
    struct pointwise_state *state =
        prepare_state(prepare, sizeof(*state) + programs * sizeof(struct pointwise), err);

    if (state == NULL)
        return STATUS_NO_MEMORY;
    state->programs = programs;
    for (size_t i = 0; i < programs; i++) {
        const struct operand *in[POINTWISE_INPUTS];
        size_t count = 0;

        if (i > 0)
            in[count++] = call->out[0];
        state->first[i] = next;
        while (count < POINTWISE_INPUTS && next < call->inputs)
            in[count++] = call->in[next++];
        state->program[i].type = computed_in(call);
        (void)pointwise_operands(&state->program[i], call->out[0], count, in);
        write_steps(&state->program[i], call, count, next == call->inputs);
    }
    return STATUS_OK;
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct pointwise_state *state = arg;

    (void)call;
    for (size_t i = 0; i < state->programs; i++) {
        const struct pointwise *program = &state->program[i];
        const void *in[POINTWISE_INPUTS];
        size_t own = i > 0 ? 1 : 0;

        in[0] = run->out[0];
        for (size_t k = own; k < program->inputs; k++)
            in[k] = run->in[state->first[i] + k - own];
        TRY(pointwise_run(program, NULL, run, in, run->out[0]));
    }
    return STATUS_OK;
}

/* Operators of many operands overwrite none: the output is rewritten while later ones are read. */
enum { APART = 0, BOTH = KERNEL_IN_PLACE | KERNEL_IN_PLACE_1, FIRST = KERNEL_IN_PLACE };

#define POINTWISE(operator, in_place)                                                              \
    const struct kernel kernel_##operator##_pointwise = {                                          \
        .name = "cuda:pointwise",                                                                  \
        .flags = (in_place) | KERNEL_STRIDED,                                                      \
        .layouts = ANY_LAYOUT,                                                                     \
        .refuses = refuses,                                                                        \
        .prepare = prepare,                                                                        \
        .enqueue = enqueue,                                                                        \
        .release = free,                                                                           \
    };
#include "device/cuda/kernels/pointwise_kernels.def"
#undef POINTWISE

/* ---- operators of one program ---- */

struct single {
    struct pointwise program;
    struct pointwise_runner runner; /* of programs of several steps */
};

static enum status prepare_single(struct kernel_prepare *prepare, size_t count,
                                  const struct operand *const *in, struct pointwise **out_program,
                                  struct error *err)
{
    struct single *single = prepare_state(prepare, sizeof(*single), err);
    struct pointwise *program;

    if (single == NULL)
        return STATUS_NO_MEMORY;
    program = &single->program;
    program->type = pointwise_type_of(in[0]->dtype);
    (void)pointwise_operands(program, prepare->call.out[0], count, in);
    pointwise_step(program,
                   pointwise_is_whole((enum pointwise_type)program->type) ? (uint8_t)PW_WHOLE_load
                                                                          : (uint8_t)PW_load,
                   0, 0, 0);
    *out_program = program;
    return STATUS_OK;
}

/* When all of its steps are there. */
static enum status fuse_single(struct kernel_prepare *prepare)
{
    struct single *single = prepare->state;

    pointwise_runner_init(&single->runner, prepare->call.device, &single->program);
    return STATUS_OK;
}

static enum status run_single(const struct single *single, const struct kernel_run *run,
                              const void *const *in)
{
    return pointwise_run(&single->program, &single->runner, run, in, run->out[0]);
}

static enum status enqueue_single(const void *state, const struct kernel_call *call,
                                  const struct kernel_run *run)
{
    (void)call;
    return run_single(state, run, run->in);
}

static void release_single(void *state)
{
    struct single *single = state;

    pointwise_runner_deinit(&single->runner);
    free(single);
}

static void describe_single(const void *state, char *text, size_t room)
{
    const struct single *single = state;

    pointwise_runner_describe(&single->runner, text, room);
}

/* ---- casts: a program without a step between ---- */

static enum status prepare_cast(struct kernel_prepare *prepare, struct error *err)
{
    struct pointwise *program;

    return prepare_single(prepare, 1, prepare->call.in, &program, err);
}

#define CAST(operator)                                                                             \
    const struct kernel kernel_##operator##_pointwise = {                                          \
        .name = "cuda:pointwise",                                                                  \
        .flags = KERNEL_STRIDED,                                                                   \
        .layouts = ANY_LAYOUT,                                                                     \
        .refuses = refuse_strings,                                                                 \
        .prepare = prepare_cast,                                                                   \
        .enqueue = enqueue_single,                                                                 \
        .release = release_single,                                                                 \
    };
CAST(cast)
CAST(cast_like)

/* ---- Clip: its bounds are inputs, read when it runs ---- */

static enum status prepare_clip(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct operand *low = call_input(call, 1), *high = call_input(call, 2);
    const struct operand *in[3] = {call->in[0]};
    size_t count = 1;
    struct pointwise *program;
    bool whole;

    if (low != NULL)
        in[count++] = low;
    if (high != NULL)
        in[count++] = high;
    TRY(prepare_single(prepare, count, in, &program, err));
    whole = pointwise_is_whole((enum pointwise_type)program->type);
    if (low != NULL)
        pointwise_step(program, whole ? (uint8_t)PW_WHOLE_floor_at : (uint8_t)PW_floor_at, 1, 0, 0);
    if (high != NULL)
        pointwise_step(program, whole ? (uint8_t)PW_WHOLE_cap_at : (uint8_t)PW_cap_at,
                       (uint8_t)(count - 1), 0, 0);
    return STATUS_OK;
}

static enum status enqueue_clip(const void *state, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    const void *in[3] = {run->in[0]};
    size_t count = 1;

    for (size_t i = 1; i < 3; i++)
        if (call_input(call, i) != NULL)
            in[count++] = run->in[i];
    return run_single(state, run, in);
}

const struct kernel kernel_clip_pointwise = {
    .name = "cuda:pointwise",
    .flags = KERNEL_IN_PLACE | KERNEL_STRIDED,
    .layouts = ANY_LAYOUT,
    .prepare = prepare_clip,
    .enqueue = enqueue_clip,
    .release = release_single,
};

/* ---- BiasGelu and FastGelu ---- */

static enum status prepare_bias_gelu(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct operand *in[2] = {call->in[0], call_input(call, 1)};
    struct pointwise *program;

    TRY(prepare_single(prepare, in[1] != NULL ? 2 : 1, in, &program, err));
    if (in[1] != NULL)
        pointwise_step(program, PW_add, 1, 0, 0);
    pointwise_step(program, call->op == &op_fast_gelu ? (uint8_t)PW_gelu_tanh : (uint8_t)PW_gelu,
                   PW_FROM_NOTHING, 0, 0);
    return fuse_single(prepare);
}

#define BIAS_GELU(operator)                                                                        \
    const struct kernel kernel_##operator##_pointwise = {                                          \
        .name = "cuda:pointwise",                                                                  \
        .flags = KERNEL_IN_PLACE,                                                                  \
        .prepare = prepare_bias_gelu,                                                              \
        .enqueue = enqueue_single,                                                                 \
        .release = release_single,                                                                 \
        .describe = describe_single,                                                               \
    };
BIAS_GELU(bias_gelu)
BIAS_GELU(fast_gelu)

/* ---- BatchNormalization: (x - mean) * (scale / sqrt(variance + epsilon)) + bias ---- */

/* Parameters go along the channels: [C] beside [N, C, …]. */
static void set_channel_strides(struct axes *axes, const struct operand *in)
{
    int64_t own[SHAPE_MAX_RANK];

    operand_strides(in, own);
    for (size_t i = 0; i < in->shape.rank; i++) {
        int64_t channel = i == 1 ? 1 : 0;
        const int64_t strides[] = {own[i], own[i], channel, channel, channel, channel};

        axes_add(axes, in->shape.dims[i], strides);
    }
}

static const char *refuse_batch_norm(const struct kernel_call *call)
{
    bool doubles = call->in[0]->dtype == DTYPE_DOUBLE;

    for (size_t i = 1; i < 5; i++)
        if ((call->in[i]->dtype == DTYPE_DOUBLE) != doubles)
            return "doubles and other types together";
    return NULL;
}

static enum status prepare_batch_norm(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct batch_norm_attrs *attrs = call->attrs;
    struct single *single = prepare_state(prepare, sizeof(*single), err);
    struct axes axes = {.operands = 6};
    struct pointwise *program;

    if (single == NULL)
        return STATUS_NO_MEMORY;
    program = &single->program;
    program->type = pointwise_type_of(call->in[0]->dtype);
    set_channel_strides(&axes, call->in[0]);
    (void)pointwise_axes(program, &axes);
    program->out.dtype = call->out[0]->dtype;
    for (size_t i = 0; i < 5; i++)
        program->in[i].dtype = call->in[i]->dtype;
    pointwise_step(program, PW_load, 4, 0, 0);
    pointwise_step(program, PW_add_number, PW_FROM_NOTHING, (double)attrs->epsilon, 0);
    pointwise_step(program, PW_sqrt, PW_FROM_NOTHING, 0, 0);
    pointwise_step(program, PW_reciprocal, PW_FROM_NOTHING, 0, 0);
    pointwise_step(program, PW_mul, 1, 0, 0);
    program->step[program->steps - 1].saves = 1;
    pointwise_step(program, PW_load, 0, 0, 0);
    pointwise_step(program, PW_sub, 3, 0, 0);
    pointwise_step(program, PW_mul, PW_FROM_SAVED, 0, 0);
    pointwise_step(program, PW_add, 2, 0, 0);
    return fuse_single(prepare);
}

const struct kernel kernel_batch_normalization_pointwise = {
    .name = "cuda:pointwise",
    .flags = KERNEL_IN_PLACE,
    .layouts = ANY_LAYOUT,
    .refuses = refuse_batch_norm,
    .prepare = prepare_batch_norm,
    .enqueue = enqueue_single,
    .release = release_single,
    .describe = describe_single,
};

/* ---- Chain: a program of several operators ---- */

/* A link as the call of its own operator, for its step and numbers. */
static struct kernel_call link_call(const struct kernel_call *call, const struct chain_link *link,
                                    const struct operand *in[2])
{
    in[0] = in[1] = call->in[0]; /* all are of one type */
    return (struct kernel_call){
        .op = link->op, .attrs = link->attrs, .inputs = 2, .in = in, .device = call->device};
}

static void add_link(struct pointwise *program, const struct kernel_call *call,
                     const struct chain_link *link)
{
    const struct operand *in[2];
    const struct kernel_call own = link_call(call, link, in);
    uint8_t step = step_of(&own, (enum pointwise_type)program->type);
    double a = 0, b = 0;

    read_numbers(&own, &a, &b);
    if (link->operand == CHAIN_ALONE) {
        pointwise_step(program, step, PW_FROM_NOTHING, a, b);
    } else if (!link->turned) {
        pointwise_step(program, step, link->operand, a, b);
    } else {
        program->step[program->steps - 1].saves = 1;
        pointwise_step(program, PW_load, link->operand, 0, 0);
        pointwise_step(program, step, PW_FROM_SAVED, a, b);
    }
}

static const char *refuse_chain(const struct kernel_call *call)
{
    const struct chain_attrs *attrs = call->attrs;
    size_t steps = 1;

    if (call->inputs > POINTWISE_INPUTS)
        return "too many operands";
    for (size_t i = 0; i < attrs->count; i++)
        steps += attrs->links[i].turned ? 2 : 1;
    return steps > POINTWISE_STEPS ? "too many links" : NULL;
}

static enum status prepare_chain(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct chain_attrs *attrs = call->attrs;
    struct pointwise *program;

    TRY(prepare_single(prepare, call->inputs, call->in, &program, err));
    for (size_t i = 0; i < attrs->count; i++)
        add_link(program, call, &attrs->links[i]);
    return fuse_single(prepare);
}

const struct kernel kernel_chain_pointwise = {
    .name = "cuda:pointwise",
    .flags = KERNEL_STRIDED | KERNEL_IN_PLACE | KERNEL_IN_PLACE_1 | KERNEL_IN_PLACE_LAST,
    .layouts = ANY_LAYOUT,
    .refuses = refuse_chain,
    .prepare = prepare_chain,
    .enqueue = enqueue_single,
    .release = release_single,
    .describe = describe_single,
};
