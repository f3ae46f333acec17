/* libsluice: the C client of sluiced, and of any server that speaks the Open Inference Protocol by
 * gRPC.
 *
 *     struct sluice_client *client;
 *     struct sluice_error error;
 *
 *     if (sluice_open("unix:/run/sluice/grpc.sock", &client, &error) != SLUICE_OK)
 *         …error.message…
 *     sluice_infer(client, &request, &response, &error);
 *
 * Calls block; below them lies a non-blocking core (sluice_infer_start() and below) for programs
 * with a loop of their own.  A client is one HTTP/2 connection; it connects at the first call and
 * again when the connection was lost.
 *
 * Ownership: what is passed in is borrowed until the call is over; what comes out is freed by the
 *            function named beside it.
 * Threads:   one thread at a time per client; any number of clients.
 * Wire form: gRPC over cleartext HTTP/2 (grpc/PROTOCOL-HTTP2.md), messages of
 *            inference.GRPCInferenceService (Open Inference Protocol v2 with Triton's extensions).
 */
#ifndef SLUICE_SLUICE_H
#define SLUICE_SLUICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_API __attribute__((visibility("default")))

/* Outcomes: the numbers of gRPC's status codes (grpc/statuscodes.md). */
enum sluice_status {
    SLUICE_OK = 0,
    SLUICE_CANCELLED = 1,
    SLUICE_UNKNOWN = 2,
    SLUICE_INVALID_ARGUMENT = 3,
    SLUICE_DEADLINE_EXCEEDED = 4,
    SLUICE_NOT_FOUND = 5,
    SLUICE_ALREADY_EXISTS = 6,
    SLUICE_PERMISSION_DENIED = 7,
    SLUICE_RESOURCE_EXHAUSTED = 8,
    SLUICE_FAILED_PRECONDITION = 9,
    SLUICE_UNIMPLEMENTED = 12,
    SLUICE_INTERNAL = 13,
    SLUICE_UNAVAILABLE = 14
};
/* "RESOURCE_EXHAUSTED"; borrowed, for ever. */
SLUICE_API const char *sluice_status_name(enum sluice_status status);

struct sluice_error {
    enum sluice_status status;
    char message[768]; /* one sentence, terminated */
};

struct sluice_client;

/* Makes a client for "host:port", "[::1]:port" or "unix:/path"; the host is a name or a number.
 * Does not connect yet.  SLUICE_INVALID_ARGUMENT: the address; SLUICE_RESOURCE_EXHAUSTED: malloc.
 */
SLUICE_API enum sluice_status sluice_open(const char *address, struct sluice_client **out_client,
                                          struct sluice_error *error);
SLUICE_API void
sluice_close(struct sluice_client *client); /* cancels calls in flight; NULL is fine */
/* How long a call may take in all when the request names no time; 0 (at first): for ever. */
SLUICE_API void sluice_set_timeout(struct sluice_client *client, int64_t timeout_us);

enum { SLUICE_MAX_RANK = 8 };

/* Elements dense, row-major, little-endian; datatype as in the protocol ("FP32").  BYTES: each
 * element a 32-bit length and its bytes, one after the other.  Data of an answer is aligned for any
 * element type; data of a request need not be. */
struct sluice_tensor {
    const char *name;
    const char *datatype;
    size_t rank;
    int64_t shape[SLUICE_MAX_RANK];
    const void *data;
    size_t bytes;
};

struct sluice_infer_request {
    const char *model;
    const char *version; /* NULL: the newest */
    const char *id;      /* NULL: none; comes back in the answer */
    size_t inputs;
    const struct sluice_tensor *input;
    size_t outputs; /* 0: all */
    const char *const *output;
    int64_t timeout_us; /* 0: the client's */
    uint64_t priority;  /* 0: the model's default; 1 is the highest */
};

struct sluice_response;

/* Sends the request and waits for the answer, which the caller frees with sluice_response_free().
 * Errors: SLUICE_UNAVAILABLE when the server cannot be reached or is stopping, _DEADLINE_EXCEEDED,
 * and what the server answers (_NOT_FOUND, _INVALID_ARGUMENT, _RESOURCE_EXHAUSTED …).  On an error
 * nothing is left to free. */
SLUICE_API enum sluice_status sluice_infer(struct sluice_client *client,
                                           const struct sluice_infer_request *request,
                                           struct sluice_response **out_response,
                                           struct sluice_error *error);
/* The outputs in the server's order; borrowed from the response. */
SLUICE_API size_t sluice_response_outputs(const struct sluice_response *response,
                                          const struct sluice_tensor **out_outputs);
/* By name; NULL when there is none. */
SLUICE_API const struct sluice_tensor *
sluice_response_output(const struct sluice_response *response, const char *name);
SLUICE_API const char *sluice_response_version(const struct sluice_response *response);
SLUICE_API void sluice_response_free(struct sluice_response *response); /* NULL is fine */

/* Any unary method: "/inference.GRPCInferenceService/ServerLive".  `request` is a serialized
 * message; the reply (freed with free()) likewise.  Errors as sluice_infer(). */
SLUICE_API enum sluice_status sluice_call(struct sluice_client *client, const char *method,
                                          const void *request, size_t request_bytes,
                                          int64_t timeout_us, void **out_reply,
                                          size_t *out_reply_bytes, struct sluice_error *error);

/* ---- without blocking ---- */

struct sluice_call;

/* Starts a request on the connection; the request's tensors are borrowed until the call is
 * finished. */
SLUICE_API enum sluice_status sluice_infer_start(struct sluice_client *client,
                                                 const struct sluice_infer_request *request,
                                                 struct sluice_call **out_call,
                                                 struct sluice_error *error);
SLUICE_API bool sluice_call_is_done(const struct sluice_call *call);
/* Takes the answer of a call that is done and frees the call; cancels one that is not
 * (SLUICE_CANCELLED). */
SLUICE_API enum sluice_status sluice_infer_finish(struct sluice_call *call,
                                                  struct sluice_response **out_response,
                                                  struct sluice_error *error);
/* The socket to wait on (-1: none yet) and whether to wait until it can be written too. */
SLUICE_API int sluice_client_fd(const struct sluice_client *client, bool *out_wants_write);
/* Reads and writes what there is; waits up to timeout_ms for something to do (0: not at all, -1:
 * until something came).  SLUICE_UNAVAILABLE: the connection is lost, every call on it is done. */
SLUICE_API enum sluice_status sluice_client_step(struct sluice_client *client, int timeout_ms,
                                                 struct sluice_error *error);

#ifdef __cplusplus
}
#endif
#endif
