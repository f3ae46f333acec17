/* Recordings: a plan whose steps a lane has run before is run again as one.
 *
 * One slot a lane, used by the lane's thread only:
 *
 *     fresh ──run──> warm ──recorded──> ready ──replayed──> ready
 *       ^              │  └─ cannot be ─> never
 *       └── run with other addresses ─────┘ (but never stays never)
 *
 * The first run of a plan in a lane is an ordinary one: libraries make ready what they need, which
 * cannot be recorded.  A recording holds addresses, so it counts only for the very same buffers;
 * those of a lane's arenas are the same each time a batch is of the same size.
 * Nor does it count when a kernel got better code since.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"

enum slot_state { SLOT_FRESH, SLOT_WARM, SLOT_READY, SLOT_NEVER };

struct recording_slot {
    enum slot_state state;
    struct device_recording *recording;
    char **bases;             /* of the last run that was not refused */
    unsigned kernels_changed; /* the device's, then */
};

struct recordings {
    struct device *device;
    size_t base_count;
    unsigned lanes;
    struct recording_slot slots[];
};

static bool can_be_recorded(const struct plan *plan, const struct device *device)
{
    if (device->ops->record_begin == NULL || plan->rest != NULL || plan->found_count > 0 ||
        plan->step_count < 2)
        return false;
    for (size_t i = 0; i < plan->step_count; i++)
        if (plan->steps[i].place != STEP_DEVICE ||
            (plan->steps[i].call.op->flags & OP_NOT_DETERMINISTIC) != 0)
            return false;
    return true;
}

struct recordings *recordings_create(const struct plan *plan, struct device *device)
{
    size_t base_count = BASE_FIRST_BOUND + plan->inputs + plan->outputs;
    struct recordings *recordings;

    if (!can_be_recorded(plan, device))
        return NULL;
    recordings = calloc(1, sizeof(*recordings) + device->lanes * sizeof(recordings->slots[0]));
    if (recordings == NULL)
        return NULL; /* it runs without */
    recordings->device = device;
    recordings->base_count = base_count;
    recordings->lanes = device->lanes;
    for (unsigned i = 0; i < device->lanes; i++) {
        recordings->slots[i].bases = calloc(base_count, sizeof(char *));
        if (recordings->slots[i].bases == NULL)
            recordings->slots[i].state = SLOT_NEVER;
    }
    return recordings;
}

void recordings_destroy(struct recordings *recordings)
{
    if (recordings == NULL)
        return;
    for (unsigned i = 0; i < recordings->lanes; i++) {
        recordings->device->ops->recording_destroy(recordings->slots[i].recording);
        free(recordings->slots[i].bases);
    }
    free(recordings);
}

static bool is_current(const struct recordings *recordings, const struct recording_slot *slot)
{
    return slot->kernels_changed == atomic_load(&recordings->device->kernels_changed);
}

static bool same_bases(const struct recordings *recordings, const struct recording_slot *slot,
                       char *const *bases)
{
    return memcmp(slot->bases, bases, recordings->base_count * sizeof(*bases)) == 0;
}

enum recording_use recordings_use(struct recordings *recordings, struct device_lane *lane,
                                  char *const *bases)
{
    struct recording_slot *slot;

    if (recordings == NULL || lane->index >= recordings->lanes)
        return RECORDING_NONE;
    slot = &recordings->slots[lane->index];
    if (slot->state == SLOT_NEVER)
        return RECORDING_NONE;
    if (slot->state != SLOT_FRESH && same_bases(recordings, slot, bases) &&
        is_current(recordings, slot))
        return slot->state == SLOT_READY ? RECORDING_REPLAY : RECORDING_RECORD;
    /* What was recorded for other buffers is of no use: nothing of it runs any more. */
    recordings->device->ops->recording_destroy(slot->recording);
    slot->recording = NULL;
    memcpy(slot->bases, bases, recordings->base_count * sizeof(*bases));
    slot->kernels_changed = atomic_load(&recordings->device->kernels_changed);
    slot->state = SLOT_WARM;
    return RECORDING_NONE;
}

enum status recordings_begin(struct recordings *recordings, struct device_lane *lane)
{
    enum status status = lane->device->ops->record_begin(lane);

    if (status != STATUS_OK)
        recordings->slots[lane->index].state = SLOT_NEVER;
    return status;
}

enum status recordings_end(struct recordings *recordings, struct device_lane *lane,
                           enum status recorded)
{
    struct recording_slot *slot = &recordings->slots[lane->index];
    struct device_recording *recording = NULL;
    enum status status = lane->device->ops->record_end(lane, &recording);

    if (status == STATUS_OK && recorded == STATUS_OK) {
        slot->recording = recording;
        slot->state = SLOT_READY;
        return STATUS_OK;
    }
    lane->device->ops->recording_destroy(recording);
    /* A run that was called off says nothing of the plan. */
    slot->state = recorded == STATUS_CANCELLED ? SLOT_WARM : SLOT_NEVER;
    return status == STATUS_DEVICE_LOST ? status : STATUS_UNSUPPORTED;
}

enum status recordings_replay(struct recordings *recordings, struct device_lane *lane)
{
    return lane->device->ops->replay(lane, recordings->slots[lane->index].recording);
}
