#include "serve/codec/infer_request.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "serve/codec/typed_contents.h"
#include "serve/codec/wire.h"
#include "serve/shared.h"

/* Field numbers of ModelInferRequest and what is inside. */
enum { MODEL_NAME = 1, MODEL_VERSION = 2, ID = 3, PARAMETERS = 4, INPUTS = 5, OUTPUTS = 6 };
enum { RAW_CONTENTS = 7 };
enum { INPUT_NAME = 1, INPUT_DATATYPE = 2, INPUT_SHAPE = 3, INPUT_PARAMETERS = 4 };
enum { INPUT_CONTENTS = 5, OUTPUT_NAME = 1, OUTPUT_PARAMETERS = 2 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { BOOL_PARAM = 1, INT64_PARAM = 2, STRING_PARAM = 3, DOUBLE_PARAM = 4, UINT64_PARAM = 5 };

struct parameter {
    struct slice key;
    unsigned kind;  /* …_PARAM; 0: none */
    int64_t number; /* of a bool, int64 or uint64 */
    struct slice text;
};

static struct slice slice_of(const struct wire_field *field)
{
    return (struct slice){(const char *)field->bytes, field->size};
}

size_t infer_request_raw_offset(const uint8_t *bytes, size_t size)
{
    struct wire wire = wire_over(bytes, size);

    while (wire.at < wire.end) {
        struct wire ahead = wire;
        struct wire_field field;
        uint64_t key, length;

        if (wire_varint(&ahead, &key) && key == (RAW_CONTENTS << 3 | WIRE_BYTES))
            return wire_varint(&ahead, &length) ? (size_t)(ahead.at - bytes) : 0;
        if (!wire_next(&wire, &field))
            return 0;
    }
    return 0;
}

static enum status bad_message(struct error *err)
{
    return error_set(err, STATUS_INTERNAL, "the request is no inference.ModelInferRequest");
}

/* ---- parameters ---- */

static bool read_parameter(const struct wire_field *entry, struct parameter *out_parameter)
{
    struct wire wire = wire_over(entry->bytes, entry->size);
    struct parameter parameter = {0};
    struct wire_field field;

    while (wire_next(&wire, &field)) {
        struct wire value;

        if (field.type != WIRE_BYTES)
            continue;
        if (field.number == ENTRY_KEY)
            parameter.key = slice_of(&field);
        if (field.number != ENTRY_VALUE)
            continue;
        value = wire_over(field.bytes, field.size);
        while (wire_next(&value, &field)) {
            parameter.kind = field.number;
            parameter.number = (int64_t)field.value;
            parameter.text = slice_of(&field);
        }
        if (value.failed)
            return false;
    }
    *out_parameter = parameter;
    return !wire.failed;
}

static bool key_is(const struct parameter *parameter, const char *name)
{
    return slice_is(parameter->key, name);
}

static enum status wrong_kind(const struct parameter *parameter, const char *kind,
                              struct error *err)
{
    return error_set(err, STATUS_INVALID, "invalid value type for '%.*s' parameter, expected %s.",
                     (int)parameter->key.size, parameter->key.data, kind);
}

static enum status wrong_number(const struct parameter *parameter, const char *allowed,
                                struct error *err)
{
    char found[32];

    (void)snprintf(found, sizeof(found), parameter->kind == UINT64_PARAM ? "%" PRIu64 : "%" PRId64,
                   (uint64_t)parameter->number);
    return error_set(err, STATUS_INVALID, "parameter '%.*s' is %s, allowed are %s",
                     (int)parameter->key.size, parameter->key.data, found, allowed);
}

/* As Ollama's users write it: "5m", or seconds as a number. */
static enum status read_keep_alive(struct infer_message *message, const struct parameter *parameter,
                                   struct error *err)
{
    double seconds = (double)parameter->number;
    bool good;

    if (parameter->kind == DOUBLE_PARAM)
        memcpy(&seconds, &parameter->number, sizeof(seconds));
    if (parameter->kind == STRING_PARAM)
        good =
            keep_alive_parse(parameter->text.data, parameter->text.size, &message->keep_alive_us);
    else
        good = parameter->kind > BOOL_PARAM &&
               keep_alive_from_seconds(seconds, &message->keep_alive_us);
    message->has_keep_alive = good;
    return good ? STATUS_OK : error_set(err, STATUS_INVALID, "keep_alive is " KEEP_ALIVE_WORDS);
}

static enum status read_request_parameter(struct infer_message *message,
                                          const struct parameter *parameter, struct error *err)
{
    bool is_number = parameter->kind == INT64_PARAM || parameter->kind == UINT64_PARAM;

    if (key_is(parameter, "priority")) {
        if (!is_number)
            return wrong_kind(parameter, "int64_param or uint64_param", err);
        if (parameter->kind == INT64_PARAM && parameter->number < 0)
            return wrong_number(parameter, "0 to 18446744073709551615", err);
        message->priority = (uint64_t)parameter->number;
    } else if (key_is(parameter, "timeout")) {
        if (!is_number)
            return wrong_kind(parameter, "int64_param", err);
        if (parameter->number < 0)
            return wrong_number(parameter, "0 to 9223372036854775807 microseconds", err);
        message->timeout_us = parameter->number;
    } else if (key_is(parameter, "keep_alive")) {
        return read_keep_alive(message, parameter, err);
    } else if (parameter->key.size >= 7 && memcmp(parameter->key.data, "triton_", 7) == 0 &&
               !key_is(parameter, "triton_enable_empty_final_response")) {
        return error_set(err, STATUS_INVALID,
                         "parameter keys starting with 'triton_' are reserved for Triton usage "
                         "('%.*s')",
                         (int)parameter->key.size, parameter->key.data);
    }
    return STATUS_OK;
}

/* ---- tensors ---- */

static enum status read_shape(const struct wire_field *field, struct shape *shape,
                              struct slice name, struct error *err)
{
    struct wire wire = wire_over(field->bytes, field->size);
    uint64_t dim = field->value;

    do {
        if (field->type == WIRE_BYTES && (wire.at >= wire.end || !wire_varint(&wire, &dim)))
            break;
        if (shape->rank == SHAPE_MAX_RANK)
            return error_set(err, STATUS_INVALID, "input '%.*s' has more than %d dimensions",
                             (int)name.size, name.data, SHAPE_MAX_RANK);
        shape->dims[shape->rank++] = (int64_t)dim;
    } while (field->type == WIRE_BYTES);
    return wire.failed ? bad_message(err) : STATUS_OK;
}

/* Of a tensor; false in *out_taken: the parameter is about something else. */
static enum status read_shared(const struct parameter *parameter, const char *what,
                               struct slice name, struct shared_wish *wish, bool *out_taken,
                               struct error *err)
{
    const struct shared_parameter shared = {.key = parameter->key,
                                            .is_text = parameter->kind == STRING_PARAM,
                                            .is_number = parameter->kind == INT64_PARAM ||
                                                         parameter->kind == UINT64_PARAM,
                                            .text = parameter->text,
                                            .number = parameter->number,
                                            .what = what,
                                            .name = name};

    *out_taken = shared_is_parameter(parameter->key);
    return *out_taken ? shared_put(wish, &shared, err) : STATUS_OK;
}

static enum status read_input(struct call *call, const struct wire_field *outer,
                              struct infer_input *input, struct error *err)
{
    struct wire wire = wire_over(outer->bytes, outer->size);
    struct wire_field field;
    struct slice contents = {NULL, 0}, datatype = {"", 0};
    struct parameter parameter;
    bool is_shared;

    while (wire_next(&wire, &field)) {
        if (field.number == INPUT_SHAPE &&
            (field.type == WIRE_BYTES || field.type == WIRE_VARINT)) {
            TRY(read_shape(&field, &input->shape, input->name, err));
        } else if (field.type != WIRE_BYTES) {
            continue;
        } else if (field.number == INPUT_NAME) {
            input->name = slice_of(&field);
        } else if (field.number == INPUT_DATATYPE) {
            datatype = slice_of(&field);
        } else if (field.number == INPUT_CONTENTS) {
            contents = slice_of(&field);
        } else if (field.number == INPUT_PARAMETERS) {
            if (!read_parameter(&field, &parameter))
                return bad_message(err);
            TRY(read_shared(&parameter, "input", input->name, &input->shared, &is_shared, err));
        }
    }
    if (wire.failed)
        return bad_message(err);
    input->dtype = dtype_from_oip_name(datatype.data, datatype.size);
    if (input->dtype == DTYPE_NONE)
        return error_set(err, STATUS_INVALID, "input '%.*s' has the unknown datatype '%.*s'",
                         (int)input->name.size, input->name.data, (int)datatype.size,
                         datatype.data);
    TRY(shared_settle(&input->shared, "input", input->name, err));
    if (contents.data != NULL)
        return typed_contents_decode(call, contents, input, err);
    return STATUS_OK;
}

static enum status read_output(const struct wire_field *outer, struct infer_output *output,
                               struct error *err)
{
    struct wire wire = wire_over(outer->bytes, outer->size);
    struct parameter parameter;
    struct wire_field field;
    bool is_shared;

    while (wire_next(&wire, &field)) {
        if (field.type == WIRE_BYTES && field.number == OUTPUT_NAME)
            output->name = slice_of(&field);
        if (field.type != WIRE_BYTES || field.number != OUTPUT_PARAMETERS)
            continue;
        if (!read_parameter(&field, &parameter))
            return bad_message(err);
        TRY(read_shared(&parameter, "output", output->name, &output->shared, &is_shared, err));
        if (!is_shared && key_is(&parameter, "classification")) {
            if (parameter.kind != INT64_PARAM || parameter.number <= 0)
                return error_set(err, STATUS_INVALID,
                                 "invalid value for 'classification' parameter of output '%.*s', "
                                 "expected int64_param > 0",
                                 (int)output->name.size, output->name.data);
            output->classes = parameter.number;
        }
    }
    if (wire.failed)
        return bad_message(err);
    return shared_settle(&output->shared, "output", output->name, err);
}

/* ---- the message ---- */

struct counts {
    size_t inputs, outputs, raws;
};

static bool count_fields(const struct body *body, struct counts *out_counts)
{
    struct wire wire = wire_over(body->bytes, body->received);
    struct counts counts = {0};
    struct wire_field field;

    while (wire_next(&wire, &field)) {
        counts.inputs += field.number == INPUTS;
        counts.outputs += field.number == OUTPUTS;
        counts.raws += field.number == RAW_CONTENTS;
    }
    *out_counts = counts;
    return !wire.failed;
}

static enum status copy_name(struct call *call, const struct wire_field *field,
                             const char **out_name, struct error *err)
{
    if (memchr(field->bytes, '\0', field->size) != NULL)
        return error_set(err, STATUS_INVALID, "a name holds a NUL byte");
    *out_name = arena_copy_string(&call->request.arena, (const char *)field->bytes, field->size);
    return *out_name != NULL ? STATUS_OK : error_set(err, STATUS_NO_MEMORY, "out of memory");
}

static enum status read_field(struct call *call, struct infer_message *message,
                              const struct wire_field *field, struct slice *raws,
                              struct counts *done, struct error *err)
{
    struct parameter parameter;

    if (field->type != WIRE_BYTES)
        return field->number >= MODEL_NAME && field->number <= RAW_CONTENTS ? bad_message(err)
                                                                            : STATUS_OK;
    switch (field->number) {
    case MODEL_NAME:
        return copy_name(call, field, &message->model_name, err);
    case MODEL_VERSION:
        return copy_name(call, field, &message->model_version, err);
    case ID:
        message->id = slice_of(field);
        return STATUS_OK;
    case PARAMETERS:
        if (!read_parameter(field, &parameter))
            return bad_message(err);
        return read_request_parameter(message, &parameter, err);
    case INPUTS:
        return read_input(call, field, &message->in[done->inputs++], err);
    case OUTPUTS:
        return read_output(field, &message->out[done->outputs++], err);
    case RAW_CONTENTS:
        raws[done->raws++] = slice_of(field);
        return STATUS_OK;
    default:
        return STATUS_OK;
    }
}

/* Raw blocks stand in the order of those inputs that are not in shared memory. */
static enum status give_raws(struct infer_message *message, const struct slice *raws, size_t count,
                             struct error *err)
{
    size_t next = 0;

    for (size_t i = 0; i < message->inputs; i++) {
        struct infer_input *input = &message->in[i];

        if (count == 0 || input->shared.is_given)
            continue;
        if (input->has_data)
            return error_set(err, STATUS_INVALID,
                             "contents field must not be specified when using "
                             "raw_input_contents for '%.*s' for model '%s'",
                             (int)input->name.size, input->name.data, message->model_name);
        if (next == count)
            continue; /* bind says which input has no data */
        input->data = (const uint8_t *)raws[next].data;
        input->bytes = raws[next].size;
        input->has_data = true;
        next++;
    }
    if (next < count)
        return error_set(err, STATUS_INVALID, "%zu raw_input_contents for %zu inputs of model '%s'",
                         count, message->inputs, message->model_name);
    return STATUS_OK;
}

enum status infer_request_decode(struct call *call, struct error *err)
{
    struct infer_message *message = call_take(call, sizeof(*message));
    struct counts counts, done = {0};
    struct wire wire = wire_over(call->body.bytes, call->body.received);
    struct wire_field field;
    struct slice *raws;

    if (!count_fields(&call->body, &counts))
        return bad_message(err);
    if (counts.inputs > INFER_TENSORS_MAX || counts.outputs > INFER_TENSORS_MAX ||
        counts.raws > INFER_TENSORS_MAX)
        return error_set(err, STATUS_INVALID, "more than %d tensors in one request",
                         INFER_TENSORS_MAX);
    raws = arena_take_array(&call->request.arena, counts.raws, sizeof(*raws));
    if (message == NULL || raws == NULL)
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    message->model_name = message->model_version = "";
    message->inputs = counts.inputs;
    message->outputs = counts.outputs;
    message->in = arena_take_array(&call->request.arena, counts.inputs, sizeof(*message->in));
    message->out = arena_take_array(&call->request.arena, counts.outputs, sizeof(*message->out));
    if (message->in == NULL || message->out == NULL)
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    call->infer = message; /* from here on failures can name the request's id */
    while (wire_next(&wire, &field))
        TRY(read_field(call, message, &field, raws, &done, err));
    return give_raws(message, raws, counts.raws, err);
}
