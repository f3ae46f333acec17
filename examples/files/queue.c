#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A ring of pointers that grows by doubling. */
struct queue {
    void **slots;
    size_t capacity, head, count;
};

static bool grow(struct queue *queue)
{
    size_t capacity = queue->capacity ? queue->capacity * 2 : 16;
    void **slots = malloc(capacity * sizeof(*slots));

    if (slots == NULL)
        return false;
    for (size_t i = 0; i < queue->count; i++)
        slots[i] = queue->slots[(queue->head + i) % queue->capacity];
    free(queue->slots);
    queue->slots = slots;
    queue->capacity = capacity;
    queue->head = 0;
    return true;
}

bool queue_push(struct queue *queue, void *item)
{
    if (queue->count == queue->capacity && !grow(queue))
        return false;
    queue->slots[(queue->head + queue->count++) % queue->capacity] = item;
    return true;
}
