/* Element-wise operators in a row as one step: what a device that pays for each pass over memory
 * gets instead of them.  Made by a pass, for devices that ask for it. */
#ifndef OPS_CHAIN_H
#define OPS_CHAIN_H

#include "ops/op.h"

enum { CHAIN_LINKS = 12, CHAIN_INPUTS = 8, CHAIN_ATTRS_BYTES = 16 };
/* A link's operand when it has none beside the result so far. */
enum { CHAIN_ALONE = 255 };

/* result = op(result, operand), or op(operand, result) when `turned`. */
struct chain_link {
    const struct op_def *op; /* of one or two inputs, one of chain_takes() */
    uint8_t operand;         /* an input of the chain, or CHAIN_ALONE */
    bool turned;
    _Alignas(float) unsigned char attrs[CHAIN_ATTRS_BYTES]; /* of op->attrs_size bytes */
};

/* Begins with input 0.  Inputs are broadcast to the output; all have its type, a float type. */
struct chain_attrs {
    size_t count;
    struct chain_link links[CHAIN_LINKS];
};

/* Whether an operator may be a link. */
bool chain_takes(const struct op_def *op);

#endif
