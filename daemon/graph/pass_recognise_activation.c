/* Activations spelled out in products and sums become one node.
 *
 *      x * Sigmoid(x)                                      Swish(x)
 *      x * 0.5 * (1 + Erf(x / Sqrt(2)))        becomes     Gelu(x)
 *      x * Clip(x + 3, 0, 6) / 6                           HardSwish(x)
 *
 * An expression around one inner function e of x is multiplied out to a polynomial in x and e, and
 * so is the argument of e; both are compared with a table.  So every order of factors is
 * recognised, and nothing that is not the same formula. */
#include "graph/match.h"
#include "graph/polynomial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 10, CANDIDATES = 8 };

struct expression {
    struct value *x;
    struct value *e; /* result of the inner function; NULL: none met yet */
    struct match match;
    double tolerance; /* of the constants met, by their type */
    size_t most_rank; /* of numbers: more would add dimensions to x */
};

static void note_precision(struct expression *expression, const struct value *constant)
{
    double tolerance = constant->dtype == DTYPE_BFLOAT16  ? 8e-3
                       : constant->dtype == DTYPE_FLOAT16 ? 1e-3
                                                          : 1e-6;

    if (tolerance > expression->tolerance)
        expression->tolerance = tolerance;
}

static bool is_inner_function(const struct node *node)
{
    static const char *const names[] = {"Clip", "Erf", "HardSigmoid", "Sigmoid", "Tanh", NULL};

    for (size_t i = 0; names[i] != NULL; i++)
        if (node_is(node, names[i]))
            return true;
    return false;
}

static bool evaluate(struct expression *expression, struct value *value, bool allow_e, int depth,
                     struct poly *out);

static bool power(const struct poly *base, const struct poly *exponent, struct poly *out)
{
    double number;

    if (!poly_is_number(exponent, &number) || (number != 2 && number != 3))
        return false;
    if (!poly_product(base, base, out))
        return false;
    return number == 2 || poly_product(out, base, out);
}

static bool combine(const struct node *node, const struct poly *a, const struct poly *b,
                    struct poly *out)
{
    double number;

    if (node_is(node, "Add"))
        *out = poly_sum(a, b, 1);
    else if (node_is(node, "Sub"))
        *out = poly_sum(a, b, -1);
    else if (node_is(node, "Mul"))
        return poly_product(a, b, out);
    else if (node_is(node, "Pow"))
        return power(a, b, out);
    else if (node_is(node, "Div") && poly_is_number(b, &number) && number != 0)
        *out = poly_sum(&(struct poly){0}, a, 1 / number);
    else
        return false;
    return true;
}

static bool evaluate_node(struct expression *expression, struct node *node, bool allow_e, int depth,
                          struct poly *out)
{
    struct poly a, b;

    if (is_inner_function(node)) {
        if (!allow_e || (expression->e != NULL && expression->e != node->out[0]))
            return false;
        expression->e = node->out[0];
        *out = poly_e();
        return match_add(&expression->match, node);
    }
    if (node->inputs != 2 || !match_add(&expression->match, node))
        return false;
    return evaluate(expression, node->in[0], allow_e, depth + 1, &a) &&
           evaluate(expression, node->in[1], allow_e, depth + 1, &b) && combine(node, &a, &b, out);
}

static bool evaluate(struct expression *expression, struct value *value, bool allow_e, int depth,
                     struct poly *out)
{
    double number;

    if (value == expression->x) {
        *out = poly_x();
        return true;
    }
    if (value_number(value, expression->most_rank, &number)) {
        note_precision(expression, value);
        *out = poly_number(number);
        return true;
    }
    return depth < DEEPEST && value->producer != NULL &&
           evaluate_node(expression, value->producer, allow_e, depth, out);
}

/* --- the table ----------------------------------------------------------------------------------
 */

/* What was found: outer(x, e) with e = function(argument(x)). */
struct finding {
    const struct node *function;
    struct poly outer;
    struct poly argument;
    bool argument_is_softplus; /* of x; `argument` is then empty */
    double tolerance;
};

struct replacement {
    const char *op;
    const char *attr; /* NULL: none */
    double number;
    const char *second_attr;
    double second_number;
};

static bool outer_is(const struct finding *finding, double x, double e, double xe)
{
    const struct poly want = {.c[1][0] = x, .c[0][1] = e, .c[1][1] = xe};

    return poly_is_near(&finding->outer, &want, finding->tolerance);
}

static bool argument_is(const struct finding *finding, double x, double xxx)
{
    const struct poly want = {.c[1][0] = x, .c[3][0] = xxx};

    return poly_is_near(&finding->argument, &want, finding->tolerance);
}

/* The argument a x and nothing else: a. */
static bool argument_is_scaled_x(const struct finding *finding, double *out_scale)
{
    const struct poly want = {.c[1][0] = finding->argument.c[1][0]};

    *out_scale = finding->argument.c[1][0];
    return !finding->argument_is_softplus && *out_scale != 0 &&
           poly_is_near(&finding->argument, &want, 0);
}

static const double root_2_over_pi = 0.79788456080286535588;
static const double gelu_cube = 0.044715;

static bool is_gelu_erf(const struct finding *finding, struct replacement *out)
{
    if (!node_is(finding->function, "Erf") || !outer_is(finding, 0.5, 0, 0.5) ||
        !argument_is(finding, 0.70710678118654752440, 0))
        return false;
    *out = (struct replacement){.op = "Gelu", .attr = "approximate", .number = 0};
    return true;
}

static bool is_gelu_tanh(const struct finding *finding, struct replacement *out)
{
    bool by_tanh = node_is(finding->function, "Tanh") && outer_is(finding, 0.5, 0, 0.5) &&
                   argument_is(finding, root_2_over_pi, root_2_over_pi * gelu_cube);
    bool by_sigmoid = node_is(finding->function, "Sigmoid") && outer_is(finding, 0, 0, 1) &&
                      argument_is(finding, 2 * root_2_over_pi, 2 * root_2_over_pi * gelu_cube);

    *out = (struct replacement){.op = "Gelu", .attr = "approximate", .number = 1};
    return by_tanh || by_sigmoid;
}

static bool is_swish(const struct finding *finding, struct replacement *out)
{
    double scale;

    if (!argument_is_scaled_x(finding, &scale))
        return false;
    if (node_is(finding->function, "Tanh") && outer_is(finding, 0.5, 0, 0.5))
        scale *= 2;
    else if (!node_is(finding->function, "Sigmoid") || !outer_is(finding, 0, 0, 1))
        return false;
    *out = (struct replacement){.op = "Swish", .attr = "alpha", .number = scale};
    return true;
}

static bool is_mish(const struct finding *finding, struct replacement *out)
{
    *out = (struct replacement){.op = "Mish"};
    return finding->argument_is_softplus && node_is(finding->function, "Tanh") &&
           outer_is(finding, 0, 0, 1);
}

/* Clip(a x + b, low, high) and HardSigmoid(a' x + b') as clip(alpha x + beta, 0, high). */
struct ramp {
    double alpha, beta, high;
};

static bool as_ramp(const struct finding *finding, struct ramp *out)
{
    const struct node *node = finding->function;
    double a = finding->argument.c[1][0], b = finding->argument.c[0][0], low;
    const struct poly want = {.c[1][0] = a, .c[0][0] = b};

    if (finding->argument_is_softplus || !poly_is_near(&finding->argument, &want, 0))
        return false;
    if (node_is(node, "HardSigmoid")) {
        double alpha = (double)node_attr_float(node, "alpha", 0.2F);

        *out = (struct ramp){alpha * a, alpha * b + (double)node_attr_float(node, "beta", 0.5F), 1};
        return true;
    }
    *out = (struct ramp){.alpha = a, .beta = b};
    return node_is(node, "Clip") && node->inputs == 3 && value_scalar(node->in[1], &low) &&
           low == 0 && value_scalar(node->in[2], &out->high) && out->high > 0;
}

static bool is_near(double value, double want, double tolerance)
{
    return fabs(value - want) <= tolerance * fabs(want);
}

static bool is_hard_swish(const struct finding *finding, struct replacement *out)
{
    struct ramp ramp;
    double factor = finding->outer.c[1][1];

    *out = (struct replacement){.op = "HardSwish"};
    return as_ramp(finding, &ramp) && outer_is(finding, 0, 0, factor) &&
           is_near(factor * ramp.high, 1, finding->tolerance) &&
           is_near(factor * ramp.alpha, 1.0 / 6, finding->tolerance) &&
           is_near(factor * ramp.beta, 0.5, finding->tolerance);
}

static bool is_hard_sigmoid(const struct finding *finding, struct replacement *out)
{
    struct ramp ramp;
    double factor = finding->outer.c[0][1];

    if (!node_is(finding->function, "Clip") || !as_ramp(finding, &ramp) ||
        !outer_is(finding, 0, factor, 0) || !is_near(factor * ramp.high, 1, finding->tolerance))
        return false;
    *out = (struct replacement){.op = "HardSigmoid",
                                .attr = "alpha",
                                .number = factor * ramp.alpha,
                                .second_attr = "beta",
                                .second_number = factor * ramp.beta};
    return true;
}

static bool (*const table[])(const struct finding *finding, struct replacement *out) = {
    is_gelu_erf, is_gelu_tanh, is_swish, is_mish, is_hard_swish, is_hard_sigmoid, NULL,
};

/* --- the search ---------------------------------------------------------------------------------
 */

/* Softplus(x), or Log(1 + Exp(x)). */
static bool is_softplus(struct expression *expression, struct value *value)
{
    struct node *softplus = producer_is(value, "Softplus"), *log = producer_is(value, "Log"), *add,
                *exp;
    double one;

    if (softplus != NULL)
        return softplus->in[0] == expression->x && match_add(&expression->match, softplus);
    add = log == NULL ? NULL : producer_is(log->in[0], "Add");
    if (add == NULL)
        return false;
    exp = producer_is(add->in[0], "Exp");
    if (exp == NULL)
        exp = producer_is(add->in[1], "Exp");
    return exp != NULL && exp->in[0] == expression->x &&
           value_scalar(add->in[add->in[0] == exp->out[0]], &one) && one == 1 &&
           match_add(&expression->match, log) && match_add(&expression->match, add) &&
           match_add(&expression->match, exp);
}

static bool read_finding(struct expression *expression, struct node *root, struct finding *finding)
{
    *finding = (struct finding){0};
    if (!evaluate_node(expression, root, true, 0, &finding->outer) || expression->e == NULL)
        return false;
    finding->function = expression->e->producer;
    finding->argument_is_softplus = is_softplus(expression, finding->function->in[0]);
    if (!finding->argument_is_softplus &&
        !evaluate(expression, finding->function->in[0], false, 0, &finding->argument))
        return false;
    finding->tolerance = expression->tolerance;
    return match_is_closed(&expression->match);
}

static bool find(struct node *root, struct value *x, enum pass_stage stage, struct replacement *out)
{
    struct expression expression = {.x = x, .tolerance = 1e-6, .most_rank = 1};
    struct finding finding;

    if (stage == PASS_PLAN && x->shape_known && x->shape.rank > 1)
        expression.most_rank = x->shape.rank;
    if (!read_finding(&expression, root, &finding))
        return false;
    for (size_t i = 0; table[i] != NULL; i++)
        if (table[i](&finding, out))
            return true;
    return false;
}

/* x is a factor of the root, or one of a product that is one; or, in a scaled Clip, what is
 * clipped. */
static void add_candidates(struct value *value, int depth, struct value **list, size_t *count)
{
    struct node *node = value->producer;

    if (value->constant != NULL)
        return;
    for (size_t i = 0; i < *count; i++)
        if (list[i] == value)
            return;
    if (*count < CANDIDATES)
        list[(*count)++] = value;
    if (depth == 0 || node == NULL)
        return;
    if (node_is(node, "Mul") || node_is(node, "Div") || node_is(node, "Add"))
        for (size_t i = 0; i < 2; i++)
            add_candidates(node->in[i], depth - 1, list, count);
    if (node_is(node, "Clip"))
        add_candidates(node->in[0], depth, list, count);
}

static bool is_root(const struct node *node)
{
    return (node_is(node, "Mul") || node_is(node, "Div")) && node->out[0] != NULL;
}

static enum status replace(struct graph *graph, struct node *root, struct value *x,
                           const struct replacement *replacement, struct error *err)
{
    const struct op_def *op = op_find("", replacement->op);
    struct node *node;

    if (op == NULL)
        return STATUS_OK;
    node = node_replace(graph, root, op, 1, &x);
    if (node == NULL)
        return pass_no_memory(err);
    if (replacement->attr != NULL &&
        !node_set_float(node, replacement->attr, (float)replacement->number))
        (void)node_set_int(node, replacement->attr, (int64_t)replacement->number);
    if (replacement->second_attr != NULL)
        (void)node_set_float(node, replacement->second_attr, (float)replacement->second_number);
    return STATUS_OK;
}

static enum status recognise(struct graph *graph, enum pass_stage stage, struct error *err)
{
    struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, struct node, link) {
        struct value *candidates[CANDIDATES];
        struct replacement replacement;
        size_t count = 0;

        if (!is_root(node))
            continue;
        for (size_t i = 0; i < 2; i++)
            add_candidates(node->in[i], 2, candidates, &count);
        while (count-- > 0) { /* the deepest first: it takes in most */
            if (find(node, candidates[count], stage, &replacement)) {
                TRY(replace(graph, node, candidates[count], &replacement, err));
                break;
            }
        }
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

const struct pass pass_recognise_activation = {
    .name = "recognise_activation", .stage = PASS_MODEL, .run = run};
/* Numbers written as [1,1,1] only count as such where the rank of x is known. */
const struct pass pass_recognise_activation_plan = {
    .name = "recognise_activation_plan", .stage = PASS_PLAN, .run = run_plan};
