/* Guards: a kernel that writes more than its plan gave it is noticed (invariant I4), in every
 * build.
 *
 *     … │ output of step 7 │ guard │ scratch of step 7 │ guard │ what else is alive …
 *
 * The planner leaves a line behind everything in the arena, batch/ one behind every output in the
 * response.  A step's own lines are written just before it runs and looked at just after: they are
 * in the cache then, so a step pays a few nanoseconds, and the culprit is known by name.  What lies
 * behind the line belongs to others, who may have read it wrong by now: the batch fails, none of
 * its numbers are answered.  The next run of the plan is admitted with a page more, so that a
 * culprit at the top of the arena writes to memory that is there and nobody's.
 *
 * Not seen: a write that leaps over the line, and one into another part of the same concatenation.
 */
#include <inttypes.h>
#include <string.h>

#include "engine/internal.h"

#define LOG_COMPONENT "engine"
#include "observe/log.h"

enum { GUARD_BYTE = 0xA5, OVERRUN_STEP_BYTES = 4096, OVERRUN_MOST_BYTES = 1 << 20 };

bool guards_apply(const struct device *device)
{
    return device->ops->host_memory;
}

void guards_set(const struct step *step, char *const *guard_bases)
{
    for (size_t i = 0; i < step->guard_count; i++) {
        const struct slot *slot = &step->guard[i];

        if (guard_bases[slot->base] != NULL)
            memset(guard_bases[slot->base] + slot->offset, GUARD_BYTE, GUARD_BYTES);
    }
}

static bool is_whole(const char *line)
{
    uint64_t words[GUARD_BYTES / sizeof(uint64_t)], differences = 0, whole;

    memset(&whole, GUARD_BYTE, sizeof(whole));
    memcpy(words, line, sizeof(words));
    for (size_t i = 0; i < GUARD_BYTES / sizeof(uint64_t); i++)
        differences |= words[i] ^ whole;
    return differences == 0;
}

bool guards_are_whole(const struct step *step, char *const *guard_bases)
{
    for (size_t i = 0; i < step->guard_count; i++) {
        const struct slot *slot = &step->guard[i];

        if (guard_bases[slot->base] != NULL && !is_whole(guard_bases[slot->base] + slot->offset))
            return false;
    }
    return true;
}

enum status guards_broken(struct plan *plan, const struct step *step, struct error *err)
{
    uint64_t before = atomic_load(&plan->overrun_bytes);

    ledger_count_violation(plan->network->ledger);
    if (before < OVERRUN_MOST_BYTES)
        before = atomic_fetch_add(&plan->overrun_bytes, OVERRUN_STEP_BYTES);
    if (before == 0) /* a fault of the program, whatever becomes of the request: said once a plan */
        log_error("model '%s': node '%s' (%s): kernel %s wrote behind the memory its plan gave it",
                  plan->network->name, step->name, step->call.op->onnx.name, step->kernel->name);
    return error_set(err, STATUS_INTERNAL,
                     "node '%s' (%s): kernel %s wrote behind the memory its plan gave it",
                     step->name, step->call.op->onnx.name, step->kernel->name);
}
