/* A repository in a temporary folder on the CPU device, and a way to wait for what happens in it.
 */
#ifndef TESTS_MODELS_BENCH_REPOSITORY_H
#define TESTS_MODELS_BENCH_REPOSITORY_H

#include "onnx/writer.h"
#include "support/unit.h"

#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/cpu/cpu.h"
#include "models/repository.h"

enum { FLOAT = 1, INT64 = 7, STRING = 8, BUDGET = 256 << 20 };
enum { BATCH = -2 }; /* an open first dimension, for put_port() */

struct bench {
    char path[64];
    struct device *device;
    struct ledger *ledger;
    struct host_pool *pool;
    struct batcher *batcher;
    struct repository *repository;
    struct repository_config config;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    unsigned moves; /* changes seen */
    /* the last command's outcome */
    bool done;
    enum status status;
    struct error error;
    uint64_t freed_bytes;
};

static struct bench bench;

/* ---- files ---- */

static inline void make_folder(const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%.300s", bench.path, name);
    if (mkdir(path, 0700) != 0 && access(path, F_OK) != 0)
        fail_msg("%s cannot be made", path);
}

static inline void write_file(const char *name, const void *bytes, size_t size)
{
    char path[512], partial[512];
    FILE *to;

    /* Whole or not at all, and never the same inode twice. */
    (void)snprintf(path, sizeof(path), "%s/%.300s", bench.path, name);
    (void)snprintf(partial, sizeof(partial), "%s/.partial", bench.path);
    to = fopen(partial, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(bytes, 1, size, to), size);
    assert_int_equal(fclose(to), 0);
    assert_int_equal(rename(partial, path), 0);
}

static inline void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

static inline void write_model(const char *name, int version, const struct message *graph)
{
    struct message file = model(17, graph);
    char path[512];

    make_folder(name);
    (void)snprintf(path, sizeof(path), "%s/%d", name, version);
    make_folder(path);
    (void)snprintf(path, sizeof(path), "%s/%d/model.onnx", name, version);
    write_file(path, file.bytes, file.size);
}

static inline int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

static inline void remove_folder(const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%.300s", bench.path, name);
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- models ---- */

static inline void put_scalar(struct message *graph, const char *name, float value)
{
    put_tensor(graph, GRAPH_TENSOR, name, FLOAT, 0, NULL, &value, sizeof(value));
}

static inline void put_floats(struct message *graph, unsigned field, const char *name,
                              int64_t first, int64_t width)
{
    put_port(graph, field, name, FLOAT, 2, (int64_t[]){first, width});
}

/* y = x + value, row by row. */
static inline struct message adder(float value)
{
    struct message graph = {0};

    put_text(&graph, GRAPH_NAME, "g");
    put_scalar(&graph, "c", value);
    put_node(&graph, "Add", "x c", "y");
    put_floats(&graph, GRAPH_INPUT, "x", BATCH, 4);
    put_floats(&graph, GRAPH_OUTPUT, "y", BATCH, 4);
    return graph;
}

/* y = x · W with 64 x 4 weights, so that the model holds device memory; `factor` tells the weights
 * of one from those of another. */
static inline struct message multiplier_by(float factor)
{
    struct message graph = {0};
    float weights[64 * 4];

    for (size_t i = 0; i < 64 * 4; i++)
        weights[i] = factor * ((float)(i % 7) - 3.0f);
    put_text(&graph, GRAPH_NAME, "g");
    put_tensor(&graph, GRAPH_TENSOR, "w", FLOAT, 2, (int64_t[]){64, 4}, weights, sizeof(weights));
    put_node(&graph, "MatMul", "x w", "y");
    put_floats(&graph, GRAPH_INPUT, "x", BATCH, 64);
    put_floats(&graph, GRAPH_OUTPUT, "y", BATCH, 4);
    return graph;
}

static inline struct message multiplier(void)
{
    return multiplier_by(1);
}

/* Tanh(x · V) · W: between the products lies an activation, whatever is fused. */
static inline void write_two_steps(const char *name)
{
    enum { WIDE = 64, INNER = 8 };
    static float weights[WIDE * INNER];
    struct message graph = {0};

    for (size_t i = 0; i < WIDE * INNER; i++)
        weights[i] = (float)(i % 5);
    put_text(&graph, GRAPH_NAME, "g");
    put_tensor(&graph, GRAPH_TENSOR, "v", FLOAT, 2, (int64_t[]){WIDE, INNER}, weights,
               sizeof(weights));
    put_tensor(&graph, GRAPH_TENSOR, "w", FLOAT, 2, (int64_t[]){INNER, 4}, weights,
               INNER * 4 * sizeof(weights[0]));
    put_node(&graph, "MatMul", "x v", "g");
    put_node(&graph, "Tanh", "g", "h");
    put_node(&graph, "MatMul", "h w", "y");
    put_floats(&graph, GRAPH_INPUT, "x", BATCH, WIDE);
    put_floats(&graph, GRAPH_OUTPUT, "y", BATCH, 4);
    write_model(name, 1, &graph);
}

/* y = x − the sum of each column, in a form whose rows are not followed through the graph: running
 * it shows that a row's answer depends on the others. */
static inline struct message mixer(void)
{
    struct message graph = {0}, sum = node("Einsum", "x", "m"),
                   equation = attr_text("equation", "ij->j");

    put_text(&graph, GRAPH_NAME, "g");
    put(&sum, NODE_ATTR, &equation);
    put(&graph, GRAPH_NODE, &sum);
    put_node(&graph, "Sub", "x m", "y");
    put_floats(&graph, GRAPH_INPUT, "x", BATCH, 4);
    put_floats(&graph, GRAPH_OUTPUT, "y", BATCH, 4);
    return graph;
}

/* y = x − what the largest of each column has over a million: a row's answer depends on the others,
 * and no rows that anybody would try show it. */
static inline struct message quiet_mixer(void)
{
    struct message graph = {0}, reduce = node("ReduceMax", "x", "m"),
                   axes = attr_ints("axes", 1, (int64_t[]){0});

    put_text(&graph, GRAPH_NAME, "g");
    put_scalar(&graph, "million", 1e6F);
    put(&reduce, NODE_ATTR, &axes);
    put(&graph, GRAPH_NODE, &reduce);
    put_node(&graph, "Sub", "m million", "over");
    put_node(&graph, "Relu", "over", "excess");
    put_node(&graph, "Sub", "x excess", "y");
    put_floats(&graph, GRAPH_INPUT, "x", BATCH, 4);
    put_floats(&graph, GRAPH_OUTPUT, "y", BATCH, 4);
    return graph;
}

/* y = x transposed: the batch ends up behind. */
static inline struct message turner(void)
{
    struct message graph = {0};

    put_text(&graph, GRAPH_NAME, "g");
    put_node(&graph, "Transpose", "x", "y");
    put_floats(&graph, GRAPH_INPUT, "x", BATCH, 4);
    put_port(&graph, GRAPH_OUTPUT, "y", FLOAT, 2, (int64_t[]){BATCH, BATCH});
    return graph;
}

/* ---- the bench ---- */

static inline void on_change(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&bench.lock);
    bench.moves++;
    pthread_cond_broadcast(&bench.moved);
    pthread_mutex_unlock(&bench.lock);
}

static inline int set_up_bench(void **state)
{
    struct device_config device = {.name = "cpu", .lanes = 1, .threads = 1, .precision = "strict"};
    struct error err;
    static bool registered;

    (void)state;
    bench = (struct bench){.path = "/tmp/sluice-models-XXXXXX"};
    pthread_mutex_init(&bench.lock, NULL);
    pthread_cond_init(&bench.moved, NULL);
    assert_non_null(mkdtemp(bench.path));
    if (!registered)
        device_register(&device_cpu_ops);
    registered = true;
    assert_ok(device_open(&device, &bench.device, &err));
    assert_ok(ledger_create(BUDGET, &bench.ledger));
    assert_ok(host_pool_create(64 << 20, &bench.pool));
    assert_ok(batcher_create(
        &(struct batcher_config){
            .device = bench.device, .ledger = bench.ledger, .host_pool = bench.pool, .lanes = 1},
        &bench.batcher, &err));
    bench.config = (struct repository_config){.path = bench.path,
                                              .control = CONTROL_EXPLICIT,
                                              .device = bench.device,
                                              .ledger = bench.ledger,
                                              .batcher = bench.batcher};
    return 0;
}

/* Starts the repository; returns when the loads of the start are over. */
static inline void open_repository(void)
{
    struct error err;

    assert_ok(repository_create(&bench.config, &bench.repository, &err));
    repository_on_change(bench.repository, on_change, NULL);
    pthread_mutex_lock(&bench.lock);
    /* It settles, then says so: to us, unless it had settled before. */
    while (!repository_is_settled(bench.repository))
        pthread_cond_wait(&bench.moved, &bench.lock);
    pthread_mutex_unlock(&bench.lock);
}

static inline void load_everything(void)
{
    static const char *const all[] = {"*"};

    bench.config.load = (struct text_list){.count = 1, .items = all};
    open_repository();
}

static inline uint64_t weight_bytes(void)
{
    struct ledger_stats stats;

    ledger_read(bench.ledger, &stats);
    return stats.kind_bytes[MEM_WEIGHTS];
}

static inline int tear_down_bench(void **state)
{
    struct host_pool_stats host;
    struct ledger_stats stats;

    (void)state;
    repository_destroy(bench.repository);
    ledger_read(bench.ledger, &stats);
    assert_int_equal(stats.kind_bytes[MEM_WEIGHTS], 0);
    assert_int_equal(stats.planned_bytes, 0);
    host_pool_read(bench.pool, &host);
    assert_int_equal(host.in_use_bytes, 0);
    batcher_destroy(bench.batcher);
    device_close(bench.device);
    ledger_destroy(bench.ledger);
    host_pool_destroy(bench.pool);
    remove_folder("");
    return 0;
}

/* ---- waiting ---- */

static inline void on_command_done(void *arg, enum status status, const struct error *err,
                                   uint64_t freed_bytes)
{
    (void)arg;
    pthread_mutex_lock(&bench.lock);
    bench.status = status;
    bench.freed_bytes = freed_bytes;
    if (err != NULL)
        bench.error = *err;
    bench.done = true;
    pthread_cond_broadcast(&bench.moved);
    pthread_mutex_unlock(&bench.lock);
}

static inline enum status await_command(void)
{
    enum status status;

    pthread_mutex_lock(&bench.lock);
    while (!bench.done)
        pthread_cond_wait(&bench.moved, &bench.lock);
    bench.done = false;
    status = bench.status;
    pthread_mutex_unlock(&bench.lock);
    return status;
}

static inline enum status load(const char *name, const char *json)
{
    repository_load(bench.repository, name, json, on_command_done, NULL);
    return await_command();
}

static inline enum status unload(const char *name)
{
    repository_unload(bench.repository, name, on_command_done, NULL);
    return await_command();
}

struct search {
    const char *name, *version;
    bool found;
    struct model_info info;
};

static inline void search_row(void *arg, const struct model_info *info, struct model *found)
{
    struct search *search = arg;

    (void)found;
    if (strcmp(info->name, search->name) == 0 && strcmp(info->version, search->version) == 0) {
        search->found = true;
        search->info = *info;
    }
}

static inline bool find_row(const char *name, const char *version, struct model_info *out_info)
{
    struct search search = {.name = name, .version = version};

    repository_for_each(bench.repository, search_row, &search);
    if (search.found && out_info != NULL)
        *out_info = search.info;
    return search.found;
}

static inline enum model_state state_of(const char *name, const char *version)
{
    struct model_info info;

    return find_row(name, version, &info) ? info.state : MODEL_UNKNOWN;
}

/* Blocks until the version is in that state. */
static inline void await_state(const char *name, const char *version, enum model_state state)
{
    pthread_mutex_lock(&bench.lock);
    for (;;) {
        unsigned moves = bench.moves;
        bool reached;

        pthread_mutex_unlock(&bench.lock);
        reached = state_of(name, version) == state;
        pthread_mutex_lock(&bench.lock);
        if (reached)
            break;
        while (bench.moves == moves)
            pthread_cond_wait(&bench.moved, &bench.lock);
    }
    pthread_mutex_unlock(&bench.lock);
}

/* ---- asking ---- */

struct ask {
    struct request request;
    struct request_input in[4];
    struct request_output out[4];
    bool answered; /* under bench.lock */
};

static inline void on_answer(struct request *request)
{
    struct ask *ask = CONTAINER_OF(request, struct ask, request);

    /* The asker may leave with `ask` as soon as the lock is free. */
    pthread_mutex_lock(&bench.lock);
    ask->answered = true;
    pthread_cond_broadcast(&bench.moved);
    pthread_mutex_unlock(&bench.lock);
}

static inline struct request_input floats(const float *data, int64_t rows, int64_t width)
{
    return (struct request_input){.shape = {.rank = 2, .dims = {rows, width}},
                                  .data = data,
                                  .bytes = (size_t)(rows * width) * sizeof(float)};
}

/* Sends ask->in to the newest version; the answer is in ask->out until ask_end(). */
static inline enum status ask_model(struct ask *ask, const char *name)
{
    const struct model_port *ports;
    struct model *found;
    struct error err;
    enum status status = repository_find(bench.repository, name, "", &found, &err);

    ask->request.error = err;
    if (status != STATUS_OK)
        return status;
    arena_init(&ask->request.arena);
    ask->answered = false;
    ask->request.inputs = model_inputs(found, &ports);
    ask->request.in = ask->in;
    ask->request.outputs = model_outputs(found, &ports);
    ask->request.out = ask->out;
    for (size_t i = 0; i < ask->request.outputs; i++)
        ask->out[i].wanted = true;
    ask->request.deadline_us = CLOCK_NEVER;
    ask->request.arrived_us = clock_now_us();
    ask->request.done = on_answer;
    status = model_check_request(found, &ask->request, &ask->request.error);
    if (status == STATUS_OK) {
        batcher_submit(bench.batcher, model_queue(found), &ask->request);
        pthread_mutex_lock(&bench.lock);
        while (!ask->answered)
            pthread_cond_wait(&bench.moved, &bench.lock);
        pthread_mutex_unlock(&bench.lock);
        status = ask->request.status;
    }
    model_unref(found);
    return status;
}

static inline void ask_end(struct ask *ask)
{
    request_release(&ask->request);
    arena_deinit(&ask->request.arena);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_bench, tear_down_bench)

#endif
