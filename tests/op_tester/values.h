/* Numbers of any type as doubles, random or not. */
#ifndef OP_TESTER_VALUES_H
#define OP_TESTER_VALUES_H

#include "tensor/tensor.h"

/* The generator behind random values and shapes; one per program.  OP_TEST_SEED=0x… sets it. */
double test_random(double low, double high);
int64_t test_random_int(int64_t low, int64_t high); /* both inclusive */
struct shape test_random_shape(size_t rank, int64_t low, int64_t high);

/* Element `index` of row-major data as a double, and back (rounded to the type, saturating). */
double test_get(enum dtype dtype, const void *data, int64_t index);
void test_put(enum dtype dtype, void *data, int64_t index, double value);
/* Steps the generator; its state, which as a seed repeats what follows. */
uint64_t test_random_mark(void);

#endif
