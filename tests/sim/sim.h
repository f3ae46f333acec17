/* Control of the simulated CUDA device: what a test sets, and what it asks.
 *
 * tests/sim makes a libcudart.so.13 that has no GPU below it.  A program under test finds it by
 * LD_LIBRARY_PATH and knows nothing of this header; the test that drives the program may call what
 * is here, by linking sim_cudart or through dlsym.  The same settings can come from the environment
 * (README.md lists the variables), for programs that a test only starts.
 *
 * Threads:   any.
 * Ownership: strings returned are the simulator's, good until the next call from the same thread.
 */
#ifndef SLUICE_TESTS_SIM_H
#define SLUICE_TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIM_EXPORT __attribute__((visibility("default")))

/* When the work of a stream runs. */
enum sim_mode {
    SIM_EAGER, /* in the call that enqueues it: the most forgiving order there is */
    SIM_LAZY,  /* only when something waits for it, and no more than that needs: a wait that is
                  missing shows every time */
    SIM_ASYNC, /* on a thread of the device, as soon as its stream allows: as a GPU does */
};

/* Forgets all that tests have set or that work has left: limits, failures to come, counts,
 * findings, the sticky error.  Objects that are open stay open. */
SIM_EXPORT void sim_reset(void);

SIM_EXPORT void sim_set_mode(enum sim_mode mode);

/* Order in which blocks and graph nodes that may run in any order do run: 0 forwards, 1 backwards,
 * anything else is the seed of a shuffle. */
SIM_EXPORT void sim_set_order(uint64_t order);
/* How many devices there are, from now on. */
SIM_EXPORT void sim_set_devices(int count);

/* Threads that run the blocks of one kernel; 0: one a processor. */
SIM_EXPORT void sim_set_threads(unsigned threads);

/* Memory of the device in bytes, and what a process other than this one holds of it. */
SIM_EXPORT void sim_set_memory(size_t total_bytes, size_t held_by_others_bytes);

/* Most that this process may hold, 0 for no limit: the pinned device memory limit of MPS, or a
 * cgroup's dmem.max.  As on a GPU cudaMemGetInfo reports it as the total where it is smaller. */
SIM_EXPORT void sim_set_process_limit(size_t bytes);

/* The n-th call from now (1 is the next) of the named function fails with `code`, a cudaError_t or
 * CUresult; 0 takes the error of an exhausted device.  `every` repeats it each n calls. */
SIM_EXPORT void sim_fail_nth(const char *function, unsigned n, int code);
SIM_EXPORT void sim_fail_every(const char *function, unsigned n, int code);

/* The n-th kernel launch from now never ends.  sim_release_hung() lets all such go on. */
SIM_EXPORT void sim_hang_nth_kernel(unsigned n);
SIM_EXPORT void sim_release_hung(void);
/* Waits until that launch was made. */
SIM_EXPORT void sim_await_hung(void);

/* The n-th kernel launch from now dies with `code` (cudaErrorIllegalAddress and the like), which
 * sticks as it does on a GPU: nearly every later call fails with it. */
SIM_EXPORT void sim_break_nth_kernel(unsigned n, int code);

/* A thread of a kernel that runs more instructions than this is taken for one without end; 0: 2^31.
 */
SIM_EXPORT void sim_set_endless(uint64_t instructions);

/* Calls of a function so far. */
SIM_EXPORT unsigned long sim_count(const char *function);

/* Objects that are open: "stream", "event", "graph", "graph exec", "allocation", "host
 * allocation", "handle" (cuMemCreate), "mapping", "reservation", "pool", "library"; NULL is the sum
 * of all. */
SIM_EXPORT unsigned long sim_open(const char *kind);
/* Writes one line a kind that is not zero to stderr; returns the sum. */
SIM_EXPORT unsigned long sim_report_open(void);

/* Bytes of device memory that this process holds now, and the most it held. */
SIM_EXPORT size_t sim_used_bytes(void);
SIM_EXPORT size_t sim_peak_bytes(void);

/* What the checkers have found, and the text of the last finding ("" when none). */
SIM_EXPORT unsigned long sim_findings(void);
SIM_EXPORT const char *sim_last_finding(void);

/* Decodes every kernel of every module that is loaded; how many of them the interpreter cannot run,
 * each with a finding that says why. */
SIM_EXPORT unsigned long sim_refused_kernels(void);

/* PTX instructions run so far, counted a lane. */
SIM_EXPORT uint64_t sim_instructions(void);

/* Counts from now on, in kernels whose name has `name` in it (which must stay; NULL: in none, as at
 * first), what warps access in global memory: accesses, and the sectors of 32 bytes that each of
 * them touches.  An access of bytes side by side touches one or two. */
SIM_EXPORT void sim_watch_sectors(const char *name);
SIM_EXPORT uint64_t sim_sectors(uint64_t *out_accesses);

/* For simulated libraries (cuBLASLt, cuDNN) --------------------------------------------------- */
struct CUstream_st;

/* Puts `fn(arg)` on a stream, as a kernel named `name` would be; it is captured into graphs too.
 * `arg_bytes` of `arg` are copied.  Returns a cudaError_t. */
SIM_EXPORT int sim_enqueue(struct CUstream_st *stream, const char *name, void (*fn)(void *arg),
                           const void *arg, size_t arg_bytes);

/* Inside such a function: where `bytes` of device memory at `address` lie for the host.  NULL, a
 * finding and the sticky error when they are not all mapped.  `write` marks them as written;
 * otherwise bytes that were never written are a finding. */
SIM_EXPORT void *sim_view(const void *address, size_t bytes, bool write);

/* Inside such a function: it takes so long, as far as events tell. */
SIM_EXPORT void sim_take_time(double milliseconds);

/* What each plan that a simulated library makes from now on holds of the device (code, constants)
 * until it is destroyed; 0 at first.  sim_plan_hold(): a library's plan is made; what it holds, for
 * sim_plan_drop(). */
SIM_EXPORT void sim_set_plan_bytes(size_t bytes);
SIM_EXPORT size_t sim_plan_hold(void);
SIM_EXPORT void sim_plan_drop(size_t bytes);

/* Whether the ReLU that a simulated library computes along with a product gives NaN for NaN.  Else
 * it gives 0, as cuBLASLt's is known to: so it is at first. */
SIM_EXPORT void sim_keep_nan(bool kept);
SIM_EXPORT bool sim_nan_is_kept(void);

/* Counts a call of a library's function, which sim_fail_nth() may have ordered to fail: then the
 * code it gave, else 0.  `function` must stay where it is. */
SIM_EXPORT int sim_library_call(const char *function);
/* A finding of a library's checkers: written to stderr, counted, kept for sim_last_finding(). */
SIM_EXPORT void sim_find(const char *format, ...) __attribute__((format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif
#endif
