/* MaxPool, AveragePool, GlobalAveragePool, GlobalMaxPool and LRN on floats, plain and blocked. */
#include "device/cpu/conv/pool.h"

#include <math.h>
#include <string.h>

#include "device/cpu/team.h"
#include "ops/lrn.h"
#include "ops/pool.h"

extern const struct pool_ops pool_ops_base, pool_ops_avx2, pool_ops_avx512;

const struct pool_ops *pool_ops_for(enum cpu_isa isa)
{
    static const struct pool_ops *const table[CPU_ISA_COUNT] = {&pool_ops_base, &pool_ops_avx2,
                                                                &pool_ops_avx512};

    return table[isa];
}

enum { BOTH = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED };

static size_t block_of(const struct kernel_call *call)
{
    return call->in[0]->layout == LAYOUT_BLOCKED ? call->device->channel_block : 1;
}

static size_t planes_of(const struct shape *shape, size_t block)
{
    return (size_t)shape->dims[0] * (((size_t)shape->dims[1] + block - 1) / block);
}

static const char *refuses_type(const struct kernel_call *call)
{
    return call->in[0]->dtype != DTYPE_FLOAT ? "only float" : NULL;
}

/* ---- windows ---- */

static const char *refuses_window(const struct kernel_call *call)
{
    struct window window;

    if (call->outputs > 1 && call->out[1] != NULL)
        return "indices are wanted";
    if (pool_resolve(call->attrs, &call->in[0]->shape, &window, NULL) != STATUS_OK)
        return "geometry";
    window_widen(&window, WINDOW_MAX_RANK);
    if (call->in[0]->layout == LAYOUT_PLAIN &&
        (window.kernel[2] - 1) * window.dilation[2] >= POOL_MAX_REACH)
        return "a very wide window in plain layout";
    return refuses_type(call);
}

struct window_job {
    const struct pool_ops *ops;
    struct pool_plane pool;
    const float *x;
    float *y;
    size_t planes, x_floats, y_floats;     /* of a plane */
    size_t image_planes, x_image, y_image; /* of an image; floats to the next one */
};

static void run_window(void *arg, unsigned member, unsigned members)
{
    const struct window_job *job = arg;
    size_t from, to;

    team_share(job->planes, member, members, &from, &to);
    for (size_t i = from; i < to; i++) {
        const size_t image = i / job->image_planes, plane = i % job->image_planes;

        job->ops->window(&job->pool, job->x + image * job->x_image + plane * job->x_floats,
                         job->y + image * job->y_image + plane * job->y_floats);
    }
}

static enum status pool_windows(enum pool_kind kind, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    const struct pool_attrs *attrs = call->attrs;
    const struct shape *x = &call->in[0]->shape, *y = &call->out[0]->shape;
    struct window_job job = {.ops = pool_ops_for(cpu_isa_of(call->device)),
                             .pool = {.kind = kind, .block = block_of(call)},
                             .x = run->in[0],
                             .y = run->out[0]};
    double taps;

    TRY(pool_resolve(attrs, x, &job.pool.window, NULL));
    window_widen(&job.pool.window, WINDOW_MAX_RANK);
    job.pool.count_padding = attrs->count_include_pad != 0;
    job.planes = planes_of(x, job.pool.block);
    job.x_floats = (size_t)shape_product(x, 2, x->rank) * job.pool.block;
    job.y_floats = (size_t)shape_product(y, 2, y->rank) * job.pool.block;
    job.image_planes = shape_count(x) > 0 ? job.planes / (size_t)x->dims[0] : 1;
    job.x_image = (size_t)operand_stride(call->in[0], (int64_t)(job.image_planes * job.x_floats));
    job.y_image = (size_t)operand_stride(call->out[0], (int64_t)(job.image_planes * job.y_floats));
    taps = (double)shape_product(
        &(struct shape){.rank = 3,
                        .dims = {job.pool.window.kernel[0], job.pool.window.kernel[1],
                                 job.pool.window.kernel[2]}},
        0, 3);
    team_run(team_size(run->lane->threads, (double)(job.planes * job.y_floats) * taps / 10),
             run_window, &job);
    return STATUS_OK;
}

static enum status enqueue_max(const void *state, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    (void)state;
    return pool_windows(POOL_MAX, call, run);
}

static enum status enqueue_average(const void *state, const struct kernel_call *call,
                                   const struct kernel_run *run)
{
    (void)state;
    return pool_windows(POOL_AVERAGE, call, run);
}

/* ---- everything ---- */

struct global_job {
    const struct pool_ops *ops;
    enum pool_kind kind;
    const float *x;
    float *y;
    size_t planes, block, cells, channels, blocks;
    size_t x_image, y_image; /* floats from one image to the next */
    bool blocked_out;
};

static void run_global(void *arg, unsigned member, unsigned members)
{
    const struct global_job *job = arg;
    size_t from, to;

    team_share(job->planes, member, members, &from, &to);
    for (size_t i = from; i < to; i++) {
        size_t channel = i % job->blocks * job->block;
        size_t left = job->channels - channel;
        const float *x = job->x + i / job->blocks * job->x_image + channel * job->cells;
        float *y = job->y + i / job->blocks * job->y_image + channel;
        float out[16];

        job->ops->global(job->kind, x, job->cells, job->block, out);
        /* blocked: the padding is zero in and out */
        memcpy(y, out, (job->blocked_out || left > job->block ? job->block : left) * sizeof(float));
    }
}

static const char *refuses_global(const struct kernel_call *call)
{
    if (call->in[0]->layout == LAYOUT_PLAIN && call->out[0]->layout != LAYOUT_PLAIN)
        return "plain in, blocked out";
    return refuses_type(call);
}

static enum status pool_all(enum pool_kind kind, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    const struct shape *x = &call->in[0]->shape;
    struct global_job job = {.ops = pool_ops_for(cpu_isa_of(call->device)),
                             .kind = kind,
                             .x = run->in[0],
                             .y = run->out[0],
                             .block = block_of(call),
                             .channels = (size_t)x->dims[1],
                             .cells = (size_t)shape_product(x, 2, x->rank),
                             .blocked_out = call->out[0]->layout == LAYOUT_BLOCKED};

    job.blocks = (job.channels + job.block - 1) / job.block;
    job.planes = planes_of(x, job.block);
    job.x_image =
        (size_t)operand_stride(call->in[0], (int64_t)(job.blocks * job.block * job.cells));
    job.y_image = (size_t)operand_stride(
        call->out[0], (int64_t)(job.blocked_out ? job.blocks * job.block : job.channels));
    team_run(team_size(run->lane->threads, (double)(job.planes * job.cells * job.block) / 8),
             run_global, &job);
    return STATUS_OK;
}

static enum status enqueue_global_average(const void *state, const struct kernel_call *call,
                                          const struct kernel_run *run)
{
    (void)state;
    return pool_all(POOL_AVERAGE, call, run);
}

static enum status enqueue_global_max(const void *state, const struct kernel_call *call,
                                      const struct kernel_run *run)
{
    (void)state;
    return pool_all(POOL_MAX, call, run);
}

/* ---- LRN: each cell's channels are gathered, normalised and scattered ---- */

struct lrn_job {
    const struct pool_ops *ops;
    const struct lrn_attrs *attrs;
    const float *x;
    float *y;
    float *scratch;
    size_t images, cells, channels, block;
    size_t member_floats;
};

static size_t lrn_floats(const struct kernel_call *call)
{
    const struct lrn_attrs *attrs = call->attrs;
    size_t channels = (size_t)call->in[0]->shape.dims[1];

    /* a window wider than all channels sums no more than they are */
    return (2 * channels + channels + (size_t)attrs->size + 16 + 15) / 16 * 16;
}

static void run_lrn(void *arg, unsigned member, unsigned members)
{
    const struct lrn_job *job = arg;
    const size_t block = job->block,
                 image_floats = (job->channels + block - 1) / block * block * job->cells;
    float *in = job->scratch + member * job->member_floats, *out = in + job->channels;
    float *squares = out + job->channels;
    size_t from, to;

    team_share(job->images * job->cells, member, members, &from, &to);
    for (size_t i = from; i < to; i++) {
        size_t base = i / job->cells * image_floats + i % job->cells * block;

        for (size_t c = 0; c < job->channels; c++)
            in[c] = job->x[base + c / block * block * job->cells + c % block];
        job->ops->normalize(in, job->channels, (size_t)job->attrs->size,
                            job->attrs->alpha / (float)job->attrs->size, job->attrs->bias,
                            job->attrs->beta, out, squares);
        for (size_t c = 0; c < job->channels; c++)
            job->y[base + c / block * block * job->cells + c % block] = out[c];
        for (size_t c = job->channels; c % block != 0; c++)
            job->y[base + c / block * block * job->cells + c % block] = 0;
    }
}

static const char *refuses_lrn(const struct kernel_call *call)
{
    const struct lrn_attrs *attrs = call->attrs;

    if (attrs->size > 4096)
        return "a window of more than 4096 channels";
    return refuses_type(call);
}

static enum status prepare_lrn(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->scratch_bytes = lrn_floats(&prepare->call) * sizeof(float) * prepare->call.threads;
    return STATUS_OK;
}

static enum status enqueue_lrn(const void *state, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    const struct shape *x = &call->in[0]->shape;
    struct lrn_job job = {.ops = pool_ops_for(cpu_isa_of(call->device)),
                          .attrs = call->attrs,
                          .x = run->in[0],
                          .y = run->out[0],
                          .scratch = run->scratch,
                          .images = (size_t)x->dims[0],
                          .channels = (size_t)x->dims[1],
                          .cells = (size_t)shape_product(x, 2, x->rank),
                          .block = block_of(call),
                          .member_floats = lrn_floats(call)};

    (void)state;
    team_run(team_size(call->threads, (double)shape_count(x) * 4), run_lrn, &job);
    return STATUS_OK;
}

const struct kernel kernel_max_pool_vector = {.name = "cpu:vector",
                                              .flags = KERNEL_STRIDED,
                                              .layouts = BOTH,
                                              .refuses = refuses_window,
                                              .enqueue = enqueue_max};
const struct kernel kernel_average_pool_vector = {.name = "cpu:vector",
                                                  .flags = KERNEL_STRIDED,
                                                  .layouts = BOTH,
                                                  .refuses = refuses_window,
                                                  .enqueue = enqueue_average};
const struct kernel kernel_global_average_pool_vector = {.name = "cpu:vector",
                                                         .flags = KERNEL_STRIDED,
                                                         .layouts = BOTH,
                                                         .out_layouts = BOTH,
                                                         .refuses = refuses_global,
                                                         .enqueue = enqueue_global_average};
const struct kernel kernel_global_max_pool_vector = {.name = "cpu:vector",
                                                     .flags = KERNEL_STRIDED,
                                                     .layouts = BOTH,
                                                     .out_layouts = BOTH,
                                                     .refuses = refuses_global,
                                                     .enqueue = enqueue_global_max};
const struct kernel kernel_lrn_vector = {.name = "cpu:vector",
                                         .flags = KERNEL_IN_PLACE,
                                         .layouts = BOTH,
                                         .refuses = refuses_lrn,
                                         .prepare = prepare_lrn,
                                         .enqueue = enqueue_lrn};
