/* Layer, RMS, instance and group normalisation, MeanVarianceNormalization and
 * SkipLayerNormalization: lines of elements that are normalised together. */
#include "ops/normalize.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels/lines_plan.h"
#include "device/cuda/kernels/pointwise_plan.h"
#include "device/cuda/kernels/rows.h"
#include "ops/fused.h"

static const char *refuse_mixed(const struct kernel_call *call)
{
    bool doubles = call->in[0]->dtype == DTYPE_DOUBLE;

    for (size_t i = 1; i < call->inputs; i++)
        if (call->in[i] != NULL && (call->in[i]->dtype == DTYPE_DOUBLE) != doubles)
            return "doubles and other types together";
    return NULL;
}

/* Sets what `axes` (in, out, scale, bias) says. */
static void set_lines(struct normalize *normalize, const struct kernel_call *call,
                      const struct axes *axes, const bool *reduced)
{
    struct lines_strides strides = {0};

    lines_make(&normalize->lines, axes, reduced, &strides);
    normalize->lines.type = pointwise_type_of(call->in[0]->dtype);
    normalize->lines.in_dtype = call->in[0]->dtype;
    normalize->lines.out_dtype = call->out[0]->dtype;
    normalize->scale_kept = strides.kept[0];
    normalize->scale_reduced = strides.reduced[0];
    normalize->bias_kept = strides.kept[1];
    normalize->bias_reduced = strides.reduced[1];
}

static enum status launch(struct normalize *normalize, const void *in, void *out,
                          const struct kernel_run *run)
{
    normalize->lines.in = in;
    normalize->lines.out = out;
    return cuda_status(cuda_normalize(normalize, cuda_stream(run)));
}

/* ---- layer and RMS normalisation: scale and bias broadcast to the normalised dimensions ---- */

/* The stride of axis `axis` of the whole in an operand that is broadcast to it; 0: left out. */
static int64_t stride_in(const struct operand *operand, const struct shape *whole, size_t axis)
{
    size_t missing;

    if (operand == NULL || operand->shape.rank > whole->rank)
        return 0;
    missing = whole->rank - operand->shape.rank;
    if (axis < missing || operand->shape.dims[axis - missing] == 1)
        return 0;
    return shape_product(&operand->shape, axis - missing + 1, operand->shape.rank);
}

static void set_types_of_inputs(struct normalize *normalize, const struct kernel_call *call,
                                size_t scale, size_t bias)
{
    const struct operand *s = call_input(call, scale), *b = call_input(call, bias);

    normalize->scale_dtype = s != NULL ? s->dtype : DTYPE_NONE;
    normalize->bias_dtype = b != NULL ? b->dtype : DTYPE_NONE;
}

static enum status prepare_layer(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct layer_norm_attrs *attrs = call->attrs;
    const struct shape *shape = &call->in[0]->shape;
    struct normalize *normalize = prepare_state(prepare, sizeof(*normalize), err);
    size_t first = shape_axis(shape, attrs->axis);
    int64_t from[SHAPE_MAX_RANK], to[SHAPE_MAX_RANK];
    struct axes axes = {.operands = 4};
    bool reduced[SHAPE_MAX_RANK];

    if (normalize == NULL)
        return STATUS_NO_MEMORY;
    operand_strides(call->in[0], from);
    operand_strides(call->out[0], to);
    for (size_t i = 0; i < shape->rank; i++) {
        const int64_t strides[] = {from[i], to[i], stride_in(call_input(call, 1), shape, i),
                                   stride_in(call_input(call, 2), shape, i)};

        axes_add(&axes, shape->dims[i], strides);
        reduced[i] = i >= first;
    }
    set_lines(normalize, call, &axes, reduced);
    set_types_of_inputs(normalize, call, 1, 2);
    normalize->epsilon = (double)attrs->epsilon;
    normalize->no_mean = call->op == &op_rms_normalization;
    normalize->facts_dtype = DTYPE_FLOAT;
    for (size_t i = 1; i < call->outputs; i++)
        if (call->out[i] != NULL)
            normalize->facts_dtype = call->out[i]->dtype;
    return STATUS_OK;
}

static enum status run_norm(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    struct normalize normalize = *(const struct normalize *)state;

    normalize.scale = run_input(call, run, 1);
    normalize.bias = run_input(call, run, 2);
    normalize.mean = call_output(call, 1) != NULL ? run->out[1] : NULL;
    normalize.deviation = call_output(call, 2) != NULL ? run->out[2] : NULL;
    return launch(&normalize, run->in[0], run->out[0], run);
}

/* ---- instance and group normalisation: scale and bias by channel ---- */

static enum status prepare_channels(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct shape *shape = &call->in[0]->shape;
    struct normalize *normalize = prepare_state(prepare, sizeof(*normalize), err);
    bool reduced[SHAPE_MAX_RANK + 1] = {false, false, true};
    int64_t from[SHAPE_MAX_RANK], to[SHAPE_MAX_RANK], groups = shape->dims[1];
    struct axes axes = {.operands = 4};
    int64_t members;

    if (normalize == NULL)
        return STATUS_NO_MEMORY;
    normalize->epsilon = (double)((const struct epsilon_attrs *)call->attrs)->epsilon;
    if (call->op == &op_group_normalization)
        groups = ((const struct group_norm_attrs *)call->attrs)->num_groups;
    members = groups > 0 ? shape->dims[1] / groups : 0;
    operand_strides(call->in[0], from);
    operand_strides(call->out[0], to);
    axes_add(&axes, shape->dims[0], (const int64_t[]){from[0], to[0], 0, 0});
    axes_add(&axes, groups,
             (const int64_t[]){from[1] * members, to[1] * members, members, members});
    axes_add(&axes, members, (const int64_t[]){from[1], to[1], 1, 1});
    for (size_t i = 2; i < shape->rank; i++) {
        axes_add(&axes, shape->dims[i], (const int64_t[]){from[i], to[i], 0, 0});
        reduced[i + 1] = true;
    }
    set_lines(normalize, call, &axes, reduced);
    set_types_of_inputs(normalize, call, 1, 2);
    return STATUS_OK;
}

#define NORM(operator, prepare_fn, accepted)                                                       \
    const struct kernel kernel_##operator##_lines = {                                              \
        .name = "cuda:lines",                                                                      \
        .flags = KERNEL_IN_PLACE,                                                                  \
        .layouts = (accepted),                                                                     \
        .refuses = refuse_mixed,                                                                   \
        .prepare = (prepare_fn),                                                                   \
        .enqueue = run_norm,                                                                       \
        .release = free,                                                                           \
    };
NORM(layer_normalization, prepare_layer, 0)
NORM(rms_normalization, prepare_layer, 0)
NORM(instance_normalization, prepare_channels, ANY_LAYOUT)
NORM(group_normalization, prepare_channels, ANY_LAYOUT)

/* ---- MeanVarianceNormalization: usually over the batch, too ---- */

static enum status prepare_mvn(struct kernel_prepare *prepare, struct error *err)
{
    static const int64_t usual[] = {0, 2, 3};
    const struct kernel_call *call = &prepare->call;
    const struct mvn_attrs *attrs = call->attrs;
    const int64_t *along = attrs->axes.values != NULL ? attrs->axes.values : usual;
    size_t count = attrs->axes.values != NULL ? attrs->axes.count : 3;
    struct normalize *normalize = prepare_state(prepare, sizeof(*normalize), err);
    bool reduced[SHAPE_MAX_RANK] = {false};
    struct axes axes;

    if (normalize == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        reduced[shape_axis(&call->in[0]->shape, along[i])] = true;
    lines_axes_of_map(&axes, call->in[0], call->out[0]);
    set_lines(normalize, call, &axes, reduced);
    normalize->epsilon = 1e-9;
    normalize->epsilon_outside = 1;
    return STATUS_OK;
}

const struct kernel kernel_mean_variance_normalization_lines = {
    .name = "cuda:lines",
    .flags = KERNEL_IN_PLACE | KERNEL_BATCH_INEXACT,
    .layouts = ANY_LAYOUT,
    .prepare = prepare_mvn,
    .enqueue = run_norm,
    .release = free,
};

/* ---- SkipLayerNormalization: normalises input + skip (+ bias) ---- */

struct skip_state {
    struct pointwise sum;  /* into scratch, or where the sum itself is wanted */
    struct pointwise keep; /* the sum in the type that is wanted */
    struct normalize normalize;
    bool to_scratch;
    bool keeps;
};

static void plan_sum(struct skip_state *state, const struct kernel_call *call,
                     const struct operand *sum)
{
    const struct operand *in[3] = {call->in[0], call->in[1], call_input(call, 4)};
    size_t count = in[2] != NULL ? 3 : 2;

    state->sum.type = pointwise_type_of(call->in[0]->dtype);
    (void)pointwise_operands(&state->sum, sum, count, in);
    pointwise_step(&state->sum, PW_load, 0, 0, 0);
    for (size_t i = 1; i < count; i++)
        pointwise_step(&state->sum, PW_add, (uint8_t)i, 0, 0);
    if (state->keeps) {
        state->keep.type = state->sum.type;
        (void)pointwise_operands(&state->keep, call->out[3], 1, &sum);
        pointwise_step(&state->keep, PW_load, 0, 0, 0);
    }
}

static enum status prepare_skip(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct skip_norm_attrs *attrs = call->attrs;
    struct skip_state *state = prepare_state(prepare, sizeof(*state), err);
    struct operand sum = *call->in[0];
    struct axes axes;
    bool reduced[SHAPE_MAX_RANK] = {false};
    size_t last = sum.shape.rank - 1;

    if (state == NULL)
        return STATUS_NO_MEMORY;
    sum.outer_stride = 0;
    if (dtype_is_narrow(sum.dtype))
        sum.dtype = DTYPE_FLOAT;
    state->to_scratch = call_output(call, 3) == NULL || sum.dtype != call->in[0]->dtype;
    state->keeps = state->to_scratch && call_output(call, 3) != NULL;
    plan_sum(state, call, &sum);
    lines_axes_of_map(&axes, &sum, call->out[0]);
    axes.operands = 4;
    axes.strides[2][last] = axes.strides[3][last] = 1;
    reduced[last] = true;
    set_lines(&state->normalize, call, &axes, reduced);
    set_types_of_inputs(&state->normalize, call, 2, 3);
    state->normalize.lines.in_dtype = sum.dtype;
    state->normalize.epsilon = (double)attrs->epsilon;
    state->normalize.facts_dtype = DTYPE_FLOAT;
    if (state->to_scratch)
        prepare->scratch_bytes = (size_t)shape_count(&sum.shape) * dtype_bytes(sum.dtype);
    return STATUS_OK;
}

static enum status run_skip(const void *arg, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    const struct skip_state *state = arg;
    struct normalize normalize = state->normalize;
    const void *in[3] = {run->in[0], run->in[1], run_input(call, run, 4)};
    void *sum = state->to_scratch ? run->scratch : run->out[3];

    normalize.scale = run_input(call, run, 2);
    normalize.bias = run_input(call, run, 3);
    normalize.mean = call_output(call, 1) != NULL ? run->out[1] : NULL;
    normalize.deviation = call_output(call, 2) != NULL ? run->out[2] : NULL;
    TRY(pointwise_run(&state->sum, NULL, run, in, sum));
    if (state->keeps)
        TRY(pointwise_run(&state->keep, NULL, run, (const void *const[]){sum}, run->out[3]));
    return launch(&normalize, sum, run->out[0], run);
}

const struct kernel kernel_skip_layer_normalization_lines = {
    .name = "cuda:lines",
    .refuses = refuse_mixed,
    .prepare = prepare_skip,
    .enqueue = run_skip,
    .release = free,
};
