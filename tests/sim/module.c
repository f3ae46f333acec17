/* Fat binaries and libraries: which PTX a kernel's name leads to.
 *
 * nvcc wraps the code of one source file as {magic, version, data}; the data is a header and
 * entries, each code for one architecture: kind 1 is PTX, kind 2 machine code, which nothing here
 * can run.  Of the PTX the newest that the device's capability allows is taken, as a driver would;
 * where machine code alone serves the device, the oldest PTX there is.
 */
#include "launch.h"
#include "memory.h"
#include "registration.h"

#include <stdlib.h>
#include <string.h>

struct module {
    uint32_t magic;
    const char *text; /* still to be read, as long as what registered it is loaded; NULL: none */
    size_t text_bytes;
    struct ptx_module *ptx;    /* NULL before module_read(), and where there is none */
    struct region **variables; /* in the order of ptx_variables() */
    size_t variable_count;
    struct module *next;
};

/* A variable of the host that stands for one of a module. */
struct symbol {
    const void *host;
    const char *name;
    struct module *module;
    struct symbol *next;
};

enum { MODULE_MAGIC = 0x6d6f6475, FATBIN_WRAPPER = 0x466243b1 };

struct fat_wrapper {
    uint32_t magic;
    uint32_t version;
    const unsigned char *data;
};

struct fat_header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t bytes;
};

struct fat_entry {
    uint16_t kind;
    uint16_t version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t compressed_bytes;
    uint32_t options;
    uint16_t minor;
    uint16_t major;
    uint32_t architecture;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel *kernels;
static struct symbol *symbols;
static struct module *modules;

/* Gives every variable of the module its memory and first value. */
static void variables_make(struct module *module)
{
    struct ptx_variable *variables = ptx_variables(module->ptx, &module->variable_count);

    module->variables = calloc(module->variable_count + 1, sizeof(struct region *));
    exec_lock();
    for (size_t i = 0; i < module->variable_count; i++) {
        struct region *region = region_make(variables[i].bytes, REGION_MODULE);
        struct span span;
        if (region == NULL || !span_find(region->address, &span))
            continue;
        char *at = (char *)(uintptr_t)(region->address + (uint64_t)span.to_host);
        if (variables[i].initial != NULL)
            memcpy(at, variables[i].initial, variables[i].bytes);
        else
            memset(at, 0, variables[i].bytes);
        memset(span.shadow + (region->address - span.shadow_from) / 8, 0xFF,
               (variables[i].bytes + 7) / 8);
        variables[i].address = region->address;
        module->variables[i] = region;
    }
    exec_unlock();
}

/* What the module is made of, read when a kernel or variable of it is first wanted: most programs
 * use few of a plug-in's modules, and their text is long. */
static struct ptx_module *module_read(struct module *module)
{
    static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;
    char why[256];

    pthread_mutex_lock(&reading);
    if (module->text != NULL) {
        struct ptx_module *ptx = ptx_load(module->text, module->text_bytes, why, sizeof(why));

        module->text = NULL;
        module->ptx = ptx;
        if (ptx != NULL)
            variables_make(module);
        else
            finding("PTX of a module: %s", why);
    }
    pthread_mutex_unlock(&reading);
    return module->ptx;
}

static struct module *module_make(const char *text, size_t bytes)
{
    struct module *module = calloc(1, sizeof(*module));

    if (module == NULL)
        return NULL;
    *module = (struct module){.magic = MODULE_MAGIC, .text = text, .text_bytes = bytes};
    pthread_mutex_lock(&lock);
    module->next = modules;
    modules = module;
    pthread_mutex_unlock(&lock);
    return module;
}

struct ptx_kernel *module_kernel(struct module *module, const char *name)
{
    char why[512] = "the fat binary holds no plain PTX: build with a PTX target and "
                    "--compress-mode=none";
    struct ptx_module *ptx = module_read(module);
    struct ptx_kernel *kernel = ptx != NULL ? ptx_find(ptx, name, why, sizeof(why)) : NULL;

    if (kernel == NULL)
        finding("%s: %s", name, why);
    return kernel;
}

/* Whether PTX of architecture `a` suits the device better than that of `b` (0: none yet). */
static bool better(uint32_t a, uint32_t b)
{
    uint32_t device = (uint32_t)sim.capability;

    if (b == 0)
        return true;
    if (a <= device && b <= device)
        return a > b;
    return a <= device || (b > device && a < b);
}

static struct module *fat_load(const unsigned char *data)
{
    struct fat_header header;
    memcpy(&header, data, sizeof(header));
    const unsigned char *at = data + header.header_bytes;
    const unsigned char *end = at + header.bytes;
    const char *text = NULL;
    size_t text_bytes = 0;
    uint32_t architecture = 0;

    while (at < end) {
        struct fat_entry entry;
        memcpy(&entry, at, sizeof(entry));
        const char *body = (const char *)at + entry.header_bytes;
        bool plain = entry.kind == 1 && memmem(body, entry.bytes, ".version", 8) != NULL;
        if (plain && better(entry.architecture, architecture)) {
            architecture = entry.architecture;
            text = body;
            text_bytes = entry.bytes;
        }
        at += entry.header_bytes + entry.bytes;
    }
    return module_make(text, text_bytes);
}

SIM_EXPORT void **__cudaRegisterFatBinary(void *wrapper)
{
    struct fat_wrapper fat;

    sim_start();
    memcpy(&fat, wrapper, sizeof(fat));
    return (void **)(fat.magic == FATBIN_WRAPPER ? fat_load(fat.data) : module_make(NULL, 0));
}

SIM_EXPORT void __cudaRegisterFatBinaryEnd(void **module)
{
    (void)module;
}

SIM_EXPORT char __cudaInitModule(void **module)
{
    (void)module;
    return 1;
}

static void module_free(struct module *module)
{
    for (struct module **at = &modules; *at != NULL; at = &(*at)->next)
        if (*at == module) {
            *at = module->next;
            break;
        }
    exec_lock();
    for (size_t i = 0; i < module->variable_count; i++)
        if (module->variables[i] != NULL)
            region_free(module->variables[i]);
    exec_unlock();
    free(module->variables);
    if (module->ptx != NULL)
        ptx_unload(module->ptx);
    free(module);
}

/* A plug-in was closed, or the program ends: its kernels are gone. */
SIM_EXPORT void __cudaUnregisterFatBinary(void **handle)
{
    struct module *module = (struct module *)handle;

    streams_run_all();
    pthread_mutex_lock(&lock);
    for (struct kernel **at = &kernels; *at != NULL;) {
        struct kernel *kernel = *at;
        if (kernel->module != module) {
            at = &kernel->next;
            continue;
        }
        *at = kernel->next;
        free(kernel->name);
        kernel->magic = 0;
        free(kernel);
    }
    for (struct symbol **at = &symbols; *at != NULL;) {
        struct symbol *symbol = *at;
        if (symbol->module != module) {
            at = &symbol->next;
            continue;
        }
        *at = symbol->next;
        free(symbol);
    }
    module_free(module);
    pthread_mutex_unlock(&lock);
}

unsigned long sim_refused_kernels(void)
{
    unsigned long refused = 0;
    char why[512];

    pthread_mutex_lock(&lock);
    for (struct module *module = modules; module != NULL; module = module->next) {
        struct ptx_module *ptx = module_read(module);
        const char *name;
        for (size_t i = 0; ptx != NULL && (name = ptx_kernel_name(ptx, i)) != NULL; i++) {
            if (ptx_find(ptx, name, why, sizeof(why)) != NULL)
                continue;
            finding("%s: %s", name, why);
            refused++;
        }
    }
    pthread_mutex_unlock(&lock);
    return refused;
}

static struct kernel *kernel_add(struct module *module, const void *host, const char *name)
{
    struct kernel *kernel = calloc(1, sizeof(*kernel));

    if (kernel == NULL)
        return NULL;
    *kernel = (struct kernel){
        .magic = KERNEL_MAGIC, .host = host, .name = strdup(name), .module = module};
    pthread_mutex_lock(&lock);
    kernel->next = kernels;
    kernels = kernel;
    pthread_mutex_unlock(&lock);
    return kernel;
}

SIM_EXPORT void __cudaRegisterFunction(void **module, const char *host, char *device,
                                       const char *name, int thread_limit, uint3 *tid, uint3 *bid,
                                       dim3 *block, dim3 *grid, int *warp)
{
    (void)device, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    kernel_add((struct module *)module, host, name);
}

SIM_EXPORT void __cudaRegisterVar(void **module, char *host, char *device, const char *name,
                                  int external, size_t bytes, int constant, int global)
{
    struct symbol *symbol = calloc(1, sizeof(*symbol));

    (void)device, (void)external, (void)bytes, (void)constant, (void)global;
    if (symbol == NULL)
        return;
    pthread_mutex_lock(&lock);
    *symbol = (struct symbol){host, name, (struct module *)module, symbols};
    symbols = symbol;
    pthread_mutex_unlock(&lock);
}

struct kernel *kernel_of(const void *function)
{
    struct kernel *found = NULL;

    pthread_mutex_lock(&lock);
    for (struct kernel *kernel = kernels; kernel != NULL && found == NULL; kernel = kernel->next)
        if (kernel == function || (function != NULL && kernel->host == function))
            found = kernel;
    pthread_mutex_unlock(&lock);
    return found;
}

SIM_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host)
{
    BEGIN(__cudaGetKernel);
    struct kernel *kernel = kernel_of(host);
    *out = (cudaKernel_t)kernel;
    return api_end(kernel != NULL ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

SIM_EXPORT cudaError_t cudaGetKernel(cudaKernel_t *out, const void *host)
{
    return __cudaGetKernel(out, host);
}

static struct region *variable_find(struct module *module, const char *name)
{
    size_t count;
    struct ptx_module *ptx = module_read(module);
    struct ptx_variable *variables = ptx != NULL ? ptx_variables(ptx, &count) : NULL;

    for (size_t i = 0; variables != NULL && i < count; i++)
        if (strcmp(variables[i].name, name) == 0)
            return module->variables[i];
    return NULL;
}

static const struct region *symbol_region(const void *host)
{
    const struct region *region = NULL;

    pthread_mutex_lock(&lock);
    for (const struct symbol *symbol = symbols; symbol != NULL; symbol = symbol->next)
        if (symbol->host == host)
            region = variable_find(symbol->module, symbol->name);
    pthread_mutex_unlock(&lock);
    return region;
}

SIM_EXPORT cudaError_t cudaGetSymbolAddress(void **out, const void *host)
{
    BEGIN(cudaGetSymbolAddress);
    const struct region *region = symbol_region(host);
    if (region == NULL)
        return api_end(cudaErrorInvalidSymbol);
    *out = (void *)(uintptr_t)region->address;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaGetSymbolSize(size_t *out, const void *host)
{
    BEGIN(cudaGetSymbolSize);
    const struct region *region = symbol_region(host);
    if (region == NULL)
        return api_end(cudaErrorInvalidSymbol);
    *out = region->bytes;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaMemcpyToSymbolAsync(const void *host, const void *from, size_t bytes,
                                               size_t offset, enum cudaMemcpyKind kind,
                                               cudaStream_t stream)
{
    void *to;
    cudaError_t error = cudaGetSymbolAddress(&to, host);

    return error != cudaSuccess ? error
                                : cudaMemcpyAsync((char *)to + offset, from, bytes, kind, stream);
}

SIM_EXPORT cudaError_t cudaMemcpyToSymbol(const void *host, const void *from, size_t bytes,
                                          size_t offset, enum cudaMemcpyKind kind)
{
    void *to;
    cudaError_t error = cudaGetSymbolAddress(&to, host);

    return error != cudaSuccess ? error : cudaMemcpy((char *)to + offset, from, bytes, kind);
}

/* Code loaded at run time: a fat binary, or PTX as NVRTC writes it.  Machine code has no PTX to
 * run and is refused, in the words of a GPU for which there is none. */
SIM_EXPORT cudaError_t cudaLibraryLoadData(cudaLibrary_t *out, const void *code,
                                           enum cudaJitOption *options, void **values,
                                           unsigned count, enum cudaLibraryOption *library_options,
                                           void **library_values, unsigned library_count)
{
    BEGIN(cudaLibraryLoadData);
    struct fat_wrapper fat;
    struct module *module;
    (void)options, (void)values, (void)count;
    (void)library_options, (void)library_values, (void)library_count;
    memcpy(&fat, code, sizeof(fat.magic));
    if (fat.magic == FATBIN_WRAPPER) {
        memcpy(&fat, code, sizeof(fat));
        module = fat_load(fat.data);
    } else if (fat.magic == 0xBA55ED50) {
        module = fat_load(code);
    } else if (memcmp(code, "\177ELF", 4) == 0) {
        return api_end(cudaErrorNoKernelImageForDevice);
    } else {
        module = module_make(code, strlen(code));
    }
    if (module == NULL || module_read(module) == NULL) /* the caller may free the code now */
        return api_end(cudaErrorInvalidPtx);
    sim_lock();
    open_count(OPEN_LIBRARY, 1);
    sim_unlock();
    *out = (cudaLibrary_t)module;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    BEGIN_ALIVE(cudaLibraryUnload);
    struct module *module = (struct module *)library;
    if (module == NULL || module->magic != MODULE_MAGIC)
        return api_end(cudaErrorInvalidValue);
    __cudaUnregisterFatBinary((void **)module);
    sim_lock();
    open_count(OPEN_LIBRARY, -1);
    sim_unlock();
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaLibraryGetKernel(cudaKernel_t *out, cudaLibrary_t library,
                                            const char *name)
{
    BEGIN(cudaLibraryGetKernel);
    struct module *module = (struct module *)library;
    char why[512];
    if (module == NULL || module->magic != MODULE_MAGIC)
        return api_end(cudaErrorInvalidValue);
    if (ptx_find(module->ptx, name, why, sizeof(why)) == NULL) {
        finding("%s: %s", name, why);
        return api_end(cudaErrorSymbolNotFound);
    }
    *out = (cudaKernel_t)kernel_add(module, NULL, name);
    return api_end(*out != NULL ? cudaSuccess : cudaErrorMemoryAllocation);
}
