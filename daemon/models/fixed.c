#include "models/fixed.h"

#include <inttypes.h>

#define LOG_COMPONENT "models"
#include "observe/log.h"

static void book(struct fixed_cost *fixed)
{
    uint64_t bytes = fixed->device->ops->fixed_bytes(fixed->device);
    uint64_t booked = ledger_account_bytes(fixed->account);

    if (bytes > booked && ledger_add(fixed->account, bytes - booked) != STATUS_OK)
        log_warn("the device's own cost grew from %" PRIu64 " to %" PRIu64
                 " bytes, more than the budget has room for, ignoring",
                 booked, bytes);
    else if (bytes < booked)
        ledger_sub(fixed->account, booked - bytes);
}

enum status fixed_open(struct fixed_cost *fixed, struct device *device, struct ledger *ledger)
{
    *fixed = (struct fixed_cost){.device = device};
    if (device->ops->fixed_bytes == NULL)
        return STATUS_OK;
    TRY(ledger_open(ledger, "device", MEM_FIXED, &fixed->account));
    book(fixed);
    return STATUS_OK;
}

void fixed_close(struct fixed_cost *fixed)
{
    ledger_close(fixed->account);
    fixed->account = NULL;
}

void fixed_before_load(struct fixed_cost *fixed)
{
    if (fixed->account != NULL)
        fixed->device->ops->fixed_mark(fixed->device);
}

void fixed_after_load(struct fixed_cost *fixed)
{
    if (fixed->account != NULL)
        book(fixed);
}
