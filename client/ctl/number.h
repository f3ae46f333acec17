/* Numbers of tensors as texts: read exactly or not at all, written so that they read back the same.
 */
#ifndef CTL_NUMBER_H
#define CTL_NUMBER_H

#include <stdbool.h>
#include <stdio.h>

/* Reads one number of the type (protocol names: "INT64", "FP16", …; not BYTES) to `at`.  Integers
 * are exact; floats are rounded, "nan" and "inf" are some.  True and *out_end behind
 * it, or false: no number, a fraction for an integer, or outside the type's range. */
bool number_read(const char *text, const char *datatype, void *at, const char **out_end);
/* Stores a value that the type can hold (a fraction is cut off for integers). */
void number_put(double value, const char *datatype, void *at);
/* Shortest is not promised, the same value is; NaN, Infinity and -Infinity as Python's json. */
void number_print(FILE *to, const char *datatype, const void *at);

#endif
