/* POST …/infer: the JSON part, tensors in it or behind it. */
#include <inttypes.h>
#include <string.h>

#include "serve/codec/infer_request.h"
#include "serve/codec/json_infer.h"
#include "serve/codec/json_scan.h"
#include "serve/shared.h"

enum { ARENA_MOST = 4096, FIRST_TENSORS = 8 };

struct reader {
    struct call *call;
    struct infer_message *message;
    struct json_scan scan;
    size_t input_room, output_room;
    struct error *err;
    enum status status; /* of a failure that is not the JSON's */
};

#define REFUSE(reader, status_, ...)                                                               \
    ((reader)->status = error_set((reader)->err, (status_), __VA_ARGS__),                          \
     scan_fail(&(reader)->scan, "refused"))

/* One more place at the end of an array that doubles in the arena; NULL: refused. */
static void *add_place(struct reader *reader, void **array, size_t *count, size_t *room,
                       size_t size)
{
    if (*count == INFER_TENSORS_MAX) {
        (void)REFUSE(reader, STATUS_INVALID, "more than %d tensors in one request",
                     INFER_TENSORS_MAX);
        return NULL;
    }
    if (*count == *room) {
        size_t grown_room = *room > 0 ? *room * 2 : FIRST_TENSORS;
        void *grown = arena_take_array(&reader->call->request.arena, grown_room, size);

        if (grown == NULL) {
            (void)REFUSE(reader, STATUS_NO_MEMORY, "out of memory");
            return NULL;
        }
        if (*count > 0)
            memcpy(grown, *array, *count * size);
        *array = grown;
        *room = grown_room;
    }
    return (char *)*array + size * (*count)++;
}

static bool read_shape(struct reader *reader, struct infer_input *input)
{
    struct json_scan *scan = &reader->scan;

    input->shape.rank = 0;
    if (!scan_enter(scan, '['))
        return false;
    while (scan_next_element(scan)) {
        int64_t dim;

        if (!scan_integer(scan, &dim))
            return false;
        if (input->shape.rank == SHAPE_MAX_RANK)
            return REFUSE(reader, STATUS_INVALID, "input '%.*s' has more than %d dimensions",
                          (int)input->name.size, input->name.data, SHAPE_MAX_RANK);
        input->shape.dims[input->shape.rank++] = dim;
    }
    return scan->why == NULL;
}

/* ---- tensors in JSON ---- */

static bool read_data(struct reader *reader, struct infer_input *input)
{
    struct json_scan *scan = &reader->scan;
    size_t most = (size_t)(scan->end - scan->at) / 2 + 1; /* an element and what parts it */
    size_t size = dtype_bytes(input->dtype), count = 0;
    int64_t expected = 0;
    void *data;

    if (shape_elements(&input->shape, &expected) != STATUS_OK)
        return REFUSE(reader, STATUS_INVALID, "the shape of input '%.*s' is no shape",
                      (int)input->name.size, input->name.data);
    if ((uint64_t)expected > most)
        return REFUSE(reader, STATUS_INVALID,
                      "input '%.*s' has fewer elements than its shape says: %" PRId64,
                      (int)input->name.size, input->name.data, expected);
    data = (size_t)expected * size <= ARENA_MOST
               ? call_take(reader->call, (size_t)expected * size)
               : call_take_pooled(reader->call, (size_t)expected * size);
    if (data == NULL)
        return REFUSE(reader, STATUS_NO_MEMORY, "no host memory for input '%.*s'",
                      (int)input->name.size, input->name.data);
    if (!scan_tensor(scan, input->dtype, data, (size_t)expected, &count))
        return false;
    if (count != (size_t)expected)
        return REFUSE(reader, STATUS_INVALID,
                      "input '%.*s' has %zu elements, its shape says %" PRId64,
                      (int)input->name.size, input->name.data, count, expected);
    input->data = data;
    input->bytes = count * size;
    input->has_data = input->is_ready = true;
    return true;
}

/* ---- members ---- */

static bool read_shared(struct reader *reader, struct slice key, const char *what,
                        struct slice tensor, struct shared_wish *wish)
{
    struct json_scan *scan = &reader->scan;
    struct shared_parameter parameter = {.key = key, .what = what, .name = tensor};

    parameter.is_text = scan_peek(scan) == '"';
    parameter.is_number = !parameter.is_text;
    if (parameter.is_text ? !scan_string(scan, &parameter.text)
                          : !scan_integer(scan, &parameter.number))
        return false;
    reader->status = shared_put(wish, &parameter, reader->err);
    return reader->status == STATUS_OK || scan_fail(scan, "refused");
}

static bool settle_shared(struct reader *reader, const char *what, struct slice tensor,
                          const struct shared_wish *wish)
{
    reader->status = shared_settle(wish, what, tensor, reader->err);
    return reader->status == STATUS_OK || scan_fail(&reader->scan, "refused");
}

static bool read_binary_size(struct reader *reader, struct slice input, int64_t *binary_size)
{
    if (!scan_integer(&reader->scan, binary_size))
        return false;
    return *binary_size >= 0 ||
           REFUSE(reader, STATUS_INVALID,
                  "input '%.*s' has binary_data_size %lld, allowed is 0 or more", (int)input.size,
                  input.data, (long long)*binary_size);
}

static bool read_input_parameters(struct reader *reader, struct infer_input *input,
                                  int64_t *binary_size)
{
    struct json_scan *scan = &reader->scan;
    struct slice name;

    if (!scan_enter(scan, '{'))
        return false;
    while (scan_next_member(scan, &name)) {
        bool good = shared_is_parameter(name)
                        ? read_shared(reader, name, "input", input->name, &input->shared)
                    : slice_is(name, "binary_data_size")
                        ? read_binary_size(reader, input->name, binary_size)
                        : scan_skip(scan);

        if (!good)
            return false;
    }
    return scan->why == NULL;
}

struct pending_input { /* what can only be settled at the end of the object */
    int64_t binary_size;
    char *data_at; /* JSON data that came before its datatype or shape */
    bool has_shape;
    unsigned seen; /* members, by bits */
};

/* A second datatype or shape would say of data that was read already that they are others. */
static bool is_first(struct reader *reader, struct slice name, struct pending_input *pending)
{
    static const char *const members[] = {"name", "datatype", "shape", "data", "parameters"};

    for (unsigned i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        if (!slice_is(name, members[i]))
            continue;
        if ((pending->seen >> i & 1) != 0)
            return REFUSE(reader, STATUS_INVALID, "an input has '%s' twice", members[i]);
        pending->seen |= 1U << i;
    }
    return true;
}

static bool read_input_member(struct reader *reader, struct slice name, struct infer_input *input,
                              struct pending_input *pending)
{
    struct json_scan *scan = &reader->scan;
    struct slice text;

    if (!is_first(reader, name, pending))
        return false;
    if (slice_is(name, "name"))
        return scan_string(scan, &input->name);
    if (slice_is(name, "datatype")) {
        if (!scan_string(scan, &text))
            return false;
        input->dtype = dtype_from_oip_name(text.data, text.size);
        return input->dtype != DTYPE_NONE ||
               REFUSE(reader, STATUS_INVALID, "input '%.*s' has the unknown datatype '%.*s'",
                      (int)input->name.size, input->name.data, (int)text.size, text.data);
    }
    if (slice_is(name, "shape")) {
        pending->has_shape = true;
        return read_shape(reader, input);
    }
    if (slice_is(name, "parameters"))
        return read_input_parameters(reader, input, &pending->binary_size);
    if (slice_is(name, "data")) {
        if (input->dtype != DTYPE_NONE && pending->has_shape)
            return read_data(reader, input);
        pending->data_at = scan->at;
    }
    return scan_skip(scan);
}

/* Data that stood before its datatype or shape: skipped then, read now. */
static bool read_data_again(struct reader *reader, struct infer_input *input, char *data_at)
{
    struct json_scan *scan = &reader->scan;
    char *behind = scan->at;

    scan->at = data_at;
    if (!read_data(reader, input))
        return false;
    scan->at = behind;
    return true;
}

static bool read_input(struct reader *reader)
{
    struct infer_message *message = reader->message;
    struct json_scan *scan = &reader->scan;
    struct pending_input pending = {.binary_size = -1};
    struct infer_input *input = add_place(reader, (void **)&message->in, &message->inputs,
                                          &reader->input_room, sizeof(*input));
    struct slice name;

    if (input == NULL || !scan_enter(scan, '{'))
        return false;
    while (scan_next_member(scan, &name))
        if (!read_input_member(reader, name, input, &pending))
            return false;
    if (scan->why != NULL)
        return false;
    if (input->dtype == DTYPE_NONE || !pending.has_shape)
        return REFUSE(reader, STATUS_INVALID, "input '%.*s' lacks its datatype or shape",
                      (int)input->name.size, input->name.data);
    if (pending.data_at != NULL && !read_data_again(reader, input, pending.data_at))
        return false;
    if (!settle_shared(reader, "input", input->name, &input->shared))
        return false;
    if (pending.binary_size < 0)
        return true;
    if (input->has_data)
        return REFUSE(reader, STATUS_INVALID, "input '%.*s' has both data and binary_data_size",
                      (int)input->name.size, input->name.data);
    input->bytes = (size_t)pending.binary_size; /* data is given by take_binaries() */
    input->is_binary = true;
    return true;
}

static bool read_output_parameters(struct reader *reader, struct infer_output *output)
{
    struct json_scan *scan = &reader->scan;
    struct slice name;

    if (!scan_enter(scan, '{'))
        return false;
    while (scan_next_member(scan, &name)) {
        bool good;

        if (shared_is_parameter(name))
            good = read_shared(reader, name, "output", output->name, &output->shared);
        else if (slice_is(name, "binary_data"))
            good = output->has_binary = scan_bool(scan, &output->is_binary);
        else if (slice_is(name, "classification"))
            good = scan_integer(scan, &output->classes) &&
                   (output->classes > 0 || scan_fail(scan, "classification must be above 0"));
        else
            good = scan_skip(scan);
        if (!good)
            return false;
    }
    return scan->why == NULL;
}

static bool read_output(struct reader *reader)
{
    struct infer_message *message = reader->message;
    struct json_scan *scan = &reader->scan;
    struct infer_output *output = add_place(reader, (void **)&message->out, &message->outputs,
                                            &reader->output_room, sizeof(*output));
    struct slice name;

    if (output == NULL || !scan_enter(scan, '{'))
        return false;
    while (scan_next_member(scan, &name)) {
        bool good = slice_is(name, "name")         ? scan_string(scan, &output->name)
                    : slice_is(name, "parameters") ? read_output_parameters(reader, output)
                                                   : scan_skip(scan);
        if (!good)
            return false;
    }
    return scan->why == NULL && settle_shared(reader, "output", output->name, &output->shared);
}

/* As Ollama's users write it: "5m", or seconds as a number. */
static bool read_keep_alive(struct reader *reader)
{
    struct infer_message *message = reader->message;
    struct json_scan *scan = &reader->scan;
    struct slice text;
    double seconds;

    message->has_keep_alive = true;
    if (scan_peek(scan) != '"')
        return scan_double(scan, &seconds) &&
               (keep_alive_from_seconds(seconds, &message->keep_alive_us) ||
                scan_fail(scan, "keep_alive is " KEEP_ALIVE_WORDS));
    return scan_string(scan, &text) &&
           (keep_alive_parse(text.data, text.size, &message->keep_alive_us) ||
            scan_fail(scan, "keep_alive is " KEEP_ALIVE_WORDS));
}

static bool read_parameters(struct reader *reader)
{
    struct infer_message *message = reader->message;
    struct json_scan *scan = &reader->scan;
    struct slice name;
    int64_t number;

    if (!scan_enter(scan, '{'))
        return false;
    while (scan_next_member(scan, &name)) {
        if (slice_is(name, "priority") || slice_is(name, "timeout")) {
            if (!scan_integer(scan, &number))
                return false;
            if (number < 0)
                return scan_fail(scan, "priority and timeout must not be negative");
            if (slice_is(name, "priority"))
                message->priority = (uint64_t)number;
            else
                message->timeout_us = number;
        } else if (slice_is(name, "keep_alive")) {
            if (!read_keep_alive(reader))
                return false;
        } else if (slice_is(name, "binary_data_output")) {
            if (!scan_bool(scan, &message->binary_data_output))
                return false;
        } else if (name.size >= 7 && memcmp(name.data, "triton_", 7) == 0) {
            return REFUSE(reader, STATUS_INVALID,
                          "parameter keys starting with 'triton_' are reserved for Triton usage "
                          "('%.*s')",
                          (int)name.size, name.data);
        } else if (!scan_skip(scan)) {
            return false;
        }
    }
    return scan->why == NULL;
}

static bool read_list(struct reader *reader, bool (*read_one)(struct reader *reader))
{
    if (!scan_enter(&reader->scan, '['))
        return false;
    while (scan_next_element(&reader->scan))
        if (!read_one(reader))
            return false;
    return reader->scan.why == NULL;
}

static bool read_document(struct reader *reader)
{
    struct json_scan *scan = &reader->scan;
    struct slice name;

    if (!scan_enter(scan, '{'))
        return false;
    while (scan_next_member(scan, &name)) {
        bool good = slice_is(name, "id")           ? scan_string(scan, &reader->message->id)
                    : slice_is(name, "inputs")     ? read_list(reader, read_input)
                    : slice_is(name, "outputs")    ? read_list(reader, read_output)
                    : slice_is(name, "parameters") ? read_parameters(reader)
                                                   : scan_skip(scan);
        if (!good)
            return false;
    }
    return scan_finish(scan);
}

/* ---- the binary part ---- */

static enum status take_binaries(struct call *call, size_t json_size, struct error *err)
{
    struct infer_message *message = call->infer;
    const uint8_t *at = call->body.bytes + json_size;
    size_t left = call->body.received - json_size;

    for (size_t i = 0; i < message->inputs; i++) {
        struct infer_input *input = &message->in[i];

        if (!input->is_binary)
            continue;
        if (input->bytes > left)
            return error_set(err, STATUS_INVALID,
                             "input '%.*s' has binary_data_size %zu, %zu bytes are left in the "
                             "body",
                             (int)input->name.size, input->name.data, input->bytes, left);
        input->data = at;
        input->has_data = true;
        at += input->bytes;
        left -= input->bytes;
    }
    if (left > 0)
        return error_set(err, STATUS_INVALID,
                         "unexpected additional input data for model '%s': %zu bytes",
                         message->model_name, left);
    return STATUS_OK;
}

/* The whole body is the one input of the model; bind gives it its shape. */
static enum status take_raw_request(struct call *call, struct error *err)
{
    struct infer_message *message = call->infer;

    message->in = call_take(call, sizeof(*message->in));
    if (message->in == NULL)
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    message->inputs = 1;
    message->is_raw = true;
    message->binary_data_output = true;
    message->in[0].data = call->body.bytes;
    message->in[0].bytes = call->body.received;
    message->in[0].has_data = true;
    return STATUS_OK;
}

enum status json_infer_decode(struct call *call, struct error *err)
{
    struct infer_message *message = call_take(call, sizeof(*message));
    size_t json_size = call->has_json_size ? (size_t)call->json_size : call->body.received;
    struct reader reader = {.call = call, .message = message, .err = err};

    if (message == NULL)
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    message->model_name = call->path[0].data;
    message->model_version = call->path[1].data != NULL ? call->path[1].data : "";
    call->infer = message;
    if (json_size > call->body.received)
        return error_set(err, STATUS_INVALID,
                         "Inference-Header-Content-Length is %zu, the body has %zu bytes",
                         json_size, call->body.received);
    if (json_size == 0 && call->has_json_size)
        return take_raw_request(call, err);
    reader.scan = scan_over(call->body.bytes, json_size);
    if (!read_document(&reader))
        return reader.status != STATUS_OK
                   ? reader.status
                   : error_set(err, STATUS_INVALID,
                               "failed to parse the request JSON buffer: %s at %zu",
                               reader.scan.why, (size_t)(reader.scan.at - reader.scan.start));
    return take_binaries(call, json_size, err);
}
