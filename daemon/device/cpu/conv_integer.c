/* ConvInteger and QLinearConv: plain loops over whole numbers in 32 bits. */
#include <math.h>

#include "device/cpu/constant.h"
#include "tensor/element.h"
#include "device/cpu/taps.h"
#include "device/cpu/team.h"
#include "ops/quantized.h"

struct job {
    const struct kernel_call *call;
    const struct kernel_run *run;
    struct conv_geometry geometry;
    size_t w, x_zero, w_zero; /* input numbers */
    bool is_qlinear;
    int64_t in_cells, out_cells, taps;
};

/* Element i of a parameter that may be one for all; 0 when it is left out. */
static double parameter(const struct job *job, size_t index, int64_t i)
{
    const struct operand *operand = kernel_input(job->call, index);

    if (operand == NULL)
        return 0;
    return element_read(operand->dtype, job->run->in[index],
                        shape_count(&operand->shape) > 1 ? (size_t)i : 0);
}

static int32_t byte_at(const struct job *job, size_t index, int64_t at)
{
    const void *data = job->run->in[index];

    return job->call->in[index]->dtype == DTYPE_INT8 ? ((const int8_t *)data)[at]
                                                     : ((const uint8_t *)data)[at];
}

static int32_t sum_at(const struct job *job, int64_t image, int64_t o, int64_t place)
{
    const struct conv_geometry *g = &job->geometry;
    const int64_t in = g->in_channels / g->groups, group = o / (g->out_channels / g->groups);
    const int64_t x = (image * g->in_channels + group * in) * job->in_cells;
    const int64_t w = o * in * job->taps;
    const int32_t x_zero = (int32_t)parameter(job, job->x_zero, 0);
    const int32_t w_zero = (int32_t)parameter(job, job->w_zero, o);
    struct taps taps;
    int32_t sum = 0;

    taps_begin(&taps, &job->geometry.window, place);
    do {
        for (int64_t c = 0; taps.inside && c < in; c++)
            sum += (byte_at(job, 0, x + c * job->in_cells + taps.cell) - x_zero) *
                   (byte_at(job, job->w, w + c * job->taps + taps.tap) - w_zero);
    } while (taps_next(&taps));
    return sum;
}

static void store(const struct job *job, int64_t o, int64_t at, int32_t sum)
{
    const enum dtype dtype = job->call->out[0]->dtype;
    const float low = dtype == DTYPE_INT8 ? -128 : 0, high = dtype == DTYPE_INT8 ? 127 : 255;
    float scale, value;

    if (!job->is_qlinear) {
        ((int32_t *)job->run->out[0])[at] = sum;
        return;
    }
    sum += (int32_t)parameter(job, QLINEAR_BIAS, o);
    scale = (float)parameter(job, QLINEAR_A_SCALE, 0) * (float)parameter(job, QLINEAR_B_SCALE, o) /
            (float)parameter(job, QLINEAR_Y_SCALE, 0);
    value = nearbyintf((float)sum * scale) + (float)parameter(job, QLINEAR_Y_ZERO, 0);
    element_write(dtype, job->run->out[0], (size_t)at, (double)fminf(high, fmaxf(low, value)));
}

static void run_job(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const int64_t channels = job->geometry.out_channels;
    size_t from, to;

    team_share((size_t)(job->geometry.batch * channels), member, members, &from, &to);
    for (int64_t plane = (int64_t)from; plane < (int64_t)to; plane++)
        for (int64_t place = 0; place < job->out_cells; place++)
            store(job, plane % channels, plane * job->out_cells + place,
                  sum_at(job, plane / channels, plane % channels, place));
}

static enum status start(struct job *job, const struct kernel_call *call,
                         const struct kernel_run *run)
{
    job->call = call;
    job->run = run;
    TRY(conv_resolve(call->attrs, &call->in[0]->shape, &call->in[job->w]->shape, &job->geometry,
                     NULL));
    job->in_cells = window_cells(&job->geometry.window, job->geometry.window.in);
    job->out_cells = window_cells(&job->geometry.window, job->geometry.window.out);
    job->taps = window_cells(&job->geometry.window, job->geometry.window.kernel);
    team_run(run->lane->threads, run_job, job);
    return STATUS_OK;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->constants_used = UINT32_MAX;
    return STATUS_OK;
}

static enum status enqueue_integer(const void *state, const struct kernel_call *call,
                                   const struct kernel_run *run)
{
    struct job job = {
        .w = CONV_INTEGER_W, .x_zero = CONV_INTEGER_X_ZERO, .w_zero = CONV_INTEGER_W_ZERO};

    (void)state;
    return start(&job, call, run);
}

static enum status enqueue_qlinear(const void *state, const struct kernel_call *call,
                                   const struct kernel_run *run)
{
    struct job job = {
        .w = QLINEAR_B, .x_zero = QLINEAR_A_ZERO, .w_zero = QLINEAR_B_ZERO, .is_qlinear = true};

    (void)state;
    return start(&job, call, run);
}

const struct kernel kernel_conv_integer_plain = {
    .name = "cpu:plain", .prepare = prepare, .enqueue = enqueue_integer};
const struct kernel kernel_qlinear_conv_plain = {
    .name = "cpu:plain", .prepare = prepare, .enqueue = enqueue_qlinear};
