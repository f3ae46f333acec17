/* The ledger's statistics, map and history. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "memory/ledger.h"
#include "support/fail_alloc.h"
#include "support/unit.h"

enum { BUDGET = 100000 };

struct fixture {
    struct ledger *ledger;
    struct ledger_account *weights, *arena;
};

static int setup(void **state)
{
    static struct fixture f;

    assert_ok(ledger_create(BUDGET, &f.ledger));
    assert_ok(ledger_open(f.ledger, "m/1", MEM_WEIGHTS, &f.weights));
    assert_ok(ledger_open(f.ledger, "lane 0", MEM_ACTIVATION, &f.arena));
    ledger_set_address(f.arena, 0x100000);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    assert_true(ledger_is_valid(f->ledger));
    ledger_close(f->arena);
    ledger_close(f->weights);
    ledger_destroy(f->ledger);
    return 0;
}

static void use(struct fixture *f, uint64_t bytes, uint64_t requested)
{
    ledger_set_use(f->arena,
                   &(struct ledger_use){.bytes = bytes, .requested = requested, .user = f->weights},
                   1);
}

static struct ledger_stats_view read_view(struct fixture *f)
{
    struct ledger_stats_view view;

    ledger_read_stats(f->ledger, &view);
    return view;
}

static struct ledger_pool pool_of(struct fixture *f, const char *owner)
{
    struct ledger_pool pools[4];
    size_t count = ledger_list_pools(f->ledger, pools, 4);

    for (size_t i = 0; i < count; i++)
        if (strcmp(pools[i].owner, owner) == 0)
            return pools[i];
    fail_msg("no pool %s", owner);
    return pools[0];
}

static void check_stat(struct mem_stat stat, uint64_t current, uint64_t peak, uint64_t allocated,
                       uint64_t freed)
{
    assert_int_equal(stat.current, current);
    assert_int_equal(stat.peak, peak);
    assert_int_equal(stat.allocated, allocated);
    assert_int_equal(stat.freed, freed);
}

static void a_batch_counts_for_device_lane_kind_and_model(void **state)
{
    struct fixture *f = *state;
    struct ledger_stats_view view;
    struct ledger_pool model;

    assert_ok(ledger_add(f->weights, 300));
    assert_ok(ledger_add(f->arena, 4096));
    use(f, 4096, 4000);
    use(f, 0, 0);
    use(f, 2048, 2000);
    view = read_view(f);
    check_stat(view.all.reserved, 4396, 4396, 4396, 0);
    check_stat(view.all.allocated, 2348, 4396, 6444, 4096);
    check_stat(view.all.requested, 2300, 4300, 6300, 4000);
    check_stat(view.all.inactive, 2048, 4096, 8192, 6144);
    check_stat(view.kinds[MEM_ACTIVATION].allocated, 2048, 4096, 6144, 4096);
    check_stat(view.kinds[MEM_WEIGHTS].allocated, 300, 300, 300, 0);
    check_stat(pool_of(f, "lane 0").stats.requested, 2000, 4000, 6000, 4000);
    model = pool_of(f, "m/1");
    check_stat(model.on_behalf.allocated, 2348, 4396, 6444, 4096);
    check_stat(model.on_behalf.reserved, 2348, 4396, 6444, 4096);
    assert_int_equal(model.largest_use, 4096);
    assert_string_equal(pool_of(f, "lane 0").user, "m/1");
    use(f, 0, 0);
    assert_string_equal(pool_of(f, "lane 0").user, "");
}

static void active_is_what_is_allocated(void **state)
{
    struct fixture *f = *state;
    struct ledger_stats_view view;

    assert_ok(ledger_add(f->weights, 300));
    view = read_view(f);
    assert_ptr_equal(mem_stats_measure(&view.all, MEASURE_ACTIVE),
                     mem_stats_measure(&view.all, MEASURE_ALLOCATED));
    for (unsigned i = 0; i < MEM_MEASURES; i++)
        assert_non_null(strstr(mem_measure_name(i), "_bytes"));
}

static void peaks_begin_anew_for_one_pool_or_all(void **state)
{
    struct fixture *f = *state;

    assert_ok(ledger_add(f->weights, 300));
    assert_ok(ledger_add(f->arena, 4096));
    use(f, 4096, 4096);
    use(f, 0, 0);
    assert_false(ledger_reset_peaks_of(f->ledger, "nobody"));
    assert_true(ledger_reset_peaks_of(f->ledger, "m")); /* all versions */
    assert_int_equal(pool_of(f, "m/1").on_behalf.allocated.peak, 300);
    assert_int_equal(pool_of(f, "m/1").largest_use, 0);
    assert_int_equal(pool_of(f, "lane 0").stats.allocated.peak, 4096);
    assert_true(ledger_reset_peaks_of(f->ledger, "lane 0"));
    assert_int_equal(pool_of(f, "lane 0").stats.allocated.peak, 0);
    assert_true(ledger_reset_peaks_of(f->ledger, "activation"));
    assert_int_equal(read_view(f).kinds[MEM_ACTIVATION].allocated.peak, 0);
    assert_int_equal(read_view(f).all.allocated.peak, 4396);
    ledger_reset_peaks(f->ledger);
    assert_int_equal(read_view(f).all.allocated.peak, 300);
}

static void what_the_device_refused_was_never_allocated(void **state)
{
    struct fixture *f = *state;
    const struct ledger_piece piece = {.bytes = 500, .address = 0x200000};

    assert_ok(ledger_add_at(f->weights, &piece));
    ledger_undo_add(f->weights, &piece);
    check_stat(read_view(f).all.reserved, 0, 500, 0, 0);
    assert_int_equal(read_view(f).all.device_allocs, 0);
    assert_int_equal(read_view(f).all.device_frees, 0);
}

static void a_refusal_is_counted_for_whom_it_hit(void **state)
{
    struct fixture *f = *state;

    assert_refused(ledger_add(f->weights, BUDGET + 1));
    assert_int_equal(read_view(f).all.ooms, 1);
    assert_int_equal(pool_of(f, "m/1").on_behalf.ooms, 1);
    ledger_count_oom(f->ledger, f->weights, 10, 5, "too large");
    assert_int_equal(read_view(f).all.ooms, 2);
    assert_int_equal(pool_of(f, "m/1").on_behalf.ooms, 2);
    assert_int_equal(pool_of(f, "m/1").stats.ooms, 1);
}

static uint64_t give(void *arg, uint64_t bytes)
{
    ledger_sub(arg, bytes);
    return bytes;
}

static void room_made_of_cache_is_a_retry(void **state)
{
    struct fixture *f = *state;

    ledger_set_reclaim(f->arena, give, f->arena);
    assert_ok(ledger_add(f->arena, BUDGET));
    assert_ok(ledger_add(f->weights, 10));
    assert_int_equal(read_view(f).all.alloc_retries, 1);
    assert_int_equal(read_view(f).all.ooms, 0);
    assert_int_equal(pool_of(f, "m/1").stats.alloc_retries, 1);
}

/* ---- the map ---- */

static void the_map_has_segments_and_the_pieces_in_them(void **state)
{
    struct fixture *f = *state;
    struct ledger_map map;

    assert_ok(ledger_add_at(f->weights, &(struct ledger_piece){.bytes = 4096, .address = 0x1000}));
    assert_ok(ledger_piece_made(f->weights, 0x1000, 100));
    assert_ok(ledger_piece_made(f->weights, 0x1080, 200));
    assert_ok(ledger_add_at(
        f->weights, &(struct ledger_piece){.bytes = 4096, .address = 0x2000, .grows = true}));
    assert_ok(ledger_add_at(
        f->weights, &(struct ledger_piece){.bytes = 64, .requested = 64, .address = 0x9000}));
    assert_int_equal(pool_of(f, "m/1").requested, 364);
    assert_ok(ledger_copy_map(f->ledger, &map));
    assert_int_equal(map.pool_count, 2);
    assert_int_equal(map.block_count, 5);
    assert_int_equal(map.blocks[0].block.bytes, 8192); /* the chunk, grown */
    assert_int_equal(map.blocks[1].block.address, 0x9000);
    assert_true(map.blocks[2].is_piece && map.blocks[2].block.requested == 100);
    assert_int_equal(map.blocks[4].block.address, 0x9000);
    ledger_map_deinit(&map);

    ledger_piece_gone(f->weights, 0x1080);
    assert_int_equal(pool_of(f, "m/1").requested, 164);
    ledger_sub_at(f->weights, &(struct ledger_piece){.bytes = 8192, .address = 0x1000});
    assert_int_equal(pool_of(f, "m/1").requested, 64);
    ledger_sub_at(f->weights,
                  &(struct ledger_piece){.bytes = 64, .requested = 64, .address = 0x9000});
    assert_int_equal(pool_of(f, "m/1").requested, 0);
    assert_int_equal(read_view(f).all.requested.current, 0);
    assert_ok(ledger_copy_map(f->ledger, &map));
    assert_int_equal(map.block_count, 0);
    ledger_map_deinit(&map);
}

static void the_end_of_a_chunk_can_be_undone(void **state)
{
    struct fixture *f = *state;
    const struct ledger_piece more = {.bytes = 4096, .address = 0x2000, .grows = true};
    struct ledger_map map;

    assert_ok(ledger_add_at(f->weights, &(struct ledger_piece){.bytes = 4096, .address = 0x1000}));
    assert_ok(ledger_add_at(f->weights, &more));
    ledger_undo_add(f->weights, &more);
    assert_ok(ledger_copy_map(f->ledger, &map));
    assert_int_equal(map.block_count, 1);
    assert_int_equal(map.blocks[0].block.bytes, 4096);
    ledger_map_deinit(&map);
}

static enum status book_and_copy(void *arg)
{
    struct fixture *f = arg;
    struct ledger_map map = {.pools = NULL};
    enum status status = ledger_set_history(f->ledger, 8);

    if (status == STATUS_OK)
        status = ledger_add_at(
            f->weights, &(struct ledger_piece){.bytes = 64, .requested = 64, .address = 0x9000});
    if (status == STATUS_OK) {
        status = ledger_copy_map(f->ledger, &map);
        ledger_map_deinit(&map);
        ledger_sub_at(f->weights,
                      &(struct ledger_piece){.bytes = 64, .requested = 64, .address = 0x9000});
    }
    assert_int_equal(ledger_account_bytes(f->weights), 0);
    assert_int_equal(read_view(f).all.requested.current, 0);
    assert_true(ledger_is_valid(f->ledger));
    assert_ok(ledger_set_history(f->ledger, 0));
    return status;
}

static void every_failed_allocation_leaves_the_books_right(void **state)
{
    assert_true(fail_each_alloc(book_and_copy, *state) >= 4);
}

/* ---- the history ---- */

static size_t read_history(struct fixture *f, struct mem_event *events, size_t room)
{
    uint64_t next = 1;

    return ledger_history(f->ledger, &next, events, room);
}

static void nothing_is_recorded_until_it_is_asked_for(void **state)
{
    struct fixture *f = *state;
    struct mem_event events[4];

    assert_ok(ledger_add(f->weights, 10));
    ledger_note(f->ledger, &(struct mem_note){.kind = MEM_EVENT_LEVEL});
    assert_int_equal(read_history(f, events, 4), 0);
}

static void a_batch_leaves_its_trace(void **state)
{
    static const enum mem_event_kind kinds[] = {MEM_EVENT_RESERVE,   MEM_EVENT_MAP,
                                                MEM_EVENT_ALLOC,     MEM_EVENT_FREE,
                                                MEM_EVENT_UNRESERVE, MEM_EVENT_UNMAP};
    struct fixture *f = *state;
    struct mem_event events[8];

    assert_ok(ledger_set_history(f->ledger, 8));
    assert_ok(ledger_reserve_for(f->ledger, f->weights, 4096, NULL));
    assert_ok(ledger_add_at(f->arena, &(struct ledger_piece){.bytes = 4096, .address = 0x100000}));
    ledger_set_use(f->arena, &(struct ledger_use){.bytes = 1024, .user = f->weights, .grows = true},
                   1);
    use(f, 4096, 4000); /* one alloc, once all is there */
    use(f, 0, 0);
    ledger_unreserve_for(f->ledger, f->weights, 4096);
    ledger_sub_at(f->arena, &(struct ledger_piece){.bytes = 4096, .address = 0x100000});
    assert_int_equal(read_history(f, events, 8), 6);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(events[i].kind, kinds[i]);
    assert_int_equal(events[2].address, 0x100000);
    assert_int_equal(events[2].bytes, 4096);
    assert_int_equal(events[2].requested, 4000);
    assert_string_equal(events[2].owner, "lane 0");
    assert_string_equal(events[2].model, "m/1");
    assert_int_equal(events[3].bytes, 4096);
    assert_string_equal(events[3].model, "m/1");
}

static void the_same_size_keeps_the_history_and_another_begins_anew(void **state)
{
    struct fixture *f = *state;
    struct mem_event events[4];

    assert_ok(ledger_set_history(f->ledger, 4));
    ledger_note(f->ledger, &(struct mem_note){.kind = MEM_EVENT_LEVEL, .note = "trim"});
    assert_ok(ledger_set_history(f->ledger, 4));
    assert_int_equal(read_history(f, events, 4), 1);
    assert_string_equal(events[0].note, "trim");
    assert_ok(ledger_set_history(f->ledger, 5));
    assert_int_equal(read_history(f, events, 4), 0);
}

struct reader {
    struct fixture *f;
    atomic_bool stop;
};

static void *read_on(void *arg)
{
    struct reader *reader = arg;
    uint64_t next = 1, last = 0;

    while (!atomic_load(&reader->stop)) {
        struct mem_event events[16];
        size_t count = ledger_history(reader->f->ledger, &next, events, 16);

        for (size_t i = 0; i < count; i++) {
            assert_true(events[i].number > last);
            last = events[i].number;
            assert_int_equal(events[i].bytes, events[i].requested); /* written whole */
        }
    }
    return NULL;
}

static void *write_on(void *arg)
{
    struct fixture *f = arg;

    for (uint64_t i = 1; i <= 20000; i++)
        ledger_note(f->ledger,
                    &(struct mem_note){.kind = i % 3 == 0 ? MEM_EVENT_LEVEL : MEM_EVENT_ALLOC,
                                       .bytes = i,
                                       .requested = i,
                                       .owner = "lane 0"});
    return NULL;
}

static void readers_see_whole_events_while_lanes_write(void **state)
{
    struct reader reader = {.f = *state};
    pthread_t reading, writing[2];

    assert_ok(ledger_set_history(reader.f->ledger, 64));
    assert_int_equal(pthread_create(&reading, NULL, read_on, &reader), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&writing[i], NULL, write_on, reader.f), 0);
    for (int i = 0; i < 2; i++)
        (void)pthread_join(writing[i], NULL);
    atomic_store(&reader.stop, true);
    (void)pthread_join(reading, NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_batch_counts_for_device_lane_kind_and_model),
        TEST(active_is_what_is_allocated),
        TEST(peaks_begin_anew_for_one_pool_or_all),
        TEST(what_the_device_refused_was_never_allocated),
        TEST(a_refusal_is_counted_for_whom_it_hit),
        TEST(room_made_of_cache_is_a_retry),
        TEST(the_map_has_segments_and_the_pieces_in_them),
        TEST(the_end_of_a_chunk_can_be_undone),
        TEST(every_failed_allocation_leaves_the_books_right),
        TEST(nothing_is_recorded_until_it_is_asked_for),
        TEST(a_batch_leaves_its_trace),
        TEST(the_same_size_keeps_the_history_and_another_begins_anew),
        TEST(readers_see_whole_events_while_lanes_write),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
