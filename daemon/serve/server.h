/* The wire: listeners, connections, HTTP/2 + gRPC, HTTP/1.1 REST, metrics, admin.
 *
 * One I/O thread runs server_run(); a connection belongs to its thread for life.  Health answers
 * come from here even when the device is stuck.
 */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include "config/config.h"
#include "memory/host_pool.h"
#include "models/repository.h"
#include "models/warden.h"

struct device;
struct event_base;
struct server;

/* What the process around the server does; called on the I/O thread. */
struct server_hooks {
    void *arg;
    /* Reads the configuration again; the error text goes to the caller.  With STATUS_OK the text
     * names changed keys that only a restart applies, or is empty. */
    enum status (*reload)(void *arg, struct error *err);
    void (*drain)(void *arg); /* starts an orderly stop */
    /* The configuration in force, for `sluicectl config show`; borrowed. */
    const struct config_set *(*config)(void *arg);
};

struct activated_fd {
    const char *name;
    int fd;
};

struct server_config {
    struct event_base *base;     /* the first I/O thread's loop; owned by the caller */
    const struct config *config; /* borrowed for the call */
    struct repository *repository;
    struct batcher *batcher;
    struct warden *warden;
    struct host_pool *host_pool;
    struct server_hooks hooks;
    struct device *importer; /* takes in CUDA memory of other processes; NULL: nobody does */
    const char *device;      /* one line about it, copied; NULL: not told */
    /* Sockets from systemd (SD_LISTEN_FDS) by name: "grpc", "http", "metrics", "admin". */
    size_t activated;
    const struct activated_fd *activated_fds; /* adopted on success */
};

/* Binds every listener (all or none).  STATUS_IO names address and reason. */
MUST_CHECK enum status server_create(const struct server_config *config, struct server **out_server,
                                     struct error *err);
void server_destroy(struct server *server); /* closes what is left; NULL is fine */
void server_configure(struct server *server, const struct config *config); /* LIVE keys */
/* Stops accepting, GOAWAY in two steps, "Connection: close", not ready; calls `drained` when the
 * last connection's work is answered. */
void server_drain(struct server *server, void (*drained)(void *arg), void *arg);
/* Bytes of the host pool that a request of so many bytes needs while it is received and runs. */
uint64_t server_request_charge(uint64_t bytes);
/* Who uses the server now. */
struct server_use {
    unsigned connections;    /* for inference: gRPC and REST */
    size_t busy;             /* calls that run or wait, of any kind */
    uint64_t accepted_total; /* connections for inference since the start */
};
void server_read_use(const struct server *server, struct server_use *out_use);
/* Requests in flight. */
size_t server_busy(const struct server *server);

#endif
