/* Marks that cannot work: numbers in, one sentence each out (what, found, allowed).  Pure.
 *
 * Nothing here is refused: a daemon with such marks serves, but it trims and takes again for ever,
 * or never leaves a level.  What cannot be read at all is refused by config/ instead.
 */
#ifndef GOVERN_MARKS_H
#define GOVERN_MARKS_H

#include <stdint.h>

#include "govern/governor.h"

struct marks_facts {
    struct govern_config config; /* budget, headroom, marks, floor, as in force */
    uint64_t limit_bytes;        /* Limit= as asked for, before it was cut to the device */
    uint64_t total_bytes;        /* of the device; 0: unknown */
    uint64_t free_bytes;         /* of the device now; used only with a total */
    uint64_t weights_bytes;      /* and all else that stays: what is held while nothing runs */
    uint64_t peak_bytes;         /* the largest of one batch so far; 0: none ran */
    const char *peak_model;      /* of that batch */
    uint64_t largest_bytes;      /* the largest model: its weights, or its files before a load */
    const char *largest_model;   /* NULL: none is known */
};

enum { MARKS_SENTENCE_BYTES = 512, MARKS_SIZE_BYTES = 32 };
/* "1.5 GiB", in the unit that suits the size; returns `text`. */
const char *marks_size(uint64_t bytes, char text[MARKS_SIZE_BYTES]);
typedef void (*marks_warn_fn)(void *arg, const char *sentence);
/* Calls `warn` for each fault; returns how many there are. */
unsigned marks_check(const struct marks_facts *facts, marks_warn_fn warn, void *arg);

#endif
