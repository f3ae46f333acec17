/* The answers of one batch: one block of the host pool, this header at its start, counted by the
 * requests that hold slices of it.  Outputs whose size only the run can tell get blocks of their
 * own. */
#include <stdlib.h>

#include "batch/internal.h"

enum { HEADER_BYTES = 64 };

struct extra_block { /* followed by its data at HEADER_BYTES */
    struct extra_block *next;
    size_t bytes;
};

struct response_buffer {
    atomic_uint references;
    struct host_pool *pool;
    size_t bytes; /* of the block */
    struct string_heap *strings;
    struct extra_block *extra;
};

_Static_assert(sizeof(struct response_buffer) <= HEADER_BYTES, "the data starts behind the header");

enum status response_create(struct host_pool *pool, size_t bytes,
                            struct response_buffer **out_response)
{
    struct response_buffer *response;
    void *block;

    if (bytes > SIZE_MAX - HEADER_BYTES)
        return STATUS_NO_MEMORY;
    TRY(host_pool_take(pool, bytes + HEADER_BYTES, &block));
    response = block;
    atomic_init(&response->references, 1);
    response->pool = pool;
    response->bytes = bytes + HEADER_BYTES;
    response->strings = NULL;
    response->extra = NULL;
    *out_response = response;
    return STATUS_OK;
}

uint64_t response_charge(size_t bytes)
{
    return bytes > SIZE_MAX - HEADER_BYTES ? UINT64_MAX : host_pool_charge(bytes + HEADER_BYTES);
}

void *response_data(struct response_buffer *response)
{
    return (char *)response + HEADER_BYTES;
}

void *response_extend(struct response_buffer *response, size_t bytes)
{
    struct extra_block *block;
    void *taken;

    if (bytes > SIZE_MAX - HEADER_BYTES ||
        host_pool_take(response->pool, bytes + HEADER_BYTES, &taken) != STATUS_OK)
        return NULL;
    block = taken;
    block->next = response->extra;
    block->bytes = bytes + HEADER_BYTES;
    response->extra = block;
    return (char *)taken + HEADER_BYTES;
}

struct string_heap *response_strings(struct response_buffer *response)
{
    if (response->strings == NULL)
        response->strings = string_heap_create();
    return response->strings;
}

struct response_buffer *response_ref(struct response_buffer *response)
{
    atomic_fetch_add_explicit(&response->references, 1, memory_order_relaxed);
    return response;
}

void response_unref(struct response_buffer *response)
{
    if (response == NULL ||
        atomic_fetch_sub_explicit(&response->references, 1, memory_order_acq_rel) != 1)
        return;
    string_heap_destroy(response->strings);
    while (response->extra != NULL) {
        struct extra_block *block = response->extra;

        response->extra = block->next;
        host_pool_give(response->pool, block, block->bytes);
    }
    host_pool_give(response->pool, response, response->bytes);
}

void request_release(struct request *request)
{
    response_unref(request->response);
    request->response = NULL;
    arena_reset(&request->arena);
}
