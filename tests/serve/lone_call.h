/* A call without a connection or a loop: what codecs need. */
#ifndef TESTS_SERVE_LONE_CALL_H
#define TESTS_SERVE_LONE_CALL_H

#include "serve/fake_daemon.h"
#include "serve/internal.h"
#include "support/unit.h"

static struct server server;
static struct call *call;
static struct error err;

static int setup(void **state)
{
    (void)state;
    if (fake.pool == NULL)
        fake_init(64 << 20);
    server.host_pool = fake.pool;
    server.limits.max_message_bytes = 1 << 20;
    server.deadlines.armed_us = CLOCK_NEVER;
    server.turn_due = true; /* there is no loop to tell */
    list_init(&server.waiting);
    call = call_create(&server, NULL);
    memset(&err, 0, sizeof(err));
    return call == NULL;
}

static int teardown(void **state)
{
    struct host_pool_stats stats;

    (void)state;
    call_unref(call);
    call_pool_trim(&server);
    host_pool_read(fake.pool, &stats);
    return stats.in_use_bytes != 0; /* every buffer must be back */
}

static void give_body(const void *bytes, size_t size)
{
    uint8_t *copy = call_take(call, size + 1);

    assert_non_null(copy);
    memcpy(copy, bytes, size);
    call->body.bytes = copy;
    call->body.size = call->body.received = size;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
