/* GridSample and RoiAlign, one output element a thread. */
#include <math.h>

#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/sample.h"
#include "device/cuda/kernels/walk.cuh"

/* ---- GridSample ---- */

enum { TAPS = 4 };

/* What one output point reads along one axis. */
struct taps {
    int count;
    int64_t index[TAPS]; /* -1: outside, reads zero */
    float weight[TAPS];
};

__device__ static inline float reflected(float x, float low, float high)
{
    const float range = high - low;
    float beyond = x < low ? low - x : x - high, turns;

    if (beyond <= 0)
        return x;
    if (range <= 0)
        return low;
    turns = floorf(__fdiv_rn(beyond, range));
    beyond = __fsub_rn(beyond, __fmul_rn(turns, range));
    if ((x < low) == (fmodf(turns, 2) == 0))
        return low + beyond;
    return high - beyond;
}

/* An element's index after padding; -1 when it is outside and reads zero. */
__device__ static inline int64_t settled(const struct grid_sample &g, int64_t i, int64_t length,
                                         float low, float high)
{
    if (i >= 0 && i < length)
        return i;
    if (g.padding == SAMPLE_ZEROS)
        return -1;
    if (g.padding == SAMPLE_REFLECTION)
        i = (int64_t)reflected((float)i, low, high);
    return i < 0 ? 0 : i >= length ? length - 1 : i;
}

__device__ static inline void cubic_weights(float s, float (&w)[TAPS])
{
    const float a = -0.75f;

    w[0] = ((a * (s + 1) - 5 * a) * (s + 1) + 8 * a) * (s + 1) - 4 * a;
    w[1] = ((a + 2) * s - (a + 3)) * s * s + 1;
    w[2] = ((a + 2) * (1 - s) - (a + 3)) * (1 - s) * (1 - s) + 1;
    w[3] = ((a * (2 - s) - 5 * a) * (2 - s) + 8 * a) * (2 - s) - 4 * a;
}

/* Where a grid's number, -1 to 1, falls among `length` elements. */
__device__ static inline float place_of(const struct grid_sample &g, float number, float length)
{
    const float from_one = __fadd_rn(number, 1);

    return g.align_corners ? __fmul_rn(from_one / 2, length - 1)
                           : __fsub_rn(__fmul_rn(from_one, length), 1) / 2;
}

__device__ static inline struct taps find_taps(const struct grid_sample &g, float number,
                                               int64_t length)
{
    const float far = 1073741824.0f; /* whatever is farther away is outside all the same */
    const float low = g.align_corners ? 0 : -0.5f;
    const float high = g.align_corners ? (float)length - 1 : (float)length - 0.5f;
    float x = place_of(g, number, (float)length);
    struct taps taps;
    int64_t first;

    x = x > -far ? (x < far ? x : far) : -far; /* a NaN too */
    if (g.by == SAMPLE_NEAREST)
        x = rintf(x);
    if (g.padding == SAMPLE_BORDER && (x < low || x > high))
        x = x < 0 ? 0 : x > (float)(length - 1) ? (float)(length - 1) : x;
    else if (g.padding == SAMPLE_REFLECTION && (x < low || x > high))
        x = reflected(x, low, high);
    first = (int64_t)floorf(x);
    taps.count = g.by == SAMPLE_NEAREST ? 1 : g.by == SAMPLE_BY_LINES ? 2 : 4;
    taps.weight[1] = x - (float)first;
    taps.weight[0] = g.by == SAMPLE_NEAREST ? 1 : 1 - taps.weight[1];
    if (g.by == SAMPLE_BY_CUBES)
        cubic_weights(x - (float)first--, taps.weight);
    for (int t = 0; t < taps.count; t++)
        taps.index[t] = settled(g, first + t, length, low, high);
    return taps;
}

__global__ void __launch_bounds__(BLOCK_THREADS)
    grid_sample_kernel(const __grid_constant__ struct grid_sample g)
{
    for (GRID_STRIDE(i, g.batch * g.channels * g.points)) {
        const int64_t point = i % g.points, plane = i / g.points;
        const float *grid = g.grid + (plane / g.channels * g.points + point) * g.axes;
        struct taps taps[SAMPLE_AXES];
        int combinations = 1;
        float sum = 0;

        for (int axis = 0; axis < g.axes; axis++) {
            taps[axis] = find_taps(g, grid[g.axes - 1 - axis], g.lengths[axis]);
            combinations *= taps[axis].count;
        }
        for (int c = 0; c < combinations; c++) {
            int64_t at = 0, step = 1;
            bool outside = false;
            float weight = 1;
            int rest = c;

            for (int axis = g.axes - 1; axis >= 0; axis--) {
                const int tap = rest % taps[axis].count;

                rest /= taps[axis].count;
                outside = outside || taps[axis].index[tap] < 0;
                at += taps[axis].index[tap] * step;
                step *= g.lengths[axis];
                weight *= taps[axis].weight[tap];
            }
            if (!outside)
                sum += weight * g.in[plane * g.places + at];
        }
        g.out[i] = sum;
    }
}

extern "C" cudaError_t cuda_grid_sample(const struct grid_sample *sample, cudaStream_t stream)
{
    const int64_t count = sample->batch * sample->channels * sample->points;

    if (count == 0)
        return cudaSuccess;
    grid_sample_kernel<<<grid_for(count), BLOCK_THREADS, 0, stream>>>(*sample);
    return cudaGetLastError();
}

/* ---- RoiAlign ---- */

/* One region: where its bins begin, how large they are and how many samples each has a side. */
struct region {
    float top, left, bin_height, bin_width;
    int64_t samples_down, samples_across;
};

#define MOST_SAMPLES 4096 /* a side; more comes only from broken regions */

/* False when the region is no region. */
__device__ static inline bool find_region(const struct roi_align &r, const float *roi,
                                          struct region *region)
{
    const float offset = r.half_pixel ? 0.5f : 0;
    float height = __fmul_rn(roi[3] - roi[1], r.scale), width = __fmul_rn(roi[2] - roi[0], r.scale);

    if (r.at_least_one) {
        height = height > 1 ? height : 1;
        width = width > 1 ? width : 1;
    }
    region->left = __fsub_rn(__fmul_rn(roi[0], r.scale), offset);
    region->top = __fsub_rn(__fmul_rn(roi[1], r.scale), offset);
    region->bin_height = __fdiv_rn(height, (float)r.out_height);
    region->bin_width = __fdiv_rn(width, (float)r.out_width);
    if (!(fabsf(region->bin_height) < MOST_SAMPLES && fabsf(region->bin_width) < MOST_SAMPLES) ||
        !(fabsf(region->top) < 1073741824.0f && fabsf(region->left) < 1073741824.0f))
        return false;
    region->samples_down = r.samples > 0 ? r.samples : (int64_t)ceilf(region->bin_height);
    region->samples_across = r.samples > 0 ? r.samples : (int64_t)ceilf(region->bin_width);
    return region->samples_down <= MOST_SAMPLES && region->samples_across <= MOST_SAMPLES;
}

/* The two rows (or columns) around a place and the weight of the second; false: outside. */
__device__ static inline bool find_pair(float place, int64_t length, int64_t *low, int64_t *high,
                                        float *weight)
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

/* Adds the four weighted elements around a place; takes the largest of them. */
__device__ static inline void read_four(const struct roi_align &r, const float *plane, float y,
                                        float x, float *sum, float *largest)
{
    int64_t top, bottom, left, right;
    float down, across, four[4] = {0, 0, 0, 0};

    if (find_pair(y, r.height, &top, &bottom, &down) &&
        find_pair(x, r.width, &left, &right, &across)) {
        four[0] = (1 - down) * (1 - across) * plane[top * r.width + left];
        four[1] = (1 - down) * across * plane[top * r.width + right];
        four[2] = down * (1 - across) * plane[bottom * r.width + left];
        four[3] = down * across * plane[bottom * r.width + right];
    }
    *sum += four[0] + four[1] + four[2] + four[3];
    *largest = four[0];
    for (int i = 1; i < 4; i++)
        *largest = *largest > four[i] ? *largest : four[i];
}

/* Where sample `number` of bin `bin` lies. */
__device__ static inline float sample_place(float start, float length, int64_t bin, int64_t number,
                                            int64_t samples)
{
    return __fadd_rn(__fadd_rn(start, __fmul_rn((float)bin, length)),
                     __fdiv_rn(__fmul_rn(__fadd_rn((float)number, 0.5f), length), (float)samples));
}

__device__ static inline float pool_bin(const struct roi_align &r, const struct region &region,
                                        const float *plane, int64_t row, int64_t column)
{
    const int64_t count = region.samples_down * region.samples_across;
    float sum = 0, most = 0;

    for (int64_t i = 0; i < count; i++) {
        const float y = sample_place(region.top, region.bin_height, row, i / region.samples_across,
                                     region.samples_down);
        const float x = sample_place(region.left, region.bin_width, column,
                                     i % region.samples_across, region.samples_across);
        float largest;

        read_four(r, plane, y, x, &sum, &largest);
        most = i == 0 || largest > most ? largest : most;
    }
    return r.takes_largest ? most : sum / (float)(count > 1 ? count : 1);
}

__global__ void __launch_bounds__(BLOCK_THREADS)
    roi_align_kernel(const __grid_constant__ struct roi_align r)
{
    const int64_t bins = r.out_height * r.out_width;

    for (GRID_STRIDE(i, r.rois * r.channels * bins)) {
        const int64_t roi = i / bins / r.channels, channel = i / bins % r.channels;
        const int64_t image = r.image[roi];
        struct region region;

        if (image < 0 || image >= r.images || !find_region(r, r.regions + 4 * roi, &region)) {
            *r.fault = 1;
            continue;
        }
        r.out[i] = pool_bin(r, region, r.in + (image * r.channels + channel) * r.height * r.width,
                            i % bins / r.out_width, i % r.out_width);
    }
}

extern "C" cudaError_t cuda_roi_align(const struct roi_align *align, cudaStream_t stream)
{
    const int64_t count = align->rois * align->channels * align->out_height * align->out_width;

    if (count == 0)
        return cudaSuccess;
    roi_align_kernel<<<grid_for(count), BLOCK_THREADS, 0, stream>>>(*align);
    return cudaGetLastError();
}
