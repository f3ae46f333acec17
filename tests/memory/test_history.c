#include "memory/history.h"

#include <string.h>

#include "support/fail_alloc.h"
#include "support/unit.h"

static void add(struct history *history, enum mem_event_kind kind, uint64_t bytes)
{
    history_add(history, &(struct mem_note){.kind = kind, .bytes = bytes, .owner = "lane 0"},
                (int64_t)bytes);
}

static void events_come_back_in_order(void **state)
{
    struct mem_event events[8];
    struct history *history;
    uint64_t next = 1;

    (void)state;
    assert_ok(history_create(4, &history));
    add(history, MEM_EVENT_ALLOC, 1);
    add(history, MEM_EVENT_LEVEL, 2);
    add(history, MEM_EVENT_FREE, 3);
    assert_int_equal(history_last(history), 3);
    assert_int_equal(history_read(history, &next, events, 8), 3);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(events[i].number, i + 1);
        assert_int_equal(events[i].bytes, i + 1);
        assert_int_equal(events[i].time_us, i + 1);
        assert_string_equal(events[i].owner, "lane 0");
        assert_string_equal(events[i].model, "");
    }
    assert_int_equal(next, 4);
    assert_int_equal(history_read(history, &next, events, 8), 0);
    history_destroy(history);
}

static void a_busy_lane_does_not_wash_out_what_is_rare(void **state)
{
    struct mem_event events[8];
    struct history *history;
    uint64_t next = 1;

    (void)state;
    assert_ok(history_create(2, &history));
    add(history, MEM_EVENT_OOM, 1);
    for (uint64_t i = 2; i < 100; i++)
        add(history, MEM_EVENT_ALLOC, i);
    assert_int_equal(history_read(history, &next, events, 8), 3);
    assert_int_equal(events[0].kind, MEM_EVENT_OOM);
    assert_int_equal(events[1].bytes, 98);
    assert_int_equal(events[2].bytes, 99);
    history_destroy(history);
}

static void a_reader_goes_on_where_it_was(void **state)
{
    struct mem_event events[2];
    struct history *history;
    uint64_t next = 1, seen = 0;
    size_t count;

    (void)state;
    assert_ok(history_create(8, &history));
    for (uint64_t i = 1; i <= 7; i++)
        add(history, i % 2 == 0 ? MEM_EVENT_MAP : MEM_EVENT_RESERVE, i);
    while ((count = history_read(history, &next, events, 2)) > 0)
        for (size_t i = 0; i < count; i++)
            assert_int_equal(events[i].number, ++seen);
    assert_int_equal(seen, 7);
    history_destroy(history);
}

static void long_names_are_cut(void **state)
{
    char name[2 * MEM_NAME_BYTES];
    struct mem_event event;
    struct history *history;
    uint64_t next = 1;

    (void)state;
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    assert_ok(history_create(1, &history));
    history_add(history, &(struct mem_note){.model = name}, 0);
    assert_int_equal(history_read(history, &next, &event, 1), 1);
    assert_int_equal(strlen(event.model), MEM_NAME_BYTES - 1);
    history_destroy(history);
}

static void every_kind_has_a_name(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < MEM_EVENT_KINDS; kind++)
        assert_true(strlen(mem_event_name(kind)) > 0);
}

static enum status make(void *arg)
{
    struct history *history = NULL;
    enum status status = history_create(16, &history);

    (void)arg;
    if (status != STATUS_OK)
        assert_null(history);
    history_destroy(history);
    return status;
}

static void building_survives_every_failed_allocation(void **state)
{
    (void)state;
    assert_int_equal(fail_each_alloc(make, NULL), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_back_in_order),
        cmocka_unit_test(a_busy_lane_does_not_wash_out_what_is_rare),
        cmocka_unit_test(a_reader_goes_on_where_it_was),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(every_kind_has_a_name),
        cmocka_unit_test(building_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
