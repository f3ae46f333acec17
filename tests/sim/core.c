/* The one state of the simulated device, and what every call of its API does first and last. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim sim = {
    .exec = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .moved = PTHREAD_COND_INITIALIZER,
};

static struct api *apis;  /* every function called so far */
static struct api *asked; /* failures asked for before the first call of a function */
static _Thread_local cudaError_t last_error;

void sim_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, config_read);
}

void sim_lock(void)
{
    pthread_mutex_lock(&sim.lock);
}

void sim_unlock(void)
{
    pthread_mutex_unlock(&sim.lock);
}

void exec_lock(void)
{
    pthread_mutex_lock(&sim.exec);
}

void exec_unlock(void)
{
    pthread_mutex_unlock(&sim.exec);
}

static struct api *find(struct api *list, const char *name)
{
    for (struct api *api = list; api != NULL; api = api->next)
        if (strcmp(api->name, name) == 0)
            return api;
    return NULL;
}

/* First call of a function: what a test asked of it before moves into its own record. */
static void link_api(struct api *api)
{
    struct api *before = find(asked, api->name);

    if (before != NULL) {
        api->fail_at = before->fail_at;
        api->fail_every = before->fail_every;
        api->fail_code = before->fail_code;
    }
    api->next = apis;
    api->linked = true;
    apis = api;
}

/* Errors that a function reports when the device has no more of something. */
static cudaError_t exhausted(const char *name)
{
    if (strstr(name, "Launch") != NULL)
        return cudaErrorLaunchOutOfResources;
    return cudaErrorMemoryAllocation;
}

cudaError_t api_begin(struct api *api, bool alive)
{
    cudaError_t error = cudaSuccess;

    sim_start();
    sim_lock();
    if (!api->linked)
        link_api(api);
    api->calls++;
    if (api->fail_at == api->calls) {
        error = api->fail_code != cudaSuccess ? api->fail_code : exhausted(api->name);
        api->fail_at = api->fail_every != 0 ? api->calls + api->fail_every : 0;
    } else if (!alive) {
        error = sim.sticky;
    }
    sim_unlock();
    return error;
}

cudaError_t api_end(cudaError_t error)
{
    /* "Not ready" is an answer, not an error. */
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

void api_fail_at(const char *function, unsigned n, bool every, cudaError_t code)
{
    sim_lock();
    struct api *api = find(apis, function);
    if (api == NULL)
        api = find(asked, function);
    if (api == NULL) {
        api = calloc(1, sizeof(*api));
        api->name = strdup(function);
        api->next = asked;
        asked = api;
    }
    api->fail_at = n == 0 ? 0 : api->calls + n;
    api->fail_every = every ? n : 0;
    api->fail_code = code;
    sim_unlock();
}

/* Under sim.lock. */
void api_forget_failures(void)
{
    last_error = cudaSuccess;
    for (struct api *api = apis; api != NULL; api = api->next)
        api->calls = api->fail_at = api->fail_every = 0;
    while (asked != NULL) {
        struct api *next = asked->next;
        free((char *)(uintptr_t)asked->name);
        free(asked);
        asked = next;
    }
}

/* Under sim.lock. */
unsigned long api_calls(const char *function)
{
    const struct api *api = find(apis, function);

    return api != NULL ? api->calls : 0;
}

void sim_stick(cudaError_t code)
{
    sim_lock();
    if (sim.sticky == cudaSuccess)
        sim.sticky = code;
    pthread_cond_broadcast(&sim.moved);
    sim_unlock();
}

/* What calls of this thread have answered: what broke a context meanwhile, the next call tells, and
 * from then on it stays. */
SIM_EXPORT cudaError_t cudaGetLastError(void)
{
    sim_start();
    cudaError_t error = last_error;

    if (error != sim.sticky)
        last_error = cudaSuccess;
    return error;
}

SIM_EXPORT cudaError_t cudaPeekAtLastError(void)
{
    sim_start();
    return last_error;
}
