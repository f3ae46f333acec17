/* sleep, wake, make-room: where models are, and room for other programs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "proto/admin.pb-c.h"

/* MODEL or --all; NULL: neither. */
static char *model_or_all(const char *word)
{
    static char all[] = "";

    if (strcmp(word, "--all") == 0)
        return all;
    return word[0] == '-' || word[0] == '\0' ? NULL : (char *)(uintptr_t)word;
}

static void show_asleep(const json_t *answer)
{
    char bytes[TEXT_ROOM], time[TEXT_ROOM];

    (void)printf("%" PRIu64 " models left the device, %s freed in %s",
                 json_number(answer, "models"),
                 text_of_bytes(json_number(answer, "freed_bytes"), bytes),
                 text_of_us(json_number(answer, "microseconds"), time));
    if (json_number(answer, "busy") > 0)
        (void)printf("; %" PRIu64 " in use leave when they are idle", json_number(answer, "busy"));
    if (json_number(answer, "pinned") > 0)
        (void)printf("; %" PRIu64 " pinned", json_number(answer, "pinned"));
    (void)putchar('\n');
}

int verb_sleep(struct ctl *ctl)
{
    static const char usage[] = "sleep MODEL|--all [--level activations|weights|all]";
    Sluice__V1__AdminRequest request = SLUICE__V1__ADMIN_REQUEST__INIT;

    if (ctl->argc != 2 && ctl->argc != 4)
        return ctl_usage("%s", usage);
    request.model = model_or_all(ctl->argv[1]);
    if (request.model == NULL || (ctl->argc == 4 && strcmp(ctl->argv[2], "--level") != 0))
        return ctl_usage("%s", usage);
    if (ctl->argc == 4)
        request.level = ctl->argv[3];
    return ctl_ask(ctl, "Sleep", &request, show_asleep);
}

static void show_awake(const json_t *answer)
{
    char time[TEXT_ROOM];

    (void)printf("%" PRIu64 " models are back on the device, in %s\n",
                 json_number(answer, "models"),
                 text_of_us(json_number(answer, "microseconds"), time));
}

int verb_wake(struct ctl *ctl)
{
    Sluice__V1__AdminRequest request = SLUICE__V1__ADMIN_REQUEST__INIT;

    if (ctl->argc == 2)
        request.model = model_or_all(ctl->argv[1]);
    if (ctl->argc != 2 || request.model == NULL)
        return ctl_usage("wake MODEL|--all");
    return ctl_ask(ctl, "Wake", &request, show_awake);
}

/* ---- make-room ---- */

struct unit {
    const char *name;
    double value;
};

/* A number with one of the units behind it (the first stands for none). */
static bool read_amount(const char *text, const struct unit *units, size_t count, double *out_value)
{
    char *end;
    double number = strtod(text, &end);

    if (end == text || !(number >= 0 && number < 1e18))
        return false;
    for (size_t i = 0; i < count; i++)
        if (strcmp(end, units[i].name) == 0) {
            *out_value = number * units[i].value;
            return true;
        }
    return false;
}

static bool read_bytes(const char *text, uint64_t *out_bytes)
{
    static const struct unit units[] = {
        {"", 1}, {"K", 1024}, {"M", 1048576}, {"G", 1073741824}, {"T", 1099511627776}};
    double bytes;

    if (!read_amount(text, units, sizeof(units) / sizeof(units[0]), &bytes) || bytes < 1 ||
        bytes > 1e15)
        return false;
    *out_bytes = (uint64_t)bytes;
    return true;
}

static bool read_time(const char *text, int64_t *out_us)
{
    static const struct unit units[] = {{"", 1e6},    {"us", 1},  {"ms", 1e3}, {"s", 1e6},
                                        {"min", 6e7}, {"m", 6e7}, {"h", 3.6e9}};
    double us;

    if (!read_amount(text, units, sizeof(units) / sizeof(units[0]), &us) || us > 8.64e10)
        return false;
    *out_us = (int64_t)us;
    return true;
}

static void show_room(const json_t *answer)
{
    const json_t *freed = json_object_get(answer, "freed"), *left;
    char a[TEXT_ROOM], b[TEXT_ROOM], c[TEXT_ROOM];
    const char *step;
    json_t *bytes;
    size_t i;

    (void)printf("%s of %s given back in %s%s\n",
                 text_of_bytes(json_number(answer, "freed_bytes"), a),
                 text_of_bytes(json_number(answer, "wanted_bytes"), b),
                 text_of_us(json_number(answer, "microseconds"), c),
                 json_is_true(json_object_get(answer, "enough")) ? "" : ": not enough");
    json_object_foreach((json_t *)(uintptr_t)freed, step, bytes)(void)
        printf("  %-12s %12s\n", step, text_of_bytes((uint64_t)json_integer_value(bytes), a));
    if (json_number(answer, "held_us") > 0)
        (void)printf("not taken again for %s\n", text_of_us(json_number(answer, "held_us"), a));
    json_array_foreach(json_object_get(answer, "left"), i, left)(void)
        printf("left: %s, %s (%s)\n", json_text(left, "model"),
               text_of_bytes(json_number(left, "bytes"), a), json_text(left, "why"));
}

int verb_make_room(struct ctl *ctl)
{
    static const char usage[] = "make-room BYTES [--within TIME] [--hold TIME]";
    Sluice__V1__AdminRequest request = SLUICE__V1__ADMIN_REQUEST__INIT;

    request.hold_us = 10000000;
    if (ctl->argc < 2 || ctl->argc % 2 != 0 || !read_bytes(ctl->argv[1], &request.bytes))
        return ctl_usage("%s", usage);
    for (int i = 2; i < ctl->argc; i += 2) {
        int64_t *to = strcmp(ctl->argv[i], "--within") == 0 ? &request.within_us
                      : strcmp(ctl->argv[i], "--hold") == 0 ? &request.hold_us
                                                            : NULL;

        if (to == NULL || !read_time(ctl->argv[i + 1], to))
            return ctl_usage("%s", usage);
    }
    return ctl_ask(ctl, "MakeRoom", &request, show_room);
}
