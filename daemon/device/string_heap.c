#include <stdint.h>
#include <stdlib.h>

#include "base/arena.h"
#include "device/kernel.h"

struct string_heap {
    struct arena arena;
};

struct string_heap *string_heap_create(void)
{
    struct string_heap *heap = malloc(sizeof(*heap));

    if (heap != NULL)
        arena_init(&heap->arena);
    return heap;
}

void string_heap_destroy(struct string_heap *heap)
{
    if (heap == NULL)
        return;
    arena_deinit(&heap->arena);
    free(heap);
}

char *string_heap_take(struct string_heap *heap, size_t size)
{
    return heap == NULL ? NULL : arena_take(&heap->arena, size > 0 ? size : 1);
}
