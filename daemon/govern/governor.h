/* The governor: numbers in, verdict out.  No I/O, no clock, no threads of its own.
 *
 *   NORMAL ─u ≥ low─> TRIM ─u ≥ high, F < H─> RECLAIM ─u ≥ critical, F < H/2─> EVICT   REJECT: a
 *     <──── one step a dwell, below the exit mark of the level ────            reservation failed
 *
 * u = reserved / budget; F = device free, H = headroom; K = cached.  Up at once, down one step per
 * dwell, when the exit mark of the level held so long.  Exit marks lie 0.07 (TRIM), 0.08 (RECLAIM),
 * 0.07 (EVICT) below the entry marks, F > 1.25 H (RECLAIM), F > H (EVICT); REJECT: nothing refused.
 *
 *   TRIM     cached memory goes slice by slice until u is under the exit mark, or down to KEEP
 *   RECLAIM  all of it down to KEEP at once (empty_cache)
 *   EVICT    all of it down to the configured floor; batch caps halve once a dwell
 *   any      idle for long: all of it along a smooth curve (idle decay), down to the floor
 *
 * A level acts until its exit mark is reached, and only when K − KEEP ≥ trim_minimum, else it is
 * `pinned`: weights alone above a mark make no trim loop.  KEEP = max(floor, what lanes took again
 * within 5 s of a trim): the first trim is whole, one that was felt (more than a quarter came back)
 * is not repeated for a minute.
 */
#ifndef GOVERN_GOVERNOR_H
#define GOVERN_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

enum govern_level { LEVEL_NORMAL, LEVEL_TRIM, LEVEL_RECLAIM, LEVEL_EVICT, LEVEL_REJECT };
const char *govern_level_name(enum govern_level level); /* "normal" … */

struct govern_config {
    uint64_t budget_bytes;
    uint64_t headroom_bytes;
    double low, high, critical; /* shares of the budget, 0 < low < high < critical ≤ 1 */
    int64_t dwell_us;
    uint64_t floor_bytes;
    int64_t idle_after_us; /* 0: no idle decay */
    int64_t idle_decay_us;
    uint64_t trim_minimum_bytes;
};

struct govern_input { /* sampled by the caller */
    int64_t now_us;
    uint64_t reserved_bytes;
    uint64_t cached_bytes;
    uint64_t planned_bytes; /* of what runs now */
    bool free_known;
    uint64_t free_bytes;   /* device */
    int64_t last_batch_us; /* when a batch last ran */
    uint64_t refused;      /* reservations refused since the last tick, after reclaim */
};

struct govern_verdict {
    enum govern_level level;
    bool level_changed;
    bool pinned;              /* above a mark, nothing worth reclaiming */
    bool trim;                /* shrink cached memory to `keep_bytes` */
    uint64_t keep_bytes;      /* over all lanes together */
    bool is_decay;            /* the trim comes from idleness, not from a mark */
    uint64_t evict_bytes;     /* idle models should leave until so much is free (EVICT); 0: none */
    bool may_load;            /* false: no model may come now (EVICT and above) */
    unsigned batch_cap_shift; /* halve batch caps so many times (EVICT) */
    int64_t next_tick_us;     /* when to ask again at the latest */
};

struct governor {
    struct govern_config config;
    enum govern_level level;
    int64_t calm_since_us; /* u has been below the exit mark since; CLOCK_NEVER: it is not */
    int64_t idle_from_us;
    uint64_t idle_from_bytes;   /* cached when idleness began: where the decay curve starts */
    uint64_t recent_peak_bytes; /* what came back soon after a trim; 0: nothing did lately */
    int64_t recent_peak_us;     /* when it was last needed */
    int64_t trim_us;            /* the last trim for a mark; CLOCK_NEVER: none to watch */
    uint64_t trim_from_bytes, trim_to_bytes;
    int64_t cap_since_us; /* the last change of cap_shift */
    uint64_t transitions_total;
    uint64_t level_entries[5];
    unsigned cap_shift;
};

void governor_init(struct governor *governor, const struct govern_config *config, int64_t now_us);
void governor_configure(struct governor *governor, const struct govern_config *config); /* live */
void governor_tick(struct governor *governor, const struct govern_input *input,
                   struct govern_verdict *out_verdict);
/* What may be kept when someone asks for empty_cache: the configured floor, or 0 when `forced`. */
uint64_t governor_keep_bytes(const struct governor *governor, bool forced);

#endif
