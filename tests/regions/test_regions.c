/* Regions: what may be registered, who may use it, and what happens to those whose object shrinks.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/guard.h"
#include "device/device.h"
#include "regions/regions.h"
#include "support/fail_alloc.h"
#include "support/unit.h"

enum { PAGE = 4096, OBJECT = 4 * PAGE };

static char key[64];
static int object = -1;
static struct regions *regions;
static struct error err;

static const struct region_limits plenty = {.regions = 8, .bytes = 1 << 20};

static int setup(void **state)
{
    (void)state;
    (void)snprintf(key, sizeof(key), "/sluice-unit-%d", (int)getpid());
    object = shm_open(key, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (object < 0 || ftruncate(object, OBJECT) != 0 || regions_create(NULL, &regions) != STATUS_OK)
        return -1;
    regions_set_limits(regions, &plenty);
    memset(&err, 0, sizeof(err));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    regions_destroy(regions);
    (void)close(object);
    return shm_unlink(key);
}

static struct region_name name_of(const char *text)
{
    return (struct region_name){text, strlen(text)};
}

static struct region_order order_of(const char *name, uint64_t offset, uint64_t bytes)
{
    return (struct region_order){.name = name_of(name),
                                 .key = name_of(key),
                                 .offset = offset,
                                 .bytes = bytes,
                                 .peer = {.is_local = true}};
}

static enum status enter(const char *name, uint64_t offset, uint64_t bytes)
{
    const struct region_order order = order_of(name, offset, bytes);

    return regions_register(regions, REGION_SYSTEM, &order, &err);
}

static enum status take(const char *name, uint64_t offset, uint64_t bytes,
                        struct region_span *out_span)
{
    return region_take(regions, name_of(name), offset, bytes, true, out_span, &err);
}

static struct regions_use use(void)
{
    struct regions_use now;

    regions_read_use(regions, &now);
    return now;
}

static void a_region_is_the_objects_bytes(void **state)
{
    struct region_span span;
    char seen[3] = "";

    (void)state;
    assert_ok(enter("r", PAGE + 100, 200));
    assert_int_equal(3, pwrite(object, "abc", 3, PAGE + 150));
    assert_ok(take("r", 50, 20, &span));
    assert_memory_equal("abc", span.data, 3);
    memcpy((char *)span.data + 3, "xyz", 3);
    assert_int_equal(3, pread(object, seen, 3, PAGE + 153));
    assert_memory_equal("xyz", seen, 3);
    assert_int_equal(1, use().count[REGION_SYSTEM]);
    assert_int_equal(PAGE, use().bytes[REGION_SYSTEM]);
    region_give(span.region);
}

static void parts_outside_the_object_are_refused(void **state)
{
    static const uint64_t parts[][2] = {
        {0, OBJECT + 1},        {OBJECT, 1},     {OBJECT - 1, 2},       {UINT64_MAX, 1},
        {UINT64_MAX, 2},        {1, UINT64_MAX}, {UINT64_MAX - 10, 20}, {PAGE, INT64_MAX},
        {0, UINT64_MAX - 5000}, {0, 0},          {OBJECT + PAGE, PAGE}};

    (void)state;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        assert_int_not_equal(STATUS_OK, enter("r", parts[i][0], parts[i][1]));
        assert_true(err.text[0] != '\0');
    }
    assert_int_equal(0, use().bytes[REGION_SYSTEM]);
}

static void spans_outside_the_region_are_refused(void **state)
{
    struct region_span span;

    (void)state;
    assert_ok(enter("r", 0, 100));
    assert_int_equal(STATUS_INVALID, take("r", 101, 0, &span));
    assert_int_equal(STATUS_INVALID, take("r", 100, 1, &span));
    assert_int_equal(STATUS_INVALID, take("r", UINT64_MAX, 2, &span));
    assert_int_equal(STATUS_INVALID, take("r", 1, UINT64_MAX, &span));
    assert_int_equal(STATUS_NOT_FOUND, take("s", 0, 1, &span));
    assert_ok(take("r", 100, 0, &span));
    region_give(span.region);
}

static void keys_that_are_no_names_are_refused(void **state)
{
    static const char *const keys[] = {"", "/", ".", "..", "/..", "//x", "a/b", "/a/../b", "../x"};
    struct region_order order = order_of("r", 0, 16);

    (void)state;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        order.key = name_of(keys[i]);
        assert_int_equal(STATUS_INVALID, regions_register(regions, REGION_SYSTEM, &order, &err));
    }
    order.key = (struct region_name){"a\0b", 3};
    assert_int_equal(STATUS_INVALID, regions_register(regions, REGION_SYSTEM, &order, &err));
    order.key = name_of("\xff");
    assert_int_equal(STATUS_INVALID, regions_register(regions, REGION_SYSTEM, &order, &err));
    order.key = name_of("/sem.of_somebody");
    assert_int_equal(STATUS_DENIED, regions_register(regions, REGION_SYSTEM, &order, &err));
    order.key = name_of(key);
    order.name = name_of("line\nbreak");
    assert_int_equal(STATUS_INVALID, regions_register(regions, REGION_SYSTEM, &order, &err));
    order.name = name_of("r");
    order.key = name_of(key + 1); /* without its slash it is the same */
    assert_ok(regions_register(regions, REGION_SYSTEM, &order, &err));
}

static void limits_count_names_and_bytes_in_use(void **state)
{
    const struct region_limits few = {.regions = 2, .bytes = 3 * PAGE};
    struct region_span span;

    (void)state;
    regions_set_limits(regions, &few);
    assert_int_equal(STATUS_NO_MEMORY, enter("r", 0, 3 * PAGE + 1));
    assert_ok(enter("a", 0, 2 * PAGE));
    assert_int_equal(STATUS_NO_MEMORY, enter("b", PAGE - 1, 2)); /* two pages */
    assert_ok(enter("b", 0, 1));
    assert_int_equal(STATUS_NO_MEMORY, enter("c", 0, 1));
    assert_ok(take("a", 0, 1, &span));
    regions_unregister(regions, REGION_SYSTEM, name_of("a"));
    assert_int_equal(2 * PAGE, use().leaving_bytes);
    assert_int_equal(STATUS_NO_MEMORY, enter("c", 0, 1)); /* its bytes are still in use */
    region_give(span.region);
    assert_ok(enter("c", 0, 1));
}

static void a_name_is_free_at_once_and_its_memory_with_the_last_use(void **state)
{
    struct region_span old, new;

    (void)state;
    assert_ok(enter("r", 0, 100));
    assert_int_equal(STATUS_EXISTS, enter("r", 0, 100));
    assert_ok(take("r", 0, 100, &old));
    regions_unregister(regions, REGION_CUDA, name_of("r")); /* another kind */
    assert_int_equal(1, use().count[REGION_SYSTEM]);
    regions_unregister(regions, REGION_SYSTEM, name_of(""));
    assert_int_equal(STATUS_NOT_FOUND, take("r", 0, 1, &new));
    memset(old.data, 7, 100);
    assert_ok(enter("r", PAGE, 100));
    assert_ok(take("r", 0, 100, &new));
    assert_false(region_spans_meet(&old, &new));
    region_give(old.region);
    region_give(new.region);
}

static void spans_meet_by_bytes_not_by_names(void **state)
{
    struct region_span a, b;

    (void)state;
    assert_ok(enter("a", 0, 2 * PAGE));
    assert_ok(enter("b", PAGE, PAGE));
    assert_ok(take("a", PAGE + 10, 10, &a));
    assert_ok(take("b", 19, 10, &b));
    assert_true(region_spans_meet(&a, &b));
    region_give(b.region);
    assert_ok(take("b", 20, 10, &b));
    assert_false(region_spans_meet(&a, &b));
    region_give(a.region);
    region_give(b.region);
}

static void policies_say_who_may_register(void **state)
{
    struct region_limits limits = plenty;
    struct region_order order = order_of("r", 0, 16);

    (void)state;
    order.peer.is_local = false;
    assert_int_equal(STATUS_DENIED, regions_register(regions, REGION_SYSTEM, &order, &err));
    limits.policy = REGIONS_ANY;
    regions_set_limits(regions, &limits);
    assert_ok(regions_register(regions, REGION_SYSTEM, &order, &err));
    limits.policy = REGIONS_OFF;
    regions_set_limits(regions, &limits);
    assert_int_equal(STATUS_UNSUPPORTED, enter("s", 0, 16));
    regions_set_limits(regions, &plenty);
    order.peer.is_local = true; /* but there is no device that could import */
    assert_int_equal(STATUS_UNSUPPORTED, regions_register(regions, REGION_CUDA, &order, &err));
}

static void a_known_client_gets_what_it_could_open_itself(void **state)
{
    struct region_order order = order_of("r", 0, 16);
    struct region_span span;

    (void)state;
    order.peer.is_known = true;
    order.peer.uid = getuid() + 1;
    order.peer.gid = getgid() + 1;
    assert_int_equal(STATUS_DENIED, regions_register(regions, REGION_SYSTEM, &order, &err));
    assert_int_equal(0, fchmod(object, 0604));
    assert_ok(regions_register(regions, REGION_SYSTEM, &order, &err));
    assert_int_equal(STATUS_DENIED, take("r", 0, 1, &span)); /* to read, not to write */
    assert_ok(region_take(regions, name_of("r"), 0, 1, false, &span, &err));
    region_give(span.region);
    order.name = name_of("s");
    order.peer.gid = getgid();
    assert_int_equal(STATUS_DENIED, regions_register(regions, REGION_SYSTEM, &order, &err));
    assert_int_equal(0, fchmod(object, 0660));
    assert_ok(regions_register(regions, REGION_SYSTEM, &order, &err));
    assert_ok(take("s", 0, 1, &span));
    region_give(span.region);
}

static void regions_go_with_their_process(void **state)
{
    struct region_order order = order_of("r", 0, 16);
    int gate[2];
    char byte;

    (void)state;
    assert_int_equal(0, pipe(gate));
    order.peer.is_known = true;
    order.peer.uid = getuid();
    order.peer.pid = fork();
    if (order.peer.pid == 0) {
        (void)close(gate[1]);
        (void)!read(gate[0], &byte, 1); /* until the parent closes it */
        _exit(0);
    }
    assert_ok(regions_register(regions, REGION_SYSTEM, &order, &err));
    assert_ok(enter("stays", 0, 16));
    regions_sweep(regions);
    assert_int_equal(2, use().count[REGION_SYSTEM]);
    assert_int_equal(0, close(gate[0]) + close(gate[1]));
    assert_int_equal(order.peer.pid, waitpid(order.peer.pid, NULL, 0));
    regions_sweep(regions);
    assert_int_equal(1, use().count[REGION_SYSTEM]);
}

static void an_object_that_shrinks_breaks_its_region_and_nothing_else(void **state)
{
    struct region_span span, other;
    unsigned sum = 0;

    (void)state;
    assert_ok(enter("r", PAGE, 3 * PAGE));
    assert_ok(enter("other", 0, 16));
    assert_ok(take("r", 0, 3 * PAGE, &span));
    assert_ok(take("other", 0, 16, &other));
    memset(span.data, 1, 3 * PAGE);
    assert_int_equal(0, ftruncate(object, 2 * PAGE));
    for (size_t i = 0; i < 3 * PAGE; i++)
        sum += ((volatile unsigned char *)span.data)[i];
    assert_in_range(sum, PAGE, 3 * PAGE);
    memset(span.data, 2, 3 * PAGE); /* into nothing */
    assert_int_equal(STATUS_INVALID, region_check(span.region, &err));
    assert_non_null(strstr(err.text, "'r' is broken"));
    assert_ok(region_check(other.region, &err));
    region_give(span.region);
    assert_int_equal(STATUS_INVALID, take("r", 0, 1, &span));
    region_give(other.region);
    regions_unregister(regions, REGION_SYSTEM, name_of("r"));
    assert_ok(enter("r", 0, 2 * PAGE)); /* as it is now */
}

static void *write_all(void *arg) /* a span: the thread's own bytes */
{
    const struct region_span *span = arg;

    for (unsigned turn = 0; turn < 200; turn++)
        memset(span->data, (int)turn, span->bytes);
    return NULL;
}

static void threads_that_write_while_it_shrinks_go_on(void **state)
{
    struct region_span span[3];
    pthread_t threads[3];

    (void)state;
    assert_ok(enter("r", 0, OBJECT));
    for (size_t i = 0; i < 3; i++) {
        assert_ok(take("r", i * PAGE, PAGE, &span[i]));
        assert_int_equal(0, pthread_create(&threads[i], NULL, write_all, &span[i]));
    }
    assert_int_equal(0, ftruncate(object, 0));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(0, pthread_join(threads[i], NULL));
    for (size_t i = 0; i < 3; i++) {
        (void)write_all(&span[i]); /* at the latest now */
        assert_int_equal(STATUS_INVALID, region_check(span[i].region, &err));
        region_give(span[i].region);
    }
}

static void bus_errors_elsewhere_are_not_ours(void **state)
{
    pid_t child;
    int status;

    (void)state;
    child = fork();
    if (child == 0) {
        volatile char *map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, object, 0);

        (void)signal(SIGBUS, SIG_DFL);
        if (enter("r", 0, OBJECT) != STATUS_OK || ftruncate(object, 0) != 0)
            _exit(1);
        _exit(map[0]);
    }
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFSIGNALED(status));
    assert_int_equal(SIGBUS, WTERMSIG(status));
}

static enum status register_and_use(void *arg)
{
    struct regions *made = NULL;
    struct region_span span;
    const struct region_order order = order_of("r", 0, 16);
    enum status status = regions_create(NULL, &made);

    (void)arg;
    if (status != STATUS_OK)
        return status;
    regions_set_limits(made, &plenty);
    status = regions_register(made, REGION_SYSTEM, &order, &err);
    if (status == STATUS_OK) {
        status = region_take(made, name_of("r"), 0, 16, true, &span, &err);
        if (status == STATUS_OK)
            region_give(span.region);
    }
    regions_destroy(made);
    return status;
}

static void nothing_is_left_when_memory_is_short(void **state)
{
    (void)state;
    assert_true(fail_each_alloc(register_and_use, NULL) >= 3); /* regions, region, mapping */
}

static void keep_info(void *arg, const struct region_info *info)
{
    *(struct region_info *)arg = *info;
}

static void regions_are_told(void **state)
{
    struct region_info info;

    (void)state;
    assert_ok(enter("r", 8, 16));
    regions_for_each(regions, REGION_KINDS, keep_info, &info);
    assert_string_equal("r", info.name.data);
    assert_string_equal(key, info.key);
    assert_int_equal(8, info.offset);
    assert_int_equal(16, info.bytes);
    assert_true(info.is_whole);
    assert_ok(regions_find(regions, REGION_SYSTEM, name_of("r"), &info, &err));
    assert_int_equal(STATUS_NOT_FOUND,
                     regions_find(regions, REGION_CUDA, name_of("r"), &info, &err));
    assert_int_equal(STATUS_NOT_FOUND,
                     regions_find(regions, REGION_SYSTEM, name_of("s"), &info, &err));
}

/* ---- memory of the device ---- */

static struct fake_device {
    struct device device;
    unsigned open;
    char bytes[256];
} fake;

static enum status fake_import(struct device *device, const struct device_import *import,
                               void **out_address, struct error *error)
{
    if (import->bytes > sizeof(fake.bytes) || import->device_id != 0)
        return error_set(error, STATUS_INVALID, "no");
    assert_ptr_equal(&fake.device, device);
    fake.open++;
    *out_address = fake.bytes;
    return STATUS_OK;
}

static void fake_close(struct device *device, void *address)
{
    assert_ptr_equal(&fake.device, device);
    assert_ptr_equal(fake.bytes, address);
    fake.open--;
}

static void memory_of_the_device_is_imported_once_and_given_back(void **state)
{
    static const struct device_ops ops = {
        .name = "fake", .import_open = fake_import, .import_close = fake_close};
    char handle[64] = "a handle";
    struct region_order order = {.name = name_of("d"),
                                 .handle = handle,
                                 .handle_bytes = sizeof(handle),
                                 .bytes = 256,
                                 .peer = {.is_local = true}};
    struct region_span span, again;
    struct regions *made;

    (void)state;
    fake.device.ops = &ops;
    assert_ok(regions_create(&fake.device, &made));
    regions_set_limits(made, &plenty);
    order.handle_bytes = 63;
    assert_int_equal(STATUS_INVALID, regions_register(made, REGION_CUDA, &order, &err));
    order.handle_bytes = 64;
    order.device_id = 1;
    assert_int_equal(STATUS_INVALID, regions_register(made, REGION_CUDA, &order, &err));
    order.device_id = 0;
    assert_ok(regions_register(made, REGION_CUDA, &order, &err));
    assert_ok(region_take(made, name_of("d"), 8, 8, true, &span, &err));
    assert_ptr_equal(fake.bytes + 8, span.data);
    assert_ok(region_take(made, name_of("d"), 15, 8, true, &again, &err));
    assert_true(region_spans_meet(&span, &again));
    assert_int_equal(REGION_CUDA, region_kind_of(span.region));
    regions_unregister(made, REGION_CUDA, name_of("d"));
    region_give(again.region);
    assert_int_equal(1, fake.open);
    region_give(span.region);
    assert_int_equal(0, fake.open);
    regions_destroy(made);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_region_is_the_objects_bytes),
        TEST(parts_outside_the_object_are_refused),
        TEST(spans_outside_the_region_are_refused),
        TEST(keys_that_are_no_names_are_refused),
        TEST(limits_count_names_and_bytes_in_use),
        TEST(a_name_is_free_at_once_and_its_memory_with_the_last_use),
        TEST(spans_meet_by_bytes_not_by_names),
        TEST(policies_say_who_may_register),
        TEST(a_known_client_gets_what_it_could_open_itself),
        TEST(regions_go_with_their_process),
        TEST(an_object_that_shrinks_breaks_its_region_and_nothing_else),
        TEST(threads_that_write_while_it_shrinks_go_on),
        TEST(bus_errors_elsewhere_are_not_ours),
        TEST(nothing_is_left_when_memory_is_short),
        TEST(regions_are_told),
        TEST(memory_of_the_device_is_imported_once_and_given_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
