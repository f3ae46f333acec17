/* What the files of the simulated runtime share: its one state, locks, and how a call begins.
 *
 * Two locks, taken in this order:
 *   sim.exec   held while work of the device runs and while its address space changes
 *   sim.lock   guards all else; never held while work runs
 */
#ifndef SLUICE_TESTS_SIM_CORE_H
#define SLUICE_TESTS_SIM_CORE_H

#include "sim.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

/* One function of the API: how often it was called, and which call is to fail. */
struct api {
    const char *name;
    struct api *next;
    unsigned long calls;
    unsigned long fail_at;    /* value of `calls` that fails; 0: none */
    unsigned long fail_every; /* then again after that many; 0: once */
    cudaError_t fail_code;
    bool linked;
};

enum open_kind {
    OPEN_STREAM,
    OPEN_EVENT,
    OPEN_GRAPH,
    OPEN_GRAPH_EXEC,
    OPEN_ALLOCATION,
    OPEN_HOST_ALLOCATION,
    OPEN_HANDLE,
    OPEN_MAPPING,
    OPEN_RESERVATION,
    OPEN_POOL,
    OPEN_LIBRARY,
    OPEN_KINDS
};

struct sim {
    pthread_mutex_t exec;
    pthread_mutex_t lock;
    pthread_cond_t moved; /* work was put, ended or released */

    enum sim_mode mode;
    uint64_t order;
    unsigned threads;
    bool check_races;
    bool check_uninitialised;
    bool check_copies; /* a copy to the host of bytes never written is a finding */

    bool keeps_nan;    /* libraries' ReLU */
    size_t plan_bytes; /* held by each of libraries' plans */

    size_t total_bytes;
    size_t others_bytes;
    size_t process_limit_bytes;
    size_t context_bytes; /* held from the first call on, as a context does */
    size_t used_bytes;
    size_t peak_bytes;
    int capability; /* 90 is compute capability 9.0 */
    int devices;    /* of one kind; all work, and its memory, is one machine's */

    cudaError_t sticky;
    unsigned long kernels; /* launched so far */
    unsigned long hang_at;
    unsigned long break_at;
    cudaError_t break_code;
    uint64_t endless; /* instructions of one thread; 0: the interpreter's own limit */
    unsigned long open[OPEN_KINDS];
    uint64_t instructions;
};

extern struct sim sim;

/* Reads the environment once; every entry calls it. */
void sim_start(void);
void config_read(void);

void sim_lock(void);
void sim_unlock(void);
void exec_lock(void);
void exec_unlock(void);

/* Counts the call; the error it is to fail with, or success.  `alive` says that the call works on a
 * device whose context is dead. */
cudaError_t api_begin(struct api *api, bool alive);
/* Keeps `error` for cudaGetLastError; returns it. */
cudaError_t api_end(cudaError_t error);

#define API_BEGIN(function, alive)                                                                 \
    do {                                                                                           \
        static struct api api_ = {.name = #function};                                              \
        cudaError_t begin_ = api_begin(&api_, alive);                                              \
        if (begin_ != cudaSuccess)                                                                 \
            return api_end(begin_);                                                                \
    } while (0)
#define BEGIN(function)       API_BEGIN(function, false)
#define BEGIN_ALIVE(function) API_BEGIN(function, true)
/* The same for the driver's functions: both enumerations have the same numbers. */
#define BEGIN_CU(function)                                                                         \
    do {                                                                                           \
        static struct api api_ = {.name = #function};                                              \
        cudaError_t begin_ = api_begin(&api_, false);                                              \
        if (begin_ != cudaSuccess)                                                                 \
            return (CUresult)begin_;                                                               \
    } while (0)

void api_fail_at(const char *function, unsigned n, bool every, cudaError_t code);
void api_forget_failures(void);
unsigned long api_calls(const char *function);

/* The context is dead from now on; the first reason stays. */
void sim_stick(cudaError_t code);

/* Counts an object that was opened (+1) or closed (-1).  Under sim.lock. */
void open_count(enum open_kind kind, int change);

/* A finding of a checker: written to stderr, counted and kept for sim_last_finding(). */
void finding(const char *format, ...) __attribute__((format(printf, 1, 2)));
void finding_forget(void);
/* Once a distinct text: what a reader of the log should know, but nothing that is wrong. */
void notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
