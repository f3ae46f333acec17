#include "serve/codec/infer_response.h"

#include "serve/codec/wire.h"

enum { MODEL_NAME = 1, MODEL_VERSION = 2, ID = 3, OUTPUTS = 5, RAW_CONTENTS = 6 };
enum { OUTPUT_NAME = 1, OUTPUT_DATATYPE = 2, OUTPUT_SHAPE = 3, OUTPUT_PARAMETERS = 4 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2, INT64_PARAM = 2, STRING_PARAM = 3 };
enum { ERROR_MESSAGE = 1, INFER_RESPONSE = 2, VARINT_MAX = 10 };

static size_t shape_size(const struct shape *shape)
{
    size_t size = 0;

    for (size_t i = 0; i < shape->rank; i++)
        size += wire_varint_size((uint64_t)shape->dims[i]);
    return size;
}

/* One entry of a map<string, InferParameter>: a text, or a number where there is none. */
struct put_parameter {
    const char *key;
    struct slice text;
    uint64_t number;
};

static size_t choice_size(const struct put_parameter *parameter)
{
    return parameter->text.data != NULL ? wire_bytes_size(parameter->text.size)
                                        : 1 + wire_varint_size(parameter->number);
}

static size_t entry_size(const struct put_parameter *parameter)
{
    return wire_bytes_size(strlen(parameter->key)) + wire_bytes_size(choice_size(parameter));
}

static uint8_t *put_entry(uint8_t *to, const struct put_parameter *parameter)
{
    to = wire_put_head(to, OUTPUT_PARAMETERS, entry_size(parameter));
    to = wire_put_bytes(to, ENTRY_KEY, parameter->key, strlen(parameter->key));
    to = wire_put_head(to, ENTRY_VALUE, choice_size(parameter));
    if (parameter->text.data != NULL)
        return wire_put_bytes(to, STRING_PARAM, parameter->text.data, parameter->text.size);
    to = wire_put_varint(to, INT64_PARAM << 3 | WIRE_VARINT);
    return wire_put_varint(to, parameter->number);
}

enum { SHARED_PARAMETERS = 3 };

/* Where in shared memory the tensor lies; returns how many parameters say so. */
static size_t shared_parameters(const struct response_tensor *tensor,
                                struct put_parameter parameters[SHARED_PARAMETERS])
{
    const struct shared_wish *shared = tensor->shared;

    if (shared == NULL)
        return 0;
    parameters[0] = (struct put_parameter){"shared_memory_region", shared->region, 0};
    parameters[1] = (struct put_parameter){"shared_memory_byte_size", {NULL, 0}, shared->bytes};
    parameters[2] = (struct put_parameter){"shared_memory_offset", {NULL, 0}, shared->offset};
    return shared->offset > 0 ? 3 : 2;
}

static size_t output_size(const struct response_tensor *tensor)
{
    struct put_parameter parameters[SHARED_PARAMETERS];
    size_t count = shared_parameters(tensor, parameters);
    size_t size = wire_bytes_size(strlen(tensor->name)) +
                  wire_bytes_size(strlen(dtype_oip_name(tensor->dtype))) +
                  wire_bytes_size(shape_size(&tensor->shape));

    for (size_t i = 0; i < count; i++)
        size += wire_bytes_size(entry_size(&parameters[i]));
    return size;
}

static uint8_t *put_output(uint8_t *to, const struct response_tensor *tensor)
{
    const char *datatype = dtype_oip_name(tensor->dtype);
    struct put_parameter parameters[SHARED_PARAMETERS];
    size_t count;

    to = wire_put_head(to, OUTPUTS, output_size(tensor));
    to = wire_put_bytes(to, OUTPUT_NAME, tensor->name, strlen(tensor->name));
    to = wire_put_bytes(to, OUTPUT_DATATYPE, datatype, strlen(datatype));
    to = wire_put_head(to, OUTPUT_SHAPE, shape_size(&tensor->shape));
    for (size_t i = 0; i < tensor->shape.rank; i++)
        to = wire_put_varint(to, (uint64_t)tensor->shape.dims[i]);
    count = shared_parameters(tensor, parameters);
    for (size_t i = 0; i < count; i++)
        to = put_entry(to, &parameters[i]);
    return to;
}

/* Everything before the first tensor's bytes. */
static size_t head_size(const struct call *call, const struct response_tensor *tensors,
                        size_t count)
{
    size_t size = wire_bytes_size(strlen(model_name(call->model))) +
                  wire_bytes_size(strlen(model_version(call->model)));

    if (call->infer->id.size > 0)
        size += wire_bytes_size(call->infer->id.size);
    for (size_t i = 0; i < count; i++)
        size += wire_bytes_size(output_size(&tensors[i]));
    return size;
}

static uint8_t *put_head(uint8_t *to, const struct call *call,
                         const struct response_tensor *tensors, size_t count)
{
    const char *name = model_name(call->model), *version = model_version(call->model);

    to = wire_put_bytes(to, MODEL_NAME, name, strlen(name));
    to = wire_put_bytes(to, MODEL_VERSION, version, strlen(version));
    if (call->infer->id.size > 0)
        to = wire_put_bytes(to, ID, call->infer->id.data, call->infer->id.size);
    for (size_t i = 0; i < count; i++)
        to = put_output(to, &tensors[i]);
    return to;
}

/* Pieces alternate: head up to a tensor's length, the tensor, the next key and length, … */
enum status infer_response_encode(struct call *call, const struct response_tensor *tensors,
                                  size_t count, struct piece **out_pieces, size_t *out_count)
{
    size_t head = head_size(call, tensors, count), total = head, used = 0;
    struct piece *pieces = arena_take_array(&call->request.arena, 2 * count + 1, sizeof(*pieces));
    uint8_t *bytes = call_take(call, head + (count + 1) * (1 + VARINT_MAX)), *at = bytes,
            *start = bytes;

    if (pieces == NULL || bytes == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        total += wire_bytes_size(tensors[i].raw.size);
    if (call->stream != NULL)
        at = wire_put_head(at, INFER_RESPONSE, total);
    at = put_head(at, call, tensors, count);
    for (size_t i = 0; i < count; i++) {
        at = wire_put_head(at, RAW_CONTENTS, tensors[i].raw.size);
        pieces[used++] = (struct piece){start, (size_t)(at - start)};
        pieces[used++] = tensors[i].raw;
        start = at;
    }
    if (at > start)
        pieces[used++] = (struct piece){start, (size_t)(at - start)};
    *out_pieces = pieces;
    *out_count = used;
    return STATUS_OK;
}

enum status infer_response_encode_error(struct call *call, const char *text,
                                        struct piece **out_pieces)
{
    struct slice id = call->infer != NULL ? call->infer->id : (struct slice){NULL, 0};
    size_t inner = id.size > 0 ? wire_bytes_size(id.size) : 0;
    struct piece *piece = call_take(call, sizeof(*piece));
    uint8_t *bytes = call_take(call, wire_bytes_size(strlen(text)) + wire_bytes_size(inner)), *at;

    if (piece == NULL || bytes == NULL)
        return STATUS_NO_MEMORY;
    at = wire_put_bytes(bytes, ERROR_MESSAGE, text, strlen(text));
    if (inner > 0) {
        at = wire_put_head(at, INFER_RESPONSE, inner);
        at = wire_put_bytes(at, ID, id.data, id.size);
    }
    *piece = (struct piece){bytes, (size_t)(at - bytes)};
    *out_pieces = piece;
    return STATUS_OK;
}
