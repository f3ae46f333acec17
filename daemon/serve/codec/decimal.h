/* Decimals of floating-point numbers that read back as the same number.  Pure. */
#ifndef SERVE_CODEC_DECIMAL_H
#define SERVE_CODEC_DECIMAL_H

#include <stddef.h>

enum { DECIMAL_BYTES = 40 };

/* Writes a finite number as JSON has it (no terminator) in few digits, at most 9 or 17; returns the
 * length. */
size_t decimal_float(float value, char out[DECIMAL_BYTES]);
size_t decimal_double(double value, char out[DECIMAL_BYTES]);

#endif
