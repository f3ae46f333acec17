/* ModelInfer: request and reply to and from their wire form (grpc_service.proto of the protocol).
 *
 * The tensors' bytes are never copied on the way out: the message's head is encoded here, each
 * raw_input_contents field is a small head of its own and a reference to the caller's bytes.  On
 * the way in the outputs point into the reply.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "wire.h"

/* Field numbers of ModelInferRequest, InferInputTensor, ModelInferResponse, InferOutputTensor. */
enum {
    REQUEST_MODEL = 1,
    REQUEST_VERSION,
    REQUEST_ID,
    REQUEST_PARAMETERS,
    REQUEST_INPUTS,
    REQUEST_OUTPUTS,
    REQUEST_RAW
};
enum { TENSOR_NAME = 1, TENSOR_DATATYPE, TENSOR_SHAPE };
enum {
    RESPONSE_MODEL = 1,
    RESPONSE_VERSION,
    RESPONSE_ID,
    RESPONSE_PARAMETERS,
    RESPONSE_OUTPUTS,
    RESPONSE_RAW
};
enum { PARAMETER_KEY = 1, PARAMETER_VALUE = 2, PARAMETER_UINT64 = 5 };
#define MESSAGE_MOST                                                                               \
    (UINT64_C(0xFFFFFFFF) - (1 << 20)) /* of tensors in a message: 32 bits of length */
enum { LENGTH_ROOM = 12 };             /* a tag and a 64-bit varint */
enum { DATA_ALIGNMENT = 8 };           /* of tensors in an answer */

struct sluice_response {
    unsigned char *bytes; /* the reply; everything below points into it or into `texts` */
    char *texts;
    const char *version;
    size_t outputs;
    struct sluice_tensor output[];
};

static void put_shape(struct wire_writer *writer, const struct sluice_tensor *tensor)
{
    struct wire_writer packed = {NULL, 0};

    for (size_t i = 0; i < tensor->rank; i++)
        wire_put_varint(&packed, (uint64_t)tensor->shape[i]);
    wire_put_length(writer, TENSOR_SHAPE, packed.bytes);
    for (size_t i = 0; i < tensor->rank; i++)
        wire_put_varint(writer, (uint64_t)tensor->shape[i]);
}

static void put_tensor_fields(struct wire_writer *writer, const struct sluice_tensor *tensor)
{
    wire_put_text(writer, TENSOR_NAME, tensor->name);
    wire_put_text(writer, TENSOR_DATATYPE, tensor->datatype);
    if (tensor->rank > 0)
        put_shape(writer, tensor);
}

static void put_input(struct wire_writer *writer, const struct sluice_tensor *tensor)
{
    struct wire_writer size = {NULL, 0};

    put_tensor_fields(&size, tensor);
    wire_put_length(writer, REQUEST_INPUTS, size.bytes);
    put_tensor_fields(writer, tensor);
}

static void put_output(struct wire_writer *writer, const char *name)
{
    struct wire_writer size = {NULL, 0};

    wire_put_text(&size, TENSOR_NAME, name);
    wire_put_length(writer, REQUEST_OUTPUTS, size.bytes);
    wire_put_text(writer, TENSOR_NAME, name);
}

/* parameters["priority"] = uint64_param, an entry of a map: key 1, value 2. */
static void put_priority(struct wire_writer *writer, uint64_t priority)
{
    struct wire_writer value = {NULL, 0}, entry = {NULL, 0};

    wire_put_tag(&value, PARAMETER_UINT64, WIRE_VARINT);
    wire_put_varint(&value, priority);
    wire_put_text(&entry, PARAMETER_KEY, "priority");
    wire_put_length(&entry, PARAMETER_VALUE, value.bytes);
    wire_put_length(writer, REQUEST_PARAMETERS, entry.bytes + value.bytes);
    wire_put_text(writer, PARAMETER_KEY, "priority");
    wire_put_length(writer, PARAMETER_VALUE, value.bytes);
    wire_put_tag(writer, PARAMETER_UINT64, WIRE_VARINT);
    wire_put_varint(writer, priority);
}

static void put_head(struct wire_writer *writer, const struct sluice_infer_request *request)
{
    wire_put_text(writer, REQUEST_MODEL, request->model);
    if (request->version != NULL)
        wire_put_text(writer, REQUEST_VERSION, request->version);
    if (request->id != NULL)
        wire_put_text(writer, REQUEST_ID, request->id);
    if (request->priority != 0)
        put_priority(writer, request->priority);
    for (size_t i = 0; i < request->inputs; i++)
        put_input(writer, &request->input[i]);
    for (size_t i = 0; i < request->outputs; i++)
        put_output(writer, request->output[i]);
}

static enum sluice_status check_request(const struct sluice_infer_request *request,
                                        struct sluice_error *error)
{
    uint64_t bytes = 0;

    if (request->model == NULL)
        return client_error(error, SLUICE_INVALID_ARGUMENT, "the request names no model");
    for (size_t i = 0; i < request->inputs; i++) {
        const struct sluice_tensor *input = &request->input[i];

        if (input->name == NULL || input->datatype == NULL)
            return client_error(error, SLUICE_INVALID_ARGUMENT, "input %zu has no name or datatype",
                                i);
        if (input->rank > SLUICE_MAX_RANK)
            return client_error(error, SLUICE_INVALID_ARGUMENT,
                                "input '%s' has rank %zu, at most %d", input->name, input->rank,
                                SLUICE_MAX_RANK);
        if (input->data == NULL && input->bytes > 0)
            return client_error(error, SLUICE_INVALID_ARGUMENT, "input '%s' has no data",
                                input->name);
        if (input->bytes > MESSAGE_MOST - bytes)
            return client_error(error, SLUICE_INVALID_ARGUMENT,
                                "the inputs have more bytes than a gRPC message can (4 GiB)");
        bytes += input->bytes;
    }
    for (size_t i = 0; i < request->outputs; i++)
        if (request->output[i] == NULL)
            return client_error(error, SLUICE_INVALID_ARGUMENT, "output %zu has no name", i);
    return SLUICE_OK;
}

/* Head, and for each input the head of its raw field (behind the message's, in the same memory) and
 * its bytes. */
static struct sluice_call *encode(struct sluice_client *client,
                                  const struct sluice_infer_request *request)
{
    struct wire_writer size = {NULL, 0}, head;
    struct iovec *pieces = calloc(2 * request->inputs + 1, sizeof(*pieces));
    unsigned char *lengths = malloc(LENGTH_ROOM * (request->inputs + 1));
    struct sluice_call *call = NULL;

    put_head(&size, request);
    if (pieces == NULL || lengths == NULL)
        goto out;
    for (size_t i = 0; i < request->inputs; i++) {
        struct wire_writer raw = {lengths + LENGTH_ROOM * i, 0};

        wire_put_length(&raw, REQUEST_RAW, request->input[i].bytes);
        pieces[2 * i] = (struct iovec){raw.to, raw.bytes};
        pieces[2 * i + 1] = (struct iovec){(void *)request->input[i].data, request->input[i].bytes};
    }
    call = call_create(client, size.bytes, pieces, 2 * request->inputs);
    if (call == NULL)
        goto out;
    head = (struct wire_writer){call->head + 5, 0};
    put_head(&head, request);
    call->lengths = lengths;
    lengths = NULL;
out:
    free(lengths);
    free(pieces);
    return call;
}

enum sluice_status sluice_infer_start(struct sluice_client *client,
                                      const struct sluice_infer_request *request,
                                      struct sluice_call **out_call, struct sluice_error *error)
{
    int64_t allowed_us = request->timeout_us > 0 ? request->timeout_us : client->timeout_us;
    int64_t until_us = allowed_us > 0 ? client_now_us() + allowed_us : INT64_MAX;
    struct sluice_call *call;
    enum sluice_status status = check_request(request, error);

    if (status == SLUICE_OK)
        status = transport_connect(client, until_us, error);
    if (status != SLUICE_OK)
        return status;
    call = encode(client, request);
    if (call == NULL)
        return client_error(error, SLUICE_RESOURCE_EXHAUSTED, "no memory for a call");
    status = transport_start(call, "/inference.GRPCInferenceService/ModelInfer", allowed_us, error);
    if (status != SLUICE_OK) {
        call_destroy(call);
        return status;
    }
    *out_call = call;
    return SLUICE_OK;
}

/* Counts what the reply holds, to allocate once. */
static void count_reply(struct wire_reader reader, size_t *out_outputs, size_t *out_text_bytes)
{
    struct wire_field field;
    size_t outputs = 0, text_bytes = 0;

    while (wire_get_field(&reader, &field)) {
        outputs += field.number == RESPONSE_OUTPUTS;
        if (field.type == WIRE_BYTES && field.number != RESPONSE_RAW)
            text_bytes += (size_t)(field.bytes.end - field.bytes.at) + 1;
    }
    *out_outputs = outputs;
    *out_text_bytes = text_bytes;
}

/* A terminated copy in the room that count_reply() measured. */
static const char *copy_text(char **texts, const struct wire_reader *bytes)
{
    size_t length = (size_t)(bytes->end - bytes->at);
    char *copy = *texts;

    if (length > 0)
        memcpy(copy, bytes->at, length);
    copy[length] = '\0';
    *texts += length + 1;
    return copy;
}

static bool read_shape(struct sluice_tensor *tensor, const struct wire_field *field)
{
    struct wire_reader packed = field->bytes;

    if (field->type == WIRE_VARINT) {
        if (tensor->rank == SLUICE_MAX_RANK)
            return false;
        tensor->shape[tensor->rank++] = (int64_t)field->value;
        return true;
    }
    while (packed.at < packed.end && !packed.is_bad) {
        if (tensor->rank == SLUICE_MAX_RANK)
            return false;
        tensor->shape[tensor->rank++] = (int64_t)wire_get_varint(&packed);
    }
    return !packed.is_bad;
}

static bool read_output(struct sluice_tensor *tensor, struct wire_reader reader, char **texts)
{
    struct wire_field field;

    tensor->name = tensor->datatype = "";
    while (wire_get_field(&reader, &field)) {
        if (field.number == TENSOR_NAME && field.type == WIRE_BYTES)
            tensor->name = copy_text(texts, &field.bytes);
        else if (field.number == TENSOR_DATATYPE && field.type == WIRE_BYTES)
            tensor->datatype = copy_text(texts, &field.bytes);
        else if (field.number == TENSOR_SHAPE && !read_shape(tensor, &field))
            return false;
    }
    return !reader.is_bad;
}

static bool read_reply(struct sluice_response *response, struct wire_reader reader)
{
    struct wire_field field;
    char *texts = response->texts;
    size_t outputs = 0, raws = 0;

    response->version = "";
    while (wire_get_field(&reader, &field)) {
        if (field.type != WIRE_BYTES)
            continue;
        if (field.number == RESPONSE_VERSION) {
            response->version = copy_text(&texts, &field.bytes);
        } else if (field.number == RESPONSE_OUTPUTS) {
            if (!read_output(&response->output[outputs++], field.bytes, &texts))
                return false;
        } else if (field.number == RESPONSE_RAW && raws < response->outputs) {
            response->output[raws].data = field.bytes.at;
            response->output[raws++].bytes = (size_t)(field.bytes.end - field.bytes.at);
        }
    }
    return !reader.is_bad;
}

/* Where the first tensor can begin so that all have room below their present places, at addresses
 * that their elements may have.  False: nowhere. */
static bool find_start(const struct sluice_response *response, size_t *out_start)
{
    size_t next = SIZE_MAX; /* where the tensor behind begins */

    for (size_t i = response->outputs; i-- > 0;) {
        const struct sluice_tensor *tensor = &response->output[i];
        size_t at;

        if (tensor->data == NULL)
            continue;
        if (tensor->bytes > next)
            return false;
        at = (size_t)((const uint8_t *)tensor->data - response->bytes);
        at = at < next - tensor->bytes ? at : next - tensor->bytes;
        next = at - at % DATA_ALIGNMENT;
    }
    *out_start = next;
    return true;
}

/* Moves the tensors down to such places, one behind the other:
 *
 *     names, shapes | tag | a a a a | tag | b b b    ->    names, s | a a a a |   | b b b
 *
 * What lies before them is read, and the texts were copied; names and shapes take more than the
 * tensors move.  False: they do not, in this reply. */
static bool align_outputs(struct sluice_response *response)
{
    size_t at;

    if (!find_start(response, &at))
        return false;
    for (size_t i = 0; i < response->outputs; i++) {
        struct sluice_tensor *tensor = &response->output[i];

        if (tensor->data == NULL)
            continue;
        if (tensor->data != response->bytes + at)
            memmove(response->bytes + at, tensor->data, tensor->bytes);
        tensor->data = response->bytes + at;
        at += (tensor->bytes + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;
    }
    return true;
}

enum sluice_status sluice_infer_finish(struct sluice_call *call,
                                       struct sluice_response **out_response,
                                       struct sluice_error *error)
{
    struct wire_reader reader;
    struct sluice_response *response;
    size_t outputs, text_bytes;
    enum sluice_status status = call->is_done ? call->error.status : SLUICE_CANCELLED;

    if (status != SLUICE_OK) {
        (void)client_error(error, status, "%s", call->is_done ? call->error.message : "cancelled");
        call_destroy(call);
        return status;
    }
    reader = (struct wire_reader){call->reply + 5, call->reply + call->reply_bytes, false};
    count_reply(reader, &outputs, &text_bytes);
    response = calloc(1, sizeof(*response) + outputs * sizeof(response->output[0]));
    if (response != NULL)
        response->texts = malloc(text_bytes + 1);
    if (response == NULL || response->texts == NULL) {
        sluice_response_free(response);
        call_destroy(call);
        return client_error(error, SLUICE_RESOURCE_EXHAUSTED, "no memory for a response");
    }
    response->outputs = outputs;
    response->bytes = call->reply;
    call->reply = NULL;
    call_destroy(call);
    if (!read_reply(response, reader) || !align_outputs(response)) {
        sluice_response_free(response);
        return client_error(error, SLUICE_INTERNAL, "the server's reply is no ModelInferResponse");
    }
    *out_response = response;
    return SLUICE_OK;
}

enum sluice_status sluice_infer(struct sluice_client *client,
                                const struct sluice_infer_request *request,
                                struct sluice_response **out_response, struct sluice_error *error)
{
    int64_t allowed_us = request->timeout_us > 0 ? request->timeout_us : client->timeout_us;
    int64_t until_us = allowed_us > 0 ? client_now_us() + allowed_us : INT64_MAX;
    struct sluice_call *call;
    enum sluice_status status = sluice_infer_start(client, request, &call, error);

    if (status != SLUICE_OK)
        return status;
    status = transport_wait(call, until_us, error);
    if (status == SLUICE_DEADLINE_EXCEEDED && !call->is_done) {
        call_destroy(call);
        return status;
    }
    return sluice_infer_finish(call, out_response, error);
}

size_t sluice_response_outputs(const struct sluice_response *response,
                               const struct sluice_tensor **out_outputs)
{
    *out_outputs = response->output;
    return response->outputs;
}

const struct sluice_tensor *sluice_response_output(const struct sluice_response *response,
                                                   const char *name)
{
    for (size_t i = 0; i < response->outputs; i++)
        if (strcmp(response->output[i].name, name) == 0)
            return &response->output[i];
    return NULL;
}

const char *sluice_response_version(const struct sluice_response *response)
{
    return response->version;
}

void sluice_response_free(struct sluice_response *response)
{
    if (response == NULL)
        return;
    free(response->bytes);
    free(response->texts);
    free(response);
}
