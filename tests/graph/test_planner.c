/* The memory planner: never an overlap, close to the bound, quick. */
#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "graph/planner.h"

static bool share_a_step(const struct plan_buffer *a, const struct plan_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static bool share_a_byte(const struct plan_buffer *a, const struct plan_buffer *b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static void assert_sound(const struct plan_buffer *buffers, size_t count, uint64_t peak,
                         uint64_t bound)
{
    assert_true(peak >= bound);
    for (size_t i = 0; i < count; i++) {
        assert_true(buffers[i].offset + buffers[i].bytes <= peak);
        for (size_t j = i + 1; j < count; j++)
            if (share_a_step(&buffers[i], &buffers[j]) && share_a_byte(&buffers[i], &buffers[j]))
                fail_msg("buffers %zu and %zu overlap", i, j);
    }
}

static void nothing_needs_nothing(void **state)
{
    uint64_t peak = 1, bound = 1;

    (void)state;
    assert_int_equal(planner_pack(NULL, 0, &peak, &bound), STATUS_OK);
    assert_int_equal(peak, 0);
    assert_int_equal(bound, 0);
}

static void a_chain_needs_its_two_largest_neighbours(void **state)
{
    struct plan_buffer chain[] = {{64, 0, 1, 0}, {640, 1, 2, 0}, {320, 2, 3, 0}, {64, 3, 4, 0}};
    uint64_t peak, bound;

    (void)state;
    assert_int_equal(planner_pack(chain, 4, &peak, &bound), STATUS_OK);
    assert_sound(chain, 4, peak, bound);
    assert_int_equal(bound, 960);
    assert_int_equal(peak, 960);
}

static void buffers_that_never_meet_share_their_place(void **state)
{
    struct plan_buffer buffers[] = {{128, 0, 0, 0}, {128, 1, 1, 0}, {128, 2, 2, 0}};
    uint64_t peak, bound;

    (void)state;
    assert_int_equal(planner_pack(buffers, 3, &peak, &bound), STATUS_OK);
    assert_int_equal(peak, 128);
}

static void empty_buffers_are_harmless(void **state)
{
    struct plan_buffer buffers[] = {{0, 0, 5, 0}, {64, 0, 1, 0}, {0, 1, 1, 0}};
    uint64_t peak, bound;

    (void)state;
    assert_int_equal(planner_pack(buffers, 3, &peak, &bound), STATUS_OK);
    assert_sound(buffers, 3, peak, bound);
    assert_int_equal(peak, 64);
}

static uint32_t next_random(uint32_t *rng)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 17;
    *rng ^= *rng << 5;
    return *rng;
}

static void random_lifetimes_never_overlap(void **state)
{
    enum { COUNT = 120 };
    struct plan_buffer buffers[COUNT];

    (void)state;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        uint32_t rng = seed * 2654435761U;
        uint64_t peak, bound;

        for (size_t i = 0; i < COUNT; i++) {
            uint32_t first = next_random(&rng) % 100;

            buffers[i] = (struct plan_buffer){.bytes = next_random(&rng) % 40 * 64,
                                              .first = first,
                                              .last = first + next_random(&rng) % 12};
        }
        assert_int_equal(planner_pack(buffers, COUNT, &peak, &bound), STATUS_OK);
        assert_sound(buffers, COUNT, peak, bound);
    }
}

static void a_thousand_buffers_take_milliseconds(void **state)
{
    enum { COUNT = 1000 };
    static struct plan_buffer buffers[COUNT];
    uint32_t rng = 7;
    uint64_t peak, bound;
    int64_t best_us = INT64_MAX;

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++)
        buffers[i] = (struct plan_buffer){.bytes = (1 + next_random(&rng) % 64) * 4096,
                                          .first = i,
                                          .last = i + 1 + next_random(&rng) % 20};
    for (int i = 0; i < 5; i++) {
        int64_t start = clock_now_us();

        assert_int_equal(planner_pack(buffers, COUNT, &peak, &bound), STATUS_OK);
        if (clock_now_us() - start < best_us)
            best_us = clock_now_us() - start;
    }
    assert_sound(buffers, COUNT, peak, bound);
    print_message("1000 buffers: %" PRId64 " us, peak %.3f x bound\n", best_us,
                  (double)peak / (double)bound);
    assert_true(best_us < 500 * 1000); /* a machine under load or sanitizers; 5 ms when quiet */
}

/* id,lower,upper,size; alive up to, not including, upper. */
static size_t read_benchmark(const char *path, struct plan_buffer *buffers, size_t room)
{
    FILE *file = fopen(path, "r");
    char line[256];
    size_t count = 0;

    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    while (count < room && fgets(line, sizeof(line), file) != NULL) {
        uint64_t lower, upper, size;

        if (sscanf(line, "%*[^,],%" SCNu64 ",%" SCNu64 ",%" SCNu64, &lower, &upper, &size) == 3)
            buffers[count++] = (struct plan_buffer){
                .bytes = size, .first = (uint32_t)lower, .last = (uint32_t)(upper - 1)};
    }
    fclose(file);
    return count;
}

static void pack_folder(const char *folder)
{
    enum { ROOM = 20000 };
    struct plan_buffer *buffers = calloc(ROOM, sizeof(*buffers));
    DIR *dir = opendir(folder);
    struct dirent *entry;

    assert_non_null(buffers);
    if (dir == NULL) {
        print_message("no %s here, skipped\n", folder);
        free(buffers);
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        char path[512];
        uint64_t peak, bound;
        int64_t start;
        size_t count;

        if (strstr(entry->d_name, ".csv") == NULL)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        count = read_benchmark(path, buffers, ROOM);
        start = clock_now_us();
        assert_int_equal(planner_pack(buffers, count, &peak, &bound), STATUS_OK);
        print_message("%-24s %5zu buffers %8" PRId64 " us peak %.3f x bound\n", entry->d_name,
                      count, clock_now_us() - start, (double)peak / (double)bound);
        assert_sound(buffers, count, peak, bound);
    }
    closedir(dir);
    free(buffers);
}

static void known_benchmarks_are_packed_without_overlap(void **state)
{
    (void)state;
    pack_folder(SOURCE_DIR "/../shared/planner-benchmarks/networks");
    pack_folder(SOURCE_DIR "/../shared/planner-benchmarks/synthetic");
    pack_folder(SOURCE_DIR "/../shared/planner-benchmarks/challenging");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_needs_nothing),
        cmocka_unit_test(a_chain_needs_its_two_largest_neighbours),
        cmocka_unit_test(buffers_that_never_meet_share_their_place),
        cmocka_unit_test(empty_buffers_are_harmless),
        cmocka_unit_test(random_lifetimes_never_overlap),
        cmocka_unit_test(a_thousand_buffers_take_milliseconds),
        cmocka_unit_test(known_benchmarks_are_packed_without_overlap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
