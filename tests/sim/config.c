/* Settings from the environment, and the control calls of sim.h that change them later. */
#include "core.h"

#include "ptx/ptx.h"
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const open_names[OPEN_KINDS] = {
    [OPEN_STREAM] = "stream",
    [OPEN_EVENT] = "event",
    [OPEN_GRAPH] = "graph",
    [OPEN_GRAPH_EXEC] = "graph exec",
    [OPEN_ALLOCATION] = "allocation",
    [OPEN_HOST_ALLOCATION] = "host allocation",
    [OPEN_HANDLE] = "handle",
    [OPEN_MAPPING] = "mapping",
    [OPEN_RESERVATION] = "reservation",
    [OPEN_POOL] = "pool",
    [OPEN_LIBRARY] = "library",
};

static _Noreturn void refuse(const char *name, const char *value, const char *allowed)
{
    fprintf(stderr, "sim: %s=%s: allowed is %s\n", name, value, allowed);
    exit(78);
}

/* 512M, 4G, 65536. */
static size_t env_bytes(const char *name, size_t otherwise)
{
    const char *value = getenv(name);
    char *end;

    if (value == NULL)
        return otherwise;
    size_t bytes = strtoull(value, &end, 10);
    const char *units = "KMG";
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL)
        bytes <<= 10 * (unit - units + 1);
    if (end == value || (*end != '\0' && (unit == NULL || end[1] != '\0')))
        refuse(name, value, "a size such as 512M");
    return bytes;
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
    const char *value = getenv(name);
    char *end;

    if (value == NULL)
        return otherwise;
    uint64_t number = strtoull(value, &end, 10);
    if (end == value || *end != '\0')
        refuse(name, value, "a number");
    return number;
}

static enum sim_mode env_mode(void)
{
    const char *value = getenv("SLUICE_SIM_MODE");

    if (value == NULL || strcmp(value, "eager") == 0)
        return SIM_EAGER;
    if (strcmp(value, "lazy") == 0)
        return SIM_LAZY;
    if (strcmp(value, "async") == 0)
        return SIM_ASYNC;
    refuse("SLUICE_SIM_MODE", value, "eager, lazy or async");
}

/* SLUICE_SIM_FAIL=cuMemCreate:3,cudaMallocHost:1:2 - function, which call, code. */
static void env_failures(void)
{
    const char *value = getenv("SLUICE_SIM_FAIL");
    char *list = value != NULL ? strdup(value) : NULL;
    char *rest = NULL;

    for (char *item = list != NULL ? strtok_r(list, ",", &rest) : NULL; item != NULL;
         item = strtok_r(NULL, ",", &rest)) {
        char function[128];
        unsigned n;
        int code = 0;
        if (sscanf(item, "%127[^:]:%u:%d", function, &n, &code) < 2)
            refuse("SLUICE_SIM_FAIL", value, "function:call[:code],...");
        api_fail_at(function, n, false, (cudaError_t)code);
    }
    free(list);
}

static void report_at_exit(void)
{
    sim_report_open();
}

void config_read(void)
{
    sim.mode = env_mode();
    sim.order = env_number("SLUICE_SIM_ORDER", 0);
    sim.threads = (unsigned)env_number("SLUICE_SIM_THREADS", 0);
    sim.check_races = env_number("SLUICE_SIM_RACES", 1) != 0;
    sim.check_uninitialised = env_number("SLUICE_SIM_UNINITIALISED", 1) != 0;
    sim.check_copies = env_number("SLUICE_SIM_COPIES", 1) != 0;
    sim.plan_bytes = env_bytes("SLUICE_SIM_PLAN", 0);
    sim.keeps_nan = env_number("SLUICE_SIM_RELU_NAN", 0) != 0;
    sim.total_bytes = env_bytes("SLUICE_SIM_MEMORY", (size_t)4 << 30);
    sim.others_bytes = env_bytes("SLUICE_SIM_OTHERS", 0);
    sim.process_limit_bytes = env_bytes("SLUICE_SIM_LIMIT", 0);
    sim.context_bytes = env_bytes("SLUICE_SIM_CONTEXT", (size_t)256 << 20);
    sim.capability = (int)env_number("SLUICE_SIM_CAPABILITY", 90);
    sim.devices = (int)env_number("SLUICE_SIM_DEVICES", 1);
    sim.hang_at = env_number("SLUICE_SIM_HANG", 0);
    sim.break_at = env_number("SLUICE_SIM_BREAK", 0);
    sim.break_code = cudaErrorIllegalAddress;
    sim.endless = env_number("SLUICE_SIM_ENDLESS", 0);
    env_failures();
    if (env_number("SLUICE_SIM_LEAKS", 0) != 0)
        atexit(report_at_exit);
}

void sim_reset(void)
{
    sim_start();
    sim_release_hung();
    sim_lock();
    api_forget_failures();
    sim.sticky = cudaSuccess;
    sim.kernels = sim.hang_at = sim.break_at = 0;
    sim.others_bytes = sim.process_limit_bytes = 0;
    sim.endless = 0;
    sim.peak_bytes = sim.used_bytes;
    finding_forget();
    sim_unlock();
}

void sim_set_mode(enum sim_mode mode)
{
    sim_start();
    streams_run_all(); /* nothing of the old order is left behind */
    sim_lock();
    sim.mode = mode;
    sim_unlock();
}

void sim_set_devices(int count)
{
    sim_start();
    sim.devices = count;
}

void sim_set_order(uint64_t order)
{
    sim_start();
    sim_lock();
    sim.order = order;
    sim_unlock();
}

void sim_set_threads(unsigned threads)
{
    sim_start();
    sim_lock();
    sim.threads = threads;
    sim_unlock();
}

void sim_set_memory(size_t total_bytes, size_t held_by_others_bytes)
{
    sim_start();
    sim_lock();
    sim.total_bytes = total_bytes;
    sim.others_bytes = held_by_others_bytes;
    sim_unlock();
}

void sim_set_process_limit(size_t bytes)
{
    sim_start();
    sim_lock();
    sim.process_limit_bytes = bytes;
    sim_unlock();
}

void sim_fail_nth(const char *function, unsigned n, int code)
{
    sim_start();
    api_fail_at(function, n, false, (cudaError_t)code);
}

void sim_fail_every(const char *function, unsigned n, int code)
{
    sim_start();
    api_fail_at(function, n, true, (cudaError_t)code);
}

void sim_hang_nth_kernel(unsigned n)
{
    sim_start();
    sim_lock();
    sim.hang_at = n == 0 ? 0 : sim.kernels + n;
    sim_unlock();
}

void sim_await_hung(void)
{
    sim_lock();
    while (sim.kernels < sim.hang_at)
        pthread_cond_wait(&sim.moved, &sim.lock);
    sim_unlock();
}

void sim_break_nth_kernel(unsigned n, int code)
{
    sim_start();
    sim_lock();
    sim.break_at = n == 0 ? 0 : sim.kernels + n;
    sim.break_code = (cudaError_t)code;
    sim_unlock();
}

void sim_set_endless(uint64_t instructions)
{
    sim_start();
    sim_lock();
    sim.endless = instructions;
    sim_unlock();
}

unsigned long sim_count(const char *function)
{
    sim_lock();
    unsigned long calls = api_calls(function);
    sim_unlock();
    return calls;
}

void open_count(enum open_kind kind, int change)
{
    sim.open[kind] += (unsigned long)(long)change;
}

unsigned long sim_open(const char *kind)
{
    unsigned long sum = 0;

    sim_lock();
    for (int k = 0; k < OPEN_KINDS; k++)
        if (kind == NULL || strcmp(kind, open_names[k]) == 0)
            sum += sim.open[k];
    sim_unlock();
    return sum;
}

unsigned long sim_report_open(void)
{
    unsigned long sum = 0;

    sim_lock();
    for (int k = 0; k < OPEN_KINDS; k++) {
        if (sim.open[k] != 0)
            fprintf(stderr, "sim: still open: %s: %lu\n", open_names[k], sim.open[k]);
        sum += sim.open[k];
    }
    sim_unlock();
    return sum;
}

size_t sim_used_bytes(void)
{
    sim_lock();
    size_t bytes = sim.used_bytes;
    sim_unlock();
    return bytes;
}

size_t sim_peak_bytes(void)
{
    sim_lock();
    size_t bytes = sim.peak_bytes;
    sim_unlock();
    return bytes;
}

void sim_watch_sectors(const char *name)
{
    sim_start();
    ptx_watch_sectors(name);
}

uint64_t sim_sectors(uint64_t *out_accesses)
{
    return ptx_sectors(out_accesses);
}

uint64_t sim_instructions(void)
{
    return __atomic_load_n(&sim.instructions, __ATOMIC_RELAXED);
}
