/* Why memory is held, and what would free it: facts in, two phrases out.  Pure.
 *
 *   weights     in use │ pinned │ moving │ idle, goes by keep_alive, pressure, sleep or unload
 *   arenas      used by a batch: its end frees it; cached: idle decay or empty_cache does
 *   the rest    the process's own, until it ends
 */
#ifndef MODELS_WHY_H
#define MODELS_WHY_H

#include <stdbool.h>
#include <stddef.h>

#include "memory/ledger.h"

struct why_facts {
    enum mem_kind kind; /* as ledger_list() has it: MEM_CACHED is what an arena does not use */
    const char *user;   /* of an arena in use: the model whose batch runs; "" or NULL: unknown */
    /* weights */
    bool is_model;    /* the rest is known; false: nobody in the repository has them (any more) */
    const char *name; /* of the model, for the verbs */
    size_t requests;  /* accepted and not answered */
    bool is_moving, is_pinned;
    int64_t idle_us;       /* since its last request */
    int64_t keep_alive_us; /* CLOCK_NEVER: for ever */
    /* cached */
    int64_t decay_us;  /* until it begins to shrink; CLOCK_NEVER: never */
    int64_t shrink_us; /* how long that takes */
    bool is_floor;     /* no more is cached than Floor= keeps */
};

enum { WHY_HELD_BYTES = 160, WHY_FREED_BYTES = 320 };
struct why {
    char held_for[WHY_HELD_BYTES];
    char freed_by[WHY_FREED_BYTES];
};

void why_tell(const struct why_facts *facts, struct why *out_why);

#endif
