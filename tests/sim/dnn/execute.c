/* Reference numbers: every operation over whole tensors in float, in the engine's order. */
#include "part.h"

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

static float convolve_at(const struct job *job, const struct operation *operation,
                         const struct values *values, int64_t n, int64_t m, struct spot *spot)
{
    const struct tensor *x = &job->network.tensor[operation->x];
    const struct tensor *w = &job->network.tensor[operation->w];
    int64_t per = w->sizes[1], groups = x->sizes[1] / per, count = taps(operation, x->rank);
    int64_t first = m / (w->sizes[0] / groups) * per, plane = cells(x);
    const float *image = values->of[operation->x] + (n * x->sizes[1] + first) * plane;
    const float *weights = values->of[operation->w] + m * per * count;
    struct adder adder = {.chunk = job->engine.chunk};

    for (int64_t tap = 0; tap < count; tap++) {
        int64_t cell;

        unfold(tap, operation->window, x->rank - 2, spot->tap);
        cell = cell_of(operation, x, spot);
        for (int64_t c = 0; cell >= 0 && c < per; c++)
            add(&adder, image[c * plane + cell] * weights[c * count + tap]);
    }
    return adder.sum + adder.part;
}

static void convolve(const struct job *job, const struct operation *operation,
                     struct values *values)
{
    const struct tensor *y = &job->network.tensor[operation->y];
    const int64_t elements = tensor_count(y), plane = cells(y);
    struct spot spot;

    for (int64_t i = 0; i < elements; i++) {
        unfold(i % plane, y->sizes + 2, y->rank - 2, spot.at);
        values->of[operation->y][i] = convolve_at(job, operation, values, i / plane / y->sizes[1],
                                                  i / plane % y->sizes[1], &spot);
    }
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
        else if (x < 0)
            x = 0;
        values->of[operation->y][i] = x;
    }
}

static bool run_operation(const struct job *job, const struct operation *operation,
                          struct values *values)
{
    const struct tensor *y = &job->network.tensor[operation->y];

    if (!load(job, values, operation->x) ||
        (operation->kind <= ADD && !load(job, values, operation->w)))
        return false;
    values->of[operation->y] = malloc((size_t)tensor_count(y) * sizeof(float));
    if (operation->kind == CONVOLVE)
        convolve(job, operation, values);
    else if (operation->kind == CONVOLVE_BACK)
        convolve_back(job, operation, values);
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
