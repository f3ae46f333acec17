#include "onnx/proto.h"

#include <stddef.h>
#include <string.h>

#include "base/utf8.h"

enum proto_kind {
    PROTO_END,
    PROTO_INT,    /* int64_t; the last one counts */
    PROTO_FLOAT,  /* float */
    PROTO_BYTES,  /* struct bytes */
    PROTO_LIST,   /* struct bytes_list */
    PROTO_INTS,   /* struct ints */
    PROTO_FLOATS, /* struct floats */
    PROTO_SEEN    /* only `present` */
};

struct proto_field {
    uint32_t number;
    enum proto_kind kind;
    size_t offset;
};

#define FIELD(message, number, kind, field)                                                        \
    {                                                                                              \
        number, PROTO_##kind, offsetof(struct raw_##message, field)                                \
    }

static const struct proto_field model_fields[] = {
    FIELD(model, 1, INT, ir_version),  FIELD(model, 2, BYTES, producer),
    FIELD(model, 7, BYTES, graph),     FIELD(model, 8, LIST, opsets),
    FIELD(model, 25, LIST, functions), {0},
};

static const struct proto_field opset_fields[] = {
    FIELD(opset, 1, BYTES, domain),
    FIELD(opset, 2, INT, version),
    {0},
};

static const struct proto_field graph_fields[] = {
    FIELD(graph, 1, LIST, nodes),
    FIELD(graph, 2, BYTES, name),
    FIELD(graph, 5, LIST, initializers),
    FIELD(graph, 11, LIST, inputs),
    FIELD(graph, 12, LIST, outputs),
    FIELD(graph, 15, LIST, sparse_initializers),
    {0},
};

static const struct proto_field function_fields[] = {
    FIELD(function, 1, BYTES, name),      FIELD(function, 4, LIST, inputs),
    FIELD(function, 5, LIST, outputs),    FIELD(function, 6, LIST, attributes),
    FIELD(function, 7, LIST, nodes),      FIELD(function, 9, LIST, opsets),
    FIELD(function, 10, BYTES, domain),   FIELD(function, 11, LIST, attribute_protos),
    FIELD(function, 13, BYTES, overload), {0},
};

static const struct proto_field node_fields[] = {
    FIELD(node, 1, LIST, inputs),     FIELD(node, 2, LIST, outputs),
    FIELD(node, 3, BYTES, name),      FIELD(node, 4, BYTES, op),
    FIELD(node, 5, LIST, attributes), FIELD(node, 7, BYTES, domain),
    FIELD(node, 8, BYTES, overload),  {0},
};

static const struct proto_field attr_fields[] = {
    FIELD(attr, 1, BYTES, name),
    FIELD(attr, ATTR_FIELD_F, FLOAT, f),
    FIELD(attr, ATTR_FIELD_I, INT, i),
    FIELD(attr, 4, BYTES, s),
    FIELD(attr, 5, BYTES, tensor),
    FIELD(attr, 6, BYTES, graph),
    FIELD(attr, 7, FLOATS, floats),
    FIELD(attr, 8, INTS, ints),
    FIELD(attr, 9, LIST, strings),
    FIELD(attr, 20, INT, type),
    FIELD(attr, 21, BYTES, reference),
    FIELD(attr, 22, BYTES, sparse_tensor),
    {0},
};

static const struct proto_field tensor_fields[] = {
    FIELD(tensor, 1, INTS, dims),
    FIELD(tensor, 2, INT, data_type),
    {TENSOR_FIELD_SEGMENT, PROTO_SEEN, 0},
    {TENSOR_FIELD_FLOAT, PROTO_SEEN, 0},
    {TENSOR_FIELD_INT32, PROTO_SEEN, 0},
    FIELD(tensor, TENSOR_FIELD_STRING, LIST, strings),
    {TENSOR_FIELD_INT64, PROTO_SEEN, 0},
    FIELD(tensor, 8, BYTES, name),
    FIELD(tensor, TENSOR_FIELD_RAW, BYTES, raw_data),
    {TENSOR_FIELD_DOUBLE, PROTO_SEEN, 0},
    {TENSOR_FIELD_UINT64, PROTO_SEEN, 0},
    FIELD(tensor, 13, LIST, external),
    FIELD(tensor, 14, INT, data_location),
    {0},
};

static const struct proto_field sparse_fields[] = {
    FIELD(sparse, 1, BYTES, values),
    FIELD(sparse, 2, BYTES, indices),
    FIELD(sparse, 3, INTS, dims),
    {0},
};

static const struct proto_field entry_fields[] = {
    FIELD(entry, 1, BYTES, key),
    FIELD(entry, 2, BYTES, value),
    {0},
};

static const struct proto_field port_fields[] = {
    FIELD(port, 1, BYTES, name),
    FIELD(port, 2, BYTES, type),
    {0},
};

static const struct proto_field type_fields[] = {
    FIELD(type, TYPE_FIELD_TENSOR, BYTES, tensor),
    {0},
};

static const struct proto_field tensor_type_fields[] = {
    FIELD(tensor_type, 1, INT, dtype),
    FIELD(tensor_type, 2, BYTES, shape),
    {0},
};

static const struct proto_field shape_fields[] = {
    FIELD(shape, 1, LIST, dims),
    {0},
};

static const struct proto_field dim_fields[] = {
    FIELD(dim, DIM_FIELD_VALUE, INT, value),
    {0},
};

static const struct proto_field *find_field(const struct proto_field *fields, uint32_t number)
{
    for (; fields->number != 0; fields++)
        if (fields->number == number)
            return fields;
    return NULL;
}

static float float_of(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float value;

    memcpy(&value, &low, sizeof(value));
    return value;
}

/* How many elements the field adds to a list; false on a wrong wire type. */
static bool measure(const struct wire_field *field, enum proto_kind kind, size_t *out_count)
{
    switch (kind) {
    case PROTO_INT:
        return field->type == WIRE_VARINT;
    case PROTO_FLOAT:
        return field->type == WIRE_32;
    case PROTO_BYTES:
        return field->type == WIRE_BYTES;
    case PROTO_LIST:
        *out_count = 1;
        return field->type == WIRE_BYTES;
    case PROTO_INTS:
        return wire_count(field, WIRE_VARINT, out_count);
    case PROTO_FLOATS:
        return wire_count(field, WIRE_32, out_count);
    case PROTO_SEEN:
    case PROTO_END:
        break;
    }
    return true;
}

/* First walk: checks wire types and counts the lists' elements (in the lists' own `count`). */
static enum status count_fields(struct bytes bytes, const struct proto_field *fields, char *out,
                                const char *words, struct error *err)
{
    struct wire wire = wire_over(bytes);
    struct wire_field field;

    while (wire_next(&wire, &field)) {
        const struct proto_field *known = find_field(fields, field.number);
        size_t count = 0;

        if (known == NULL)
            continue;
        if (!measure(&field, known->kind, &count))
            return error_set(err, STATUS_INVALID, "field %u of %s has a wrong form", field.number,
                             words);
        if (count > 0) /* every list struct begins with its count */
            *(size_t *)(void *)(out + known->offset) += count;
    }
    if (wire.bad)
        return error_set(err, STATUS_INVALID, "%s is cut off or no protocol buffer", words);
    return STATUS_OK;
}

static size_t element_bytes(enum proto_kind kind)
{
    switch (kind) {
    case PROTO_LIST:
        return sizeof(struct bytes);
    case PROTO_INTS:
        return sizeof(int64_t);
    case PROTO_FLOATS:
        return sizeof(float);
    default:
        return 0;
    }
}

/* Lists are laid out alike: a count, then a pointer to the elements. */
struct __attribute__((may_alias)) any_list {
    size_t count;
    void *items;
};
_Static_assert(sizeof(struct any_list) == sizeof(struct bytes_list) &&
                   sizeof(struct any_list) == sizeof(struct ints) &&
                   sizeof(struct any_list) == sizeof(struct floats),
               "lists of one layout");

static enum status make_room(struct arena *arena, const struct proto_field *fields, char *out,
                             struct error *err)
{
    for (; fields->number != 0; fields++) {
        struct any_list *list = (void *)(out + fields->offset);
        size_t bytes = element_bytes(fields->kind);

        if (bytes == 0 || list->count == 0)
            continue;
        list->items = arena_take_array(arena, list->count, bytes);
        if (list->items == NULL)
            return error_set(err, STATUS_NO_MEMORY, "no memory to read the model");
        list->count = 0; /* counts up again while it is filled */
    }
    return STATUS_OK;
}

static void store_list(struct any_list *list, const struct wire_field *field, enum proto_kind kind)
{
    struct wire_list elements = wire_list(field, kind == PROTO_INTS ? WIRE_VARINT : WIRE_32);
    uint64_t value;

    if (kind == PROTO_LIST) {
        ((struct bytes *)list->items)[list->count++] = field->bytes;
        return;
    }
    while (wire_list_next(&elements, &value)) {
        if (kind == PROTO_INTS)
            ((int64_t *)list->items)[list->count++] = (int64_t)value;
        else
            ((float *)list->items)[list->count++] = float_of(value);
    }
}

static void store(char *at, const struct wire_field *field, enum proto_kind kind)
{
    switch (kind) {
    case PROTO_INT:
        *(int64_t *)(void *)at = (int64_t)field->number_value;
        break;
    case PROTO_FLOAT:
        *(float *)(void *)at = float_of(field->number_value);
        break;
    case PROTO_BYTES:
        *(struct bytes *)(void *)at = field->bytes;
        break;
    case PROTO_LIST:
    case PROTO_INTS:
    case PROTO_FLOATS:
        store_list((void *)at, field, kind);
        break;
    case PROTO_SEEN:
    case PROTO_END:
        break;
    }
}

static enum status read_message(struct arena *arena, struct bytes bytes,
                                const struct proto_field *fields, char *out, const char *words,
                                struct error *err)
{
    struct wire wire = wire_over(bytes);
    struct wire_field field;

    TRY(count_fields(bytes, fields, out, words, err));
    TRY(make_room(arena, fields, out, err));
    while (wire_next(&wire, &field)) {
        const struct proto_field *known = find_field(fields, field.number);

        if (known == NULL)
            continue;
        store(out + known->offset, &field, known->kind);
        if (field.number < 32)
            *(uint32_t *)(void *)out |= UINT32_C(1) << field.number; /* `present` comes first */
    }
    return STATUS_OK;
}

#define PROTO_MESSAGE(name, words)                                                                 \
    enum status proto_read_##name(struct arena *arena, struct bytes bytes, struct raw_##name *out, \
                                  struct error *err)                                               \
    {                                                                                              \
        memset(out, 0, sizeof(*out));                                                              \
        return read_message(arena, bytes, name##_fields, (char *)out, words, err);                 \
    }
#include "onnx/proto.def"
#undef PROTO_MESSAGE

bool bytes_equal(struct bytes bytes, const char *text)
{
    return bytes_same(bytes, (struct bytes){text, strlen(text)});
}

bool bytes_same(struct bytes a, struct bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

enum status proto_text(struct arena *arena, struct bytes bytes, const char *what,
                       const char **out_text, struct error *err)
{
    if (!utf8_is_text(bytes.data, bytes.size))
        return error_set(err, STATUS_INVALID, "%s is not UTF-8 text", what);
    *out_text = arena_copy_string(arena, bytes.data, bytes.size);
    if (*out_text == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory to read the model");
    return STATUS_OK;
}
