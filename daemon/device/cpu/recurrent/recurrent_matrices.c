/* W and R of LSTM, GRU and RNN, packed for products: once when they are constant. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/product/gemm.h"
#include "device/cpu/recurrent/recurrent_internal.h"

int64_t recurrent_columns(const struct recurrent_state *state, enum matrix matrix,
                          int64_t *out_first)
{
    bool split = state->kind == GRU && !state->linear_before_reset;

    *out_first = matrix == MATRIX_R_LAST ? 2 * state->hidden : 0;
    if (matrix == MATRIX_W)
        return state->kind * state->hidden;
    if (matrix == MATRIX_R_LAST)
        return split ? state->hidden : 0;
    return (split ? 2 : (int64_t)state->kind) * state->hidden;
}

size_t recurrent_packed_bytes(const struct recurrent_state *state, enum matrix matrix)
{
    int64_t first, n = recurrent_columns(state, matrix, &first);

    if (n == 0)
        return 0;
    return gemm_packed_bytes(state->isa, matrix == MATRIX_W ? state->input : state->hidden, n);
}

void recurrent_pack(const struct recurrent_state *state, size_t direction, enum matrix matrix,
                    const float *weights, float *packed)
{
    int64_t first, n = recurrent_columns(state, matrix, &first);
    int64_t k = matrix == MATRIX_W ? state->input : state->hidden;
    int64_t skipped = ((int64_t)direction * state->kind * state->hidden + first) * k;
    struct gemm_matrix b = {weights + skipped, 1, k};

    gemm_pack(state->isa, k, n, &b, 1, packed);
}

/* Packs constant elements, which a file need not align. */
static enum status pack_constant(const struct recurrent_state *state, size_t direction,
                                 enum matrix matrix, const struct operand *operand, float *packed)
{
    size_t bytes = (size_t)shape_count(&operand->shape) * sizeof(float);
    float *copy;

    if ((uintptr_t)operand->constant % sizeof(float) == 0) {
        recurrent_pack(state, direction, matrix, operand->constant, packed);
        return STATUS_OK;
    }
    copy = malloc(bytes);
    if (copy == NULL)
        return STATUS_NO_MEMORY;
    memcpy(copy, operand->constant, bytes);
    recurrent_pack(state, direction, matrix, copy, packed);
    free(copy);
    return STATUS_OK;
}

enum status recurrent_share_matrix(struct kernel_prepare *prepare, struct recurrent_state *state,
                                   size_t direction, enum matrix matrix)
{
    const struct operand *operand =
        prepare->call.in[matrix == MATRIX_W ? RECURRENT_W : RECURRENT_R];
    size_t bytes = recurrent_packed_bytes(state, matrix);
    char format[GEMM_FORMAT_BYTES + 64];
    char product[GEMM_FORMAT_BYTES];
    int64_t first, n = recurrent_columns(state, matrix, &first);
    void *packed;
    bool is_new;

    if (bytes == 0 || operand->constant == NULL)
        return STATUS_OK;
    gemm_format(state->isa, matrix == MATRIX_W ? state->input : state->hidden, n, true, 1, product);
    snprintf(format, sizeof(format), "recurrent %zu from %lld of %s", direction, (long long)first,
             product);
    TRY(weights_share(prepare->weights, operand->constant_key, format, bytes, &packed, &is_new));
    if (is_new)
        TRY(pack_constant(state, direction, matrix, operand, packed));
    state->packed[direction][matrix] = packed;
    return STATUS_OK;
}
