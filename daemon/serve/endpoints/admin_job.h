/* An answer of the admin service that takes long to make: a thread of its own makes it, the loop
 * only hears of the end. */
#ifndef SERVE_ENDPOINTS_ADMIN_JOB_H
#define SERVE_ENDPOINTS_ADMIN_JOB_H

#include <stdio.h>

#include "serve/endpoints/admin.h"

struct admin_job {        /* first in what malloc gave */
    struct notice notice; /* holds the call, and with it its model */
    /* On the job's thread: writes the answer. */
    enum status (*make)(struct admin_job *job, FILE *to, struct error *err);
    bool *busy; /* of the server: true until the answer is out */
    char *text;
    struct error err;
};

/* `make` and `busy` are set.  Adopts the job and answers the call, also when no thread can be had.
 */
void admin_job_start(struct call *call, struct admin_job *job);

#endif
