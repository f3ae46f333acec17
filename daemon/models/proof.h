/* Does the model answer a row in the same way whether it is alone or beside another?  And: what
 * shape can a request have at all?  Both are found by running it. */
#ifndef MODELS_PROOF_H
#define MODELS_PROOF_H

#include "models/probe.h"

/* The first row and what it was answered alone.  Texts among the outputs may be those of the data,
 * so that the two go together. */
struct proof_first {
    struct probe_data data;
    struct probe_answer answer;
};
void proof_first_deinit(struct proof_first *first);

/* Runs the network once for one row (or as a whole when `probe` has no rows), trying sizes for the
 * dimensions that `ports` (network order) leave open.
 * OK: *out_size is the size that worked (0: nothing was open), `out_first` the answer, the caller's
 * to deinit.  Otherwise the last error. */
MUST_CHECK enum status proof_find_size(struct probe *probe, const struct shape *ports,
                                       int64_t *out_size, struct proof_first *out_first,
                                       struct error *err);
/* Fills `shapes` (one per input): so many rows, open dimensions `size`; 0: the first that is tried.
 */
void proof_shapes(const struct probe *probe, const struct shape *ports, int64_t rows, int64_t size,
                  struct shape *shapes);
/* Two rows together and apart, open dimensions being `size`; `first` is what the first of them was
 * answered alone, by proof_find_size().  With `most_rows` over 2 the same of so many rows, or as
 * many as take PROOF_US and as memory lets through.  True: the same; else `reason` says what was
 * seen. */
bool proof_of_batching(struct probe *probe, const struct shape *ports, int64_t size,
                       int64_t most_rows, const struct proof_first *first, char *reason,
                       size_t room);

#endif
