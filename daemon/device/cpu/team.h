/* The threads of a lane working on one kernel: the only place that knows OpenMP.
 *
 * A kernel splits its work so that no result depends on how many members there are.  Small work
 * should not be split at all: pass team_size()'s answer.
 */
#ifndef DEVICE_CPU_TEAM_H
#define DEVICE_CPU_TEAM_H

#include <stdbool.h>
#include <stddef.h>

typedef void (*team_fn)(void *arg, unsigned member, unsigned members);

/* Makes OpenMP ready; false: it is not there, everything runs on the calling thread.  Once, before
 * other threads read the environment; later calls only answer. */
bool team_open(void);
/* How many threads oneDNN uses when called from this thread; returns the number before. */
unsigned team_enter(unsigned threads);

/* Calls fn on `threads` members at once (maybe fewer, never more) and waits for all.  One thread:
 * a plain call. */
void team_run(unsigned threads, team_fn fn, void *arg);
/* Inside fn: waits for the other members. */
void team_barrier(void);

/* Whether the other members still wait awake: the calling thread's last region is not long over.
 * Always true when the environment (OMP_WAIT_POLICY, GOMP_SPINCOUNT) says how they wait. */
bool team_is_awake(void);
/* There was a region of somebody else's (oneDNN's) until now. */
void team_woke(void);
/* Whether the pieces of work that the calling thread did alone, one close behind the other and with
 * the one of so many nanoseconds that begins now, would have paid for waking the others. */
bool team_is_missed(double nanoseconds);

/* How many of `threads` may be worth waking for so many nanoseconds of work.  A region costs 2 us
 * when the others are awake; on a busy machine one of them may come a time slice late. */
static inline unsigned team_most(unsigned threads, double nanoseconds)
{
    return nanoseconds < 15000 ? 1 : threads;
}

/* The same when work begins: to wake those that have gone to sleep since the last region costs 30
 * to 130 us, which short work does not pay back, unless much of it follows. */
static inline unsigned team_size(unsigned threads, double nanoseconds)
{
    const unsigned most = team_most(threads, nanoseconds);

    if (most == 1 || nanoseconds >= 100000 || team_is_awake() || team_is_missed(nanoseconds))
        return most;
    return 1;
}

/* Member's share [*from, *to) of `count` things. */
static inline void team_share(size_t count, unsigned member, unsigned members, size_t *from,
                              size_t *to)
{
    *from = count * member / members;
    *to = count * (member + 1) / members;
}

#endif
