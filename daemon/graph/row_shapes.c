/* Rows through nodes that hand on elements in another shape or order. */
#include "graph/row_step.h"

enum { DEEPEST = 8 };

bool row_transpose(struct step *step)
{
    const struct ints *perm = node_attr_ints(step->node, "perm");
    struct place in = input(step, 0);

    if (perm == NULL) {
        put(step, 0, in.rank, in.rank != LOST && in.axis != LOST ? in.rank - 1 - in.axis : LOST);
        return false;
    }
    put(step, 0, (int)perm->count, LOST);
    for (size_t i = 0; i < perm->count; i++)
        if (perm->values[i] == in.axis)
            put(step, 0, (int)perm->count, (int)i);
    return false;
}

bool row_flatten(struct step *step)
{
    bool is_kept = input(step, 0).axis == 0 && node_attr_int(step->node, "axis", 1) != 0;

    put(step, 0, 2, is_kept ? 0 : LOST);
    return false;
}

bool row_unsqueeze(struct step *step)
{
    struct place in = input(step, 0);
    int64_t axes[SHAPE_MAX_RANK];
    bool is_new[2 * SHAPE_MAX_RANK] = {false};
    size_t count;
    int rank, at = 0;

    if (in.rank == LOST || in.axis == LOST || !list_of(step, 1, axes, &count))
        return false;
    rank = in.rank + (int)count;
    for (size_t i = 0; i < count; i++) {
        int axis = from_front(axes[i], rank);

        if (axis == LOST || axis >= rank)
            return false;
        is_new[axis] = true;
    }
    for (int left = in.axis; at < rank; at++)
        if (!is_new[at] && left-- == 0)
            break;
    put(step, 0, rank, at);
    return false;
}

bool row_squeeze(struct step *step)
{
    int64_t axes[SHAPE_MAX_RANK];
    size_t count;

    if (list_of(step, 1, axes, &count))
        (void)row_reduce(step, axes, count, false);
    return false; /* a batch of one: it has no rows to mix */
}

/* Whether the first element of a shape is, or holds, the number of rows of values like `in`. */
static bool leads_with_rows(const struct step *step, const struct value *shape, int depth)
{
    const struct node *made = shape->producer;
    int64_t list[SHAPE_MAX_RANK];
    size_t count;

    if (shape->constant != NULL)
        return value_ints(shape, SHAPE_MAX_RANK, list, &count) && count > 0 && list[0] <= 0;
    if (made == NULL || made->inputs == 0 || made->in[0] == NULL || depth > DEEPEST)
        return false;
    if (node_is(made, "Shape"))
        return place_of(step, made->in[0]).axis == 0 && node_attr_int(made, "start", 0) == 0;
    if (node_is(made, "Slice"))
        return value_ints(made->in[1], SHAPE_MAX_RANK, list, &count) && count == 1 &&
               list[0] == 0 && leads_with_rows(step, made->in[0], depth + 1);
    if (node_is(made, "Gather"))
        return producer_is(made->in[0], "Shape") != NULL &&
               value_ints(made->in[1], SHAPE_MAX_RANK, list, &count) && count == 1 &&
               list[0] >= 0 && list[0] == place_of(step, made->in[0]->producer->in[0]).axis;
    if (node_is(made, "Concat") || node_is(made, "Unsqueeze") || node_is(made, "Cast") ||
        node_is(made, "Identity") || node_is(made, "Reshape") || node_is(made, "Squeeze"))
        return leads_with_rows(step, made->in[0], depth + 1);
    return false;
}

/* How many elements a shape has, where pieces tell; LOST. */
static int elements_of(const struct value *shape)
{
    const struct node *made = shape->producer;
    int sum = 0;

    if (shape->constant != NULL)
        return shape->shape.rank == 0 ? 1 : (int)shape->shape.dims[0];
    if (producer_is(shape, "Unsqueeze") != NULL)
        return 1;
    if (producer_is(shape, "Concat") == NULL)
        return LOST;
    for (size_t i = 0; i < made->inputs; i++) {
        const struct value *piece = made->in[i];

        if (piece->constant == NULL && producer_is(piece, "Unsqueeze") == NULL)
            return LOST;
        sum += elements_of(piece);
    }
    return sum;
}

bool row_reshape(struct step *step)
{
    const struct value *shape = step->node->inputs > 1 ? step->node->in[1] : NULL;
    int rank = shape != NULL ? elements_of(shape) : LOST;
    bool is_kept = shape != NULL && input(step, 0).axis == 0 &&
                   node_attr_int(step->node, "allowzero", 0) == 0 &&
                   leads_with_rows(step, shape, 0);

    put(step, 0, rank, is_kept ? 0 : LOST);
    return false;
}

bool row_expand(struct step *step)
{
    struct place in = input(step, 0);
    int rank = step->node->in[1] != NULL ? elements_of(step->node->in[1]) : LOST;

    if (in.rank == LOST || in.axis == LOST || rank == LOST)
        return false;
    rank = rank > in.rank ? rank : in.rank;
    put(step, 0, rank, in.axis + rank - in.rank);
    return false;
}
