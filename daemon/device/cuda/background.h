/* Work that nobody waits for, on a thread of its own: one job at a time, in the order given.
 *
 * Ownership: a job belongs to its giver until background_add(), to the background until it calls
 *            run() or drop(), exactly one of them, which end it.
 * Threads:   any.
 */
#ifndef DEVICE_CUDA_BACKGROUND_H
#define DEVICE_CUDA_BACKGROUND_H

#include <pthread.h>
#include <stdbool.h>

#include "base/list.h"

struct background_job {
    struct list link;
    void (*run)(struct background_job *job);  /* on the background's thread */
    void (*drop)(struct background_job *job); /* it will not run */
};

struct background {
    pthread_mutex_t lock;
    pthread_cond_t came, settled;
    struct list jobs;
    pthread_t thread;
    bool started, working, ending;
};

void background_init(struct background *background);
/* Waits for the job that runs, drops the others. */
void background_deinit(struct background *background);
/* The thread starts with the first job; where it cannot, the job is dropped. */
void background_add(struct background *background, struct background_job *job);
/* Blocks until no job waits or runs. */
void background_settle(struct background *background);

#endif
