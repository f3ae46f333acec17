/* Warns of marks that cannot work (govern/marks.h): at the check of a configuration by what its
 * files weigh, after each load by what is held and was used. */
#ifndef LIFECYCLE_ADVICE_H
#define LIFECYCLE_ADVICE_H

#include <stdio.h>

#include "lifecycle/budget.h"
#include "memory/ledger.h"
#include "models/repository.h"

/* For --check-config: what budget_compute() and the device refuse, as far as it can be told without
 * the device;
 * warnings go to `to`, one a line.  No device is opened: "auto" and "cuda" are taken as unknown,
 * and only a Limit= in bytes is compared then. */
MUST_CHECK enum status advice_check(const struct config *config, FILE *to, struct error *err);

struct advice {
    uint64_t loads; /* when it was looked last */
};
struct advice_sources {
    const struct config *config;
    const struct budget *budget;
    struct repository *repository;
    struct ledger *ledger;
};
/* Logs warnings when models were loaded since the last call.  On the first I/O thread. */
void advice_after_load(struct advice *advice, const struct advice_sources *sources);

#endif
