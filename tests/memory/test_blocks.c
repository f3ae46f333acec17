#include "memory/blocks.h"

#include <stdlib.h>

#include "support/fail_alloc.h"
#include "support/unit.h"

static struct mem_block at(uint64_t address, uint64_t bytes)
{
    return (struct mem_block){.address = address, .bytes = bytes, .requested = bytes};
}

static void add(struct blocks *blocks, uint64_t address, uint64_t bytes)
{
    const struct mem_block block = at(address, bytes);

    assert_ok(blocks_add(blocks, &block));
}

static void blocks_stand_in_order_of_their_addresses(void **state)
{
    struct blocks blocks = {.count = 0};

    (void)state;
    for (uint64_t i = 0; i < 100; i++)
        add(&blocks, i * 37 % 100 * 10 + 1, 10);
    assert_int_equal(blocks.count, 100);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(blocks.items[i].address, i * 10 + 1);
    blocks_deinit(&blocks);
}

static void find_tells_the_block_around_or_behind_an_address(void **state)
{
    struct blocks blocks = {.count = 0};

    (void)state;
    assert_int_equal(blocks_find(&blocks, 5), 0);
    add(&blocks, 10, 10);
    add(&blocks, 30, 10);
    assert_int_equal(blocks_find(&blocks, 0), 0);
    assert_int_equal(blocks_find(&blocks, 10), 0);
    assert_int_equal(blocks_find(&blocks, 19), 0);
    assert_int_equal(blocks_find(&blocks, 20), 1);
    assert_int_equal(blocks_find(&blocks, 39), 1);
    assert_int_equal(blocks_find(&blocks, 40), 2);
    blocks_deinit(&blocks);
}

static void join_grows_only_what_ends_there(void **state)
{
    struct blocks blocks = {.count = 0};
    struct mem_block block = at(20, 5);

    (void)state;
    add(&blocks, 10, 10);
    assert_true(blocks_join(&blocks, &block));
    assert_int_equal(blocks.items[0].bytes, 15);
    block = at(26, 5);
    assert_false(blocks_join(&blocks, &block));
    assert_int_equal(blocks.count, 1);
    blocks_deinit(&blocks);
}

static enum status fill(void *arg)
{
    struct blocks blocks = {.count = 0};
    enum status status = STATUS_OK;

    (void)arg;
    for (uint64_t i = 0; i < 100 && status == STATUS_OK; i++) {
        const struct mem_block block = at(i * 10, 10);

        status = blocks_add(&blocks, &block);
        assert_int_equal(blocks.count, i + (status == STATUS_OK));
    }
    blocks_deinit(&blocks);
    return status;
}

static void adding_survives_every_failed_allocation(void **state)
{
    (void)state;
    assert_true(fail_each_alloc(fill, NULL) > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_stand_in_order_of_their_addresses),
        cmocka_unit_test(find_tells_the_block_around_or_behind_an_address),
        cmocka_unit_test(join_grows_only_what_ends_there),
        cmocka_unit_test(adding_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
