#define LOG_COMPONENT "device"
#include "device/cuda/blas/choose.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/log.h"

/* Runs of each that are timed, behind one that makes its code ready; how much faster one must be to
 * take the first one's place; what all trials of a problem may take of the device's time. */
enum { TIMED_RUNS = 3, LT_TRIAL_MS = 100, KEY_BYTES = LT_WORDS + 16, MOST_CHOICES = 4096 };
static const float CLEARLY = 0.97F;
static const size_t MOST_BYTES = (size_t)512 << 20; /* of memory to try a problem in */

struct choice {
    struct choice *next;
    int number;
    char key[KEY_BYTES];
};

struct lt_choices {
    pthread_mutex_t lock; /* held while a problem is tried: two do not disturb each other */
    struct choice *first;
    size_t count;
};

struct lt_choices *lt_choices_create(void)
{
    struct lt_choices *choices = calloc(1, sizeof(*choices));

    if (choices != NULL)
        pthread_mutex_init(&choices->lock, NULL);
    return choices;
}

void lt_choices_destroy(struct lt_choices *choices)
{
    if (choices == NULL)
        return;
    for (struct choice *choice = choices->first, *next; choice != NULL; choice = next) {
        next = choice->next;
        free(choice);
    }
    pthread_mutex_destroy(&choices->lock);
    free(choices);
}

/* ---- memory ---- */

struct bench {
    cudaStream_t stream;
    cudaEvent_t from, to;
    char *memory;
    struct lt_operands operands;
    void *workspace;
    float spent_ms;
};

static size_t round_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static size_t span(const struct lt_problem *p, enum dtype dtype, int64_t next, int64_t one)
{
    return round_up((size_t)(next * (p->batch - 1) + one) * dtype_bytes(dtype));
}

/* A, B, bias, C and the result, then workspace, behind each other. */
static bool lay_out(struct bench *bench, const struct lt_trial *trial,
                    struct weights_cache *weights)
{
    const struct lt_problem *p = &trial->canonical.problem;
    size_t a = span(p, p->dtype, p->a_next, p->m * p->k);
    size_t b = span(p, p->dtype, p->b_next, p->k * p->n), bias = span(p, p->dtype, 0, p->n);
    size_t out = span(p, lt_result_dtype(p), p->m * p->n, p->m * p->n), workspace = 0, all;
    void *memory = NULL;

    for (int i = 0; i < trial->count; i++)
        if (trial->offered[i].workspaceSize > workspace)
            workspace = trial->offered[i].workspaceSize;
    all = a + b + bias + 2 * out + round_up(workspace);
    if (all > MOST_BYTES || weights_borrow(weights, all, &memory) != STATUS_OK)
        return false;
    bench->memory = memory;
    bench->operands = (struct lt_operands){.a = bench->memory,
                                           .b = bench->memory + a,
                                           .bias = bench->memory + a + b,
                                           .c = bench->memory + a + b + bias,
                                           .out = bench->memory + a + b + bias + out};
    bench->workspace = bench->memory + a + b + bias + 2 * out;
    return cudaMemsetAsync(memory, 0, all, bench->stream) == cudaSuccess;
}

static bool open_bench(struct bench *bench, const struct lt_trial *trial,
                       struct weights_cache *weights)
{
    return cudaStreamCreateWithFlags(&bench->stream, cudaStreamNonBlocking) == cudaSuccess &&
           cudaEventCreate(&bench->from) == cudaSuccess &&
           cudaEventCreate(&bench->to) == cudaSuccess && lay_out(bench, trial, weights);
}

static void close_bench(struct bench *bench, struct weights_cache *weights)
{
    if (bench->stream != NULL)
        (void)cudaStreamSynchronize(bench->stream);
    if (bench->memory != NULL)
        weights_return(weights, bench->memory);
    if (bench->to != NULL)
        (void)cudaEventDestroy(bench->to);
    if (bench->from != NULL)
        (void)cudaEventDestroy(bench->from);
    if (bench->stream != NULL)
        (void)cudaStreamDestroy(bench->stream);
    (void)cudaGetLastError(); /* what failed here decides about an algorithm and nothing else */
}

/* ---- time ---- */

static bool run_once(struct bench *bench, const struct lt_product *product, float *out_ms)
{
    return cudaEventRecord(bench->from, bench->stream) == cudaSuccess &&
           lt_product_run(product, &bench->operands, bench->workspace, bench->stream) ==
               STATUS_OK &&
           cudaEventRecord(bench->to, bench->stream) == cudaSuccess &&
           cudaEventSynchronize(bench->to) == cudaSuccess &&
           cudaEventElapsedTime(out_ms, bench->from, bench->to) == cudaSuccess;
}

/* The least of several; INFINITY where it cannot be run. */
static float time_one(struct bench *bench, struct lt_trial *trial, int number)
{
    struct lt_product *product = &trial->canonical;
    float best = INFINITY, ms = 0;

    product->algo[0] = trial->offered[number].algo;
    product->workspace_bytes = trial->offered[number].workspaceSize;
    for (int i = 0; i <= TIMED_RUNS; i++) {
        if (!run_once(bench, product, &ms))
            return INFINITY;
        bench->spent_ms += ms;
        if (i > 0 && ms < best)
            best = ms;
    }
    return best;
}

static int try_all(struct bench *bench, struct lt_trial *trial)
{
    float first = time_one(bench, trial, 0), best = first * CLEARLY;
    int number = 0;

    if (first == INFINITY)
        return 0;
    for (int i = 1; i < trial->count && bench->spent_ms < (float)LT_TRIAL_MS; i++) {
        float ms = time_one(bench, trial, i);

        if (ms < best) {
            best = ms;
            number = i;
        }
    }
    log_debug("CUDA: cuBLASLt's algorithm %d of %d takes %.4f ms, the first %.4f ms", number + 1,
              trial->count, (double)(number > 0 ? best : first), (double)first);
    return number;
}

/* ---- choosing ---- */

static struct choice *find(struct lt_choices *choices, const char *key)
{
    struct choice *choice = choices->first;

    while (choice != NULL && strcmp(choice->key, key) != 0)
        choice = choice->next;
    return choice;
}

/* What is not noted is the first one, now and later. */
static struct choice *add(struct lt_choices *choices, const char *key)
{
    struct choice *choice = choices->count < MOST_CHOICES ? calloc(1, sizeof(*choice)) : NULL;

    if (choice == NULL)
        return NULL;
    memcpy(choice->key, key, strlen(key) + 1);
    choice->next = choices->first;
    choices->first = choice;
    choices->count++;
    return choice;
}

int lt_choose(struct lt_trial *trial, struct weights_cache *weights)
{
    struct lt_choices *choices = trial->canonical.lt->choices;
    struct bench bench = {0};
    struct choice *choice;
    char words[LT_WORDS], key[KEY_BYTES];
    int number = 0;

    if (trial->count <= 1)
        return 0;
    lt_problem_format(&trial->canonical.problem, words);
    (void)snprintf(key, sizeof(key), "%s of %d", words, trial->count);
    pthread_mutex_lock(&choices->lock);
    choice = find(choices, key);
    if (choice == NULL) {
        choice = add(choices, key);
        if (choice != NULL && weights != NULL && open_bench(&bench, trial, weights))
            choice->number = try_all(&bench, trial);
        close_bench(&bench, weights);
    }
    if (choice != NULL)
        number = choice->number;
    pthread_mutex_unlock(&choices->lock);
    return number;
}
