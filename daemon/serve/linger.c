/* Leaving a connection without taking our last words along.
 *
 * A socket that is closed while bytes of the peer lie unread in it, or to which the peer sends once
 * more (an HTTP/2 client acknowledges what it reads), is reset, and a reset makes clients drop
 * answers they have not read yet.  So our side is shut, which the peer sees as the end, and what
 * it still says is read and dropped until it closes too, or for two seconds (RFC 9112 9.6).
 */
#include <sys/socket.h>

#include "serve/connection.h"
#include "serve/internal.h"

enum { LINGER_US = 2 * 1000000 };

static void space(struct connection *connection, struct space *out_space)
{
    (void)connection, (void)out_space; /* any room will do */
}

static bool received(struct connection *connection, const struct space *from, size_t size)
{
    (void)connection, (void)from, (void)size;
    return true;
}

static bool produce(struct connection *connection)
{
    (void)connection;
    return true;
}

static enum ending ending(const struct connection *connection)
{
    (void)connection;
    return ENDING_NONE; /* the peer's end of file is noticed by the read */
}

static bool wants_bytes(const struct connection *connection)
{
    (void)connection;
    return true;
}

static size_t missing(const struct connection *connection)
{
    (void)connection;
    return 0;
}

static bool sweep(struct connection *connection, int64_t now_us)
{
    return now_us - connection->since_us <= LINGER_US; /* however steadily it talks */
}

static void drain(struct connection *connection, bool is_last_step)
{
    (void)connection, (void)is_last_step;
}

static void stop(struct connection *connection)
{
    (void)connection;
}

const struct protocol protocol_leaving = {
    .name = "leaving",
    .space = space,
    .received = received,
    .produce = produce,
    .ending = ending,
    .wants_bytes = wants_bytes,
    .missing = missing,
    .sweep = sweep,
    .drain = drain,
    .stop = stop,
};

void connection_leave(struct connection *connection)
{
    connection_stop_protocol(connection);
    connection->protocol = &protocol_leaving;
    connection->since_us = connection->server->turn_us;
    (void)shutdown(connection->fd, SHUT_WR);
}
