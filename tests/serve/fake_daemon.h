/* What stands below serve/, faked: a repository of echo models and a batcher that answers at once,
 * on a thread of its own, or when told.  Definitions, not declarations: include once in a program,
 * which then runs the real server on them.
 *
 *   ident  FP32 [-1,-1] -> the same, max_batch_size 64      ident_int64, ident_bytes: likewise
 *   held   as ident, answered only when fake_release() is called (or cancelled: at batcher_wake)
 *   slow   as ident, answered by a worker thread after fake.slow_us
 */
#ifndef TESTS_SERVE_FAKE_DAEMON_H
#define TESTS_SERVE_FAKE_DAEMON_H

#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "models/profiling.h"
#include "proto/model_config.pb-c.h"
#include "serve/server.h"

struct model {
    const char *name;
    struct model_port in, out;
    bool is_held, is_slow;
    int64_t keep_us; /* what the last request said */
    struct model_stats stats;
    Inference__ModelConfig config;
};

struct repository {
    void (*changed)(void *arg);
    void *changed_arg;
};
struct batcher {
    int unused;
};
struct warden {
    int unused;
};

enum { FAKE_MODELS = 6 };

static struct fake {
    struct repository repository;
    struct batcher batcher;
    struct warden warden;
    struct host_pool *pool;
    struct ledger *ledger; /* real, and empty */
    struct event_base *base;
    struct server *server;
    struct model models[FAKE_MODELS];
    pthread_mutex_t lock;
    struct request *held[256];
    size_t held_count;
    useconds_t slow_us;
    atomic_bool not_ready;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .slow_us = 1000};

/* ---- repository ---- */

static void fake_model(struct model *model, const char *name, enum dtype dtype)
{
    model->name = name;
    model->in = (struct model_port){.name = "INPUT0", .dtype = dtype, .shape = {2, {-1, -1}}};
    model->out = model->in;
    model->out.name = "OUTPUT0";
    inference__model_config__init(&model->config);
    model->config.name = (char *)(uintptr_t)name;
    model->config.max_batch_size = 64;
    histogram_init(&model->stats.request_seconds, 1e-5);
    histogram_init(&model->stats.queue_seconds, 1e-5);
    histogram_init(&model->stats.compute_seconds, 1e-5);
    histogram_init(&model->stats.batch_size, 1);
}

static inline void fake_init(uint64_t host_limit)
{
    fake_model(&fake.models[0], "ident", DTYPE_FLOAT);
    fake_model(&fake.models[1], "ident_int64", DTYPE_INT64);
    fake_model(&fake.models[2], "ident_bytes", DTYPE_STRING);
    fake_model(&fake.models[3], "held", DTYPE_FLOAT);
    fake_model(&fake.models[4], "slow", DTYPE_FLOAT);
    fake_model(&fake.models[5], "ident_bool", DTYPE_BOOL);
    fake.models[3].is_held = true;
    fake.models[4].is_slow = true;
    if (host_pool_create(host_limit, &fake.pool) != STATUS_OK ||
        ledger_create(1 << 20, &fake.ledger) != STATUS_OK)
        abort();
}

enum status repository_find(struct repository *repository, const char *name, const char *version,
                            struct model **out_model, struct error *err)
{
    (void)repository;
    for (size_t i = 0; i < FAKE_MODELS; i++) {
        if (strcmp(fake.models[i].name, name) != 0)
            continue;
        if (version[0] != '\0' && strcmp(version, "1") != 0)
            return error_set(err, STATUS_NOT_FOUND,
                             "Request for unknown model: '%s' version %s is not found", name,
                             version);
        *out_model = &fake.models[i];
        return STATUS_OK;
    }
    return error_set(err, STATUS_NOT_FOUND, "Request for unknown model: '%s' is not found", name);
}

enum status repository_is_model_ready(struct repository *repository, const char *name,
                                      const char *version, bool *out_ready, struct error *err)
{
    struct model *model;

    TRY(repository_find(repository, name, version, &model, err));
    *out_ready = !fake.not_ready;
    return STATUS_OK;
}

struct load_counts repository_load_counts(struct repository *repository)
{
    (void)repository;
    return (struct load_counts){.ok = 3, .failed = 1};
}

bool repository_is_settled(struct repository *repository)
{
    (void)repository;
    return true;
}

bool repository_is_ready(struct repository *repository, bool strict)
{
    (void)repository, (void)strict;
    return !fake.not_ready;
}

void repository_on_change(struct repository *repository, void (*changed)(void *arg), void *arg)
{
    repository->changed = changed;
    repository->changed_arg = arg;
}

void repository_for_each(struct repository *repository, repository_each_fn each, void *arg)
{
    (void)repository;
    for (size_t i = 0; i < FAKE_MODELS; i++) {
        struct model_info info = {.version = "1", .state = MODEL_READY, .resident_bytes = 4096};

        (void)snprintf(info.name, sizeof(info.name), "%s", fake.models[i].name);
        each(arg, &info, &fake.models[i]);
    }
}

void repository_load(struct repository *repository, const char *name, const char *config_json,
                     repository_done_fn done, void *arg)
{
    struct model *model;
    struct error err = {0};
    enum status status = repository_find(repository, name, "", &model, &err);

    (void)config_json;
    done(arg, status, &err, 0);
}

void repository_unload(struct repository *repository, const char *name, repository_done_fn done,
                       void *arg)
{
    struct model *model;
    struct error err = {0};
    enum status status = repository_find(repository, name, "", &model, &err);

    done(arg, status, &err, 4096);
}

/* Nothing of the fake's ever leaves. */
static inline void fake_move(struct repository *repository, const char *name,
                             residency_done_fn done, void *arg)
{
    const struct residency_answer answer = {.models = 1, .freed_bytes = 4096};
    struct model *model;
    struct error err = {0};

    if (name[0] != '\0' && repository_find(repository, name, "", &model, &err) != STATUS_OK)
        done(arg, &answer, &err);
    else
        done(arg, &answer, NULL);
}

void repository_sleep(struct repository *repository, const char *name, enum sleep_level level,
                      residency_done_fn done, void *arg)
{
    (void)level;
    fake_move(repository, name, done, arg);
}

void repository_wake(struct repository *repository, const char *name, residency_done_fn done,
                     void *arg)
{
    fake_move(repository, name, done, arg);
}

void repository_make_room(struct repository *repository, const struct room_request *request,
                          room_done_fn done, void *arg)
{
    const struct room_answer answer = {.freed_bytes = request->bytes,
                                       .freed = {[ROOM_WEIGHTS] = request->bytes}};

    (void)repository;
    done(arg, &answer, NULL);
}

const char *residency_name(enum residency residency)
{
    (void)residency;
    return "resident";
}

const char *room_step_name(enum room_step step)
{
    static const char *const names[] = {"activations", "plans", "weights", "host"};

    return names[step];
}

void model_keep_alive(struct model *model, int64_t keep_us)
{
    model->keep_us = keep_us;
}

bool model_await_rest(struct model *model, int64_t until_us, enum residency *out_where)
{
    (void)model;
    (void)until_us;
    *out_where = RESIDENCY_DEVICE;
    return true;
}

void model_read_residency(struct model *model, struct model_residency *out_residency)
{
    (void)model;
    *out_residency = (struct model_residency){.where = RESIDENCY_DEVICE};
}

struct model *model_ref(struct model *model)
{
    return model;
}
void model_unref(struct model *model)
{
    (void)model;
}
struct model *model_that_answered(struct model *model, const struct request *request,
                                  int64_t keep_us)
{
    (void)request;
    (void)keep_us;
    return model;
}

const char *model_name(const struct model *model)
{
    return model->name;
}
const char *model_version(const struct model *model)
{
    (void)model;
    return "1";
}
const char *model_platform(const struct model *model)
{
    (void)model;
    return "onnx_onnxv1";
}
size_t model_inputs(const struct model *model, const struct model_port **out_ports)
{
    *out_ports = &model->in;
    return 1;
}
size_t model_outputs(const struct model *model, const struct model_port **out_ports)
{
    *out_ports = &model->out;
    return 1;
}
int64_t model_max_batch_size(const struct model *model)
{
    (void)model;
    return 64;
}
struct model_queue *model_queue(const struct model *model)
{
    return (struct model_queue *)(uintptr_t)model;
}
struct network *model_network(const struct model *model)
{
    (void)model;
    return NULL;
}
const Inference__ModelConfig *model_config(const struct model *model)
{
    return &model->config;
}
const char *model_state_name(enum model_state state)
{
    return state == MODEL_READY ? "READY" : "UNAVAILABLE";
}

enum status model_check_request(const struct model *model, struct request *request,
                                struct error *err)
{
    const struct request_input *in = &request->in[0];
    struct tensor tensor = {.dtype = model->in.dtype, .shape = in->shape};
    int64_t count;

    if (in->shape.rank != 2 || shape_elements(&in->shape, &count) != STATUS_OK)
        return error_set(err, STATUS_INVALID, "unexpected shape for input 'INPUT0'");
    if (in->shape.dims[0] < 1 || in->shape.dims[0] > 64)
        return error_set(err, STATUS_INVALID, "inference request batch-size must be <= 64 for '%s'",
                         model->name);
    if (in->bytes != tensor_bytes(&tensor))
        return error_set(err, STATUS_INVALID,
                         "input byte size mismatch for input 'INPUT0'. Expected %zu, got %zu",
                         tensor_bytes(&tensor), in->bytes);
    request->rows = in->shape.dims[0];
    return STATUS_OK;
}

/* ---- batcher ---- */

static void fake_answer(struct request *request)
{
    request->out[0].shape = request->in[0].shape;
    request->out[0].data = request->in[0].data;
    request->out[0].bytes = request->in[0].bytes;
    request->done(request);
}

/* Answers what the model `held` holds. */
static inline void fake_release(void)
{
    (void)pthread_mutex_lock(&fake.lock);
    while (fake.held_count > 0)
        fake_answer(fake.held[--fake.held_count]);
    (void)pthread_mutex_unlock(&fake.lock);
}

static void *fake_worker(void *arg)
{
    (void)usleep(fake.slow_us);
    fake_answer(arg);
    return NULL;
}

/* No signal reaches the workers, as none reaches the daemon's own threads: ThreadSanitizer keeps a
 * signal for later, and loses it when its thread ends before. */
static void fake_run_slowly(struct request *request)
{
    sigset_t all, before;
    pthread_t thread;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, fake_worker, request) != 0)
        abort();
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_detach(thread);
}

void batcher_submit(struct batcher *batcher, struct model_queue *queue, struct request *request)
{
    struct model *model = (struct model *)queue;

    (void)batcher;
    (void)atomic_fetch_add(&model->stats.success.count, 1);
    if (model->is_slow) {
        fake_run_slowly(request);
    } else if (model->is_held) {
        (void)pthread_mutex_lock(&fake.lock);
        fake.held[fake.held_count++] = request;
        (void)pthread_mutex_unlock(&fake.lock);
    } else {
        fake_answer(request);
    }
}

bool queue_visit(struct model_queue *queue)
{
    (void)queue;
    return true;
}

void queue_leave(struct model_queue *queue)
{
    (void)queue;
}

int64_t batcher_expiry_us(const struct batcher *batcher)
{
    (void)batcher;
    return CLOCK_NEVER;
}

void batcher_end_delays(struct batcher *batcher)
{
    (void)batcher;
}

void batcher_wake(struct batcher *batcher)
{
    size_t kept = 0;

    (void)batcher;
    (void)pthread_mutex_lock(&fake.lock);
    for (size_t i = 0; i < fake.held_count; i++) {
        struct request *request = fake.held[i];

        if (!atomic_load(&request->cancelled)) {
            fake.held[kept++] = request;
            continue;
        }
        (void)atomic_fetch_add(&fake.models[3].stats.cancel.count, 1);
        request->status = STATUS_CANCELLED;
        request->done(request);
    }
    fake.held_count = kept;
    (void)pthread_mutex_unlock(&fake.lock);
}

struct model_stats *queue_stats(struct model_queue *queue)
{
    return &((struct model *)queue)->stats;
}
size_t queue_waiting(struct model_queue *queue)
{
    (void)queue;
    return 0;
}
void queue_read_use(struct model_queue *queue, struct queue_use *out_use)
{
    (void)queue;
    *out_use = (struct queue_use){.pending = 0};
}
void request_release(struct request *request)
{
    arena_reset(&request->arena);
}

/* ---- warden ---- */

void warden_read(struct warden *warden, struct warden_view *out_view)
{
    (void)warden;
    *out_view = (struct warden_view){.low_bytes = 1, .high_bytes = 2, .critical_bytes = 3};
    host_pool_read(fake.pool, &out_view->host);
}
enum status warden_empty_cache_then(struct warden *warden, bool forced, warden_emptied_fn done,
                                    void *arg)
{
    const struct empty_cache_answer answer = {.freed_bytes = 12};

    (void)warden, (void)forced;
    done(arg, &answer);
    return STATUS_OK;
}
void warden_hold(struct warden *warden, uint64_t bytes, int64_t until_us)
{
    (void)warden, (void)bytes, (void)until_us;
}

void warden_unhold(struct warden *warden, uint64_t bytes)
{
    (void)warden, (void)bytes;
}

struct ledger *warden_ledger(struct warden *warden)
{
    (void)warden;
    return fake.ledger;
}
uint64_t network_winograd_bytes(const struct network *network)
{
    (void)network;
    return 0;
}
size_t network_plan_bytes(const struct network *network)
{
    (void)network;
    return 0;
}
const char *govern_level_name(enum govern_level level)
{
    (void)level;
    return "normal";
}
enum status network_plan(struct network *network, const struct shape *input_shapes,
                         struct plan **out_plan, struct error *err)
{
    (void)network, (void)input_shapes, (void)out_plan;
    return error_set(err, STATUS_UNSUPPORTED, "no plans here");
}
void plan_explain(const struct plan *plan, FILE *to, bool as_json)
{
    (void)plan, (void)to, (void)as_json;
}
void plan_unref(struct plan *plan)
{
    (void)plan;
}
enum status profiling_run(struct batcher *batcher, struct network *network, const char *name,
                          const struct shape *shapes, struct profile **out_profile,
                          struct error *err)
{
    (void)batcher, (void)network, (void)name, (void)shapes, (void)out_profile;
    return error_set(err, STATUS_UNSUPPORTED, "nothing is measured here");
}
void profile_write(const struct profile *profile, FILE *to, bool as_json)
{
    (void)profile, (void)to, (void)as_json;
}
void profile_destroy(struct profile *profile)
{
    (void)profile;
}

#endif
