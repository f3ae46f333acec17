/* What the files of libsluice share.
 *
 *   infer.c      the infer messages <-> bytes      (wire.h)
 *   client.c     blocking calls
 *   transport.c  one HTTP/2 connection, calls on it, nothing blocks but transport_step()
 */
#ifndef CLIENT_INTERNAL_H
#define CLIENT_INTERNAL_H

#include <nghttp2/nghttp2.h>
#include <sys/uio.h>

#include "sluice/sluice.h"

/* Fills `error` (NULL is fine) and returns the status. */
enum sluice_status client_error(struct sluice_error *error, enum sluice_status status,
                                const char *format, ...) __attribute__((format(printf, 3, 4)));

int64_t client_now_us(void);

/* One unary call.  The request is a list of pieces that are borrowed until the call is done. */
struct sluice_call {
    struct sluice_call *next; /* in client->calls */
    struct sluice_client *client;
    int32_t stream; /* -1: not on the wire (any more) */
    bool is_done;

    struct iovec *pieces; /* owned list, borrowed bytes; the first is `prefix` and head */
    size_t piece_count;
    size_t piece;           /* being sent, … */
    size_t piece_offset;    /* … from here */
    unsigned char *head;    /* owned: 5 bytes of gRPC prefix and the message up to the tensors */
    unsigned char *lengths; /* owned: heads of the tensors' fields, or NULL */

    unsigned char *reply; /* owned: the reply's frame, prefix included */
    size_t reply_bytes, reply_room;

    int http_status;
    int grpc_status; /* -1: no trailer yet */
    struct sluice_error error;
};

struct sluice_client {
    char *host; /* a path when is_unix */
    char *port;
    bool is_unix;
    int64_t timeout_us;
    int fd;
    nghttp2_session *session;
    struct sluice_call *calls;
    const uint8_t *unsent; /* what the socket did not take; nghttp2's until the next send */
    size_t unsent_bytes;
};

/* A call whose message consists of `head_bytes` bytes, to be filled in by the caller behind the
 * prefix (at call->head + 5), and of `pieces` borrowed ones.  NULL: malloc refused. */
struct sluice_call *call_create(struct sluice_client *client, size_t head_bytes,
                                const struct iovec *pieces, size_t piece_count);
void call_destroy(struct sluice_call *call); /* cancels it when it is on the wire */

/* Connects when there is no connection.  SLUICE_UNAVAILABLE: it cannot be had; nothing is left
 * open. */
enum sluice_status transport_connect(struct sluice_client *client, int64_t until_us,
                                     struct sluice_error *error);
/* Closes the connection; calls on it are done with SLUICE_UNAVAILABLE and `why`. */
void transport_close(struct sluice_client *client, const char *why);
enum sluice_status transport_start(struct sluice_call *call, const char *method, int64_t timeout_us,
                                   struct sluice_error *error);
enum sluice_status transport_step(struct sluice_client *client, int timeout_ms,
                                  struct sluice_error *error);
/* Steps until the call is done; cancels it at `until_us`. */
enum sluice_status transport_wait(struct sluice_call *call, int64_t until_us,
                                  struct sluice_error *error);

#endif
