/* A gRPC server that answers as a test says: one connection at a time on a Unix socket, in a
 * thread. */
#ifndef TESTS_FAKE_SERVER_H
#define TESTS_FAKE_SERVER_H

#include <stddef.h>
#include <stdint.h>

enum fake_behaviour {
    FAKE_ANSWER,  /* sends `reply` and grpc-status 0 */
    FAKE_ERROR,   /* trailers only: grpc-status 8, grpc-message with %-encoding */
    FAKE_SILENCE, /* never answers */
    FAKE_HANG_UP, /* closes the connection when the request is there */
    FAKE_NOT_GRPC /* HTTP status 404 */
};

struct fake_server;

struct fake_server *fake_server_start(enum fake_behaviour behaviour, const void *reply,
                                      size_t reply_bytes);
/* The address for sluice_open(). */
const char *fake_server_address(const struct fake_server *server);
/* The message of the last request, without the gRPC prefix; valid after the call returned. */
const uint8_t *fake_server_request(const struct fake_server *server, size_t *out_bytes);
/* Streams that were reset by the client. */
unsigned fake_server_resets(const struct fake_server *server);
void fake_server_stop(struct fake_server *server);

#endif
