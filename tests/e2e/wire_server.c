/* The wire alone: the real server over faked models, for protocol tests and for measuring what a
 * request costs in serve/.   wire_server [Section.Key=VALUE]…   Runs until SIGTERM, which drains.
 * FAKE_HOLD=BYTES in the environment: so much of HostLimit= is taken by nobody that ever leaves.
 */
#include "serve/fake_daemon.h"

#include <signal.h>
#include <stdio.h>

#include "observe/log.h"

static void stop(void *arg)
{
    (void)event_base_loopbreak(arg);
}

static void on_signal(evutil_socket_t signal_number, short what, void *arg)
{
    (void)signal_number, (void)what, (void)arg;
    fake_release();
    server_drain(fake.server, stop, fake.base);
}

static void drain(void *arg)
{
    (void)arg;
    server_drain(fake.server, stop, fake.base);
}

int main(int argc, char **argv)
{
    struct config_source source = {.set_count = (size_t)argc - 1,
                                   .sets = (const char *const *)argv + 1};
    struct config_set *set = NULL;
    struct event *on_term;
    struct server_config config = {0};
    struct error err = {0};
    const char *hold = getenv("FAKE_HOLD");
    size_t hold_bytes = hold == NULL ? 0 : strtoul(hold, NULL, 10);
    void *held = NULL;

    log_init(NULL);
    if (config_read(&source, &set, &err) != STATUS_OK)
        return fprintf(stderr, "%s\n", err.text), 78;
    fake_init(config_values(set)->memory.host_limit.bytes);
    if (hold_bytes > 0 && host_pool_take(fake.pool, hold_bytes, &held) != STATUS_OK)
        return fprintf(stderr, "there is no room to hold\n"), 1;
    fake.base = event_base_new();
    config.base = fake.base;
    config.config = config_values(set);
    config.repository = &fake.repository;
    config.batcher = &fake.batcher;
    config.warden = &fake.warden;
    config.host_pool = fake.pool;
    config.hooks.drain = drain;
    if (server_create(&config, &fake.server, &err) != STATUS_OK)
        return fprintf(stderr, "%s\n", err.text), 1;
    on_term = evsignal_new(fake.base, SIGTERM, on_signal, NULL);
    (void)event_add(on_term, NULL);
    (void)event_base_dispatch(fake.base);
    server_destroy(fake.server);
    event_free(on_term);
    event_base_free(fake.base);
    if (held != NULL)
        host_pool_give(fake.pool, held, hold_bytes);
    host_pool_destroy(fake.pool);
    ledger_destroy(fake.ledger);
    config_destroy(set);
    return 0;
}
