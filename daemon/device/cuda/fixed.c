#include "device/cuda/fixed.h"

#include <dlfcn.h>

#include "device/cuda/source.h"

/* ---- the management library ---- */

typedef void *nvml_device;
struct nvml_memory { /* nvmlMemory_t */
    unsigned long long total, free, used;
};

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *bus, nvml_device *out_device);
    int (*read)(nvml_device device, struct nvml_memory *out_memory);
};

static bool find_calls(void *library, struct nvml *nvml)
{
    *(void **)&nvml->init = dlsym(library, "nvmlInit_v2");
    *(void **)&nvml->shutdown = dlsym(library, "nvmlShutdown");
    *(void **)&nvml->find = dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&nvml->read = dlsym(library, "nvmlDeviceGetMemoryInfo");
    return nvml->init != NULL && nvml->shutdown != NULL && nvml->find != NULL && nvml->read != NULL;
}

static bool ask(const struct nvml *nvml, const char *bus, uint64_t *out_used)
{
    struct nvml_memory memory;
    nvml_device device;
    bool known = false;

    if (nvml->init() != 0)
        return false;
    if (nvml->find(bus, &device) == 0 && nvml->read(device, &memory) == 0) {
        *out_used = memory.total - memory.free;
        known = true;
    }
    (void)nvml->shutdown();
    return known;
}

bool cuda_device_used(const char *bus, uint64_t *out_used)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    struct nvml nvml = {NULL};
    bool known;

    if (library == NULL)
        return false;
    known = find_calls(library, &nvml) && ask(&nvml, bus, out_used);
    dlclose(library);
    return known;
}

/* ---- by what is free ---- */

enum { TRIES = 64 };

static bool is_same(const struct cuda_source_facts *a, const struct cuda_source_facts *b)
{
    return a->held_bytes == b->held_bytes && a->created_total == b->created_total;
}

/* Neither free nor mapped by us.  False when it cannot be told: lanes take and give back memory
 * meanwhile, so what is held counts only if it was the same before and after free memory was read.
 */
static bool unaccounted(const struct cuda_fixed *fixed, uint64_t *out_bytes)
{
    struct cuda_source_facts before, after;
    uint64_t free_bytes, total, used;

    cuda_source_read(fixed->source, &after);
    for (unsigned try = 0; try < TRIES; try++) {
        before = after;
        if (fixed->source->ops->query(fixed->source, &free_bytes, &total) != STATUS_OK)
            return false;
        cuda_source_read(fixed->source, &after);
        if (!is_same(&before, &after))
            continue;
        used = total > free_bytes ? total - free_bytes : 0;
        *out_bytes = used > after.held_bytes ? used - after.held_bytes : 0;
        return true;
    }
    return false;
}

void cuda_fixed_init(struct cuda_fixed *fixed, struct mem_source *source, uint64_t context_bytes)
{
    uint64_t now = 0;

    pthread_mutex_init(&fixed->lock, NULL);
    pthread_mutex_init(&fixed->making, NULL);
    fixed->source = source;
    (void)unaccounted(fixed, &now);
    fixed->fixed_bytes = context_bytes < now ? context_bytes : now;
    fixed->others_bytes = now - fixed->fixed_bytes;
}

void cuda_fixed_deinit(struct cuda_fixed *fixed)
{
    if (fixed->source == NULL)
        return;
    pthread_mutex_destroy(&fixed->making);
    pthread_mutex_destroy(&fixed->lock);
}

void cuda_fixed_mark(struct cuda_fixed *fixed)
{
    uint64_t now;

    if (!unaccounted(fixed, &now))
        return;
    pthread_mutex_lock(&fixed->lock);
    fixed->others_bytes = now > fixed->fixed_bytes ? now - fixed->fixed_bytes : 0;
    fixed->marked = true;
    pthread_mutex_unlock(&fixed->lock);
}

/* Code that a load brought stays: it only grows. */
static uint64_t measure(struct cuda_fixed *fixed)
{
    uint64_t now = 0, bytes;
    bool is_known = unaccounted(fixed, &now);

    pthread_mutex_lock(&fixed->lock);
    if (is_known && now > fixed->others_bytes && now - fixed->others_bytes > fixed->fixed_bytes)
        fixed->fixed_bytes = now - fixed->others_bytes;
    bytes = fixed->fixed_bytes;
    fixed->marked = false;
    pthread_mutex_unlock(&fixed->lock);
    return bytes;
}

uint64_t cuda_fixed_read(struct cuda_fixed *fixed)
{
    bool marked;
    uint64_t bytes;

    pthread_mutex_lock(&fixed->lock);
    marked = fixed->marked;
    bytes = fixed->fixed_bytes;
    pthread_mutex_unlock(&fixed->lock);
    return marked ? measure(fixed) : bytes;
}

void cuda_fixed_begin(struct cuda_fixed *fixed)
{
    pthread_mutex_lock(&fixed->making);
    fixed->is_begun = unaccounted(fixed, &fixed->begun_bytes);
}

/* Never more than there is of others' and ours; what cannot be told changes nothing. */
void cuda_fixed_end(struct cuda_fixed *fixed)
{
    const uint64_t before = fixed->begun_bytes;
    uint64_t now, less;

    if (fixed->is_begun && unaccounted(fixed, &now)) {
        less = before > now ? before - now : 0;
        pthread_mutex_lock(&fixed->lock);
        if (now > before)
            fixed->fixed_bytes += now - before;
        else
            fixed->fixed_bytes -= less < fixed->fixed_bytes ? less : fixed->fixed_bytes;
        if (fixed->fixed_bytes > now)
            fixed->fixed_bytes = now;
        pthread_mutex_unlock(&fixed->lock);
    }
    pthread_mutex_unlock(&fixed->making);
}
