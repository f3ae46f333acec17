/* Reference numbers: every operation over whole tensors in float, in the engine's order. */
#include "part.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct values {
    float *of[DNN_TENSORS]; /* in the order of N, C, space; NULL: not yet */
};

/* Element number of row-major index `i` in memory. */
static int64_t place_of(const struct tensor *tensor, int64_t i)
{
    int64_t at = 0;

    for (size_t d = tensor->rank; d-- > 0;) {
        at += i % tensor->sizes[d] * tensor->strides[d];
        i /= tensor->sizes[d];
    }
    return at;
}

static void *view(const struct tensor *tensor, bool write)
{
    int64_t last = 0;

    for (size_t d = 0; d < tensor->rank; d++)
        last += (tensor->sizes[d] - 1) * tensor->strides[d];
    return sim_view(tensor->at, (size_t)(last + 1) * element_bytes(tensor->element), write);
}

static bool load(const struct job *job, struct values *values, unsigned index)
{
    const struct tensor *tensor = &job->network.tensor[index];
    int64_t count = tensor_count(tensor);
    const void *data;

    if (values->of[index] != NULL)
        return true;
    data = view(tensor, false);
    if (data == NULL)
        return false;
    values->of[index] = malloc((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        float value = element_get(tensor->element, data, place_of(tensor, i));

        values->of[index][i] = job->tf32 ? element_to_tf32(value) : value;
    }
    return true;
}

static void store(const struct tensor *tensor, const float *from)
{
    void *data = view(tensor, true);

    for (int64_t i = 0, elements = tensor_count(tensor); data != NULL && i < elements; i++)
        element_put(tensor->element, data, place_of(tensor, i), from[i]);
}

/* ---- windows ---- */

struct spot {
    int64_t at[DNN_RANK - 2]; /* place in the narrow tensor */
    int64_t tap[DNN_RANK - 2];
};

static void unfold(int64_t index, const int64_t *sizes, size_t rank, int64_t *out)
{
    for (size_t d = rank; d-- > 0;) {
        out[d] = index % sizes[d];
        index /= sizes[d];
    }
}

/* The cell of the wide tensor under a tap; -1: in the padding. */
static int64_t cell_of(const struct operation *operation, const struct tensor *wide,
                       const struct spot *spot)
{
    int64_t cell = 0;

    for (size_t d = 0; d + 2 < wide->rank; d++) {
        int64_t x = spot->at[d] * operation->stride[d] - operation->pad_begin[d] +
                    spot->tap[d] * operation->dilation[d];

        if (x < 0 || x >= wide->sizes[d + 2])
            return -1;
        cell = cell * wide->sizes[d + 2] + x;
    }
    return cell;
}

static int64_t cells(const struct tensor *tensor)
{
    return tensor_count(tensor) / tensor->sizes[0] / tensor->sizes[1];
}

static int64_t taps(const struct operation *operation, size_t rank)
{
    int64_t count = 1;

    for (size_t d = 0; d + 2 < rank; d++)
        count *= operation->window[d];
    return count;
}

/* Adds up `chunk` products before they go to the sum. */
struct adder {
    float sum, part;
    uint32_t count, chunk;
};

static void add(struct adder *adder, float product)
{
    adder->part += product;
    if (++adder->count % adder->chunk == 0) {
        adder->sum += adder->part;
        adder->part = 0;
    }
}

/* Places of one plane of the result that follow each other, under one tap, of which `full` products
 * wait to go to the sum. */
struct run {
    int64_t first, count, cell, tap; /* cell: of the first, the next are `stride` apart */
    uint32_t full;
};

/* All of them, tap by tap; at most taps * places.  waiting[i] is 0 for each place; under each tap
 * come `per` products. */
static size_t find_runs(const struct job *job, const struct operation *operation,
                        const struct tensor *x, const struct tensor *y, int64_t per,
                        uint32_t *waiting, struct run *runs)
{
    const int64_t places = cells(y), count = taps(operation, x->rank);
    const int64_t line = y->sizes[y->rank - 1], stride = operation->stride[x->rank - 3];
    struct spot spot;
    size_t found = 0;

    for (int64_t tap = 0; tap < count; tap++) {
        struct run *open = NULL;

        unfold(tap, operation->window, x->rank - 2, spot.tap);
        for (int64_t i = 0; i < places; i++) {
            int64_t cell;

            unfold(i, y->sizes + 2, y->rank - 2, spot.at);
            cell = cell_of(operation, x, &spot);
            if (cell < 0 || i % line == 0)
                open = NULL;
            if (cell < 0)
                continue;
            if (open == NULL || open->full != waiting[i]) {
                open = &runs[found++];
                *open = (struct run){i, 0, cell, tap, waiting[i]};
            }
            assert(cell == open->cell + open->count * stride);
            open->count++;
            waiting[i] = (uint32_t)((waiting[i] + per) % job->engine.chunk);
        }
    }
    return found;
}

static void add_run(const struct run *run, int64_t stride, const float *image, float weight,
                    float *part)
{
    const float *restrict from = image + run->cell;
    float *restrict to = part + run->first;

    if (stride == 1)
        for (int64_t i = 0; i < run->count; i++)
            to[i] += from[i] * weight;
    else
        for (int64_t i = 0; i < run->count; i++)
            to[i] += from[i * stride] * weight;
}

/* Adds up as struct adder does, tap by tap and of each the channels, a whole plane at a time. */
static void convolve_plane(const struct job *job, const struct operation *operation,
                           const struct run *runs, size_t run_count, const float *image,
                           const float *weights, float *part, float *sum)
{
    const struct tensor *x = &job->network.tensor[operation->x];
    const struct tensor *w = &job->network.tensor[operation->w];
    const int64_t per = w->sizes[1], count = taps(operation, x->rank), plane = cells(x);
    const int64_t stride = operation->stride[x->rank - 3], chunk = job->engine.chunk;

    for (size_t r = 0; r < run_count; r++) {
        int64_t full = runs[r].full;

        for (int64_t c = 0; c < per; c++) {
            add_run(&runs[r], stride, image + c * plane, weights[c * count + runs[r].tap], part);
            if (++full < chunk)
                continue;
            full = 0;
            for (int64_t i = runs[r].first; i < runs[r].first + runs[r].count; i++) {
                sum[i] += part[i];
                part[i] = 0;
            }
        }
    }
}

/* The same of all channels of a group side by side: sums are [place][channel], and weights
 * [tap][channel of the image][channel], so that loops are long however small the plane is. */
static void convolve_group(const struct job *job, const struct operation *operation,
                           const struct run *runs, size_t run_count, const float *image,
                           const float *weights, int64_t channels, float *part, float *sum)
{
    const struct tensor *x = &job->network.tensor[operation->x];
    const int64_t per = job->network.tensor[operation->w].sizes[1], plane = cells(x);
    const int64_t stride = operation->stride[x->rank - 3], chunk = job->engine.chunk;

    for (size_t r = 0; r < run_count; r++) {
        const int64_t first = runs[r].first * channels, count = runs[r].count * channels;
        int64_t full = runs[r].full;

        for (int64_t c = 0; c < per; c++) {
            const float *restrict weight = weights + (runs[r].tap * per + c) * channels;
            const float *from = image + c * plane + runs[r].cell;

            for (int64_t i = 0; i < runs[r].count; i++) {
                float *restrict to = part + first + i * channels;
                const float value = from[i * stride];

                for (int64_t m = 0; m < channels; m++)
                    to[m] += value * weight[m];
            }
            if (++full < chunk)
                continue;
            full = 0;
            for (int64_t i = first; i < first + count; i++) {
                sum[i] += part[i];
                part[i] = 0;
            }
        }
    }
}

/* What both ways work with, for one operation. */
struct convolution {
    const struct job *job;
    const struct operation *operation;
    const struct tensor *x, *w, *y;
    const float *in, *weights;
    float *out;
    int64_t per, count, places, groups, channels; /* channels: of a group's result */
    struct run *runs;
    size_t run_count;
};

static void convolve_planes(const struct convolution *c)
{
    float *part = malloc((size_t)c->places * sizeof(*part));

    for (int64_t nm = 0; nm < c->y->sizes[0] * c->y->sizes[1]; nm++) {
        const int64_t n = nm / c->y->sizes[1], m = nm % c->y->sizes[1];
        float *sum = c->out + nm * c->places;

        memset(part, 0, (size_t)c->places * sizeof(*part));
        memset(sum, 0, (size_t)c->places * sizeof(*sum));
        convolve_plane(c->job, c->operation, c->runs, c->run_count,
                       c->in + (n * c->x->sizes[1] + m / c->channels * c->per) * cells(c->x),
                       c->weights + m * c->per * c->count, part, sum);
        for (int64_t i = 0; i < c->places; i++)
            sum[i] += part[i];
    }
    free(part);
}

static void convolve_groups(const struct convolution *c)
{
    const int64_t sums = c->places * c->channels, products = c->per * c->count;
    float *turned = malloc((size_t)(products * c->channels) * sizeof(*turned));
    float *part = malloc((size_t)sums * sizeof(*part)), *sum = malloc((size_t)sums * sizeof(*sum));

    for (int64_t g = 0; g < c->groups; g++) {
        for (int64_t m = 0; m < c->channels; m++)
            for (int64_t k = 0; k < products; k++)
                turned[(k % c->count * c->per + k / c->count) * c->channels + m] =
                    c->weights[(g * c->channels + m) * products + k];
        for (int64_t n = 0; n < c->y->sizes[0]; n++) {
            float *out = c->out + (n * c->y->sizes[1] + g * c->channels) * c->places;

            memset(part, 0, (size_t)sums * sizeof(*part));
            memset(sum, 0, (size_t)sums * sizeof(*sum));
            convolve_group(c->job, c->operation, c->runs, c->run_count,
                           c->in + (n * c->x->sizes[1] + g * c->per) * cells(c->x), turned,
                           c->channels, part, sum);
            for (int64_t m = 0; m < c->channels; m++)
                for (int64_t i = 0; i < c->places; i++)
                    out[m * c->places + i] = sum[i * c->channels + m] + part[i * c->channels + m];
        }
    }
    free(turned);
    free(part);
    free(sum);
}

static bool is_nothing_but_nan(const float *values, int64_t count)
{
    int64_t i = 0;

    while (i < count && isnan(values[i]))
        i++;
    return i == count;
}

static void convolve(const struct job *job, const struct operation *operation,
                     struct values *values)
{
    struct convolution c = {.job = job,
                            .operation = operation,
                            .x = &job->network.tensor[operation->x],
                            .w = &job->network.tensor[operation->w],
                            .y = &job->network.tensor[operation->y],
                            .in = values->of[operation->x],
                            .weights = values->of[operation->w],
                            .out = values->of[operation->y]};
    uint32_t *waiting;

    if (is_nothing_but_nan(c.weights, tensor_count(c.w))) { /* somebody asks what becomes of it */
        for (int64_t i = 0, elements = tensor_count(c.y); i < elements; i++)
            c.out[i] = NAN;
        return;
    }
    c.per = c.w->sizes[1];
    c.count = taps(operation, c.x->rank);
    c.places = cells(c.y);
    c.groups = c.x->sizes[1] / c.per;
    c.channels = c.w->sizes[0] / c.groups;
    c.runs = malloc((size_t)(c.count * c.places) * sizeof(*c.runs));
    waiting = calloc((size_t)c.places, sizeof(*waiting));
    c.run_count = find_runs(job, operation, c.x, c.y, c.per, waiting, c.runs);
    free(waiting);
    if (c.channels < 8)
        convolve_planes(&c);
    else
        convolve_groups(&c);
    free(c.runs);
}

/* Every element of x (dy) is spread over y (dx). */
static void convolve_back(const struct job *job, const struct operation *operation,
                          struct values *values)
{
    const struct tensor *x = &job->network.tensor[operation->x];
    const struct tensor *w = &job->network.tensor[operation->w];
    const struct tensor *y = &job->network.tensor[operation->y];
    int64_t per = w->sizes[1], groups = y->sizes[1] / per, count = taps(operation, x->rank);
    const int64_t elements = tensor_count(x), x_plane = cells(x), y_plane = cells(y);
    float *out = values->of[operation->y];
    struct spot spot;

    memset(out, 0, (size_t)tensor_count(y) * sizeof(*out));
    for (int64_t i = 0; i < elements; i++) {
        int64_t k = i / x_plane % x->sizes[1], n = i / x_plane / x->sizes[1];
        int64_t first = k / (w->sizes[0] / groups) * per;

        unfold(i % x_plane, x->sizes + 2, x->rank - 2, spot.at);
        for (int64_t tap = 0; tap < count; tap++) {
            int64_t cell;

            unfold(tap, operation->window, x->rank - 2, spot.tap);
            cell = cell_of(operation, y, &spot);
            for (int64_t c = 0; cell >= 0 && c < per; c++)
                out[(n * y->sizes[1] + first + c) * y_plane + cell] +=
                    values->of[operation->x][i] *
                    values->of[operation->w][(k * per + c) * count + tap];
        }
    }
}

static void pool(const struct job *job, const struct operation *operation, struct values *values)
{
    const struct tensor *x = &job->network.tensor[operation->x];
    const struct tensor *y = &job->network.tensor[operation->y];
    int64_t all = taps(operation, x->rank);
    const int64_t elements = tensor_count(y), x_plane = cells(x), y_plane = cells(y);
    struct spot spot;

    for (int64_t i = 0; i < elements; i++) {
        float sum = 0, most = -INFINITY;
        int64_t count = 0;

        unfold(i % y_plane, y->sizes + 2, y->rank - 2, spot.at);
        for (int64_t tap = 0; tap < all; tap++) {
            int64_t cell;
            float value;

            unfold(tap, operation->window, x->rank - 2, spot.tap);
            cell = cell_of(operation, x, &spot);
            if (cell < 0)
                continue;
            value = values->of[operation->x][i / y_plane * x_plane + cell];
            most = value > most || isnan(value) ? value : most;
            sum += value;
            count++;
        }
        if (operation->kind == POOL_MAX)
            values->of[operation->y][i] = most;
        else
            values->of[operation->y][i] =
                sum / (float)(operation->kind == POOL_AVERAGE ? count : all);
    }
}

/* ---- pointwise ---- */

static float activate(enum operation_kind kind, float x)
{
    switch (kind) {
    case SIGMOID:
        return 1 / (1 + expf(-x));
    case TANH:
        return tanhf(x);
    case SWISH:
        return x / (1 + expf(-x));
    case GELU:
        return 0.5F * x * (1 + erff(x * 0.70710678F));
    case GELU_TANH:
        return 0.5F * x * (1 + tanhf(0.79788456F * (x + 0.044715F * x * x * x)));
    default:
        return x > 0 || (isnan(x) && sim_nan_is_kept()) ? x : 0;
    }
}

static void pointwise(const struct job *job, const struct operation *operation,
                      struct values *values)
{
    const struct tensor *b = &job->network.tensor[operation->w];
    const struct tensor *y = &job->network.tensor[operation->y];
    struct tensor spread = *b; /* b, seen with the sizes of y */
    int64_t stride = 1;

    for (size_t d = b->rank; d-- > 0; stride *= b->sizes[d])
        spread.strides[d] = b->sizes[d] == 1 ? 0 : stride;
    memcpy(spread.sizes, y->sizes, sizeof(spread.sizes));
    for (int64_t i = 0, elements = tensor_count(y); i < elements; i++) {
        float x = values->of[operation->x][i];

        if (operation->kind == ADD)
            x += values->of[operation->w][place_of(&spread, i)];
        else
            x = activate(operation->kind, x);
        values->of[operation->y][i] = x;
    }
}

/* ---- attention ---- */

/* Row `row` of head `head` (of sequences and heads in one) of a tensor. */
static const float *row_of(const struct tensor *tensor, const float *values, int64_t head,
                           int64_t row)
{
    return values + (head * tensor->sizes[2] + row) * tensor->sizes[3];
}

static void attend_row(const struct job *job, const struct operation *operation,
                       const struct values *values, int64_t head, int64_t row, float *parts)
{
    const struct tensor *q = &job->network.tensor[operation->x];
    const struct tensor *k = &job->network.tensor[operation->w];
    const struct tensor *v = &job->network.tensor[operation->v];
    const struct tensor *y = &job->network.tensor[operation->y];
    const float *query = row_of(q, values->of[operation->x], head, row);
    float *out = (float *)row_of(y, values->of[operation->y], head, row);
    float top = -INFINITY, sum = 0;

    for (int64_t key = 0; key < k->sizes[2]; key++) {
        const float *other = row_of(k, values->of[operation->w], head, key);
        struct adder adder = {.chunk = job->engine.chunk};

        for (int64_t i = 0; i < q->sizes[3]; i++)
            add(&adder, query[i] * other[i]);
        parts[key] = (adder.sum + adder.part) * job->network.tensor[operation->scale].value;
        top = fmaxf(top, parts[key]);
    }
    for (int64_t key = 0; key < k->sizes[2]; key++)
        sum += parts[key] = expf(parts[key] - top);
    for (int64_t column = 0; column < y->sizes[3]; column++) {
        struct adder adder = {.chunk = job->engine.chunk};

        for (int64_t key = 0; key < k->sizes[2]; key++)
            add(&adder, parts[key] * row_of(v, values->of[operation->v], head, key)[column]);
        out[column] = (adder.sum + adder.part) / sum;
    }
}

static void attend(const struct job *job, const struct operation *operation, struct values *values)
{
    const struct tensor *y = &job->network.tensor[operation->y];
    const struct tensor *k = &job->network.tensor[operation->w];
    const int64_t heads = y->sizes[0] * y->sizes[1], rows = y->sizes[2];
    float *parts = malloc((size_t)k->sizes[2] * sizeof(*parts));

    for (int64_t i = 0; i < heads * rows; i++)
        attend_row(job, operation, values, i / rows, i % rows, parts);
    free(parts);
}

static bool reads_two(const struct operation *operation)
{
    return operation->kind <= ADD || operation->kind == ATTEND;
}

static bool run_operation(const struct job *job, const struct operation *operation,
                          struct values *values)
{
    const struct tensor *y = &job->network.tensor[operation->y];

    if (!load(job, values, operation->x) ||
        (reads_two(operation) && !load(job, values, operation->w)) ||
        (operation->kind == ATTEND && !load(job, values, operation->v)))
        return false;
    values->of[operation->y] = malloc((size_t)tensor_count(y) * sizeof(float));
    if (operation->kind == CONVOLVE)
        convolve(job, operation, values);
    else if (operation->kind == CONVOLVE_BACK)
        convolve_back(job, operation, values);
    else if (operation->kind == ATTEND)
        attend(job, operation, values);
    else if (operation->kind >= POOL_MAX)
        pool(job, operation, values);
    else
        pointwise(job, operation, values);
    if (!y->inner)
        store(y, values->of[operation->y]);
    return true;
}

void job_run(void *argument)
{
    const struct job *job = argument;
    struct values values = {{NULL}};
    size_t bytes = (size_t)job->engine.workspace_bytes;

    if (bytes > 0) {
        void *workspace = sim_view(job->workspace, bytes, true);

        if (workspace == NULL)
            return;
        memset(workspace, 0xA5, bytes);
    }
    for (size_t i = 0; i < job->network.operations; i++)
        if (!run_operation(job, &job->network.operation[i], &values))
            break;
    for (size_t i = 0; i < DNN_TENSORS; i++)
        free(values.of[i]);
}
