/* Conv and ConvTranspose for every float type, rank and attribute: plain loops, sums in double.
 * The last choice; also what computed weights and half floats get. */
#include "device/cpu/conv/taps.h"
#include "device/cpu/epilogue.h"
#include "device/cpu/team.h"
#include "ops/conv.h"
#include "tensor/element.h"

struct job {
    enum dtype dtype;
    struct conv_geometry geometry;
    struct epilogue epilogue;
    const void *x, *w, *bias, *residual;
    void *y;
    int64_t in_cells, out_cells, taps;
    bool transposed;
};

/* Sum for output cell `place` of channel `o` (within its group) of one image and group. */
static double sum_conv(const struct job *job, int64_t image_group, int64_t group, int64_t o,
                       int64_t place)
{
    const struct conv_geometry *g = &job->geometry;
    const int64_t in = g->in_channels / g->groups, out = g->out_channels / g->groups;
    const int64_t x = image_group * in * job->in_cells;
    const int64_t w = (group * out + o) * in * job->taps;
    struct taps taps;
    double sum = 0;

    taps_begin(&taps, &g->window, place);
    do {
        for (int64_t c = 0; taps.inside && c < in; c++)
            sum += element_read(job->dtype, job->x, (size_t)(x + c * job->in_cells + taps.cell)) *
                   element_read(job->dtype, job->w, (size_t)(w + c * job->taps + taps.tap));
    } while (taps_next(&taps));
    return sum;
}

/* The input cell that tap `tap` carries to output cell `place`; -1: none. */
static int64_t source_cell(const struct window *w, int64_t place, int64_t tap)
{
    int64_t cell = 0, unit = 1;

    for (size_t i = w->spatial; i-- > 0; place /= w->out[i], tap /= w->kernel[i]) {
        int64_t at = place % w->out[i] + w->pad_begin[i] - tap % w->kernel[i] * w->dilation[i];

        if (at < 0 || at % w->stride[i] != 0 || at / w->stride[i] >= w->in[i])
            return -1;
        cell += at / w->stride[i] * unit;
        unit *= w->in[i];
    }
    return cell;
}

static double sum_transposed(const struct job *job, int64_t image_group, int64_t group, int64_t o,
                             int64_t place)
{
    const struct conv_geometry *g = &job->geometry;
    const int64_t in = g->in_channels / g->groups, out = g->out_channels / g->groups;
    const int64_t x = image_group * in * job->in_cells;
    double sum = 0;

    for (int64_t tap = 0; tap < job->taps; tap++) {
        int64_t cell = source_cell(&g->window, place, tap);

        for (int64_t c = 0; cell >= 0 && c < in; c++)
            sum += element_read(job->dtype, job->x, (size_t)(x + c * job->in_cells + cell)) *
                   element_read(job->dtype, job->w,
                                (size_t)(((group * in + c) * out + o) * job->taps + tap));
    }
    return sum;
}

static void compute_plane(const struct job *job, int64_t plane)
{
    const struct conv_geometry *g = &job->geometry;
    const int64_t out = g->out_channels / g->groups;
    const int64_t channel = plane % g->out_channels, group = channel / out;
    const int64_t image_group = plane / g->out_channels * g->groups + group;
    const double bias =
        job->bias != NULL ? element_read(job->dtype, job->bias, (size_t)channel) : 0;

    for (int64_t place = 0; place < job->out_cells; place++) {
        size_t at = (size_t)(plane * job->out_cells + place);
        double sum = (job->transposed ? sum_transposed : sum_conv)(job, image_group, group,
                                                                   channel % out, place);
        double residual = job->residual != NULL ? element_read(job->dtype, job->residual, at) : 0;
        bool after = job->epilogue.residual_after;
        double result = epilogue_activate(&job->epilogue, sum + bias + (after ? 0 : residual));

        element_write(job->dtype, job->y, at, result + (after ? residual : 0));
    }
}

static void run_job(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    size_t from, to;

    team_share((size_t)(job->geometry.batch * job->geometry.out_channels), member, members, &from,
               &to);
    for (size_t plane = from; plane < to; plane++)
        compute_plane(job, (int64_t)plane);
}

static const char *refuses(const struct kernel_call *call)
{
    if (conv_has_more(call->op, call->attrs))
        return "a prelude or a shuffle";
    return (DTYPE_FLOATS >> call->in[CONV_X]->dtype & 1) == 0 ? "only float types" : NULL;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->constants_used = UINT32_MAX;
    return STATUS_OK;
}

static enum status start(struct job *job, const struct kernel_call *call,
                         const struct kernel_run *run)
{
    job->dtype = call->in[CONV_X]->dtype;
    job->x = run->in[CONV_X];
    job->w = run->in[CONV_W];
    job->bias = call->inputs > CONV_BIAS && call->in[CONV_BIAS] != NULL ? run->in[CONV_BIAS] : NULL;
    job->residual = call->inputs > CONV_RESIDUAL ? run->in[CONV_RESIDUAL] : NULL;
    job->y = run->out[0];
    job->in_cells = window_cells(&job->geometry.window, job->geometry.window.in);
    job->out_cells = window_cells(&job->geometry.window, job->geometry.window.out);
    job->taps = window_cells(&job->geometry.window, job->geometry.window.kernel);
    team_run(run->lane->threads, run_job, job);
    return STATUS_OK;
}

static enum status enqueue_conv(const void *state, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    const struct conv_attrs *attrs = call->attrs;
    struct job job = {.epilogue = attrs->epilogue};

    (void)state;
    TRY(conv_resolve(attrs, &call->in[CONV_X]->shape, &call->in[CONV_W]->shape, &job.geometry,
                     NULL));
    return start(&job, call, run);
}

static enum status enqueue_transpose(const void *state, const struct kernel_call *call,
                                     const struct kernel_run *run)
{
    const struct conv_transpose_attrs *attrs = call->attrs;
    struct job job = {.epilogue = attrs->epilogue, .transposed = true};

    (void)state;
    TRY(conv_transpose_resolve(attrs, &call->in[CONV_X]->shape, &call->in[CONV_W]->shape,
                               &job.geometry, NULL));
    return start(&job, call, run);
}

const struct kernel kernel_conv_plain = {
    .name = "cpu:plain",
    .flags = KERNEL_IN_PLACE_LAST,
    .refuses = refuses,
    .prepare = prepare,
    .enqueue = enqueue_conv,
};

const struct kernel kernel_conv_transpose_plain = {
    .name = "cpu:plain",
    .flags = KERNEL_IN_PLACE_LAST,
    .refuses = refuses,
    .prepare = prepare,
    .enqueue = enqueue_transpose,
};
