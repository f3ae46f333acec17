/* The table keeps the layout of torch.cuda.memory_summary(), but has a row for every kind of memory
 * in the place of the large and the small pool. */
#include "summary.h"

#include <inttypes.h>
#include <string.h>

#include "ctl.h"

enum { WIDTH = 75 };

static const char *const counters[] = {"current", "peak", "allocated", "freed"};
enum { COUNTERS = sizeof(counters) / sizeof(counters[0]) };

static void print_line(FILE *to, char c)
{
    (void)putc('|', to);
    for (int i = 0; i < WIDTH; i++)
        (void)putc(c, to);
    (void)fputs("|\n", to);
}

/* As torch's _format_size: whole numbers in the unit of `like`, the next unit from 768 on. */
static void print_size(FILE *to, uint64_t bytes, uint64_t like)
{
    static const char *const units[] = {"B  ", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;

    for (; like >= 768 * 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++) {
        bytes /= 1024;
        like /= 1024;
    }
    (void)fprintf(to, " %6" PRIu64 " %s |", bytes, units[unit]);
}

static void print_row(FILE *to, const char *title, const json_t *stat, const json_t *all)
{
    (void)fprintf(to, "| %-21s |", title);
    for (size_t i = 0; i < COUNTERS; i++)
        print_size(to, json_number(stat, counters[i]), json_number(all, counters[i]));
    (void)putc('\n', to);
}

static void print_measure(FILE *to, const char *title, const json_t *pools)
{
    const json_t *all = json_object_get(pools, "all");
    const char *pool;
    json_t *stat;

    print_line(to, '-');
    print_row(to, title, all, all);
    json_object_foreach((json_t *)pools, pool, stat)
    {
        char text[TEXT_ROOM];

        if (strcmp(pool, "all") == 0)
            continue;
        (void)snprintf(text, sizeof(text), "      from %s", pool);
        print_row(to, text, stat, all);
    }
}

static void print_counts(FILE *to, const char *left, uint64_t left_count, const char *right,
                         uint64_t right_count)
{
    char text[2][64];

    (void)snprintf(text[0], sizeof(text[0]), "%s: %" PRIu64, left, left_count);
    (void)snprintf(text[1], sizeof(text[1]), "%s: %" PRIu64, right, right_count);
    (void)fprintf(to, "| %-35s | %-35s |\n", text[0], text[1]);
}

void summary_print(const json_t *answer, FILE *to)
{
    static const struct {
        const char *title, *measure;
    } measures[] = {
        {"Allocated memory", "allocated_bytes"}, {"Active memory", "active_bytes"},
        {"Requested memory", "requested_bytes"}, {"Device reserved", "reserved_bytes"},
        {"Inactive (cached)", "inactive_bytes"},
    };
    const json_t *stats = json_object_get(answer, "stats");

    print_line(to, '=');
    (void)fprintf(to, "| %-73.73s |\n", json_text(answer, "device"));
    print_line(to, '-');
    print_counts(to, "OOMs", json_number(stats, "num_ooms"), "alloc retries",
                 json_number(stats, "num_alloc_retries"));
    print_line(to, '=');
    (void)fprintf(to, "| %-21s | %-10s | %-10s | %-10s | %-10s |\n", "       Metric", "Cur Usage",
                  "Peak Usage", "Tot Alloc", "Tot Freed");
    for (size_t i = 0; i < sizeof(measures) / sizeof(measures[0]); i++)
        print_measure(to, measures[i].title, json_object_get(stats, measures[i].measure));
    print_line(to, '-');
    print_counts(to, "Device allocations", json_number(stats, "num_device_alloc"), "Device frees",
                 json_number(stats, "num_device_free"));
    print_line(to, '=');
}

/* ---- flat ---- */

static void print_flat(FILE *to, const char *prefix, const char *measure, const char *pool,
                       const json_t *stat)
{
    for (size_t i = 0; i < COUNTERS; i++)
        (void)fprintf(to, "%s%s.%s.%s  %" PRIu64 "\n", prefix, measure, pool, counters[i],
                      json_number(stat, counters[i]));
}

static void print_numbers(FILE *to, const char *prefix, const json_t *object)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
    {
        if (strncmp(key, "num_", 4) == 0)
            (void)fprintf(to, "%s%s  %" PRIu64 "\n", prefix, key, json_number(object, key));
    }
}

void stats_print(const json_t *answer, FILE *to)
{
    const json_t *stats = json_object_get(answer, "stats"), *model;
    json_t *pools, *stat;
    const char *measure, *pool;
    size_t i;

    json_object_foreach((json_t *)stats, measure, pools)
    {
        json_object_foreach(pools, pool, stat)
        {
            print_flat(to, "", measure, pool, stat);
        }
    }
    print_numbers(to, "", stats);
    json_array_foreach(json_object_get(answer, "models"), i, model)
    {
        char prefix[300];

        (void)snprintf(prefix, sizeof(prefix), "%s: ", json_text(model, "name"));
        json_object_foreach(json_object_get(model, "stats"), measure, stat)
        {
            print_flat(to, prefix, measure, "all", stat);
        }
        print_numbers(to, prefix, model);
    }
}
