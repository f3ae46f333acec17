#include "govern/marks.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

struct checking {
    const struct marks_facts *facts;
    marks_warn_fn warn;
    void *arg;
    unsigned count;
};

static void say(struct checking *checking, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say(struct checking *checking, const char *format, ...)
{
    char sentence[MARKS_SENTENCE_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    checking->warn(checking->arg, sentence);
    checking->count++;
}

const char *marks_size(uint64_t bytes, char text[MARKS_SIZE_BYTES])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;

    for (; value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
        value /= 1024;
    (void)snprintf(text, MARKS_SIZE_BYTES, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

static uint64_t mark_bytes(const struct marks_facts *facts, double mark)
{
    return (uint64_t)(mark * (double)facts->config.budget_bytes);
}

static void check_device(struct checking *checking)
{
    const struct marks_facts *facts = checking->facts;
    uint64_t headroom = facts->config.headroom_bytes, total = facts->total_bytes;
    char a[MARKS_SIZE_BYTES], b[MARKS_SIZE_BYTES], c[MARKS_SIZE_BYTES];

    if (total == 0)
        return;
    if (headroom >= total)
        say(checking,
            "Memory.Headroom= is %s, the device has only %s: nothing is left to serve with, below "
            "that is allowed",
            marks_size(headroom, a), marks_size(total, b));
    else if (facts->limit_bytes > total - headroom)
        say(checking,
            "Memory.Limit= is %s, but the device's %s without the headroom are %s: that is the "
            "limit in force",
            marks_size(facts->limit_bytes, a), marks_size(total, b),
            marks_size(total - headroom, c));
    else if (facts->free_bytes < headroom)
        say(checking,
            "Memory.Headroom= is %s, the device has only %s free now: the level begins at reclaim "
            "until others leave, or with a headroom below that",
            marks_size(headroom, a), marks_size(facts->free_bytes, b));
}

static void check_largest(struct checking *checking)
{
    const struct marks_facts *facts = checking->facts;
    char a[MARKS_SIZE_BYTES], b[MARKS_SIZE_BYTES];

    if (facts->largest_model != NULL && facts->largest_bytes > facts->config.budget_bytes)
        say(checking,
            "the limit in force is %s, model '%s' alone takes %s: it cannot be loaded, at least "
            "that is needed",
            marks_size(facts->config.budget_bytes, a), facts->largest_model,
            marks_size(facts->largest_bytes, b));
}

/* True: weights alone are above the mark, there is nothing more to say of batches. */
static bool check_weights(struct checking *checking)
{
    const struct marks_facts *facts = checking->facts;
    uint64_t low = mark_bytes(facts, facts->config.low), weights = facts->weights_bytes;
    char a[MARKS_SIZE_BYTES], b[MARKS_SIZE_BYTES], c[MARKS_SIZE_BYTES];

    if (weights == 0 || weights < low)
        return false;
    say(checking,
        "Memory.LowWatermark=%g is at %s, weights alone take %s: the level never falls to normal "
        "(pinned); a Memory.Limit= above %s or fewer models are needed",
        facts->config.low, marks_size(low, a), marks_size(weights, b),
        marks_size((uint64_t)((double)weights / facts->config.low), c));
    return true;
}

static void check_low(struct checking *checking)
{
    const struct marks_facts *facts = checking->facts;
    uint64_t low = mark_bytes(facts, facts->config.low);
    uint64_t need = facts->weights_bytes + facts->peak_bytes;
    char a[MARKS_SIZE_BYTES], b[MARKS_SIZE_BYTES], c[MARKS_SIZE_BYTES], d[MARKS_SIZE_BYTES];

    if (facts->peak_bytes == 0 || need <= low)
        return;
    say(checking,
        "Memory.LowWatermark=%g is at %s, weights (%s) and the largest batch (%s, of '%s') pass it "
        "together: each such batch starts a trim; a mark above %.2f or a Memory.Limit= above %s is "
        "needed",
        facts->config.low, marks_size(low, a), marks_size(facts->weights_bytes, b),
        marks_size(facts->peak_bytes, c), facts->peak_model != NULL ? facts->peak_model : "",
        (double)need / (double)facts->config.budget_bytes,
        marks_size((uint64_t)((double)need / facts->config.low), d));
}

static void check_floor(struct checking *checking)
{
    const struct marks_facts *facts = checking->facts;
    uint64_t low = mark_bytes(facts, facts->config.low), floor = facts->config.floor_bytes;
    uint64_t room = low > facts->weights_bytes ? low - facts->weights_bytes : 0;
    char a[MARKS_SIZE_BYTES], b[MARKS_SIZE_BYTES], c[MARKS_SIZE_BYTES], d[MARKS_SIZE_BYTES];

    if (floor == 0 || floor <= room)
        return;
    say(checking,
        "Memory.Floor= is %s, which with weights of %s lies above the low mark at %s: trims stop "
        "before they reach it; at most %s is allowed",
        marks_size(floor, a), marks_size(facts->weights_bytes, b), marks_size(low, c),
        marks_size(room, d));
}

unsigned marks_check(const struct marks_facts *facts, marks_warn_fn warn, void *arg)
{
    struct checking checking = {.facts = facts, .warn = warn, .arg = arg};

    check_device(&checking);
    check_largest(&checking);
    if (!check_weights(&checking)) {
        check_low(&checking);
        check_floor(&checking);
    }
    return checking.count;
}
