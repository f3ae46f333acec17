/* How many rows a batch is worth having, learned from batches that ran.  Pure.
 *
 * A larger batch is not always cheaper a row: on a CPU its activations leave the caches.  Then
 * smaller ones answer sooner, need less memory, and keep the queue full, so that none runs nearly
 * empty.  Sizes are told apart by powers of two.  Once the largest that occurs was measured, the
 * others are tried while enough rows wait; what was not run for long is slowly taken for better
 * than it was, and so tried again.
 */
#ifndef BATCH_SIZE_H
#define BATCH_SIZE_H

#include <stdint.h>

enum { SIZE_CLASSES = 24 };

struct size_class {
    double row_us; /* the fastest lately */
    unsigned tries;
};

struct size_choice {
    struct size_class class[SIZE_CLASSES]; /* 2^i to 2^(i+1) - 1 rows */
};

/* A batch of `rows` took so long. */
void size_learn(struct size_choice *choice, int64_t rows, int64_t busy_us);
/* The largest batch worth forming while `waiting` rows do; INT64_MAX: as large as it may be. */
int64_t size_limit(const struct size_choice *choice, int64_t waiting);

#endif
