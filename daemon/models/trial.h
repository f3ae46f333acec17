/* What a model is run with before anybody may ask it, and how its batching is decided: its first
 * row, then two rows together and apart (proof.h).
 *
 *   trial_open() ──> trial_begin(): the first row ──> trial_prove() ──> trial_close()
 *
 * A load does all of it before the model is published, or leaves the proof for later: the model
 * keeps its trial then, is served one by one, and is proven behind the back of its first requests.
 *
 * Threads: the loader's.
 */
#ifndef MODELS_TRIAL_H
#define MODELS_TRIAL_H

#include "models/model.h"
#include "models/proof.h"

struct trial {
    struct probe probe;
    const struct shape *ports; /* of the inputs, the batch in front; the model's */
    int64_t size;              /* of open dimensions */
    bool has_answer;
    struct proof_first first; /* if it has_answer */
    struct error why;         /* else: why there is none */
    bool is_derived;          /* the batch dimension was not configured, and may be none */
};

/* `model` has its network, configuration and ports; it outlives the trial. */
MUST_CHECK enum status trial_open(const struct load_context *context, struct model *model,
                                  struct trial **out_trial, struct error *err);
/* Runs the first row.  One that cannot be run is no failure, but where the model is to blame. */
MUST_CHECK enum status trial_begin(struct trial *trial, struct model *model, struct error *err);
/* Whether batching is for trial_prove() to decide; else `text` says what it is, and *out_batching.
 */
bool trial_is_due(const struct load_context *context, const struct model *model, char *text,
                  size_t room, bool *out_batching);
/* Whether the model may be published before it is proven: nothing that is known of its graph and
 * its first answer makes it likely that the proof fails. */
bool trial_may_wait(const struct trial *trial, const struct model *model);
/* Runs rows together and apart.  `text`: what becomes of batching, and why.  Given up it is false,
 * and says nothing. */
bool trial_prove(struct trial *trial, const struct model *model, char *text, size_t room);
void trial_close(struct trial *trial); /* NULL is fine */

#endif
