/* One model on one lane, without a daemon: what the bench and the conformance runner share. */
#ifndef BENCHMARKS_SOLO_H
#define BENCHMARKS_SOLO_H

#include "engine/engine.h"
#include "onnx/reader.h"

struct solo {
    struct device *device;
    struct device_lane *lane;
    struct ledger *ledger;
    struct lane_arena *arena;
    struct lane_arena *io;            /* inputs and outputs of devices without host memory */
    struct network *network;          /* NULL until solo_load() */
    struct device_ops *ops;           /* the device's, changed; NULL: as they are */
    struct network_planning planning; /* of networks loaded from now on; solo_open(): quick */
};

struct solo_config {
    const char *device;
    unsigned threads;
    const char *precision; /* as Precision=; NULL: strict */
    bool eager;            /* never record a plan (CUDA graphs) */
};

MUST_CHECK enum status solo_open_as(const struct solo_config *config, struct solo *out_solo,
                                    struct error *err);
MUST_CHECK enum status solo_open(const char *device, unsigned threads, struct solo *out_solo,
                                 struct error *err);
void solo_close(struct solo *solo); /* all zero is fine */
/* Reads a model and makes it the solo's network, in place of the one before. */
MUST_CHECK enum status solo_load(struct solo *solo, const char *path, struct error *err);
void solo_unload(struct solo *solo);

/* Memory for inputs and outputs where the device wants them: the host's by malloc, else the
 * device's from solo->io, behind each other, until lane_arena_end(). */
struct solo_room {
    struct solo *solo;
    char *base; /* of solo->io; NULL: not begun, or of the host */
    size_t used;
};
bool solo_has_host_memory(const struct solo *solo);
void *solo_take(struct solo_room *room, size_t bytes); /* NULL: there is none */

/* Outputs of one run; memory is the caller's to free with solo_free(). */
struct solo_outputs {
    size_t count;
    struct tensor *tensors;
    struct string_heap *strings;
};
/* in: one tensor per network input, with data. */
MUST_CHECK enum status solo_run(struct solo *solo, const struct tensor *in,
                                struct solo_outputs *out_outputs, struct error *err);
void solo_free(struct solo_outputs *outputs);

#endif
