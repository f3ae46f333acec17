#include "memory/blocks.h"

#include <stdlib.h>
#include <string.h>

size_t blocks_find(const struct blocks *blocks, uint64_t address)
{
    size_t low = 0, high = blocks->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct mem_block *block = &blocks->items[middle];

        if (block->address + block->bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum status make_room(struct blocks *blocks)
{
    size_t room = blocks->room * 2 + 16;
    struct mem_block *grown;

    if (blocks->count < blocks->room)
        return STATUS_OK;
    grown = realloc(blocks->items, room * sizeof(*grown));
    if (grown == NULL)
        return STATUS_NO_MEMORY;
    blocks->items = grown;
    blocks->room = room;
    return STATUS_OK;
}

enum status blocks_add(struct blocks *blocks, const struct mem_block *block)
{
    size_t at = blocks_find(blocks, block->address);

    TRY(make_room(blocks));
    memmove(&blocks->items[at + 1], &blocks->items[at],
            (blocks->count - at) * sizeof(*blocks->items));
    blocks->items[at] = *block;
    blocks->count++;
    return STATUS_OK;
}

bool blocks_join(struct blocks *blocks, const struct mem_block *block)
{
    size_t at = blocks_find(blocks, block->address);
    struct mem_block *before = at > 0 ? &blocks->items[at - 1] : NULL;

    if (before == NULL || before->address + before->bytes != block->address)
        return false;
    before->bytes += block->bytes;
    before->requested += block->requested;
    return true;
}

void blocks_remove(struct blocks *blocks, size_t first, size_t count)
{
    if (count == 0)
        return;
    memmove(&blocks->items[first], &blocks->items[first + count],
            (blocks->count - first - count) * sizeof(*blocks->items));
    blocks->count -= count;
}

void blocks_deinit(struct blocks *blocks)
{
    free(blocks->items);
    *blocks = (struct blocks){.count = 0};
}
