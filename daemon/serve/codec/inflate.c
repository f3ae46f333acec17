#include "serve/codec/inflate.h"

#include <string.h>
#include <zlib.h>

#include "serve/internal.h"

/* zlib's window bits: 15 is zlib's own wrapping (HTTP's "deflate"), + 16 gzip's, negative none. */
enum { ZLIB_BITS = 15, GZIP_BITS = 15 + 16, RAW_BITS = -15, LEAST_DEFLATED = 256 };
enum { FIRST_GUESS = 4, CHUNK_MAX = 1 << 30 };

/* Many clients send raw deflate where HTTP means zlib: its first two bytes tell. */
static int window_bits(const struct call *call)
{
    const uint8_t *b = call->body.bytes;

    if (call->coding == CODING_GZIP)
        return GZIP_BITS;
    if (call->body.received >= 2 && (b[0] & 0x0F) == 8 && (b[0] * 256 + b[1]) % 31 == 0)
        return ZLIB_BITS;
    return RAW_BITS;
}

/* gzip may come as several members behind one another, which are one body. */
static int run_members(const struct call *call, z_stream *stream)
{
    int result = inflate(stream, Z_NO_FLUSH);

    while (result == Z_STREAM_END && stream->avail_in > 0 && call->coding == CODING_GZIP) {
        result = inflateReset(stream);
        if (result != Z_OK || stream->avail_out == 0)
            break; /* the next one begins with more room */
        result = inflate(stream, Z_NO_FLUSH);
    }
    return result;
}

/* Runs the stream to its end into a buffer that doubles; the buffers belong to the call. */
static enum status run_inflate(struct call *call, z_stream *stream, uint8_t **out_bytes,
                               size_t *out_size, struct error *err)
{
    size_t limit = call->server->limits.max_message_bytes;
    size_t room = call->body.received * FIRST_GUESS + 1024, done = 0;
    uint8_t *bytes = NULL;
    int result = Z_OK;

    while (result == Z_OK) {
        uint8_t *grown;

        room = room > limit + 1 ? limit + 1 : room;
        grown = call_take_pooled(call, room);
        if (grown == NULL)
            return error_set(err, STATUS_NO_MEMORY, "no host memory to inflate the request");
        if (done > 0)
            memcpy(grown, bytes, done);
        bytes = grown;
        stream->next_out = bytes + done;
        stream->avail_out = (uInt)(room - done < CHUNK_MAX ? room - done : CHUNK_MAX);
        result = run_members(call, stream);
        done = (size_t)(stream->next_out - bytes);
        if (done > limit)
            return error_set(err, STATUS_NO_MEMORY,
                             "the inflated request is larger than the limit of %zu "
                             "(MaxMessageBytes)",
                             limit);
        if (result == Z_OK && stream->avail_in == 0 && stream->avail_out > 0)
            break; /* cut off */
        room *= 2;
    }
    if (result != Z_STREAM_END || stream->avail_in > 0)
        return error_set(err, STATUS_INVALID, "the compressed request is damaged or cut off");
    *out_bytes = bytes;
    *out_size = done;
    return STATUS_OK;
}

enum status inflate_body(struct call *call, struct error *err)
{
    bool is_coded = call->is_rest ? call->coding != CODING_IDENTITY : call->compressed;
    z_stream stream = {0};
    uint8_t *bytes = NULL;
    size_t size = 0;
    enum status status;

    if (!is_coded)
        return STATUS_OK;
    if (call->coding == CODING_UNKNOWN)
        return error_set(err, STATUS_UNSUPPORTED, "unsupported content encoding");
    if (call->coding == CODING_IDENTITY)
        return error_set(err, STATUS_INTERNAL, "compressed message without grpc-encoding");
    if (call->body.received > CHUNK_MAX || inflateInit2(&stream, window_bits(call)) != Z_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to inflate the request");
    stream.next_in = call->body.bytes;
    stream.avail_in = (uInt)call->body.received;
    status = run_inflate(call, &stream, &bytes, &size, err);
    (void)inflateEnd(&stream);
    TRY(status);
    call->body.bytes = bytes;
    call->body.size = call->body.received = size;
    call->compressed = false;
    call->coding = CODING_IDENTITY;
    return STATUS_OK;
}

/* One pass over the pieces; false: no room, which also means it got no smaller. */
static bool run_deflate(const struct reply *reply, z_stream *stream)
{
    for (size_t i = 0; i < reply->count; i++) {
        bool is_last = i + 1 == reply->count;
        int result;

        stream->next_in = (Bytef *)(uintptr_t)reply->pieces[i].data;
        stream->avail_in = (uInt)reply->pieces[i].size;
        result = deflate(stream, is_last ? Z_FINISH : Z_NO_FLUSH);
        if (is_last ? result != Z_STREAM_END : stream->avail_in > 0)
            return false;
    }
    return true;
}

void deflate_reply(struct call *call)
{
    struct reply *reply = &call->reply;
    bool gzip = call->accepts_gzip;
    struct piece *piece;
    z_stream stream = {0};
    uint8_t *bytes;

    if ((!gzip && !call->accepts_deflate) || reply->size < LEAST_DEFLATED ||
        reply->size > CHUNK_MAX || reply->status != STATUS_OK)
        return;
    piece = call_take(call, sizeof(*piece));
    bytes = call_take_pooled(call, reply->size);
    if (piece == NULL || bytes == NULL ||
        deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, gzip ? GZIP_BITS : ZLIB_BITS, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        return;
    stream.next_out = bytes;
    stream.avail_out = (uInt)reply->size;
    if (run_deflate(reply, &stream)) {
        *piece = (struct piece){bytes, reply->size - stream.avail_out};
        reply->coding = gzip ? CODING_GZIP : CODING_DEFLATE;
        reply->pieces = piece;
        reply->count = 1;
        reply->size = piece->size;
    }
    (void)deflateEnd(&stream);
}
