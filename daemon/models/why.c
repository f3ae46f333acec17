#include "models/why.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"

enum { TIME_BYTES = 32 };

/* "3 s": rounded up, so that "0 s" is now. */
static const char *words_of(int64_t us, char text[TIME_BYTES])
{
    int64_t seconds = us > 0 ? (us + 999999) / 1000000 : 0;

    if (seconds < 120)
        (void)snprintf(text, TIME_BYTES, "%" PRId64 " s", seconds);
    else if (seconds < 7200)
        (void)snprintf(text, TIME_BYTES, "%" PRId64 " min", seconds / 60);
    else
        (void)snprintf(text, TIME_BYTES, "%" PRId64 " h", seconds / 3600);
    return text;
}

static void tell_idle(const struct why_facts *facts, struct why *why)
{
    int64_t left_us = facts->keep_alive_us - facts->idle_us;
    char text[TIME_BYTES];

    (void)snprintf(why->held_for, sizeof(why->held_for), "idle for %s, evictable now",
                   words_of(facts->idle_us, text));
    if (facts->keep_alive_us == CLOCK_NEVER)
        (void)snprintf(why->freed_by, sizeof(why->freed_by),
                       "pressure (level evict), a load that needs it, sleep %s, unload %s",
                       facts->name, facts->name);
    else
        (void)snprintf(why->freed_by, sizeof(why->freed_by),
                       "keep_alive in %s; before: pressure, a load that needs it, sleep %s, "
                       "unload %s",
                       words_of(left_us, text), facts->name, facts->name);
}

static void tell_weights(const struct why_facts *facts, struct why *why)
{
    if (!facts->is_model) {
        (void)snprintf(why->held_for, sizeof(why->held_for), "a load or an unload under way");
        (void)snprintf(why->freed_by, sizeof(why->freed_by), "its end");
    } else if (facts->is_moving) {
        (void)snprintf(why->held_for, sizeof(why->held_for), "moving");
        (void)snprintf(why->freed_by, sizeof(why->freed_by), "the move, when it leaves");
    } else if (facts->requests > 0) {
        (void)snprintf(why->held_for, sizeof(why->held_for), "in use by %zu request%s",
                       facts->requests, facts->requests == 1 ? "" : "s");
        (void)snprintf(why->freed_by, sizeof(why->freed_by),
                       facts->is_pinned ? "unload %s" : "their end, then as idle; unload %s",
                       facts->name);
    } else if (facts->is_pinned) {
        (void)snprintf(why->held_for, sizeof(why->held_for), "pinned (sluice.pin)");
        (void)snprintf(why->freed_by, sizeof(why->freed_by), "unload %s", facts->name);
    } else {
        tell_idle(facts, why);
    }
}

static void tell_cached(const struct why_facts *facts, struct why *why)
{
    char begin[TIME_BYTES], end[TIME_BYTES];

    (void)snprintf(why->held_for, sizeof(why->held_for), "the next batch, evictable now");
    if (facts->is_floor)
        (void)snprintf(why->freed_by, sizeof(why->freed_by),
                       "a lower Floor=; now: empty-cache --force");
    else if (facts->decay_us == CLOCK_NEVER)
        (void)snprintf(why->freed_by, sizeof(why->freed_by),
                       "pressure; now: empty-cache (idle decay is off)");
    else if (facts->decay_us > 0)
        (void)snprintf(why->freed_by, sizeof(why->freed_by),
                       "idle decay in %s, over %s; now: empty-cache",
                       words_of(facts->decay_us, begin), words_of(facts->shrink_us, end));
    else
        (void)snprintf(why->freed_by, sizeof(why->freed_by),
                       "idle decay, gone in %s; now: empty-cache",
                       words_of(facts->shrink_us + facts->decay_us, end));
}

void why_tell(const struct why_facts *facts, struct why *out_why)
{
    bool has_user = facts->user != NULL && facts->user[0] != '\0';

    switch (facts->kind) {
    case MEM_WEIGHTS:
        tell_weights(facts, out_why);
        break;
    case MEM_CACHED:
        tell_cached(facts, out_why);
        break;
    case MEM_ACTIVATION:
    case MEM_IO:
        (void)snprintf(out_why->held_for, sizeof(out_why->held_for), "a batch of %s",
                       has_user ? facts->user : "a model");
        (void)snprintf(out_why->freed_by, sizeof(out_why->freed_by),
                       "the end of the batch, then as cached");
        break;
    default:
        (void)snprintf(out_why->held_for, sizeof(out_why->held_for), "the daemon itself");
        (void)snprintf(out_why->freed_by, sizeof(out_why->freed_by), "the end of the process");
        break;
    }
}
