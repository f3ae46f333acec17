/* The cache of packed weights: found again, counted to the byte, gone with the model. */
#include "support/unit.h"

#include <string.h>

#include "device/host_source.h"
#include "device/weights.h"
#include "support/fake_source.h"

static struct ledger *ledger;
static struct ledger_account *account;
static struct weights_cache *cache;

static int open_cache(void **state)
{
    (void)state;
    assert_int_equal(ledger_create(64 << 20, &ledger), STATUS_OK);
    assert_int_equal(ledger_open(ledger, "model", MEM_WEIGHTS, &account), STATUS_OK);
    return weights_cache_create(host_source(), account, &cache) == STATUS_OK ? 0 : -1;
}

static int close_cache(void **state)
{
    (void)state;
    weights_cache_destroy(cache);
    assert_int_equal(ledger_account_bytes(account), 0);
    ledger_close(account);
    ledger_destroy(ledger);
    return 0;
}

static void *share(const void *key, const char *format, size_t bytes, bool expect_new)
{
    void *packed;
    bool is_new;

    assert_int_equal(weights_share(cache, key, format, bytes, &packed, &is_new), STATUS_OK);
    assert_int_equal(is_new, expect_new);
    return packed;
}

static void a_piece_is_found_by_key_and_format(void **state)
{
    static const int a, b;
    void *first = share(&a, "x", 100, true);

    (void)state;
    assert_ptr_equal(share(&a, "x", 100, false), first);
    assert_ptr_not_equal(share(&b, "x", 100, true), first);
    assert_ptr_not_equal(share(&a, "y", 100, true), first);
    assert_ptr_equal(share(&a, "x", 100, false), first);
}

static void pieces_are_aligned_and_apart(void **state)
{
    static const char keys[200];
    char *pieces[200];

    (void)state;
    for (size_t i = 0; i < 200; i++) {
        pieces[i] = share(&keys[i], "f", 1 + i * 997, true);
        assert_int_equal((uintptr_t)pieces[i] % 64, 0);
        memset(pieces[i], (int)i, 1 + i * 997);
    }
    for (size_t i = 0; i < 200; i++)
        for (size_t k = 0; k < 1 + i * 997; k += 499)
            assert_int_equal((unsigned char)pieces[i][k], i);
}

static void bytes_are_booked_as_they_are_committed(void **state)
{
    static const int a, b;

    (void)state;
    assert_int_equal(ledger_account_bytes(account), 0);
    share(&a, "f", 100, true);
    assert_int_equal(ledger_account_bytes(account), host_source()->page_bytes);
    share(&b, "f", 20 << 20, true);
    assert_int_equal(ledger_account_bytes(account), host_source()->page_bytes + (20 << 20));
    share(&b, "g", 100, true); /* goes on in the first chunk */
    assert_int_equal(ledger_account_bytes(account), host_source()->page_bytes + (20 << 20));
}

static void a_budget_too_small_changes_nothing(void **state)
{
    void *packed;
    bool is_new;
    static const int a;

    (void)state;
    assert_int_equal(weights_share(cache, &a, "f", 65 << 20, &packed, &is_new), STATUS_NO_MEMORY);
    assert_int_equal(ledger_account_bytes(account), 0);
    share(&a, "f", 100, true);
}

static void one_name_for_two_sizes_is_our_bug(void **state)
{
    void *packed;
    bool is_new;
    static const int a;

    (void)state;
    share(&a, "f", 100, true);
    assert_int_equal(weights_share(cache, &a, "f", 101, &packed, &is_new), STATUS_INTERNAL);
}

static void a_dropped_piece_is_made_again(void **state)
{
    static const int a;

    (void)state;
    share(&a, "f", 100, true);
    weights_drop(cache, &a, "f");
    weights_drop(cache, &a, "f");
    share(&a, "f", 100, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_piece_is_found_by_key_and_format, open_cache,
                                        close_cache),
        cmocka_unit_test_setup_teardown(pieces_are_aligned_and_apart, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(bytes_are_booked_as_they_are_committed, open_cache,
                                        close_cache),
        cmocka_unit_test_setup_teardown(a_budget_too_small_changes_nothing, open_cache,
                                        close_cache),
        cmocka_unit_test_setup_teardown(one_name_for_two_sizes_is_our_bug, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(a_dropped_piece_is_made_again, open_cache, close_cache),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
