/* The governor: numbers in, verdict out.  No I/O, no clock, no threads of its own.
 *
 *   NORMAL ─u ≥ low─> TRIM ─u ≥ high, F < H─> RECLAIM ─u ≥ critical, F < H/2─> EVICT   REJECT: a
 *     <──── one step a dwell, below the exit mark of the level ────        request died of memory
 *
 * Quantities (their names are those of the literature: PSI, cgroup v2, jemalloc, AIMD)
 *   u      reserved / budget          F  device free    H  headroom    K  cached    P  planned
 *   stall  share of a second in which some batch waited for bytes (the kernel's PSI "some")
 *   KEEP   max(floor, what was felt, mean of P over 60 s): what cgroup v2 protects as memory.low
 *   felt   more than a quarter of a trim was needed again within 5 s (the kernel's refaults): the
 *          bytes that came back are kept for a minute.  Not simply the peak of P over that minute:
 *          one burst must not hold its memory above a mark for so long, so the first trim is whole,
 *          and only one that hurt is not repeated
 *   mean   E += (P − E) · dt / (60 s + dt), P the smaller of both ends of dt: what a load that goes
 *          on really lives in
 *   KEEP beyond the floor counts only while batches run (a dwell long): an idle lane needs nothing
 *
 *   level    entered when any holds                         left when all hold for a dwell
 *   TRIM     u ≥ low                                         u < low − 0.07
 *   RECLAIM  u ≥ high; F < H; the system says so             u < high − 0.08, F > 1.25 H, quiet
 *   EVICT    u ≥ critical; F < H/2; stall > 10 %;            u < critical − 0.07, F > H, stall < 2
 * %, a batch lacks what only idle models have;       nobody lacks RECLAIM has nothing left, its
 * mark held for 1 s, and idle models (or KEEP, where the pressure is from outside) would help
 *   REJECT   a request failed for want of memory             none failed and one was admitted (or
 *                                                            none waits), for a second
 *
 * Up at once, over several levels if need be; down one step a dwell.
 *
 *   level    gives back                                      of wall time     batch caps   loads
 *   TRIM     slice by slice until u < low − 0.08 or KEEP      1 %              –            yes
 *   RECLAIM  everything down to KEEP                          5 %, doubled     –            yes
 *   EVICT    everything down to the floor, and idle models    25 % each second halve once  as far
 *   REJECT   the same                                         until it is calm a dwell     as it
 *            would let them stay: u < high and < critical − 0.07, F > H
 *   any      idle for long: all down to the floor along a smootherstep of 20 jittered steps (as
 *            jemalloc decays); twice as slowly, up to 8 x, after a decay that was felt
 * (F < H/2: all of wall time, for the kernel's killer does not wait.)
 *
 * A level acts only while its exit mark is not reached and K − KEEP ≥ trim_minimum, else it is
 * `pinned`: weights alone above a mark make no trim loop.  What runs within the budget is no reason
 * for RECLAIM to become EVICT: admission already bounds it.  Caps come back by a step a quiet
 * second (AIMD).
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
    uint64_t free_bytes;      /* device */
    int64_t last_batch_us;    /* when a batch last ran */
    uint64_t evictable_bytes; /* what idle models would give */
    uint64_t wanted_bytes;    /* what the waiting batch that lacks most lacks; 0: none waits */
    bool capped;              /* some batch cap is in force */
    /* since the last tick */
    uint64_t regrown_bytes; /* that lanes took from the device */
    int64_t stall_us;       /* while some batch waited for bytes */
    uint64_t refused;       /* requests that failed for want of memory which others had */
    uint64_t admitted;      /* reservations that were granted */
    bool system_presses;    /* the system reported memory pressure (PSI, cgroup events) */
};

enum cap_step { CAPS_STAY, CAPS_HALVE, CAPS_RAISE };

struct govern_verdict {
    enum govern_level level;
    bool level_changed;
    bool pinned;          /* above a mark, nothing worth reclaiming */
    bool trim;            /* shrink cached memory to `keep_bytes` */
    uint64_t keep_bytes;  /* over all lanes together */
    double share;         /* … in so much of wall time, 0 < share ≤ 1 */
    bool is_decay;        /* the trim comes from idleness, not from a mark */
    uint64_t evict_bytes; /* idle models should leave until so much is free (EVICT); 0: none */
    /* EVICT and above: a model that would make more than this held had to leave again at once;
     * UINT64_MAX: none would */
    uint64_t may_hold_bytes;
    enum cap_step caps;
    int64_t next_tick_us; /* when to ask again at the latest */
};

struct governor {
    struct govern_config config;
    enum govern_level level;
    int64_t entered_us;    /* the level */
    int64_t calm_since_us; /* the exit marks of the level hold since; CLOCK_NEVER: they do not */
    int64_t window_us, stalled_us; /* the second under way: its start, and what of it was stalled */
    double stall_share;            /* of the one before */
    bool admitted;                 /* a reservation was granted since the last refusal */
    int64_t caps_us;               /* the last change of batch caps */
    uint64_t transitions_total;
    uint64_t level_entries[5];
    uint64_t evict_bytes_total; /* what idle models were asked for */
    /* KEEP: keep.c */
    double mean_planned; /* of planned bytes over about a minute */
    int64_t mean_us;     /* when it was last brought up to date */
    uint64_t mean_last;  /* planned bytes then */
    uint64_t felt_bytes; /* what came back soon after a trim; 0: nothing did lately */
    int64_t felt_us;     /* when it was last needed */
    int64_t trim_us;     /* the last trim; CLOCK_NEVER: none to watch */
    bool trim_is_decay;
    uint64_t trim_from_bytes, trim_to_bytes;
    uint64_t regrown_bytes; /* since that trim */
    uint64_t refault_bytes_total;
    /* idle decay: decay.c */
    int64_t idle_from_us;     /* CLOCK_NEVER: not idle for long */
    uint64_t idle_from_bytes; /* cached when idleness began: where the curve starts */
    unsigned decay_shift;     /* so many times the decay is twice as long */
    int64_t decay_felt_us;    /* when it was last felt, or the shift last fell */
    uint32_t jitter;
};

void governor_init(struct governor *governor, const struct govern_config *config, int64_t now_us);
void governor_configure(struct governor *governor, const struct govern_config *config); /* live */
void governor_tick(struct governor *governor, const struct govern_input *input,
                   struct govern_verdict *out_verdict);
/* What may be kept when someone asks for empty_cache: the configured floor, or 0 when `forced`. */
uint64_t governor_keep_bytes(const struct governor *governor, bool forced);
/* Share of the last second, or of the one under way if that is more, that was stalled. */
double governor_stall_share(const struct governor *governor);

#endif
