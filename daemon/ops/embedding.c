/* What a product with a one-hot matrix comes to; made by a pass only (graph/pass_embed.c). */
#include "ops/embedding.h"

static enum status infer_embedding(const struct op_call *call, struct error *err)
{
    const struct embedding_attrs *attrs = call->attrs;
    const struct shape *ids = &call->in[EMBEDDING_IDS]->shape;
    const struct shape *b = &call->in[EMBEDDING_B]->shape;
    struct shape out = *ids;

    if (b->rank != 2 || (attrs->over_last && (ids->rank == 0 || ids->dims[ids->rank - 1] != 1)))
        return error_set(err, STATUS_INVALID, "ids or matrix have the wrong shape");
    if (attrs->over_last)
        out.rank--;
    if (out.rank == SHAPE_MAX_RANK)
        return error_set(err, STATUS_UNSUPPORTED, "rank %zu of the result is above %d",
                         out.rank + 1, SHAPE_MAX_RANK);
    out.dims[out.rank++] = b->dims[attrs->product.trans_b ? 0 : 1];
    call->out[0]->dtype = call->in[EMBEDDING_B]->dtype;
    call->out[0]->shape = out;
    return STATUS_OK;
}

const struct op_def op_embedding = {
    .name = "embedding",
    .onnx = {"Embedding", .since = 1, .domain = "sluice"},
    .inputs = 3,
    .min_inputs = 2,
    .outputs = 1,
    .attrs_size = sizeof(struct embedding_attrs),
    .flags = OP_INTERNAL | OP_PICKS,
    .infer = infer_embedding,
};
