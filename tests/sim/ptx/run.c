/* Launches: workers take blocks, a block runs its warps in turn. */
#include "../core.h"
#include "race.h"
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The calling thread runs a launch alone for so long: most end before another thread would begin.
 */
enum { SLICE = 1 << 16, WORKERS = 16, ALONE_NS = 200000 };

/* A thread that runs longer than this is taken for one that never ends. */
static const uint64_t ENDLESS = (uint64_t)1 << 31;

static struct worker workers[WORKERS]; /* launches come one at a time: they share these */

void fault(struct warp *warp, const struct op *op, uint32_t lanes, enum ptx_end end,
           const char *format, ...)
{
    struct worker *worker = warp->worker;
    const unsigned *block = worker->grid->block;
    uint32_t lane = lanes != 0 ? (uint32_t)__builtin_ctz(lanes) : 0;
    uint32_t thread = warp->number * LANES + lane;
    const struct ptx_module *module = worker->kernel->module;
    const char *file = op->place.file < module->file_count && module->files[op->place.file] != NULL
                           ? module->files[op->place.file]
                           : "no line information";
    const char *slash = strrchr(file, '/');
    int none = PTX_DONE;
    char text[512];
    va_list arguments;

    warp->stopped = true;
    if (!__atomic_compare_exchange_n(&worker->launch->end, &none, (int)end, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    finding("kernel %s: block (%u, %u, %u) thread (%u, %u, %u): %s:%u (PTX line %u): %s",
            worker->kernel->name, worker->block_index[0], worker->block_index[1],
            worker->block_index[2], thread % block[0], thread / block[0] % block[1],
            thread / (block[0] * block[1]), slash != NULL ? slash + 1 : file, op->place.line,
            op->place.ptx_line, text);
}

static size_t rounded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Cuts the worker's memory for this kernel and block; keeps it when it is large enough. */
static void worker_fit(struct worker *worker)
{
    const struct ptx_kernel *kernel = worker->kernel;
    size_t file = rounded(kernel->file_bytes);
    size_t marks = rounded(kernel->marks * sizeof(uint32_t));
    size_t local = rounded(kernel->local_bytes) * LANES;
    size_t shared = rounded(worker->shared_bytes + 64);
    size_t races = worker->grid->check_races
                       ? rounded(race_entries(worker->shared_bytes) * sizeof(struct race_entry))
                       : 0;
    size_t warp = file + marks + local + rounded(local / 8 + 8);
    size_t need = warp * worker->warp_count + shared + rounded(shared / 8) + races +
                  rounded(kernel->slots * sizeof(struct span) + 1) + 64;

    if (need > worker->memory_bytes) {
        free(worker->memory);
        worker->memory = aligned_alloc(64, rounded(need));
        worker->memory_bytes = need;
    }
    char *at = worker->memory;
    worker->shared = at;
    at += shared;
    worker->shared_shadow = (uint8_t *)at;
    at += rounded(shared / 8);
    worker->races = (struct race_entry *)(void *)at;
    worker->race_words = worker->shared_bytes / 4 + 1;
    at += races;
    worker->spans = (struct span *)(void *)at;
    at += rounded(kernel->slots * sizeof(struct span) + 1);
    memset(worker->spans, 0, kernel->slots * sizeof(struct span));
    worker->local_stride = rounded(kernel->local_bytes);
    for (unsigned w = 0; w < worker->warp_count; w++) {
        struct warp *one = &worker->warps[w];
        one->file = at;
        at += file;
        one->marks = (uint32_t *)(void *)at;
        at += marks;
        one->local = at;
        at += local;
        one->local_shadow = (uint8_t *)at;
        at += rounded(local / 8 + 8);
    }
}

#define FILL(T)                                                                                    \
    do {                                                                                           \
        T *lanes = (T *)(void *)(warp->file + at);                                                 \
        for (int lane = 0; lane < LANES; lane++)                                                   \
            lanes[lane] = (T)value;                                                                \
    } while (0)

static void fill(struct warp *warp, uint32_t at, uint32_t bytes, uint64_t value)
{
    if (bytes == 2)
        FILL(uint16_t);
    else if (bytes == 4)
        FILL(uint32_t);
    else
        FILL(uint64_t);
}

static void constants_write(struct warp *warp)
{
    const struct ptx_kernel *kernel = warp->worker->kernel;

    for (size_t i = 0; i < kernel->constant_count; i++)
        fill(warp, kernel->constants[i].at, kernel->constants[i].bytes, kernel->constants[i].value);
}

static uint32_t special_value(const struct warp *warp, enum special special, uint32_t lane)
{
    const struct worker *worker = warp->worker;
    const struct ptx_grid *grid = worker->grid;
    uint32_t thread = warp->number * LANES + lane;
    uint32_t bit = (uint32_t)1 << lane;

    switch (special) {
    case SPECIAL_TID_X:
        return thread % grid->block[0];
    case SPECIAL_TID_Y:
        return thread / grid->block[0] % grid->block[1];
    case SPECIAL_TID_Z:
        return thread / (grid->block[0] * grid->block[1]);
    case SPECIAL_NTID_X:
    case SPECIAL_NTID_Y:
    case SPECIAL_NTID_Z:
        return grid->block[special - SPECIAL_NTID_X];
    case SPECIAL_CTAID_X:
    case SPECIAL_CTAID_Y:
    case SPECIAL_CTAID_Z:
        return worker->block_index[special - SPECIAL_CTAID_X];
    case SPECIAL_NCTAID_X:
    case SPECIAL_NCTAID_Y:
    case SPECIAL_NCTAID_Z:
        return grid->grid[special - SPECIAL_NCTAID_X];
    case SPECIAL_LANEID:
        return lane;
    case SPECIAL_WARPID:
        return warp->number;
    case SPECIAL_NWARPID:
        return worker->warp_count;
    case SPECIAL_LANEMASK_EQ:
        return bit;
    case SPECIAL_LANEMASK_LE:
        return bit | (bit - 1);
    case SPECIAL_LANEMASK_LT:
        return bit - 1;
    case SPECIAL_LANEMASK_GE:
        return ~(bit - 1);
    case SPECIAL_LANEMASK_GT:
        return ~(bit - 1) & ~bit;
    case SPECIAL_DYNAMIC_SHARED:
        return (uint32_t)grid->dynamic_shared_bytes;
    case SPECIAL_TOTAL_SHARED:
        return (uint32_t)worker->shared_bytes;
    default:
        return 0; /* %smid: all blocks run on the first processor */
    }
}

static void specials_write(struct warp *warp)
{
    const struct ptx_kernel *kernel = warp->worker->kernel;

    for (int special = 0; special < SPECIALS; special++) {
        if (kernel->special_at[special] == 0)
            continue;
        uint32_t *values = (uint32_t *)(void *)(warp->file + kernel->special_at[special]);
        for (uint32_t lane = 0; lane < LANES; lane++)
            values[lane] = special_value(warp, (enum special)special, lane);
    }
}

static void warp_begin(struct worker *worker, unsigned number)
{
    struct warp *warp = &worker->warps[number];
    unsigned threads = worker->threads - number * LANES;
    size_t local = worker->local_stride * LANES;

    warp->worker = worker;
    warp->number = number;
    warp->lanes = threads >= LANES ? UINT32_MAX : ((uint32_t)1 << threads) - 1;
    warp->live = warp->active = warp->lanes;
    warp->pc = 0;
    warp->join = UINT32_MAX;
    warp->barrier = warp->together = 0;
    warp->stopped = false;
    warp->instructions = 0;
    warp->warp_epoch = 1;
    memset(warp->marks, 0, worker->kernel->marks * sizeof(uint32_t));
    warp->marks[0] = UINT32_MAX;
    if (local > 0)
        memset(warp->local_shadow, 0, local / 8);
    for (unsigned lane = 0; warp->async != NULL && lane < LANES; lane++)
        warp->async[lane].count = warp->async[lane].group = 0;
    specials_write(warp);
}

static void block_begin(struct worker *worker)
{
    memset(worker->barriers, 0, sizeof(worker->barriers));
    memset(worker->shared_shadow, 0, worker->shared_bytes / 8 + 8);
    if (worker->grid->check_races)
        memset(worker->races, 0, worker->race_words * sizeof(struct race_entry));
    worker->epoch = 1;
    for (unsigned w = 0; w < worker->warp_count; w++)
        warp_begin(worker, w);
}

static bool block_lives(const struct worker *worker)
{
    for (unsigned w = 0; w < worker->warp_count; w++)
        if (worker->warps[w].live != 0)
            return true;
    return false;
}

/* One turn of all warps; false when none could run. */
static bool block_turn(struct worker *worker)
{
    uint64_t endless = worker->grid->endless != 0 ? worker->grid->endless : ENDLESS;
    bool ran = false;

    for (unsigned i = 0; i < worker->warp_count; i++) {
        unsigned w = worker->grid->order == 1 ? worker->warp_count - 1 - i : i;
        struct warp *warp = &worker->warps[w];
        if (warp->stopped)
            continue;
        ran = true;
        warp_run(warp, SLICE);
        if (warp->instructions > endless)
            fault(warp, &worker->kernel->ops[warp->pc], warp->active, PTX_TIMEOUT,
                  "still running after %llu instructions", (unsigned long long)endless);
        if (stopped(warp))
            return true;
    }
    return ran;
}

static void block_run(struct worker *worker)
{
    block_begin(worker);
    while (block_lives(worker) && !stopped(&worker->warps[0])) {
        bool ran = block_turn(worker);
        bool released = barriers_release(worker);
        if (!ran && !released && block_lives(worker) && !stopped(&worker->warps[0]))
            block_stuck(worker);
    }
}

/* The n-th block that is run: which one it is depends on the order asked for. */
static uint64_t block_number(const struct launch *launch, uint64_t n)
{
    if (launch->grid->order == 1)
        return launch->blocks - 1 - n;
    return launch->stride == 0 ? n : (n * launch->stride + launch->grid->order) % launch->blocks;
}

static void worker_begin(struct worker *worker, struct launch *launch)
{
    const struct ptx_grid *grid = launch->grid;

    worker->kernel = launch->kernel;
    worker->launch = launch;
    worker->grid = launch->grid;
    worker->threads = grid->block[0] * grid->block[1] * grid->block[2];
    worker->warp_count = (worker->threads + LANES - 1) / LANES;
    worker->shared_bytes = launch->kernel->static_shared_bytes + grid->dynamic_shared_bytes;
    if (worker->warp_count > worker->warps_room) {
        worker->warps = realloc(worker->warps, worker->warp_count * sizeof(struct warp));
        memset(worker->warps + worker->warps_room, 0,
               (worker->warp_count - worker->warps_room) * sizeof(struct warp));
        worker->warps_room = worker->warp_count;
    }
    worker_fit(worker);
    for (unsigned w = 0; w < worker->warp_count; w++) {
        worker->warps[w].worker = worker;
        worker->warps[w].lane_instructions = 0;
        constants_write(&worker->warps[w]);
    }
}

/* Runs the next block of the launch; false when there is none. */
static bool worker_step(struct worker *worker)
{
    struct launch *launch = worker->launch;
    const unsigned *grid = launch->grid->grid;
    uint64_t n = __atomic_fetch_add(&launch->next, 1, __ATOMIC_RELAXED);

    if (n >= launch->blocks || __atomic_load_n(&launch->end, __ATOMIC_RELAXED) != PTX_DONE)
        return false;
    uint64_t block = block_number(launch, n);
    worker->block_index[0] = (unsigned)(block % grid[0]);
    worker->block_index[1] = (unsigned)(block / grid[0] % grid[1]);
    worker->block_index[2] = (unsigned)(block / grid[0] / grid[1]);
    block_run(worker);
    return true;
}

static void worker_end(struct worker *worker)
{
    uint64_t instructions = 0;

    for (unsigned w = 0; w < worker->warp_count; w++)
        instructions += worker->warps[w].lane_instructions;
    __atomic_fetch_add(&worker->launch->instructions, instructions, __ATOMIC_RELAXED);
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;

    worker_begin(worker, worker->launch);
    while (worker_step(worker))
        ;
    worker_end(worker);
    return NULL;
}

/* A stride that meets every block once: it shares no factor with their number. */
static uint64_t shuffle_stride(uint64_t blocks, uint64_t seed)
{
    uint64_t stride = (seed * 2654435761u) % blocks | 1;

    for (;; stride += 2) {
        uint64_t a = blocks;
        uint64_t b = stride;
        while (b != 0) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return stride % blocks == 0 ? 1 : stride % blocks;
    }
}

static unsigned worker_count(const struct launch *launch)
{
    unsigned count = launch->grid->threads;

    if (count == 0)
        count = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    if (count > WORKERS)
        count = WORKERS;
    return launch->blocks < count ? (unsigned)launch->blocks : count;
}

static uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

enum ptx_end ptx_run(const struct ptx_kernel *kernel, struct ptx_grid *grid)
{
    struct launch launch = {.kernel = kernel, .grid = grid};
    pthread_t threads[WORKERS];
    bool started[WORKERS] = {false};

    launch.blocks = (uint64_t)grid->grid[0] * grid->grid[1] * grid->grid[2];
    if (grid->order > 1 && launch.blocks > 1)
        launch.stride = shuffle_stride(launch.blocks, grid->order);
    unsigned count = worker_count(&launch);
    for (unsigned i = 0; i < count; i++)
        workers[i].launch = &launch;
    worker_begin(&workers[0], &launch);
    uint64_t until = clock_ns() + ALONE_NS;
    bool more = true;
    while (more && (count == 1 || clock_ns() < until))
        more = worker_step(&workers[0]);
    for (unsigned i = 1; more && i < count; i++)
        started[i] = pthread_create(&threads[i], NULL, worker_main, &workers[i]) == 0;
    while (more)
        more = worker_step(&workers[0]);
    worker_end(&workers[0]);
    for (unsigned i = 1; i < count; i++)
        if (started[i])
            pthread_join(threads[i], NULL);
    grid->instructions = launch.instructions;
    return (enum ptx_end)launch.end;
}
