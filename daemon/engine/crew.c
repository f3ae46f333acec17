/* Threads that help to make a plan: each job runs once, taken in rising order by whoever is free.
 *
 * A thread costs some tens of us, and many plans are made in less: unless it is told that there is
 * much to do, the caller begins alone and asks for help only when it has worked for a while and
 * more than one job is left.  Without help (no memory for a thread) it does all of them.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "engine/internal.h"

enum { PATIENCE_US = 300, MOST_HELPERS = 15 };

struct crew {
    atomic_size_t next;
    size_t count;
    crew_fn fn;
    void *arg;
};

static bool run_one(struct crew *crew)
{
    size_t index = atomic_fetch_add(&crew->next, 1);

    if (index < crew->count)
        crew->fn(crew->arg, index);
    return index < crew->count;
}

static void *help(void *arg)
{
    struct crew *crew = arg;

    constant_reuse_begin();
    while (run_one(crew))
        continue;
    constant_reuse_end();
    return NULL;
}

/* Signals are for other threads; a fault in memory that a client shares is answered where it is
 * met. */
static bool make_helper(struct crew *crew, pthread_t *out_thread)
{
    sigset_t all, before;
    bool made;

    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    made = pthread_create(out_thread, NULL, help, crew) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return made;
}

static size_t call_helpers(struct crew *crew, unsigned threads, pthread_t helpers[MOST_HELPERS])
{
    size_t begun = atomic_load(&crew->next), made = 0;

    while (made + 1 < threads && made < MOST_HELPERS && begun + made + 1 < crew->count &&
           make_helper(crew, &helpers[made]))
        made++;
    return made;
}

void crew_run(const struct crew_size *size, size_t count, crew_fn fn, void *arg)
{
    struct crew crew = {.count = count, .fn = fn, .arg = arg};
    int64_t alone_until_us = size->is_much ? 0 : clock_now_us() + PATIENCE_US;
    pthread_t helpers[MOST_HELPERS];
    size_t made = 0;
    bool asked = false;

    constant_reuse_begin();
    do {
        if (asked || clock_now_us() < alone_until_us)
            continue;
        made = call_helpers(&crew, size->threads, helpers);
        asked = true;
    } while (run_one(&crew));
    constant_reuse_end();
    while (made > 0)
        (void)pthread_join(helpers[--made], NULL);
}
