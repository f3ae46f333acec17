/* Scaler, Normalizer, LinearRegressor, LinearClassifier: small, so one row after the other. */
#include <math.h>
#include <stdlib.h>

#include "device/cpu/convert.h"
#include "device/cpu/cpu.h"
#include "device/cpu/ml/scores.h"
#include "ops/ml.h"

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    int64_t rows, features;

    (void)err;
    ml_rows(&call->in[0]->shape, &rows, &features);
    prepare->scratch_bytes = (size_t)features * sizeof(double);
    if (call->op == &op_linear_classifier || call->op == &op_linear_regressor) {
        const struct linear_attrs *attrs = call->attrs;

        prepare->scratch_bytes +=
            attrs->coefficients.count / (size_t)(features > 0 ? features : 1) * sizeof(double);
    }
    prepare->constants_used = 1;
    return STATUS_OK;
}

/* Row `row` of the input as doubles. */
static void load_row(const struct kernel_call *call, const struct kernel_run *run, int64_t row,
                     size_t features, double *x)
{
    enum dtype dtype = call->in[0]->dtype;

    convert(loops_for(call->device), dtype,
            (const char *)run->in[0] + (size_t)row * features * dtype_bytes(dtype), DTYPE_DOUBLE, x,
            features);
}

static float list_at(const struct floats *list, size_t index, float standard)
{
    return list->count == 0 ? standard : list->values[list->count == 1 ? 0 : index];
}

static enum status enqueue_scaler(const void *state, const struct kernel_call *call,
                                  const struct kernel_run *run)
{
    const struct scaler_attrs *attrs = call->attrs;
    double *x = run->scratch;
    float *y = run->out[0];
    int64_t rows, features;

    (void)state;
    ml_rows(&call->in[0]->shape, &rows, &features);
    for (int64_t r = 0; r < rows; r++) {
        load_row(call, run, r, (size_t)features, x);
        for (size_t i = 0; i < (size_t)features; i++)
            *y++ = ((float)x[i] - list_at(&attrs->offset, i, 0)) * list_at(&attrs->scale, i, 1);
    }
    return STATUS_OK;
}

static double norm_of(enum norm norm, const double *x, size_t count)
{
    double sum = 0, top = -INFINITY;

    for (size_t i = 0; i < count; i++) {
        top = x[i] > top ? x[i] : top;
        sum += norm == NORM_L1 ? fabs(x[i]) : x[i] * x[i];
    }
    return norm == NORM_MAX ? top : norm == NORM_L1 ? sum : sqrt(sum);
}

static enum status enqueue_normalizer(const void *state, const struct kernel_call *call,
                                      const struct kernel_run *run)
{
    const struct normalizer_attrs *attrs = call->attrs;
    double *x = run->scratch;
    float *y = run->out[0];
    int64_t rows, features;

    (void)state;
    ml_rows(&call->in[0]->shape, &rows, &features);
    for (int64_t r = 0; r < rows; r++) {
        double norm;

        load_row(call, run, r, (size_t)features, x);
        norm = norm_of((enum norm)attrs->norm, x, (size_t)features);
        for (size_t i = 0; i < (size_t)features; i++)
            *y++ = (float)(norm != 0 ? x[i] / norm : x[i]);
    }
    return STATUS_OK;
}

/* Raw scores of one row. */
static void score_row(const struct linear_attrs *attrs, const double *x, size_t features,
                      double *scores, size_t targets)
{
    for (size_t t = 0; t < targets; t++) {
        scores[t] = attrs->intercepts.count > 0 ? (double)attrs->intercepts.values[t] : 0;
        for (size_t i = 0; i < features; i++)
            scores[t] += x[i] * (double)attrs->coefficients.values[t * features + i];
    }
}

static size_t best_of(const double *scores, size_t count)
{
    size_t best = 0;

    for (size_t i = 1; i < count; i++)
        if (scores[i] > scores[best])
            best = i;
    return best;
}

/* Labels (classifier only) and scores of all rows; either may be unwanted. */
static enum status enqueue_linear(const void *state, const struct kernel_call *call,
                                  const struct kernel_run *run)
{
    const struct linear_attrs *attrs = call->attrs;
    bool classifier = call->op == &op_linear_classifier;
    size_t index = classifier ? 1 : 0;
    float *y = index < call->outputs && call->out[index] != NULL ? run->out[index] : NULL;
    double *x = run->scratch, *scores;
    int64_t rows, features;
    size_t targets;

    (void)state;
    ml_rows(&call->in[0]->shape, &rows, &features);
    if (features == 0)
        return STATUS_INVALID;
    targets = attrs->coefficients.count / (size_t)features;
    scores = x + features;
    for (int64_t r = 0; r < rows; r++) {
        load_row(call, run, r, (size_t)features, x);
        score_row(attrs, x, (size_t)features, scores, targets);
        if (classifier)
            TRY(scores_put_label(&attrs->classlabels_ints, &attrs->classlabels_strings,
                                 best_of(scores, targets), run->out[0], (size_t)r, run->strings));
        scores_transform((enum post_transform)attrs->post_transform, scores, targets);
        for (size_t t = 0; t < targets && y != NULL; t++)
            y[(size_t)r * targets + t] = (float)scores[t];
    }
    return STATUS_OK;
}

#define LINEAR(operator, run)                                                                      \
    const struct kernel kernel_##operator##_loops = {                                              \
        .name = "cpu:loops",                                                                       \
        .prepare = prepare,                                                                        \
        .enqueue = run,                                                                            \
    };
LINEAR(scaler, enqueue_scaler)
LINEAR(normalizer, enqueue_normalizer)
LINEAR(linear_regressor, enqueue_linear)
LINEAR(linear_classifier, enqueue_linear)
