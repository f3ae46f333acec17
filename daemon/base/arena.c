#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 16, FIRST_BLOCK_BYTES = 4096, LARGEST_BLOCK_BYTES = 1 << 20 };

struct arena_block {
    struct arena_block *older;
    size_t bytes; /* usable, behind this header */
    _Alignas(ALIGNMENT) unsigned char data[];
};

void arena_init(struct arena *arena)
{
    *arena = (struct arena){0};
}

static void free_blocks(struct arena_block *block)
{
    while (block != NULL) {
        struct arena_block *older = block->older;

        free(block);
        block = older;
    }
}

void arena_deinit(struct arena *arena)
{
    free_blocks(arena->blocks);
    arena_init(arena);
}

void arena_reset(struct arena *arena)
{
    if (arena->blocks == NULL)
        return;
    free_blocks(arena->blocks->older);
    arena->blocks->older = NULL;
    arena->total_bytes = arena->blocks->bytes;
    arena->used_bytes = 0;
}

static struct arena_block *add_block(struct arena *arena, size_t least_bytes)
{
    size_t bytes = arena->blocks == NULL ? FIRST_BLOCK_BYTES : arena->blocks->bytes * 2;
    struct arena_block *block;

    if (bytes > LARGEST_BLOCK_BYTES)
        bytes = LARGEST_BLOCK_BYTES;
    if (bytes < least_bytes)
        bytes = least_bytes;
    if (bytes > SIZE_MAX - sizeof(*block))
        return NULL;
    block = malloc(sizeof(*block) + bytes);
    if (block == NULL)
        return NULL;
    block->older = arena->blocks;
    block->bytes = bytes;
    arena->blocks = block;
    arena->used_bytes = 0;
    arena->total_bytes += bytes;
    return block;
}

void *arena_take(struct arena *arena, size_t bytes)
{
    size_t rounded = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    struct arena_block *block = arena->blocks;
    void *piece;

    if (rounded < bytes)
        return NULL;
    if (block == NULL || block->bytes - arena->used_bytes < rounded)
        block = add_block(arena, rounded);
    if (block == NULL)
        return NULL;
    piece = block->data + arena->used_bytes;
    arena->used_bytes += rounded;
    return memset(piece, 0, rounded);
}

void *arena_take_array(struct arena *arena, size_t count, size_t bytes_each)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, bytes_each, &bytes))
        return NULL;
    return arena_take(arena, bytes);
}

void *arena_copy(struct arena *arena, const void *bytes, size_t count)
{
    void *copy = arena_take(arena, count);

    if (copy != NULL && count > 0)
        memcpy(copy, bytes, count);
    return copy;
}

char *arena_copy_string(struct arena *arena, const char *text, size_t length)
{
    char *copy = length == SIZE_MAX ? NULL : arena_take(arena, length + 1);

    if (copy != NULL && length > 0)
        memcpy(copy, text, length);
    return copy;
}

char *arena_format(struct arena *arena, const char *format, ...)
{
    va_list args, again;
    int length;
    char *text;

    va_start(args, format);
    va_copy(again, args);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    text = length < 0 ? NULL : arena_take(arena, (size_t)length + 1);
    if (text != NULL)
        (void)vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}
