/* Device memory: ranges, pages that are used again, what a refusal leaves behind. */
#include "sim_device.h"

struct fixture {
    struct device *device;
    struct mem_source *memory;
    size_t page;
};

static int open_fixture(void **state)
{
    static struct fixture fixture;

    sim_reset();
    fixture.device = open_cuda();
    fixture.memory = fixture.device->memory;
    fixture.page = fixture.memory->page_bytes;
    *state = &fixture;
    return 0;
}

static int close_fixture(void **state)
{
    struct fixture *fixture = *state;

    device_close(fixture->device);
    assert_nothing_left();
    return 0;
}

static char *reserve(struct fixture *fixture, size_t pages)
{
    void *base;

    assert_ok(fixture->memory->ops->reserve(fixture->memory, pages * fixture->page, &base));
    return base;
}

static enum status commit(struct fixture *fixture, char *base, size_t first, size_t pages)
{
    return fixture->memory->ops->commit(fixture->memory, base + first * fixture->page,
                                        pages * fixture->page);
}

static void decommit(struct fixture *fixture, char *base, size_t first, size_t pages)
{
    fixture->memory->ops->decommit(fixture->memory, base + first * fixture->page,
                                   pages * fixture->page);
}

static void release(struct fixture *fixture, char *base, size_t pages)
{
    fixture->memory->ops->release(fixture->memory, base, pages * fixture->page);
}

static void addresses_cost_nothing(void **state)
{
    struct fixture *fixture = *state;
    size_t before = sim_used_bytes();
    char *base = reserve(fixture, 1000);

    assert_int_equal(sim_used_bytes(), before);
    assert_int_equal(sim_count("cuMemCreate"), 0);
    release(fixture, base, 1000);
}

static void pages_given_back_are_mapped_elsewhere_before_any_is_created(void **state)
{
    struct fixture *fixture = *state;
    char *lane = reserve(fixture, 8), *model = reserve(fixture, 8);

    assert_ok(commit(fixture, lane, 0, 6));
    assert_int_equal(sim_count("cuMemCreate"), 6);
    decommit(fixture, lane, 2, 4);
    assert_ok(commit(fixture, model, 0, 4));
    assert_int_equal(sim_count("cuMemCreate"), 6);
    assert_ok(commit(fixture, model, 4, 1));
    assert_int_equal(sim_count("cuMemCreate"), 7);
    release(fixture, lane, 8);
    release(fixture, model, 8);
}

static void kept_pages_go_back_to_the_device_when_asked(void **state)
{
    struct fixture *fixture = *state;
    size_t before = sim_used_bytes();
    char *base = reserve(fixture, 8);

    assert_ok(commit(fixture, base, 0, 8));
    assert_int_equal(sim_used_bytes(), before + 8 * fixture->page);
    decommit(fixture, base, 0, 8);
    assert_int_equal(sim_used_bytes(), before + 8 * fixture->page);
    assert_int_equal(fixture->memory->ops->trim(fixture->memory, 3 * fixture->page),
                     5 * fixture->page);
    assert_int_equal(sim_used_bytes(), before + 3 * fixture->page);
    device_give_back(fixture->device);
    assert_int_equal(sim_used_bytes(), before);
    release(fixture, base, 8);
}

static void a_refused_commit_leaves_the_range_without_memory(void **state)
{
    static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess"};
    struct fixture *fixture = *state;
    char *base = reserve(fixture, 8);

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        for (unsigned n = 1; n <= (i == 2 ? 1 : 5); n++) {
            sim_fail_nth(calls[i], n, 0);
            assert_int_not_equal(commit(fixture, base, 0, 5), STATUS_OK);
            assert_int_equal(sim_open("mapping"), 0);
            device_give_back(fixture->device);
            assert_int_equal(sim_open("handle"), 0);
        }
    assert_ok(commit(fixture, base, 0, 5));
    release(fixture, base, 8);
}

static void a_full_device_refuses_and_goes_on(void **state)
{
    struct fixture *fixture = *state;
    char *base = reserve(fixture, 8);
    uint64_t free_bytes, total;

    assert_ok(fixture->memory->ops->query(fixture->memory, &free_bytes, &total));
    sim_set_memory(total - free_bytes + 4 * fixture->page, 0);
    assert_int_equal(commit(fixture, base, 0, 5), STATUS_NO_MEMORY);
    assert_ok(commit(fixture, base, 0, 4));
    assert_int_equal(commit(fixture, base, 4, 1), STATUS_NO_MEMORY);
    decommit(fixture, base, 3, 1);
    assert_ok(commit(fixture, base, 4, 1));
    sim_set_memory(total, 0);
    release(fixture, base, 8);
}

static void what_is_written_is_read_and_a_page_given_back_cannot_be(void **state)
{
    struct fixture *fixture = *state;
    struct device_lane *lane;
    char *base = reserve(fixture, 2);
    char in[1000], out[1000] = "";

    assert_ok(fixture->device->ops->lane_open(fixture->device, 0, &lane));
    memset(in, 7, sizeof(in));
    assert_ok(commit(fixture, base, 0, 1));
    assert_ok(fixture->memory->ops->write(fixture->memory, base, in, sizeof(in)));
    assert_ok(lane->device->ops->copy_out(lane, out, base, sizeof(out)));
    assert_ok(lane->device->ops->lane_wait(lane));
    assert_memory_equal(in, out, sizeof(in));
    decommit(fixture, base, 0, 1);
    assert_true(lane->device->ops->copy_out(lane, out, base, sizeof(out)) != STATUS_OK ||
                lane->device->ops->lane_wait(lane) != STATUS_OK);
    sim_reset(); /* it found the use of the page, as it should, and lost the device over it */
    lane->device->ops->lane_close(lane);
    release(fixture, base, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(addresses_cost_nothing, open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(pages_given_back_are_mapped_elsewhere_before_any_is_created,
                                        open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(kept_pages_go_back_to_the_device_when_asked, open_fixture,
                                        close_fixture),
        cmocka_unit_test_setup_teardown(a_refused_commit_leaves_the_range_without_memory,
                                        open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(a_full_device_refuses_and_goes_on, open_fixture,
                                        close_fixture),
        cmocka_unit_test_setup_teardown(what_is_written_is_read_and_a_page_given_back_cannot_be,
                                        open_fixture, close_fixture),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
