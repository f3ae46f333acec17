/* What the files of this folder share.
 *
 *   reader   one call of onnx_read_*(): the file, its functions, an arena for all that is parsed
 *   scope    names in one list of nodes: the model's graph, a sub-graph, a call of a function
 *   form     one node on its way from the file into the graph, in the hands of upgrade.c
 *
 *   reader.c  model, functions, borders        build.c    nodes, calls, sub-graphs
 *   order.c   nodes into order                 attrs.c    attribute structs
 *   tensor.c  weights                          upgrade.c  old forms into the newest
 */
#ifndef ONNX_INTERNAL_H
#define ONNX_INTERNAL_H

#include "graph/graph.h"
#include "onnx/file.h"
#include "onnx/names.h"
#include "onnx/proto.h"
#include "onnx/reader.h"

enum {
    NODE_LIMIT = 500000,      /* of one model, inlined functions included: functions can multiply */
    NESTING_LIMIT = 24,       /* of sub-graphs and function calls */
    DENSE_LIMIT_MIB = 1024,   /* of one sparse tensor made dense */
    GROWTH_BYTES = 256 << 20, /* memory of a read may reach this plus … */
    GROWTH_FACTOR = 32,       /* … so many times the file's size */
    OPSET_OLDEST = 6,
    OPSET_NEWEST = 27 /* the newest whose changes are known here */
};

struct opsets {
    size_t count;
    struct opset {
        const char *domain; /* "" for ai.onnx */
        int64_t version;
    } * items;
};

struct function {
    const char *name;
    const char *domain;
    const char *overload;
    struct raw_function raw;
    struct opsets opsets;
    bool active; /* being inlined: a call of itself is refused */
};

struct external_file {
    struct external_file *next;
    const char *path;
    struct file *file;
};

struct reader {
    struct arena arena; /* gone when the call is over; the graph has its own */
    struct file *file;
    int folder_fd; /* of external data; -1: none is allowed */
    struct external_file *external;
    struct opsets opsets;
    struct zip_map *zip_maps; /* all that were read; last first */
    size_t functions;
    struct function *function;
    uint64_t readable_bytes; /* of the model file and of the external data opened so far */
    uint64_t seed;
    size_t made_names; /* for nodes without one */
    size_t depth;      /* of sub-graphs and calls right now */
    struct onnx_info info;
};

/* One attribute list: of a node, or of the call that a function's nodes refer to. */
struct attr_list {
    size_t count;
    struct raw_attr *items;
};

struct capture {
    struct capture *next;
    struct value *inner;
    struct value *outer;
};

struct scope {
    struct reader *reader;
    struct graph *graph;
    struct scope *parent; /* where names not found here are looked for (sub-graphs); else NULL */
    struct names values;
    const struct opsets *opsets;
    const struct attr_list *call; /* what ref_attr_name refers to; NULL outside of functions */
    struct capture *captures;     /* first to last */
    struct capture **last_capture;
};

/* Room for this many inputs and attributes more than the file gave, for upgrades to add. */
enum { FORM_SPARE = 8 };

struct form {
    struct scope *scope;
    const char *name;
    const char *op;
    const char *domain;
    int64_t opset;
    size_t inputs;
    struct value **in; /* NULL: left out */
    size_t outputs;
    struct value **out;
    struct attr_list attrs;
};

/* tensor.c -- bytes must lie in `file`.  out_name may be NULL. */
MUST_CHECK enum status tensor_read(struct reader *reader, struct file *file, struct bytes proto,
                                   struct constant **out_constant, const char **out_name,
                                   struct error *err);
/* A STRING constant of copies of the texts. */
MUST_CHECK enum status tensor_from_texts(const struct shape *shape, const struct bytes_list *texts,
                                         struct constant **out_constant, struct error *err);
/* sparse.c */
MUST_CHECK enum status tensor_read_sparse(struct reader *reader, struct bytes proto,
                                          struct constant **out_constant, const char **out_name,
                                          struct error *err);

/* order.c -- an order in which every value is made before it is used: indices into `nodes`. */
MUST_CHECK enum status order_nodes(struct reader *reader, size_t count,
                                   const struct raw_node *nodes, uint32_t **out_order,
                                   struct error *err);

/* scope.c */
void scope_init(struct scope *scope, struct reader *reader, struct graph *graph,
                struct scope *parent, const struct opsets *opsets);
void scope_deinit(struct scope *scope);
/* The value of a name, captured from an outer graph if need be; NULL for a name that stands for an
 * optional input left out of a function's call. */
MUST_CHECK enum status scope_resolve(struct scope *scope, struct bytes name,
                                     struct value **out_value, struct error *err);
/* Gives a value (or NULL: left out) a name; a second value of one name is refused. */
MUST_CHECK enum status scope_bind(struct scope *scope, struct bytes name, struct value *value,
                                  struct error *err);

/* A node as read, with what the errors about it need. */
struct source {
    const struct raw_node *raw;
    const char *op;
    const char *domain; /* "" for ai.onnx */
    const char *name;
};

/* constant.c -- a Constant node, into a constant of the graph. */
MUST_CHECK enum status build_constant(struct scope *scope, const struct source *source,
                                      struct error *err);
/* call.c */
/* The model's own function that the node calls; NULL: it is an operator. */
struct function *find_function(struct reader *reader, const struct source *source);
/* The function's nodes in the place of the call. */
MUST_CHECK enum status build_call(struct scope *scope, struct function *function,
                                  const struct source *source, struct error *err);
/* borders.c -- inputs, initializers, nodes and outputs of a model or a sub-graph. */
MUST_CHECK enum status build_graph(struct scope *scope, struct bytes proto, struct error *err);

/* build.c */
MUST_CHECK enum status build_nodes(struct scope *scope, const struct bytes_list *nodes,
                                   struct error *err);
/* Puts the node into the graph as it is: the form must be the newest. */
MUST_CHECK enum status build_form(struct form *form, struct error *err);

/* ports.c -- type and shape that a ValueInfoProto declares.  What is no tensor is refused, unless
 * the caller wants to be told. */
MUST_CHECK enum status port_read(struct reader *reader, struct bytes proto, const char **out_name,
                                 struct value *facts, bool *out_is_tensor, struct error *err);
MUST_CHECK enum status port_refuse(const char *name, struct error *err);

/* zip_map.c */
/* Whether the value stands for a sequence of maps; then the facts become those of the scores. */
bool zip_map_declare(const struct reader *reader, const struct value *value, struct value *facts);
/* With the graph's borders in place: that nothing computes with such a value. */
MUST_CHECK enum status zip_map_check(const struct reader *reader, struct error *err);

/* guess.c -- element types of a new node's outputs as far as they are plain to see: old forms have
 * numbers in attributes that become inputs of the data's type.  A wrong guess is found when shapes
 * and types are inferred, which overwrites it. */
void guess_types(struct node *node);

/* attrs.c */
/* Fills attrs (of op->attrs_size bytes) from the form's list; lists are put into the graph's arena.
 * Sub-graphs are built, and the values they capture appended to the form's inputs. */
MUST_CHECK enum status attrs_fill(struct form *form, const struct op_def *op, void *attrs,
                                  struct error *err);
/* Reads a node's attributes, with references replaced by what the call gave. */
MUST_CHECK enum status attrs_read(struct scope *scope, const struct bytes_list *protos,
                                  struct attr_list *out_attrs, struct error *err);
struct raw_attr *attrs_find(const struct attr_list *attrs, const char *name);
void attrs_remove(struct attr_list *attrs, const char *name);

/* upgrade.c */
/* Rewrites the form to the newest one; nodes that must stand before it are built at once. */
MUST_CHECK enum status upgrade_form(struct form *form, struct error *err);

/* Out of memory is said in one way everywhere. */
enum status reader_no_memory(struct error *err);

#endif
