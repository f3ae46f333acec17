/* How the library is found and opened. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "device/cpu/onednn/onednn_internal.h"

enum {
    /* Primitives that the library keeps for their next user: layers of one model repeat shapes.
     * More would keep the code of models long unloaded. */
    CACHE_CAPACITY = 64,
};

#define TEXT_OF(number) #number
#define SONAME(major)   "libdnnl.so." TEXT_OF(major)

struct onednn_library onednn;
static enum cpu_isa capped_isa = CPU_ISA_COUNT;

static bool load_functions(void)
{
    void *library = dlopen(SONAME(DNNL_VERSION_MAJOR), RTLD_LAZY | RTLD_LOCAL);
    bool all = library != NULL;

    if (!all)
        (void)snprintf(onednn.missing, sizeof(onednn.missing), "oneDNN is not there: %.100s",
                       dlerror());
#define FUNCTION(name)                                                                             \
    if (all) {                                                                                     \
        onednn.name = (__typeof__(onednn.name))dlsym(library, "dnnl_" #name);                      \
        all = onednn.name != NULL;                                                                 \
        if (!all)                                                                                  \
            (void)snprintf(onednn.missing, sizeof(onednn.missing), "oneDNN has no dnnl_" #name);   \
    }
    FUNCTIONS(FUNCTION)
#undef FUNCTION
    return all;
}

static void open_library(void)
{
    if (!load_functions())
        return;
    if (capped_isa == CPU_AVX2)
        (void)onednn.set_max_cpu_isa(dnnl_cpu_isa_avx2);
    if (capped_isa == CPU_BASELINE)
        (void)onednn.set_max_cpu_isa(dnnl_cpu_isa_sse41);
    (void)onednn.set_primitive_cache_capacity(CACHE_CAPACITY);
    if (onednn.engine_create(&onednn.engine, dnnl_cpu, 0) == dnnl_success &&
        onednn.stream_create(&onednn.stream, onednn.engine, dnnl_stream_default_flags) ==
            dnnl_success)
        return;
    onednn.engine = NULL;
    (void)snprintf(onednn.missing, sizeof(onednn.missing), "oneDNN has no CPU engine");
}

void onednn_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, open_library);
}

void onednn_open(enum cpu_isa isa)
{
    static atomic_flag seen = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&seen))
        capped_isa = isa;
}

enum status onednn_status(dnnl_status_t status, const char *what, struct error *err)
{
    switch (status) {
    case dnnl_success:
        return STATUS_OK;
    case dnnl_out_of_memory:
        return error_set(err, STATUS_NO_MEMORY, "oneDNN %s: out of memory", what);
    case dnnl_unimplemented:
    case dnnl_invalid_arguments:
        return error_set(err, STATUS_UNSUPPORTED, "oneDNN %s: no implementation (%d)", what,
                         (int)status);
    default:
        return error_set(err, STATUS_INTERNAL, "oneDNN %s: status %d", what, (int)status);
    }
}
