/* ModelInfer and ModelStreamInfer, gRPC and REST:
 *
 *   body ─decode─> infer_message ─bind─> request of the model ─batcher─> outputs ─encode─> answer
 *
 * Binding puts inputs and outputs into the model's order; a tensor is copied only when its address
 * does not suit its type.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "serve/codec/bytes.h"
#include "serve/codec/classification.h"
#include "serve/codec/infer_request.h"
#include "serve/codec/infer_response.h"
#include "serve/codec/inflate.h"
#include "serve/codec/json_infer.h"
#include "serve/endpoint.h"
#include "serve/internal.h"
#include "serve/shared.h"

enum { ARENA_MOST = 4096, NAMES_MAX = 400 };

/* Failures of a request that has an id begin with it, as clients know it. */
static void fail(struct call *call, const struct error *err)
{
    if (call->infer != NULL && call->infer->id.size > 0)
        call_fail(call, err->status, "[request id: %.*s] %s",
                  (int)(call->infer->id.size < 100 ? call->infer->id.size : 100),
                  call->infer->id.data, err->text);
    else
        call_fail_with(call, err);
}

/* ---- binding ---- */

static size_t find_port(const struct model_port *ports, size_t count, struct slice name)
{
    for (size_t i = 0; i < count; i++)
        if (slice_is(name, ports[i].name))
            return i;
    return SIZE_MAX;
}

static const char *list_names(const struct model_port *ports, size_t count, char *text)
{
    size_t size = 0;

    text[0] = '\0';
    for (size_t i = 0; i < count && size < NAMES_MAX - 64; i++) {
        int put =
            snprintf(text + size, NAMES_MAX - size, "%s%.60s", i > 0 ? ", " : "", ports[i].name);

        size += put > 0 ? (size_t)put : 0;
    }
    return text;
}

/* Raw numbers at an address that suits their type. */
static enum status align(struct call *call, struct infer_input *input, struct error *err)
{
    size_t unit = dtype_bytes(input->dtype);
    void *copy;

    if (input->data == NULL)
        input->data = (const uint8_t *)"\0\0\0\0\0\0\0\0"; /* no elements, but given */
    if (input->is_ready || (uintptr_t)input->data % unit == 0)
        return STATUS_OK;
    copy = input->bytes <= ARENA_MOST ? call_take(call, input->bytes)
                                      : call_take_pooled(call, input->bytes);
    if (copy == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no host memory for input '%.*s'",
                         (int)input->name.size, input->name.data);
    memcpy(copy, input->data, input->bytes);
    input->data = copy;
    return STATUS_OK;
}

static enum request_memory memory_of(const struct region_span *span)
{
    if (span->region == NULL)
        return MEMORY_OWN;
    return region_kind_of(span->region) == REGION_CUDA ? MEMORY_DEVICE : MEMORY_SHARED;
}

/* The input's bytes are those of a region.  Texts and truth values are looked at before they are
 * used: of them a copy is taken that nobody can change in between. */
static enum status share_input(struct call *call, struct infer_input *input, struct error *err)
{
    bool is_checked = input->dtype == DTYPE_STRING || input->dtype == DTYPE_BOOL;
    void *copy;

    if (input->has_data || input->is_binary)
        return error_set(err, STATUS_INVALID,
                         "input '%.*s' has data although it lies in shared memory",
                         (int)input->name.size, input->name.data);
    TRY(shared_take(call, &input->shared, false, &input->span, err));
    input->data = input->span.data;
    input->bytes = (size_t)input->span.bytes;
    input->has_data = true;
    if (!is_checked)
        return STATUS_OK;
    if (memory_of(&input->span) == MEMORY_DEVICE)
        return error_set(err, STATUS_UNSUPPORTED,
                         "input '%.*s' is %s, which cannot lie in CUDA shared memory",
                         (int)input->name.size, input->name.data, dtype_oip_name(input->dtype));
    copy = call_take_pooled(call, input->bytes);
    if (copy == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no host memory for input '%.*s'",
                         (int)input->name.size, input->name.data);
    memcpy(copy, input->data, input->bytes);
    input->data = copy;
    input->span.region = NULL; /* from here on as if it had come with the request */
    return STATUS_OK;
}

static enum status bind_input(struct call *call, struct infer_input *input,
                              const struct model_port *ports, size_t count, struct error *err)
{
    const char *model = model_name(call->model);
    size_t index = find_port(ports, count, input->name);
    char names[NAMES_MAX];

    if (index == SIZE_MAX)
        return error_set(err, STATUS_INVALID,
                         "unexpected inference input '%.*s' for model '%s', allowed inputs are: "
                         "%s",
                         (int)(input->name.size < 100 ? input->name.size : 100), input->name.data,
                         model, list_names(ports, count, names));
    if (call->request.in[index].data != NULL)
        return error_set(err, STATUS_INVALID, "input '%s' already exists in request",
                         ports[index].name);
    if (input->dtype != ports[index].dtype)
        return error_set(err, STATUS_INVALID,
                         "inference input '%s' data-type is '%s', but model '%s' expects '%s'",
                         ports[index].name, dtype_oip_name(input->dtype), model,
                         dtype_oip_name(ports[index].dtype));
    if (input->shared.is_given)
        TRY(share_input(call, input, err));
    if (!input->has_data)
        return error_set(err, STATUS_INVALID,
                         "unable to find data for input '%s' for model '%s' in request",
                         ports[index].name, model);
    for (size_t i = 0; i < input->shape.rank; i++)
        if (input->shape.dims[i] < 0)
            return error_set(err, STATUS_INVALID, "input '%s' has the negative dimension %" PRId64,
                             ports[index].name, input->shape.dims[i]);
    if (input->dtype == DTYPE_STRING && !input->is_ready)
        TRY(bytes_decode(call, input, model, err));
    if (input->span.region == NULL)
        TRY(align(call, input, err));
    call->request.in[index] = (struct request_input){.shape = input->shape,
                                                     .data = input->data,
                                                     .bytes = input->bytes,
                                                     .memory = memory_of(&input->span)};
    return STATUS_OK;
}

/* A raw request says neither name, type nor shape: those of the model's only input, a batch of one,
 * the one open dimension as long as the bytes go. */
static enum status shape_raw(struct infer_input *input, const struct model_port *port,
                             bool has_batch, struct error *err)
{
    size_t unit = dtype_bytes(port->dtype), known = 1, open = SIZE_MAX;

    input->name = (struct slice){port->name, strlen(port->name)};
    input->dtype = port->dtype;
    input->shape = port->shape;
    for (size_t i = 0; i < port->shape.rank; i++) {
        if (has_batch && i == 0)
            input->shape.dims[i] = 1;
        else if (port->shape.dims[i] == SHAPE_UNKNOWN && open == SIZE_MAX)
            open = i;
        else if (port->shape.dims[i] == SHAPE_UNKNOWN)
            return error_set(err, STATUS_INVALID,
                             "a raw request needs an input of at most one open dimension");
        else
            known *= (size_t)port->shape.dims[i];
    }
    if (port->dtype == DTYPE_STRING)
        return error_set(err, STATUS_UNSUPPORTED, "a raw request needs an input of numbers");
    if (open != SIZE_MAX && known > 0)
        input->shape.dims[open] = (int64_t)(input->bytes / unit / known);
    return STATUS_OK;
}

static enum status bind_inputs(struct call *call, struct error *err)
{
    struct infer_message *message = call->infer;
    struct request *request = &call->request;
    const struct model_port *ports;
    size_t needed = 0;

    request->inputs = model_inputs(call->model, &ports);
    request->in = arena_take_array(&request->arena, request->inputs, sizeof(*request->in));
    if (request->in == NULL)
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    if (message->is_raw && request->inputs != 1)
        return error_set(err, STATUS_INVALID, "a raw request needs a model of one input");
    if (message->is_raw)
        TRY(shape_raw(message->in, ports, model_max_batch_size(call->model) > 0, err));
    for (size_t i = 0; i < message->inputs; i++)
        TRY(bind_input(call, &message->in[i], ports, request->inputs, err));
    for (size_t i = 0; i < request->inputs; i++)
        needed += !ports[i].optional;
    if (message->inputs < needed)
        return error_set(err, STATUS_INVALID,
                         "expected %zu inputs but got %zu inputs for model "
                         "'%s'",
                         needed, message->inputs, model_name(call->model));
    return STATUS_OK;
}

/* The output's bytes go to a region. */
static enum status share_output(struct call *call, struct infer_output *output,
                                const struct model_port *port, struct request_room *out_room,
                                struct error *err)
{
    if (output->classes > 0)
        return error_set(err, STATUS_INVALID, "output '%s' cannot be classified into shared memory",
                         port->name);
    TRY(shared_take(call, &output->shared, true, &output->span, err));
    if (port->dtype == DTYPE_STRING && memory_of(&output->span) == MEMORY_DEVICE)
        return error_set(err, STATUS_UNSUPPORTED,
                         "output '%s' is BYTES, which cannot lie in CUDA shared memory",
                         port->name);
    if (port->dtype != DTYPE_STRING) /* those take another form first */
        *out_room = (struct request_room){.data = output->span.data,
                                          .bytes = (size_t)output->span.bytes,
                                          .memory = memory_of(&output->span)};
    return STATUS_OK;
}

/* Whether the output's place has bytes in common with an input's or another output's. */
static bool is_apart(const struct infer_message *message, size_t outputs, size_t output)
{
    const struct region_span *span = &message->by_port[output].span;

    for (size_t i = 0; i < message->inputs; i++)
        if (message->in[i].span.region != NULL && region_spans_meet(&message->in[i].span, span))
            return false;
    for (size_t i = 0; i < outputs; i++)
        if (i != output && message->by_port[i].span.region != NULL &&
            region_spans_meet(&message->by_port[i].span, span))
            return false;
    return true;
}

static enum status bind_outputs(struct call *call, struct error *err)
{
    struct infer_message *message = call->infer;
    struct request *request = &call->request;
    const struct model_port *ports;
    char names[NAMES_MAX];

    request->outputs = model_outputs(call->model, &ports);
    request->out = arena_take_array(&request->arena, request->outputs, sizeof(*request->out));
    message->by_port =
        arena_take_array(&request->arena, request->outputs, sizeof(*message->by_port));
    if (request->out == NULL || message->by_port == NULL)
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < request->outputs; i++) {
        request->out[i].wanted = message->outputs == 0;
        message->by_port[i].is_binary = message->binary_data_output;
    }
    for (size_t i = 0; i < message->outputs; i++) {
        struct infer_output *output = &message->out[i];
        size_t index = find_port(ports, request->outputs, output->name);

        if (index == SIZE_MAX)
            return error_set(err, STATUS_INVALID,
                             "unexpected inference output '%.*s' for model '%s', allowed outputs "
                             "are: %s",
                             (int)(output->name.size < 100 ? output->name.size : 100),
                             output->name.data, model_name(call->model),
                             list_names(ports, request->outputs, names));
        if (request->out[index].wanted)
            return error_set(err, STATUS_INVALID, "output '%s' is asked for twice",
                             ports[index].name);
        request->out[index].wanted = true;
        if (output->shared.is_given)
            TRY(share_output(call, output, &ports[index], &request->out[index].room, err));
        message->by_port[index] = *output;
        if (!output->has_binary)
            message->by_port[index].is_binary = message->binary_data_output;
    }
    for (size_t i = 0; i < request->outputs; i++)
        if (request->out[i].room.data != NULL)
            request->out[i].room.apart = is_apart(message, request->outputs, i);
    return STATUS_OK;
}

static int64_t keep_alive_of(const struct call *call)
{
    return call->infer->has_keep_alive ? call->infer->keep_alive_us : KEEP_ALIVE_DEFAULT;
}

static enum status bind_request(struct call *call, struct error *err)
{
    struct request *request = &call->request;

    TRY(repository_find(call->server->repository, call->infer->model_name,
                        call->infer->model_version, &call->model, err));
    TRY(bind_inputs(call, err));
    TRY(bind_outputs(call, err));
    TRY(model_check_request(call->model, request, err));
    request->priority = call->infer->priority;
    request->queue_timeout_us = call->infer->timeout_us;
    request->deadline_us = call->deadline_us;
    request->any_version = call->infer->model_version[0] == '\0';
    model_keep_alive(call->model, keep_alive_of(call));
    request->keeps_inputs = true; /* they lie in the body, which goes with the call */
    return STATUS_OK;
}

static void run_infer(struct call *call)
{
    struct error err = {0};
    enum status status = inflate_body(call, &err);

    if (status == STATUS_OK)
        status = call->is_rest ? json_infer_decode(call, &err) : infer_request_decode(call, &err);
    if (status == STATUS_OK)
        status = bind_request(call, &err);
    if (status != STATUS_OK) {
        fail(call, &err);
        return;
    }
    server_submit(call, model_queue(call->model));
    if (call->submitted && deadlines_add(call->server, call) != STATUS_OK)
        atomic_store(&call->request.cancelled, true);
}

void run_model_infer(struct call *call)
{
    run_infer(call);
}

void run_model_stream_infer(struct call *call)
{
    run_infer(call);
}

/* ---- the answer ---- */

/* Sees to it that the tensor's bytes are where the client wants them. */
static enum status put_into_region(const struct request_output *out, struct infer_output *wish,
                                   struct response_tensor *tensor, struct error *err)
{
    size_t bytes = tensor->raw.size;

    if (bytes > wish->span.bytes)
        return error_set(err, STATUS_INVALID,
                         "shared memory size specified with the request for output '%s' (%llu "
                         "bytes) should be at least %zu bytes to hold the results",
                         tensor->name, (unsigned long long)wish->span.bytes, bytes);
    if (bytes > 0 && out->data != wish->span.data)
        memcpy(wish->span.data, tensor->raw.data, bytes);
    wish->shared.bytes = bytes; /* told in the answer */
    tensor->shared = &wish->shared;
    tensor->raw = (struct piece){NULL, 0};
    tensor->is_binary = false;
    return STATUS_OK;
}

static enum status make_tensor(struct call *call, const struct model_port *port, size_t index,
                               struct response_tensor *tensor, struct error *err)
{
    const struct request_output *out = &call->request.out[index];
    struct infer_output *wish = &call->infer->by_port[index];

    *tensor = (struct response_tensor){
        .name = port->name,
        .dtype = port->dtype,
        .shape = out->shape,
        .raw = {out->data, out->bytes},
        .is_binary = wish->is_binary,
    };
    if (port->dtype == DTYPE_STRING)
        tensor->elements = out->data;
    if (wish->classes > 0)
        TRY(classify(call, port, model_max_batch_size(call->model) > 0, (size_t)wish->classes,
                     tensor, err));
    if (tensor->dtype == DTYPE_STRING)
        if (bytes_encode(call, tensor->elements, (size_t)shape_count(&tensor->shape),
                         &tensor->raw) != STATUS_OK)
            return error_set(err, STATUS_NO_MEMORY, "no host memory for output '%s'", port->name);
    return wish->span.region != NULL ? put_into_region(out, wish, tensor, err) : STATUS_OK;
}

static enum status encode(struct call *call, struct error *err)
{
    struct request *request = &call->request;
    const struct model_port *ports;
    struct response_tensor *tensors;
    struct piece *pieces;
    size_t count = 0, piece_count = 0;
    enum status status;

    (void)model_outputs(call->model, &ports);
    tensors = arena_take_array(&request->arena, request->outputs, sizeof(*tensors));
    if (tensors == NULL)
        return error_set(err, STATUS_NO_MEMORY, "out of memory for the answer");
    for (size_t i = 0; i < request->outputs; i++)
        if (request->out[i].wanted)
            TRY(make_tensor(call, &ports[i], i, &tensors[count++], err));
    TRY(shared_check(call, err)); /* texts were written just now */
    if (call->is_rest)
        return json_infer_encode(call, tensors, count, err);
    status = infer_response_encode(call, tensors, count, &pieces, &piece_count);
    if (status != STATUS_OK)
        return error_set(err, status, "out of memory for the answer");
    call_reply_pieces(call, pieces, piece_count);
    return STATUS_OK;
}

void infer_finish(struct call *call)
{
    struct error err = {0};

    call->model = model_that_answered(call->model, &call->request, keep_alive_of(call));
    if (call->answered)
        return;
    if (shared_check(call, &err) != STATUS_OK) {
        fail(call, &err); /* whatever came of it */
    } else if (call->request.status != STATUS_OK) {
        call->request.error.status = call->request.status;
        if (call->request.error.text[0] == '\0')
            (void)error_set(&call->request.error, call->request.status, "%s",
                            status_words(call->request.status));
        fail(call, &call->request.error);
    } else if (call_is_gone(call)) {
        call_fail(call, STATUS_CANCELLED, "the client is gone");
    } else if (encode(call, &err) != STATUS_OK) {
        fail(call, &err);
    }
}

bool infer_fail_in_band(struct call *message)
{
    struct piece *pieces;

    if (message->endpoint != &endpoint_model_stream_infer || message->plain_errors ||
        message->body.state == BODY_REFUSED)
        return false;
    if (infer_response_encode_error(message, message->reply.text, &pieces) != STATUS_OK)
        return false;
    message->reply.status = STATUS_OK;
    message->reply.pieces = pieces;
    message->reply.count = 1;
    message->reply.size = pieces->size;
    return true;
}
