/* NonZero and Compress: the host waits to know how much came out. */
#include "device/cuda/kernels/select.h"

#include <string.h>

#include "device/cuda/kernels/rows.h"
#include "ops/indexing.h"

_Static_assert(SELECT_RANK == (int)SHAPE_MAX_RANK, "dims of any shape");

static size_t offsets_bytes(int64_t count)
{
    return (size_t)(select_parts(count) + 1) * sizeof(int64_t);
}

/* ---- NonZero ---- */

static const char *refuse_nonzero(const struct kernel_call *call)
{
    return call->in[0]->shape.rank == 0 ? "one number has no indices" : NULL;
}

static enum status prepare_nonzero(struct kernel_prepare *prepare, struct error *err)
{
    prepare->scratch_bytes = offsets_bytes(shape_count(&prepare->call.in[0]->shape));
    return prepare_stateless(prepare, err);
}

static enum status run_nonzero(const void *state, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    const struct shape *in = &call->in[0]->shape;
    struct nonzero nonzero = {.selected = {.in = run->in[0],
                                           .dtype = call->in[0]->dtype,
                                           .count = shape_count(in),
                                           .parts = select_parts(shape_count(in)),
                                           .offsets = run->scratch,
                                           .found = run_found(run)},
                              .rank = (uint32_t)in->rank,
                              .out = run->out[0]};

    (void)state;
    memcpy(nonzero.dims, in->dims, in->rank * sizeof(in->dims[0]));
    CU_TRY(cuda_nonzero(&nonzero, cuda_stream(run)));
    return cuda_lane_found(run->lane, &run->out_shapes[0].dims[1]);
}

const struct kernel kernel_nonzero_counted = {
    .name = "cuda:counted",
    .refuses = refuse_nonzero,
    .prepare = prepare_nonzero,
    .enqueue = run_nonzero,
};

/* ---- Compress ---- */

/* Of the input: what is looked at along its axis, or flat. */
struct across {
    size_t axis; /* of the output */
    int64_t outer, length, asked;
    size_t slice_bytes;
};

static struct across across_of(const struct kernel_call *call)
{
    const struct compress_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    const int64_t conditions = call->in[1]->shape.dims[0];
    struct across across = {.outer = 1, .length = shape_count(in), .slice_bytes = 1};

    if (attrs->axis != INT64_MIN) {
        across.axis = shape_axis(in, attrs->axis);
        across.outer = shape_product(in, 0, across.axis);
        across.length = in->dims[across.axis];
        across.slice_bytes = (size_t)shape_product(in, across.axis + 1, in->rank);
    }
    across.slice_bytes *= dtype_bytes(call->in[0]->dtype);
    across.asked = conditions < across.length ? conditions : across.length;
    return across;
}

static enum status prepare_compress(struct kernel_prepare *prepare, struct error *err)
{
    const int64_t asked = across_of(&prepare->call).asked;

    prepare->scratch_bytes = offsets_bytes(asked) + (size_t)asked * sizeof(int64_t);
    return prepare_stateless(prepare, err);
}

static enum status run_compress(const void *state, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    const struct across across = across_of(call);
    struct compress compress = {
        .selected = {.in = run->in[1],
                     .dtype = DTYPE_BOOL,
                     .count = across.asked,
                     .parts = select_parts(across.asked),
                     .offsets = run->scratch,
                     .found = run_found(run)},
        .outer = across.outer,
        .length = across.length,
        .bytes = unit_of(across.slice_bytes, run->out[0], run->in[0]),
        .in = run->in[0],
        .out = run->out[0],
        .places = (int64_t *)(void *)((char *)run->scratch + offsets_bytes(across.asked)),
    };

    (void)state;
    compress.slice = (int64_t)(across.slice_bytes / compress.bytes);
    CU_TRY(cuda_compress(&compress, cuda_stream(run)));
    return cuda_lane_found(run->lane, &run->out_shapes[0].dims[across.axis]);
}

const struct kernel kernel_compress_counted = {
    .name = "cuda:counted",
    .refuses = refuse_strings,
    .prepare = prepare_compress,
    .enqueue = run_compress,
};
