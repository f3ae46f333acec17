#define LOG_COMPONENT "device"
#include "device/cuda/rtc/fused.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/cuda/rtc/rtc.h"
#include "observe/log.h"

enum { MOST_KERNELS = 256 };

enum fused_state { FUSED_WAITING, FUSED_READY, FUSED_REFUSED };

struct fused {
    struct background_job job;
    struct list link; /* fused_table.all */
    unsigned users;   /* under the table's lock; the background is one while it has the job */
    struct cuda_device *cuda;
    const struct rtc *rtc;
    char *key; /* of the disk; its source is what follows the first line */
    const char *source;
    uint32_t steps;
    atomic_int state;
    cudaLibrary_t library; /* written before `state` says READY */
    cudaKernel_t kernel;
    const char *from; /* "nvrtc", "disk" */
};

void fused_table_init(struct fused_table *table)
{
    pthread_mutex_init(&table->lock, NULL);
    list_init(&table->all);
    table->count = 0;
}

void fused_table_deinit(struct fused_table *table)
{
    pthread_mutex_destroy(&table->lock);
}

/* ---- taking and giving back ---- */

static void destroy(struct fused *fused)
{
    if (fused->library != NULL) {
        (void)cudaSetDevice(fused->cuda->ordinal);
        (void)cuda_status(cudaLibraryUnload(fused->library));
    }
    free(fused->key);
    free(fused);
}

void fused_drop(struct fused *fused)
{
    struct fused_table *table;
    bool last;

    if (fused == NULL)
        return;
    table = &fused->cuda->fused;
    pthread_mutex_lock(&table->lock);
    last = --fused->users == 0;
    if (last) {
        list_remove(&fused->link);
        table->count--;
    }
    pthread_mutex_unlock(&table->lock);
    if (last)
        destroy(fused);
}

static bool is_wanted(struct fused *fused)
{
    bool wanted;

    pthread_mutex_lock(&fused->cuda->fused.lock);
    wanted = fused->users > 1;
    pthread_mutex_unlock(&fused->cuda->fused.lock);
    return wanted;
}

/* ---- making, in the background ---- */

/* Code as it is kept on disk. */
struct kept {
    uint64_t machine_bytes, ptx_bytes;
    char bytes[];
};

static cudaError_t load_image(struct fused *fused, const void *image)
{
    struct cudaFuncAttributes attributes;
    cudaError_t error = cudaLibraryLoadData(&fused->library, image, NULL, NULL, 0, NULL, NULL, 0);

    if (error != cudaSuccess) {
        fused->library = NULL;
        return error;
    }
    error = cudaLibraryGetKernel(&fused->kernel, fused->library, "fused");
    if (error == cudaSuccess) /* code comes to the device now and not when it is first launched */
        error = cudaFuncGetAttributes(&attributes, (const void *)fused->kernel);
    if (error != cudaSuccess) {
        (void)cudaLibraryUnload(fused->library);
        fused->library = NULL;
    }
    return error;
}

/* Machine code, else PTX. */
static bool load(struct fused *fused, const struct kept *kept)
{
    cudaError_t error = cudaErrorNoKernelImageForDevice;

    if (kept->machine_bytes > 0)
        error = load_image(fused, kept->bytes);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        error = load_image(fused, kept->bytes + kept->machine_bytes);
    }
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return error == cudaSuccess;
}

static bool load_kept(struct fused *fused)
{
    size_t bytes = 0;
    struct kept *kept = disk_cache_find(&fused->cuda->cache, fused->key, &bytes);
    bool loaded = kept != NULL && bytes >= sizeof(*kept) && kept->machine_bytes <= bytes &&
                  kept->ptx_bytes > 0 &&
                  kept->ptx_bytes == bytes - sizeof(*kept) - kept->machine_bytes &&
                  ((const char *)kept)[bytes - 1] == '\0' && load(fused, kept);

    free(kept);
    return loaded;
}

static bool compile(struct fused *fused)
{
    struct rtc_code code;
    struct kept *kept;
    size_t bytes;
    bool loaded;

    if (rtc_compile(fused->rtc, fused->source, &code) != STATUS_OK)
        return false;
    bytes = code.machine_bytes + code.ptx_bytes;
    kept = malloc(sizeof(*kept) + bytes);
    loaded = kept != NULL;
    if (loaded) {
        *kept = (struct kept){.machine_bytes = code.machine_bytes, .ptx_bytes = code.ptx_bytes};
        memcpy(kept->bytes, code.bytes, bytes);
        loaded = load(fused, kept);
    }
    if (loaded)
        disk_cache_keep(&fused->cuda->cache, fused->key, kept, sizeof(*kept) + bytes);
    free(kept);
    free(code.bytes);
    return loaded;
}

static void make(struct fused *fused)
{
    int64_t begin = clock_now_us();
    bool made;

    fused->from = "disk";
    made = cudaSetDevice(fused->cuda->ordinal) == cudaSuccess && load_kept(fused);
    if (!made) {
        fused->from = "nvrtc";
        made = compile(fused);
    }
    atomic_store(&fused->state, made ? FUSED_READY : FUSED_REFUSED);
    if (!made)
        return;
    log_debug("CUDA: a kernel of %u steps came from %s in %lld us", fused->steps, fused->from,
              (long long)(clock_now_us() - begin));
    atomic_fetch_add(&fused->cuda->device.kernels_changed, 1);
}

static void run_job(struct background_job *job)
{
    struct fused *fused = CONTAINER_OF(job, struct fused, job);

    if (is_wanted(fused))
        make(fused);
    fused_drop(fused);
}

static void drop_job(struct background_job *job)
{
    fused_drop(CONTAINER_OF(job, struct fused, job));
}

/* ---- asking ---- */

/* Under the table's lock. */
static struct fused *find(struct fused_table *table, const char *key)
{
    struct fused *fused;

    LIST_FOR_EACH (fused, &table->all, struct fused, link)
        if (strcmp(fused->key, key) == 0)
            return fused;
    return NULL;
}

static char *make_key(const struct rtc *rtc, const struct pointwise *program)
{
    char *source = fused_source(program), *key = NULL;

    if (source != NULL && asprintf(&key, "%s\n%s", rtc->key, source) < 0)
        key = NULL;
    free(source);
    return key;
}

/* Under the table's lock.  NULL: no memory; the key is the caller's then. */
static struct fused *add(struct cuda_device *cuda, const struct rtc *rtc, char *key, uint32_t steps)
{
    struct fused *fused = calloc(1, sizeof(*fused));

    if (fused == NULL)
        return NULL;
    *fused = (struct fused){.job = {.run = run_job, .drop = drop_job},
                            .users = 2, /* the asker and the background */
                            .cuda = cuda,
                            .rtc = rtc,
                            .key = key,
                            .source = key + strlen(rtc->key) + 1,
                            .steps = steps};
    list_append(&cuda->fused.all, &fused->link);
    cuda->fused.count++;
    return fused;
}

struct fused *fused_take(struct cuda_device *cuda, const struct pointwise *program,
                         const char **out_why)
{
    const struct rtc *rtc = rtc_get(cuda, out_why);
    struct fused *fused;
    bool is_new = false;
    char *key;

    if (rtc == NULL)
        return NULL;
    key = make_key(rtc, program);
    *out_why = "no memory for its text";
    if (key == NULL)
        return NULL;
    pthread_mutex_lock(&cuda->fused.lock);
    fused = find(&cuda->fused, key);
    if (fused != NULL) {
        fused->users++;
    } else if (cuda->fused.count >= MOST_KERNELS) {
        *out_why = "there are as many kernels as there may be";
    } else {
        fused = add(cuda, rtc, key, program->steps);
        is_new = fused != NULL;
    }
    pthread_mutex_unlock(&cuda->fused.lock);
    if (is_new)
        background_add(&cuda->background, &fused->job);
    else
        free(key);
    return fused;
}

const void *fused_kernel(const struct fused *fused)
{
    if (fused == NULL || atomic_load(&fused->state) != FUSED_READY)
        return NULL;
    return (const void *)fused->kernel;
}

void fused_describe(const struct fused *fused, char *text, size_t room)
{
    static const char words[] = "--gpu-architecture=";

    switch ((enum fused_state)atomic_load(&fused->state)) {
    case FUSED_READY:
        (void)snprintf(text, room, "%s by %s", fused->rtc->target + strlen(words), fused->from);
        break;
    case FUSED_WAITING:
        (void)snprintf(text, room, "interpreter, until nvrtc has made it");
        break;
    default:
        (void)snprintf(text, room, "interpreter: nvrtc or the driver refused its kernel");
    }
}
