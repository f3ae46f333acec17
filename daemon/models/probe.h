/* Requests of our own, sent through the batcher: to prove a model's batching and to warm it, mostly
 * before it is visible.  They are admitted like any others, so a load cannot take memory that
 * batches need.
 *
 * Threads: the loader's; probe_run() waits for the answer.
 */
#ifndef MODELS_PROBE_H
#define MODELS_PROBE_H

#include "batch/batcher.h"

struct probe {
    struct batcher *batcher;
    struct network *network;
    struct model_queue *queue; /* of its own: no statistics of the model are touched */
    struct mailbox answered;
    const char *name;
    bool has_rows;
    const atomic_bool *give_up; /* true: what runs is cancelled.  NULL: never */
    struct profile *profile; /* measures what runs, which waits for all other models; NULL: none */
};

/* One request's data, made here and owned by it; counted like the bodies of requests. */
struct probe_data {
    struct arena arena;
    struct host_pool *pool; /* lent `in` its bytes; NULL: they are another's */
    size_t inputs;
    struct request_input *in;
};

struct probe_answer {
    struct request request; /* its outputs, until probe_answer_deinit() */
    struct mail mail;
    struct probe *probe;
};

/* `has_rows`: dimension 0 of all inputs counts rows. */
MUST_CHECK enum status probe_init(struct probe *probe, struct batcher *batcher,
                                  struct network *network, const char *name, bool has_rows,
                                  struct error *err);
void probe_deinit(struct probe *probe);
bool probe_is_given_up(const struct probe *probe);

/* Runs the data; waits.  OK: answer->request.out holds every output.  Otherwise the request's error
 * is in `err` and there is nothing to deinit. */
MUST_CHECK enum status probe_run(struct probe *probe, const struct probe_data *data,
                                 struct probe_answer *answer, struct error *err);
void probe_answer_deinit(struct probe_answer *answer);

/* ---- data (sample.c) ---- */

enum sample_kind { SAMPLE_RANDOM, SAMPLE_ZERO };
/* Makes room for inputs of these shapes (all known) with the probe's network's types, filled. Rows
 * differ in scale, so that whatever is shared between rows of a batch shows; a row does not depend
 * on how many follow it.  STATUS_NO_MEMORY: HostLimit= has no room for them, or the system. */
MUST_CHECK enum status probe_data_make(struct probe_data *data, const struct probe *probe,
                                       const struct shape *shapes, enum sample_kind kind,
                                       uint64_t seed);
/* Row `row` of `data` alone: borrows its bytes. */
MUST_CHECK enum status probe_data_row(struct probe_data *out_row, const struct probe_data *data,
                                      int64_t row);
void probe_data_deinit(struct probe_data *data);
/* Fills `count` elements; strings point into `arena`. */
MUST_CHECK enum status sample_fill(struct arena *arena, enum dtype dtype, void *to, size_t count,
                                   enum sample_kind kind, double scale, uint64_t *random);

#endif
