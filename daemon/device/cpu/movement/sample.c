/* GridSample and RoiAlign: values read between the elements. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/move.h"
#include "device/cpu/team.h"
#include "ops/indexing.h"

static const char *refuse_types(const struct kernel_call *call)
{
    if (call->in[0]->dtype != DTYPE_FLOAT || call->in[1]->dtype != DTYPE_FLOAT)
        return "float only";
    return NULL;
}

/* ---- GridSample ---- */

enum { AXES = 3, TAPS = 4 };

struct grid_job {
    const struct kernel_run *run;
    size_t axes;
    int64_t lengths[AXES]; /* of the input */
    int64_t batch, channels;
    int64_t places; /* input elements a channel */
    int64_t points; /* output elements a channel */
    enum grid_mode mode;
    enum grid_padding padding;
    bool align_corners;
};

/* What one output point reads along one axis. */
struct taps {
    int count;
    int64_t index[TAPS]; /* -1: outside, reads zero */
    float weight[TAPS];
};

static float reflect(float x, float low, float high)
{
    float range = high - low, beyond = x < low ? low - x : x - high, turns;

    if (beyond <= 0)
        return x;
    if (range <= 0)
        return low;
    turns = floorf(beyond / range);
    beyond -= turns * range;
    if ((x < low) == (fmodf(turns, 2) == 0))
        return low + beyond;
    return high - beyond;
}

/* An element's index after padding; -1 when it is outside and reads zero. */
static int64_t settle(const struct grid_job *job, int64_t i, int64_t length, float low, float high)
{
    if (i >= 0 && i < length)
        return i;
    if (job->padding == GRID_ZEROS)
        return -1;
    if (job->padding == GRID_REFLECTION)
        i = (int64_t)reflect((float)i, low, high);
    return i < 0 ? 0 : i >= length ? length - 1 : i;
}

static void cubic_weights(float s, float w[4])
{
    const float a = -0.75f;

    w[0] = ((a * (s + 1) - 5 * a) * (s + 1) + 8 * a) * (s + 1) - 4 * a;
    w[1] = ((a + 2) * s - (a + 3)) * s * s + 1;
    w[2] = ((a + 2) * (1 - s) - (a + 3)) * (1 - s) * (1 - s) + 1;
    w[3] = ((a * (2 - s) - 5 * a) * (2 - s) + 8 * a) * (2 - s) - 4 * a;
}

static struct taps find_taps(const struct grid_job *job, float place, int64_t length)
{
    const float far = 0x1p30f; /* whatever is farther away is outside all the same */
    float low = job->align_corners ? 0 : -0.5f;
    float high = job->align_corners ? (float)length - 1 : (float)length - 0.5f;
    float x = job->align_corners ? (place + 1) / 2 * ((float)length - 1)
                                 : ((place + 1) * (float)length - 1) / 2;
    struct taps taps = {0};
    int64_t first;

    x = x > -far ? (x < far ? x : far) : -far; /* a NaN too */
    if (job->mode == GRID_NEAREST)
        x = nearbyintf(x);
    if (job->padding == GRID_BORDER && (x < low || x > high))
        x = x < 0 ? 0 : x > (float)(length - 1) ? (float)(length - 1) : x;
    else if (job->padding == GRID_REFLECTION && (x < low || x > high))
        x = reflect(x, low, high);
    first = (int64_t)floorf(x);
    if (job->mode == GRID_NEAREST) {
        taps.count = 1;
        taps.weight[0] = 1;
    } else if (job->mode == GRID_LINEAR) {
        taps.count = 2;
        taps.weight[1] = x - (float)first;
        taps.weight[0] = 1 - taps.weight[1];
    } else {
        taps.count = 4;
        cubic_weights(x - (float)first, taps.weight);
        first--;
    }
    for (int t = 0; t < taps.count; t++)
        taps.index[t] = settle(job, first + t, length, low, high);
    return taps;
}

/* Sum over the taps of axis `axis` and those behind it. */
static float read_point(const struct grid_job *job, const struct taps *taps, size_t axis,
                        const float *data, int64_t stride)
{
    float sum = 0;

    stride /= job->lengths[axis];
    for (int t = 0; t < taps[axis].count; t++) {
        const float *at = data + taps[axis].index[t] * stride;

        if (taps[axis].index[t] < 0)
            continue;
        sum += taps[axis].weight[t] *
               (axis + 1 == job->axes ? *at : read_point(job, taps, axis + 1, at, stride));
    }
    return sum;
}

static void grid_share(void *arg, unsigned member, unsigned members)
{
    const struct grid_job *job = arg;
    const float *x = job->run->in[0], *grid = job->run->in[1];
    float *out = job->run->out[0];
    size_t first, last;

    team_share((size_t)(job->batch * job->points), member, members, &first, &last);
    for (int64_t i = (int64_t)first; i < (int64_t)last; i++) {
        int64_t channel = i / job->points * job->channels, point = i % job->points;
        struct taps taps[AXES];

        for (size_t axis = 0; axis < job->axes; axis++)
            taps[axis] =
                find_taps(job, grid[i * (int64_t)job->axes + (int64_t)(job->axes - 1 - axis)],
                          job->lengths[axis]);
        for (int64_t c = channel; c < channel + job->channels; c++)
            out[c * job->points + point] =
                read_point(job, taps, 0, x + c * job->places, job->places);
    }
}

static const char *refuse_grid(const struct kernel_call *call)
{
    const struct shape *x = &call->in[0]->shape;

    if (x->rank > AXES + 2)
        return "more than three axes of space";
    if (shape_product(x, 2, x->rank) == 0 && shape_count(&call->out[0]->shape) > 0)
        return "nothing to sample";
    return refuse_types(call);
}

static enum status run_grid(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    const struct grid_sample_attrs *attrs = call->attrs;
    const struct shape *x = &call->in[0]->shape, *out = &call->out[0]->shape;
    struct grid_job job = {
        .run = run,
        .axes = x->rank - 2,
        .batch = x->dims[0],
        .channels = x->dims[1],
        .places = shape_product(x, 2, x->rank),
        .points = shape_product(out, 2, out->rank),
        .mode = (enum grid_mode)(attrs->mode % GRID_MODES),
        .padding = (enum grid_padding)attrs->padding_mode,
        .align_corners = attrs->align_corners != 0,
    };

    (void)state;
    for (size_t axis = 0; axis < job.axes; axis++)
        job.lengths[axis] = x->dims[axis + 2];
    if (shape_count(out) > 0)
        team_run(team_size(call->threads, 10 * (double)shape_count(out)), grid_share, &job);
    return STATUS_OK;
}

const struct kernel kernel_grid_sample_taps = {
    .name = "cpu:taps", .refuses = refuse_grid, .enqueue = run_grid};

/* ---- RoiAlign ---- */

struct roi_job {
    const struct kernel_run *run;
    const struct roi_align_attrs *attrs;
    int64_t images, channels, height, width;
    int64_t rois;
    atomic_bool outside;
};

/* One region: where its bins begin, how large they are and how many samples each has a side. */
struct region {
    float top, left, bin_height, bin_width;
    int64_t samples_down, samples_across;
};

enum { MOST_SAMPLES = 4096 }; /* a side; more comes only from broken regions */

/* False when the region is no region. */
static bool find_region(const struct roi_align_attrs *attrs, const float roi[4],
                        struct region *region)
{
    float offset = attrs->coordinate_transformation_mode == ROI_HALF_PIXEL ? 0.5f : 0;
    float scale = attrs->spatial_scale;
    float height = (roi[3] - roi[1]) * scale, width = (roi[2] - roi[0]) * scale;

    if (attrs->coordinate_transformation_mode == ROI_OUTPUT_HALF_PIXEL) {
        height = height > 1 ? height : 1;
        width = width > 1 ? width : 1;
    }
    region->left = roi[0] * scale - offset;
    region->top = roi[1] * scale - offset;
    region->bin_height = height / (float)attrs->output_height;
    region->bin_width = width / (float)attrs->output_width;
    if (!(fabsf(region->bin_height) < MOST_SAMPLES && fabsf(region->bin_width) < MOST_SAMPLES) ||
        !(fabsf(region->top) < 0x1p30f && fabsf(region->left) < 0x1p30f))
        return false;
    region->samples_down =
        attrs->sampling_ratio > 0 ? attrs->sampling_ratio : (int64_t)ceilf(region->bin_height);
    region->samples_across =
        attrs->sampling_ratio > 0 ? attrs->sampling_ratio : (int64_t)ceilf(region->bin_width);
    return region->samples_down <= MOST_SAMPLES && region->samples_across <= MOST_SAMPLES;
}

/* The two rows (or columns) around a place and the weight of the second; false: outside. */
static bool find_pair(float place, int64_t length, int64_t *low, int64_t *high, float *weight)
{
    if (place < -1 || place > (float)length)
        return false;
    place = place > 0 ? place : 0;
    *low = (int64_t)place;
    *high = *low + 1;
    if (*low >= length - 1) {
        *low = *high = length - 1;
        place = (float)*low;
    }
    *weight = place - (float)*low;
    return true;
}

/* The four weighted elements around a place. */
static void read_four(const struct roi_job *job, const float *plane, float y, float x,
                      float four[4])
{
    int64_t top, bottom, left, right;
    float down, across;

    memset(four, 0, 4 * sizeof(*four));
    if (!find_pair(y, job->height, &top, &bottom, &down) ||
        !find_pair(x, job->width, &left, &right, &across))
        return;
    four[0] = (1 - down) * (1 - across) * plane[top * job->width + left];
    four[1] = (1 - down) * across * plane[top * job->width + right];
    four[2] = down * (1 - across) * plane[bottom * job->width + left];
    four[3] = down * across * plane[bottom * job->width + right];
}

static float pool_bin(const struct roi_job *job, const struct region *region, const float *plane,
                      int64_t row, int64_t column)
{
    int64_t count = region->samples_down * region->samples_across;
    float sum = 0, most = 0;

    for (int64_t i = 0; i < count; i++) {
        int64_t down = i / region->samples_across, across = i % region->samples_across;
        float y = region->top + (float)row * region->bin_height +
                  ((float)down + 0.5f) * region->bin_height / (float)region->samples_down;
        float x = region->left + (float)column * region->bin_width +
                  ((float)across + 0.5f) * region->bin_width / (float)region->samples_across;
        float four[4], larger, other;

        read_four(job, plane, y, x, four);
        sum += four[0] + four[1] + four[2] + four[3];
        larger = four[0] > four[1] ? four[0] : four[1];
        other = four[2] > four[3] ? four[2] : four[3];
        larger = larger > other ? larger : other;
        most = i == 0 || larger > most ? larger : most;
    }
    if (job->attrs->mode == ROI_MAX)
        return most;
    return sum / (float)(count > 1 ? count : 1);
}

static void roi_share(void *arg, unsigned member, unsigned members)
{
    struct roi_job *job = arg;
    int64_t down = job->attrs->output_height, across = job->attrs->output_width;
    size_t first, last;

    team_share((size_t)job->rois, member, members, &first, &last);
    for (int64_t i = (int64_t)first; i < (int64_t)last; i++) {
        int64_t image = read_index(DTYPE_INT64, job->run->in[2], i);
        struct region region;

        if (image < 0 || image >= job->images ||
            !find_region(job->attrs, (const float *)job->run->in[1] + 4 * i, &region)) {
            atomic_store_explicit(&job->outside, true, memory_order_relaxed);
            return;
        }
        for (int64_t k = 0; k < job->channels * down * across; k++) {
            int64_t channel = image * job->channels + k / (down * across);
            const float *plane =
                (const float *)job->run->in[0] + channel * job->height * job->width;

            ((float *)job->run->out[0])[i * job->channels * down * across + k] =
                pool_bin(job, &region, plane, k / across % down, k % across);
        }
    }
}

static const char *refuse_roi(const struct kernel_call *call)
{
    const struct shape *x = &call->in[0]->shape;

    if (x->dims[2] == 0 || x->dims[3] == 0)
        return "an empty image";
    return refuse_types(call);
}

static enum status run_roi(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct shape *x = &call->in[0]->shape;
    struct roi_job job = {
        .run = run,
        .attrs = call->attrs,
        .images = x->dims[0],
        .channels = x->dims[1],
        .height = x->dims[2],
        .width = x->dims[3],
        .rois = call->out[0]->shape.dims[0],
    };
    double elements = (double)shape_count(&call->out[0]->shape);

    (void)state;
    if (job.rois > 0)
        team_run(team_size(call->threads, 40 * elements), roi_share, &job);
    return atomic_load(&job.outside) ? STATUS_INVALID : STATUS_OK;
}

const struct kernel kernel_roi_align_loop = {
    .name = "cpu:loop", .refuses = refuse_roi, .enqueue = run_roi};
