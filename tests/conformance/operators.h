/* Which operator a model is about. */
#ifndef CONFORMANCE_OPERATORS_H
#define CONFORMANCE_OPERATORS_H

#include <stddef.h>

enum { OPERATORS_TEXT = 64 };

/* Writes the one operator of the nodes of an ONNX model, or "(several)", behind a `name` that is
 * empty and has OPERATORS_TEXT bytes.  Of bytes that are no model it stays empty. */
void operators_of_model(const unsigned char *bytes, size_t size, char *name);

#endif
