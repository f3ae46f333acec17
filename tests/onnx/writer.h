/* Writes models byte by byte, so that tests can say exactly what is wrong with one.
 *
 * A message is a growing buffer; put_*() append fields, finished messages go into others.  Sizes
 * are small and fixed, everything is static: no test has to free. */
#ifndef TESTS_ONNX_WRITER_H
#define TESTS_ONNX_WRITER_H

#include "support/unit.h"

#include <string.h>

struct message {
    size_t size;
    unsigned char bytes[16384];
};

static inline void put_raw(struct message *to, const void *bytes, size_t size)
{
    assert_true(to->size + size <= sizeof(to->bytes));
    if (size > 0)
        memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

static inline void put_varint(struct message *to, uint64_t value)
{
    do {
        unsigned char byte = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));

        put_raw(to, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

static inline void put_int(struct message *to, unsigned field, int64_t value)
{
    put_varint(to, field << 3);
    put_varint(to, (uint64_t)value);
}

static inline void put_float(struct message *to, unsigned field, float value)
{
    put_varint(to, field << 3 | 5);
    put_raw(to, &value, sizeof(value));
}

static inline void put_bytes(struct message *to, unsigned field, const void *bytes, size_t size)
{
    put_varint(to, field << 3 | 2);
    put_varint(to, size);
    put_raw(to, bytes, size);
}

static inline void put_text(struct message *to, unsigned field, const char *text)
{
    put_bytes(to, field, text, strlen(text));
}

static inline void put(struct message *to, unsigned field, const struct message *message)
{
    put_bytes(to, field, message->bytes, message->size);
}

/* --- ONNX ---------------------------------------------------------------------------------------
 */

/* Field numbers of onnx.proto. */
enum {
    MODEL_IR = 1,
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    MODEL_FUNCTION = 25,
    GRAPH_NODE = 1,
    GRAPH_NAME = 2,
    GRAPH_TENSOR = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_NAME = 3,
    NODE_OP = 4,
    NODE_ATTR = 5,
    NODE_DOMAIN = 7,
    TENSOR_DIM = 1,
    TENSOR_TYPE = 2,
    TENSOR_INT32 = 5,
    TENSOR_INT64 = 7,
    TENSOR_NAME = 8,
    TENSOR_RAW = 9,
    TENSOR_EXTERNAL = 13,
    TENSOR_LOCATION = 14,
};

static inline void put_tensor(struct message *to, unsigned field, const char *name, int type,
                              size_t rank, const int64_t *dims, const void *raw, size_t size)
{
    struct message tensor = {0};

    for (size_t i = 0; i < rank; i++)
        put_int(&tensor, TENSOR_DIM, dims[i]);
    put_int(&tensor, TENSOR_TYPE, type);
    if (name != NULL)
        put_text(&tensor, TENSOR_NAME, name);
    put_bytes(&tensor, TENSOR_RAW, raw, size);
    put(to, field, &tensor);
}

/* An input or output; a dimension of -2 is written as a name, rank SIZE_MAX as no shape at all. */
static inline void put_port(struct message *to, unsigned field, const char *name, int type,
                            size_t rank, const int64_t *dims)
{
    struct message shape = {0}, tensor = {0}, kind = {0}, port = {0};

    for (size_t i = 0; rank != SIZE_MAX && i < rank; i++) {
        struct message dim = {0};

        if (dims[i] == -2)
            put_text(&dim, 2, "batch");
        else
            put_int(&dim, 1, dims[i]);
        put(&shape, 1, &dim);
    }
    put_int(&tensor, 1, type);
    if (rank != SIZE_MAX)
        put(&tensor, 2, &shape);
    put(&kind, 1, &tensor);
    put_text(&port, 1, name);
    put(&port, 2, &kind);
    put(to, field, &port);
}

static inline struct message attr_int(const char *name, int64_t value)
{
    struct message attr = {0};

    put_text(&attr, 1, name);
    put_int(&attr, 3, value);
    put_int(&attr, 20, 2);
    return attr;
}

static inline struct message attr_float(const char *name, float value)
{
    struct message attr = {0};

    put_text(&attr, 1, name);
    put_float(&attr, 2, value);
    put_int(&attr, 20, 1);
    return attr;
}

static inline struct message attr_text(const char *name, const char *text)
{
    struct message attr = {0};

    put_text(&attr, 1, name);
    put_text(&attr, 4, text);
    put_int(&attr, 20, 3);
    return attr;
}

static inline struct message attr_ints(const char *name, size_t count, const int64_t *values)
{
    struct message attr = {0};

    put_text(&attr, 1, name);
    for (size_t i = 0; i < count; i++)
        put_int(&attr, 8, values[i]);
    put_int(&attr, 20, 7);
    return attr;
}

static inline struct message attr_graph(const char *name, const struct message *graph)
{
    struct message attr = {0};

    put_text(&attr, 1, name);
    put(&attr, 6, graph);
    put_int(&attr, 20, 5);
    return attr;
}

/* Names are separated by spaces; "-" stands for one left out. */
static inline void put_names(struct message *to, unsigned field, const char *names)
{
    while (*names != '\0') {
        size_t length = strcspn(names, " ");

        put_bytes(to, field, names, length == 1 && *names == '-' ? 0 : length);
        names += length + strspn(names + length, " ");
    }
}

static inline struct message node(const char *op, const char *inputs, const char *outputs)
{
    struct message message = {0};

    put_names(&message, NODE_INPUT, inputs);
    put_names(&message, NODE_OUTPUT, outputs);
    put_text(&message, NODE_NAME, op);
    put_text(&message, NODE_OP, op);
    return message;
}

static inline void put_node(struct message *graph, const char *op, const char *inputs,
                            const char *outputs)
{
    struct message message = node(op, inputs, outputs);

    put(graph, GRAPH_NODE, &message);
}

static inline void put_node_with(struct message *graph, const char *op, const char *inputs,
                                 const char *outputs, struct message attr)
{
    struct message message = node(op, inputs, outputs);

    put(&message, NODE_ATTR, &attr);
    put(graph, GRAPH_NODE, &message);
}

static inline void put_opset(struct message *to, unsigned field, const char *domain,
                             int64_t version)
{
    struct message opset = {0};

    put_text(&opset, 1, domain);
    put_int(&opset, 2, version);
    put(to, field, &opset);
}

/* A model around a graph; more fields may be put behind. */
static inline struct message model(int64_t opset, const struct message *graph)
{
    struct message message = {0};

    put_int(&message, MODEL_IR, 8);
    put(&message, MODEL_GRAPH, graph);
    put_opset(&message, MODEL_OPSET, "", opset);
    return message;
}

#endif
