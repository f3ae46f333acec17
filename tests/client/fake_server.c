#include "client/fake_server.h"

#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct fake_server {
    enum fake_behaviour behaviour;
    char folder[64], address[128];
    int listener, stop_fd;
    pthread_t thread;
    uint8_t *reply; /* with the gRPC prefix */
    size_t reply_bytes;
    uint8_t *request;
    size_t request_bytes;
    atomic_uint resets;
    int hang_up;
};

/* Replies are small: each goes out whole in one frame, so that streams need no state of their own.
 */
static ssize_t send_reply(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                          uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct fake_server *server = arg;
    nghttp2_nv trailer = {(uint8_t *)"grpc-status", (uint8_t *)"0", 11, 1, 0};

    (void)source;
    if (server->reply_bytes > room)
        abort();
    memcpy(to, server->reply, server->reply_bytes);
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    (void)nghttp2_submit_trailer(session, id, &trailer, 1);
    return (ssize_t)server->reply_bytes;
}

static void answer(struct fake_server *server, nghttp2_session *session, int32_t id)
{
    nghttp2_nv headers[] = {
        {(uint8_t *)":status", (uint8_t *)"200", 7, 3, 0},
        {(uint8_t *)"content-type", (uint8_t *)"application/grpc", 12, 16, 0},
        {(uint8_t *)"grpc-status", (uint8_t *)"8", 11, 1, 0},
        {(uint8_t *)"grpc-message", (uint8_t *)"50%25 of %7Bx%7D", 12, 16, 0},
    };
    nghttp2_nv not_found = {(uint8_t *)":status", (uint8_t *)"404", 7, 3, 0};
    nghttp2_data_provider provider = {.read_callback = send_reply};

    switch (server->behaviour) {
    case FAKE_ANSWER:
        (void)nghttp2_submit_response(session, id, headers, 2, &provider);
        break;
    case FAKE_ERROR:
        (void)nghttp2_submit_response(session, id, headers, 4, NULL);
        break;
    case FAKE_NOT_GRPC:
        (void)nghttp2_submit_response(session, id, &not_found, 1, NULL);
        break;
    case FAKE_HANG_UP:
        server->hang_up = 1;
        break;
    case FAKE_SILENCE:
        break;
    }
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t count, void *arg)
{
    struct fake_server *server = arg;

    (void)session, (void)flags, (void)id;
    server->request = realloc(server->request, server->request_bytes + count);
    memcpy(server->request + server->request_bytes, bytes, count);
    server->request_bytes += count;
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct fake_server *server = arg;

    if (frame->hd.type == NGHTTP2_RST_STREAM)
        atomic_fetch_add(&server->resets, 1);
    if (frame->hd.type == NGHTTP2_HEADERS)
        server->request_bytes = 0;
    if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
        answer(server, session, frame->hd.stream_id);
    return 0;
}

static int send_all(nghttp2_session *session, int fd)
{
    const uint8_t *bytes;
    ssize_t count;

    while ((count = nghttp2_session_mem_send(session, &bytes)) > 0)
        if (send(fd, bytes, (size_t)count, MSG_NOSIGNAL) != count)
            return -1;
    return 0;
}

static void serve(struct fake_server *server, int fd)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_session *session;
    struct pollfd wait[] = {{.fd = fd, .events = POLLIN},
                            {.fd = server->stop_fd, .events = POLLIN}};
    uint8_t bytes[65536];
    ssize_t count;

    (void)nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    (void)nghttp2_session_server_new(&session, callbacks, server);
    nghttp2_session_callbacks_del(callbacks);
    (void)nghttp2_submit_settings(session, 0, NULL, 0);
    server->hang_up = 0;
    while (!server->hang_up && send_all(session, fd) == 0 && poll(wait, 2, -1) > 0 &&
           wait[1].revents == 0) {
        count = recv(fd, bytes, sizeof(bytes), 0);
        if (count <= 0 || nghttp2_session_mem_recv(session, bytes, (size_t)count) < 0)
            break;
    }
    nghttp2_session_del(session);
    (void)close(fd);
}

static void *run(void *arg)
{
    struct fake_server *server = arg;
    struct pollfd wait[] = {{.fd = server->listener, .events = POLLIN},
                            {.fd = server->stop_fd, .events = POLLIN}};

    while (poll(wait, 2, -1) > 0 && wait[1].revents == 0)
        serve(server, accept(server->listener, NULL, NULL));
    return NULL;
}

struct fake_server *fake_server_start(enum fake_behaviour behaviour, const void *reply,
                                      size_t reply_bytes)
{
    struct fake_server *server = calloc(1, sizeof(*server));
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    server->behaviour = behaviour;
    server->reply_bytes = reply_bytes + 5;
    server->reply = calloc(1, server->reply_bytes);
    for (int i = 0; i < 4; i++)
        server->reply[1 + i] = (uint8_t)(reply_bytes >> (24 - 8 * i));
    if (reply_bytes > 0)
        memcpy(server->reply + 5, reply, reply_bytes);
    (void)strcpy(server->folder, "/tmp/sluice-test-XXXXXX");
    if (mkdtemp(server->folder) == NULL)
        abort();
    (void)snprintf(name.sun_path, sizeof(name.sun_path), "%s/s", server->folder);
    (void)snprintf(server->address, sizeof(server->address), "unix:%s", name.sun_path);
    server->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    server->stop_fd = eventfd(0, 0);
    if (bind(server->listener, (struct sockaddr *)&name, sizeof(name)) != 0 ||
        listen(server->listener, 4) != 0)
        abort();
    if (pthread_create(&server->thread, NULL, run, server) != 0)
        abort();
    return server;
}

const char *fake_server_address(const struct fake_server *server)
{
    return server->address;
}

const uint8_t *fake_server_request(const struct fake_server *server, size_t *out_bytes)
{
    *out_bytes = server->request_bytes - 5;
    return server->request + 5;
}

unsigned fake_server_resets(const struct fake_server *server)
{
    return atomic_load(&server->resets);
}

void fake_server_stop(struct fake_server *server)
{
    uint64_t one = 1;

    (void)!write(server->stop_fd, &one, sizeof(one));
    (void)pthread_join(server->thread, NULL);
    (void)close(server->listener);
    (void)close(server->stop_fd);
    (void)unlink(server->address + strlen("unix:"));
    (void)rmdir(server->folder);
    free(server->reply);
    free(server->request);
    free(server);
}
