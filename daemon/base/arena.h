/* Host memory of one lifetime: many small pieces, given back together.
 *
 * A model, a plan, a request each own one.  Pieces are 16-byte aligned and zeroed.
 * Threads: none; one owner.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks; /* newest first */
    size_t used_bytes;          /* of the newest block */
    size_t total_bytes;         /* held from malloc, all blocks */
};

void arena_init(struct arena *arena);
/* Gives everything back; the arena is empty and usable again. */
void arena_deinit(struct arena *arena);
/* Forgets every piece but keeps the newest block for reuse: a request's arena between requests. */
void arena_reset(struct arena *arena);

/* Zeroed memory, or NULL when malloc refuses (or the size overflows). */
void *arena_take(struct arena *arena, size_t bytes);
void *arena_take_array(struct arena *arena, size_t count, size_t bytes_each);
/* A terminated copy; NULL when malloc refuses. */
char *arena_copy_string(struct arena *arena, const char *text, size_t length);
char *arena_format(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void *arena_copy(struct arena *arena, const void *bytes, size_t count);

#endif
