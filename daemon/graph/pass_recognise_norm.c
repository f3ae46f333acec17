/* Normalisation spelled out in small steps.
 *
 *      d = x - ReduceMean(x)                       LayerNormalization(x, scale, bias)
 *      d / Sqrt(ReduceMean(d * d) + eps)
 *        * scale [+ bias]               becomes
 *      x / Sqrt(ReduceMean(x * x) + eps)
 *        * scale                                   RMSNormalization(x, scale)
 *
 * d * d may be Pow(d, 2); the division a product with Reciprocal(s), 1 / s or Pow(v, -0.5). */
#include "graph/match.h"

struct norm {
    enum pass_stage stage;
    struct match match; /* root first: the last node */
    struct value *x;
    struct value *scale;
    struct value *bias; /* NULL: none */
    double epsilon;
    size_t axes;  /* how many of the last ones */
    bool centred; /* the mean was taken away */
};

/* The input of a node of two that is not `known`. */
static struct value *other_input(const struct node *node, const struct value *known)
{
    return node->in[0] == known ? node->in[1] : node->in[0];
}

/* ReduceMean over last axes, keeping them: the value it is of, or NULL. */
static struct value *mean_of(struct norm *norm, struct value *value)
{
    struct node *mean = producer_is(value, "ReduceMean");
    int64_t axes[SHAPE_MAX_RANK];
    size_t count;

    if (mean == NULL || mean->inputs < 2 || node_attr_int(mean, "keepdims", 1) != 1 ||
        !value_ints(mean->in[1], SHAPE_MAX_RANK, axes, &count) || count == 0)
        return NULL;
    count = value_last_axes(mean->in[0], axes, count, norm->stage);
    if (count == 0 || (norm->axes != 0 && norm->axes != count) || !match_add(&norm->match, mean))
        return NULL;
    norm->axes = count;
    return mean->in[0];
}

static struct value *square_of(struct norm *norm, struct value *value)
{
    struct node *mul = producer_is(value, "Mul"), *pow = producer_is(value, "Pow");
    double exponent;

    if (mul != NULL && mul->in[0] == mul->in[1] && match_add(&norm->match, mul))
        return mul->in[0];
    if (pow != NULL && value_scalar(pow->in[1], &exponent) && exponent == 2 &&
        match_add(&norm->match, pow))
        return pow->in[0];
    return NULL;
}

/* mean(square(d)) + eps: d, or NULL. */
static struct value *variance_of(struct norm *norm, struct value *value)
{
    struct node *add = producer_is(value, "Add");
    struct value *mean;

    if (add == NULL || !match_add(&norm->match, add))
        return NULL;
    if (value_scalar(add->in[1], &norm->epsilon))
        mean = add->in[0];
    else if (value_scalar(add->in[0], &norm->epsilon))
        mean = add->in[1];
    else
        return NULL;
    if (norm->epsilon < 0)
        return NULL;
    mean = mean_of(norm, mean);
    return mean == NULL ? NULL : square_of(norm, mean);
}

static struct value *root_of(struct norm *norm, struct value *value)
{
    struct node *sqrt = producer_is(value, "Sqrt");

    if (sqrt == NULL || !match_add(&norm->match, sqrt))
        return NULL;
    return variance_of(norm, sqrt->in[0]);
}

/* 1 / Sqrt(v + eps) in its spellings. */
static struct value *inverse_root_of(struct norm *norm, struct value *value)
{
    struct node *node = value->producer;
    double number;

    if (node == NULL || !match_add(&norm->match, node))
        return NULL;
    if (node_is(node, "Reciprocal"))
        return root_of(norm, node->in[0]);
    if (node_is(node, "Div") && value_scalar(node->in[0], &number) && number == 1)
        return root_of(norm, node->in[1]);
    if (node_is(node, "Pow") && value_scalar(node->in[1], &number) && number == -0.5)
        return variance_of(norm, node->in[0]);
    return NULL;
}

/* x - mean(x): x, or NULL. */
static struct value *centred_of(struct norm *norm, struct value *value)
{
    struct node *sub = producer_is(value, "Sub");
    struct value *x;

    if (sub == NULL || !match_add(&norm->match, sub))
        return NULL;
    x = mean_of(norm, sub->in[1]);
    return x == sub->in[0] ? x : NULL;
}

/* `node` divides a value by the root of its own mean square. */
static bool matches_division(struct norm *norm, struct node *node)
{
    struct norm tried;

    if (!node_is(node, "Div") && !node_is(node, "Mul"))
        return false;
    for (size_t side = 0; side < 2; side++) {
        struct value *from = node->in[side], *by = node->in[1 - side], *squared;

        tried = *norm;
        if (!match_add(&tried.match, node) || (node_is(node, "Div") && side == 1))
            continue;
        squared = node_is(node, "Div") ? root_of(&tried, by) : inverse_root_of(&tried, by);
        if (squared == NULL || squared != from)
            continue;
        tried.x = from;
        *norm = tried;
        return true;
    }
    return false;
}

/* A constant for exactly the normalised dimensions. */
static bool is_parameter(const struct norm *norm, const struct value *value)
{
    return value->constant != NULL && value->constant->tensor.shape.rank == norm->axes &&
           dtype_is_float(value->dtype);
}

static struct node *next_user(struct graph *graph, const struct node *node, const char *op,
                              const struct norm *norm, struct value **out_parameter)
{
    struct node *user = graph_single_user(graph, node->out[0]);

    if (!node_is(user, op))
        return NULL;
    *out_parameter = other_input(user, node->out[0]);
    return is_parameter(norm, *out_parameter) ? user : NULL;
}

/* Puts the last node first: the match's root. */
static void make_root(struct norm *norm, struct node *node)
{
    struct match match = {.nodes = {node}, .count = 1};

    for (size_t i = 0; i < norm->match.count; i++)
        (void)match_add(&match, norm->match.nodes[i]);
    norm->match = match;
}

static bool find(struct graph *graph, struct node *division, struct norm *norm)
{
    struct node *scaled, *shifted = NULL;
    struct norm tried;
    struct value *x;

    if (!matches_division(norm, division))
        return false;
    scaled = next_user(graph, division, "Mul", norm, &norm->scale);
    if (scaled == NULL)
        return false;
    tried = *norm;
    x = centred_of(&tried, norm->x);
    if (x != NULL) {
        *norm = tried;
        norm->x = x;
        norm->centred = true;
        shifted = next_user(graph, scaled, "Add", norm, &norm->bias);
    }
    if (shifted == NULL)
        norm->bias = NULL;
    if (norm->match.count + 2 > MATCH_ROOM)
        return false;
    make_root(norm, scaled);
    if (shifted != NULL)
        make_root(norm, shifted);
    return match_is_closed(&norm->match);
}

static enum status replace(struct graph *graph, const struct norm *norm, struct error *err)
{
    const struct op_def *op =
        op_find("", norm->centred ? "LayerNormalization" : "RMSNormalization");
    struct value *in[] = {norm->x, norm->scale, norm->bias};
    struct node *node;

    if (op == NULL)
        return STATUS_OK;
    node = node_replace(graph, norm->match.nodes[0], op, norm->bias != NULL ? 3 : 2, in);
    if (node == NULL)
        return pass_no_memory(err);
    (void)node_set_int(node, "axis", -(int64_t)norm->axes);
    (void)node_set_float(node, "epsilon", (float)norm->epsilon);
    return node_infer_if_known(graph, node, norm->stage, err);
}

static enum status recognise(struct graph *graph, enum pass_stage stage, struct error *err)
{
    struct list *link = graph->nodes.next;

    /* The root stands behind the division: it may be the very next node, so no LIST_FOR_EACH. */
    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);
        struct norm norm = {.stage = stage};

        if (find(graph, node, &norm))
            TRY(replace(graph, &norm, err));
        link = node->link.next;
    }
    return STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    (void)context;
    return recognise(graph, PASS_MODEL, err);
}

static enum status run_plan(struct graph *graph, const struct pass_context *context,
                            struct error *err)
{
    (void)context;
    return recognise(graph, PASS_PLAN, err);
}

const struct pass pass_recognise_norm = {.name = "recognise_norm", .stage = PASS_MODEL, .run = run};
/* Axes written from the front are only known to be the last ones when the rank is. */
const struct pass pass_recognise_norm_plan = {
    .name = "recognise_norm_plan", .stage = PASS_PLAN, .run = run_plan};
