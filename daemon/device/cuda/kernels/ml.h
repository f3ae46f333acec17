/* Scaler, Normalizer, LinearRegressor, LinearClassifier: rows of features, in double precision and
 * in the CPU's order, so that scores, and which of them is the largest, are its own.
 */
#ifndef DEVICE_CUDA_KERNELS_ML_H
#define DEVICE_CUDA_KERNELS_ML_H

#include <cuda_runtime_api.h>
#include <stdint.h>

/* As in ops/ml.h. */
enum { ML_NORM_MAX, ML_NORM_L1, ML_NORM_L2 };
enum { ML_POST_NONE, ML_POST_SOFTMAX, ML_POST_LOGISTIC, ML_POST_SOFTMAX_ZERO };

struct ml_input {
    int64_t rows, features;
    uint32_t dtype;
    const void *data;
};

struct ml_scaling {
    struct ml_input x;
    const float *offset, *scale; /* one a feature */
    float *out;
};

struct ml_norming {
    struct ml_input x;
    int norm;
    float *out;
};

struct ml_linear {
    struct ml_input x;
    int64_t targets;
    const float *coefficients; /* [targets, features] */
    const float *intercepts;   /* NULL: none */
    double *scores;            /* scratch: [rows, targets] */
    int post;
    const int64_t *names; /* of targets; NULL: nobody asks for the best one */
    int64_t *labels;      /* [rows]; where there are names */
    float *out;           /* [rows, targets]; NULL: not wanted */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Nothing happens where there are no rows. */
cudaError_t cuda_ml_scale(const struct ml_scaling *scaling, cudaStream_t stream);
cudaError_t cuda_ml_normalize(const struct ml_norming *norming, cudaStream_t stream);
cudaError_t cuda_ml_linear(const struct ml_linear *linear, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
