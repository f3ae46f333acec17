#include "serve/connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/internal.h"

enum { READS_A_TURN = 8, UNIX_SEND_BUFFER = 1 << 20, FIRST_BYTES_US = 5 * 1000000 };

static const char PREFACE[] = "PRI";

static void arm(struct connection *connection, struct event *event, bool *armed, bool wanted)
{
    if (wanted == *armed)
        return;
    if (wanted ? event_add(event, NULL) == 0 : event_del(event) == 0)
        *armed = wanted;
    else
        connection_close(connection);
}

/* Wakes us once per LOWAT_BYTES of a body.  Meanwhile a timer looks every 2 ms, for a cancel or a
 * small call may stand behind a half-sent body.  poll() on Unix sockets ignores SO_RCVLOWAT. */
static void set_lowat(struct connection *connection, size_t missing)
{
    static const struct timeval glance = {0, 2000};
    int lowat = 1;

    if (missing > LOWAT_BYTES)
        lowat = LOWAT_BYTES;
    else if (missing > LOWAT_LEAST_MISSING)
        lowat = (int)missing;
    if (lowat == connection->lowat || connection->is_unix)
        return;
    if (setsockopt(connection->fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof(lowat)) != 0)
        return;
    if (lowat == 1)
        (void)event_remove_timer(&connection->read_event);
    else if (connection->lowat == 1)
        (void)event_add(&connection->read_event, &glance);
    connection->lowat = lowat;
}

/* Collects the first bytes until they tell the protocol; then hands them to it. */
static bool choose_protocol(struct connection *connection, size_t size)
{
    struct server *server = connection->server;
    struct space space = {.pieces = {{server->receive, RECEIVE_BYTES}}, .count = 1};
    size_t known = connection->first_size, told = known + size < 3 ? known + size : 3;
    char first[3];

    memcpy(first, connection->first, known);
    memcpy(first + known, server->receive, told - known);
    if (memcmp(first, PREFACE, told) == 0 && told < 3) {
        memcpy(connection->first, first, told);
        connection->first_size = (unsigned)told;
        return true;
    }
    connection->protocol = memcmp(first, PREFACE, told) == 0 ? &protocol_http2 : &protocol_http1;
    if (!connection->protocol->start(connection))
        return false;
    if (known > 0) {
        memmove(server->receive + known, server->receive, size);
        memcpy(server->receive, connection->first, known);
    }
    return connection->protocol->received(connection, &space, known + size);
}

/* One read; false: close.  *out_more: there may be more at once. */
static bool read_once(struct connection *connection, bool *out_more)
{
    struct server *server = connection->server;
    struct space space = {.pieces = {{server->receive, RECEIVE_BYTES}}, .count = 1};
    size_t wanted = 0;
    ssize_t size;

    if (connection->protocol != NULL)
        connection->protocol->space(connection, &space);
    else
        space.pieces[0].iov_len = RECEIVE_BYTES / 2; /* room for the first bytes in front */
    for (int i = 0; i < space.count; i++)
        wanted += space.pieces[i].iov_len;
    size = space.count == 1 ? recv(connection->fd, space.pieces[0].iov_base, wanted, 0)
                            : readv(connection->fd, space.pieces, space.count);
    *out_more = size > 0 && (size_t)size == wanted;
    if (size < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (size == 0)
        return false; /* FIN: the client is gone */
    if (connection->protocol == NULL)
        return choose_protocol(connection, (size_t)size);
    return connection->protocol->received(connection, &space, (size_t)size);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct connection *connection = arg;
    bool more = true;

    (void)fd;
    (void)what;
    server_touch(connection->server);
    connection_touch(connection);
    for (int i = 0; i < READS_A_TURN && more && !connection->closed; i++) {
        if (!read_once(connection, &more)) {
            connection_close(connection);
            return;
        }
        if (connection->protocol != NULL && !connection->protocol->wants_bytes(connection))
            break;
    }
    if (!connection->closed && connection->protocol != NULL)
        set_lowat(connection, connection->protocol->missing(connection));
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct connection *connection = arg;

    (void)fd;
    (void)what;
    server_touch(connection->server);
    connection_touch(connection);
}

void connection_open(struct server *server, int fd, enum listener_role role, bool is_unix)
{
    struct connection *connection = calloc(1, sizeof(*connection));
    int send_buffer = UNIX_SEND_BUFFER, one = 1;

    if (connection == NULL) {
        (void)close(fd);
        return;
    }
    connection->server = server;
    connection->fd = fd;
    connection->role = role;
    connection->is_unix = is_unix;
    connection->lowat = 1;
    connection->since_us = connection->sent_us = server->turn_us;
    list_init(&connection->calls);
    list_init(&connection->dirty_link);
    list_append(&server->connections, &connection->link);
    server->connection_count++;
    server->role_connections[role]++;
    server->accepted_total += role == ROLE_GRPC || role == ROLE_HTTP;
    if (is_unix) /* of a Unix socket only the sender's buffer counts */
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));
    else
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)event_assign(&connection->read_event, server->base, fd, EV_READ | EV_PERSIST, on_readable,
                       connection);
    (void)event_assign(&connection->write_event, server->base, fd, EV_WRITE | EV_PERSIST,
                       on_writable, connection);
    arm(connection, &connection->read_event, &connection->reading, true);
}

void connection_stop_protocol(struct connection *connection)
{
    struct call *call;

    if (connection->protocol != NULL)
        connection->protocol->stop(connection);
    LIST_FOR_EACH (call, &connection->calls, struct call, link)
        call_abandon(call);
}

void connection_close(struct connection *connection)
{
    struct server *server = connection->server;

    if (connection->closed)
        return;
    connection->closed = true;
    (void)event_del(&connection->read_event);
    (void)event_del(&connection->write_event);
    connection_stop_protocol(connection);
    output_deinit(&connection->output);
    (void)close(connection->fd);
    list_remove(&connection->dirty_link);
    list_remove(&connection->link);
    list_append(&server->closed, &connection->link);
    server->connection_count--;
    server->role_connections[connection->role]--;
    server_touch(server);
}

void connection_free(struct connection *connection)
{
    list_remove(&connection->link);
    free(connection);
}

void connection_touch(struct connection *connection)
{
    if (connection->closed || !list_is_empty(&connection->dirty_link))
        return;
    list_append(&connection->server->dirty, &connection->dirty_link);
    server_touch(connection->server);
}

/* Says what there is to say until it is said or the socket is full; false: close. */
static bool send_all(struct connection *connection)
{
    for (;;) {
        size_t queued = connection->output.queued_bytes;
        bool produced;

        if (!connection->protocol->produce(connection))
            return false;
        produced = connection->output.queued_bytes != queued;
        queued = connection->output.queued_bytes;
        if (!output_send(&connection->output, connection->fd))
            return false;
        if (connection->output.queued_bytes != queued || queued == 0)
            connection->sent_us = connection->server->turn_us;
        if (!output_is_empty(&connection->output) || !produced)
            return true;
    }
}

void connection_settle(struct connection *connection)
{
    enum ending ending = ENDING_NONE;
    bool wants_write;

    if (connection->closed || connection->protocol == NULL)
        return;
    if (!send_all(connection)) {
        connection_close(connection);
        return;
    }
    wants_write = !output_is_empty(&connection->output);
    if (!wants_write)
        ending = connection->protocol->ending(connection);
    if (ending == ENDING_CLOSE) {
        connection_close(connection);
        return;
    }
    if (ending == ENDING_LEAVE)
        connection_leave(connection);
    arm(connection, &connection->write_event, &connection->writing, wants_write);
    if (connection->closed)
        return;
    arm(connection, &connection->read_event, &connection->reading,
        connection->protocol->wants_bytes(connection));
}

void connection_sweep(struct connection *connection, int64_t now_us)
{
    bool stays;

    if (connection->protocol == NULL)
        stays = now_us - connection->since_us <= FIRST_BYTES_US;
    else
        stays = connection->protocol->sweep(connection, now_us);
    /* A peer that does not read what it asked for. */
    if (!output_is_empty(&connection->output) &&
        now_us - connection->sent_us > connection->server->limits.idle_timeout_us)
        stays = false;
    if (!stays)
        connection_close(connection);
}
