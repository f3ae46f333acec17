/* Products of small matrices by a whole warp: what mma and wmma share. */
#ifndef SLUICE_TESTS_SIM_PTX_MATRIX_H
#define SLUICE_TESTS_SIM_PTX_MATRIX_H

#include "arms.h"

enum { MATRIX_MOST = 32 * 32 };

/* A matrix with its elements as exact numbers.  `good` marks those that were written. */
struct matrix {
    unsigned rows;
    unsigned columns;
    double values[MATRIX_MOST];
    bool good[MATRIX_MOST];
};

/* d = a * b + c, to be rounded to `type` by the caller.  Products are exact and sums are made in
 * double precision: nearer to the true value than tensor cores, which cut bits off. */
void matrix_multiply(const struct matrix *a, const struct matrix *b, const struct matrix *c,
                     struct matrix *d);

/* All lanes of the warp must be at the instruction; false and a fault otherwise. */
bool whole_warp(struct warp *warp, const struct op *op, uint32_t mask);

/* Element `element` of a register of 32 or 64 bits; integers and floats alike as a number. */
double element_value(const struct warp *warp, struct operand operand, enum type type, int lane,
                     unsigned element);
void element_set(const struct warp *warp, struct operand operand, enum type type, int lane,
                 unsigned element, double value);
/* Bits of one element of a matrix of this type. */
unsigned element_bits(enum type type);

#endif
