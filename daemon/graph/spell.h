/* Writing nodes in the place of one: what passes that spell operators out share.
 *
 *     struct spelling s = {.graph = graph, .before = node, .err = err};
 *     struct value *sum = spell(&s, "Add", a, b, NULL);
 *
 * After a failure all calls give NULL and do nothing; `status` says what it was.  Shapes are known:
 * for plans.
 */
#ifndef GRAPH_SPELL_H
#define GRAPH_SPELL_H

#include "graph/match.h"

struct spelling {
    struct graph *graph;
    struct node *before; /* what is replaced: new nodes stand before it */
    struct error *err;
    enum status status;
};

enum { SPELL_INPUTS = 3 };
/* A node of up to three inputs, the first NULL ends them; its only output, whose shape is known. */
struct value *spell(struct spelling *s, const char *op, struct value *a, struct value *b,
                    struct value *c);
/* The same with an integer attribute. */
struct value *spell_with(struct spelling *s, const char *op, const char *attribute, int64_t number,
                         struct value *a, struct value *b);
struct value *spell_transpose(struct spelling *s, struct value *value, const int64_t *perm);
struct value *spell_reshape(struct spelling *s, struct value *value, size_t rank,
                            const int64_t *dims);
/* Columns [from, to) by `step` of the last axis. */
struct value *spell_columns(struct spelling *s, struct value *value, int64_t from, int64_t to,
                            int64_t step);
/* Constants: integers in a row, a number of a float type, zeroed elements to be filled in. */
struct value *spell_ints(struct spelling *s, size_t count, const int64_t *ints);
struct value *spell_number(struct spelling *s, enum dtype dtype, double number);
struct value *spell_constant(struct spelling *s, enum dtype dtype, const struct shape *shape,
                             void **out_elements);
/* Element `index` of a constant of a float type. */
void spell_put(enum dtype dtype, void *elements, int64_t index, double number);
/* `value` takes the place of output `index` of what is replaced, if that is wanted. */
void spell_result(struct spelling *s, size_t index, struct value *value);

#endif
