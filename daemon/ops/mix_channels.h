/* Channels in another order, taken from one or more values: what Concat, a shuffle of channels
 * (Reshape, Transpose, Reshape) and one part of a Split come to.  Made by a pass only
 * (graph/pass_recognise_shuffle.c).
 *
 * Inputs: float [N,Ci,spatial…], alike but for their channels.  Channel c of the result is channel
 * from[c] of the inputs, counted on from one to the next. */
#ifndef OPS_MIX_CHANNELS_H
#define OPS_MIX_CHANNELS_H

#include "ops/op.h"

struct mix_channels_attrs {
    struct ints from;
};

/* A shuffle of `channels` channels in `groups` groups makes channel c of this one: the first of
 * each group, then the second of each …  Shuffled again in channels / groups groups, all are back.
 */
static inline int64_t shuffled_channel(int64_t c, int64_t channels, int64_t groups)
{
    return c % groups * (channels / groups) + c / groups;
}
/* The groups of a shuffle that the order is; 0: it is none. */
int64_t shuffle_groups(const struct ints *from);

#endif
