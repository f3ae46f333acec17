/* The messages of onnx.proto3 that matter here, read by table into plain structs.
 *
 * Texts and nested messages are borrowed from the buffer, arrays are the arena's.  A field that no
 * table names is skipped, as protocol buffers want; one of the wrong wire type is refused.
 */
#ifndef ONNX_PROTO_H
#define ONNX_PROTO_H

#include "base/arena.h"
#include "onnx/wire.h"
#include "ops/op.h"

struct bytes_list {
    size_t count;
    const struct bytes *items;
};

/* `present`: bit n is set when field number n < 32 occurred. */
struct raw_model {
    uint32_t present;
    int64_t ir_version;
    struct bytes producer;
    struct bytes graph;
    struct bytes_list opsets;
    struct bytes_list functions;
};

struct raw_opset {
    uint32_t present;
    struct bytes domain;
    int64_t version;
};

struct raw_graph {
    uint32_t present;
    struct bytes name;
    struct bytes_list nodes;
    struct bytes_list initializers;
    struct bytes_list sparse_initializers;
    struct bytes_list inputs;
    struct bytes_list outputs;
};

struct raw_function {
    uint32_t present;
    struct bytes name;
    struct bytes domain;
    struct bytes overload;
    struct bytes_list inputs;
    struct bytes_list outputs;
    struct bytes_list attributes;       /* names without a default */
    struct bytes_list attribute_protos; /* with one */
    struct bytes_list nodes;
    struct bytes_list opsets;
};

struct raw_node {
    uint32_t present;
    struct bytes op;
    struct bytes domain;
    struct bytes overload;
    struct bytes name;
    struct bytes_list inputs; /* empty text: left out */
    struct bytes_list outputs;
    struct bytes_list attributes;
};

/* AttributeProto.AttributeType */
enum raw_attr_type {
    RAW_NONE = 0,
    RAW_FLOAT,
    RAW_INT,
    RAW_STRING,
    RAW_TENSOR,
    RAW_GRAPH,
    RAW_FLOATS,
    RAW_INTS,
    RAW_STRINGS,
    RAW_TENSORS,
    RAW_GRAPHS,
    RAW_SPARSE_TENSOR,
    RAW_SPARSE_TENSORS,
    RAW_TYPE_PROTO,
    RAW_TYPE_PROTOS,
    RAW_TYPE_COUNT
};

struct raw_attr {
    uint32_t present;
    struct bytes name;
    struct bytes reference; /* of an attribute of the function around it; empty: none */
    int64_t type;           /* enum raw_attr_type, checked */
    float f;
    int64_t i;
    struct bytes s;
    struct bytes tensor;
    struct bytes graph;
    struct bytes sparse_tensor;
    struct floats floats;
    struct ints ints;
    struct bytes_list strings;
};

struct raw_tensor {
    uint32_t present;
    struct ints dims;
    int64_t data_type;
    struct bytes name;
    struct bytes raw_data;
    struct bytes_list strings;
    struct bytes_list external; /* StringStringEntryProto */
    int64_t data_location;      /* 1: external */
};

struct raw_sparse {
    uint32_t present;
    struct bytes values;
    struct bytes indices;
    struct ints dims;
};

struct raw_entry {
    uint32_t present;
    struct bytes key;
    struct bytes value;
};

struct raw_port {
    uint32_t present;
    struct bytes name;
    struct bytes type;
};

struct raw_type {
    uint32_t present;
    struct bytes tensor;
};

struct raw_tensor_type {
    uint32_t present;
    int64_t dtype;
    struct bytes shape;
};

struct raw_shape {
    uint32_t present;
    struct bytes_list dims;
};

struct raw_dim {
    uint32_t present;
    int64_t value;
};

enum {
    ATTR_FIELD_F = 2,
    ATTR_FIELD_I = 3,
    DIM_FIELD_VALUE = 1,
    TYPE_FIELD_TENSOR = 1,
    TENSOR_FIELD_SEGMENT = 3,
    TENSOR_FIELD_FLOAT = 4,
    TENSOR_FIELD_INT32 = 5,
    TENSOR_FIELD_STRING = 6,
    TENSOR_FIELD_INT64 = 7,
    TENSOR_FIELD_RAW = 9,
    TENSOR_FIELD_DOUBLE = 10,
    TENSOR_FIELD_UINT64 = 11
};

/* proto_read_model(arena, bytes, &model, err) and so on; STATUS_INVALID or STATUS_NO_MEMORY. */
#define PROTO_MESSAGE(name, words)                                                                 \
    MUST_CHECK enum status proto_read_##name(struct arena *arena, struct bytes bytes,              \
                                             struct raw_##name *out, struct error *err);
#include "onnx/proto.def"
#undef PROTO_MESSAGE

bool bytes_equal(struct bytes bytes, const char *text);
bool bytes_same(struct bytes a, struct bytes b);
/* A terminated copy of a name.  STATUS_INVALID: it is no UTF-8, or has a NUL inside. */
MUST_CHECK enum status proto_text(struct arena *arena, struct bytes bytes, const char *what,
                                  const char **out_text, struct error *err);

#endif
