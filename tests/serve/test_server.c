/* The server as it comes up: it is there with all its listeners, or nothing is left of it. */
#include "support/unit.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "serve/fake_daemon.h"
#include "support/fail_alloc.h"

struct bench {
    char folder[64];
    char socket_path[96];
    struct config_set *settings;
    struct activated_fd activated; /* a listening socket as systemd would hand it over */
    struct server_config config;
};

static int listening_socket(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&any, sizeof(any)), 0);
    assert_int_equal(listen(fd, 1), 0);
    return fd;
}

static void read_settings(struct bench *bench)
{
    char admin[128];
    const char *const sets[] = {"Server.GrpcListen=127.0.0.1:0", "Server.HttpListen=127.0.0.1:0",
                                "Server.MetricsListen=", admin};
    struct config_source source = {.set_count = 4, .sets = sets, .file = "/dev/null"};

    (void)snprintf(admin, sizeof(admin), "Server.AdminListen=unix:%s", bench->socket_path);
    assert_ok(config_read(&source, &bench->settings, NULL));
}

static int setup(void **state)
{
    static struct bench bench;

    (void)snprintf(bench.folder, sizeof(bench.folder), "/tmp/sluice-server-XXXXXX");
    assert_non_null(mkdtemp(bench.folder));
    (void)snprintf(bench.socket_path, sizeof(bench.socket_path), "%s/admin", bench.folder);
    read_settings(&bench);
    fake_init(64 << 20);
    bench.activated = (struct activated_fd){.name = "metrics", .fd = listening_socket()};
    bench.config = (struct server_config){.config = config_values(bench.settings),
                                          .repository = &fake.repository,
                                          .batcher = &fake.batcher,
                                          .warden = &fake.warden,
                                          .host_pool = fake.pool,
                                          .activated = 1,
                                          .activated_fds = &bench.activated};
    *state = &bench;
    return 0;
}

static int teardown(void **state)
{
    struct bench *bench = *state;

    if (bench->activated.fd >= 0)
        (void)close(bench->activated.fd);
    host_pool_destroy(fake.pool);
    ledger_destroy(fake.ledger);
    config_destroy(bench->settings);
    return rmdir(bench->folder); /* fails when a socket was left */
}

static size_t open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    size_t count = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    (void)closedir(folder);
    return count;
}

static bool is_listening(int fd)
{
    int listening = 0;
    socklen_t size = sizeof(listening);

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening;
}

/* A loop of its own each time, so that libevent's tables have to grow again.
 *
 * What systemd gave stays with the caller on failure and is the server's on success: a copy of it
 * is handed over each time. */
static enum status create_once(void *arg)
{
    struct bench *bench = arg;
    struct activated_fd activated = {.name = "metrics", .fd = dup(bench->activated.fd)};
    struct server_config config = bench->config;
    struct server *server = NULL;
    enum status status;

    config.base = event_base_new();
    config.activated_fds = &activated;
    status = config.base == NULL ? STATUS_NO_MEMORY : server_create(&config, &server, NULL);
    if (status != STATUS_OK) {
        assert_null(server);
        assert_true(is_listening(activated.fd));
        (void)close(activated.fd);
    }
    server_destroy(server);
    assert_int_not_equal(access(bench->socket_path, F_OK), 0);
    if (config.base != NULL) {
        assert_int_equal(event_base_get_num_events(config.base, EVENT_BASE_COUNT_ADDED), 0);
        event_base_free(config.base);
    }
    return status;
}

static void creation_survives_every_failed_allocation(void **state)
{
    struct bench *bench = *state;
    size_t before;

    assert_ok(create_once(bench));
    before = open_descriptors();
    assert_true(fail_each_alloc(create_once, bench) > 5);
    assert_int_equal(open_descriptors(), before);
}

static void an_address_in_use_leaves_nothing_behind(void **state)
{
    struct bench *bench = *state;
    struct sockaddr_in bound;
    socklen_t size = sizeof(bound);
    char taken[64];
    const char *const sets[] = {"Server.GrpcListen=127.0.0.1:0", taken,
                                "Server.MetricsListen=", "Server.AdminListen="};
    struct config_source source = {.set_count = 4, .sets = sets, .file = "/dev/null"};
    struct config_set *settings;
    struct server *server = NULL;
    struct server_config config = bench->config;
    size_t before = open_descriptors();
    struct error err;

    assert_int_equal(getsockname(bench->activated.fd, (struct sockaddr *)&bound, &size), 0);
    (void)snprintf(taken, sizeof(taken), "Server.HttpListen=127.0.0.1:%u", ntohs(bound.sin_port));
    assert_ok(config_read(&source, &settings, &err));
    config.base = event_base_new();
    config.config = config_values(settings);
    config.activated = 0;
    assert_int_equal(server_create(&config, &server, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "Address already in use"));
    assert_null(server);
    config_destroy(settings);
    event_base_free(config.base);
    assert_int_equal(open_descriptors(), before);
}

static void a_file_where_a_socket_should_be_is_kept(void **state)
{
    struct bench *bench = *state;
    char path[] = "/tmp/sluice-kept-XXXXXX", listen[64];
    const char *const sets[] = {"Server.GrpcListen=", listen,
                                "Server.MetricsListen=", "Server.AdminListen="};
    struct config_source source = {.set_count = 4, .sets = sets, .file = "/dev/null"};
    struct config_set *settings;
    struct server *server = NULL;
    struct server_config config = bench->config;
    int fd = mkstemp(path);
    struct error err;

    assert_true(fd >= 0);
    (void)snprintf(listen, sizeof(listen), "Server.HttpListen=unix:%s", path);
    assert_ok(config_read(&source, &settings, &err));
    config.base = event_base_new();
    config.config = config_values(settings);
    config.activated = 0;
    assert_int_equal(server_create(&config, &server, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "Address already in use"));
    config_destroy(settings);
    event_base_free(config.base);
    assert_int_equal(unlink(path), 0);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(creation_survives_every_failed_allocation, setup, teardown),
        cmocka_unit_test_setup_teardown(an_address_in_use_leaves_nothing_behind, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_where_a_socket_should_be_is_kept, setup, teardown),
    };

    /* libevent allocates by ours, so that its allocations fail too. */
    event_set_mem_functions(malloc, realloc, free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
