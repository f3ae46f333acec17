/* OpenMP is GNU's, the one that oneDNN runs on, so that both share one set of threads.  It is
 * opened at run time: it reads its environment once, when it is loaded, and our say about how its
 * threads wait must be there by then. */
#include "device/cpu/team.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"

/* How long a member waits awake for the others before it sleeps, in turns of libgomp's loop: some
 * 0.1 ms, which covers the pauses between the steps of a batch.  libgomp's own 300000 are up to 20
 * ms: on a machine with other work, the time slice of the very thread that is waited for. */
#define SPIN_COUNT "3000"

/* libgomp's interface to compilers, and OpenMP's calls. */
#define FUNCTIONS(FUNCTION)                                                                        \
    FUNCTION(GOMP_parallel, void,                                                                  \
             (void (*fn)(void *), void *arg, unsigned threads, unsigned flags))                    \
    FUNCTION(GOMP_barrier, void, (void))                                                           \
    FUNCTION(omp_get_thread_num, int, (void))                                                      \
    FUNCTION(omp_get_num_threads, int, (void))                                                     \
    FUNCTION(omp_get_max_threads, int, (void))                                                     \
    FUNCTION(omp_set_num_threads, void, (int))                                                     \
    FUNCTION(omp_set_dynamic, void, (int))

static struct {
#define FUNCTION(name, result, parameters) result(*name) parameters;
    FUNCTIONS(FUNCTION)
#undef FUNCTION
    bool is_there;
    bool falls_asleep; /* members wait as long as SPIN_COUNT says, not as the environment does */
} openmp;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
    void *library;

    openmp.falls_asleep = getenv("OMP_WAIT_POLICY") == NULL && getenv("GOMP_SPINCOUNT") == NULL;
    if (openmp.falls_asleep)
        (void)setenv("GOMP_SPINCOUNT", SPIN_COUNT, 1);
    library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
    openmp.is_there = true;
#define FUNCTION(name, result, parameters)                                                         \
    openmp.name = (result(*) parameters)dlsym(library, #name);                                     \
    openmp.is_there = openmp.is_there && openmp.name != NULL;
    FUNCTIONS(FUNCTION)
#undef FUNCTION
}

bool team_open(void)
{
    (void)pthread_once(&once, open_library);
    return openmp.is_there;
}

unsigned team_enter(unsigned threads)
{
    unsigned before;

    if (!team_open())
        return 1;
    before = (unsigned)openmp.omp_get_max_threads();
    openmp.omp_set_dynamic(0);
    openmp.omp_set_num_threads((int)threads);
    return before;
}

struct job {
    team_fn fn;
    void *arg;
};

static void take_part(void *arg)
{
    const struct job *job = arg;

    job->fn(job->arg, (unsigned)openmp.omp_get_thread_num(),
            (unsigned)openmp.omp_get_num_threads());
}

void team_run(unsigned threads, team_fn fn, void *arg)
{
    struct job job = {.fn = fn, .arg = arg};

    if (threads <= 1 || !team_open()) {
        fn(arg, 0, 1);
        return;
    }
    openmp.GOMP_parallel(take_part, &job, threads, 0);
    team_woke();
}

/* Less than members wait for each other, see SPIN_COUNT. */
enum { AWAKE_NS = 50000 };

static _Thread_local int64_t last_ns; /* end of the last region; 0: there was none */

bool team_is_awake(void)
{
    return !openmp.falls_asleep || clock_now_ns() - last_ns < AWAKE_NS;
}

void team_woke(void)
{
    last_ns = clock_now_ns();
}

/* What others would have saved until it is as much as waking them costs: then they are woken, as
 * if the same went on for as long again (the rule for renting or buying skis).  A pause in which
 * they would have fallen asleep again begins anew. */
enum { WAKE_NS = 100000 };

static _Thread_local struct {
    int64_t end_ns; /* of the last piece, if the guess was right */
    double saved_ns;
} alone;

bool team_is_missed(double nanoseconds)
{
    const int64_t now_ns = clock_now_ns();

    if (now_ns - alone.end_ns > AWAKE_NS)
        alone.saved_ns = 0;
    alone.end_ns = now_ns + (int64_t)nanoseconds;
    alone.saved_ns += nanoseconds / 2;
    if (alone.saved_ns < WAKE_NS)
        return false;
    alone.saved_ns = 0;
    return true;
}

void team_barrier(void)
{
    if (openmp.is_there)
        openmp.GOMP_barrier();
}
