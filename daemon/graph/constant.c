#include "graph/graph.h"

#include <stdlib.h>

struct constant *constant_create(const struct tensor *tensor, void *owner,
                                 void (*release)(struct constant *))
{
    struct constant *constant = malloc(sizeof(*constant));

    if (constant == NULL)
        return NULL;
    atomic_init(&constant->references, 1);
    constant->tensor = *tensor;
    constant->owner = owner;
    constant->release = release;
    constant->mapped = false;
    return constant;
}

static void free_elements(struct constant *constant)
{
    free(constant->owner);
}

struct constant *constant_allocate(enum dtype dtype, const struct shape *shape)
{
    struct tensor tensor = {.dtype = dtype, .shape = *shape};
    struct constant *constant;
    size_t bytes;
    void *data;

    /* 64-byte alignment and a whole number of vectors: kernels may read constants in wide loads. */
    bytes = (tensor_bytes(&tensor) + 63) & ~(size_t)63;
    data = aligned_alloc(64, bytes == 0 ? 64 : bytes);
    if (data == NULL)
        return NULL;
    __builtin_memset(data, 0, bytes);
    tensor.data = data;
    constant = constant_create(&tensor, data, free_elements);
    if (constant == NULL)
        free(data);
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
    free(constant);
}
