/* MatMul and Gemm in float: with weights packed at load, and of two computed matrices.
 *
 * Gemm's C is a bias when it is one row, and a residual when it has the size of the result.  A
 * computed [1,n] may be either in a batch of one; it is a residual in every batch, repeated in a
 * larger one, so that a row has the same bits alone. */
#include <stdio.h>
#include <stdlib.h>

#include "device/cpu/constant.h"
#include "device/cpu/product/gemm.h"
#include "ops/gemm.h"
#include "ops/matmul.h"

/* Both operators, seen as one. */
struct product {
    struct matmul_geometry geometry;
    bool trans_a, trans_b;
    float scale; /* of A B */
    size_t bias; /* input that is a row added to every row; 0: none */
    float bias_scale;
    size_t residual; /* input of the result's size, or of one row; 0: none */
    bool repeats;    /* the residual is one row */
    struct epilogue epilogue;
};

enum { RESIDUAL = MATMUL_RESIDUAL };
_Static_assert((int)MATMUL_RESIDUAL == (int)GEMM_RESIDUAL && (int)MATMUL_BIAS == (int)GEMM_C,
               "both have them at the same places");

static const char *describe_matmul(const struct kernel_call *call, struct product *product)
{
    const struct matmul_attrs *attrs = call->attrs;

    *product = (struct product){.trans_a = attrs->trans_a,
                                .trans_b = attrs->trans_b,
                                .scale = attrs->has_scale ? attrs->scale : 1,
                                .bias = attrs->has_bias ? MATMUL_BIAS : 0,
                                .bias_scale = 1,
                                .residual = attrs->epilogue.has_residual ? RESIDUAL : 0,
                                .epilogue = attrs->epilogue};
    if (matmul_resolve(&call->in[0]->shape, &call->in[1]->shape, attrs->trans_a, attrs->trans_b,
                       &product->geometry, NULL) != STATUS_OK)
        return "shapes";
    return NULL;
}

static const char *describe_c(const struct kernel_call *call, struct product *product)
{
    const struct operand *c = kernel_input(call, GEMM_C);
    const int64_t n = product->geometry.n, elements = c != NULL ? shape_count(&c->shape) : 0;
    const bool is_single = c != NULL && c->shape.rank == 2 && c->shape.dims[0] == 1;
    const bool is_row = c != NULL && (c->shape.rank < 2 || (is_single && c->constant != NULL));

    if (c == NULL || product->bias_scale == 0)
        return NULL;
    if (is_row && elements == n && (c->constant != NULL || product->bias_scale == 1)) {
        product->bias = GEMM_C;
        return NULL;
    }
    if (elements == 1 && c->constant != NULL) {
        product->bias = GEMM_C;
        return NULL;
    }
    product->repeats = is_single && elements == n;
    if ((elements != product->geometry.m * n && !product->repeats) || product->residual != 0 ||
        product->bias_scale != 1 || c->constant != NULL)
        return "C is neither a row nor a computed matrix";
    product->residual = GEMM_C;
    product->epilogue.residual_after = false;
    return NULL;
}

static const char *describe_gemm(const struct kernel_call *call, struct product *product)
{
    const struct gemm_attrs *attrs = call->attrs;

    *product = (struct product){.trans_a = attrs->transA != 0,
                                .trans_b = attrs->transB != 0,
                                .scale = attrs->alpha,
                                .bias_scale = attrs->beta,
                                .residual = attrs->epilogue.has_residual ? RESIDUAL : 0,
                                .epilogue = attrs->epilogue};
    if (matmul_resolve(&call->in[0]->shape, &call->in[1]->shape, product->trans_a, product->trans_b,
                       &product->geometry, NULL) != STATUS_OK)
        return "shapes";
    return describe_c(call, product);
}

static const char *describe(const struct kernel_call *call, struct product *product)
{
    if (call->in[0]->dtype != DTYPE_FLOAT)
        return "only float";
    return call->op == &op_gemm ? describe_gemm(call, product) : describe_matmul(call, product);
}

static struct gemm_matrix matrix(const float *data, int64_t rows, int64_t columns, bool transposed)
{
    return transposed ? (struct gemm_matrix){data, 1, rows}
                      : (struct gemm_matrix){data, columns, 1};
}

/* ---- B is constant ---- */

struct packed_state {
    struct gemm gemm; /* complete but for the addresses of a run */
    enum cpu_isa isa;
    size_t bias_input; /* 0: none, or constant */
    size_t residual_input;
};

static const char *refuses_packed(const struct kernel_call *call)
{
    struct product product;
    const char *refusal = describe(call, &product);

    if (refusal != NULL)
        return refusal;
    if (call->in[1]->constant == NULL)
        return "B is computed at run time";
    if (shape_product(&call->in[1]->shape, 0,
                      call->in[1]->shape.rank < 2 ? 0 : call->in[1]->shape.rank - 2) != 1)
        return "B is more than one matrix";
    if (product.trans_a && product.geometry.batches != 1)
        return "A is more than one transposed matrix";
    return NULL;
}

static enum status pack_b(struct kernel_prepare *prepare, const struct product *product,
                          struct packed_state *state)
{
    const struct operand *b = prepare->call.in[1];
    const int64_t k = state->gemm.k, n = state->gemm.n;
    char format[GEMM_FORMAT_BYTES];
    struct gemm_matrix source;
    void *packed, *copy;
    bool is_new;

    gemm_format(state->isa, k, n, product->trans_b, product->scale, format);
    TRY(weights_share(prepare->weights, b->constant_key, format,
                      gemm_packed_bytes(state->isa, k, n), &packed, &is_new));
    state->gemm.packed = packed;
    if (!is_new)
        return STATUS_OK;
    source = matrix(constant_floats(b, &copy), k, n, product->trans_b);
    if (source.data == NULL) {
        weights_drop(prepare->weights, b->constant_key, format);
        return STATUS_NO_MEMORY;
    }
    gemm_pack(state->isa, k, n, &source, product->scale, packed);
    free(copy);
    return STATUS_OK;
}

static enum status prepare_packed(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct packed_state *state = calloc(1, sizeof(*state));
    struct product product;
    enum status status = STATUS_NO_MEMORY;

    (void)describe(call, &product); /* refuses_packed() saw that it can be */
    if (state != NULL) {
        state->isa = cpu_isa_of(call->device);
        state->gemm = (struct gemm){.m = product.geometry.batches * product.geometry.m,
                                    .k = product.geometry.k,
                                    .n = product.geometry.n,
                                    .epilogue = product.epilogue};
        state->gemm.a = matrix(NULL, product.geometry.m, product.geometry.k, product.trans_a);
        state->gemm.ldc = state->gemm.n;
        state->gemm.ldr = product.repeats ? 0 : state->gemm.n;
        state->residual_input = product.residual;
        status = pack_b(prepare, &product, state);
    }
    if (status == STATUS_OK && product.bias != 0)
        status = constant_share(prepare, product.bias, (size_t)state->gemm.n, true,
                                product.bias_scale, &state->gemm.bias);
    if (status != STATUS_OK) {
        free(state);
        return error_set(err, status, "no memory for packed weights");
    }
    state->bias_input = state->gemm.bias == NULL ? product.bias : 0;
    prepare->state = state;
    prepare->scratch_bytes =
        gemm_scratch_bytes(state->isa, state->gemm.m, &state->gemm.a, call->threads);
    snprintf(prepare->note, sizeof(prepare->note), "packed, %s", cpu_isa_name(state->isa));
    return STATUS_OK;
}

static enum status enqueue_packed(const void *arg, const struct kernel_call *call,
                                  const struct kernel_run *run)
{
    const struct packed_state *state = arg;
    struct gemm gemm = state->gemm;

    gemm.a.data = run->in[0];
    gemm.c = run->out[0];
    if (state->bias_input != 0)
        gemm.bias = run->in[state->bias_input];
    if (state->residual_input != 0)
        gemm.residual = run->in[state->residual_input];
    gemm_run(state->isa, &gemm, call->threads, run->scratch);
    return STATUS_OK;
}

/* ---- both are computed, or B is many matrices ---- */

struct batched_state {
    struct product product;
    enum cpu_isa isa;
    struct shape a, b; /* of the operands */
    const float *bias; /* constant */
    size_t bias_input;
};

/* The same with the addresses of a run. */
struct batched_run {
    const struct batched_state *state;
    const float *a, *b, *bias, *residual;
    float *c;
};

static const char *refuses_batched(const struct kernel_call *call)
{
    struct product product;

    return describe(call, &product);
}

static enum status prepare_batched(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct batched_state *state = calloc(1, sizeof(*state));
    struct product *product = state != NULL ? &state->product : NULL;

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a matrix product");
    (void)describe(call, product);
    state->isa = cpu_isa_of(call->device);
    state->a = call->in[0]->shape;
    state->b = call->in[1]->shape;
    if (product->bias != 0 &&
        constant_share(prepare, product->bias, (size_t)product->geometry.n, true,
                       product->bias_scale, &state->bias) != STATUS_OK) {
        free(state);
        return error_set(err, STATUS_NO_MEMORY, "no memory for the bias");
    }
    state->bias_input = state->bias == NULL ? product->bias : 0;
    prepare->state = state;
    prepare->constants_used = 1u << 0 | 1u << 1;
    prepare->scratch_bytes = gemm_batch_scratch_bytes(
        state->isa, product->geometry.m, product->geometry.k, product->geometry.n, call->threads);
    snprintf(prepare->note, sizeof(prepare->note), "packed on the way, %s",
             cpu_isa_name(state->isa));
    return STATUS_OK;
}

static void product_at(const void *arg, int64_t index, struct gemm_product *out)
{
    const struct batched_run *run = arg;
    const struct product *product = &run->state->product;
    const struct matmul_geometry *g = &product->geometry;
    const float *a = run->a + matmul_operand_index(g, &run->state->a, index) * g->m * g->k;
    const float *b = run->b + matmul_operand_index(g, &run->state->b, index) * g->k * g->n;

    out->a = matrix(a, g->m, g->k, product->trans_a);
    out->b = matrix(b, g->k, g->n, product->trans_b);
    out->bias = run->bias;
    out->residual = run->residual != NULL ? run->residual + index * g->m * g->n : NULL;
    out->c = run->c + index * g->m * g->n;
}

static enum status enqueue_batched(const void *arg, const struct kernel_call *call,
                                   const struct kernel_run *run)
{
    const struct batched_state *state = arg;
    const struct product *product = &state->product;
    const struct batched_run addresses = {
        .state = state,
        .a = run->in[0],
        .b = run->in[1],
        .bias = state->bias_input != 0 ? run->in[state->bias_input] : state->bias,
        .residual = product->residual != 0 ? run->in[product->residual] : NULL,
        .c = run->out[0],
    };
    const struct gemm_batch batch = {.count = product->geometry.batches,
                                     .m = product->geometry.m,
                                     .k = product->geometry.k,
                                     .n = product->geometry.n,
                                     .ldr = product->repeats ? 0 : product->geometry.n,
                                     .ldc = product->geometry.n,
                                     .scale = product->scale,
                                     .epilogue = product->epilogue,
                                     .product = product_at,
                                     .arg = &addresses};

    gemm_batch_run(state->isa, &batch, call->threads, run->scratch);
    return STATUS_OK;
}

#define PACKED                                                                                     \
    {                                                                                              \
        .name = "cpu:gemm", .refuses = refuses_packed, .prepare = prepare_packed,                  \
        .enqueue = enqueue_packed, .release = free                                                 \
    }
#define BATCHED                                                                                    \
    {                                                                                              \
        .name = "cpu:gemm-batched", .refuses = refuses_batched, .prepare = prepare_batched,        \
        .enqueue = enqueue_batched, .release = free                                                \
    }

const struct kernel kernel_matmul_packed = PACKED;
const struct kernel kernel_matmul_batched = BATCHED;
const struct kernel kernel_gemm_packed = PACKED;
const struct kernel kernel_gemm_batched = BATCHED;
