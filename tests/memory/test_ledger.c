#include "memory/ledger.h"

#include <string.h>

#include "support/fail_alloc.h"
#include "support/unit.h"

enum { BUDGET = 1000 };

struct fixture {
    struct ledger *ledger;
    struct ledger_account *weights, *fixed, *arena;
};

static int setup(void **state)
{
    static struct fixture f;

    assert_ok(ledger_create(BUDGET, &f.ledger));
    assert_ok(ledger_open(f.ledger, "model m:1", MEM_WEIGHTS, &f.weights));
    assert_ok(ledger_open(f.ledger, "runtime", MEM_FIXED, &f.fixed));
    assert_ok(ledger_open(f.ledger, "lane 0", MEM_ACTIVATION, &f.arena));
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    ledger_close(f->arena);
    ledger_close(f->fixed);
    ledger_close(f->weights);
    ledger_destroy(f->ledger);
    return 0;
}

static struct ledger_stats read_stats(const struct fixture *f)
{
    struct ledger_stats stats;

    assert_true(ledger_is_valid(f->ledger));
    ledger_read(f->ledger, &stats);
    return stats;
}

static void kinds_sum_to_reserved(void **state)
{
    struct fixture *f = *state;
    struct ledger_stats stats;
    uint64_t sum = 0;

    assert_ok(ledger_add(f->weights, 300));
    assert_ok(ledger_add(f->fixed, 50));
    assert_ok(ledger_add(f->arena, 200));
    ledger_set_used(f->arena, 120, 7);
    stats = read_stats(f);
    for (int i = 0; i < MEM_KINDS; i++)
        sum += stats.kind_bytes[i];
    assert_int_equal(sum, stats.reserved_bytes);
    assert_int_equal(stats.reserved_bytes, 550);
    assert_int_equal(stats.kind_bytes[MEM_ACTIVATION], 120);
    assert_int_equal(stats.kind_bytes[MEM_CACHED], 80);
    assert_int_equal(stats.cached_bytes, 80);
    assert_int_equal(stats.allocated_bytes, 470);
}

static void an_arena_is_cached_until_it_is_used(void **state)
{
    struct fixture *f = *state;

    assert_ok(ledger_add(f->arena, 100));
    assert_int_equal(read_stats(f).cached_bytes, 100);
    assert_int_equal(read_stats(f).peak_allocated_bytes, 0);
    ledger_set_used(f->arena, 100, 1);
    ledger_set_used(f->arena, 0, 2);
    assert_int_equal(read_stats(f).cached_bytes, 100);
    assert_int_equal(read_stats(f).peak_allocated_bytes, 100);
}

static void weights_beyond_the_budget_change_nothing(void **state)
{
    struct fixture *f = *state;

    assert_ok(ledger_add(f->weights, 900));
    assert_refused(ledger_add(f->weights, 101));
    assert_int_equal(ledger_account_bytes(f->weights), 900);
    assert_ok(ledger_add(f->weights, 100));
    assert_refused(ledger_add(f->weights, UINT64_MAX));
    assert_int_equal(read_stats(f).reserved_bytes, BUDGET);
}

static void weights_leave_room_for_what_is_planned(void **state)
{
    struct fixture *f = *state;

    assert_ok(ledger_reserve(f->ledger, 600, NULL));
    assert_refused(ledger_add(f->weights, 401));
    assert_ok(ledger_add(f->weights, 400));
    ledger_unreserve(f->ledger, 600);
}

static void a_reservation_fits_beside_planned_and_pinned_or_names_what_there_was(void **state)
{
    struct fixture *f = *state;
    uint64_t available = 0;

    assert_ok(ledger_add(f->weights, 300));
    assert_ok(ledger_reserve(f->ledger, 500, &available));
    assert_refused(ledger_reserve(f->ledger, 201, &available));
    assert_int_equal(available, 200);
    assert_ok(ledger_reserve(f->ledger, 200, NULL));
    assert_int_equal(read_stats(f).planned_bytes, 700);
    ledger_unreserve(f->ledger, 500);
    ledger_unreserve(f->ledger, 200);
    assert_int_equal(read_stats(f).planned_bytes, 0);
    assert_int_equal(read_stats(f).reservations_ok, 2);
    assert_int_equal(read_stats(f).reservations_refused, 1);
}

static void a_reservation_does_not_mind_the_cache(void **state)
{
    struct fixture *f = *state;

    assert_ok(ledger_add(f->arena, 900));
    assert_ok(ledger_reserve(f->ledger, 1000, NULL));
    ledger_unreserve(f->ledger, 1000);
}

static void the_ceiling_is_the_budget_without_pinned_bytes(void **state)
{
    struct fixture *f = *state;

    assert_ok(ledger_add(f->weights, 300));
    assert_ok(ledger_add(f->fixed, 100));
    assert_ok(ledger_add(f->arena, 500));
    assert_int_equal(ledger_ceiling(f->ledger), 600);
}

static void reservations_are_whole_pages(void **state)
{
    struct fixture *f = *state;

    ledger_set_page(f->ledger, 100);
    assert_ok(ledger_reserve(f->ledger, 901, NULL));
    assert_int_equal(read_stats(f).planned_bytes, 1000);
    ledger_unreserve(f->ledger, 901);
    assert_refused(ledger_reserve(f->ledger, 1001, NULL));
    assert_refused(ledger_reserve(f->ledger, UINT64_MAX, NULL));
}

static uint64_t give_what_is_cached(void *arg, uint64_t bytes)
{
    struct ledger_account *arena = arg;
    uint64_t held = ledger_account_bytes(arena);

    bytes = bytes < held ? bytes : held;
    ledger_sub(arena, bytes);
    return bytes;
}

static void weights_take_the_place_of_cache(void **state)
{
    struct fixture *f = *state;

    ledger_set_reclaim(f->arena, give_what_is_cached, f->arena);
    assert_ok(ledger_add(f->arena, 800));
    assert_ok(ledger_add(f->weights, 500));
    assert_int_equal(ledger_account_bytes(f->arena), 500);
    assert_int_equal(read_stats(f).reserved_bytes, BUDGET);
    assert_ok(ledger_add(f->weights, 500));
    assert_int_equal(ledger_account_bytes(f->arena), 0);
    assert_refused(ledger_add(f->weights, 1));
}

static uint64_t give_nothing(void *arg, uint64_t bytes)
{
    (void)bytes;
    ++*(int *)arg;
    return 0;
}

static void an_arena_that_gives_nothing_is_asked_once(void **state)
{
    struct fixture *f = *state;
    int asked = 0;

    ledger_set_reclaim(f->arena, give_nothing, &asked);
    assert_ok(ledger_add(f->arena, 800));
    assert_refused(ledger_add(f->weights, 500));
    assert_int_equal(asked, 1);
    assert_int_equal(ledger_reclaim(f->ledger, 10), 0);
    assert_int_equal(asked, 2);
    assert_int_equal(read_stats(f).reserved_bytes, 800);
}

static void a_lowered_budget_refuses_growth_until_enough_has_left(void **state)
{
    struct fixture *f = *state;

    assert_ok(ledger_add(f->weights, 800));
    ledger_set_budget(f->ledger, 500);
    assert_true(ledger_is_valid(f->ledger));
    assert_refused(ledger_add(f->weights, 1));
    assert_refused(ledger_reserve(f->ledger, 1, NULL));
    assert_int_equal(ledger_ceiling(f->ledger), 0);
    ledger_sub(f->weights, 400);
    assert_ok(ledger_reserve(f->ledger, 100, NULL));
    ledger_unreserve(f->ledger, 100);
    assert_int_equal(read_stats(f).budget_bytes, 500);
}

static void what_was_planned_is_committed_although_the_budget_fell(void **state)
{
    struct fixture *f = *state;

    assert_ok(ledger_add(f->weights, 300));
    assert_ok(ledger_reserve(f->ledger, 400, NULL));
    ledger_set_budget(f->ledger, 500);
    assert_ok(ledger_add(f->arena, 400));
    ledger_set_used(f->arena, 400, 7);
    assert_refused(ledger_add(f->arena, 1));
    ledger_unreserve(f->ledger, 400);
    assert_refused(ledger_add(f->arena, 1));
    assert_int_equal(read_stats(f).reserved_bytes, 700);
}

static void what_is_held_for_others_counts_for_later(void **state)
{
    struct fixture *f = *state;

    assert_ok(ledger_add(f->weights, 100));
    ledger_set_budget_for_now(f->ledger, BUDGET - 300, 300);
    assert_int_equal(ledger_ceiling(f->ledger), BUDGET - 400);
    assert_int_equal(ledger_ceiling_later(f->ledger), BUDGET - 100);
    assert_int_equal(read_stats(f).held_bytes, 300);
    assert_refused(ledger_reserve(f->ledger, BUDGET - 399, NULL));
    ledger_set_budget(f->ledger, BUDGET);
    assert_int_equal(read_stats(f).held_bytes, 0);
    assert_int_equal(ledger_ceiling(f->ledger), BUDGET - 100);
}

static void closing_gives_back_what_an_account_holds(void **state)
{
    struct fixture *f = *state;
    struct ledger_account *other;

    assert_ok(ledger_open(f->ledger, "model n:1", MEM_WORKSPACE, &other));
    assert_ok(ledger_add(other, 70));
    assert_int_equal(read_stats(f).kind_bytes[MEM_WORKSPACE], 70);
    ledger_close(other);
    assert_int_equal(read_stats(f).reserved_bytes, 0);
}

static void the_list_is_largest_first_and_splits_an_arena(void **state)
{
    struct fixture *f = *state;
    struct ledger_entry entries[3];

    assert_ok(ledger_add(f->weights, 300));
    assert_ok(ledger_add(f->fixed, 50));
    assert_ok(ledger_add(f->arena, 500));
    ledger_set_used(f->arena, 100, 42);
    assert_int_equal(ledger_list(f->ledger, entries, 3), 4);
    assert_int_equal(entries[0].bytes, 400);
    assert_int_equal(entries[0].kind, MEM_CACHED);
    assert_int_equal(entries[1].bytes, 300);
    assert_string_equal(entries[1].owner, "model m:1");
    assert_int_equal(entries[2].bytes, 100);
    assert_int_equal(entries[2].kind, MEM_ACTIVATION);
    assert_int_equal(entries[2].last_use_us, 42);
    assert_int_equal(ledger_list(f->ledger, NULL, 0), 4);
}

static void peaks_restart_from_what_is_held(void **state)
{
    struct fixture *f = *state;

    assert_ok(ledger_add(f->weights, 300));
    ledger_sub(f->weights, 200);
    assert_int_equal(read_stats(f).peak_reserved_bytes, 300);
    ledger_reset_peaks(f->ledger);
    assert_int_equal(read_stats(f).peak_reserved_bytes, 100);
    assert_int_equal(read_stats(f).peak_allocated_bytes, 100);
}

static void long_owners_are_cut(void **state)
{
    struct fixture *f = *state;
    struct ledger_account *account;
    struct ledger_entry entry;
    char owner[400];

    memset(owner, 'x', sizeof(owner) - 1);
    owner[sizeof(owner) - 1] = '\0';
    assert_ok(ledger_open(f->ledger, owner, MEM_IO, &account));
    assert_ok(ledger_add(account, 1));
    assert_int_equal(ledger_list(f->ledger, &entry, 1), 1);
    assert_int_equal(strlen(entry.owner), sizeof(entry.owner) - 1);
    ledger_close(account);
}

static enum status build(void *arg)
{
    struct ledger *ledger = NULL;
    struct ledger_account *account = NULL;
    enum status status = ledger_create(BUDGET, &ledger);

    (void)arg;
    if (status == STATUS_OK)
        status = ledger_open(ledger, "x", MEM_IO, &account);
    ledger_close(account);
    ledger_destroy(ledger);
    return status;
}

static void building_survives_every_failed_allocation(void **state)
{
    (void)state;
    assert_int_equal(fail_each_alloc(build, NULL), 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(kinds_sum_to_reserved),
        TEST(an_arena_is_cached_until_it_is_used),
        TEST(weights_beyond_the_budget_change_nothing),
        TEST(weights_leave_room_for_what_is_planned),
        TEST(a_reservation_fits_beside_planned_and_pinned_or_names_what_there_was),
        TEST(a_reservation_does_not_mind_the_cache),
        TEST(the_ceiling_is_the_budget_without_pinned_bytes),
        TEST(reservations_are_whole_pages),
        TEST(weights_take_the_place_of_cache),
        TEST(an_arena_that_gives_nothing_is_asked_once),
        TEST(a_lowered_budget_refuses_growth_until_enough_has_left),
        TEST(what_was_planned_is_committed_although_the_budget_fell),
        TEST(what_is_held_for_others_counts_for_later),
        TEST(closing_gives_back_what_an_account_holds),
        TEST(the_list_is_largest_first_and_splits_an_arena),
        TEST(peaks_restart_from_what_is_held),
        TEST(long_owners_are_cut),
        cmocka_unit_test(building_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
