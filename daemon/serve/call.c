#include "serve/call.h"

#include <protobuf-c/protobuf-c.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_COMPONENT "serve"
#include "base/clock.h"
#include "models/message.h"
#include "observe/log.h"
#include "serve/codec/json_message.h"
#include "serve/codec/message.h"
#include "serve/endpoint.h"
#include "serve/internal.h"
#include "serve/shared.h"

enum { KEPT_ARENA_BYTES = 64 << 10, SMALL_BODY_BYTES = 2048, BODY_ALIGN = 64 };

/* ---- life ---- */

static struct call *take_from_pool(struct server *server)
{
    struct call *call = server->pool;

    if (call != NULL) {
        server->pool = CONTAINER_OF(call->link.next, struct call, link);
        if (--server->pooled == 0)
            server->pool = NULL;
        return call;
    }
    call = malloc(sizeof(*call));
    if (call != NULL)
        arena_init(&call->request.arena);
    return call;
}

static void reset_request(struct server *server, struct request *request)
{
    struct arena arena = request->arena;

    /* The error's text is large and only read when its status says so. */
    memset(request, 0, offsetof(struct request, error));
    memset((char *)request + offsetof(struct request, response), 0,
           sizeof(*request) - offsetof(struct request, response));
    request->error.status = STATUS_OK;
    request->error.text[0] = '\0';
    request->arena = arena;
    list_init(&request->link);
    atomic_init(&request->cancelled, false);
    request->deadline_us = CLOCK_NEVER;
    request->id = ++server->next_request_id;
}

struct call *call_create(struct server *server, struct connection *connection)
{
    struct call *call = take_from_pool(server);

    if (call == NULL)
        return NULL;
    memset(call, 0, offsetof(struct call, request));
    reset_request(server, &call->request);
    list_init(&call->link);
    list_init(&call->outbox);
    list_init(&call->waiting);
    call->server = server;
    call->connection = connection;
    call->refs = 1;
    call->deadline_us = CLOCK_NEVER;
    call->deadline_slot = SIZE_MAX;
    call->request.owner = call;
    return call;
}

struct call *call_ref(struct call *call)
{
    call->refs++;
    return call;
}

static void give_buffers(struct call *call)
{
    struct lent_buffer *next;

    for (struct lent_buffer *lent = call->lent; lent != NULL; lent = next) {
        next = lent->next;
        host_pool_give(call->server->host_pool, lent->data, lent->size);
    }
    call->lent = NULL;
}

static void drop_spill(struct call *call)
{
    if (call->body.spill == NULL)
        return;
    call->server->spill_bytes -= call->body.received;
    free(call->body.spill);
    call->body.spill = NULL;
}

static void give_to_pool(struct call *call)
{
    struct server *server = call->server;

    if (call->request.arena.total_bytes > KEPT_ARENA_BYTES)
        arena_deinit(&call->request.arena);
    if (server->pooled >= CALL_POOL) {
        arena_deinit(&call->request.arena);
        free(call);
        return;
    }
    call->link.next = server->pool == NULL ? NULL : &server->pool->link;
    server->pool = call;
    server->pooled++;
}

void call_unref(struct call *call)
{
    struct call *stream = call->stream;

    if (--call->refs > 0)
        return;
    list_remove(&call->link);
    list_remove(&call->waiting);
    deadlines_remove(call->server, call);
    drop_spill(call);
    if (call->is_rest)
        message_destroy(call->message);
    give_buffers(call); /* their lists lie in the arena */
    shared_give(call);
    request_release(&call->request);
    model_unref(call->model);
    give_to_pool(call);
    if (stream != NULL)
        call_unref(stream);
}

void call_pool_trim(struct server *server)
{
    while (server->pooled > 0) {
        struct call *call = take_from_pool(server);

        arena_deinit(&call->request.arena);
        free(call);
    }
}

static void cancel(struct call *call)
{
    if (call->submitted) {
        atomic_store(&call->request.cancelled, true);
        call->server->wake_batcher = true;
    }
}

void call_abandon(struct call *call)
{
    struct call *child;

    LIST_FOR_EACH (child, &call->outbox, struct call, link)
        call_abandon(child);
    cancel(call);
    call->connection = NULL;
    list_remove(&call->link);
    list_remove(&call->waiting);
    deadlines_remove(call->server, call);
    server_touch(call->server);
    call_unref(call);
}

/* ---- memory ---- */

void *call_take(struct call *call, size_t size)
{
    return arena_take(&call->request.arena, size);
}

void *call_take_pooled(struct call *call, size_t size)
{
    struct lent_buffer *lent = arena_take(&call->request.arena, sizeof(*lent));

    if (lent == NULL || host_pool_take(call->server->host_pool, size, &lent->data) != STATUS_OK)
        return NULL;
    lent->size = size;
    lent->next = call->lent;
    call->lent = lent;
    return lent->data;
}

/* ---- admission of the body ---- */

static size_t shift_of(const struct body *body)
{
    return (BODY_ALIGN - body->align_at % BODY_ALIGN) % BODY_ALIGN;
}

/* Gets the memory of a body; false when there is none now. */
static bool take_body(struct call *call)
{
    struct body *body = &call->body;
    size_t room = body->size + 2 * BODY_ALIGN;
    uint8_t *base;

    base = room <= SMALL_BODY_BYTES ? call_take(call, room) : call_take_pooled(call, room);
    if (base == NULL)
        return false;
    body->bytes = (uint8_t *)(((uintptr_t)base + BODY_ALIGN - 1) & ~(uintptr_t)(BODY_ALIGN - 1)) +
                  shift_of(body);
    body->room = (size_t)(base + room - body->bytes);
    body->state = BODY_OPEN;
    if (body->spill != NULL) {
        memcpy(body->bytes, body->spill, body->received);
        drop_spill(call);
    }
    return true;
}

static void refuse_body(struct call *call, const char *reason)
{
    struct host_pool_stats stats;

    host_pool_read(call->server->host_pool, &stats);
    call->body.state = BODY_REFUSED;
    call_fail(call, STATUS_NO_MEMORY,
              "request of %zu bytes %s: %llu of %llu bytes of host memory (HostLimit) are in use",
              call->body.size, reason, (unsigned long long)stats.in_use_bytes,
              (unsigned long long)stats.limit_bytes);
}

uint64_t server_request_charge(uint64_t bytes)
{
    return host_pool_charge(bytes + 2 * BODY_ALIGN);
}

static bool can_ever_fit(struct call *call)
{
    struct host_pool_stats stats;

    host_pool_read(call->server->host_pool, &stats);
    return server_request_charge(call->body.size) <= stats.limit_bytes;
}

/* Waiting for host memory ends a tenth before the client's deadline: an answer in time says why,
 * one at the deadline would not be read.  A deadline of our own may be used up. */
static enum status shorten_deadline(struct call *call)
{
    const struct call *owner = call->stream != NULL ? call->stream : call;
    bool is_clients = owner->deadline_slot != SIZE_MAX;
    int64_t now_us = call->server->turn_us, left_us = call->deadline_us - now_us;

    if (is_clients && left_us > 0) {
        deadlines_remove(call->server, call);
        call->own_deadline_us = call->deadline_us;
        call->deadline_us = now_us + left_us / 10 * 9;
    }
    return deadlines_add(call->server, call);
}

static enum status restore_deadline(struct call *call)
{
    if (call->own_deadline_us == 0)
        return STATUS_OK;
    deadlines_remove(call->server, call);
    call->deadline_us = call->own_deadline_us;
    call->own_deadline_us = 0;
    return deadlines_add(call->server, call);
}

void call_admit(struct call *call, size_t size)
{
    struct server *server = call->server;
    size_t limit = server->limits.max_message_bytes;

    call->body.size = size;
    if (size > limit) {
        call->body.state = BODY_REFUSED;
        call->reply.http_code = 413;
        call_fail(call, STATUS_NO_MEMORY,
                  "request of %zu bytes is larger than the limit of %zu (MaxMessageBytes)", size,
                  limit);
        return;
    }
    if (list_is_empty(&server->waiting) || size + 2 * BODY_ALIGN <= SMALL_BODY_BYTES)
        if (take_body(call))
            return;
    if (!can_ever_fit(call)) {
        refuse_body(call, "can never be held");
        return;
    }
    call->body.state = BODY_WAITING;
    list_append(&server->waiting, &call->waiting);
    if (shorten_deadline(call) != STATUS_OK)
        refuse_body(call, "cannot wait");
}

bool call_grow(struct call *call, size_t more)
{
    struct body *body = &call->body;
    size_t needed = body->received + more;
    size_t room = body->room * 2 > needed ? body->room * 2 : needed;
    struct body old = *body;

    if (needed > call->server->limits.max_message_bytes) {
        call_admit(call, needed); /* says why */
        return false;
    }
    if (needed <= body->room)
        return true;
    body->size = room;
    if (!take_body(call)) {
        *body = old;
        body->size = needed;
        refuse_body(call, "does not fit");
        return false;
    }
    body->size = old.size;
    if (old.received > 0)
        memcpy(body->bytes, old.bytes, old.received);
    return true;
}

void server_retry_waiting(struct server *server)
{
    struct call *call;

    while ((call = LIST_FIRST(&server->waiting, struct call, waiting)) != NULL) {
        bool is_held = take_body(call);

        if (!is_held && can_ever_fit(call))
            return; /* in order: a small one may not overtake a large one for ever */
        list_remove(&call->waiting);
        if (!is_held) /* HostLimit was lowered meanwhile */
            refuse_body(call, "can never be held");
        else if (restore_deadline(call) != STATUS_OK)
            refuse_body(call, "cannot wait");
        else if (call->connection != NULL)
            call->connection->protocol->admitted(call);
    }
}

/* ---- running and answering ---- */

void call_run(struct call *call)
{
    const struct endpoint *endpoint = call->endpoint;
    struct error err = {0};

    call->request.arrived_us = clock_now_us();
    call->server->busy++;
    call_ref(call);
    if (call->deadline_us <= call->request.arrived_us) {
        call_expire(call);
    } else if (endpoint->request != NULL && message_read_request(call, &err) != STATUS_OK) {
        call_fail_with(call, &err);
    } else {
        endpoint->run(call);
    }
    call_unref(call);
}

/* The reply stands: to whom it belongs. */
static void deliver(struct call *call)
{
    struct call *owner = call->stream != NULL ? call->stream : call;

    call->answered = true;
    if (call->body.state == BODY_WAITING)
        call->body.state = BODY_REFUSED;
    list_remove(&call->waiting);
    drop_spill(call);
    deadlines_remove(call->server, call);
    if (call->request.arrived_us != 0)
        call->server->busy--;
    if (owner->connection != NULL && call->connection != NULL)
        owner->connection->protocol->answer(call);
}

void call_fail(struct call *call, enum status status, const char *format, ...)
{
    va_list args;
    char text[ERROR_TEXT_BYTES];

    if (call->answered)
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    call->reply.status = status;
    call->reply.text = arena_copy_string(&call->request.arena, text, strlen(text));
    if (call->reply.text == NULL)
        call->reply.text = "out of memory";
    log_debug("request %llu: %s: %s", (unsigned long long)call->request.id, status_name(status),
              call->reply.text);
    deliver(call);
}

void call_fail_with(struct call *call, const struct error *err)
{
    call_fail(call, err->status, "%s", err->text);
}

void call_reply_pieces(struct call *call, struct piece *pieces, size_t count)
{
    if (call->answered)
        return;
    call->reply.status = STATUS_OK;
    call->reply.pieces = pieces;
    call->reply.count = count;
    call->reply.size = 0;
    for (size_t i = 0; i < count; i++)
        call->reply.size += pieces[i].size;
    deliver(call);
}

void call_reply_text(struct call *call, const char *content_type, const char *text, size_t size)
{
    struct piece *piece = call_take(call, sizeof(*piece));

    if (piece == NULL) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory for the answer");
        return;
    }
    *piece = (struct piece){text, size};
    call->reply.content_type = content_type;
    call_reply_pieces(call, piece, 1);
}

void call_reply_message(struct call *call, const ProtobufCMessage *message)
{
    struct piece *piece = call_take(call, sizeof(*piece));
    void *bytes = NULL;
    size_t size = 0;
    enum status status = STATUS_NO_MEMORY;

    if (call->answered)
        return;
    if (piece != NULL)
        status = call->is_rest ? json_write_answer(call, message, &bytes, &size)
                               : message_pack(call, message, &bytes, &size);
    if (status != STATUS_OK) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory for the answer");
        return;
    }
    *piece = (struct piece){bytes, size};
    call_reply_pieces(call, piece, 1);
}

void call_discard(struct call *call)
{
    if (call->answered)
        return;
    call->answered = true;
    call->server->busy--;
    list_remove(&call->link);
    call_unref(call);
}

void call_push_message(struct call *stream, const ProtobufCMessage *message)
{
    struct call *call;

    if (stream->connection == NULL)
        return;
    call = call_create(stream->server, stream->connection);
    if (call == NULL)
        return;
    call->endpoint = stream->endpoint;
    call->stream = call_ref(stream);
    call->stream_id = stream->stream_id;
    list_append(&stream->outbox, &call->link);
    call_reply_message(call, message);
}

void call_end_stream(struct call *stream, enum status status, const char *text)
{
    if (stream->answered)
        return;
    stream->reply.status = status;
    stream->reply.text = text;
    deliver(stream);
}

void call_expire(struct call *call)
{
    bool queued_body = call->body.state == BODY_WAITING;

    cancel(call);
    if (queued_body)
        refuse_body(call, "did not fit within its deadline");
    else
        call_fail(call, STATUS_DEADLINE, "Deadline Exceeded");
}
