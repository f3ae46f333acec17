/* gRPC on one HTTP/2 connection: what http2_connection.c, grpc_message.c and grpc_answer.c share.
 */
#ifndef SERVE_GRPC_H
#define SERVE_GRPC_H

#include <nghttp2/nghttp2.h>

#include "serve/call.h"

enum { GRPC_PREFIX = 5 }; /* compressed flag and length before each message */

/* A header of two literals. */
#define GRPC_NV(name, value)                                                                       \
    {                                                                                              \
        (uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), sizeof(name) - 1,             \
            sizeof(value) - 1, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE        \
    }

/* The call of a stream; NULL: none, or over. */
static inline struct call *grpc_call(nghttp2_session *session, int32_t stream_id)
{
    return (struct call *)nghttp2_session_get_stream_user_data(session, stream_id);
}

/* ---- messages in (grpc_message.c) ---- */

int grpc_on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data,
                 size_t size, void *user);
/* The client has sent all. */
void grpc_on_half_close(struct call *call);
void grpc_admitted(struct call *message);

/* ---- answers out (grpc_answer.c) ---- */

/* The reply of a call or of a stream's message stands. */
void grpc_answer(struct call *message);
void grpc_pay_window(struct call *call);
/* A stream without a request under way ends when the client has sent all (OK), or in the last step
 * of a drain (UNAVAILABLE: what was not answered was not taken). */
void grpc_end_stream_if_done(struct call *call);
int grpc_on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                      size_t length, nghttp2_data_source *source, void *user);
ssize_t grpc_on_read_length(nghttp2_session *session, uint8_t type, int32_t stream_id,
                            int32_t session_window, int32_t stream_window, uint32_t frame_max,
                            void *user);
int grpc_on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user);

#endif
