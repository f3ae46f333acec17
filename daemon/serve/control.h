/* Loads and unloads on behalf of a call: handed to the loader, answered when it is done. */
#ifndef SERVE_CONTROL_H
#define SERVE_CONTROL_H

#include <stdint.h>

#include "base/error.h"

struct call;

/* On the I/O thread, for a call whose client still waits: writes the answer. */
typedef void (*control_answer_fn)(struct call *call, const char *model, uint64_t freed_bytes);

/* Both fail the call with the loader's error, or call `answer`. */
void control_load(struct call *call, const char *model, const char *config_json,
                  control_answer_fn answer);
void control_unload(struct call *call, const char *model, control_answer_fn answer);

#endif
