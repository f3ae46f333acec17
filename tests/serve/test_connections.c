/* The whole server in one thread, over socket pairs: answers, and no allocation whose failure
 * hurts.
 *
 * When malloc refuses, the peer may get an error or lose its connection; the server must go on,
 * leak nothing, and answer the next one. */
#include "support/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

#include "serve/fake_daemon.h"
#include "serve/internal.h"
#include "support/fail_alloc.h"

static struct config_set *settings;

static int setup(void **state)
{
    static const char *const sets[] = {
        "Server.GrpcListen=", "Server.HttpListen=", "Server.MetricsListen=", "Server.AdminListen="};
    struct config_source source = {.set_count = 4, .sets = sets, .file = "/dev/null"};
    struct server_config config = {0};
    struct error err = {0};

    (void)state;
    if (config_read(&source, &settings, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    fake_init(64 << 20);
    fake.base = event_base_new();
    config.base = fake.base;
    config.config = config_values(settings);
    config.repository = &fake.repository;
    config.batcher = &fake.batcher;
    config.warden = &fake.warden;
    config.host_pool = fake.pool;
    assert_ok(server_create(&config, &fake.server, &err));
    return 0;
}

static int teardown(void **state)
{
    struct host_pool_stats stats;

    (void)state;
    server_destroy(fake.server);
    event_base_free(fake.base);
    host_pool_read(fake.pool, &stats);
    assert_int_equal(0, stats.in_use_bytes);
    host_pool_destroy(fake.pool);
    ledger_destroy(fake.ledger);
    config_destroy(settings);
    return 0;
}

/* Sends `size` bytes on a connection of its own, lets the loop run, and reads what came back. */
static size_t talk(const void *bytes, size_t size, char *answer, size_t room)
{
    size_t read_bytes = 0;
    int pair[2];

    assert_int_equal(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    for (int i = 0; i < 2; i++)
        assert_int_equal(0, fcntl(pair[i], F_SETFL, O_NONBLOCK));
    connection_open(fake.server, pair[1], ROLE_ADMIN, true);
    (void)!send(pair[0], bytes, size, MSG_NOSIGNAL);
    for (int i = 0; i < 8; i++) {
        ssize_t got;

        (void)event_base_loop(fake.base, EVLOOP_NONBLOCK);
        got = recv(pair[0], answer + read_bytes, room - read_bytes, 0);
        read_bytes += got > 0 ? (size_t)got : 0;
    }
    (void)close(pair[0]);
    (void)event_base_loop(fake.base, EVLOOP_NONBLOCK);
    assert_int_equal(0, fake.server->connection_count);
    assert_int_equal(0, server_busy(fake.server));
    call_pool_trim(fake.server); /* so that the next run allocates again */
    return read_bytes;
}

static bool holds(const char *answer, size_t size, const char *text)
{
    return memmem(answer, size, text, strlen(text)) != NULL;
}

/* With each allocation of the exchange failing in turn; the last run, without a failure, must hold
 * `expected`. */
static void survives(const void *bytes, size_t size, const char *expected)
{
    static char answer[1 << 20];
    size_t got;
    bool failed = true;

    for (unsigned nth = 1; failed; nth++) {
        fail_alloc_arm(nth);
        got = talk(bytes, size, answer, sizeof(answer));
        failed = fail_alloc_disarm();
        if (!failed && !holds(answer, got, expected))
            fail_msg("no '%s' in the answer: %.*s", expected, (int)got, answer);
    }
}

static void survives_text(const char *request, const char *expected)
{
    survives(request, strlen(request), expected);
}

static void rest_calls_survive_every_failing_allocation(void **state)
{
    static const char infer[] =
        "{\"id\":\"7\",\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[1,2],"
        "\"data\":[1.5,2]}]}";
    char request[1024];

    (void)state;
    survives_text("GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n", "\"sluice\"");
    survives_text("GET /v2/models/ident HTTP/1.1\r\nHost: x\r\n\r\n", "INPUT0");
    survives_text("GET /v2/models/ident/config HTTP/1.1\r\nHost: x\r\n\r\n", "max_batch_size");
    survives_text("GET /v2/models/stats HTTP/1.1\r\nHost: x\r\n\r\n", "inference_stats");
    survives_text("GET /v2/models/nope HTTP/1.1\r\nHost: x\r\n\r\n", "unknown model");
    survives_text("POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
                  "READY");
    survives_text("GET /sluice/v1/memory HTTP/1.1\r\nHost: x\r\n\r\n", "watermarks");
    survives_text("GET /sluice/v1/memory/stats HTTP/1.1\r\nHost: x\r\n\r\n", "num_ooms");
    survives_text("POST /sluice/v1/memory/reset-peaks HTTP/1.1\r\nHost: x\r\nContent-Length: "
                  "15\r\n\r\n{\"pool\":\"nope\"}",
                  "no pool 'nope'");
    survives_text("GET /sluice/v1/models HTTP/1.1\r\nHost: x\r\n\r\n", "batching");
    survives_text("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "sluice_memory_bytes");
    survives_text("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
                  "sluice_memory_stat_peak_bytes{pool=\"weights\",measure=\"reserved\"} 0");
    survives_text("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
                  "sluice_model_loads_total{outcome=\"failed\"} 1");
    (void)snprintf(
        request, sizeof(request),
        "POST /v2/models/ident/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s",
        strlen(infer), infer);
    survives_text(request, "1.5,2.0");
    (void)snprintf(request, sizeof(request),
                   "POST /v2/models/ident/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                   "chunked\r\n\r\n%zx\r\n%s\r\n0\r\n\r\n",
                   strlen(infer), infer);
    survives_text(request, "1.5,2.0");
}

/* ---- HTTP/2 by hand: headers as literals without an index ---- */

static uint8_t *put_frame(uint8_t *to, size_t size, uint8_t type, uint8_t flags, uint32_t stream)
{
    const uint8_t head[9] = {
        (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size, type, flags, 0, 0, 0,
        (uint8_t)stream};

    memcpy(to, head, sizeof(head));
    return to + sizeof(head);
}

static uint8_t *put_header(uint8_t *to, const char *name, const char *value)
{
    *to++ = 0;
    *to++ = (uint8_t)strlen(name);
    to = (uint8_t *)memcpy(to, name, strlen(name)) + strlen(name);
    *to++ = (uint8_t)strlen(value);
    return (uint8_t *)memcpy(to, value, strlen(value)) + strlen(value);
}

static size_t build_grpc(uint8_t *to, const char *path, const void *message, size_t size)
{
    uint8_t headers[512], *end = headers, *start = to;
    const uint8_t prefix[5] = {0, 0, 0, (uint8_t)(size >> 8), (uint8_t)size};

    end = put_header(end, ":method", "POST");
    end = put_header(end, ":scheme", "http");
    end = put_header(end, ":path", path);
    end = put_header(end, ":authority", "/run/a.sock"); /* as some clients send it */
    end = put_header(end, "content-type", "application/grpc");
    end = put_header(end, "te", "trailers");
    end = put_header(end, "grpc-timeout", "5S");
    to = (uint8_t *)memcpy(to, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24) + 24;
    to = put_frame(to, 0, 4, 0, 0);
    to = put_frame(to, (size_t)(end - headers), 1, 4, 1);
    to = (uint8_t *)memcpy(to, headers, (size_t)(end - headers)) + (end - headers);
    to = put_frame(to, size + 5, 0, 1, 1);
    to = (uint8_t *)memcpy(to, prefix, 5) + 5;
    if (size > 0)
        memcpy(to, message, size);
    return (size_t)(to + size - start);
}

static void survives_grpc(const char *path, const void *message, size_t size, const char *expected)
{
    uint8_t bytes[2048];

    survives(bytes, build_grpc(bytes, path, message, size), expected);
}

static void grpc_calls_survive_every_failing_allocation(void **state)
{
    static const char infer[] = "\x0a\x05"
                                "ident\x1a\x02id\x2a\x12\x0a\x06INPUT0\x12\x04"
                                "FP32\x1a\x02\x01\x02\x3a\x08\0\0\0\0\0\0\x80\x3f";

    (void)state;
    survives_grpc("/inference.GRPCInferenceService/ServerMetadata", "", 0, "sluice");
    survives_grpc("/inference.GRPCInferenceService/ModelMetadata", "\x0a\x05ident", 7, "INPUT0");
    survives_grpc("/inference.GRPCInferenceService/ModelInfer", infer, sizeof(infer) - 1,
                  "OUTPUT0");
    survives_grpc("/inference.GRPCInferenceService/ModelStreamInfer", infer, sizeof(infer) - 1,
                  "OUTPUT0");
    survives_grpc("/grpc.health.v1.Health/Watch", "", 0, "\x08\x01");
    survives_grpc("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "\x3a\x00", 2,
                  "sluice.v1.Admin");
    survives_grpc("/sluice.v1.Admin/EmptyCache", "", 0, "freed_bytes");
    /* HEADERS that end the stream */
    survives_grpc("/no.Such/Method", "", 0, "\x01\x05");
}

/* ---- the end of a connection ---- */

static const char LAST_ANSWER[] = "GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
static const char NO_REQUEST[] = "nonsense\r\n\r\n";

struct guest {
    int fd;
    struct connection *connection;
    char answer[4096]; /* all that was said until the end of file */
    size_t size;
};

static void say(struct guest *guest, const void *bytes, size_t size)
{
    int pair[2];

    assert_int_equal(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
    connection_open(fake.server, pair[1], ROLE_ADMIN, true);
    guest->connection = CONTAINER_OF(fake.server->connections.prev, struct connection, link);
    guest->fd = pair[0];
    guest->size = 0;
    assert_int_equal((ssize_t)size, send(guest->fd, bytes, size, MSG_NOSIGNAL));
}

/* Runs the loop until the server said its last word. */
static void hear_it_out(struct guest *guest)
{
    ssize_t got = -1;

    while (got != 0) {
        if (got < 0)
            (void)event_base_loop(fake.base, EVLOOP_ONCE);
        got = recv(guest->fd, guest->answer + guest->size, sizeof(guest->answer) - guest->size, 0);
        assert_true(got >= 0 || errno == EAGAIN);
        guest->size += got > 0 ? (size_t)got : 0;
    }
}

/* As clients do that acknowledge what they read: a socket that is gone would answer EPIPE. */
static void still_talks(struct guest *guest)
{
    static const uint8_t ping[] = {0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};

    for (int i = 0; i < 2; i++) {
        assert_int_equal(sizeof(ping), send(guest->fd, ping, sizeof(ping), MSG_NOSIGNAL));
        (void)event_base_loop(fake.base, EVLOOP_NONBLOCK);
    }
    assert_int_equal(1, fake.server->connection_count);
}

static void leaves(struct guest *guest)
{
    (void)close(guest->fd);
    (void)event_base_loop(fake.base, EVLOOP_NONBLOCK);
    assert_int_equal(0, fake.server->connection_count);
}

static void a_client_may_talk_on_behind_the_last_answer_of_http1(void **state)
{
    const char *const requests[] = {LAST_ANSWER, NO_REQUEST};
    const char *const answers[] = {"\"sluice\"", "400 Bad Request"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct guest guest;

        say(&guest, requests[i], strlen(requests[i]));
        hear_it_out(&guest);
        assert_true(holds(guest.answer, guest.size, answers[i]));
        still_talks(&guest);
        leaves(&guest);
    }
}

static void on_drained(void *arg)
{
    *(bool *)arg = true;
}

static void a_client_may_talk_on_behind_the_last_answer_of_a_drain(void **state)
{
    uint8_t bytes[2048];
    struct guest guest;
    bool is_drained = false;

    (void)state;
    say(&guest, bytes, build_grpc(bytes, "/inference.GRPCInferenceService/ServerMetadata", "", 0));
    (void)event_base_loop(fake.base, EVLOOP_NONBLOCK);
    server_drain(fake.server, on_drained, &is_drained);
    hear_it_out(&guest);
    assert_true(holds(guest.answer, guest.size, "sluice"));
    still_talks(&guest);
    assert_false(is_drained);
    leaves(&guest);
    assert_true(is_drained);
}

static size_t build_open_stream(uint8_t *to)
{
    static const char infer[] = "\x0a\x05"
                                "ident\x1a\x02id\x2a\x12\x0a\x06INPUT0\x12\x04"
                                "FP32\x1a\x02\x01\x02\x3a\x08\0\0\0\0\0\0\x80\x3f";
    size_t size = build_grpc(to, "/inference.GRPCInferenceService/ModelStreamInfer", infer,
                             sizeof(infer) - 1);

    to[size - (sizeof(infer) - 1) - 5 - 5] = 0; /* DATA's flags: the stream goes on */
    return size;
}

static void an_idle_stream_does_not_hold_up_a_drain(void **state)
{
    uint8_t bytes[2048];
    struct guest guest;
    bool is_drained = false;

    (void)state;
    say(&guest, bytes, build_open_stream(bytes));
    (void)event_base_loop(fake.base, EVLOOP_NONBLOCK);
    server_drain(fake.server, on_drained, &is_drained);
    hear_it_out(&guest); /* to its end, although the client does not end the stream */
    assert_true(holds(guest.answer, guest.size, "OUTPUT0"));
    leaves(&guest);
    assert_true(is_drained);
}

/* What breaks the protocol is told so; calls that it had under way end there. */
static void a_client_may_talk_on_behind_a_broken_frame(void **state)
{
    uint8_t bytes[2048], *end;
    struct guest guest;

    (void)state;
    end = bytes + build_grpc(bytes, "/grpc.health.v1.Health/Watch", "", 0);
    end = put_frame(end, 0, 6, 0, 0); /* a PING without its eight bytes */
    say(&guest, bytes, (size_t)(end - bytes));
    hear_it_out(&guest);
    assert_int_equal(0, server_busy(fake.server));
    still_talks(&guest);
    leaves(&guest);
}

static void a_client_that_never_closes_is_closed_in_time(void **state)
{
    struct guest guest;
    int64_t now_us;
    const char byte = 0;

    (void)state;
    say(&guest, LAST_ANSWER, strlen(LAST_ANSWER));
    hear_it_out(&guest);
    still_talks(&guest);
    now_us = fake.server->turn_us;
    connection_sweep(guest.connection, now_us + 1000000);
    assert_int_equal(1, fake.server->connection_count);
    connection_sweep(guest.connection, now_us + 3000000);
    assert_int_equal(0, fake.server->connection_count);
    (void)event_base_loop(fake.base, EVLOOP_NONBLOCK);
    assert_int_equal(-1, send(guest.fd, &byte, 1, MSG_NOSIGNAL));
    (void)close(guest.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rest_calls_survive_every_failing_allocation, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(grpc_calls_survive_every_failing_allocation, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_client_may_talk_on_behind_the_last_answer_of_http1, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_client_may_talk_on_behind_the_last_answer_of_a_drain,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(an_idle_stream_does_not_hold_up_a_drain, setup, teardown),
        cmocka_unit_test_setup_teardown(a_client_may_talk_on_behind_a_broken_frame, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_client_that_never_closes_is_closed_in_time, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
