/* Between real and quantised numbers: q = saturate(round(x / scale) + zero), x = (q - zero) *
 * scale.
 *
 * A tensor is [outer, count, inner] around the axis; runs of `inner` elements share a scale (for
 * blocks each has its own).
 */
#include "ops/quantize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/bytes/dynamic.h"
#include "device/cpu/convert.h"
#include "device/cpu/cpu.h"
#include "device/cpu/team.h"

enum { CHUNK = 256 };

struct quantize_state {
    const struct loops *loops;
    struct quantize_geometry geometry;
    enum dtype in_type, scale_type, zero_type, out_type;
    double low, high; /* of the quantised type */
};

struct quantize_job {
    const struct quantize_state *state;
    const char *in, *scale, *zero; /* zero may be NULL */
    char *out;
};

struct parameters {
    float scale;
    int32_t zero;
};

static struct parameters parameters_at(const struct quantize_job *job, size_t index)
{
    const struct quantize_state *state = job->state;
    struct parameters p = {.zero = 0};

    convert(state->loops, state->scale_type, job->scale + index * dtype_bytes(state->scale_type),
            DTYPE_FLOAT, &p.scale, 1);
    if (job->zero != NULL)
        convert(state->loops, state->zero_type, job->zero + index * dtype_bytes(state->zero_type),
                DTYPE_INT32, &p.zero, 1);
    return p;
}

/* ---- to integers ---- */

static int32_t quantised(const struct quantize_state *state, float x, struct parameters p)
{
    double value = (double)rintf(x / p.scale) + p.zero;

    if (isnan(value)) /* ONNX leaves it open; zero is what the CPU's own conversion ends in */
        return p.zero;
    return (int32_t)(value < state->low ? state->low : value > state->high ? state->high : value);
}

/* int32 inputs may have more digits than a float. */
static int32_t quantised_int(const struct quantize_state *state, int32_t x, struct parameters p)
{
    double value = rint((double)x / (double)p.scale) + p.zero;

    if (isnan(value))
        return p.zero;
    return (int32_t)(value < state->low ? state->low : value > state->high ? state->high : value);
}

static void quantize_run(const struct quantize_job *job, size_t at, size_t count,
                         struct parameters p)
{
    const struct quantize_state *state = job->state;
    const struct byte_range range = {(float)p.zero, (float)state->low, (float)state->high};
    int32_t results[CHUNK];
    float reals[CHUNK];

    if (state->in_type == DTYPE_FLOAT && dtype_bytes(state->out_type) == 1) {
        state->loops->quantize_bytes((const float *)(const void *)job->in + at,
                                     (uint8_t *)job->out + at, count, p.scale, &range);
        return;
    }
    for (size_t i = 0; i < count; i += CHUNK) {
        size_t n = count - i < CHUNK ? count - i : CHUNK;
        const char *in = job->in + (at + i) * dtype_bytes(state->in_type);

        if (state->in_type == DTYPE_INT32) {
            for (size_t k = 0; k < n; k++)
                results[k] = quantised_int(state, ((const int32_t *)(const void *)in)[k], p);
        } else {
            convert(state->loops, state->in_type, in, DTYPE_FLOAT, reals, n);
            for (size_t k = 0; k < n; k++)
                results[k] = quantised(state, reals[k], p);
        }
        convert(state->loops, DTYPE_INT32, results, state->out_type,
                job->out + (at + i) * dtype_bytes(state->out_type), n);
    }
}

/* ---- to reals ---- */

static void dequantize_run(const struct quantize_job *job, size_t at, size_t count,
                           struct parameters p)
{
    const struct quantize_state *state = job->state;
    int32_t numbers[CHUNK];
    float reals[CHUNK];

    for (size_t i = 0; i < count; i += CHUNK) {
        size_t n = count - i < CHUNK ? count - i : CHUNK;

        convert(state->loops, state->in_type, job->in + (at + i) * dtype_bytes(state->in_type),
                DTYPE_INT32, numbers, n);
        if (dtype_bytes(state->in_type) < sizeof(int32_t))
            for (size_t k = 0; k < n; k++)
                reals[k] = (float)(numbers[k] - p.zero) * p.scale;
        else
            for (size_t k = 0; k < n; k++)
                reals[k] = (float)((int64_t)numbers[k] - p.zero) * p.scale;
        convert(state->loops, DTYPE_FLOAT, reals, state->out_type,
                job->out + (at + i) * dtype_bytes(state->out_type), n);
    }
}

/* ---- the kernels ---- */

static void run_line(const struct quantize_job *job, size_t line, bool to_integers)
{
    const struct quantize_geometry *g = &job->state->geometry;
    size_t inner = (size_t)g->inner, count = (size_t)g->count, block = (size_t)g->block;
    size_t at = line * inner, place = line % count;
    size_t runs = g->by == QUANTIZE_BLOCK ? inner : 1, length = inner / runs;

    for (size_t i = 0; i < runs; i++) {
        size_t index = 0;

        if (g->by == QUANTIZE_AXIS)
            index = place;
        else if (g->by == QUANTIZE_BLOCK)
            index = (line / count * ((count + block - 1) / block) + place / block) * inner + i;
        if (to_integers)
            quantize_run(job, at + i * length, length, parameters_at(job, index));
        else
            dequantize_run(job, at + i * length, length, parameters_at(job, index));
    }
}

static void quantize_lines(void *arg, unsigned member, unsigned members)
{
    const struct quantize_job *job = arg;
    const struct quantize_geometry *g = &job->state->geometry;
    size_t from, to;

    team_share((size_t)(g->outer * g->count), member, members, &from, &to);
    for (size_t i = from; i < to; i++)
        run_line(job, i, true);
}

static void dequantize_lines(void *arg, unsigned member, unsigned members)
{
    const struct quantize_job *job = arg;
    const struct quantize_geometry *g = &job->state->geometry;
    size_t from, to;

    team_share((size_t)(g->outer * g->count), member, members, &from, &to);
    for (size_t i = from; i < to; i++)
        run_line(job, i, false);
}

static void range_of(enum dtype dtype, double *low, double *high)
{
    bool is_signed = dtype == DTYPE_INT8 || dtype == DTYPE_INT16;
    double values = dtype_bytes(dtype) == 1 ? 256 : 65536;

    *low = is_signed ? -values / 2 : 0;
    *high = *low + values - 1;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct quantize_state *state = calloc(1, sizeof(*state));
    enum status status;

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a kernel's state");
    status = quantize_geometry(call->attrs, &call->in[0]->shape, &call->in[1]->shape,
                               &state->geometry, err);
    if (status != STATUS_OK) {
        free(state);
        return status;
    }
    state->loops = loops_for(call->device);
    state->in_type = call->in[0]->dtype;
    state->scale_type = call->in[1]->dtype;
    state->zero_type = call->inputs > 2 && call->in[2] != NULL ? call->in[2]->dtype : DTYPE_NONE;
    state->out_type = call->out[0]->dtype;
    range_of(state->out_type, &state->low, &state->high);
    prepare->constants_used = 7;
    prepare->state = state;
    return STATUS_OK;
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct quantize_state *state = arg;
    struct quantize_job job = {.state = state,
                               .in = run->in[0],
                               .scale = run->in[1],
                               .zero = state->zero_type != DTYPE_NONE ? run->in[2] : NULL,
                               .out = run->out[0]};
    int64_t count = shape_count(&call->in[0]->shape);

    if (count == 0)
        return STATUS_OK;
    team_run(team_size(run->lane->threads, (double)count * 2),
             call->op == &op_quantize_linear ? quantize_lines : dequantize_lines, &job);
    return STATUS_OK;
}

const struct kernel kernel_quantize_linear_loops = {
    .name = "cpu:loops",
    .prepare = prepare,
    .enqueue = enqueue,
    .release = free,
};

const struct kernel kernel_dequantize_linear_loops = {
    .name = "cpu:loops",
    .prepare = prepare,
    .enqueue = enqueue,
    .release = free,
};

/* ---- dynamic: the range is that of the tensor, zero included ---- */

/* A member looks for the smallest and the largest of its share, and when all have done so makes
 * bytes of it. */
enum { RANGE_PIECE = 4096 }; /* floats that stay in L1 between looking for the one and the other */

struct member_range {
    _Alignas(64) float low; /* members write to lines of their own */
    float high;
};

struct dynamic_job {
    const struct loops *loops;
    const float *x;
    size_t count;
    uint8_t *y;
    struct member_range *ranges;
    float *scale;  /* NULL: not asked for */
    uint8_t *zero; /* the same */
};

static void widen_range(struct member_range *range, float low, float high)
{
    range->low = range->low < low || isnan(range->low) ? range->low : low; /* a NaN stays */
    range->high = range->high > high || isnan(range->high) ? range->high : high;
}

static void look(const struct dynamic_job *job, size_t from, size_t to, struct member_range *range)
{
    *range = (struct member_range){.low = 0, .high = 0};

    for (size_t n; from < to; from += n) {
        n = to - from < RANGE_PIECE ? to - from : RANGE_PIECE;
        widen_range(range, (float)job->loops->row[REDUCE_min](job->x + from, n, 0),
                    (float)job->loops->row[REDUCE_max](job->x + from, n, 0));
    }
}

static void quantize_share(void *arg, unsigned member, unsigned members)
{
    const struct dynamic_job *job = arg;
    struct member_range all = {.low = 0, .high = 0};
    struct dynamic p;
    size_t from, to;

    team_share(job->count, member, members, &from, &to);
    look(job, from, to, &job->ranges[member]);
    if (members > 1)
        team_barrier();
    for (unsigned i = 0; i < members; i++)
        widen_range(&all, job->ranges[i].low, job->ranges[i].high);
    p = dynamic_of(all.low, all.high);
    if (p.scale > 0)
        job->loops->quantize_bytes(job->x + from, job->y + from, to - from, p.scale,
                                   &(struct byte_range){(float)p.zero, 0, 255});
    else
        memset(job->y + from, 0, to - from);
    if (member == 0 && job->scale != NULL)
        *job->scale = p.scale;
    if (member == 0 && job->zero != NULL)
        *job->zero = (uint8_t)p.zero;
}

static enum status prepare_dynamic(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->constants_used = 1;
    prepare->scratch_bytes =
        (prepare->call.threads > 0 ? prepare->call.threads : 1) * sizeof(struct member_range);
    return STATUS_OK;
}

static enum status enqueue_dynamic(const void *arg, const struct kernel_call *call,
                                   const struct kernel_run *run)
{
    struct dynamic_job job = {.loops = loops_for(call->device),
                              .x = run->in[0],
                              .count = (size_t)shape_count(&call->in[0]->shape),
                              .y = run->out[0],
                              .ranges = run->scratch};

    (void)arg;
    if (call->outputs > 1 && call->out[1] != NULL)
        job.scale = run->out[1];
    if (call->outputs > 2 && call->out[2] != NULL)
        job.zero = run->out[2];
    team_run(team_size(call->threads, (double)job.count / 5), quantize_share, &job);
    return STATUS_OK;
}

const struct kernel kernel_dynamic_quantize_linear_loops = {
    .name = "cpu:loops",
    .flags = KERNEL_BATCH_INEXACT,
    .prepare = prepare_dynamic,
    .enqueue = enqueue_dynamic,
};
