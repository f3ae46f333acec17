/* A libnvrtc.so.13 before the real one.
 *
 * The compiler needs no GPU, so it is not simulated: calls go to the library that SLUICE_SIM_NVRTC
 * names.  Where that is not set there is none, and nothing is compiled: what the plug-in under test
 * does then does not depend on what the machine has.  Calls are counted and fail as ordered
 * (sim_fail_nth), and a compilation can be held up.
 */
#include "nvrtc/nvrtc.h"

#include <dlfcn.h>
#include <nvrtc.h>
#include <pthread.h>
#include <stdlib.h>

#include "sim.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static bool held;
static unsigned waiting;

void sim_nvrtc_hold(bool hold)
{
    pthread_mutex_lock(&lock);
    held = hold;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
}

void sim_nvrtc_await_held(void)
{
    pthread_mutex_lock(&lock);
    while (waiting == 0)
        pthread_cond_wait(&moved, &lock);
    pthread_mutex_unlock(&lock);
}

static void pass(void)
{
    pthread_mutex_lock(&lock);
    waiting++;
    pthread_cond_broadcast(&moved);
    while (held)
        pthread_cond_wait(&moved, &lock);
    waiting--;
    pthread_mutex_unlock(&lock);
}

static void *real(const char *name)
{
    const char *path = getenv("SLUICE_SIM_NVRTC");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;

    return library != NULL ? dlsym(library, name) : NULL;
}

/* FORWARD(name, parameters, arguments): counted, then the real one's. */
#define FORWARD(name, parameters, ...)                                                             \
    SIM_EXPORT nvrtcResult name parameters                                                         \
    {                                                                                              \
        nvrtcResult(*function) parameters;                                                         \
        int failure = sim_library_call(#name);                                                     \
                                                                                                   \
        if (failure != 0)                                                                          \
            return (nvrtcResult)failure;                                                           \
        *(void **)&function = real(#name);                                                         \
        return function != NULL ? function(__VA_ARGS__) : NVRTC_ERROR_INTERNAL_ERROR;              \
    }

FORWARD(nvrtcVersion, (int *major, int *minor), major, minor)
FORWARD(nvrtcGetNumSupportedArchs, (int *count), count)
FORWARD(nvrtcGetSupportedArchs, (int *architectures), architectures)
FORWARD(nvrtcCreateProgram,
        (nvrtcProgram * program, const char *source, const char *name, int count,
         const char *const *headers, const char *const *names),
        program, source, name, count, headers, names)
FORWARD(nvrtcDestroyProgram, (nvrtcProgram * program), program)
FORWARD(nvrtcGetProgramLogSize, (nvrtcProgram program, size_t *bytes), program, bytes)
FORWARD(nvrtcGetProgramLog, (nvrtcProgram program, char *log), program, log)
FORWARD(nvrtcGetPTXSize, (nvrtcProgram program, size_t *bytes), program, bytes)
FORWARD(nvrtcGetPTX, (nvrtcProgram program, char *code), program, code)
FORWARD(nvrtcGetCUBINSize, (nvrtcProgram program, size_t *bytes), program, bytes)
FORWARD(nvrtcGetCUBIN, (nvrtcProgram program, char *code), program, code)

SIM_EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count,
                                           const char *const *options)
{
    nvrtcResult (*function)(nvrtcProgram, int, const char *const *);
    int failure = sim_library_call("nvrtcCompileProgram");

    pass();
    if (failure != 0)
        return (nvrtcResult)failure;
    *(void **)&function = real("nvrtcCompileProgram");
    return function != NULL ? function(program, count, options) : NVRTC_ERROR_INTERNAL_ERROR;
}

SIM_EXPORT const char *nvrtcGetErrorString(nvrtcResult result)
{
    const char *(*function)(nvrtcResult);

    *(void **)&function = real("nvrtcGetErrorString");
    return function != NULL ? function(result) : "SLUICE_SIM_NVRTC names no compiler";
}
