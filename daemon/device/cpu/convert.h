/* Runs of elements from one number type to another. */
#ifndef DEVICE_CPU_CONVERT_H
#define DEVICE_CPU_CONVERT_H

#include "device/cpu/loops.h"

/* Any two of DTYPE_NUMBERS and BOOL.  Floats are cut towards zero; what an integer type cannot hold
 * wraps, what no 64-bit integer can hold becomes the smallest one.  in and out must not overlap. */
void convert(const struct loops *loops, enum dtype from, const void *in, enum dtype to, void *out,
             size_t count);

#endif
