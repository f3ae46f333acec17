#include "lifecycle/budget.h"

#include <string.h>

#include "support/fake_source.h"
#include "support/unit.h"

#define GIB ((uint64_t)1 << 30)

static enum status compute(const char *text, uint64_t device_bytes, struct budget *out,
                           struct error *err)
{
    struct fake_source device, host;
    struct config_set *set;
    enum status status;

    fake_source_init(&device, device_bytes);
    fake_source_init(&host, 64 * GIB);
    assert_ok(config_read_text("t", text, strlen(text), &set, NULL));
    status = budget_compute(config_values(set), &device.source, &host.source, out, err);
    config_destroy(set);
    return status;
}

static void shares_are_of_the_device_and_of_the_machine(void **state)
{
    struct budget budget;

    (void)state;
    assert_ok(
        compute("[Memory]\nLimit=50%\nHeadroom=10%\nHostLimit=25%\n", 100 * GIB, &budget, NULL));
    assert_int_equal(budget.limit_bytes, 50 * GIB);
    assert_int_equal(budget.headroom_bytes, 10 * GIB);
    assert_int_equal(budget.host_bytes, 16 * GIB);
}

static void bytes_are_taken_as_they_are(void **state)
{
    struct budget budget;

    (void)state;
    assert_ok(compute("[Memory]\nLimit=3G\nHeadroom=1G\nHostLimit=2G\n", 100 * GIB, &budget, NULL));
    assert_int_equal(budget.limit_bytes, 3 * GIB);
    assert_int_equal(budget.headroom_bytes, 1 * GIB);
    assert_int_equal(budget.host_bytes, 2 * GIB);
}

static void the_limit_leaves_the_headroom_free(void **state)
{
    struct budget budget;

    (void)state;
    assert_ok(compute("[Memory]\nLimit=200G\nHeadroom=1G\n", 100 * GIB, &budget, NULL));
    assert_int_equal(budget.limit_bytes, 99 * GIB);
}

static void a_headroom_of_everything_is_refused(void **state)
{
    struct budget budget = {.limit_bytes = 7};
    struct error err;

    (void)state;
    assert_int_equal(compute("[Memory]\nLimit=1G\nHeadroom=2G\n", GIB, &budget, &err),
                     STATUS_INVALID);
    assert_non_null(strstr(err.text, "Memory.Headroom leaves nothing"));
    assert_int_equal(budget.limit_bytes, 7);
}

/* As buffers are: a request and its edges, rounded up to a class of the pool. */
static void a_host_limit_that_cannot_hold_the_largest_request_is_refused(void **state)
{
    struct budget budget = {.host_bytes = 7};
    struct error err;

    (void)state;
    assert_int_equal(
        compute("[Server]\nMaxMessageBytes=8G\n[Memory]\nHostLimit=10%\n", GIB, &budget, &err),
        STATUS_INVALID);
    assert_non_null(strstr(err.text, "Memory.HostLimit is 6871947673 bytes"));
    assert_non_null(strstr(err.text, "(Server.MaxMessageBytes)"));
    assert_int_equal(
        compute("[Server]\nMaxMessageBytes=100M\n[Memory]\nHostLimit=100M\n", GIB, &budget, &err),
        STATUS_INVALID);
    assert_int_equal(budget.host_bytes, 7);
    assert_ok(
        compute("[Server]\nMaxMessageBytes=100M\n[Memory]\nHostLimit=128M\n", GIB, &budget, &err));
}

static enum status no_answer(struct mem_source *source, uint64_t *out_free, uint64_t *out_total)
{
    (void)source;
    (void)out_free;
    (void)out_total;
    return STATUS_UNSUPPORTED;
}

static void a_share_of_the_unknown_is_refused(void **state)
{
    static const struct mem_source_ops dumb = {.query = no_answer};
    struct mem_source source = {.ops = &dumb, .page_bytes = 4096};
    struct config_set *set;
    struct budget budget;
    struct error err;

    (void)state;
    assert_ok(config_read_text("t", "", 0, &set, NULL));
    assert_int_equal(budget_compute(config_values(set), &source, &source, &budget, &err),
                     STATUS_INVALID);
    assert_non_null(strstr(err.text, "Memory.Limit is a share"));
    config_destroy(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_of_the_device_and_of_the_machine),
        cmocka_unit_test(bytes_are_taken_as_they_are),
        cmocka_unit_test(the_limit_leaves_the_headroom_free),
        cmocka_unit_test(a_headroom_of_everything_is_refused),
        cmocka_unit_test(a_host_limit_that_cannot_hold_the_largest_request_is_refused),
        cmocka_unit_test(a_share_of_the_unknown_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
