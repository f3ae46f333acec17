#include "memory/mem_stats.h"

#include <assert.h>

const char *mem_measure_name(enum mem_measure measure)
{
    static const char *const names[MEM_MEASURES] = {
        [MEASURE_RESERVED] = "reserved_bytes", [MEASURE_ALLOCATED] = "allocated_bytes",
        [MEASURE_ACTIVE] = "active_bytes",     [MEASURE_REQUESTED] = "requested_bytes",
        [MEASURE_INACTIVE] = "inactive_bytes",
    };

    assert((unsigned)measure < MEM_MEASURES);
    return names[measure];
}

const struct mem_stat *mem_stats_measure(const struct mem_stats *stats, enum mem_measure measure)
{
    switch (measure) {
    case MEASURE_RESERVED:
        return &stats->reserved;
    case MEASURE_REQUESTED:
        return &stats->requested;
    case MEASURE_INACTIVE:
        return &stats->inactive;
    default: /* allocated, and active: nothing waits between the two */
        return &stats->allocated;
    }
}

static void shift(struct mem_stat *stat, int64_t by)
{
    if (by > 0) {
        stat->current += (uint64_t)by;
        stat->allocated += (uint64_t)by;
        if (stat->current > stat->peak)
            stat->peak = stat->current;
    } else if (by < 0) {
        assert(stat->current >= 0 - (uint64_t)by);
        stat->current -= 0 - (uint64_t)by;
        stat->freed += 0 - (uint64_t)by;
    }
}

void mem_stats_apply(struct mem_stats *stats, const struct mem_change *change)
{
    shift(&stats->reserved, change->reserved);
    shift(&stats->allocated, change->allocated);
    shift(&stats->requested, change->requested);
    shift(&stats->inactive, change->reserved - change->allocated);
}

static void unshift(struct mem_stat *stat, int64_t by)
{
    if (by <= 0)
        return;
    stat->current -= (uint64_t)by;
    stat->allocated -= (uint64_t)by;
}

void mem_stats_undo(struct mem_stats *stats, const struct mem_change *change)
{
    unshift(&stats->reserved, change->reserved);
    unshift(&stats->allocated, change->allocated);
    unshift(&stats->requested, change->requested);
    unshift(&stats->inactive, change->reserved - change->allocated);
}

void mem_stats_reset_peaks(struct mem_stats *stats)
{
    struct mem_stat *const each[] = {&stats->reserved, &stats->allocated, &stats->requested,
                                     &stats->inactive};

    for (unsigned i = 0; i < sizeof(each) / sizeof(each[0]); i++)
        each[i]->peak = each[i]->current;
}
