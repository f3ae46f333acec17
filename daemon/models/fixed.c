#include "models/fixed.h"

#include <inttypes.h>

#define LOG_COMPONENT "models"
#include "observe/log.h"

/* What the budget has no room for is tried again later.  Lock held. */
static void book(struct fixed_cost *fixed, bool says_so)
{
    uint64_t bytes = fixed->device->ops->fixed_bytes(fixed->device);
    uint64_t booked = ledger_account_bytes(fixed->account);

    if (bytes < booked)
        ledger_sub(fixed->account, booked - bytes);
    else if (bytes > booked && ledger_add(fixed->account, bytes - booked) != STATUS_OK && says_so)
        log_warn("the device's own cost grew from %" PRIu64 " to %" PRIu64
                 " bytes, more than the budget has room for, ignoring",
                 booked, bytes);
}

enum status fixed_open(struct fixed_cost *fixed, struct device *device, struct ledger *ledger)
{
    *fixed = (struct fixed_cost){.device = device};
    if (device->ops->fixed_bytes == NULL)
        return STATUS_OK;
    TRY(ledger_open(ledger, "device", MEM_FIXED, &fixed->account));
    pthread_mutex_init(&fixed->lock, NULL);
    book(fixed, true);
    return STATUS_OK;
}

void fixed_close(struct fixed_cost *fixed)
{
    if (fixed->account == NULL)
        return;
    ledger_close(fixed->account);
    pthread_mutex_destroy(&fixed->lock);
    fixed->account = NULL;
}

void fixed_before_load(struct fixed_cost *fixed)
{
    if (fixed->account == NULL)
        return;
    pthread_mutex_lock(&fixed->lock);
    fixed->device->ops->fixed_mark(fixed->device);
    fixed->is_loading = true;
    pthread_mutex_unlock(&fixed->lock);
}

void fixed_after_load(struct fixed_cost *fixed)
{
    if (fixed->account == NULL)
        return;
    pthread_mutex_lock(&fixed->lock);
    fixed->is_loading = false;
    book(fixed, true);
    pthread_mutex_unlock(&fixed->lock);
}

void fixed_note(struct fixed_cost *fixed)
{
    if (fixed->account == NULL)
        return;
    pthread_mutex_lock(&fixed->lock);
    if (!fixed->is_loading)
        book(fixed, false);
    pthread_mutex_unlock(&fixed->lock);
}
