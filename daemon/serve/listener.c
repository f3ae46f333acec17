#include "serve/listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LOG_COMPONENT "serve"
#include "observe/log.h"
#include "serve/internal.h"

/* Nothing outlives a restart of the machine there. */
#define RUNTIME_FOLDER "/run/"

enum { BACKLOG = 1024 };

const char *listener_role_name(enum listener_role role)
{
    static const char *const names[ROLE_COUNT] = {"grpc", "http", "metrics", "admin"};

    return names[role];
}

static void accept_all(evutil_socket_t fd, short what, void *arg)
{
    struct listener *listener = arg;
    struct server *server = listener->server;
    int accepted;

    (void)what;
    server_touch(server);
    while ((accepted = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (server->connection_count >= server->limits.max_connections) {
            (void)close(accepted);
            continue;
        }
        connection_open(server, accepted, listener->role, listener->is_unix);
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        log_warn("cannot accept on %s: %s, trying again in a second", listener->address,
                 strerror(errno));
        listener_pause(listener, true); /* the sweep resumes it */
    }
}

void listener_take_backlog(struct listener *listener)
{
    if (listener->is_activated)
        return; /* they wait there for the next daemon */
    if (listener->unlink_path != NULL) {
        (void)unlink(listener->unlink_path);
        free(listener->unlink_path);
        listener->unlink_path = NULL;
    }
    accept_all(listener->fd, EV_READ, listener);
}

void listener_pause(struct listener *listener, bool paused)
{
    if (paused == listener->paused)
        return;
    if (paused)
        (void)event_del(&listener->event);
    else
        (void)event_add(&listener->event, NULL);
    listener->paused = paused;
}

/* "127.0.0.1:8001", "[::1]:8001", "unix:/path" of a bound socket. */
static void describe(struct listener *listener)
{
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof(bound);
    char host[NI_MAXHOST], port[NI_MAXSERV];

    (void)snprintf(listener->address, sizeof(listener->address), "?");
    if (getsockname(listener->fd, (struct sockaddr *)&bound, &size) != 0)
        return;
    listener->is_unix = bound.ss_family == AF_UNIX;
    if (listener->is_unix) {
        const struct sockaddr_un *local = (const struct sockaddr_un *)&bound;

        (void)snprintf(listener->address, sizeof(listener->address), "unix:%s", local->sun_path);
    } else if (getnameinfo((const struct sockaddr *)&bound, size, host, sizeof(host), port,
                           sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
        (void)snprintf(listener->address, sizeof(listener->address),
                       bound.ss_family == AF_INET6 ? "[%.60s]:%s" : "%.60s:%s", host, port);
    }
}

/* Adopts fd and path on success. */
static enum status add(struct server *server, enum listener_role role, int fd, char *unlink_path,
                       bool is_activated, struct error *err)
{
    struct listener *listener = calloc(1, sizeof(*listener));

    if (listener == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a listener");
    listener->server = server;
    listener->role = role;
    listener->fd = fd;
    listener->unlink_path = unlink_path;
    listener->is_activated = is_activated;
    describe(listener);
    if (event_assign(&listener->event, server->base, fd, EV_READ | EV_PERSIST, accept_all,
                     listener) != 0 ||
        event_add(&listener->event, NULL) != 0) {
        free(listener);
        return error_set(err, event_failure(), "cannot watch listener %d: %s", fd, strerror(errno));
    }
    list_append(&server->listeners, &listener->link);
    log_info("%s: listening on %s", listener_role_name(role), listener->address);
    return STATUS_OK;
}

void listener_destroy(struct listener *listener)
{
    if (listener == NULL)
        return;
    (void)event_del(&listener->event);
    if (listener->fd >= 0)
        (void)close(listener->fd);
    if (listener->unlink_path != NULL)
        (void)unlink(listener->unlink_path);
    list_remove(&listener->link);
    free(listener->unlink_path);
    free(listener);
}

enum status listener_adopt(struct server *server, enum listener_role role, int fd,
                           struct error *err)
{
    int listening = 0;
    socklen_t size = sizeof(listening);

    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || !listening)
        return error_set(err, STATUS_INVALID, "descriptor %d (%s) is no listening socket", fd,
                         listener_role_name(role));
    if (evutil_make_socket_nonblocking(fd) != 0)
        return error_set(err, STATUS_IO, "descriptor %d: %s", fd, strerror(errno));
    return add(server, role, fd, NULL, true, err);
}

/* ---- Unix sockets ---- */

/* True when a socket file is left over: nobody listens behind it.  Connecting to a file of another
 * kind is refused as well, so look first: it is somebody's. */
static bool is_stale(const struct sockaddr_un *address)
{
    struct stat info;
    bool stale;
    int fd;

    if (lstat(address->sun_path, &info) != 0 || !S_ISSOCK(info.st_mode))
        return false;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    stale = connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 &&
            errno == ECONNREFUSED;
    (void)close(fd);
    return stale;
}

/* Only where what programs make goes away by itself: elsewhere a folder that is not there is a
 * slip of the pen. */
static void make_parent(const char *path)
{
    char parent[sizeof(((struct sockaddr_un *)0)->sun_path)];
    char *slash;

    (void)snprintf(parent, sizeof(parent), "%s", path);
    slash = strrchr(parent, '/');
    if (strncmp(path, RUNTIME_FOLDER, strlen(RUNTIME_FOLDER)) != 0 || slash == NULL)
        return;
    *slash = '\0';
    (void)mkdir(parent, 0755);
}

static int bind_unix(int fd, const struct sockaddr_un *address)
{
    int result = bind(fd, (const struct sockaddr *)address, sizeof(*address));

    if (result != 0 && errno == ENOENT) {
        make_parent(address->sun_path);
        result = bind(fd, (const struct sockaddr *)address, sizeof(*address));
    }
    if (result != 0 && errno == EADDRINUSE && is_stale(address)) {
        (void)unlink(address->sun_path);
        result = bind(fd, (const struct sockaddr *)address, sizeof(*address));
    }
    return result;
}

static enum status open_unix(struct server *server, enum listener_role role, const char *path,
                             struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    mode_t mode = role == ROLE_ADMIN ? 0660 : 0666;
    char *kept = NULL;
    enum status status;
    int fd;

    if (path[0] == '\0' || strlen(path) >= sizeof(address.sun_path))
        return error_set(err, STATUS_INVALID,
                         "listen address 'unix:%s': a path has 1 to %zu characters", path,
                         sizeof(address.sun_path) - 1);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(err, STATUS_IO, "cannot make a socket: %s", strerror(errno));
    if (bind_unix(fd, &address) != 0) {
        status =
            error_set(err, STATUS_IO, "cannot listen on unix:%s: %s%s", path, strerror(errno),
                      errno == ENOENT ? "; folders are made below " RUNTIME_FOLDER " only" : "");
        (void)close(fd);
        return status;
    }
    (void)chmod(path, mode);
    kept = strdup(path);
    if (kept == NULL)
        status = error_set(err, STATUS_NO_MEMORY, "no memory for a listener");
    else if (listen(fd, BACKLOG) != 0)
        status = error_set(err, STATUS_IO, "cannot listen on unix:%s: %s", path, strerror(errno));
    else
        status = add(server, role, fd, kept, false, err);
    if (status != STATUS_OK) {
        (void)unlink(path);
        (void)close(fd);
        free(kept);
    }
    return status;
}

/* ---- TCP ---- */

/* "host:port" or "[v6]:port" into its parts. */
static bool split_address(const char *text, char *host, size_t room, const char **out_port)
{
    const char *colon = strrchr(text, ':');
    size_t length;

    if (colon == NULL || colon[1] == '\0')
        return false;
    length = (size_t)(colon - text);
    if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    } else if (memchr(text, ':', length) != NULL) {
        return false;
    }
    if (length >= room)
        return false;
    memcpy(host, text, length);
    host[length] = '\0';
    *out_port = colon + 1;
    return true;
}

static enum status open_one(struct server *server, enum listener_role role, const char *text,
                            const struct addrinfo *address, struct error *err)
{
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1;
    enum status status;

    if (fd < 0)
        return error_set(err, STATUS_IO, "cannot make a socket: %s", strerror(errno));
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (address->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    if (bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0)
        status = error_set(err, STATUS_IO, "cannot listen on %s: %s", text, strerror(errno));
    else
        status = add(server, role, fd, NULL, false, err);
    if (status != STATUS_OK)
        (void)close(fd);
    return status;
}

static enum status open_tcp(struct server *server, enum listener_role role, const char *text,
                            struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    enum status status = STATUS_OK;
    char host[256];
    const char *port;
    int failure;

    if (!split_address(text, host, sizeof(host), &port))
        return error_set(err, STATUS_INVALID,
                         "listen address '%s' is none: host:port, [v6]:port or unix:/path", text);
    failure =
        getaddrinfo(host[0] == '\0' || strcmp(host, "*") == 0 ? NULL : host, port, &hints, &found);
    if (failure != 0)
        return error_set(err, STATUS_INVALID, "listen address '%s': %s", text,
                         gai_strerror(failure));
    for (struct addrinfo *next = found; next != NULL && status == STATUS_OK; next = next->ai_next)
        status = open_one(server, role, text, next, err);
    freeaddrinfo(found);
    return status;
}

enum status listener_open(struct server *server, enum listener_role role, const char *text,
                          struct error *err)
{
    if (strncmp(text, "unix:", 5) == 0)
        return open_unix(server, role, text + 5, err);
    return open_tcp(server, role, text, err);
}
