/* A process that answers questions, so that a crash is one answer's and no more.
 *
 * Ownership: a worker's process is its asker's, until worker_end().  Threads: one.
 */
#ifndef CONFORMANCE_WORKER_H
#define CONFORMANCE_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct worker {
    pid_t process;  /* 0: none, the next question starts one */
    int end;        /* of a socket between both */
    unsigned asked; /* of this process */
};

/* Runs in the worker.  `answer` holds what the asker wrote there. */
typedef void (*worker_fn)(const void *rules, const void *question, void *answer);

struct worker_task {
    worker_fn run;
    const void *rules; /* as they were when the process was started */
    size_t question_bytes, answer_bytes;
    unsigned seconds; /* a question may take */
};

/* False: the process ended over it, `out_signal` says how (0: it left), and the next question
 * starts another. */
bool worker_ask(struct worker *worker, const struct worker_task *task, const void *question,
                void *answer, int *out_signal);
/* Waits for its end; no process is fine. */
void worker_end(struct worker *worker);

#endif
