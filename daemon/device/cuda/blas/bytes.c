/* Products of bytes through cuBLASLt's integer tensor cores (IMMA): MatMulInteger, QLinearMatMul,
 * MatMulIntegerToFloat, and convolutions of one group, with weights that never change.
 *
 * The library multiplies int8 by int8 to int32 where both operands lie with k innermost (its form
 * TN), in sizes and strides of whole groups of four; here of sixteen, for its fast kernels.  So
 * weights are packed once as [n][k], and rows are laid in scratch (kernels/imma.h) unless they lie
 * so already: int8, k a multiple of 16, a matrix or a 1x1 convolution with channels last.  Sums go
 * to scratch and from there to results by the CPU device's rounding.
 *
 * Many rows go in pieces, so that scratch stays below CHUNK_BYTES.  Sums of whole numbers are exact
 * in every order: any algorithm gives a row the same bits, in any batch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/blas/problem.h"
#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/imma.h"
#include "device/cuda/kernels/product_plan.h"
#include "device/cuda/kernels/quantized_plan.h"
#include "device/cuda/kernels/rows.h"
#include "device/cuda/kernels/window_plan.h"
#include "tensor/element.h"

/* Of a piece, rows and sums.  Builds with tests have less, so that there are several. */
#ifndef SLUICE_CHUNK_BYTES
#define SLUICE_CHUNK_BYTES (32 << 20)
#endif

enum {
    LINE = 16,       /* k and n are padded to so many */
    LEAST_ROWS = 64, /* of a piece, and its unit */
    CHUNK_BYTES = SLUICE_CHUNK_BYTES,
    MOST_K = 1 << 17 /* times 128 x 128 is 2^31 */
};

struct bytes_state {
    struct lt_product product[2]; /* of whole pieces, of the last one */
    struct imma_lay lay;
    struct imma_finish finish;
    int64_t rows, chunk;
    bool is_direct; /* rows lie as the library wants them, where their address does */
    const char *weights;
    size_t sums_at, workspace_at;
};

static bool is_conv(const struct kernel_call *call)
{
    return call->op == &op_qlinear_conv || call->op == &op_conv_integer;
}

static int64_t round_up(int64_t count, int64_t unit)
{
    return (count + unit - 1) / unit * unit;
}

/* ---- whether ---- */

/* The product: rows of k bytes, n columns, and how weights lie: step k of column j of `taps` x
 * `channels` is at j * column + channel * channel_step + tap * tap_step. */
struct form {
    int64_t rows, n, taps, channels;
    int64_t column, channel_step, tap_step;
    bool as_they_lie; /* rows follow each other, each of k bytes */
    struct conv_geometry conv;
};

static const char *describe_conv(const struct kernel_call *call, struct form *form)
{
    const struct operand *x = call->in[0], *w = call->in[quantized_places_of(call->op)->w];
    const struct window *window = &form->conv.window;
    bool steps = false;

    if (conv_resolve(call->attrs, &x->shape, &w->shape, &form->conv, NULL) != STATUS_OK)
        return "shapes do not fit";
    if (form->conv.groups != 1)
        return "groups of channels";
    form->taps = window_cells(window->kernel, window->spatial);
    form->channels = form->conv.in_channels;
    form->rows = form->conv.batch * window_cells(window->out, window->spatial);
    form->n = form->conv.out_channels;
    form->column = form->channels * form->taps;
    form->channel_step = form->taps;
    form->tap_step = 1;
    for (size_t i = 0; i < window->spatial; i++)
        steps |= window->stride[i] != 1 || window->pad_begin[i] != 0 || window->pad_end[i] != 0;
    form->as_they_lie = form->taps == 1 && !steps && x->layout == LAYOUT_NHWC;
    return NULL;
}

static const char *describe_matrices(const struct kernel_call *call, struct form *form)
{
    const struct quantized_matmul_attrs *attrs = call->attrs;
    const struct shape *a = &call->in[0]->shape;
    const struct shape *b = &call->in[quantized_places_of(call->op)->w]->shape;
    struct matmul_geometry g;

    if (matmul_resolve(a, b, false, attrs->trans_b, &g, NULL) != STATUS_OK)
        return "shapes do not fit";
    if (b->rank > 2 && shape_product(b, 0, b->rank - 2) != 1)
        return "several matrices of weights";
    form->rows = g.batches * g.m;
    form->n = g.n;
    form->taps = 1;
    form->channels = g.k;
    form->column = attrs->trans_b ? g.k : 1;
    form->channel_step = attrs->trans_b ? 1 : g.n;
    form->as_they_lie = true;
    return NULL;
}

static bool is_one(const struct kernel_call *call, size_t index)
{
    const struct operand *operand = call_input(call, index);

    return operand == NULL || shape_count(&operand->shape) == 1;
}

/* NULL, and the form of the product, or why the library is not asked. */
static const char *describe(const struct kernel_call *call, struct form *form)
{
    const struct quantized_places *places = quantized_places_of(call->op);
    const struct epilogue *epilogue = quantized_epilogue(call);
    const struct operand *w = call->in[places->w], *zero = call_input(call, places->w_zero);
    const char *why;

    *form = (struct form){0};
    if (w->constant == NULL || (zero != NULL && zero->constant == NULL))
        return "weights that are computed";
    if (!is_one(call, places->x_zero) || !is_one(call, places->x_scale))
        return "rows of several scales";
    if (epilogue->has_residual ||
        (epilogue->act != ACT_NONE && epilogue->act != ACT_RELU && epilogue->act != ACT_CLIP))
        return "an epilogue that does more than to cut off";
    why = is_conv(call) ? describe_conv(call, form) : describe_matrices(call, form);
    if (why != NULL)
        return why;
    if (form->rows == 0 || form->n == 0 || form->taps * form->channels == 0)
        return "nothing to multiply";
    if (form->taps * form->channels > MOST_K - LINE)
        return "sums of too many products for 32 bits";
    if (form->rows > INT32_MAX || form->n > INT32_MAX / 64 ||
        shape_count(&call->in[0]->shape) > INT32_MAX)
        return "2^31 rows or more";
    return NULL;
}

static const char *refuses(const struct kernel_call *call)
{
    struct form form;
    const char *why = describe(call, &form);

    if (why == NULL)
        (void)lt_get(cuda_device_of(call->device), &why);
    return why;
}

/* ---- weights: [n padded][k padded], totals [n], zero points [n] ---- */

struct packing {
    const struct kernel_call *call;
    const struct form *form;
    int64_t k, k_padded, n_padded;
    bool has_zeros;
    int8_t *bytes;
    int32_t *totals, *zeros;
};

static int32_t shift_of(enum dtype dtype)
{
    return dtype == DTYPE_UINT8 ? 128 : 0;
}

static int32_t zero_of(const struct kernel_call *call, int64_t column)
{
    const struct quantized_places *places = quantized_places_of(call->op);
    const struct operand *zero = call_input(call, places->w_zero);
    int32_t value = 0;

    if (zero != NULL)
        value = (int32_t)element_read(zero->dtype, zero->constant,
                                      shape_count(&zero->shape) > 1 ? (size_t)column : 0);
    return value - shift_of(call->in[places->w]->dtype);
}

static bool any_zeros(const struct kernel_call *call, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        if (zero_of(call, j) != 0)
            return true;
    return false;
}

static size_t packed_bytes(const struct packing *packing)
{
    return (size_t)(packing->n_padded * packing->k_padded) +
           2 * sizeof(int32_t) * (size_t)packing->form->n;
}

static void pack_column(const struct packing *packing, const uint8_t *from, int64_t column)
{
    const struct form *form = packing->form;
    const enum dtype dtype = packing->call->in[quantized_places_of(packing->call->op)->w]->dtype;
    const uint8_t flip = dtype == DTYPE_UINT8 ? 128 : 0;
    int8_t *to = packing->bytes + column * packing->k_padded;
    int64_t total = 0;

    from += column * form->column;
    for (int64_t tap = 0; tap < form->taps; tap++)
        for (int64_t c = 0; c < form->channels; c++) {
            *to = (int8_t)(from[c * form->channel_step + tap * form->tap_step] ^ flip);
            total += *to++;
        }
    packing->zeros[column] = zero_of(packing->call, column);
    packing->totals[column] = (int32_t)(total - packing->k * packing->zeros[column]);
}

static enum status write_packed(struct packing *packing, struct weights_cache *cache, void *to)
{
    const struct kernel_call *call = packing->call;
    const size_t bytes = packed_bytes(packing);
    void *memory = calloc(1, bytes);
    enum status status;

    if (memory == NULL)
        return STATUS_NO_MEMORY;
    packing->bytes = memory;
    packing->totals = (int32_t *)(void *)(packing->bytes + packing->n_padded * packing->k_padded);
    packing->zeros = packing->totals + packing->form->n;
    for (int64_t j = 0; j < packing->form->n; j++)
        pack_column(packing, call->in[quantized_places_of(call->op)->w]->constant, j);
    if (packing->has_zeros)
        memset(packing->bytes + packing->form->n * packing->k_padded, 1, (size_t)packing->k);
    status = weights_write(cache, to, memory, bytes);
    free(memory);
    return status;
}

static enum status share_weights(struct kernel_prepare *prepare, struct packing *packing,
                                 void **out_packed)
{
    const struct quantized_places *places = quantized_places_of(prepare->call.op);
    const struct operand *w = prepare->call.in[places->w];
    const struct operand *zero = call_input(&prepare->call, places->w_zero);
    char format[96];
    enum status status = STATUS_OK;
    bool is_new;

    (void)snprintf(format, sizeof(format), "imma %lld x %lld, %lld apart, minus %p",
                   (long long)packing->n_padded, (long long)packing->k_padded,
                   (long long)packing->form->channel_step,
                   zero != NULL ? zero->constant_key : NULL);
    TRY(weights_share(prepare->weights, w->constant_key, format, packed_bytes(packing), out_packed,
                      &is_new));
    if (is_new)
        status = write_packed(packing, prepare->weights, *out_packed);
    if (status != STATUS_OK)
        weights_drop(prepare->weights, w->constant_key, format);
    else
        prepare->constants_used &= ~(1u << places->w);
    return status;
}

/* ---- a plan ---- */

static void fill_lay(struct bytes_state *state, const struct kernel_call *call,
                     const struct form *form, const struct packing *packing)
{
    struct imma_lay *lay = &state->lay;
    const struct operand *x = call->in[0], *w = call->in[quantized_places_of(call->op)->w];

    lay->is_matrix = !is_conv(call);
    lay->flip = (uint32_t)shift_of(x->dtype);
    lay->k = packing->k;
    lay->k_padded = packing->k_padded;
    lay->words = divisor_of(packing->k_padded / 4);
    lay->channels = divisor_of(form->channels);
    if (lay->is_matrix)
        return;
    product_conv(&lay->product, &(struct conv_operands){x, w, call->out[0]}, &form->conv, false);
    lay->places = divisor_of(lay->product.n);
    lay->in_words = lay->product.window.channel_step == 1 && form->channels % 4 == 0;
}

static void fill_finish(struct bytes_state *state, const struct kernel_call *call,
                        const struct form *form, const struct packing *packing)
{
    struct imma_finish *finish = &state->finish;

    finish->is_matrix = state->lay.is_matrix;
    finish->n = form->n;
    finish->n_padded = packing->n_padded;
    finish->x_shift = shift_of(call->in[0]->dtype);
    quantized_finish_make(&finish->finish, call);
    finish->out_row = form->n;
    finish->out_column = 1;
    if (!finish->is_matrix) {
        int64_t strides[SHAPE_MAX_RANK];

        operand_strides(call->out[0], strides);
        finish->places = state->lay.places;
        finish->out_image = strides[0];
        finish->out_column = strides[1];
        finish->out_row = strides[call->out[0]->shape.rank - 1]; /* places follow each other */
    }
    finish->turned = finish->out_column != 1;
}

static void fill_scratch(struct kernel_prepare *prepare, struct bytes_state *state,
                         const struct packing *packing)
{
    const size_t laid = (size_t)round_up(state->chunk * packing->k_padded, 256);
    const size_t sums = (size_t)(state->chunk * packing->n_padded) * sizeof(int32_t);
    const size_t workspace = state->product[0].workspace_bytes > state->product[1].workspace_bytes
                                 ? state->product[0].workspace_bytes
                                 : state->product[1].workspace_bytes;

    state->sums_at = laid;
    state->workspace_at = laid + (size_t)round_up((int64_t)sums, 256);
    prepare->scratch_bytes = state->workspace_at + workspace;
}

static enum status init_products(struct kernel_prepare *prepare, struct bytes_state *state,
                                 const struct lt *lt, const struct packing *packing,
                                 struct error *err)
{
    const int capability = cuda_device_of(prepare->call.device)->capability;
    struct lt_problem problem = {.m = state->chunk,
                                 .n = packing->n_padded,
                                 .k = packing->k_padded,
                                 .batch = 1,
                                 .trans_b = true,
                                 .dimension_0 = state->chunk,
                                 .at = LT_DIMENSION_0_M,
                                 .dtype = DTYPE_INT8,
                                 .alpha = 1};

    TRY(lt_product_init(&state->product[0], lt, &problem, capability, prepare->weights, err));
    problem.m = problem.dimension_0 = (state->rows - 1) % state->chunk + 1;
    return lt_product_init(&state->product[1], lt, &problem, capability, prepare->weights, err);
}

static enum status fill(struct kernel_prepare *prepare, struct bytes_state *state,
                        const struct form *form, const struct lt *lt, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct packing packing = {.call = call,
                              .form = form,
                              .k = form->taps * form->channels,
                              .has_zeros = any_zeros(call, form->n)};
    int64_t most;
    void *packed;

    packing.k_padded = round_up(packing.k, LINE);
    packing.n_padded = round_up(form->n + (packing.has_zeros ? 1 : 0), LINE);
    most = CHUNK_BYTES / (packing.k_padded + 4 * packing.n_padded) / LEAST_ROWS * LEAST_ROWS;
    most = most > LEAST_ROWS ? most : LEAST_ROWS;
    state->rows = form->rows;
    state->chunk = form->rows < most ? form->rows : most;
    state->is_direct =
        form->as_they_lie && call->in[0]->dtype == DTYPE_INT8 && packing.k == packing.k_padded;
    TRY(init_products(prepare, state, lt, &packing, err));
    fill_lay(state, call, form, &packing);
    fill_finish(state, call, form, &packing);
    fill_scratch(prepare, state, &packing);
    TRY(share_weights(prepare, &packing, &packed));
    state->weights = packed;
    state->finish.totals =
        (const int32_t *)(const void *)(state->weights + packing.n_padded * packing.k_padded);
    state->finish.zeros = packing.has_zeros ? state->finish.totals + form->n : NULL;
    return STATUS_OK;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    struct cuda_device *cuda = cuda_device_of(prepare->call.device);
    struct form form;
    const char *why = describe(&prepare->call, &form);
    const struct lt *lt = why == NULL ? lt_get(cuda, &why) : NULL;
    struct bytes_state *state;
    enum status status;

    if (lt == NULL)
        return error_set(err, STATUS_UNSUPPORTED, "%s", why);
    CU_TRY(cudaSetDevice(cuda->ordinal));
    state = prepare_state(prepare, sizeof(*state), err);
    if (state == NULL)
        return STATUS_NO_MEMORY;
    status = fill(prepare, state, &form, lt, err);
    if (status != STATUS_OK) {
        free(state);
        prepare->state = NULL;
        return status;
    }
    prepare->host_bytes = sizeof(*state);
    lt_product_describe(&state->product[0], prepare->note, sizeof(prepare->note));
    return STATUS_OK;
}

/* ---- a run ---- */

/* `count` rows from `first` on. */
static enum status run_piece(const struct bytes_state *state, const struct kernel_run *run,
                             struct imma_lay *lay, struct imma_finish *finish, int64_t first,
                             int64_t count)
{
    char *scratch = run->scratch;
    const char *lying = (const char *)lay->in + first * lay->k;
    bool is_direct = state->is_direct && (uintptr_t)lying % LINE == 0;
    struct lt_operands operands = {
        .a = is_direct ? lying : scratch, .b = state->weights, .out = scratch + state->sums_at};
    const struct lt_product *product = &state->product[first + count < state->rows ? 0 : 1];

    lay->first = finish->first = first;
    lay->rows = finish->rows = count;
    lay->out = scratch;
    finish->sums = operands.out;
    if (!is_direct)
        TRY(cuda_status(cuda_imma_lay(lay, cuda_stream(run))));
    TRY(lt_product_run(product, &operands, scratch + state->workspace_at, cuda_stream(run)));
    return cuda_status(cuda_imma_finish(finish, cuda_stream(run)));
}

static enum status run(const void *prepared, const struct kernel_call *call,
                       const struct kernel_run *run)
{
    const struct bytes_state *state = prepared;
    const struct quantized_places *places = quantized_places_of(call->op);
    struct imma_lay lay = state->lay;
    struct imma_finish finish = state->finish;

    lay.in = run->in[0];
    lay.in_words = lay.in_words != 0 && (uintptr_t)lay.in % 4 == 0;
    lay.zero = finish.x_zero = quantized_parameter(call, run, places->x_zero);
    quantized_finish_run(&finish.finish, call, run);
    finish.out = run->out[0];
    for (int64_t first = 0; first < state->rows; first += state->chunk) {
        int64_t count = state->rows - first < state->chunk ? state->rows - first : state->chunk;

        TRY(run_piece(state, run, &lay, &finish, first, count));
    }
    return STATUS_OK;
}

#define BYTES(operator, variant, taken)                                                            \
    const struct kernel kernel_##operator##_##variant = {                                          \
        .name = "cuda:cublaslt",                                                                   \
        .layouts = (taken),                                                                        \
        .refuses = refuses,                                                                        \
        .prepare = prepare,                                                                        \
        .enqueue = run,                                                                            \
        .release = free,                                                                           \
    };
BYTES(matmul_integer, lt, 0)
BYTES(qlinear_matmul, lt, 0)
BYTES(matmul_integer_to_float, lt, 0)
BYTES(conv_integer, lt, 0)
/* Channels last is better where images may lie so: rows need not be turned. */
BYTES(qlinear_conv, lt_last, 1 << LAYOUT_NHWC)
BYTES(qlinear_conv, lt, 1 << LAYOUT_PLAIN)
