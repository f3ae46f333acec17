#define LOG_COMPONENT "device"
#include "device/cuda/dnn/compiled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "observe/log.h"

enum { KEY_BYTES = 1024, MOST_ORDERS = 1024 };

enum verdict { COMPILED, NOT_YET, NEVER };

struct word { /* in a list of words */
    struct list link;
    enum verdict verdict; /* of a decision */
    char key[];
};

struct dnn_decisions {
    pthread_mutex_t lock;
    struct list decided; /* by the graph of DNN_IMAGES images */
    struct list ordered; /* of the background */
    size_t orders;
};

struct dnn_decisions *dnn_decisions_create(void)
{
    struct dnn_decisions *decisions = calloc(1, sizeof(*decisions));

    if (decisions == NULL)
        return NULL;
    pthread_mutex_init(&decisions->lock, NULL);
    list_init(&decisions->decided);
    list_init(&decisions->ordered);
    return decisions;
}

static void free_words(struct list *words)
{
    struct word *word;

    while ((word = LIST_FIRST(words, struct word, link)) != NULL) {
        list_remove(&word->link);
        free(word);
    }
}

void dnn_decisions_destroy(struct dnn_decisions *decisions)
{
    if (decisions == NULL)
        return;
    free_words(&decisions->decided);
    free_words(&decisions->ordered);
    pthread_mutex_destroy(&decisions->lock);
    free(decisions);
}

static struct word *find_word(struct list *words, const char *key)
{
    struct word *word;

    LIST_FOR_EACH (word, words, struct word, link)
        if (strcmp(word->key, key) == 0)
            return word;
    return NULL;
}

static struct word *add_word(struct list *words, const char *key)
{
    struct word *word = calloc(1, sizeof(*word) + strlen(key) + 1);

    if (word != NULL) {
        memcpy(word->key, key, strlen(key) + 1);
        list_append(words, &word->link);
    }
    return word;
}

/* ---- on disk ---- */

static void make_key(const struct cuda_device *cuda, const struct dnn *dnn,
                     const struct dnn_graph *graph, char key[KEY_BYTES])
{
    char text[512];

    dnn_graph_format(graph, text, sizeof(text));
    (void)snprintf(key, KEY_BYTES, "cuDNN %zu, %s, %d, %d processors, %zu shared: %s%s by %lld",
                   dnn->cudnnGetVersion(), cuda->name, cuda->capability, cuda->processors,
                   cuda->shared_bytes, text, graph->precision == CUDA_TF32 ? " tf32" : "",
                   (long long)graph->alignment);
}

/* No data: cuDNN has no engine for it. */
static void keep(struct cuda_device *cuda, const char *key, const struct dnn_plan *plan)
{
    void *bytes = NULL;
    size_t count = 0;

    if (plan != NULL && dnn_plan_save(plan, &bytes, &count) != STATUS_OK)
        return;
    disk_cache_keep(&cuda->cache, key, plan != NULL ? bytes : "", count);
    free(bytes);
}

/* ---- in the background ---- */

struct order {
    struct background_job job;
    struct cuda_device *cuda;
    const struct dnn *dnn;
    struct dnn_graph graph;
};

/* By a handle of its own: whoever makes plans meanwhile does not wait. */
static void compile(struct order *order)
{
    struct dnn own = *order->dnn;
    int64_t begin = clock_now_us();
    struct dnn_plan plan;
    char key[KEY_BYTES];
    enum status status;
    struct error why;

    if (cudaSetDevice(order->cuda->ordinal) != cudaSuccess ||
        own.cudnnCreate(&own.maker) != CUDNN_STATUS_SUCCESS)
        return;
    pthread_mutex_init(&own.lock, NULL);
    make_key(order->cuda, order->dnn, &order->graph, key);
    status = dnn_plan_make(&own, &order->graph, &plan, &why);
    if (status == STATUS_OK) {
        keep(order->cuda, key, &plan);
        dnn_plan_free(&plan);
    } else if (status == STATUS_UNSUPPORTED && !plan.hindered) {
        keep(order->cuda, key, NULL);
    }
    log_debug("CUDA: cuDNN %s in %lld us: %s", status == STATUS_OK ? "compiled" : "did not compile",
              (long long)(clock_now_us() - begin), key);
    pthread_mutex_destroy(&own.lock);
    (void)own.cudnnDestroy(own.maker);
}

static void run_job(struct background_job *job)
{
    struct order *order = CONTAINER_OF(job, struct order, job);

    compile(order);
    free(order);
}

static void drop_job(struct background_job *job)
{
    free(CONTAINER_OF(job, struct order, job));
}

/* Under the decisions' lock.  What cannot be ordered stays as it is. */
static void place_order(struct cuda_device *cuda, const struct dnn *dnn,
                        const struct dnn_graph *graph)
{
    struct dnn_decisions *decisions = dnn->decisions;
    struct order *order;
    char key[KEY_BYTES];

    make_key(cuda, dnn, graph, key);
    if (decisions->orders >= MOST_ORDERS || find_word(&decisions->ordered, key) != NULL)
        return;
    order = calloc(1, sizeof(*order));
    if (order == NULL || add_word(&decisions->ordered, key) == NULL) {
        free(order);
        return;
    }
    *order = (struct order){{.run = run_job, .drop = drop_job}, cuda, dnn, *graph};
    decisions->orders++;
    background_add(&cuda->background, &order->job);
}

/* ---- asking ---- */

/* What the disk says of the graph of DNN_IMAGES images, now and for good. */
static enum verdict decide(struct cuda_device *cuda, struct list *decided, const char *key)
{
    struct word *word = find_word(decided, key);
    size_t count = 0;
    void *bytes;

    if (word == NULL) {
        word = add_word(decided, key);
        if (word == NULL)
            return NOT_YET;
        bytes = disk_cache_find(&cuda->cache, key, &count);
        word->verdict = bytes == NULL ? NOT_YET : count == 0 ? NEVER : COMPILED;
        free(bytes);
    }
    return word->verdict;
}

static enum verdict ask(struct cuda_device *cuda, const struct dnn *dnn,
                        const struct dnn_graph *graph)
{
    struct dnn_decisions *decisions = dnn->decisions;
    struct dnn_graph canonical = dnn_graph_canonical(graph);
    enum verdict verdict;
    char key[KEY_BYTES];

    make_key(cuda, dnn, &canonical, key);
    pthread_mutex_lock(&decisions->lock);
    verdict = decide(cuda, &decisions->decided, key);
    if (verdict == NOT_YET) {
        place_order(cuda, dnn, &canonical);
        place_order(cuda, dnn, graph);
    }
    pthread_mutex_unlock(&decisions->lock);
    return verdict;
}

static enum status load(struct cuda_device *cuda, const struct dnn *dnn, const char *key,
                        struct dnn_plan *out_plan)
{
    size_t count = 0;
    void *bytes = disk_cache_find(&cuda->cache, key, &count);
    enum status status =
        bytes == NULL ? STATUS_NOT_FOUND : dnn_plan_load(dnn, bytes, count, out_plan);

    free(bytes);
    return status;
}

enum status dnn_compiled_make(struct cuda_device *cuda, const struct dnn *dnn,
                              const struct dnn_graph *graph, struct dnn_plan *out_plan,
                              struct error *err)
{
    char key[KEY_BYTES];

    if (cuda->cache.folder[0] == '\0')
        return error_set(err, STATUS_UNSUPPORTED, "there is no folder to keep what is compiled");
    switch (ask(cuda, dnn, graph)) {
    case NOT_YET:
        return error_set(err, STATUS_UNSUPPORTED, "compiled for the next start");
    case NEVER:
        return error_set(err, STATUS_UNSUPPORTED, "cuDNN has no engine for it");
    default:
        break;
    }
    make_key(cuda, dnn, graph, key);
    if (load(cuda, dnn, key, out_plan) == STATUS_OK)
        return STATUS_OK;
    TRY(dnn_plan_make(dnn, graph, out_plan, err));
    keep(cuda, key, out_plan);
    return STATUS_OK;
}
