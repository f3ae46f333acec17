#include "memory/lane_arena.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "support/fail_alloc.h"
#include "support/fake_source.h"
#include "support/unit.h"

enum { PAGE = 4096, BUDGET = 100 * PAGE, RANGE = 1000 * PAGE };

struct fixture {
    struct fake_source fake;
    struct ledger *ledger;
    struct lane_arena *a, *b;
};

static int setup(void **state)
{
    static struct fixture f;

    fake_source_init(&f.fake, BUDGET);
    assert_int_equal(f.fake.source.page_bytes, PAGE);
    assert_ok(ledger_create(BUDGET, &f.ledger));
    assert_ok(lane_arena_create(&f.fake.source, f.ledger, "lane 0", RANGE, &f.a));
    assert_ok(lane_arena_create(&f.fake.source, f.ledger, "lane 1", RANGE, &f.b));
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    lane_arena_destroy(f->a);
    lane_arena_destroy(f->b);
    ledger_destroy(f->ledger);
    fake_source_deinit(&f->fake);
    return 0;
}

/* Every byte behind the lanes is in the ledger, and the other way round. */
static struct ledger_stats check(struct fixture *f)
{
    struct ledger_stats stats;

    assert_true(ledger_is_valid(f->ledger));
    ledger_read(f->ledger, &stats);
    assert_int_equal(stats.reserved_bytes, f->fake.committed_bytes);
    assert_int_equal(stats.reserved_bytes, lane_arena_committed(f->a) + lane_arena_committed(f->b));
    return stats;
}

static void run(struct lane_arena *arena, size_t bytes)
{
    void *base;

    assert_ok(lane_arena_begin(arena, bytes, &base));
    memset(base, 1, bytes);
    lane_arena_end(arena);
}

static void a_batch_gets_its_bytes_and_leaves_them_cached(void **state)
{
    struct fixture *f = *state;
    void *base;

    assert_ok(lane_arena_begin(f->a, 3 * PAGE + 1, &base));
    memset(base, 1, 3 * PAGE + 1);
    assert_int_equal(lane_arena_used(f->a), 3 * PAGE + 1);
    assert_int_equal(check(f).kind_bytes[MEM_ACTIVATION], 4 * PAGE);
    assert_int_equal(check(f).cached_bytes, 0);
    lane_arena_end(f->a);
    assert_int_equal(lane_arena_used(f->a), 0);
    assert_int_equal(check(f).cached_bytes, 4 * PAGE);
}

static void the_base_never_moves(void **state)
{
    struct fixture *f = *state;
    void *first, *second;

    assert_ok(lane_arena_begin(f->a, PAGE, &first));
    assert_ok(lane_arena_extend(f->a, 50 * PAGE));
    memset(first, 1, 50 * PAGE);
    lane_arena_end(f->a);
    lane_arena_trim(f->a, 0);
    assert_ok(lane_arena_begin(f->a, 10, &second));
    lane_arena_end(f->a);
    assert_ptr_equal(first, second);
}

static void a_smaller_batch_commits_nothing(void **state)
{
    struct fixture *f = *state;
    uint64_t commits;

    run(f->a, 20 * PAGE);
    commits = f->fake.commits;
    run(f->a, 5 * PAGE);
    run(f->a, 20 * PAGE);
    assert_int_equal(f->fake.commits, commits);
}

static void a_trim_can_be_had_in_slices(void **state)
{
    struct fixture *f = *state;

    run(f->a, 20 * PAGE);
    assert_int_equal(lane_arena_trim_some(f->a, 5 * PAGE, 6 * PAGE), 6 * PAGE);
    assert_int_equal(check(f).cached_bytes, 14 * PAGE);
    assert_int_equal(lane_arena_trim_some(f->a, 5 * PAGE, 0), PAGE);
    assert_int_equal(lane_arena_trim_some(f->a, 5 * PAGE, 100 * PAGE), 8 * PAGE);
    assert_int_equal(lane_arena_trim_some(f->a, 5 * PAGE, 100 * PAGE), 0);
}

static void bytes_of_an_io_arena_in_use_are_io(void **state)
{
    struct fixture *f = *state;
    struct lane_arena *arena;
    struct ledger_stats stats;
    void *base;

    assert_ok(
        lane_arena_create_for(MEM_IO, &f->fake.source, f->ledger, "lane 0 io", RANGE, &arena));
    run(f->a, 2 * PAGE);
    assert_ok(lane_arena_begin(arena, 3 * PAGE, &base));
    ledger_read(f->ledger, &stats);
    assert_int_equal(stats.kind_bytes[MEM_IO], 3 * PAGE);
    assert_int_equal(stats.kind_bytes[MEM_ACTIVATION], 0);
    assert_int_equal(stats.kind_bytes[MEM_CACHED], 2 * PAGE);
    lane_arena_end(arena);
    ledger_read(f->ledger, &stats);
    assert_int_equal(stats.kind_bytes[MEM_IO], 0);
    assert_int_equal(stats.cached_bytes, 5 * PAGE);
    lane_arena_destroy(arena);
    assert_true(ledger_is_valid(f->ledger));
}

static void trim_keeps_what_is_asked_or_in_use(void **state)
{
    struct fixture *f = *state;
    void *base;

    run(f->a, 20 * PAGE);
    assert_int_equal(lane_arena_trim(f->a, 10 * PAGE + 1), 9 * PAGE);
    assert_int_equal(check(f).cached_bytes, 11 * PAGE);
    assert_ok(lane_arena_begin(f->a, 3 * PAGE, &base));
    memset(base, 1, 3 * PAGE);
    assert_int_equal(lane_arena_trim(f->a, 0), 8 * PAGE);
    assert_int_equal(((char *)base)[3 * PAGE - 1], 1);
    assert_int_equal(lane_arena_trim(f->a, 0), 0);
    lane_arena_end(f->a);
    assert_int_equal(lane_arena_trim(f->a, 0), 3 * PAGE);
    assert_int_equal(check(f).reserved_bytes, 0);
}

static void begin_fails_cleanly_when_the_source_is_dry(void **state)
{
    struct fixture *f = *state;
    void *base = NULL;

    run(f->a, 5 * PAGE);
    f->fake.refuse_after = 0;
    assert_refused(lane_arena_begin(f->a, 6 * PAGE, &base));
    assert_null(base);
    assert_int_equal(lane_arena_used(f->a), 0);
    assert_int_equal(check(f).cached_bytes, 5 * PAGE);
    f->fake.refuse_after = -1;
    run(f->a, 6 * PAGE);
}

static void extend_fails_cleanly_and_the_batch_goes_on(void **state)
{
    struct fixture *f = *state;
    char *base;

    assert_ok(lane_arena_begin(f->a, 5 * PAGE, (void **)&base));
    memset(base, 7, 5 * PAGE);
    f->fake.refuse_after = 0;
    assert_refused(lane_arena_extend(f->a, 6 * PAGE));
    assert_int_equal(lane_arena_used(f->a), 5 * PAGE);
    assert_int_equal(base[5 * PAGE - 1], 7);
    assert_int_equal(check(f).kind_bytes[MEM_ACTIVATION], 5 * PAGE);
    f->fake.refuse_after = -1;
    assert_ok(lane_arena_extend(f->a, 6 * PAGE));
    assert_int_equal(base[0], 7);
    lane_arena_end(f->a);
}

static void a_batch_beyond_the_range_is_refused(void **state)
{
    struct fixture *f = *state;
    void *base;

    assert_refused(lane_arena_begin(f->a, RANGE + 1, &base));
    assert_refused(lane_arena_begin(f->a, SIZE_MAX, &base));
    assert_int_equal(check(f).reserved_bytes, 0);
}

static void an_empty_batch_needs_nothing(void **state)
{
    struct fixture *f = *state;
    void *base = NULL;

    assert_ok(lane_arena_begin(f->a, 0, &base));
    assert_non_null(base);
    lane_arena_end(f->a);
    assert_int_equal(check(f).reserved_bytes, 0);
}

static void a_lane_grows_into_the_cache_of_another(void **state)
{
    struct fixture *f = *state;

    run(f->a, 80 * PAGE);
    run(f->b, 60 * PAGE);
    assert_int_equal(lane_arena_committed(f->a), 40 * PAGE);
    assert_int_equal(check(f).reserved_bytes, BUDGET);
}

static void a_lane_never_takes_what_another_uses(void **state)
{
    struct fixture *f = *state;
    void *a, *b;

    run(f->a, 80 * PAGE);
    assert_ok(lane_arena_begin(f->a, 50 * PAGE, &a));
    memset(a, 3, 50 * PAGE);
    assert_refused(lane_arena_begin(f->b, 51 * PAGE, &b));
    assert_ok(lane_arena_begin(f->b, 50 * PAGE, &b));
    assert_int_equal(((char *)a)[50 * PAGE - 1], 3);
    assert_int_equal(check(f).allocated_bytes, BUDGET);
    lane_arena_end(f->a);
    lane_arena_end(f->b);
}

static void what_was_reserved_can_be_committed(void **state)
{
    struct fixture *f = *state;
    void *a, *b;

    run(f->a, 100 * PAGE);
    assert_ok(ledger_reserve(f->ledger, 49 * PAGE + 1, NULL));
    assert_ok(ledger_reserve(f->ledger, 49 * PAGE + 1, NULL));
    assert_refused(ledger_reserve(f->ledger, 1, NULL));
    assert_ok(lane_arena_begin(f->a, 49 * PAGE + 1, &a));
    assert_ok(lane_arena_begin(f->b, 49 * PAGE + 1, &b));
    check(f);
    lane_arena_end(f->a);
    lane_arena_end(f->b);
    ledger_unreserve(f->ledger, 49 * PAGE + 1);
    ledger_unreserve(f->ledger, 49 * PAGE + 1);
}

static void a_refusing_device_gets_the_cache_of_others_first(void **state)
{
    struct fixture *f = *state;

    run(f->a, 30 * PAGE);
    f->fake.total_bytes = 40 * PAGE; /* somebody else took the rest */
    run(f->b, 25 * PAGE);
    assert_int_equal(lane_arena_committed(f->a), 5 * PAGE);
    check(f);
}

static enum status build(void *arg)
{
    struct fixture *f = arg;
    struct lane_arena *arena = NULL;
    enum status status = lane_arena_create(&f->fake.source, f->ledger, "lane 2", RANGE, &arena);

    lane_arena_destroy(arena);
    check(f);
    return status;
}

static void create_survives_every_failed_allocation(void **state)
{
    assert_int_equal(fail_each_alloc(build, *state), 3);
}

static void create_fails_cleanly_without_addresses(void **state)
{
    struct fixture *f = *state;
    struct lane_arena *arena;

    f->fake.refuse_reserve = true;
    assert_refused(lane_arena_create(&f->fake.source, f->ledger, "lane 2", RANGE, &arena));
    assert_refused(lane_arena_create(&f->fake.source, f->ledger, "lane 2", SIZE_MAX, &arena));
}

/* ---- anything in any order, with a device that refuses one commit in four ---- */

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

/* One arena's turn: a batch begins, grows, ends, or somebody trims. */
static void take_a_turn(struct lane_arena *arena, size_t *running, unsigned *seed)
{
    size_t bytes = next_random(seed) % (60 * PAGE) + 1;
    void *base;

    switch (next_random(seed) % 4) {
    case 0:
        lane_arena_trim(arena, bytes);
        assert_true(lane_arena_committed(arena) >= *running);
        return;
    case 1:
        if (*running > 0 && lane_arena_extend(arena, bytes) == STATUS_OK && bytes > *running)
            *running = bytes;
        return;
    default:
        if (*running > 0) {
            lane_arena_end(arena);
            *running = 0;
        } else if (lane_arena_begin(arena, bytes, &base) == STATUS_OK) {
            memset(base, 1, bytes);
            *running = bytes;
        }
        return;
    }
}

static void any_order_of_use_keeps_the_books_right(void **state)
{
    struct fixture *f = *state;
    struct ledger_account *weights;
    size_t running[2] = {0, 0};
    unsigned seed = 20261130;

    assert_ok(ledger_open(f->ledger, "weights", MEM_WEIGHTS, &weights));
    for (int i = 0; i < 20000; i++) {
        unsigned which = next_random(&seed) % 3;
        struct ledger_stats stats;

        f->fake.refuse_after = next_random(&seed) % 4 == 0 ? 0 : -1;
        if (which < 2)
            take_a_turn(which == 0 ? f->a : f->b, &running[which], &seed);
        else if (next_random(&seed) % 2 == 0)
            (void)!ledger_add(weights, next_random(&seed) % (20 * PAGE));
        else
            ledger_sub(weights, ledger_account_bytes(weights) / 2);
        assert_true(ledger_is_valid(f->ledger));
        ledger_read(f->ledger, &stats);
        assert_true(stats.reserved_bytes <= BUDGET);
        assert_int_equal(stats.reserved_bytes,
                         f->fake.committed_bytes + stats.kind_bytes[MEM_WEIGHTS]);
        assert_int_equal(lane_arena_used(f->a), running[0]);
        assert_int_equal(lane_arena_used(f->b), running[1]);
    }
    lane_arena_end(f->a);
    lane_arena_end(f->b);
    lane_arena_trim(f->a, 0);
    lane_arena_trim(f->b, 0);
    assert_int_equal(f->fake.committed_bytes, 0);
    ledger_close(weights);
}

/* ---- threads: two lanes run batches while a third thread trims ---- */

struct worker {
    struct lane_arena *arena;
    struct ledger *ledger;
    unsigned seed;
    atomic_int *running;
};

static void *run_batches(void *arg)
{
    struct worker *worker = arg;

    for (unsigned i = 0; i < 2000; i++) {
        size_t bytes = (worker->seed = worker->seed * 1103515245 + 12345) % (50 * PAGE) + 1;
        char *base;

        if (ledger_reserve(worker->ledger, bytes, NULL) != STATUS_OK)
            continue; /* the other one holds more than half */
        assert(lane_arena_begin(worker->arena, bytes, (void **)&base) == STATUS_OK);
        base[0] = base[bytes - 1] = (char)i;
        assert(base[0] == (char)i && base[bytes - 1] == (char)i);
        lane_arena_end(worker->arena);
        ledger_unreserve(worker->ledger, bytes);
    }
    atomic_fetch_sub(worker->running, 1);
    return NULL;
}

static void admitted_batches_never_fail_while_others_trim(void **state)
{
    struct fixture *f = *state;
    atomic_int running = 2;
    struct worker workers[2] = {{f->a, f->ledger, 1, &running}, {f->b, f->ledger, 2, &running}};
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_batches, &workers[i]), 0);
    while (atomic_load(&running) > 0) {
        lane_arena_trim(f->a, 5 * PAGE);
        lane_arena_trim(f->b, 0);
        assert_true(ledger_is_valid(f->ledger));
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    check(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_batch_gets_its_bytes_and_leaves_them_cached),
        TEST(the_base_never_moves),
        TEST(a_smaller_batch_commits_nothing),
        TEST(a_trim_can_be_had_in_slices),
        TEST(bytes_of_an_io_arena_in_use_are_io),
        TEST(trim_keeps_what_is_asked_or_in_use),
        TEST(begin_fails_cleanly_when_the_source_is_dry),
        TEST(extend_fails_cleanly_and_the_batch_goes_on),
        TEST(a_batch_beyond_the_range_is_refused),
        TEST(an_empty_batch_needs_nothing),
        TEST(a_lane_grows_into_the_cache_of_another),
        TEST(a_lane_never_takes_what_another_uses),
        TEST(what_was_reserved_can_be_committed),
        TEST(a_refusing_device_gets_the_cache_of_others_first),
        TEST(create_survives_every_failed_allocation),
        TEST(create_fails_cleanly_without_addresses),
        TEST(any_order_of_use_keeps_the_books_right),
        TEST(admitted_batches_never_fail_while_others_trim),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
