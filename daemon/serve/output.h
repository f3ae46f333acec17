/* What a connection still has to say: copied bytes and references to tensors, sent by one sendmsg.
 *
 * Small pieces are copied, larger ones are referenced: the segment then holds a reference to the
 * call that owns the bytes until they are sent.
 */
#ifndef SERVE_OUTPUT_H
#define SERVE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct call;

enum {
    OUTPUT_SEGMENTS = 128,
    OUTPUT_COPY_LIMIT = 2048,     /* a piece up to this size is copied */
    OUTPUT_QUEUE_LIMIT = 1 << 20, /* bytes queued before producers pause */
};

struct output_segment {
    const uint8_t *bytes; /* NULL: the next `size` bytes of `copied` */
    size_t size;
    struct call *owner;
};

struct output {
    struct output_segment segments[OUTPUT_SEGMENTS];
    unsigned first, last; /* counters, taken modulo OUTPUT_SEGMENTS */
    size_t first_sent;    /* bytes of the first segment that are gone */
    size_t queued_bytes;
    uint8_t *copied;
    size_t copied_size, copied_capacity, copied_sent;
    bool failed; /* malloc refused: the connection must go */
};

void output_copy(struct output *output, const void *bytes, size_t size);
/* `owner` is kept referenced until the bytes are sent. */
void output_refer(struct output *output, const void *bytes, size_t size, struct call *owner);
/* Room for one more message: a head and some pieces. */
bool output_has_room(const struct output *output);
static inline bool output_is_empty(const struct output *output)
{
    return output->first == output->last;
}
/* Sends until the socket is full or nothing is left; false: the peer is gone. */
bool output_send(struct output *output, int fd);
/* Forgets everything and gives the buffer back. */
void output_deinit(struct output *output);

#endif
