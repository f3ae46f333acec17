/* The ledger's account of what the device itself takes: context and code (MEM_FIXED).
 *
 * Loads bring code with them, so it is measured around each; what plans of requests hold the device
 * measures itself.  Where a device has no such cost there is no account.  Threads: one load at a
 * time; fixed_note() any.
 */
#ifndef MODELS_FIXED_H
#define MODELS_FIXED_H

#include <pthread.h>

#include "device/device.h"
#include "memory/ledger.h"

struct fixed_cost {
    struct device *device;
    struct ledger_account *account; /* NULL: the device has none */
    pthread_mutex_t lock;           /* with an account; over what follows, and booking */
    bool is_loading;
};

/* Books what there is now. */
MUST_CHECK enum status fixed_open(struct fixed_cost *fixed, struct device *device,
                                  struct ledger *ledger);
void fixed_close(struct fixed_cost *fixed); /* all zero is fine */
void fixed_before_load(struct fixed_cost *fixed);
/* Books what the load added.  What the budget has no room for stays unbooked, and is logged. */
void fixed_after_load(struct fixed_cost *fixed);
/* Books what is known, between loads. */
void fixed_note(struct fixed_cost *fixed);

#endif
