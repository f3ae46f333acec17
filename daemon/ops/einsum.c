/* Einsum: the equation is parsed here for the rule and for every kernel.
 *
 * Letters become small numbers in the order in which they appear; an ellipsis stands for as many
 * nameless axes as an operand has left, aligned at the last one, numbered behind the letters.
 */
#include <inttypes.h>
#include <string.h>

#include "ops/indexing.h"

enum { LETTERS = 52, NAMELESS = LETTERS, ALL = LETTERS + SHAPE_MAX_RANK };

/* One term: its letters, and where its ellipsis stands (-1: nowhere). */
struct term {
    size_t count;
    unsigned char letters[SHAPE_MAX_RANK];
    int ellipsis;
};

struct parser {
    const char *at;
    struct error *err;
};

static int letter_of(char c)
{
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    return c >= 'A' && c <= 'Z' ? c - 'A' : -1;
}

/* Reads up to ',' or '->' or the end. */
static enum status read_term(struct parser *parser, struct term *term)
{
    *term = (struct term){.ellipsis = -1};
    for (;; parser->at++) {
        if (*parser->at == ' ')
            continue;
        if (strncmp(parser->at, "...", 3) == 0 && term->ellipsis < 0) {
            term->ellipsis = (int)term->count;
            parser->at += 2;
            continue;
        }
        if (letter_of(*parser->at) < 0)
            return STATUS_OK;
        if (term->count == SHAPE_MAX_RANK)
            return error_set(parser->err, STATUS_UNSUPPORTED, "a term names more than %d axes",
                             SHAPE_MAX_RANK);
        term->letters[term->count++] = (unsigned char)letter_of(*parser->at);
    }
}

/* The places of all axes of a term whose ellipsis stands for `nameless` axes, out of `widest`. */
static size_t spell_out(const struct term *term, size_t nameless, size_t widest, unsigned char *out)
{
    size_t count = 0;

    for (size_t i = 0; i <= term->count; i++) {
        if ((int)i == term->ellipsis)
            for (size_t k = 0; k < nameless; k++)
                out[count++] = (unsigned char)(NAMELESS + widest - nameless + k);
        if (i < term->count)
            out[count++] = term->letters[i];
    }
    return count;
}

static enum status set_length(int64_t *length, int64_t dim, struct error *err)
{
    if (*length == -1 || *length == 1)
        *length = dim;
    else if (dim != 1 && dim != *length)
        return error_set(err, STATUS_INVALID, "one label is %" PRId64 " and %" PRId64 " long",
                         *length, dim);
    return STATUS_OK;
}

/* Without "->": the nameless axes, then the letters that appear once, in the order of ASCII. */
static void imply_output(struct term *output, const int *uses, bool any_ellipsis)
{
    *output = (struct term){.ellipsis = any_ellipsis ? 0 : -1};
    for (int i = 0; i < LETTERS; i++)
        if (uses[i] == 1 && output->count < SHAPE_MAX_RANK)
            output->letters[output->count++] = (unsigned char)i;
}

static enum status read_inputs(struct parser *parser, size_t inputs, const struct shape *const *in,
                               struct term *terms, size_t *out_widest)
{
    *out_widest = 0;
    for (size_t i = 0; i < inputs; i++) {
        size_t rank = in[i]->rank;

        TRY(read_term(parser, &terms[i]));
        if (i + 1 < inputs && *parser->at++ != ',')
            return error_set(parser->err, STATUS_INVALID,
                             "the equation has %zu terms, inputs are %zu", i + 1, inputs);
        if (terms[i].count > rank || (terms[i].count < rank && terms[i].ellipsis < 0))
            return error_set(parser->err, STATUS_INVALID,
                             "term %zu names %zu axes, its input has rank %zu", i, terms[i].count,
                             rank);
        if (terms[i].ellipsis >= 0 && rank - terms[i].count > *out_widest)
            *out_widest = rank - terms[i].count;
    }
    return STATUS_OK;
}

static enum status read_output(struct parser *parser, const struct term *terms, size_t inputs,
                               struct term *output)
{
    int uses[LETTERS] = {0};
    bool any_ellipsis = false;

    for (size_t i = 0; i < inputs; i++) {
        any_ellipsis |= terms[i].ellipsis >= 0;
        for (size_t k = 0; k < terms[i].count; k++)
            uses[terms[i].letters[k]]++;
    }
    if (*parser->at == '\0') {
        imply_output(output, uses, any_ellipsis);
        return STATUS_OK;
    }
    if (strncmp(parser->at, "->", 2) != 0)
        return error_set(parser->err, STATUS_INVALID, "'%.20s' is not expected in the equation",
                         parser->at);
    parser->at += 2;
    TRY(read_term(parser, output));
    if (*parser->at != '\0')
        return error_set(parser->err, STATUS_INVALID, "'%.20s' is not expected in the equation",
                         parser->at);
    for (size_t k = 0; k < output->count; k++) {
        if (uses[output->letters[k]] <= 0)
            return error_set(parser->err, STATUS_INVALID,
                             "a label of the output is in no input, or twice in the output");
        uses[output->letters[k]] = -1;
    }
    return STATUS_OK;
}

/* Numbers the labels in use densely and writes them through `map`. */
static unsigned char dense_label(unsigned char label, unsigned char *map, struct einsum_plan *plan,
                                 const int64_t *lengths)
{
    if (map[label] == UINT8_MAX) {
        map[label] = (unsigned char)plan->labels;
        plan->lengths[plan->labels++] = lengths[label];
    }
    return map[label];
}

static enum status number_labels(struct einsum_plan *plan, size_t inputs, const int64_t *lengths,
                                 struct error *err)
{
    unsigned char map[ALL];
    size_t used = 0;

    for (size_t i = 0; i < ALL; i++)
        used += lengths[i] >= 0;
    if (used > EINSUM_MAX_LABELS)
        return error_set(err, STATUS_UNSUPPORTED, "%zu labels are above %d", used,
                         EINSUM_MAX_LABELS);
    memset(map, UINT8_MAX, sizeof(map));
    for (size_t i = 0; i < inputs; i++)
        for (size_t k = 0; k < plan->in_ranks[i]; k++)
            plan->in[i][k] = dense_label(plan->in[i][k], map, plan, lengths);
    for (size_t k = 0; k < plan->out_rank; k++)
        plan->out[k] = dense_label(plan->out[k], map, plan, lengths);
    return STATUS_OK;
}

enum status einsum_parse(const struct einsum_attrs *attrs, size_t inputs,
                         const struct shape *const *in, struct einsum_plan *out_plan,
                         struct error *err)
{
    struct parser parser = {attrs->equation, err};
    struct term terms[EINSUM_MAX_INPUTS], output;
    struct einsum_plan plan = {0};
    int64_t lengths[ALL];
    size_t widest;

    if (inputs < 1 || inputs > EINSUM_MAX_INPUTS)
        return error_set(err, STATUS_UNSUPPORTED, "%zu inputs, allowed are 1 to %d", inputs,
                         EINSUM_MAX_INPUTS);
    for (size_t i = 0; i < ALL; i++)
        lengths[i] = -1;
    TRY(read_inputs(&parser, inputs, in, terms, &widest));
    TRY(read_output(&parser, terms, inputs, &output));
    for (size_t i = 0; i < inputs; i++) {
        plan.in_ranks[i] =
            spell_out(&terms[i], terms[i].ellipsis >= 0 ? in[i]->rank - terms[i].count : 0, widest,
                      plan.in[i]);
        for (size_t k = 0; k < plan.in_ranks[i]; k++)
            TRY(set_length(&lengths[plan.in[i][k]], in[i]->dims[k], err));
    }
    if (output.count + (output.ellipsis >= 0 ? widest : 0) > SHAPE_MAX_RANK)
        return error_set(err, STATUS_UNSUPPORTED, "the result has a rank above %d", SHAPE_MAX_RANK);
    plan.out_rank = spell_out(&output, output.ellipsis >= 0 ? widest : 0, widest, plan.out);
    TRY(number_labels(&plan, inputs, lengths, err));
    *out_plan = plan;
    return STATUS_OK;
}

static enum status infer_einsum(const struct op_call *call, struct error *err)
{
    const struct shape *shapes[EINSUM_MAX_INPUTS];
    struct einsum_plan plan;

    for (size_t i = 0; i < call->inputs && i < EINSUM_MAX_INPUTS; i++) {
        if (call->in[i]->dtype != call->in[0]->dtype)
            return error_set(err, STATUS_INVALID, "input %zu is %s, input 0 is %s", i,
                             dtype_name(call->in[i]->dtype), dtype_name(call->in[0]->dtype));
        shapes[i] = &call->in[i]->shape;
    }
    TRY(einsum_parse(call->attrs, call->inputs, shapes, &plan, err));
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = (struct shape){.rank = plan.out_rank};
    for (size_t i = 0; i < plan.out_rank; i++)
        call->out[0]->shape.dims[i] = plan.lengths[plan.out[i]];
    return STATUS_OK;
}

/* All labels' lengths, for each input one product or sum. */
static uint64_t flops(const struct op_call *call)
{
    const struct shape *shapes[EINSUM_MAX_INPUTS];
    uint64_t flops = call->inputs;
    struct einsum_plan plan;

    for (size_t i = 0; i < call->inputs && i < EINSUM_MAX_INPUTS; i++)
        shapes[i] = &call->in[i]->shape;
    if (einsum_parse(call->attrs, call->inputs, shapes, &plan, &(struct error){0}) != STATUS_OK)
        return 0;
    for (size_t i = 0; i < plan.labels; i++)
        flops *= (uint64_t)plan.lengths[i];
    return flops;
}

static const struct attr_def attrs_of[] = {
    {ATTR_STRING, "equation", offsetof(struct einsum_attrs, equation), .required = true},
    OP_ATTR_END,
};

const struct op_def op_einsum = {
    .name = "einsum",
    .onnx = {"Einsum", .since = 12},
    .inputs = -1,
    .min_inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_NUMBERS,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct einsum_attrs),
    .infer = infer_einsum,
    .flops = flops,
};
