/* The cache of packed weights: found again, counted to the byte, gone with the model. */
#include "support/unit.h"

#include <string.h>

#include "device/host_source.h"
#include "device/weights.h"
#include "support/fail_alloc.h"
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

static void what_is_borrowed_is_booked_until_it_is_returned(void **state)
{
    static const int a;
    uint64_t before;
    void *memory, *other;

    (void)state;
    (void)share(&a, "x", 100, true);
    before = ledger_account_bytes(account);
    assert_int_equal(weights_borrow(cache, 3 << 20, &memory), STATUS_OK);
    assert_int_equal(weights_borrow(cache, 1000, &other), STATUS_OK);
    assert_true(ledger_account_bytes(account) >= before + (3 << 20) + 1000);
    memset(memory, 1, 3 << 20);
    weights_return(cache, memory);
    weights_return(cache, other);
    assert_int_equal(ledger_account_bytes(account), before);
    assert_int_equal(weights_borrow(cache, (size_t)65 << 20, &memory), STATUS_NO_MEMORY);
    assert_int_equal(ledger_account_bytes(account), before);
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

static void bytes_are_told_by_the_beginning_of_their_format(void **state)
{
    static const int a, b;

    (void)state;
    share(&a, "winograd 2 1", 100, true);
    share(&b, "winograd 4 1", 1000, true);
    share(&b, "gemm", 10000, true);
    assert_int_equal(weights_cache_bytes(cache, "winograd"), 1100);
    weights_drop(cache, &a, "winograd 2 1");
    assert_int_equal(weights_cache_bytes(cache, "winograd"), 1000);
    assert_int_equal(weights_cache_bytes(cache, "direct"), 0);
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

/* ---- a copy in host memory ---- */

static const char lasting[3], passing;

static bool keep_lasting(void *arg, const void *key)
{
    (void)arg;
    return key != &passing;
}

/* Empty, filling itself from the copy (NULL: from nothing). */
static void open_again(const struct weights_copy *copy)
{
    weights_cache_destroy(cache);
    assert_int_equal(ledger_account_bytes(account), 0);
    assert_int_equal(weights_cache_create(host_source(), account, &cache), STATUS_OK);
    weights_cache_fill_from(cache, copy);
}

static void what_was_copied_comes_back_and_is_not_packed_again(void **state)
{
    struct device device = {.ops = &(const struct device_ops){.name = "bare"}};
    struct weights_copy *copy;
    char *piece;

    (void)state;
    memset(share(&lasting[0], "x", 100, true), 1, 100);
    memset(share(&lasting[0], "y", 5000, true), 2, 5000);
    memset(share(&lasting[1], "x", 1, true), 3, 1);
    memset(share(&passing, "x", 70, true), 4, 70);
    assert_int_equal(weights_copyable(cache, keep_lasting, NULL), 8192);
    assert_int_equal(weights_copy_create(cache, &device, keep_lasting, NULL, &copy), STATUS_OK);
    assert_int_equal(weights_copy_bytes(copy), 8192);
    open_again(copy);
    piece = share(&lasting[0], "y", 5000, false);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(piece[i], 2);
    assert_int_equal(*(char *)share(&lasting[1], "x", 1, false), 3);
    assert_int_equal(*(char *)share(&lasting[0], "x", 100, false), 1);
    (void)share(&passing, "x", 70, true);
    (void)share(&lasting[1], "z", 1, true);
    (void)share(&lasting[2], "x", 1, true);
    open_again(copy);
    (void)share(&lasting[0], "x", 101, true); /* of another size: it is packed */
    open_again(NULL);
    (void)share(&lasting[0], "x", 100, true);
    weights_copy_destroy(copy);
}

static enum status copy_once(void *arg)
{
    struct weights_copy *copy;
    enum status status = weights_copy_create(cache, arg, keep_lasting, NULL, &copy);

    weights_copy_destroy(copy);
    return status;
}

static void every_allocation_of_a_copy_may_fail(void **state)
{
    struct device device = {.ops = &(const struct device_ops){.name = "bare"}};

    (void)state;
    (void)share(&lasting[0], "x", 100, true);
    (void)share(&lasting[1], "x", 100, true);
    assert_true(fail_each_alloc(copy_once, &device) >= 3);
}

static void nothing_to_copy_is_no_copy(void **state)
{
    struct device device = {.ops = &(const struct device_ops){.name = "bare"}};
    struct weights_copy *copy;

    (void)state;
    (void)share(&passing, "x", 100, true);
    assert_int_equal(weights_copy_create(cache, &device, keep_lasting, NULL, &copy), STATUS_OK);
    assert_null(copy);
    assert_int_equal(weights_copy_bytes(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_piece_is_found_by_key_and_format, open_cache,
                                        close_cache),
        cmocka_unit_test_setup_teardown(what_is_borrowed_is_booked_until_it_is_returned, open_cache,
                                        close_cache),
        cmocka_unit_test_setup_teardown(pieces_are_aligned_and_apart, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(bytes_are_booked_as_they_are_committed, open_cache,
                                        close_cache),
        cmocka_unit_test_setup_teardown(a_budget_too_small_changes_nothing, open_cache,
                                        close_cache),
        cmocka_unit_test_setup_teardown(bytes_are_told_by_the_beginning_of_their_format, open_cache,
                                        close_cache),
        cmocka_unit_test_setup_teardown(one_name_for_two_sizes_is_our_bug, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(a_dropped_piece_is_made_again, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(what_was_copied_comes_back_and_is_not_packed_again,
                                        open_cache, close_cache),
        cmocka_unit_test_setup_teardown(every_allocation_of_a_copy_may_fail, open_cache,
                                        close_cache),
        cmocka_unit_test_setup_teardown(nothing_to_copy_is_no_copy, open_cache, close_cache),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
