/* One loaded version of one model, inside the folder.
 *
 * References: one is held while it is published (given back when its queue has drained and it has
 * left the device), one by everybody who looked it up.  The last one hands it to `gone`, which
 * destroys it on the loader thread.
 */
#ifndef MODELS_MODEL_H
#define MODELS_MODEL_H

#include "models/model_config.h"
#include "models/resident.h"

/* What the loader thread is told. */
struct message {
    struct mail mail;
    enum { MESSAGE_COMMAND, MESSAGE_GONE, MESSAGE_PROVE, MESSAGE_STOP } kind;
};

/* Something for the keeper to do. */
struct errand {
    struct mail mail; /* first */
    void (*run)(struct repository *repository, struct errand *errand);
};

struct command; /* internal.h */
struct trial;   /* trial.h */

struct model {
    atomic_uint references;
    struct errand drained;  /* to the keeper, when its queue has ended */
    struct message message; /* to the loader, when no reference is left */
    struct mailbox *loader;
    struct command *waiter; /* the unload that waits for it; NULL: none */
    struct arena arena;     /* ports, names, labels */
    const char *name;
    int64_t version;
    char version_text[24];
    Inference__ModelConfig *config;
    struct network *network;
    struct model_queue *queue;
    struct model *heir;     /* took its place with the same ports; referenced.  NULL: none did */
    size_t inputs, outputs; /* in the order of the network */
    struct model_port *in, *out;
    struct shape *demands; /* by input: what the graph asks for, SHAPE_UNKNOWN where it does not */
    char batching[256];    /* once published: under the repository's lock */
    struct trial *trial;   /* it is published, and not proven yet; the loader's.  NULL: it is */
    bool may_mix_rows;     /* its graph leaves doubt about more rows than two */
    const char *row_mixer; /* a sentence: what in its graph makes one row of several; or NULL */
    int64_t load_us;
    uint64_t row_cached_bytes; /* that the lanes held when a row had run */
    struct resident resident;
};

struct load_context {
    const char *folder; /* of the model */
    const char *name;
    int64_t version;
    const Inference__ModelConfig *config; /* as read */
    bool batch_given;                     /* it sets max_batch_size */
    struct device *device;
    struct ledger *ledger;
    struct batcher *batcher;
    size_t plan_cache_bytes;
    struct network_planning planning;
    bool may_prove_later;       /* the model may come back with a trial that is not over */
    const atomic_bool *give_up; /* true: the load ends with STATUS_UNAVAILABLE.  May be NULL */
    /* Whether a model that is read and not packed yet has a chance to stay; NULL: it has. */
    enum status (*may_stay)(void *arg, const struct model *model, struct error *err);
    void *may_stay_arg;
};

/* Reads, checks, proves, warms; with one reference.  A failure leaves nothing behind.  Given up it
 * ends within the reading of a file, the packing of a weight or a step of a probe. */
MUST_CHECK enum status model_load(const struct load_context *context, struct model **out_model,
                                  struct error *err);
/* No reference is left (or it never had one).  Returns the bytes of device memory given back. */
uint64_t model_destroy(struct model *model);

/* `heir` took the model's place: if its ports are the same, requests that come too late, or wait
 * for the model to come back, are its own. */
void model_bequeath(struct model *model, struct model *heir);
/* Ports, with labels read from `folder`. */
MUST_CHECK enum status model_make_ports(struct model *model, const char *folder, struct error *err);
/* One label a line, in the order of the classes. */
MUST_CHECK enum status labels_read(struct arena *arena, const char *path, size_t *out_count,
                                   const char *const **out_labels, struct error *err);

#endif
