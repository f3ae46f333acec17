/* What passes ask about nodes and values, and how they put new nodes in the place of old ones.
 *
 * Operators and attributes are named as in ONNX, so that a pass needs no operator's header. */
#ifndef GRAPH_MATCH_H
#define GRAPH_MATCH_H

#include "graph/pass.h"

/* By name, domain ai.onnx; NULL is no node. */
bool node_is(const struct node *node, const char *onnx_name);
/* The node that makes `value` if it is of this operator, else NULL.  value may be NULL. */
struct node *producer_is(const struct value *value, const char *onnx_name);

/* Each element of output 0 comes from the elements at its place in the (broadcast) inputs: what is
 * flagged so, and what has numbers besides (Clip). */
bool node_is_elementwise(const struct node *node);

/* An attribute's field in the node's struct, NULL when the operator has none of this name. */
void *node_attr(const struct node *node, const char *name);
int64_t node_attr_int(const struct node *node, const char *name, int64_t absent);
float node_attr_float(const struct node *node, const char *name, float absent);
const struct ints *node_attr_ints(const struct node *node, const char *name); /* NULL: not given */
bool node_set_int(struct node *node, const char *name, int64_t number);       /* ATTR_ENUM too */
bool node_set_float(struct node *node, const char *name, float number);

/* A constant of one element of a number type and rank 0 or 1, as a double. */
bool value_scalar(const struct value *value, double *out_number);
/* The same with rank up to `most_rank`: no more than that of what it is combined with. */
bool value_number(const struct value *value, size_t most_rank, double *out_number);
/* Element `index` of a constant of any floating type. */
double tensor_float(const struct tensor *tensor, size_t index);
/* A constant list of INT64 or INT32, rank 0 or 1; false when it is none or longer than `room`. */
bool value_ints(const struct value *value, size_t room, int64_t *out_ints, size_t *out_count);

/* Axes (from a list input or attribute) that are the last ones of `value`: their number, else 0. */
size_t value_last_axes(const struct value *value, const int64_t *axes, size_t count,
                       enum pass_stage stage);

/* Hands on its input's elements in their order under another shape: Reshape, Squeeze, Unsqueeze,
 * Flatten. */
bool node_is_reshaping(const struct node *node);

/* Nodes found by a pattern; the root comes first. */
enum { MATCH_ROOM = 24 };
struct match {
    struct node *nodes[MATCH_ROOM];
    size_t count;
};
/* Notes a node, once; false when there is no room. */
bool match_add(struct match *match, struct node *node);
/* True when no result of a node but the first is used outside of the match. */
bool match_is_closed(const struct match *match);

/* Puts a new node of `op` in the place of `root`: before it, with its name, making its output 0.
 * `in` (inputs values) may hold NULL.  Root is removed.  NULL: malloc refused, nothing changed. */
struct node *node_replace(struct graph *graph, struct node *root, const struct op_def *op,
                          size_t inputs, struct value *const *in);
/* Makes the outputs' shapes known in a plan's graph; nothing in a model's. */
MUST_CHECK enum status node_infer_if_known(struct graph *graph, struct node *node,
                                           enum pass_stage stage, struct error *err);

enum status pass_no_memory(struct error *err);

#endif
