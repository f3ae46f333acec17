/* Kernels: what is registered under a function of the host, and how one is started. */
#ifndef SLUICE_TESTS_SIM_LAUNCH_H
#define SLUICE_TESTS_SIM_LAUNCH_H

#include "ptx/ptx.h"
#include "stream.h"

/* A kernel that a program registered, or that a loaded library has. */
struct kernel {
    uint32_t magic;
    const void *host; /* the stub's address; NULL for libraries */
    char *name;
    struct module *module;
    struct ptx_kernel *ptx;      /* NULL until first used: loading is lazy, as the default is */
    size_t dynamic_shared_bytes; /* allowed by cudaFuncSetAttribute */
    struct kernel *next;
};

enum { KERNEL_MAGIC = 0x6b65726e };

/* Limits of a block that the simulated device has. */
enum {
    SHARED_BYTES = 48 << 10,        /* without asking */
    SHARED_OPTIN_BYTES = 227 << 10, /* static and dynamic, when asked for */
    BLOCK_THREADS = 1024,
};

/* The kernel behind a handle or a stub. */
struct kernel *kernel_of(const void *function);
/* Its PTX, decoded at the first call.  NULL and a finding when the simulator cannot run it. */
const struct ptx_info *kernel_load(struct kernel *kernel);

/* The work of a launch: checks it against the device's limits and copies its arguments. */
cudaError_t kernel_work_make(struct kernel *kernel, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, struct work *out);
void kernel_run(const struct kernel_work *work);
unsigned char *kernel_parameters_copy(const struct kernel_work *work);

/* Modules (module.c). */
struct ptx_kernel *module_kernel(struct module *module, const char *name);

#endif
