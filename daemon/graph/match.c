#include "graph/match.h"
#include "tensor/element.h"

#include <string.h>

enum status pass_no_memory(struct error *err)
{
    return error_set(err, STATUS_NO_MEMORY, "no memory to rewrite the graph");
}

static bool is_plain_domain(const char *domain)
{
    return domain == NULL || domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0;
}

bool node_is(const struct node *node, const char *onnx_name)
{
    return node != NULL && node->op->onnx.name != NULL &&
           strcmp(node->op->onnx.name, onnx_name) == 0 && is_plain_domain(node->op->onnx.domain);
}

struct node *producer_is(const struct value *value, const char *onnx_name)
{
    return value != NULL && node_is(value->producer, onnx_name) ? value->producer : NULL;
}

bool node_is_elementwise(const struct node *node)
{
    return (node->op->flags & OP_ELEMENTWISE) != 0 || node_is(node, "Clip") ||
           node_is(node, "Cast");
}

/* --- attributes ---------------------------------------------------------------------------------
 */

static const struct attr_def *find_attr(const struct node *node, const char *name)
{
    for (const struct attr_def *def = node->op->attrs; def != NULL && def->type != ATTR_END; def++)
        if (strcmp(def->name, name) == 0)
            return def;
    return NULL;
}

void *node_attr(const struct node *node, const char *name)
{
    const struct attr_def *def = find_attr(node, name);

    return def == NULL ? NULL : (char *)node->attrs + def->offset;
}

int64_t node_attr_int(const struct node *node, const char *name, int64_t absent)
{
    const struct attr_def *def = find_attr(node, name);

    if (def != NULL && def->type == ATTR_INT)
        return *(const int64_t *)node_attr(node, name);
    if (def != NULL && def->type == ATTR_ENUM)
        return *(const int *)node_attr(node, name);
    return absent;
}

float node_attr_float(const struct node *node, const char *name, float absent)
{
    const struct attr_def *def = find_attr(node, name);

    return def != NULL && def->type == ATTR_FLOAT ? *(const float *)node_attr(node, name) : absent;
}

const struct ints *node_attr_ints(const struct node *node, const char *name)
{
    const struct attr_def *def = find_attr(node, name);
    const struct ints *ints = def != NULL && def->type == ATTR_INTS ? node_attr(node, name) : NULL;

    return ints != NULL && ints->values != NULL ? ints : NULL;
}

bool node_set_int(struct node *node, const char *name, int64_t number)
{
    const struct attr_def *def = find_attr(node, name);

    if (def != NULL && def->type == ATTR_INT)
        *(int64_t *)node_attr(node, name) = number;
    else if (def != NULL && def->type == ATTR_ENUM)
        *(int *)node_attr(node, name) = (int)number;
    else
        return false;
    return true;
}

bool node_set_float(struct node *node, const char *name, float number)
{
    const struct attr_def *def = find_attr(node, name);

    if (def == NULL || def->type != ATTR_FLOAT)
        return false;
    *(float *)node_attr(node, name) = number;
    return true;
}

/* --- values -------------------------------------------------------------------------------------
 */

double tensor_float(const struct tensor *tensor, size_t index)
{
    return dtype_is_float(tensor->dtype) ? element_read(tensor->dtype, tensor->data, index) : 0;
}

bool node_is_reshaping(const struct node *node)
{
    return node_is(node, "Reshape") || node_is(node, "Squeeze") || node_is(node, "Unsqueeze") ||
           node_is(node, "Flatten");
}

bool value_scalar(const struct value *value, double *out_number)
{
    return value_number(value, 1, out_number);
}

bool value_number(const struct value *value, size_t most_rank, double *out_number)
{
    const struct tensor *tensor;

    if (value == NULL || value->constant == NULL)
        return false;
    tensor = &value->constant->tensor;
    if (tensor->shape.rank > most_rank || shape_count(&tensor->shape) != 1)
        return false;
    if (tensor->dtype == DTYPE_INT64)
        *out_number = (double)*(const int64_t *)tensor->data;
    else if (tensor->dtype == DTYPE_INT32)
        *out_number = *(const int32_t *)tensor->data;
    else if (dtype_is_float(tensor->dtype))
        *out_number = tensor_float(tensor, 0);
    else
        return false;
    return true;
}

bool value_ints(const struct value *value, size_t room, int64_t *out_ints, size_t *out_count)
{
    const struct tensor *tensor;
    size_t count;

    if (value == NULL || value->constant == NULL)
        return false;
    tensor = &value->constant->tensor;
    count = (size_t)shape_count(&tensor->shape);
    if (tensor->shape.rank > 1 || count > room ||
        (tensor->dtype != DTYPE_INT64 && tensor->dtype != DTYPE_INT32))
        return false;
    for (size_t i = 0; i < count; i++)
        out_ints[i] = tensor->dtype == DTYPE_INT64 ? ((const int64_t *)tensor->data)[i]
                                                   : ((const int32_t *)tensor->data)[i];
    *out_count = count;
    return true;
}

/* --- ranks --------------------------------------------------------------------------------------
 */

/* Rank of a value as far as it is certain, -1 otherwise.  In a plan all inferred shapes are
 * certain, in a model's graph those of inputs and constants, and what follows from them by a few
 * rules: what files declare in between is not trusted. */
static int rank_of(const struct value *value, enum pass_stage stage, int depth);

/* Operators whose output 0 has the rank of input 0. */
static bool keeps_rank(const struct node *node)
{
    static const char *const names[] = {
        "AveragePool", "BatchNormalization",
        "Cast",        "Concat",
        "CumSum",      "GlobalAveragePool",
        "Identity",    "InstanceNormalization",
        "LRN",         "LayerNormalization",
        "LogSoftmax",  "MaxPool",
        "Pad",         "Resize",
        "Slice",       "Softmax",
        "Split",       "Tile",
        "Transpose",   NULL,
    };

    for (size_t i = 0; names[i] != NULL; i++)
        if (node_is(node, names[i]))
            return true;
    return false;
}

static int rank_of_broadcast(const struct node *node, enum pass_stage stage, int depth)
{
    int rank = 0;

    for (size_t i = 0; i < node->inputs; i++) {
        int other = node->in[i] == NULL ? 0 : rank_of(node->in[i], stage, depth);

        if (other < 0)
            return -1;
        rank = other > rank ? other : rank;
    }
    return rank;
}

static int rank_of_result(const struct node *node, enum pass_stage stage, int depth)
{
    if (node_is(node, "Gemm") || node_is(node, "Flatten"))
        return 2;
    if (node_is(node, "Conv") || node_is(node, "ConvTranspose"))
        return node->inputs > 1 ? rank_of(node->in[1], stage, depth) : -1;
    if (node_is(node, "Reshape") && node->inputs > 1 && node->in[1]->constant != NULL)
        return (int)shape_count(&node->in[1]->constant->tensor.shape);
    if (node_is_elementwise(node))
        return rank_of_broadcast(node, stage, depth);
    if (keeps_rank(node) && node->inputs > 0 && node->in[0] != NULL)
        return rank_of(node->in[0], stage, depth);
    return -1;
}

static int rank_of(const struct value *value, enum pass_stage stage, int depth)
{
    enum { DEEPEST = 24 };

    if (value->constant != NULL || (value->shape_known && (stage == PASS_PLAN || value->is_input)))
        return (int)value->shape.rank;
    if (value->producer == NULL || value->producer->out[0] != value || depth > DEEPEST)
        return -1;
    return rank_of_result(value->producer, stage, depth + 1);
}

size_t value_last_axes(const struct value *value, const int64_t *axes, size_t count,
                       enum pass_stage stage)
{
    int rank = rank_of(value, stage, 0);

    for (size_t i = 0; i < count; i++) {
        int64_t want = (int64_t)i - (int64_t)count; /* in order, ending with -1 */

        if (axes[i] != want && (rank < 0 || axes[i] != want + rank))
            return 0;
    }
    return count;
}

/* --- matches ------------------------------------------------------------------------------------
 */

bool match_add(struct match *match, struct node *node)
{
    for (size_t i = 0; i < match->count; i++)
        if (match->nodes[i] == node)
            return true;
    if (match->count == MATCH_ROOM)
        return false;
    match->nodes[match->count++] = node;
    return true;
}

static uint32_t uses_within(const struct match *match, const struct value *value)
{
    uint32_t uses = 0;

    for (size_t n = 0; n < match->count; n++)
        for (size_t i = 0; i < match->nodes[n]->inputs; i++)
            uses += match->nodes[n]->in[i] == value;
    return uses;
}

bool match_is_closed(const struct match *match)
{
    for (size_t n = 1; n < match->count; n++) {
        const struct node *node = match->nodes[n];

        for (size_t i = 0; i < node->outputs; i++)
            if (node->out[i] != NULL && (node->out[i]->is_output ||
                                         node->out[i]->users != uses_within(match, node->out[i])))
                return false;
    }
    return true;
}

struct node *node_replace(struct graph *graph, struct node *root, const struct op_def *op,
                          size_t inputs, struct value *const *in)
{
    struct node *node = graph_add_node(graph, root, op, root->name, inputs, 1);
    struct value *out = root->out[0];

    if (node == NULL)
        return NULL;
    op_attrs_default(op, node->attrs);
    for (size_t i = 0; i < inputs; i++)
        node_set_input(node, i, in[i]);
    node_set_output(root, 0, NULL);
    node_set_output(node, 0, out);
    graph_remove_node(graph, root);
    return node;
}

enum status node_infer_if_known(struct graph *graph, struct node *node, enum pass_stage stage,
                                struct error *err)
{
    return stage == PASS_PLAN ? graph_infer_node(graph, node, err) : STATUS_OK;
}
