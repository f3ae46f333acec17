/* Operators that pick and place elements by index, and those that make their result of attributes
 * and a few numbers. */
#include "device/cuda/kernels/indexed.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/pointwise_plan.h"
#include "device/cuda/kernels/rows.h"
#include "ops/embedding.h"
#include "ops/indexing.h"
#include "ops/movement.h"

static size_t bytes_of(const struct operand *operand)
{
    return (size_t)shape_count(&operand->shape) * dtype_bytes(operand->dtype);
}

/* ---- Gather, GatherElements, GatherND ---- */

static enum status run_gather(const void *state, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    const struct gather_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    size_t axis = shape_axis(in, attrs->axis);
    size_t slice = (size_t)shape_product(in, axis + 1, in->rank) * dtype_bytes(call->in[0]->dtype);
    struct gather gather = {.outer = shape_product(in, 0, axis),
                            .picks = shape_count(&call->in[1]->shape),
                            .length = in->dims[axis],
                            .bytes = unit_of(slice, run->out[0], run->in[0]),
                            .index_dtype = call->in[1]->dtype,
                            .to = run->out[0],
                            .from = run->in[0],
                            .indices = run->in[1],
                            .fault = run_fault(run)};

    (void)state;
    gather.slice = (int64_t)(slice / gather.bytes);
    return cuda_status(cuda_gather(&gather, cuda_stream(run)));
}

#define STATELESS(operator, refuses_fn, run_fn, more_flags)                                        \
    const struct kernel kernel_##operator##_indexed = {                                            \
        .name = "cuda:indexed",                                                                    \
        .flags = (more_flags),                                                                     \
        .refuses = (refuses_fn),                                                                   \
        .prepare = prepare_stateless,                                                              \
        .enqueue = (run_fn),                                                                       \
    }
STATELESS(gather, refuse_strings, run_gather, 0);

static enum status prepare_gather_elements(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct axis_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape, *out = &call->out[0]->shape;
    struct gather_elements *gather = prepare_state(prepare, sizeof(*gather), err);
    size_t axis = shape_axis(in, attrs->axis);
    struct walk_strides strides[2];
    struct axes axes = {.operands = 2};

    if (gather == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < out->rank; i++) {
        int64_t stride = i == axis ? 0 : shape_product(in, i + 1, in->rank);

        axes_add(&axes, out->dims[i],
                 (const int64_t[]){shape_product(out, i + 1, out->rank), stride});
    }
    axes_simplify(&axes, -1);
    (void)axes_finish(&axes, &gather->walk, strides);
    gather->from = strides[1];
    gather->length = in->dims[axis];
    gather->stride = shape_product(in, axis + 1, in->rank);
    gather->bytes = (uint32_t)dtype_bytes(call->in[0]->dtype);
    gather->index_dtype = call->in[1]->dtype;
    return STATUS_OK;
}

static enum status run_gather_elements(const void *state, const struct kernel_call *call,
                                       const struct kernel_run *run)
{
    struct gather_elements gather = *(const struct gather_elements *)state;

    (void)call;
    gather.to = run->out[0];
    gather.from_data = run->in[0];
    gather.indices = run->in[1];
    gather.fault = run_fault(run);
    return cuda_status(cuda_gather_elements(&gather, cuda_stream(run)));
}

const struct kernel kernel_gather_elements_indexed = {
    .name = "cuda:indexed",
    .refuses = refuse_strings,
    .prepare = prepare_gather_elements,
    .enqueue = run_gather_elements,
    .release = free,
};

/* Tuples of `depth` numbers that count through dimensions `from` … of `shape`, in units of which
 * `unit` go on one element. */
static void set_tuples(struct index_tuples *tuples, const struct shape *shape, size_t from,
                       size_t depth)
{
    tuples->depth = (uint32_t)depth;
    for (size_t k = 0; k < depth; k++) {
        tuples->lengths[k] = shape->dims[from + k];
        tuples->strides[k] = shape_product(shape, from + k + 1, shape->rank);
    }
}

static enum status run_gather_nd(const void *state, const struct kernel_call *call,
                                 const struct kernel_run *run)
{
    const struct gather_nd_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape, *indices = &call->in[1]->shape;
    size_t batch_axes = (size_t)attrs->batch_dims;
    size_t depth = (size_t)indices->dims[indices->rank - 1];
    size_t element = dtype_bytes(call->in[0]->dtype);
    int64_t slice = shape_product(in, batch_axes + depth, in->rank), by;
    struct gather_nd gather = {.batches = shape_product(in, 0, batch_axes),
                               .picks = shape_product(indices, batch_axes, indices->rank - 1),
                               .to = run->out[0],
                               .from = run->in[0],
                               .fault = run_fault(run)};

    (void)state;
    gather.bytes = unit_of((size_t)slice * element, run->out[0], run->in[0]);
    if (gather.bytes < element)
        gather.bytes = (uint32_t)element;
    by = (int64_t)(gather.bytes / element);
    set_tuples(&gather.tuples, in, batch_axes, depth);
    for (size_t k = 0; k < depth; k++)
        gather.tuples.strides[k] /= by;
    gather.tuples.indices = run->in[1];
    gather.slice = slice / by;
    gather.batch_stride = shape_product(in, batch_axes, in->rank) / by;
    return cuda_status(cuda_gather_nd(&gather, cuda_stream(run)));
}
STATELESS(gather_nd, refuse_strings, run_gather_nd, 0);

/* ---- ScatterElements, ScatterND, MaxUnpool ---- */

static enum status keep_scatter(struct kernel_prepare *prepare, const struct scatter *scatter)
{
    if (scatter->how == SCATTER_BY_LAST)
        prepare->scratch_bytes = (size_t)scatter->count * sizeof(int32_t);
    memcpy(prepare->state, scatter, sizeof(*scatter));
    return STATUS_OK;
}

static void set_lines(struct scatter *scatter, struct axes *axes)
{
    struct walk_strides strides[3];

    axes_simplify(axes, -1);
    (void)axes_finish(axes, &scatter->lines, strides);
    scatter->line_to = strides[0];
    scatter->line_from = strides[1];
    scatter->line_index = strides[2];
}

static void set_data(struct scatter *scatter, const struct kernel_call *call)
{
    const struct operand *data = call->out[0];

    scatter->type = pointwise_type_of(data->dtype);
    scatter->dtype = data->dtype;
    scatter->bytes = (uint32_t)dtype_bytes(data->dtype);
    scatter->count = shape_count(&data->shape);
}

static enum scatter_how how_of(const struct kernel_call *call)
{
    static const enum scatter_how ways[] = {[SCATTER_NONE] = SCATTER_BY_LAST,
                                            [SCATTER_ADD] = SCATTER_BY_ADD,
                                            [SCATTER_MUL] = SCATTER_BY_MUL,
                                            [SCATTER_MAX] = SCATTER_BY_MAX,
                                            [SCATTER_MIN] = SCATTER_BY_MIN};

    return ways[((const struct scatter_attrs *)call->attrs)->reduction];
}

static enum status prepare_scatter_elements(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct scatter_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape, *indices = &call->in[1]->shape;
    size_t axis = shape_axis(in, attrs->axis);
    struct scatter scatter = {.how = how_of(call), .index_dtype = call->in[1]->dtype};
    struct axes axes = {.operands = 3};

    if (prepare_state(prepare, sizeof(scatter), err) == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < in->rank; i++) {
        int64_t to = shape_product(in, i + 1, in->rank);
        int64_t from = shape_product(indices, i + 1, indices->rank);

        if (i != axis)
            axes_add(&axes, indices->dims[i], (const int64_t[]){to, from, from});
    }
    set_lines(&scatter, &axes);
    set_data(&scatter, call);
    scatter.updates = indices->dims[axis];
    scatter.update_step = scatter.index_step = shape_product(indices, axis + 1, indices->rank);
    if (scatter.index_step == 0) /* nothing to do then */
        scatter.index_step = 1;
    set_tuples(&scatter.tuples, in, axis, 1);
    return keep_scatter(prepare, &scatter);
}

static enum status prepare_scatter_nd(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct shape *in = &call->in[0]->shape, *indices = &call->in[1]->shape;
    size_t depth = (size_t)indices->dims[indices->rank - 1];
    struct scatter scatter = {.how = how_of(call)};
    struct axes axes = {.operands = 3};

    if (prepare_state(prepare, sizeof(scatter), err) == NULL)
        return STATUS_NO_MEMORY;
    scatter.update_step = shape_product(in, depth, in->rank);
    scatter.updates = shape_product(indices, 0, indices->rank - 1);
    axes_add(&axes, scatter.update_step, (const int64_t[]){1, 1, 0});
    set_lines(&scatter, &axes);
    set_data(&scatter, call);
    set_tuples(&scatter.tuples, in, 0, depth);
    return keep_scatter(prepare, &scatter);
}

/* Indices count through the whole result. */
static enum status prepare_unpool(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct scatter scatter = {.how = SCATTER_BY_LAST, .update_step = 1};
    struct axes axes = {.operands = 3};

    if (prepare_state(prepare, sizeof(scatter), err) == NULL)
        return STATUS_NO_MEMORY;
    axes_add(&axes, 1, (const int64_t[]){0, 0, 0});
    set_lines(&scatter, &axes);
    set_data(&scatter, call);
    scatter.updates = shape_count(&call->in[0]->shape);
    scatter.tuples = (struct index_tuples){
        .depth = 1, .from_start_only = 1, .lengths = {scatter.count}, .strides = {1}};
    return keep_scatter(prepare, &scatter);
}

static const char *refuse_scatter(const struct kernel_call *call)
{
    if (shape_count(&call->in[1]->shape) > INT32_MAX)
        return "2^31 updates or more";
    return refuse_strings(call);
}

static const char *refuse_unpool(const struct kernel_call *call)
{
    if (call_input(call, 2) != NULL)
        return "an output_shape: what the indices count through is told differently";
    return refuse_scatter(call);
}

static enum status run_scatter(const struct scatter *state, const void *indices,
                               const void *updates, const struct kernel_run *run)
{
    struct scatter scatter = *state;

    scatter.to = run->out[0];
    scatter.from = updates;
    scatter.indices = scatter.tuples.indices = indices;
    scatter.last = run->scratch;
    scatter.fault = run_fault(run);
    return cuda_status(cuda_scatter(&scatter, cuda_stream(run)));
}

static enum status run_updates(const void *state, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    size_t bytes = bytes_of(call->in[0]);

    if (bytes > 0 && run->out[0] != run->in[0])
        CU_TRY(cudaMemcpyAsync(run->out[0], run->in[0], bytes, cudaMemcpyDeviceToDevice,
                               cuda_stream(run)));
    return run_scatter(state, run->in[1], run->in[2], run);
}

static enum status run_unpool(const void *state, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    size_t bytes = bytes_of(call->out[0]);

    if (bytes > 0)
        CU_TRY(cudaMemsetAsync(run->out[0], 0, bytes, cuda_stream(run)));
    return run_scatter(state, run->in[1], run->in[0], run);
}

#define SCATTER(operator, refuses_fn, prepare_fn, run_fn, more_flags)                              \
    const struct kernel kernel_##operator##_indexed = {                                            \
        .name = "cuda:indexed",                                                                    \
        .flags = (more_flags),                                                                     \
        .refuses = (refuses_fn),                                                                   \
        .prepare = (prepare_fn),                                                                   \
        .enqueue = (run_fn),                                                                       \
        .release = free,                                                                           \
    }
SCATTER(scatter_elements, refuse_scatter, prepare_scatter_elements, run_updates, KERNEL_IN_PLACE);
SCATTER(scatter_nd, refuse_scatter, prepare_scatter_nd, run_updates, KERNEL_IN_PLACE);
SCATTER(max_unpool, refuse_unpool, prepare_unpool, run_unpool, 0);

/* ---- OneHot, ReverseSequence ---- */

static enum status run_one_hot(const void *state, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    const struct axis_attrs *attrs = call->attrs;
    const struct shape *out = &call->out[0]->shape;
    size_t axis = shape_axis(out, attrs->axis);
    const struct one_hot one_hot = {.outer = shape_product(out, 0, axis),
                                    .depth = out->dims[axis],
                                    .inner = shape_product(out, axis + 1, out->rank),
                                    .index_dtype = call->in[0]->dtype,
                                    .bytes = (uint32_t)dtype_bytes(call->out[0]->dtype),
                                    .to = run->out[0],
                                    .indices = run->in[0],
                                    .values = run->in[2]};

    (void)state;
    return cuda_status(cuda_one_hot(&one_hot, cuda_stream(run)));
}
STATELESS(one_hot, refuse_strings, run_one_hot, 0);

static enum status run_reverse_sequence(const void *state, const struct kernel_call *call,
                                        const struct kernel_run *run)
{
    const struct reverse_sequence_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    size_t slice = (size_t)shape_product(in, 2, in->rank) * dtype_bytes(call->in[0]->dtype);
    struct reverse_sequence reverse = {.times = in->dims[attrs->time_axis],
                                       .batches = in->dims[attrs->batch_axis],
                                       .time_first = attrs->time_axis == 0,
                                       .bytes = unit_of(slice, run->out[0], run->in[0]),
                                       .to = run->out[0],
                                       .from = run->in[0],
                                       .lengths = run->in[1],
                                       .fault = run_fault(run)};

    (void)state;
    reverse.slice = (int64_t)(slice / reverse.bytes);
    return cuda_status(cuda_reverse_sequence(&reverse, cuda_stream(run)));
}
STATELESS(reverse_sequence, refuse_strings, run_reverse_sequence, 0);

/* ---- Range, EyeLike, Trilu ---- */

static enum status run_range(const void *state, const struct kernel_call *call,
                             const struct kernel_run *run)
{
    const struct sequence sequence = {.count = call->out[0]->shape.dims[0],
                                      .dtype = call->out[0]->dtype,
                                      .to = run->out[0],
                                      .start = run->in[0],
                                      .step = run->in[2]};

    (void)state;
    return cuda_status(cuda_sequence(&sequence, cuda_stream(run)));
}
STATELESS(range, NULL, run_range, 0);

static enum status run_eye_like(const void *state, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    const struct eye_like_attrs *attrs = call->attrs;
    const struct shape *shape = &call->out[0]->shape;
    const struct triangle triangle = {.how = TRIANGLE_EYE,
                                      .count = shape_count(shape),
                                      .rows = shape->dims[0],
                                      .columns = shape->dims[1],
                                      .k = attrs->k,
                                      .dtype = call->out[0]->dtype,
                                      .to = run->out[0]};

    (void)state;
    return cuda_status(cuda_triangle(&triangle, cuda_stream(run)));
}
STATELESS(eye_like, NULL, run_eye_like, 0);

static enum status run_trilu(const void *state, const struct kernel_call *call,
                             const struct kernel_run *run)
{
    const struct trilu_attrs *attrs = call->attrs;
    const struct shape *shape = &call->in[0]->shape;
    const struct triangle triangle = {.how = attrs->upper ? TRIANGLE_UPPER : TRIANGLE_LOWER,
                                      .count = shape_count(shape),
                                      .rows = shape->dims[shape->rank - 2],
                                      .columns = shape->dims[shape->rank - 1],
                                      .k_data = run_input(call, run, 1),
                                      .bytes = (uint32_t)dtype_bytes(call->in[0]->dtype),
                                      .to = run->out[0],
                                      .from = run->in[0]};

    (void)state;
    return cuda_status(cuda_triangle(&triangle, cuda_stream(run)));
}
STATELESS(trilu, refuse_strings, run_trilu, KERNEL_IN_PLACE);

/* ---- Embedding ---- */

static const char *refuse_embedding(const struct kernel_call *call)
{
    const struct embedding_attrs *attrs = call->attrs;
    enum dtype dtype = call->in[EMBEDDING_B]->dtype;

    if (dtype != DTYPE_FLOAT && !dtype_is_narrow(dtype))
        return "no doubles";
    return attrs->product.epilogue.has_residual ? "a residual" : NULL;
}

static enum status run_embedding(const void *state, const struct kernel_call *call,
                                 const struct kernel_run *run)
{
    const struct embedding_attrs *attrs = call->attrs;
    const struct matmul_attrs *product = &attrs->product;
    const int64_t *dims = call->in[EMBEDDING_B]->shape.dims;
    const bool turned = product->trans_b;
    const struct embedding embedding = {.count = shape_count(&call->in[EMBEDDING_IDS]->shape),
                                        .rows = dims[turned ? 1 : 0],
                                        .columns = dims[turned ? 0 : 1],
                                        .row_step = turned ? 1 : dims[1],
                                        .column_step = turned ? dims[1] : 1,
                                        .index_dtype = call->in[EMBEDDING_IDS]->dtype,
                                        .wraps = attrs->wraps,
                                        .dtype = call->in[EMBEDDING_B]->dtype,
                                        .scale = product->has_scale ? (double)product->scale : 1,
                                        .act = (uint32_t)product->epilogue.act,
                                        .act_a = product->epilogue.a,
                                        .act_b = product->epilogue.b,
                                        .to = run->out[0],
                                        .ids = run->in[EMBEDDING_IDS],
                                        .b = run->in[EMBEDDING_B],
                                        .bias = run_input(call, run, EMBEDDING_BIAS)};

    (void)state;
    return cuda_status(cuda_embedding(&embedding, cuda_stream(run)));
}
STATELESS(embedding, refuse_embedding, run_embedding, 0);
