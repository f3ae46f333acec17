/* Rows through nodes that compute: which of them work across rows.  One row in the table each. */
#include <string.h>

#include "graph/row_step.h"
#include "graph/rows.h"

/* Combines rows of operands whose dimensions are aligned at their ends. */
struct meeting {
    int from_end; /* of the rows found so far; 0: none */
    bool is_lost, is_mixed;
};

static void meet(struct meeting *meeting, bool rows, int from_end)
{
    if (!rows)
        return;
    if (from_end <= 0)
        meeting->is_lost = true;
    else if (meeting->from_end != 0 && meeting->from_end != from_end)
        meeting->is_mixed = true;
    else
        meeting->from_end = from_end;
}

static void put_meeting(struct step *step, const struct meeting *meeting, int rank)
{
    int axis = meeting->is_lost || rank == LOST ? LOST : rank - meeting->from_end;

    put(step, 0, rank, axis);
}

static bool element_by_element(struct step *step)
{
    struct meeting meeting = {0};
    int rank = 0;

    if (step->node->inputs == 1) {
        put_all(step, input(step, 0).rank, input(step, 0).axis);
        return false;
    }
    for (size_t i = 0; i < step->node->inputs; i++) {
        struct place place = input(step, i);

        if (step->node->in[i] == NULL)
            continue;
        if (place.rank == LOST || rank == LOST)
            rank = LOST;
        else if (place.rank > rank)
            rank = place.rank;
        meet(&meeting, place.rows,
             is_found(place) && place.rank != LOST ? place.rank - place.axis : 0);
    }
    put_meeting(step, &meeting, rank);
    return meeting.is_mixed;
}

static bool as_first_input(struct step *step)
{
    put_all(step, input(step, 0).rank, input(step, 0).axis);
    return false;
}

/* Images and tables: rows are dimension 0, each computed by itself. */
static bool row_by_row(struct step *step)
{
    bool is_first = input(step, 0).axis == 0;

    for (size_t i = 1; i < step->node->inputs; i++)
        is_first &= !input(step, i).rows;
    if (is_first)
        put_all(step, input(step, 0).rank, 0);
    return false;
}

static bool across_everything(struct step *step)
{
    return input(step, 0).rows;
}

static bool along_axis(struct step *step)
{
    (void)as_first_input(step);
    return is_along(input(step, 0), node_attr_int(step->node, "axis", -1));
}

static bool along_listed_axis(struct step *step) /* CumSum */
{
    int64_t axes[SHAPE_MAX_RANK];
    size_t count;

    (void)as_first_input(step);
    return list_of(step, 1, axes, &count) && count == 1 && is_along(input(step, 0), axes[0]);
}

static bool from_axis_on(struct step *step) /* LayerNormalization */
{
    struct place in = input(step, 0);
    int first = from_front(node_attr_int(step->node, "axis", -1), in.rank);

    (void)as_first_input(step);
    return is_found(in) && first != LOST && in.axis >= first;
}

static bool along_time(struct step *step) /* ReverseSequence */
{
    (void)as_first_input(step);
    return is_along(input(step, 0), node_attr_int(step->node, "time_axis", 0));
}

static bool along_its_axes(struct step *step) /* MeanVarianceNormalization */
{
    static const int64_t standard[] = {0, 2, 3};
    const struct ints *given = node_attr_ints(step->node, "axes");
    const struct ints axes = given != NULL ? *given : (struct ints){3, standard};

    (void)as_first_input(step);
    for (size_t i = 0; i < axes.count; i++)
        if (is_along(input(step, 0), axes.values[i]))
            return true;
    return false;
}

bool row_reduce(struct step *step, const int64_t *axes, size_t count, bool keeps)
{
    struct place in = input(step, 0);
    int before = 0;

    for (size_t i = 0; i < count; i++) {
        int axis = from_front(axes[i], in.rank);

        if (axis == LOST)
            return false;
        if (axis == in.axis)
            return is_found(in);
        before += axis < in.axis;
    }
    if (in.axis == LOST || keeps)
        put_all(step, keeps || in.rank == LOST ? in.rank : in.rank - (int)count, in.axis);
    else
        put_all(step, in.rank == LOST ? LOST : in.rank - (int)count, in.axis - before);
    return false;
}

static bool over_axes(struct step *step) /* Reduce… */
{
    int64_t axes[SHAPE_MAX_RANK];
    bool is_given = step->node->inputs > 1 && step->node->in[1] != NULL;
    size_t count = 0;

    if (is_given && !list_of(step, 1, axes, &count))
        return false;
    if (count > 0)
        return row_reduce(step, axes, count, node_attr_int(step->node, "keepdims", 1) != 0);
    if (node_attr_int(step->node, "noop_with_empty_axes", 0) == 0)
        return input(step, 0).rows;
    return as_first_input(step);
}

static bool over_axis(struct step *step) /* ArgMax */
{
    int64_t axis = node_attr_int(step->node, "axis", 0);

    return row_reduce(step, &axis, 1, node_attr_int(step->node, "keepdims", 1) != 0);
}

/* An operand of a product, its factors' dimension being `inner` from the end (0: it is a vector,
 * and that is all it has), and its other one `outer`. */
static void meet_operand(struct meeting *meeting, struct place place, int inner)
{
    int from_end = is_found(place) && place.rank != LOST ? place.rank - place.axis : 0;

    if (from_end != 0 && (from_end == inner || place.rank == 1))
        meeting->is_mixed = true;
    meet(meeting, place.rows, from_end);
}

static bool product_of(struct step *step, size_t a, size_t b)
{
    struct place left = input(step, a), right = input(step, b);
    struct meeting meeting = {0};
    int rank = LOST;

    meet_operand(&meeting, left, 1);
    meet_operand(&meeting, right, 2);
    if (left.rank > 1 && right.rank > 1)
        rank = left.rank > right.rank ? left.rank : right.rank;
    put_meeting(step, &meeting, rank);
    return meeting.is_mixed;
}

static bool product(struct step *step)
{
    return product_of(step, 0, 1);
}

static bool product_of_quantised(struct step *step)
{
    return product_of(step, 0, 3);
}

static bool gemm(struct step *step)
{
    struct place a = input(step, 0), b = input(step, 1), c = input(step, 2);
    int inner_of_a = node_attr_int(step->node, "transA", 0) != 0 ? 0 : 1;
    int inner_of_b = node_attr_int(step->node, "transB", 0) != 0 ? 1 : 0;
    struct meeting meeting = {0};

    if ((is_found(a) && a.axis == inner_of_a) || (is_found(b) && b.axis == inner_of_b))
        return true;
    meet(&meeting, a.rows, is_found(a) ? 2 : 0);
    meet(&meeting, b.rows, is_found(b) ? 1 : 0);
    meet(&meeting, c.rows, is_found(c) && c.rank != LOST ? c.rank - c.axis : 0);
    put_meeting(step, &meeting, 2);
    return meeting.is_mixed;
}

/* Of one rank; along the rows themselves they are stacked or parted, and lost. */
static bool side_by_side(struct step *step) /* Concat */
{
    struct place found = {false, LOST, LOST};

    for (size_t i = 0; i < step->node->inputs; i++) {
        struct place place = input(step, i);

        if (!place.rows)
            continue;
        if (place.axis == LOST || (found.rows && place.axis != found.axis))
            return false;
        found = place;
    }
    if (!is_along(found, node_attr_int(step->node, "axis", 0)))
        put(step, 0, found.rank, found.axis);
    return false;
}

static bool in_pieces(struct step *step) /* Split, GatherElements, ScatterElements */
{
    struct place in = input(step, 0);
    bool is_lost = is_along(in, node_attr_int(step->node, "axis", 0));

    for (size_t i = 1; i < step->node->inputs; i++)
        is_lost |= input(step, i).rows && input(step, i).axis != in.axis;
    if (!is_lost)
        return as_first_input(step);
    return false;
}

static bool cut(struct step *step) /* Slice, Pad */
{
    if (input(step, 0).axis == 0 && !node_moves_rows(step->node))
        return as_first_input(step);
    return false;
}

static bool gather(struct step *step)
{
    struct place data = input(step, 0), indices = input(step, 1);
    int axis = from_front(node_attr_int(step->node, "axis", 0), data.rank), rank = LOST;

    if (axis == LOST || indices.rank == LOST || (data.rows && data.axis == LOST) ||
        (indices.rows && indices.axis == LOST) || axis == data.axis)
        return false;
    if (data.rank != LOST)
        rank = data.rank - 1 + indices.rank;
    if (!data.rows)
        put(step, 0, rank, axis + indices.axis);
    else
        put(step, 0, rank, data.axis < axis ? data.axis : data.axis - 1 + indices.rank);
    return data.rows && indices.rows; /* each row's places in each row */
}

static bool one_hot(struct step *step)
{
    struct place in = input(step, 0);
    int axis;

    if (in.rank == LOST || in.axis == LOST)
        return false;
    axis = from_front(node_attr_int(step->node, "axis", -1), in.rank + 1);
    put(step, 0, in.rank + 1, axis == LOST ? LOST : in.axis + (in.axis >= axis));
    return false;
}

static bool compress(struct step *step)
{
    int64_t axis = node_attr_int(step->node, "axis", INT64_MIN);

    (void)as_first_input(step);
    return input(step, 0).rows && (axis == INT64_MIN || is_along(input(step, 0), axis));
}

static bool steps_in_time(struct step *step) /* LSTM and its kin */
{
    struct place in = input(step, 0);
    bool rows_first = node_attr_int(step->node, "layout", 0) != 0;

    if (!is_found(in))
        return false;
    if (in.axis != (rows_first ? 0 : 1))
        return true;
    put_all(step, 3, rows_first ? 0 : 1);
    put(step, 0, 4, rows_first ? 0 : 2);
    return false;
}

/* Sequences side by side: each looks at its own keys, its own positions. */
static bool sequence_by_sequence(struct step *step) /* Attention, RotaryEmbedding */
{
    if ((step->node->op->flags & OP_INTERNAL) != 0)
        return false; /* the device's own, with axes in any order */
    for (size_t i = 0; i < step->node->inputs; i++)
        if (input(step, i).rows && input(step, i).axis != 0)
            return is_found(input(step, i));
    put_all(step, 4, 0);
    put(step, 0, input(step, 0).rank, 0);
    return false;
}

static const struct {
    const char *op;
    row_rule *rule;
} rules[] = {
    {"ArgMax", over_axis},
    {"ArgMin", over_axis},
    {"Attention", sequence_by_sequence},
    {"AveragePool", row_by_row},
    {"BatchNormalization", as_first_input},
    {"Compress", compress},
    {"Concat", side_by_side},
    {"Conv", row_by_row},
    {"ConvInteger", row_by_row},
    {"ConvTranspose", row_by_row},
    {"CumSum", along_listed_axis},
    {"DepthToSpace", row_by_row},
    {"DequantizeLinear", as_first_input},
    {"Dropout", as_first_input},
    {"DynamicQuantizeLSTM", steps_in_time},
    {"DynamicQuantizeLinear", across_everything},
    {"Expand", row_expand},
    {"Flatten", row_flatten},
    {"GRU", steps_in_time},
    {"Gather", gather},
    {"GatherElements", in_pieces},
    {"Gemm", gemm},
    {"GlobalAveragePool", row_by_row},
    {"GlobalLpPool", row_by_row},
    {"GlobalMaxPool", row_by_row},
    {"GroupNormalization", row_by_row},
    {"Hardmax", along_axis},
    {"Identity", as_first_input},
    {"InstanceNormalization", row_by_row},
    {"LRN", row_by_row},
    {"LSTM", steps_in_time},
    {"LayerNormalization", from_axis_on},
    {"LogSoftmax", along_axis},
    {"LpNormalization", along_axis},
    {"LpPool", row_by_row},
    {"MatMul", product},
    {"MatMulInteger", product},
    {"MatMulIntegerToFloat", product},
    {"MaxPool", row_by_row},
    {"MeanVarianceNormalization", along_its_axes},
    {"NonMaxSuppression", across_everything},
    {"OneHot", one_hot},
    {"Pad", cut},
    {"QLinearConv", row_by_row},
    {"QLinearGlobalAveragePool", row_by_row},
    {"QLinearMatMul", product_of_quantised},
    {"QuantizeLinear", as_first_input},
    {"RMSNormalization", from_axis_on},
    {"RNN", steps_in_time},
    {"ReduceL1", over_axes},
    {"ReduceL2", over_axes},
    {"ReduceLogSum", over_axes},
    {"ReduceLogSumExp", over_axes},
    {"ReduceMax", over_axes},
    {"ReduceMean", over_axes},
    {"ReduceMin", over_axes},
    {"ReduceProd", over_axes},
    {"ReduceSum", over_axes},
    {"ReduceSumSquare", over_axes},
    {"Reshape", row_reshape},
    {"Resize", row_by_row},
    {"ReverseSequence", along_time},
    {"RotaryEmbedding", sequence_by_sequence},
    {"ScatterElements", in_pieces},
    {"Slice", cut},
    {"Softmax", along_axis},
    {"SpaceToDepth", row_by_row},
    {"Split", in_pieces},
    {"Squeeze", row_squeeze},
    {"TopK", along_axis},
    {"Transpose", row_transpose},
    {"Unique", across_everything},
    {"Unsqueeze", row_unsqueeze},
};

row_rule *row_rule_of(const struct node *node)
{
    if (node_is_elementwise(node))
        return element_by_element;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (strcmp(node->op->onnx.name, rules[i].op) == 0)
            return rules[i].rule;
    return NULL;
}
