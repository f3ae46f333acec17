#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Large elements get pages of their own: malloc would keep them for itself when they are freed. */
enum { LARGE_BYTES = 128 * 1024, ALIGNMENT = 64, PAGE_BYTES = 4096 };

/* Pages of large elements that this thread freed, between constant_reuse_begin() and _end(): those
 * of a weight and of what it is computed from. */
enum { SPARES = 2 };
static _Thread_local struct {
    bool is_on;
    struct spare {
        char *data;
        size_t bytes; /* whole pages; 0: none */
    } spare[SPARES];
} pages;

struct constant *constant_create(const struct tensor *tensor, void *owner,
                                 void (*release)(struct constant *))
{
    struct constant *constant = calloc(1, sizeof(*constant));

    if (constant == NULL)
        return NULL;
    atomic_init(&constant->references, 1);
    constant->tensor = *tensor;
    constant->owner = owner;
    constant->release = release;
    return constant;
}

/* 64-byte alignment and a whole number of vectors: kernels may read constants in wide loads. */
static size_t padded_bytes(const struct tensor *tensor)
{
    size_t bytes = (tensor_bytes(tensor) + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);

    return bytes == 0 ? ALIGNMENT : bytes;
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* The smallest that is large enough, cut to size; NULL: there is none. */
static void *take_spare(size_t bytes)
{
    struct spare *best = NULL;
    char *data;

    bytes = whole_pages(bytes);
    for (size_t i = 0; i < SPARES; i++) {
        struct spare *spare = &pages.spare[i];

        if (spare->bytes >= bytes && (best == NULL || spare->bytes < best->bytes))
            best = spare;
    }
    if (best == NULL)
        return NULL;
    data = best->data;
    if (best->bytes > bytes)
        (void)munmap(data + bytes, best->bytes - bytes);
    best->bytes = 0;
    return data;
}

/* The larger ones are kept. */
static bool keep_spare(void *data, size_t bytes)
{
    struct spare *least = &pages.spare[0];

    for (size_t i = 1; i < SPARES; i++)
        if (pages.spare[i].bytes < least->bytes)
            least = &pages.spare[i];
    bytes = whole_pages(bytes);
    if (!pages.is_on || least->bytes >= bytes)
        return false;
    if (least->bytes > 0)
        (void)munmap(least->data, least->bytes);
    *least = (struct spare){data, bytes};
    return true;
}

void constant_reuse_begin(void)
{
    pages.is_on = true;
}

void constant_reuse_end(void)
{
    for (size_t i = 0; i < SPARES; i++) {
        if (pages.spare[i].bytes > 0)
            (void)munmap(pages.spare[i].data, pages.spare[i].bytes);
        pages.spare[i].bytes = 0;
    }
    pages.is_on = false;
}

/* What is in them is of no meaning. */
static void *allocate_elements(size_t bytes)
{
    void *data;

    if (bytes < LARGE_BYTES)
        return aligned_alloc(ALIGNMENT, bytes);
    data = take_spare(bytes);
    if (data != NULL)
        return data;
    /* All at once: they are about to be written, and a fault a page takes longer than that. */
    data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1,
                0);
    return data == MAP_FAILED ? NULL : data;
}

static void free_elements(struct constant *constant)
{
    size_t bytes = padded_bytes(&constant->tensor);

    if (constant->owner == NULL)
        return;
    if (bytes < LARGE_BYTES)
        free(constant->owner);
    else if (!keep_spare(constant->owner, bytes))
        (void)munmap(constant->owner, bytes);
    constant->owner = NULL;
    constant->tensor.data = NULL;
}

struct constant *constant_allocate(enum dtype dtype, const struct shape *shape)
{
    struct tensor tensor = {.dtype = dtype, .shape = *shape};
    size_t bytes = padded_bytes(&tensor);
    void *data = allocate_elements(bytes);
    struct constant *constant;

    if (data == NULL)
        return NULL;
    memset(data, 0, bytes);
    tensor.data = data;
    constant = constant_create(&tensor, data, free_elements);
    if (constant == NULL) {
        struct constant left = {.tensor = tensor, .owner = data};

        free_elements(&left);
    }
    return constant;
}

bool constant_is_heavy(enum dtype dtype, const struct shape *shape)
{
    const struct tensor tensor = {.dtype = dtype, .shape = *shape};
    size_t wide = 0;

    for (size_t i = 0; i < shape->rank; i++)
        wide += shape->dims[i] > 1;
    return dtype == DTYPE_FLOAT && wide >= 2 && tensor_bytes(&tensor) >= CONSTANT_HEAVY_BYTES;
}

struct constant *constant_promise(enum dtype dtype, const struct shape *shape,
                                  struct constant_origin *origin)
{
    const struct tensor tensor = {.dtype = dtype, .shape = *shape};
    struct constant *constant = constant_create(&tensor, NULL, free_elements);

    if (constant != NULL)
        constant->origin = origin;
    return constant;
}

struct constant *constant_ref(struct constant *constant)
{
    atomic_fetch_add_explicit(&constant->references, 1, memory_order_relaxed);
    return constant;
}

void constant_unref(struct constant *constant)
{
    if (constant == NULL ||
        atomic_fetch_sub_explicit(&constant->references, 1, memory_order_acq_rel) != 1)
        return;
    if (constant->release != NULL)
        constant->release(constant);
    if (constant->origin != NULL)
        constant->origin->release(constant->origin);
    free(constant);
}

/* What it was computed from, when nobody else holds that. */
static void drop_source(const struct constant *constant)
{
    struct constant *source = constant->origin != NULL ? constant->origin->source : NULL;

    if (source != NULL && atomic_load_explicit(&source->references, memory_order_relaxed) == 1)
        constant_drop(source);
}

void constant_drop(struct constant *constant)
{
    if (constant->origin != NULL && constant->release == free_elements)
        free_elements(constant);
    drop_source(constant);
}

enum status constant_restore(struct constant *constant)
{
    enum status status;
    size_t bytes;
    char *data;

    if (constant->tensor.data != NULL || constant->origin == NULL)
        return STATUS_OK;
    if (constant->origin->source != NULL)
        TRY(constant_restore(constant->origin->source));
    bytes = padded_bytes(&constant->tensor);
    data = allocate_elements(bytes);
    if (data == NULL)
        return STATUS_NO_MEMORY;
    memset(data + bytes - ALIGNMENT, 0, ALIGNMENT); /* what is behind the last one */
    constant->owner = data;
    constant->tensor.data = data;
    status = constant->origin->restore(constant->origin, data);
    if (status != STATUS_OK) {
        free_elements(constant);
        return status;
    }
    drop_source(constant);
    return STATUS_OK;
}

enum status constant_check(const struct constant *constant)
{
    const struct constant_origin *origin = constant->origin;

    if (origin == NULL)
        return STATUS_OK;
    if (origin->source != NULL)
        TRY(constant_check(origin->source));
    for (size_t i = 0; i < origin->others; i++)
        TRY(constant_check(origin->other[i]));
    return origin->check == NULL ? STATUS_OK : origin->check(origin);
}
