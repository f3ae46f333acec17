/* Pools and LRN for every type and attribute: plain loops, arithmetic in double. */
#include <math.h>

#include "device/cpu/conv/taps.h"
#include "device/cpu/cpu.h"
#include "device/cpu/team.h"
#include "ops/lrn.h"
#include "ops/pool.h"
#include "tensor/element.h"

struct job {
    const struct kernel_call *call;
    const struct pool_attrs *attrs;
    struct window window;
    const void *x;
    void *y;
    int64_t *indices; /* max pool; NULL: not wanted */
    int64_t cells, places;
    void (*cell)(const struct job *job, int64_t plane, int64_t place);
};

static double at(const struct job *job, int64_t plane, int64_t cell)
{
    return element_read(job->call->in[0]->dtype, job->x, (size_t)(plane * job->cells + cell));
}

static void put(const struct job *job, int64_t plane, int64_t place, double value)
{
    element_write(job->call->in[0]->dtype, job->y, (size_t)(plane * job->places + place), value);
}

/* Row-major cell number as storage_order 1 counts it: the first spatial dimension runs fastest. */
static int64_t column_major(const struct window *w, int64_t cell)
{
    int64_t index = 0, place[WINDOW_MAX_RANK] = {0};

    for (size_t i = w->spatial; i-- > 0; cell /= w->in[i])
        place[i] = cell % w->in[i];
    for (size_t i = w->spatial; i-- > 0;)
        index = index * w->in[i] + place[i];
    return index;
}

static void max_cell(const struct job *job, int64_t plane, int64_t place)
{
    struct taps taps;
    int64_t best_cell = -1;
    double best = -(double)INFINITY; /* a NaN is passed over */

    taps_begin(&taps, &job->window, place);
    do {
        double value;

        if (!taps.inside)
            continue;
        value = at(job, plane, taps.cell);
        if (best_cell < 0 || value > best)
            best_cell = taps.cell;
        if (value > best)
            best = value;
    } while (taps_next(&taps));
    put(job, plane, place, best);
    if (job->indices == NULL)
        return;
    if (job->attrs->storage_order != 0 && best_cell >= 0)
        best_cell = column_major(&job->window, best_cell);
    job->indices[plane * job->places + place] = plane * job->cells + best_cell;
}

/* Whether the tap lies on a cell or on padding, not behind it (ceil_mode). */
static bool counts(const struct taps *taps)
{
    const struct window *w = taps->window;

    for (size_t i = 0; i < w->spatial; i++)
        if (taps->start[i] + taps->k[i] * w->dilation[i] >= w->in[i] + w->pad_end[i])
            return false;
    return true;
}

static void average_cell(const struct job *job, int64_t plane, int64_t place)
{
    struct taps taps;
    int64_t count = 0;
    double sum = 0;

    taps_begin(&taps, &job->window, place);
    do {
        if (taps.inside)
            sum += at(job, plane, taps.cell);
        count += taps.inside || (job->attrs->count_include_pad != 0 && counts(&taps));
    } while (taps_next(&taps));
    put(job, plane, place, count > 0 ? sum / (double)count : 0);
}

static void lp_cell(const struct job *job, int64_t plane, int64_t place)
{
    const double p = (double)job->attrs->p;
    struct taps taps;
    double sum = 0;

    taps_begin(&taps, &job->window, place);
    do {
        if (taps.inside)
            sum += pow(fabs(at(job, plane, taps.cell)), p);
    } while (taps_next(&taps));
    put(job, plane, place, pow(sum, 1 / p));
}

static void global_average_cell(const struct job *job, int64_t plane, int64_t place)
{
    double sum = 0;

    for (int64_t i = 0; i < job->cells; i++)
        sum += at(job, plane, i);
    put(job, plane, place, sum / (double)job->cells);
}

static void global_max_cell(const struct job *job, int64_t plane, int64_t place)
{
    double best = -(double)INFINITY;

    for (int64_t i = 0; i < job->cells; i++)
        best = fmax(best, at(job, plane, i)); /* not the NaN of two */
    put(job, plane, place, best);
}

static void global_lp_cell(const struct job *job, int64_t plane, int64_t place)
{
    const double p = (double)job->attrs->p;
    double sum = 0;

    for (int64_t i = 0; i < job->cells; i++)
        sum += pow(fabs(at(job, plane, i)), p);
    put(job, plane, place, pow(sum, 1 / p));
}

static void run_job(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const struct shape *x = &job->call->in[0]->shape;
    size_t from, to;

    team_share((size_t)(x->dims[0] * x->dims[1]), member, members, &from, &to);
    for (size_t plane = from; plane < to; plane++)
        for (int64_t place = 0; place < job->places; place++)
            job->cell(job, (int64_t)plane, place);
}

static enum status pool(void (*cell)(const struct job *, int64_t, int64_t), bool is_global,
                        const struct kernel_call *call, const struct kernel_run *run)
{
    const struct shape *x = &call->in[0]->shape, *y = &call->out[0]->shape;
    struct job job = {.call = call,
                      .attrs = call->attrs,
                      .x = run->in[0],
                      .y = run->out[0],
                      .cells = shape_product(x, 2, x->rank),
                      .places = shape_product(y, 2, y->rank),
                      .cell = cell};

    if (!is_global)
        TRY(pool_resolve(job.attrs, x, &job.window, NULL));
    if (call->outputs > 1 && call->out[1] != NULL)
        job.indices = run->out[1];
    team_run(run->lane->threads, run_job, &job);
    return STATUS_OK;
}

#define ENQUEUE(name, is_global)                                                                   \
    static enum status enqueue_##name(const void *state, const struct kernel_call *call,           \
                                      const struct kernel_run *run)                                \
    {                                                                                              \
        (void)state;                                                                               \
        return pool(name##_cell, is_global, call, run);                                            \
    }
ENQUEUE(max, false)
ENQUEUE(average, false)
ENQUEUE(lp, false)
ENQUEUE(global_average, true)
ENQUEUE(global_max, true)
ENQUEUE(global_lp, true)

static const char *refuses_p(const struct kernel_call *call)
{
    return ((const struct pool_attrs *)call->attrs)->p < 1 ? "p is less than 1" : NULL;
}

/* The channel's sum of squares: floor((size - 1) / 2) channels before, ceil((size - 1) / 2) behind.
 */
static double lrn_sum(const struct job *job, int64_t image, int64_t channel, int64_t cell,
                      int64_t size)
{
    const int64_t channels = job->call->in[0]->shape.dims[1];
    int64_t first = channel - (size - 1) / 2, last = channel + size / 2;
    double sum = 0;

    first = first > 0 ? first : 0;
    last = last < channels - 1 ? last : channels - 1;
    for (int64_t c = first; c <= last; c++) {
        double x = at(job, image * channels + c, cell);

        sum += x * x;
    }
    return sum;
}

static void lrn_cell(const struct job *job, int64_t plane, int64_t cell)
{
    const struct lrn_attrs *attrs = job->call->attrs;
    const int64_t channels = job->call->in[0]->shape.dims[1];
    double sum = lrn_sum(job, plane / channels, plane % channels, cell, attrs->size);

    put(job, plane, cell,
        at(job, plane, cell) /
            pow((double)attrs->bias + (double)attrs->alpha / (double)attrs->size * sum,
                (double)attrs->beta));
}

static enum status enqueue_lrn(const void *state, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    (void)state;
    return pool(lrn_cell, true, call, run);
}

const struct kernel kernel_max_pool_plain = {.name = "cpu:plain", .enqueue = enqueue_max};
const struct kernel kernel_average_pool_plain = {.name = "cpu:plain", .enqueue = enqueue_average};
const struct kernel kernel_lp_pool_plain = {
    .name = "cpu:plain", .refuses = refuses_p, .enqueue = enqueue_lp};
const struct kernel kernel_global_average_pool_plain = {.name = "cpu:plain",
                                                        .enqueue = enqueue_global_average};
const struct kernel kernel_global_max_pool_plain = {.name = "cpu:plain",
                                                    .enqueue = enqueue_global_max};
const struct kernel kernel_global_lp_pool_plain = {
    .name = "cpu:plain", .refuses = refuses_p, .enqueue = enqueue_global_lp};
const struct kernel kernel_lrn_plain = {.name = "cpu:plain", .enqueue = enqueue_lrn};
