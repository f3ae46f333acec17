/* The system's word on memory: systemd's protocol over a FIFO and a socket, and what is no order.
 */
#include "lifecycle/pressure.h"

#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/unit.h"

static struct event_base *base;
static char folder[] = "/tmp/sluice-pressure-XXXXXX";
static unsigned times;

static int set_up(void **state)
{
    (void)state;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    assert_non_null(mkdtemp(folder));
    base = event_base_new();
    assert_non_null(base);
    times = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    event_base_free(base);
    (void)rmdir(folder);
    unsetenv("MEMORY_PRESSURE_WATCH");
    unsetenv("MEMORY_PRESSURE_WRITE");
    return 0;
}

static void pressed(void *arg)
{
    assert_ptr_equal(arg, &times);
    times++;
}

static struct pressure *watch(const char *path, const char *write)
{
    struct pressure *pressure;

    setenv("MEMORY_PRESSURE_WATCH", path, 1);
    if (write != NULL)
        setenv("MEMORY_PRESSURE_WRITE", write, 1);
    assert_ok(pressure_create(base, pressed, &times, &pressure));
    return pressure;
}

static void turn(void)
{
    assert_true(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
}

static void a_fifo_is_told_the_trigger_and_heard(void **state)
{
    struct pressure *pressure;
    char path[64], said[16] = "";
    int fd;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/fifo", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    fd = open(path, O_RDWR | O_NONBLOCK);
    assert_true(fd >= 0);
    pressure = watch(path, "c29tZQ=="); /* "some" */
    assert_string_equal(pressure_watched(pressure), path);
    assert_int_equal(read(fd, said, sizeof(said)), 4);
    assert_string_equal(said, "some");
    turn();
    assert_int_equal(times, 0);
    assert_int_equal(write(fd, "!", 1), 1);
    turn();
    assert_int_equal(times, 1);
    pressure_destroy(pressure);
    (void)close(fd);
    (void)unlink(path);
}

static void a_socket_is_heard_until_it_ends(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), fd;
    struct pressure *pressure;
    char said[64] = "";

    (void)state;
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", folder);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 1), 0);
    pressure = watch(address.sun_path, "c29tZSAyMDAwMDAgMjAwMDAwMAA=");
    fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, said, sizeof(said)), 20); /* as systemd has it, with its zero byte */
    assert_string_equal(said, "some 200000 2000000");
    assert_int_equal(write(fd, "x", 1), 1);
    turn();
    assert_int_equal(times, 1);
    (void)close(fd);
    turn();
    assert_int_equal(times, 1);
    assert_string_equal(pressure_watched(pressure), "nothing");
    pressure_destroy(pressure);
    (void)close(listener);
    (void)unlink(address.sun_path);
}

static void orders_that_are_none_are_ignored(void **state)
{
    static const struct {
        const char *watch, *write;
    } bad[] = {{"/dev/null", NULL},
               {"relative", "c29tZQ=="},
               {"/nonexistent/pressure", "c29tZQ=="},
               {"/dev/zero", "c29t*"},
               {"/dev/zero", "c29t=Q"}};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct pressure *pressure = watch(bad[i].watch, bad[i].write);

        assert_string_equal(pressure_watched(pressure), "nothing");
        turn();
        pressure_destroy(pressure);
    }
    assert_int_equal(times, 0);
}

static void without_an_order_the_kernel_s_own_files_are_tried(void **state)
{
    struct pressure *pressure;

    (void)state;
    assert_ok(pressure_create(base, pressed, &times, &pressure));
    if (access("/proc/pressure/memory", W_OK) == 0)
        assert_non_null(strstr(pressure_watched(pressure), "pressure"));
    turn();
    (void)pressure_poll(pressure);
    assert_false(pressure_poll(pressure)); /* nothing happens twice in a microsecond */
    pressure_destroy(pressure);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_fifo_is_told_the_trigger_and_heard),
        TEST(a_socket_is_heard_until_it_ends),
        TEST(orders_that_are_none_are_ignored),
        TEST(without_an_order_the_kernel_s_own_files_are_tried),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
