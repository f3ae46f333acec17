/* What the two files of reductions share: reduce.c for floats, reduce_any.c for other types. */
#ifndef DEVICE_CPU_REDUCE_INTERNAL_H
#define DEVICE_CPU_REDUCE_INTERNAL_H

#include "device/cpu/axes.h"
#include "device/cpu/cpu.h"
#include "device/cpu/loops.h"

enum way { SUM, MEAN, L1, L2, SUM_SQUARE, LOG_SUM, LOG_SUM_EXP, MAX, MIN, PROD };

struct reduce_state {
    const struct loops *loops;
    enum way way;
    enum reduce_loop loop;
    enum dtype dtype;
    struct axes kept; /* in the order of the output */
    struct axes reduced;
    bool in_columns;      /* the last dimension in memory is kept */
    bool in_short_rows;   /* few elements behind each result, one result after the other */
    size_t wide_bytes;    /* of scratch, for 16-bit operands */
    size_t packed_bytes;  /* of scratch: the blocked result, before it is made plain */
    size_t reduced_count; /* elements behind one result */
};

/* What a total becomes; `shift`: the largest element, of LOG_SUM_EXP. */
double reduce_finish(const struct reduce_state *state, double total, double shift);

struct reduce_any_job {
    const struct reduce_state *state;
    const void *in;
    void *out;
};

/* Whether there is a loop for the type. */
bool reduce_any_takes(enum dtype dtype);
/* A member's share of the results (a team_fn of a struct reduce_any_job). */
void reduce_any(void *job, unsigned member, unsigned members);

#endif
