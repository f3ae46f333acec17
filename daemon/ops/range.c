#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ops/movement.h"
#include "tensor/element.h"

#define RANGE_DTYPES                                                                               \
    (DTYPE_BIT(FLOAT) | DTYPE_BIT(DOUBLE) | DTYPE_BIT(FLOAT16) | DTYPE_BIT(BFLOAT16) |             \
     DTYPE_BIT(INT16) | DTYPE_BIT(INT32) | DTYPE_BIT(INT64))

/* Elements of a file's tensor need not be aligned. */
#define READ(type, tensor)                                                                         \
    ({                                                                                             \
        type read_value_;                                                                          \
        memcpy(&read_value_, (tensor)->data, sizeof(read_value_));                                 \
        read_value_;                                                                               \
    })

static double number(const struct tensor *tensor)
{
    return element_read(tensor->dtype, tensor->data, 0);
}

static int64_t integer(const struct tensor *tensor)
{
    switch (tensor->dtype) {
    case DTYPE_INT16:
        return READ(int16_t, tensor);
    case DTYPE_INT32:
        return READ(int32_t, tensor);
    default:
        return READ(int64_t, tensor);
    }
}

/* ceil((limit - start) / delta) without overflow: unsigned differences hold every distance. */
static int64_t integer_count(int64_t start, int64_t limit, int64_t delta)
{
    uint64_t distance, step;

    if (delta == 0 || (delta > 0 ? limit <= start : limit >= start))
        return 0;
    distance = delta > 0 ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
    step = delta > 0 ? (uint64_t)delta : -(uint64_t)delta;
    distance = (distance - 1) / step + 1;
    return distance > INT64_MAX ? INT64_MAX : (int64_t)distance;
}

static int64_t real_count(const struct tensor *start, const struct tensor *limit,
                          const struct tensor *delta)
{
    double distance = number(limit) - number(start);
    double count;

    if (start->dtype == DTYPE_FLOAT) /* the difference is taken in the tensor's own type */
        distance = (double)(float)distance;
    count = ceil(distance / number(delta));
    if (!(count > 0))
        return count != count ? INT64_MAX : 0;
    return count < 0x1p62 ? (int64_t)count : INT64_MAX;
}

static enum status range_count(const struct tensor *start, const struct tensor *limit,
                               const struct tensor *delta, int64_t *out_count, struct error *err)
{
    bool is_float = dtype_is_float(start->dtype);
    int64_t count;

    if (is_float ? number(delta) == 0 : integer(delta) == 0)
        return error_set(err, STATUS_INVALID, "delta is zero");
    count = is_float ? real_count(start, limit, delta)
                     : integer_count(integer(start), integer(limit), integer(delta));
    if (count > INT64_C(1) << 40)
        return error_set(err, STATUS_INVALID, "the range has no sensible number of elements");
    *out_count = count;
    return STATUS_OK;
}

static enum status infer_range(const struct op_call *call, struct error *err)
{
    int64_t count = 0;

    for (size_t i = 0; i < 3; i++) {
        const struct tensor *in = call->in[i];

        if (in->dtype != call->in[0]->dtype || shape_count(&in->shape) != 1 || in->shape.rank > 1 ||
            in->data == NULL)
            return error_set(err, STATUS_INVALID,
                             "start, limit and delta must be scalars of one type");
    }
    TRY(range_count(call->in[0], call->in[1], call->in[2], &count, err));
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = (struct shape){.rank = 1, .dims = {count}};
    return STATUS_OK;
}

const struct op_def op_range = {
    .name = "range",
    .onnx = {"Range", .since = 11},
    .inputs = 3,
    .outputs = 1,
    .dtypes = RANGE_DTYPES,
    .value_inputs = 1 << 0 | 1 << 1 | 1 << 2,
    .infer = infer_range,
};
