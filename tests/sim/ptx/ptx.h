/* An interpreter of PTX: runs what nvcc wrote into the plug-in, a warp at a time, and checks it.
 *
 * Memory is the caller's: ptx_memory says what lies behind an address.
 * Threads: a module is loaded and its kernels are found by one thread at a time; ptx_run() may use
 * several threads of its own.
 */
#ifndef SLUICE_TESTS_SIM_PTX_H
#define SLUICE_TESTS_SIM_PTX_H

#include "../space.h"

struct ptx_module;
struct ptx_kernel;

/* One parameter of a kernel: where it lies in the block of parameters. */
struct ptx_parameter {
    size_t offset;
    size_t bytes;
};

struct ptx_info {
    const char *name;
    const struct ptx_parameter *parameters;
    size_t parameter_count;
    size_t parameter_bytes;
    size_t shared_bytes;  /* static */
    size_t local_bytes;   /* a thread */
    unsigned max_threads; /* .maxntid, 0: none */
    unsigned registers;
};

/* Variable of a module, .global or .const. */
struct ptx_variable {
    const char *name;
    size_t bytes;
    size_t align;
    uint64_t address;             /* the caller's to set, before a kernel that uses it is found */
    const unsigned char *initial; /* NULL: zeros */
};

/* See sim_watch_sectors(). */
void ptx_watch_sectors(const char *name);
uint64_t ptx_sectors(uint64_t *out_accesses);

/* Reads the text of a module: finds its functions and variables, decodes none.  NULL and a sentence
 * when it is no PTX. */
struct ptx_module *ptx_load(const char *text, size_t bytes, char *out_why, size_t why_bytes);
void ptx_unload(struct ptx_module *module);
struct ptx_variable *ptx_variables(struct ptx_module *module, size_t *out_count);

/* Decodes a kernel at the first call.  NULL and a sentence when there is none of that name, or when
 * it has an instruction that the interpreter does not know: it never guesses. */
struct ptx_kernel *ptx_find(struct ptx_module *module, const char *name, char *out_why,
                            size_t why_bytes);
const struct ptx_info *ptx_info(const struct ptx_kernel *kernel);

/* Names of the kernels of a module, NULL behind the last. */
const char *ptx_kernel_name(const struct ptx_module *module, size_t index);

struct ptx_grid {
    unsigned grid[3];
    unsigned block[3];
    size_t dynamic_shared_bytes;
    const unsigned char *parameters;
    unsigned threads; /* of the host; 0: one a processor */
    uint64_t order;   /* of the blocks: 0 forwards, 1 backwards, else the seed of a shuffle */
    uint64_t endless; /* instructions of a thread that is taken for endless; 0: 2^31 */
    bool check_races;
    bool check_uninitialised;
    uint64_t instructions; /* out: run, counted a lane */
};

/* Why a kernel died; what it did wrong is a finding. */
enum ptx_end {
    PTX_DONE,
    PTX_ILLEGAL_ADDRESS,
    PTX_MISALIGNED,
    PTX_ILLEGAL_INSTRUCTION,
    PTX_ASSERT,
    PTX_FAILED,  /* a checker found something that hardware may not notice */
    PTX_TIMEOUT, /* all threads wait, or one never ends */
};

enum ptx_end ptx_run(const struct ptx_kernel *kernel, struct ptx_grid *grid);

#endif
