#include "serve/codec/message.h"

#include "serve/call.h"
#include "serve/codec/inflate.h"
#include "serve/codec/json_message.h"
#include "serve/codec/wire.h"
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

/* The field that is text with a NUL in it, or NULL: whoever reads it would see only its head. */
static const ProtobufCFieldDescriptor *find_cut_text(const ProtobufCMessageDescriptor *descriptor,
                                                     const void *bytes, size_t size)
{
    struct wire wire = wire_over(bytes, size);
    const ProtobufCFieldDescriptor *found = NULL;
    struct wire_field part;

    while (found == NULL && wire_next(&wire, &part)) {
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(descriptor, part.number);

        if (field == NULL || part.type != WIRE_BYTES)
            continue;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            found = find_cut_text(field->descriptor, part.bytes, part.size);
        else if (field->type == PROTOBUF_C_TYPE_STRING && memchr(part.bytes, 0, part.size) != NULL)
            found = field;
    }
    return found;
}

static enum status unpack(struct call *call, struct error *err)
{
    const ProtobufCMessageDescriptor *descriptor = call->endpoint->request;
    struct capped capped = {
        .allocator = {capped_alloc, capped_free, &capped},
        .arena = &call->request.arena,
        .left = call->body.received * UNPACK_FACTOR + UNPACK_LEAST,
    };
    const ProtobufCFieldDescriptor *cut;

    call->message = protobuf_c_message_unpack(descriptor, &capped.allocator, call->body.received,
                                              call->body.bytes);
    if (call->message == NULL)
        return error_set(err, STATUS_INTERNAL, "the request is no %s", descriptor->name);
    cut = find_cut_text(descriptor, call->body.bytes, call->body.received);
    if (cut != NULL)
        return error_set(err, STATUS_INVALID, "'%s' holds a NUL character, which no text may",
                         cut->name);
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
