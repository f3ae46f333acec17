/* Tensors of a request that lie in shared memory regions. */
#ifndef SERVE_SHARED_H
#define SERVE_SHARED_H

#include "serve/infer.h"

/* One "shared_memory_…" parameter of a tensor, whichever codec read it: a text, or a number. False:
 * it is none of them. */
bool shared_is_parameter(struct slice key);
/* `what`: "input" or "output"; `name`: the tensor's. */
struct shared_parameter {
    struct slice key;
    bool is_text, is_number;
    struct slice text;
    int64_t number;
    const char *what;
    struct slice name;
};
MUST_CHECK enum status shared_put(struct shared_wish *wish,
                                  const struct shared_parameter *parameter, struct error *err);
/* All parameters of the tensor were put: they belong together or not at all. */
MUST_CHECK enum status shared_settle(const struct shared_wish *wish, const char *what,
                                     struct slice name, struct error *err);

/* Takes the region's bytes for the life of the call. */
MUST_CHECK enum status shared_take(struct call *call, const struct shared_wish *wish, bool writes,
                                   struct region_span *out_span, struct error *err);
/* After the run: whether every region the call has taken is what it was. */
MUST_CHECK enum status shared_check(const struct call *call, struct error *err);
/* Gives them back. */
void shared_give(struct call *call);

#endif
