/* An engine and a device whose every step a test decides.  Defines all of engine.h that batch/
 * uses, so that the real one is not linked.
 *
 * The model: y[n, 4] = x[n, 4] + 1, float.  An x of BAD_VALUE makes the run fail as a bad index
 * would.
 */
#ifndef TESTS_BATCH_FAKE_ENGINE_H
#define TESTS_BATCH_FAKE_ENGINE_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "batch/batcher.h"

enum { FAKE_WIDTH = 4, FAKE_PLANS = 64, FAKE_RUNS = 256, FAKE_PAGE = 4096 };
#define BAD_VALUE (-1000.0f)

struct plan {
    struct network *network;
    struct shape in, out;
    int references;
};

struct network {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct network_port in_port, out_port;
    struct plan plan[FAKE_PLANS];
    size_t plans;
    /* set by the test */
    uint64_t base_bytes, row_bytes; /* peak = base + row · rows */
    uint64_t host_row_bytes;        /* for steps on the host, a row */
    uint64_t segment_bytes;         /* asked for in the middle of a run; 0: nothing */
    uint64_t placed_bytes;          /* y has no shape before the run, then so many bytes; or 0 */
    int64_t predicted_us;
    bool closed;             /* the gate: runs wait in front of it */
    unsigned no_memory_runs; /* so many runs fail with NO_MEMORY */
    bool passes;             /* y = x, where both are one buffer */
    bool takes_foreign;      /* memory of others may be bound */
    bool is_lost;            /* every run ends in DEVICE_LOST */
    enum status plan_status;
    /* seen */
    size_t runs;
    int64_t run_rows[FAKE_RUNS];
    size_t waiting;                 /* runs in front of the gate */
    const void *last_in, *last_out; /* what the last run was given */
};

static inline void fake_network_init(struct network *network)
{
    *network = (struct network){
        .in_port = {.name = "x",
                    .dtype = DTYPE_FLOAT,
                    .shape = {.rank = 2, .dims = {-1, FAKE_WIDTH}}},
        .out_port = {.name = "y",
                     .dtype = DTYPE_FLOAT,
                     .shape = {.rank = 2, .dims = {-1, FAKE_WIDTH}}},
        .predicted_us = -1,
        .row_bytes = FAKE_PAGE,
    };
    pthread_mutex_init(&network->lock, NULL);
    pthread_cond_init(&network->changed, NULL);
}

struct ledger_account *network_account(const struct network *network)
{
    (void)network;
    return NULL; /* nobody's statistics */
}

static inline void fake_gate(struct network *network, bool closed)
{
    pthread_mutex_lock(&network->lock);
    network->closed = closed;
    pthread_cond_broadcast(&network->changed);
    pthread_mutex_unlock(&network->lock);
}

/* Blocks until `count` runs stand in front of the gate. */
static inline void fake_await_runs(struct network *network, size_t count)
{
    pthread_mutex_lock(&network->lock);
    while (network->waiting < count)
        pthread_cond_wait(&network->changed, &network->lock);
    pthread_mutex_unlock(&network->lock);
}

size_t network_inputs(const struct network *network, const struct network_port **out_ports)
{
    *out_ports = &network->in_port;
    return 1;
}

size_t network_outputs(const struct network *network, const struct network_port **out_ports)
{
    *out_ports = &network->out_port;
    return 1;
}

static inline struct plan *find_locked(struct network *network, const struct shape *shapes)
{
    for (size_t i = 0; i < network->plans; i++)
        if (shape_is_equal(&network->plan[i].in, shapes)) {
            network->plan[i].references++;
            return &network->plan[i];
        }
    return NULL;
}

struct plan *network_find_plan(struct network *network, const struct shape *input_shapes)
{
    struct plan *plan;

    pthread_mutex_lock(&network->lock);
    plan = find_locked(network, input_shapes);
    pthread_mutex_unlock(&network->lock);
    return plan;
}

enum status network_plan(struct network *network, const struct shape *input_shapes,
                         struct plan **out_plan, struct error *err)
{
    enum status status = network->plan_status;
    struct plan *plan;

    if (status != STATUS_OK)
        return error_set(err, status, "node 'fake': cannot be planned");
    pthread_mutex_lock(&network->lock);
    plan = find_locked(network, input_shapes);
    if (plan == NULL) {
        plan = &network->plan[network->plans++];
        *plan = (struct plan){
            .network = network, .in = input_shapes[0], .out = input_shapes[0], .references = 1};
        if (network->placed_bytes > 0)
            plan->out.dims[1] = -1;
    }
    pthread_mutex_unlock(&network->lock);
    *out_plan = plan;
    return STATUS_OK;
}

void plan_unref(struct plan *plan)
{
    pthread_mutex_lock(&plan->network->lock);
    plan->references--;
    pthread_mutex_unlock(&plan->network->lock);
}

void plan_read(const struct plan *plan, struct plan_facts *out_facts)
{
    struct network *network = plan->network;

    pthread_mutex_lock(&network->lock);
    *out_facts = (struct plan_facts){
        .peak_bytes = network->base_bytes + network->row_bytes * (uint64_t)plan->in.dims[0],
        .host_bytes = network->host_row_bytes * (uint64_t)plan->in.dims[0],
        .exact = network->segment_bytes == 0,
        .batch_exact = true,
        .predicted_us = network->predicted_us,
    };
    pthread_mutex_unlock(&network->lock);
}

uint64_t plan_run_bytes(const struct plan *plan, const struct run_buffer *out)
{
    struct plan_facts facts;

    (void)out;
    plan_read(plan, &facts);
    return facts.peak_bytes;
}

const struct shape *plan_output_shapes(const struct plan *plan, const bool **out_bound)
{
    *out_bound = NULL;
    return &plan->out;
}

size_t plan_passed_input(const struct plan *plan, size_t output)
{
    (void)output;
    return plan->network->passes ? 0 : SIZE_MAX;
}

bool plan_takes_foreign_input(const struct plan *plan, size_t input)
{
    (void)input;
    return plan->network->takes_foreign;
}

bool plan_takes_foreign_output(const struct plan *plan, size_t output)
{
    (void)output;
    return plan->network->takes_foreign;
}

static inline enum status fake_compute(struct plan *plan, struct run *run, struct error *err)
{
    const float *in = run->in[0].data;
    float *out = run->out[0].data;
    size_t count = (size_t)(plan->in.dims[0] * FAKE_WIDTH);

    pthread_mutex_lock(&plan->network->lock);
    plan->network->last_in = in;
    plan->network->last_out = out;
    pthread_mutex_unlock(&plan->network->lock);
    for (size_t i = 0; i < count; i++)
        if (in[i] <= BAD_VALUE)
            return error_set(err, STATUS_INVALID, "node 'fake': index is out of range");
    for (size_t i = 0; out != NULL && out != in && i < count; i++)
        out[i] = in[i] + 1.0f;
    return STATUS_OK;
}

static inline enum status fake_place(const struct network *network, struct run *run)
{
    run->out_shapes[0].dims[1] = (int64_t)(network->placed_bytes / sizeof(float));
    run->out[0].data =
        run->place(run->place_arg, 0, &run->out_shapes[0], (size_t)network->placed_bytes);
    run->out[0].bytes = (size_t)network->placed_bytes;
    return run->out[0].data == NULL ? STATUS_NO_MEMORY : STATUS_OK;
}

enum status plan_run(struct plan *plan, struct run *run, struct error *err)
{
    struct network *network = plan->network;
    enum status status = STATUS_OK;
    struct plan_facts facts;
    void *base;

    plan_read(plan, &facts);
    if (lane_arena_begin(run->arena, facts.peak_bytes, &base) != STATUS_OK)
        return STATUS_NO_MEMORY;
    memset(base, 0x5a, facts.peak_bytes);
    if (run->lane->host_bytes < facts.host_bytes) /* was to be taken when the batch was admitted */
        return STATUS_INTERNAL;
    pthread_mutex_lock(&network->lock);
    network->waiting++;
    pthread_cond_broadcast(&network->changed);
    while (network->closed)
        pthread_cond_wait(&network->changed, &network->lock);
    network->waiting--;
    if (network->runs < FAKE_RUNS)
        network->run_rows[network->runs] = plan->in.dims[0];
    network->runs++;
    if (network->no_memory_runs > 0) {
        network->no_memory_runs--;
        status = STATUS_NO_MEMORY;
    }
    if (network->is_lost)
        status = STATUS_DEVICE_LOST;
    pthread_mutex_unlock(&network->lock);
    if (run->progress != NULL)
        atomic_fetch_add(run->progress, 1);
    if (status == STATUS_OK && network->segment_bytes > 0 && run->admit != NULL)
        status = run->admit(run->admit_arg, facts.peak_bytes + network->segment_bytes);
    if (status == STATUS_OK && network->placed_bytes > 0)
        status = fake_place(network, run);
    if (status == STATUS_OK && run->cancelled != NULL && atomic_load(run->cancelled))
        status = STATUS_CANCELLED;
    if (status == STATUS_OK)
        status = fake_compute(plan, run, err);
    if (status == STATUS_OK && run->finish != NULL)
        status = run->finish(run->finish_arg);
    lane_arena_end(run->arena);
    return status;
}

/* ---- the device ---- */

static inline enum status fake_reserve(struct mem_source *source, size_t bytes, void **out_base)
{
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)source;
    if (base == MAP_FAILED)
        return STATUS_NO_MEMORY;
    *out_base = base;
    return STATUS_OK;
}

static inline void fake_release(struct mem_source *source, void *base, size_t bytes)
{
    (void)source;
    (void)munmap(base, bytes);
}

static inline enum status fake_commit(struct mem_source *source, void *base, size_t bytes)
{
    (void)source;
    return mprotect(base, bytes, PROT_READ | PROT_WRITE) == 0 ? STATUS_OK : STATUS_NO_MEMORY;
}

static inline void fake_decommit(struct mem_source *source, void *base, size_t bytes)
{
    (void)source;
    (void)madvise(base, bytes, MADV_DONTNEED);
    (void)mprotect(base, bytes, PROT_NONE);
}

static inline enum status fake_lane_open(struct device *device, unsigned index,
                                         struct device_lane **out_lane)
{
    struct device_lane *lane = calloc(1, sizeof(*lane));

    if (lane == NULL)
        return STATUS_NO_MEMORY;
    lane->device = device;
    lane->index = index;
    *out_lane = lane;
    return STATUS_OK;
}

static inline void fake_lane_close(struct device_lane *lane)
{
    free(lane);
}

static inline void fake_lane_enter(struct device_lane *lane)
{
    (void)lane;
}

static inline enum status fake_lane_wait(struct device_lane *lane)
{
    (void)lane;
    return STATUS_OK;
}

static inline enum status fake_copy(struct device_lane *lane, void *to, const void *from,
                                    size_t bytes)
{
    (void)lane;
    memcpy(to, from, bytes);
    return STATUS_OK;
}

static const struct mem_source_ops fake_memory_ops = {.reserve = fake_reserve,
                                                      .release = fake_release,
                                                      .commit = fake_commit,
                                                      .decommit = fake_decommit};
static const struct device_ops fake_host_ops = {.name = "fake",
                                                .lane_open = fake_lane_open,
                                                .lane_close = fake_lane_close,
                                                .lane_enter = fake_lane_enter,
                                                .lane_wait = fake_lane_wait,
                                                .copy_in = fake_copy,
                                                .copy_out = fake_copy,
                                                .host_memory = true};
static const struct device_ops fake_remote_ops = {.name = "fake, memory of its own",
                                                  .lane_open = fake_lane_open,
                                                  .lane_close = fake_lane_close,
                                                  .lane_enter = fake_lane_enter,
                                                  .lane_wait = fake_lane_wait,
                                                  .copy_in = fake_copy,
                                                  .copy_out = fake_copy,
                                                  .host_memory = false};

#endif
