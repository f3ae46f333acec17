/* Scaler, Normalizer, LinearRegressor, LinearClassifier: their numbers are attributes, which are
 * copied to the device once a model. */
#include "ops/ml.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/kernels/ml.h"
#include "device/cuda/kernels/rows.h"

_Static_assert((int)NORM_MAX == (int)ML_NORM_MAX && (int)NORM_L1 == (int)ML_NORM_L1 &&
                   (int)NORM_L2 == (int)ML_NORM_L2 && (int)POST_NONE == (int)ML_POST_NONE &&
                   (int)POST_SOFTMAX == (int)ML_POST_SOFTMAX &&
                   (int)POST_LOGISTIC == (int)ML_POST_LOGISTIC &&
                   (int)POST_SOFTMAX_ZERO == (int)ML_POST_SOFTMAX_ZERO,
               "kernels count them as the operators do");

static void set_input(struct ml_input *x, const struct kernel_call *call)
{
    ml_rows(&call->in[0]->shape, &x->rows, &x->features);
    x->dtype = (uint32_t)call->in[0]->dtype;
}

/* `bytes` of an attribute's elements on the device, once a model: where they lie is the model's and
 * says which they are. */
static enum status share_list(struct kernel_prepare *prepare, const void *elements, size_t bytes,
                              const void **out_list, struct error *err)
{
    char format[32];
    enum status status;
    void *list;
    bool is_new;

    (void)snprintf(format, sizeof(format), "list %zu", bytes);
    status = weights_share(prepare->weights, elements, format, bytes, &list, &is_new);
    if (status == STATUS_OK && is_new) {
        status = weights_write(prepare->weights, list, elements, bytes);
        if (status != STATUS_OK)
            weights_drop(prepare->weights, elements, format);
    }
    if (status != STATUS_OK)
        return error_set(err, status, "no memory for %zu bytes of a list", bytes);
    *out_list = list;
    return STATUS_OK;
}

/* ---- Scaler ---- */

/* Offsets and scales of all features, in a row, made of the lists of one node. */
static void spread(const struct floats *list, int64_t features, float standard, float *to)
{
    for (int64_t i = 0; i < features; i++)
        to[i] = list->count == 0 ? standard : list->values[list->count == 1 ? 0 : i];
}

static enum status share_scaling(struct kernel_prepare *prepare, const struct scaler_attrs *attrs,
                                 int64_t features, float **out_table)
{
    static const _Alignas(64) char none[64];
    const void *key = attrs->scale.count > 0    ? (const void *)attrs->scale.values
                      : attrs->offset.count > 0 ? (const void *)attrs->offset.values
                                                : none;
    const size_t bytes = 2 * (size_t)features * sizeof(float);
    char format[64];
    enum status status;
    void *packed;
    float *table;
    bool is_new;

    /* Inlined functions may share one list and differ in the other. */
    (void)snprintf(format, sizeof(format), "scaling %" PRId64 " %p", features,
                   (const void *)attrs->offset.values);
    TRY(weights_share(prepare->weights, key, format, bytes, &packed, &is_new));
    *out_table = packed;
    if (!is_new)
        return STATUS_OK;
    table = malloc(bytes > 0 ? bytes : 1);
    status = STATUS_NO_MEMORY;
    if (table != NULL) {
        spread(&attrs->offset, features, 0, table);
        spread(&attrs->scale, features, 1, table + features);
        status = weights_write(prepare->weights, packed, table, bytes);
    }
    free(table);
    if (status != STATUS_OK)
        weights_drop(prepare->weights, key, format);
    return status;
}

static enum status prepare_scaler(struct kernel_prepare *prepare, struct error *err)
{
    struct ml_scaling scaling = {.out = NULL}, *state;
    enum status status;
    float *table;

    set_input(&scaling.x, &prepare->call);
    status = share_scaling(prepare, prepare->call.attrs, scaling.x.features, &table);
    if (status != STATUS_OK)
        return error_set(err, status, "no memory for %" PRId64 " features", scaling.x.features);
    scaling.offset = table;
    scaling.scale = table + scaling.x.features;
    state = prepare_state(prepare, sizeof(*state), err);
    if (state == NULL)
        return STATUS_NO_MEMORY;
    *state = scaling;
    return STATUS_OK;
}

static enum status enqueue_scaler(const void *state, const struct kernel_call *call,
                                  const struct kernel_run *run)
{
    struct ml_scaling scaling = *(const struct ml_scaling *)state;

    (void)call;
    scaling.x.data = run->in[0];
    scaling.out = run->out[0];
    return cuda_status(cuda_ml_scale(&scaling, cuda_stream(run)));
}

/* ---- Normalizer ---- */

static enum status enqueue_normalizer(const void *state, const struct kernel_call *call,
                                      const struct kernel_run *run)
{
    const struct normalizer_attrs *attrs = call->attrs;
    struct ml_norming norming = {.norm = attrs->norm, .out = run->out[0]};

    (void)state;
    set_input(&norming.x, call);
    norming.x.data = run->in[0];
    return cuda_status(cuda_ml_normalize(&norming, cuda_stream(run)));
}

/* ---- linear models ---- */

static enum status share_lists(struct kernel_prepare *prepare, struct ml_linear *linear,
                               struct error *err)
{
    const struct linear_attrs *attrs = prepare->call.attrs;
    const void *list;

    TRY(share_list(prepare, attrs->coefficients.values, attrs->coefficients.count * sizeof(float),
                   &list, err));
    linear->coefficients = list;
    if (attrs->intercepts.count > 0) {
        TRY(share_list(prepare, attrs->intercepts.values, attrs->intercepts.count * sizeof(float),
                       &list, err));
        linear->intercepts = list;
    }
    if (prepare->call.op == &op_linear_classifier) {
        TRY(share_list(prepare, attrs->classlabels_ints.values,
                       attrs->classlabels_ints.count * sizeof(int64_t), &list, err));
        linear->names = list;
    }
    return STATUS_OK;
}

static enum status prepare_linear(struct kernel_prepare *prepare, struct error *err)
{
    const struct linear_attrs *attrs = prepare->call.attrs;
    struct ml_linear linear = {.post = attrs->post_transform}, *state;

    set_input(&linear.x, &prepare->call);
    linear.targets = (int64_t)attrs->coefficients.count / linear.x.features;
    prepare->scratch_bytes = (size_t)(linear.x.rows * linear.targets) * sizeof(double);
    TRY(share_lists(prepare, &linear, err));
    state = prepare_state(prepare, sizeof(*state), err);
    if (state == NULL)
        return STATUS_NO_MEMORY;
    *state = linear;
    return STATUS_OK;
}

static enum status enqueue_linear(const void *state, const struct kernel_call *call,
                                  const struct kernel_run *run)
{
    struct ml_linear linear = *(const struct ml_linear *)state;
    const size_t scores = linear.names != NULL ? 1 : 0;

    linear.x.data = run->in[0];
    linear.scores = run->scratch;
    linear.labels = linear.names != NULL ? run->out[0] : NULL;
    linear.out = call_output(call, scores) != NULL ? run->out[scores] : NULL;
    return cuda_status(cuda_ml_linear(&linear, cuda_stream(run)));
}

static const char *refuse_linear(const struct kernel_call *call)
{
    return call->in[0]->shape.dims[call->in[0]->shape.rank - 1] == 0 ? "no features"
                                                                     : refuse_strings(call);
}

#define ML(operator, may_refuse, make, run)                                                        \
    const struct kernel kernel_##operator##_ml = {                                                 \
        .name = "cuda:ml",                                                                         \
        .refuses = may_refuse,                                                                     \
        .prepare = make,                                                                           \
        .enqueue = run,                                                                            \
        .release = free,                                                                           \
    };
ML(scaler, NULL, prepare_scaler, enqueue_scaler)
ML(normalizer, NULL, prepare_stateless, enqueue_normalizer)
ML(linear_regressor, refuse_linear, prepare_linear, enqueue_linear)
ML(linear_classifier, refuse_linear, prepare_linear, enqueue_linear)
