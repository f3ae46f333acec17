/* What the files of govern/ share. */
#ifndef GOVERN_INTERNAL_H
#define GOVERN_INTERNAL_H

#include "govern/governor.h"

#define FELT_HOLD_US 60000000 /* what was felt is remembered so long */

static inline uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- keep.c ---- */

void keep_init(struct governor *governor, int64_t now_us);
/* Brings the mean up to date, and looks at what comes back after the last trim. */
void keep_watch(struct governor *governor, const struct govern_input *input);
/* KEEP. */
uint64_t keep_bytes(const struct governor *governor, const struct govern_input *input);
/* A trim begins that will leave `to_bytes`. */
void keep_note_trim(struct governor *governor, const struct govern_input *input, uint64_t to_bytes,
                    bool is_decay);

/* ---- decay.c ---- */

void decay_init(struct governor *governor, int64_t now_us);
/* Adds the decay to the verdict, unless a level already asks for more. */
void decay_act(struct governor *governor, const struct govern_input *input,
               struct govern_verdict *verdict);
/* The last decay was needed again at once: the next ones take twice as long. */
void decay_was_felt(struct governor *governor, int64_t now_us);
/* When the next step is due; CLOCK_NEVER: none is. */
int64_t decay_next_us(const struct governor *governor, const struct govern_input *input);

#endif
