/* memory: who holds what, in several pictures. */
#include "memory.h"

#include <inttypes.h>
#include <string.h>

#include "proto/admin.pb-c.h"
#include "summary.h"

/* One bar of the memory picture: used, cached, free, with the marks above it. */
static void print_bar(const json_t *memory)
{
    static const char *const marks_of[] = {"low", "high", "critical"};
    enum { WIDTH = 60 };
    char bar[WIDTH + 1], marks[WIDTH + 1];
    double budget = (double)json_number(memory, "budget_bytes") + 1;
    double allocated = (double)json_number(memory, "allocated_bytes");
    double reserved = (double)json_number(memory, "reserved_bytes");

    memset(marks, ' ', WIDTH);
    for (size_t i = 0; i < 3; i++) {
        uint64_t bytes = json_number(json_object_get(memory, "watermarks"), marks_of[i]);
        int at = (int)((double)bytes / budget * WIDTH);

        marks[at < WIDTH ? at : WIDTH - 1] = "LHC"[i];
    }
    for (int i = 0; i < WIDTH; i++) {
        double here = (i + 0.5) / WIDTH * budget;

        bar[i] = here < allocated ? '#' : here < reserved ? '+' : '.';
    }
    bar[WIDTH] = marks[WIDTH] = '\0';
    (void)printf("  %s\n  %s  # in use  + cached  . free of the budget\n", marks, bar);
}

static void print_owners(const json_t *owners)
{
    static const char *const titles[] = {"OWNER", "KIND", "BYTES", "SINCE", "LAST USE"};
    struct table *table = table_create(5, titles, "llrrr");
    const json_t *owner;
    size_t i;

    json_array_foreach(owners, i, owner)
    {
        char bytes[TEXT_ROOM], since[TEXT_ROOM], use[TEXT_ROOM];

        table_add(table, (const char *const[]){json_text(owner, "owner"), json_text(owner, "kind"),
                                               text_of_bytes(json_number(owner, "bytes"), bytes),
                                               text_of_us(json_number(owner, "since_us"), since),
                                               text_of_us(json_number(owner, "last_use_us"), use)});
    }
    table_print(table, stdout);
}

/* Memory of clients: nothing where none is registered. */
static void print_regions(const json_t *shared)
{
    static const char *const titles[] = {"REGION", "KIND", "BYTES", "USES", "SINCE", "LAST USE"};
    const json_t *regions = json_object_get(shared, "regions"), *region;
    struct table *table;
    size_t i;

    if (json_array_size(regions) == 0)
        return;
    (void)printf("\nclients' shared memory, part of no sum above:\n");
    table = table_create(6, titles, "llrrrr");
    json_array_foreach(regions, i, region)
    {
        char bytes[TEXT_ROOM], since[TEXT_ROOM], use[TEXT_ROOM], uses[TEXT_ROOM];

        (void)snprintf(uses, sizeof(uses), "%" PRIu64, json_number(region, "uses"));
        table_add(table,
                  (const char *const[]){json_text(region, "name"), json_text(region, "kind"),
                                        text_of_bytes(json_number(region, "bytes"), bytes), uses,
                                        text_of_us(json_number(region, "since_us"), since),
                                        text_of_us(json_number(region, "last_use_us"), use)});
    }
    table_print(table, stdout);
}

static void show_memory(const json_t *answer)
{
    const json_t *host = json_object_get(answer, "host"), *kinds = json_object_get(answer, "kinds");
    const json_t *bytes;
    const char *kind;
    char a[TEXT_ROOM], b[TEXT_ROOM], c[TEXT_ROOM];

    (void)printf("%s: %s of %s reserved, level %s%s\n", json_text(answer, "device"),
                 text_of_bytes(json_number(answer, "reserved_bytes"), a),
                 text_of_bytes(json_number(answer, "budget_bytes"), b), json_text(answer, "level"),
                 json_is_true(json_object_get(answer, "pinned")) ? " (pinned)" : "");
    print_bar(answer);
    (void)printf("  allocated %s (peak %s), cached %s\n",
                 text_of_bytes(json_number(answer, "allocated_bytes"), a),
                 text_of_bytes(json_number(answer, "peak_allocated_bytes"), b),
                 text_of_bytes(json_number(answer, "cached_bytes"), c));
    json_object_foreach((json_t *)kinds, kind, bytes)(void)
        printf("    %-12s %12s\n", kind, text_of_bytes(json_number(kinds, kind), a));
    (void)printf("  resident size of the process %s\n",
                 text_of_bytes(json_number(answer, "resident_bytes"), a));
    (void)printf("  empty_cache %" PRIu64 " times, %s given back, %" PRIu64 " level changes\n",
                 json_number(answer, "empty_cache_total"),
                 text_of_bytes(json_number(answer, "empty_cache_freed_bytes_total"), a),
                 json_number(answer, "transitions_total"));
    if (host != NULL)
        (void)printf("  requests and responses: %s in use, %s kept, of %s\n",
                     text_of_bytes(json_number(host, "in_use_bytes"), a),
                     text_of_bytes(json_number(host, "cached_bytes"), b),
                     text_of_bytes(json_number(host, "limit_bytes"), c));
    print_owners(json_object_get(answer, "owners"));
    print_regions(json_object_get(answer, "shared_memory"));
}

/* ---- --why ---- */

static void show_why(const json_t *answer)
{
    static const char *const titles[] = {"OWNER", "KIND",     "BYTES",   "SINCE",
                                         "USED",  "HELD FOR", "FREED BY"};
    struct table *table = table_create(7, titles, "llrrrll");
    const json_t *owner;
    size_t i;

    json_array_foreach(json_object_get(answer, "owners"), i, owner)
    {
        char bytes[TEXT_ROOM], since[TEXT_ROOM], use[TEXT_ROOM];

        table_add(table, (const char *const[]){json_text(owner, "owner"), json_text(owner, "kind"),
                                               text_of_bytes(json_number(owner, "bytes"), bytes),
                                               text_of_us(json_number(owner, "since_us"), since),
                                               text_of_us(json_number(owner, "last_use_us"), use),
                                               json_text(owner, "held_for"),
                                               json_text(owner, "freed_by")});
    }
    table_print(table, stdout);
}

/* ---- the rest ---- */

static void show_stats(const json_t *answer)
{
    stats_print(answer, stdout);
}

static void show_summary(const json_t *answer)
{
    summary_print(answer, stdout);
}

static void show_reset(const json_t *answer)
{
    (void)printf("peaks of %s begin anew\n", json_text(answer, "pool"));
}

static const Sluice__V1__AdminRequest nothing = SLUICE__V1__ADMIN_REQUEST__INIT;

static int reset_peaks(struct ctl *ctl, const char *pool)
{
    Sluice__V1__AdminRequest request = SLUICE__V1__ADMIN_REQUEST__INIT;

    request.pool = (char *)pool;
    return ctl_ask(ctl, "MemoryResetPeaks", &request, show_reset);
}

static int usage(void)
{
    return ctl_usage("memory [--stats | --summary | --why | --reset-peaks [POOL] | --snapshot FILE "
                     "| --watch [--interval SECONDS] [--count N]]");
}

/* "1", "0.5", "1s", "200ms" */
static bool parse_interval(const char *text, double *out_seconds)
{
    char number[TEXT_ROOM];
    size_t length = strlen(text);
    double scale = 1;

    if (length >= sizeof(number))
        return false;
    memcpy(number, text, length + 1);
    if (length > 2 && strcmp(number + length - 2, "ms") == 0) {
        scale = 1e-3;
        number[length - 2] = '\0';
    } else if (length > 1 && number[length - 1] == 's') {
        number[length - 1] = '\0';
    }
    if (!ctl_number(number, MOST_SECONDS, out_seconds))
        return false;
    *out_seconds *= scale;
    return *out_seconds >= 0.01;
}

static int watch(struct ctl *ctl)
{
    struct watch_options options = {.interval_s = 1};
    double count;

    for (int i = 2; i < ctl->argc; i += 2) {
        const char *value = i + 1 < ctl->argc ? ctl->argv[i + 1] : NULL;

        if (value != NULL && strcmp(ctl->argv[i], "--interval") == 0) {
            if (!parse_interval(value, &options.interval_s))
                return ctl_usage("--interval '%s': 10ms and more are allowed", value);
        } else if (value != NULL && strcmp(ctl->argv[i], "--count") == 0) {
            if (!ctl_number(value, MOST_COUNT, &count) || count < 1)
                return ctl_usage("--count '%s': a number from 1 is allowed", value);
            options.count = (uint64_t)count;
        } else {
            return usage();
        }
    }
    return memory_watch(ctl, &options);
}

int verb_memory(struct ctl *ctl)
{
    const char *what = ctl->argc > 1 ? ctl->argv[1] : "";

    if (ctl->argc == 1)
        return ctl_ask(ctl, "Memory", &nothing, show_memory);
    if (strcmp(what, "--watch") == 0)
        return watch(ctl);
    if (strcmp(what, "--reset-peaks") == 0 && ctl->argc <= 3)
        return reset_peaks(ctl, ctl->argc == 3 ? ctl->argv[2] : "");
    if (strcmp(what, "--snapshot") == 0 && ctl->argc == 3)
        return memory_snapshot(ctl, ctl->argv[2]);
    if (ctl->argc > 2)
        return usage();
    if (strcmp(what, "--why") == 0)
        return ctl_ask(ctl, "Memory", &nothing, show_why);
    if (strcmp(what, "--stats") == 0)
        return ctl_ask(ctl, "MemoryStats", &nothing, show_stats);
    if (strcmp(what, "--summary") == 0)
        return ctl_ask(ctl, "MemoryStats", &nothing, show_summary);
    return usage();
}
