#define LOG_COMPONENT "device"
#include "device/cuda/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"
#include "observe/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over the slots of all devices */

const char *cuda_library_open(const struct cuda_library *library, const char *path, void *functions)
{
    void *file = dlopen(path != NULL ? path : library->name, RTLD_NOW | RTLD_LOCAL);

    if (file == NULL) {
        log_info("CUDA: %s: %s", library->without, dlerror());
        return library->missing;
    }
    for (size_t i = 0; i < library->count; i++) {
        void *function = dlsym(file, library->functions[i].name);

        if (function == NULL) {
            log_warn("CUDA: %s has no %s: %s", library->name, library->functions[i].name,
                     library->without);
            return library->lacks;
        }
        memcpy((char *)functions + library->functions[i].offset, &function, sizeof(function));
    }
    return NULL;
}

const char cuda_library_no_memory[] = "no memory for a library's handles";

static const char *make(struct cuda_device *cuda, const struct cuda_library *library,
                        void **out_made)
{
    void *made = calloc(1, library->bytes);
    const char *why;

    if (made == NULL)
        return cuda_library_no_memory;
    why = cuda_library_open(library, NULL, made);
    if (why == NULL) {
        why = cudaSetDevice(cuda->ordinal) != cudaSuccess ? "the device is gone"
                                                          : library->start(cuda, made);
        if (why != NULL)
            library->end(made);
    }
    if (why != NULL)
        free(made);
    else
        *out_made = made;
    return why;
}

void *cuda_library_get(struct cuda_device *cuda, struct cuda_library_slot *slot,
                       const struct cuda_library *library, const char **out_why)
{
    pthread_mutex_lock(&lock);
    *out_why = slot->why_not;
    if (slot->made == NULL && slot->why_not == NULL)
        *out_why = make(cuda, library, &slot->made);
    if (*out_why != cuda_library_no_memory)
        slot->why_not = *out_why;
    pthread_mutex_unlock(&lock);
    return slot->made;
}

void cuda_library_close(struct cuda_device *cuda, struct cuda_library_slot *slot,
                        const struct cuda_library *library)
{
    if (slot->made == NULL)
        return;
    (void)cudaSetDevice(cuda->ordinal);
    library->end(slot->made);
    free(slot->made);
    slot->made = NULL;
}
