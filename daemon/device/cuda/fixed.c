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

/* Neither free nor mapped by us; 0 when it cannot be told. */
static uint64_t unaccounted(const struct cuda_fixed *fixed)
{
    struct cuda_source_facts facts;
    uint64_t free_bytes, total, used;

    if (fixed->source->ops->query(fixed->source, &free_bytes, &total) != STATUS_OK)
        return 0;
    cuda_source_read(fixed->source, &facts);
    used = total > free_bytes ? total - free_bytes : 0;
    return used > facts.held_bytes ? used - facts.held_bytes : 0;
}

void cuda_fixed_init(struct cuda_fixed *fixed, struct mem_source *source, uint64_t context_bytes)
{
    uint64_t now;

    pthread_mutex_init(&fixed->lock, NULL);
    fixed->source = source;
    now = unaccounted(fixed);
    fixed->fixed_bytes = context_bytes < now ? context_bytes : now;
    fixed->others_bytes = now - fixed->fixed_bytes;
}

void cuda_fixed_deinit(struct cuda_fixed *fixed)
{
    if (fixed->source != NULL)
        pthread_mutex_destroy(&fixed->lock);
}

void cuda_fixed_mark(struct cuda_fixed *fixed)
{
    uint64_t now = unaccounted(fixed);

    pthread_mutex_lock(&fixed->lock);
    fixed->others_bytes = now > fixed->fixed_bytes ? now - fixed->fixed_bytes : 0;
    pthread_mutex_unlock(&fixed->lock);
}

/* Code that was loaded stays loaded: it only grows. */
uint64_t cuda_fixed_read(struct cuda_fixed *fixed)
{
    uint64_t now = unaccounted(fixed), bytes;

    pthread_mutex_lock(&fixed->lock);
    if (now > fixed->others_bytes && now - fixed->others_bytes > fixed->fixed_bytes)
        fixed->fixed_bytes = now - fixed->others_bytes;
    bytes = fixed->fixed_bytes;
    pthread_mutex_unlock(&fixed->lock);
    return bytes;
}
