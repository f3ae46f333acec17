/* Runs a network some times and measures every step of it. */
#ifndef MODELS_PROFILING_H
#define MODELS_PROFILING_H

#include "models/probe.h"

struct profile; /* engine/engine.h */

/* Up to PROFILE_RUNS runs within about a second, three at least, on made-up data of these shapes
 * (all known). Each is a batch of its own, admitted like any other, and starts only when no other
 * model has one ready; no statistics of the model are touched.  The caller destroys the profile;
 * the network stays on the device meanwhile (queue_visit()).  Threads: any that may wait. */
MUST_CHECK enum status profiling_run(struct batcher *batcher, struct network *network,
                                     const char *name, const struct shape *shapes,
                                     struct profile **out_profile, struct error *err);

#endif
