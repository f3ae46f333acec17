#define LOG_COMPONENT "device"
#include "device/cuda/nan_trial.h"

#include <stdlib.h>
#include <string.h>

#include "observe/log.h"
#include "tensor/dtype.h"

/* Of answers; of memory to ask in; of the result, at each of its ends, that is looked at. */
enum { MOST_ANSWERS = 8192, LOOKED_AT = 4096 };
static const size_t MOST_BYTES = (size_t)512 << 20;

struct answer {
    struct list link;
    bool kept;
    char key[];
};

void nan_answers_init(struct nan_answers *answers)
{
    pthread_mutex_init(&answers->lock, NULL);
    list_init(&answers->all);
    answers->count = 0;
}

void nan_answers_deinit(struct nan_answers *answers)
{
    struct answer *answer;

    while ((answer = LIST_FIRST(&answers->all, struct answer, link)) != NULL) {
        list_remove(&answer->link);
        free(answer);
    }
    pthread_mutex_destroy(&answers->lock);
}

/* ---- the run ---- */

/* All bits set: NaN in each of the types. */
enum { NAN_BYTE = 0xFF };

static bool is_nan(enum dtype dtype, const unsigned char *at)
{
    uint16_t half;
    float whole;

    if (dtype == DTYPE_FLOAT) {
        memcpy(&whole, at, sizeof(whole));
        return whole != whole;
    }
    memcpy(&half, at, sizeof(half));
    return (half & 0x7FFF) > (dtype == DTYPE_FLOAT16 ? 0x7C00 : 0x7F80);
}

/* Whether `bytes` of the result, from `from` on, are nothing but NaN.  Waits for the stream. */
static bool look(const struct nan_trial *trial, const char *from, size_t bytes, cudaStream_t stream)
{
    unsigned char copy[LOOKED_AT];

    if (cudaMemcpyAsync(copy, from, bytes, cudaMemcpyDeviceToHost, stream) != cudaSuccess ||
        cudaStreamSynchronize(stream) != cudaSuccess)
        return false;
    for (size_t at = 0; at < bytes; at += dtype_bytes(trial->dtype))
        if (!is_nan(trial->dtype, copy + at))
            return false;
    return true;
}

/* Operands, the result behind them, the workspace: each aligned to 256 bytes, with room for the
 * shift. */
static size_t round_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static bool run(const struct nan_trial *trial, char *memory, cudaStream_t stream)
{
    const size_t in = round_up(trial->in_bytes + trial->shift);
    const size_t out = round_up(trial->out_bytes + trial->shift);
    const size_t part = trial->out_bytes < LOOKED_AT ? trial->out_bytes : (size_t)LOOKED_AT;
    char *result = memory + in + trial->shift;

    return cudaMemsetAsync(memory, NAN_BYTE, in, stream) == cudaSuccess &&
           cudaMemsetAsync(memory + in, 0, out, stream) == cudaSuccess &&
           trial->run(trial, memory + trial->shift, result, memory + in + out, stream) ==
               STATUS_OK &&
           look(trial, result, part, stream) &&
           look(trial, result + trial->out_bytes - part, part, stream);
}

static bool ask(const struct nan_trial *trial, struct weights_cache *weights)
{
    const size_t all = round_up(trial->in_bytes + trial->shift) +
                       round_up(trial->out_bytes + trial->shift) + round_up(trial->workspace_bytes);
    cudaStream_t stream = NULL;
    void *memory = NULL;
    bool kept = false;

    if (weights == NULL || all > MOST_BYTES || weights_borrow(weights, all, &memory) != STATUS_OK) {
        log_debug("CUDA: no memory to see whether NaN is kept: %s", trial->key);
        return false;
    }
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess) {
        kept = run(trial, memory, stream);
        (void)cudaStreamSynchronize(stream);
        (void)cudaStreamDestroy(stream);
    }
    weights_return(weights, memory);
    (void)cudaGetLastError(); /* what failed here decides about a plan and nothing else */
    log_debug("CUDA: NaN is %s: %s", kept ? "kept" : "lost", trial->key);
    return kept;
}

/* ---- answers ---- */

static struct answer *find(struct nan_answers *answers, const char *key)
{
    struct answer *answer;

    LIST_FOR_EACH (answer, &answers->all, struct answer, link)
        if (strcmp(answer->key, key) == 0)
            return answer;
    return NULL;
}

/* What is not noted is no, now and later. */
static struct answer *add(struct nan_answers *answers, const char *key)
{
    struct answer *answer = NULL;

    if (answers->count < MOST_ANSWERS)
        answer = calloc(1, sizeof(*answer) + strlen(key) + 1);
    if (answer == NULL)
        return NULL;
    memcpy(answer->key, key, strlen(key) + 1);
    list_append(&answers->all, &answer->link);
    answers->count++;
    return answer;
}

bool nan_is_kept(struct nan_answers *answers, const struct nan_trial *trial,
                 struct weights_cache *weights)
{
    struct answer *answer;
    bool kept;

    pthread_mutex_lock(&answers->lock);
    answer = find(answers, trial->key);
    if (answer == NULL) {
        answer = add(answers, trial->key);
        if (answer != NULL)
            answer->kept = ask(trial, weights);
    }
    kept = answer != NULL && answer->kept;
    pthread_mutex_unlock(&answers->lock);
    return kept;
}
