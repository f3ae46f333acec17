/* What an operator means: its attributes and its type and shape rule.  No arithmetic here.
 *
 * One row in ops.def and one file each.  Every operator is described in its newest ONNX form; the
 * reader (onnx/upgrade.c) rewrites older models, so nothing below it sees an old form.
 *
 * A rule works on real numbers: when a plan is made all input shapes are known, and an input whose
 * value is known at that time (a constant, a folded Shape) carries `data`.  What needs the value of
 * an input to know a shape says so in `value_inputs`; the plan maker then cuts there if it has to.
 */
#ifndef OPS_OP_H
#define OPS_OP_H

#include "base/error.h"
#include "tensor/tensor.h"

struct graph; /* graph/graph.h; only named here, for sub-graph attributes */

/* Lists in attribute structs; memory is the graph's. */
struct ints {
    size_t count;
    const int64_t *values; /* NULL: the attribute was not given */
};
struct floats {
    size_t count;
    const float *values;
};
struct strings {
    size_t count;
    const struct bytes *values;
};

enum attr_type {
    ATTR_END,
    ATTR_INT,     /* int64_t */
    ATTR_FLOAT,   /* float */
    ATTR_STRING,  /* const char *, terminated */
    ATTR_ENUM,    /* int: index into `words` */
    ATTR_INTS,    /* struct ints */
    ATTR_FLOATS,  /* struct floats */
    ATTR_STRINGS, /* struct strings */
    ATTR_TENSOR,  /* struct tensor; dtype DTYPE_NONE: not given */
    ATTR_GRAPH    /* struct graph * */
};

/* One attribute of an operator's attribute struct.  The reader fills the struct from these rows;
 * an attribute of the model that no row names is refused. */
struct attr_def {
    enum attr_type type;
    const char *name; /* ONNX's */
    size_t offset;
    bool required;
    int64_t default_int;      /* ATTR_INT, ATTR_ENUM */
    float default_float;      /* ATTR_FLOAT */
    const char *default_text; /* ATTR_STRING */
    const char *const *words; /* ATTR_ENUM: allowed texts, NULL at the end */
};

#define OP_ATTR_INT(type, field, standard)                                                         \
    {                                                                                              \
        ATTR_INT, #field, offsetof(type, field), .default_int = (standard)                         \
    }
#define OP_ATTR_FLOAT(type, field, standard)                                                       \
    {                                                                                              \
        ATTR_FLOAT, #field, offsetof(type, field), .default_float = (standard)                     \
    }
#define OP_ATTR_STRING(type, field, standard)                                                      \
    {                                                                                              \
        ATTR_STRING, #field, offsetof(type, field), .default_text = (standard)                     \
    }
#define OP_ATTR_ENUM(type, field, list, standard)                                                  \
    {                                                                                              \
        ATTR_ENUM, #field, offsetof(type, field), .default_int = (standard), .words = (list)       \
    }
#define OP_ATTR_INTS(type, field)                                                                  \
    {                                                                                              \
        ATTR_INTS, #field, offsetof(type, field)                                                   \
    }
#define OP_ATTR_FLOATS(type, field)                                                                \
    {                                                                                              \
        ATTR_FLOATS, #field, offsetof(type, field)                                                 \
    }
#define OP_ATTR_STRINGS(type, field)                                                               \
    {                                                                                              \
        ATTR_STRINGS, #field, offsetof(type, field)                                                \
    }
#define OP_ATTR_TENSOR(type, field)                                                                \
    {                                                                                              \
        ATTR_TENSOR, #field, offsetof(type, field)                                                 \
    }
#define OP_ATTR_GRAPH(type, field)                                                                 \
    {                                                                                              \
        ATTR_GRAPH, #field, offsetof(type, field), .required = true                                \
    }
#define OP_ATTR_END                                                                                \
    {                                                                                              \
        ATTR_END, NULL, 0                                                                          \
    }

/* An application of an operator, as its rule sees it. */
struct op_call {
    const void *attrs;
    size_t inputs;
    const struct tensor *const *in; /* NULL entry: an optional input left out.  `data` when known */
    size_t outputs;
    struct tensor *const *out; /* to be filled: dtype and shape.  NULL entry: not wanted */
    bool *out_bound; /* set for output i when the shape is only an upper bound: the kernel states
                        the true one when it ran.  All false before the call */
};

enum op_flag {
    OP_ELEMENTWISE = 1 << 0, /* out[0] has the broadcast shape of the inputs, element by element */
    OP_VIEW = 1 << 1,        /* out[0] holds the very elements of in[0] in the same order */
    OP_DATA_DEPENDENT =
        1 << 2, /* some output shape depends on values even when all inputs do not */
    OP_NOT_DETERMINISTIC = 1 << 3, /* never folded, never merged (random numbers) */
    OP_INTERNAL = 1 << 4,          /* made by passes; never read from a file */
    OP_SHAPE_ONLY = 1 << 5, /* reads only the shapes of its inputs (Shape, Size): its kernel runs
                               with in[i] NULL when a plan is made */
    OP_PICKS = 1 << 6       /* reads no more of an input than it writes (Gather, Slice) */
};

struct op_def {
    const char *name; /* "softmax"; equals the file's stem */
    struct {
        const char *name;   /* "Softmax" */
        int since;          /* opset of the form described here */
        const char *domain; /* NULL: ai.onnx */
    } onnx;
    int inputs;      /* at most; -1: any number */
    int min_inputs;  /* 0: all `inputs` are required */
    int outputs;     /* at most; -1: any number; only the first is required unless infer says so */
    uint32_t dtypes; /* allowed for in[0]; 0: infer checks.  Others: infer checks */
    uint32_t flags;  /* enum op_flag */
    uint32_t value_inputs;        /* bit i: the value of in[i] decides a shape */
    const struct attr_def *attrs; /* NULL: none */
    size_t attrs_size;
    /* Fills call->out.  STATUS_INVALID or STATUS_UNSUPPORTED with a sentence naming attribute or
     * input (the caller adds node and model).  A `value_inputs` input without data is never passed
     * here, except where the file says that it copes. */
    enum status (*infer)(const struct op_call *call, struct error *err);
    /* Multiplications, additions and the like by the textbook, whatever a kernel does instead: what
     * a profile counts.  Of known shapes.  NULL: one an element of out[0] with OP_ELEMENTWISE, else
     * none, elements are only moved. */
    uint64_t (*flops)(const struct op_call *call);
};

/* All operators, in the order of ops.def; `count` of them. */
const struct op_def *const *op_table(size_t *out_count);
/* By ONNX name and domain ("" and "ai.onnx" alike); NULL when there is none. */
const struct op_def *op_find(const char *domain, const char *onnx_name);
/* Fills `attrs` (of op->attrs_size bytes) as a node without any attribute has it. */
void op_attrs_default(const struct op_def *op, void *attrs);

#define OP(name) extern const struct op_def op_##name;
#include "ops/ops.def"
#undef OP

uint64_t op_flops(const struct op_def *op, const struct op_call *call);

/* Rules that many operators share (ops/rules.c). */
enum status op_infer_same(const struct op_call *call, struct error *err); /* out[i] is like in[0] */
/* Broadcast of all inputs, one dtype for all; out dtype likewise. */
enum status op_infer_broadcast(const struct op_call *call, struct error *err);
/* The same, out dtype BOOL. */
enum status op_infer_compare(const struct op_call *call, struct error *err);
/* Broadcast of the shapes of all inputs given; STATUS_INVALID names the first that does not fit. */
enum status op_broadcast_shapes(const struct op_call *call, struct shape *out_shape,
                                struct error *err);
/* Reads a known INT64 or INT32 tensor of rank 0 or 1 into `values` (room for `room`). */
enum status op_read_ints(const struct tensor *tensor, const char *what, size_t room,
                         int64_t *values, size_t *out_count, struct error *err);
uint64_t op_flops_each_input(const struct op_call *call);  /* one an element of in[0] */
uint64_t op_flops_each_output(const struct op_call *call); /* one an element of out[0] */

#endif
