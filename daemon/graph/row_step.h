/* One node as row_places.c looks at it, and the rules for what its operator does with rows.
 *
 * A rule fills the places of the outputs (LOST beforehand) and returns whether the node works
 * across rows.  It is called only when an input has rows.
 */
#ifndef GRAPH_ROW_STEP_H
#define GRAPH_ROW_STEP_H

#include "graph/match.h"

enum { LOST = -1 };

struct place {
    bool rows; /* depends on the contents of inputs */
    int rank;  /* LOST: not known */
    int axis;  /* that counts rows; LOST: not known */
};

struct step {
    const struct node *node;
    const struct place *places; /* by value */
    struct place out[4];        /* of the first outputs; the others are lost */
};

enum { RULE_OUTPUTS = 4 };
typedef bool row_rule(struct step *step);

static inline struct place place_of(const struct step *step, const struct value *value)
{
    if (value == NULL)
        return (struct place){false, LOST, LOST};
    if (value->constant != NULL)
        return (struct place){false, (int)value->shape.rank, LOST};
    return step->places[value->id];
}

static inline struct place input(const struct step *step, size_t index)
{
    return place_of(step, index < step->node->inputs ? step->node->in[index] : NULL);
}

static inline bool is_found(struct place place)
{
    return place.rows && place.axis != LOST;
}

/* Counted from the front; LOST when that takes a rank that is not known. */
static inline int from_front(int64_t axis, int rank)
{
    if (axis >= 0)
        return axis < SHAPE_MAX_RANK ? (int)axis : LOST;
    return rank != LOST && axis + rank >= 0 ? (int)axis + rank : LOST;
}

static inline bool is_along(struct place place, int64_t axis)
{
    return is_found(place) && from_front(axis, place.rank) == place.axis;
}

static inline void put(struct step *step, size_t index, int rank, int axis)
{
    step->out[index] = (struct place){true, rank, axis};
}

static inline void put_all(struct step *step, int rank, int axis)
{
    for (size_t i = 0; i < RULE_OUTPUTS; i++)
        put(step, i, rank, axis);
}

/* The constant list of an input; false: there is none. */
static inline bool list_of(const struct step *step, size_t index, int64_t list[SHAPE_MAX_RANK],
                           size_t *out_count)
{
    return index < step->node->inputs && step->node->in[index] != NULL &&
           value_ints(step->node->in[index], SHAPE_MAX_RANK, list, out_count);
}

/* row_rules.c */
row_rule *row_rule_of(const struct node *node); /* NULL: there is none, rows are lost */
/* Takes the dimensions `axes` out of input 0, or leaves ones in them. */
bool row_reduce(struct step *step, const int64_t *axes, size_t count, bool keeps);

/* row_shapes.c: what only changes shapes */
row_rule row_transpose, row_flatten, row_unsqueeze, row_squeeze, row_reshape, row_expand;

#endif
