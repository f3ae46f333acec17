/* Identity and Dropout: the elements pass as they are.  (A plan usually makes a view of them.) */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/flat.h"

/* A copy waits for memory, not for a core: below so many bytes a second thread comes too late. */
enum { TEAM_BYTES = 1 << 20 };

struct copy_state {
    size_t bytes; /* an element */
};

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    struct copy_state *state = malloc(sizeof(*state));

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a kernel's state");
    state->bytes = dtype_bytes(prepare->call.in[0]->dtype);
    prepare->constants_used = 1;
    prepare->state = state;
    return STATUS_OK;
}

static void copy_piece(void *arg, const void *in, void *out, size_t count)
{
    const struct copy_state *state = arg;

    memmove(out, in, count * state->bytes);
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct copy_state *copy = state;
    struct flat flat = flat_make(call->in[0], call->out[0], call->device);
    bool is_small = flat.rows * flat.row_elements * copy->bytes < TEAM_BYTES;

    if (run->in[0] != run->out[0])
        flat_run(&flat, run->in[0], copy->bytes, run->out[0], copy->bytes,
                 is_small ? 1 : run->lane->threads, 0.1, copy_piece, (void *)(uintptr_t)copy);
    if (call->outputs > 1 && call->out[1] != NULL) { /* Dropout's mask: nothing is dropped */
        memset(run->out[1], 1, operand_elements(call->out[1], call->device));
        operand_zero_padding(call->out[1], call->device, run->out[1]);
    }
    return STATUS_OK;
}

static const char *refuses_dropout(const struct kernel_call *call)
{
    return call->outputs > 1 && call->out[1] != NULL && call->out[1]->outer_stride != 0
               ? "a mask whose rows lie apart"
               : NULL;
}

const struct kernel kernel_identity_copy = {
    .name = "cpu:copy",
    .flags = KERNEL_IN_PLACE | KERNEL_STRIDED | KERNEL_PASSES,
    .layouts = FLAT_LAYOUTS,
    .prepare = prepare,
    .enqueue = enqueue,
    .release = free,
};

const struct kernel kernel_dropout_copy = {
    .name = "cpu:copy",
    .flags = KERNEL_IN_PLACE | KERNEL_STRIDED | KERNEL_PASSES,
    .layouts = FLAT_LAYOUTS,
    .refuses = refuses_dropout,
    .prepare = prepare,
    .enqueue = enqueue,
    .release = free,
};
