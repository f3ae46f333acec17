/* Proposals for the configuration out of what a running daemon has counted.  Pure: facts in,
 * proposals with their reasons out.
 *
 *   need   weights + the largest batch: what the low mark must leave room for
 *   again  bytes taken from the device again after they had been given back
 *
 *   limit    need does not fit below a mark, and the device has more
 *   marks    need lies above the low mark, or trims were undone: low moves up, high and critical
 *            keep their distance
 *   floor    again is large although no mark was passed: what one batch needs is worth keeping
 *   lanes    requests wait longer than they compute, and another batch fits; or lanes stand idle
 *   batch    a smaller batch is as fast a row, or a batch was refused for want of memory
 *
 * What it proposes always passes the check of the configuration.
 */
#ifndef CTL_ADVISE_H
#define CTL_ADVISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct advise_batch { /* batches of one size */
    uint64_t rows;
    uint64_t count;
    uint64_t ns; /* of all of them */
};

struct advise_model {
    const char *name;
    uint64_t use_bytes; /* the most that one batch took */
    uint64_t ooms;
    uint64_t requests, queue_ns, compute_ns; /* sums */
    uint64_t max_batch_size;                 /* 0: it has no batches */
    size_t sizes;
    const struct advise_batch *size;
};

struct advise_facts {
    uint64_t budget_bytes, total_bytes; /* in force; of the device, 0: unknown */
    uint64_t headroom_bytes;
    uint64_t weights_bytes; /* and all else that stays */
    uint64_t floor_bytes;
    uint64_t peak_allocated_bytes; /* of the device */
    uint64_t taken_bytes;          /* arenas: sum of all that was taken … */
    uint64_t peak_arena_bytes;     /* … and the most at once */
    uint64_t transitions;          /* of levels */
    uint64_t trims, decays;        /* times cache was given back for a mark, for idleness */
    double low, high, critical;    /* shares */
    unsigned lanes, cores;
    size_t models;
    const struct advise_model *model;
};

enum { ADVISE_MOST = 8, ADVISE_REASON_BYTES = 320, ADVISE_VALUE_BYTES = 32 };

struct advise_proposal {
    const char *section, *key;                                  /* "Memory", "LowWatermark" */
    char now[ADVISE_VALUE_BYTES], proposed[ADVISE_VALUE_BYTES]; /* as the configuration reads it */
    char reason[ADVISE_REASON_BYTES];
    bool needs_restart;
};

struct advice {
    size_t count;
    struct advise_proposal proposal[ADVISE_MOST];
};

void advise(const struct advise_facts *facts, struct advice *out_advice);

/* The batch cap of one model: what its max_batch_size should be; 0: as it is.  `reason`: why. */
uint64_t advise_batch_cap(const struct advise_facts *facts, const struct advise_model *model,
                          char reason[ADVISE_REASON_BYTES]);

#endif
