/* Clip: its bounds are inputs, read when it runs. */
#include <math.h>
#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "device/cpu/flat.h"
#include "device/cpu/loops.h"

struct clip_state {
    const struct loops *loops;
    enum dtype dtype;
};

/* One run: what the pieces need. */
struct clip_job {
    const struct clip_state *state;
    const void *low; /* one element; NULL: open */
    const void *high;
};

#define CLIP_INTS(type, lowest, highest)                                                           \
    static void clip_##type(const struct clip_job *job, const type *x, type *y, size_t count)      \
    {                                                                                              \
        type low = job->low != NULL ? *(const type *)job->low : (lowest);                          \
        type high = job->high != NULL ? *(const type *)job->high : (highest);                      \
                                                                                                   \
        for (size_t i = 0; i < count; i++) {                                                       \
            type floored = x[i] < low ? low : x[i];                                                \
                                                                                                   \
            y[i] = floored > high ? high : floored;                                                \
        }                                                                                          \
    }
CLIP_INTS(int8_t, INT8_MIN, INT8_MAX)
CLIP_INTS(int16_t, INT16_MIN, INT16_MAX)
CLIP_INTS(int32_t, INT32_MIN, INT32_MAX)
CLIP_INTS(int64_t, INT64_MIN, INT64_MAX)
CLIP_INTS(uint8_t, 0, UINT8_MAX)
CLIP_INTS(uint16_t, 0, UINT16_MAX)
CLIP_INTS(uint32_t, 0, UINT32_MAX)
CLIP_INTS(uint64_t, 0, UINT64_MAX)
CLIP_INTS(double, -INFINITY, INFINITY)

static float bound_of(const struct clip_state *state, const void *element, float open)
{
    float value = open;

    if (element == NULL)
        return open;
    if (state->dtype == DTYPE_FLOAT)
        return *(const float *)element;
    widen(state->loops, state->dtype, element, &value, 1);
    return value;
}

static void clip_piece(void *arg, const void *in, void *out, size_t count)
{
    const struct clip_job *job = arg;

    switch (job->state->dtype) {
    case DTYPE_DOUBLE:
        clip_double(job, in, out, count);
        break;
    case DTYPE_INT8:
        clip_int8_t(job, in, out, count);
        break;
    case DTYPE_INT16:
        clip_int16_t(job, in, out, count);
        break;
    case DTYPE_INT32:
        clip_int32_t(job, in, out, count);
        break;
    case DTYPE_INT64:
        clip_int64_t(job, in, out, count);
        break;
    case DTYPE_UINT8:
        clip_uint8_t(job, in, out, count);
        break;
    case DTYPE_UINT16:
        clip_uint16_t(job, in, out, count);
        break;
    case DTYPE_UINT32:
        clip_uint32_t(job, in, out, count);
        break;
    case DTYPE_UINT64:
        clip_uint64_t(job, in, out, count);
        break;
    default:
        loops_unary(job->state->loops, job->state->dtype, UNARY_clip,
                    bound_of(job->state, job->low, -INFINITY),
                    bound_of(job->state, job->high, INFINITY), in, out, count);
    }
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    struct clip_state *state = malloc(sizeof(*state));

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a kernel's state");
    state->loops = loops_for(prepare->call.device);
    state->dtype = prepare->call.in[0]->dtype;
    prepare->constants_used = 7;
    prepare->state = state;
    return STATUS_OK;
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    struct flat flat = flat_make(call->in[0], call->out[0], call->device);
    size_t bytes = dtype_bytes(call->in[0]->dtype);
    struct clip_job job = {.state = state,
                           .low = call->inputs > 1 ? run->in[1] : NULL,
                           .high = call->inputs > 2 ? run->in[2] : NULL};

    flat_run(&flat, run->in[0], bytes, run->out[0], bytes, run->lane->threads, 0.1, clip_piece,
             &job);
    operand_zero_padding(call->out[0], call->device, run->out[0]);
    return STATUS_OK;
}

const struct kernel kernel_clip_vector = {
    .name = "cpu:vector",
    .flags = KERNEL_IN_PLACE | KERNEL_STRIDED,
    .layouts = FLAT_LAYOUTS,
    .prepare = prepare,
    .enqueue = enqueue,
    .release = free,
};
