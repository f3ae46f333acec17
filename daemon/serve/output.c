#include "serve/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "serve/call.h"

enum { SENDMSG_PIECES = 64, FIRST_COPY_BYTES = 1024, KEPT_COPY_BYTES = 64 << 10 };

static struct output_segment *segment_at(struct output *output, unsigned index)
{
    return &output->segments[index % OUTPUT_SEGMENTS];
}

static bool grow_copied(struct output *output, size_t size)
{
    size_t capacity = output->copied_capacity ? output->copied_capacity : FIRST_COPY_BYTES;
    uint8_t *grown;

    while (capacity < output->copied_size + size)
        capacity *= 2;
    grown = realloc(output->copied, capacity);
    if (grown == NULL) {
        output->failed = true;
        return false;
    }
    output->copied = grown;
    output->copied_capacity = capacity;
    return true;
}

static bool has_segment(struct output *output)
{
    if (output->last - output->first < OUTPUT_SEGMENTS)
        return true;
    output->failed = true;
    return false;
}

void output_copy(struct output *output, const void *bytes, size_t size)
{
    struct output_segment *tail = NULL;

    if (size == 0 || output->failed)
        return;
    if (output->copied_size + size > output->copied_capacity && !grow_copied(output, size))
        return;
    if (!output_is_empty(output))
        tail = segment_at(output, output->last - 1);
    if (tail == NULL || tail->bytes != NULL) {
        if (!has_segment(output))
            return;
        tail = segment_at(output, output->last++);
        *tail = (struct output_segment){0};
    }
    memcpy(output->copied + output->copied_size, bytes, size);
    output->copied_size += size;
    output->queued_bytes += size;
    tail->size += size;
}

void output_refer(struct output *output, const void *bytes, size_t size, struct call *owner)
{
    if (size <= OUTPUT_COPY_LIMIT) {
        output_copy(output, bytes, size);
        return;
    }
    if (output->failed || !has_segment(output))
        return;
    *segment_at(output, output->last++) = (struct output_segment){bytes, size, call_ref(owner)};
    output->queued_bytes += size;
}

bool output_has_room(const struct output *output)
{
    return output->last - output->first < OUTPUT_SEGMENTS - 8 &&
           output->queued_bytes < OUTPUT_QUEUE_LIMIT;
}

static size_t fill_pieces(struct output *output, struct iovec *pieces)
{
    size_t copied = output->copied_sent, count = 0;

    for (unsigned i = output->first; i != output->last && count < SENDMSG_PIECES; i++) {
        struct output_segment *segment = segment_at(output, i);
        size_t sent = i == output->first ? output->first_sent : 0;
        const uint8_t *bytes = segment->bytes ? segment->bytes : output->copied + copied;

        pieces[count++] = (struct iovec){(void *)(uintptr_t)(bytes + sent), segment->size - sent};
        if (segment->bytes == NULL)
            copied += segment->size;
    }
    return count;
}

static void drop_first(struct output *output)
{
    struct output_segment *segment = segment_at(output, output->first++);

    if (segment->bytes != NULL)
        call_unref(segment->owner);
    else
        output->copied_sent += segment->size;
}

static void count_sent(struct output *output, size_t sent)
{
    output->queued_bytes -= sent;
    output->first_sent += sent;
    while (!output_is_empty(output) &&
           output->first_sent >= segment_at(output, output->first)->size) {
        output->first_sent -= segment_at(output, output->first)->size;
        drop_first(output);
    }
    if (!output_is_empty(output))
        return;
    output->first_sent = output->copied_sent = output->copied_size = 0;
    if (output->copied_capacity > KEPT_COPY_BYTES) {
        free(output->copied);
        output->copied = NULL;
        output->copied_capacity = 0;
    }
}

bool output_send(struct output *output, int fd)
{
    if (output->failed)
        return false;
    while (!output_is_empty(output)) {
        struct iovec pieces[SENDMSG_PIECES];
        struct msghdr message = {.msg_iov = pieces};
        ssize_t sent;

        message.msg_iovlen = fill_pieces(output, pieces);
        sent = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        count_sent(output, (size_t)sent);
    }
    return true;
}

void output_deinit(struct output *output)
{
    while (!output_is_empty(output))
        drop_first(output);
    free(output->copied);
    *output = (struct output){0};
}
