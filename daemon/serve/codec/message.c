#include "serve/codec/message.h"

#include "serve/call.h"
#include "serve/codec/inflate.h"
#include "serve/codec/json_message.h"
#include "serve/endpoint.h"

/* Hostile bytes grow up to 56-fold when unpacked; real requests stay far below this. */
enum { UNPACK_FACTOR = 4, UNPACK_LEAST = 256 << 10 };

struct capped { /* an allocator over the arena that ends at a cap */
    ProtobufCAllocator allocator;
    struct arena *arena;
    size_t left;
};

static void *capped_alloc(void *data, size_t size)
{
    struct capped *capped = data;

    if (size > capped->left)
        return NULL;
    capped->left -= size;
    return arena_take(capped->arena, size);
}

static void capped_free(void *data, void *pointer)
{
    (void)data;
    (void)pointer; /* with the arena */
}

static enum status unpack(struct call *call, struct error *err)
{
    const ProtobufCMessageDescriptor *descriptor = call->endpoint->request;
    struct capped capped = {
        .allocator = {capped_alloc, capped_free, &capped},
        .arena = &call->request.arena,
        .left = call->body.received * UNPACK_FACTOR + UNPACK_LEAST,
    };

    call->message = protobuf_c_message_unpack(descriptor, &capped.allocator, call->body.received,
                                              call->body.bytes);
    if (call->message == NULL)
        return error_set(err, STATUS_INTERNAL, "the request is no %s", descriptor->name);
    return STATUS_OK;
}

enum status message_read_request(struct call *call, struct error *err)
{
    TRY(inflate_body(call, err));
    return call->is_rest ? json_read_request(call, err) : unpack(call, err);
}

enum status message_pack(struct call *call, const ProtobufCMessage *message, void **out_bytes,
                         size_t *out_size)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    void *bytes = call_take(call, size);

    if (bytes == NULL)
        return STATUS_NO_MEMORY;
    *out_size = protobuf_c_message_pack(message, bytes);
    *out_bytes = bytes;
    return STATUS_OK;
}
