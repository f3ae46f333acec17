#include "device/weights.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device/weights_copy.h"

enum {
    ALIGNMENT = 64,
    CHUNK_BYTES = 4 << 20, /* addresses only; a larger piece gets a chunk of its own size */
    BUCKETS = 64,
    POPULATED_BYTES = 16 << 10 /* a call for all its pages is worth it from here on */
};

struct chunk {
    struct chunk *next;
    char *base;
    size_t reserved_bytes;
    size_t committed_bytes;
    size_t used_bytes;
};

struct piece {
    struct piece *next; /* in its bucket */
    const void *key;
    void *packed;
    size_t bytes;
    char format[];
};

/* Room that a dropped piece left behind, for one of the same size. */
struct spare {
    struct spare *next;
    void *at;
    size_t room;
};

struct weights_cache {
    pthread_mutex_t lock;
    struct mem_source *source;
    struct ledger_account *account;
    struct chunk *chunks; /* the one being filled first */
    struct piece *buckets[BUCKETS];
    struct spare *spares;
    const struct weights_copy *copy; /* to fill pieces from; NULL: none */
    struct chunk *lent;              /* by weights_borrow() */
};

/* The cache that this thread has frozen: others may prepare kernels meanwhile. */
static _Thread_local const struct weights_cache *frozen_here;

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static size_t bucket_of(const void *key)
{
    return ((uintptr_t)key >> 5) * UINT64_C(0x9E3779B97F4A7C15) >> 58;
}

enum status weights_cache_create(struct mem_source *source, struct ledger_account *account,
                                 struct weights_cache **out_cache)
{
    struct weights_cache *cache = calloc(1, sizeof(*cache));

    if (cache == NULL)
        return STATUS_NO_MEMORY;
    pthread_mutex_init(&cache->lock, NULL);
    cache->source = source;
    cache->account = account;
    *out_cache = cache;
    return STATUS_OK;
}

static void unbook(struct weights_cache *cache, const struct chunk *chunk)
{
    const struct ledger_piece held = {.bytes = chunk->committed_bytes,
                                      .address = (uintptr_t)chunk->base};

    if (cache->account != NULL && held.bytes > 0)
        ledger_sub_at(cache->account, &held);
}

static void chunk_destroy(struct weights_cache *cache, struct chunk *chunk)
{
    struct mem_source *source = cache->source;

    if (chunk->committed_bytes > 0)
        source->ops->decommit(source, chunk->base, chunk->committed_bytes);
    unbook(cache, chunk);
    source->ops->release(source, chunk->base, chunk->reserved_bytes);
    free(chunk);
}

static void destroy_pieces(struct weights_cache *cache)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct piece *piece = cache->buckets[i], *next; piece != NULL; piece = next) {
            next = piece->next;
            free(piece);
        }
}

void weights_cache_destroy(struct weights_cache *cache)
{
    if (cache == NULL)
        return;
    destroy_pieces(cache);
    for (struct spare *spare = cache->spares, *next; spare != NULL; spare = next) {
        next = spare->next;
        free(spare);
    }
    for (struct chunk *chunk = cache->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        chunk_destroy(cache, chunk);
    }
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

bool weights_cache_has(struct weights_cache *cache, const void *key)
{
    const struct piece *piece;

    pthread_mutex_lock(&cache->lock);
    piece = cache->buckets[bucket_of(key)];
    while (piece != NULL && piece->key != key)
        piece = piece->next;
    pthread_mutex_unlock(&cache->lock);
    return piece != NULL;
}

uint64_t weights_cache_bytes(struct weights_cache *cache, const char *what)
{
    size_t length = strlen(what);
    uint64_t bytes = 0;

    pthread_mutex_lock(&cache->lock);
    for (size_t i = 0; i < BUCKETS; i++)
        for (const struct piece *piece = cache->buckets[i]; piece != NULL; piece = piece->next)
            if (strncmp(piece->format, what, length) == 0)
                bytes += piece->bytes;
    pthread_mutex_unlock(&cache->lock);
    return bytes;
}

void weights_cache_freeze(struct weights_cache *cache, bool frozen)
{
    frozen_here = frozen ? cache : NULL;
}

static enum status chunk_create(struct weights_cache *cache, size_t bytes, struct chunk **out_chunk)
{
    struct mem_source *source = cache->source;
    struct chunk *chunk = calloc(1, sizeof(*chunk));
    void *base;

    if (chunk == NULL)
        return STATUS_NO_MEMORY;
    if (bytes < CHUNK_BYTES && !source->moves)
        bytes = CHUNK_BYTES;
    chunk->reserved_bytes = round_up(bytes, source->page_bytes);
    if (source->ops->reserve(source, chunk->reserved_bytes, &base) != STATUS_OK) {
        free(chunk);
        return STATUS_NO_MEMORY;
    }
    chunk->base = base;
    *out_chunk = chunk;
    return STATUS_OK;
}

/* Books and commits what the chunk lacks for `bytes` more. */
static enum status chunk_grow(struct weights_cache *cache, struct chunk *chunk, size_t bytes)
{
    struct mem_source *source = cache->source;
    size_t wanted = round_up(chunk->used_bytes + bytes, source->page_bytes);
    size_t more = wanted > chunk->committed_bytes ? wanted - chunk->committed_bytes : 0;
    const struct ledger_piece piece = {
        .bytes = more,
        .address = (uintptr_t)(chunk->base + chunk->committed_bytes),
        .grows = chunk->committed_bytes > 0,
    };

    if (more == 0)
        return STATUS_OK;
    if (cache->account != NULL)
        TRY(ledger_add_at(cache->account, &piece));
    if (source->ops->commit(source, chunk->base + chunk->committed_bytes, more) != STATUS_OK) {
        if (cache->account != NULL)
            ledger_undo_add(cache->account, &piece);
        return STATUS_NO_MEMORY;
    }
    chunk->committed_bytes = wanted;
    return STATUS_OK;
}

static enum status take(struct weights_cache *cache, size_t bytes, void **out_packed)
{
    struct chunk *chunk = cache->chunks;
    bool fits = chunk != NULL && bytes <= chunk->reserved_bytes - chunk->used_bytes;

    if (!fits)
        TRY(chunk_create(cache, bytes, &chunk));
    if (chunk_grow(cache, chunk, bytes) != STATUS_OK) {
        if (!fits)
            chunk_destroy(cache, chunk);
        return STATUS_NO_MEMORY;
    }
    *out_packed = chunk->base + chunk->used_bytes;
    chunk->used_bytes += bytes;
    if (fits)
        return STATUS_OK;
    if (bytes > CHUNK_BYTES / 2 && cache->chunks != NULL) { /* full at once: go on with the other */
        chunk->next = cache->chunks->next;
        cache->chunks->next = chunk;
    } else {
        chunk->next = cache->chunks;
        cache->chunks = chunk;
    }
    return STATUS_OK;
}

/* Pieces come again in the few sizes of a model's values: only the very size is used again. */
static bool take_spare(struct weights_cache *cache, size_t room, void **out_packed)
{
    struct spare **link = &cache->spares, *spare;

    while ((spare = *link) != NULL && spare->room != room)
        link = &spare->next;
    if (spare == NULL)
        return false;
    *link = spare->next;
    *out_packed = spare->at;
    free(spare);
    return true;
}

/* Without memory to note it the room is lost until the cache goes. */
static void keep_spare(struct weights_cache *cache, void *at, size_t room)
{
    struct spare *spare = malloc(sizeof(*spare));

    if (spare == NULL)
        return;
    *spare = (struct spare){.next = cache->spares, .at = at, .room = room};
    cache->spares = spare;
}

static size_t room_of(size_t bytes)
{
    return bytes > 0 ? round_up(bytes, ALIGNMENT) : ALIGNMENT;
}

static struct piece *find(const struct weights_cache *cache, const void *key, const char *format)
{
    struct piece *piece = cache->buckets[bucket_of(key)];

    while (piece != NULL && (piece->key != key || strcmp(piece->format, format) != 0))
        piece = piece->next;
    return piece;
}

static enum status make(struct weights_cache *cache, const void *key, const char *format,
                        size_t bytes, struct piece **out_piece)
{
    size_t length = strlen(format) + 1;
    struct piece *piece = malloc(sizeof(*piece) + length);

    if (piece == NULL)
        return STATUS_NO_MEMORY;
    if (bytes > SIZE_MAX / 4 || (!take_spare(cache, room_of(bytes), &piece->packed) &&
                                 take(cache, room_of(bytes), &piece->packed) != STATUS_OK)) {
        free(piece);
        return STATUS_NO_MEMORY;
    }
    piece->key = key;
    piece->bytes = bytes;
    if (cache->account != NULL &&
        ledger_piece_made(cache->account, (uintptr_t)piece->packed, bytes) != STATUS_OK) {
        free(piece); /* its place in the chunk stays empty */
        return STATUS_NO_MEMORY;
    }
    memcpy(piece->format, format, length);
    piece->next = cache->buckets[bucket_of(key)];
    cache->buckets[bucket_of(key)] = piece;
    *out_piece = piece;
    return STATUS_OK;
}

/* Its memory stays the cache's, for a piece of the same size. */
static void drop(struct weights_cache *cache, const void *key, const char *format)
{
    struct piece **link = &cache->buckets[bucket_of(key)], *piece;

    while ((piece = *link) != NULL && (piece->key != key || strcmp(piece->format, format) != 0))
        link = &piece->next;
    if (piece == NULL)
        return;
    *link = piece->next;
    if (cache->account != NULL)
        ledger_piece_gone(cache->account, (uintptr_t)piece->packed);
    keep_spare(cache, piece->packed, room_of(piece->bytes));
    free(piece);
}

/* The copy has it, or not: it is new. */
static enum status fill_from_copy(struct weights_cache *cache, struct piece *piece,
                                  bool *out_is_new)
{
    const void *saved = cache->copy == NULL ? NULL
                                            : weights_copy_find(cache->copy, piece->key,
                                                                piece->format, piece->bytes);

    *out_is_new = saved == NULL;
    return saved == NULL ? STATUS_OK : weights_write(cache, piece->packed, saved, piece->bytes);
}

enum status weights_share(struct weights_cache *cache, const void *key, const char *format,
                          size_t bytes, void **out_packed, bool *out_is_new)
{
    enum status status = STATUS_OK;
    struct piece *piece;
    bool is_new = false;

    pthread_mutex_lock(&cache->lock);
    piece = find(cache, key, format);
    if (piece == NULL && frozen_here == cache) {
        status = STATUS_UNSUPPORTED;
    } else if (piece == NULL) {
        status = make(cache, key, format, bytes, &piece);
        if (status == STATUS_OK) {
            status = fill_from_copy(cache, piece, &is_new);
            if (status != STATUS_OK)
                drop(cache, key, format);
        }
    } else if (piece->bytes != bytes) {
        status = STATUS_INTERNAL; /* two kernels gave one name to different things */
    }
    pthread_mutex_unlock(&cache->lock);
    if (status != STATUS_OK)
        return status;
    if (is_new && bytes >= POPULATED_BYTES && cache->source->ops->populate != NULL)
        cache->source->ops->populate(cache->source, piece->packed, bytes);
    *out_packed = piece->packed;
    *out_is_new = is_new;
    return STATUS_OK;
}

enum status weights_write(struct weights_cache *cache, void *packed, const void *from, size_t bytes)
{
    const struct mem_source_ops *ops = cache->source->ops;

    if (bytes == 0)
        return STATUS_OK;
    if (ops->write != NULL)
        return ops->write(cache->source, packed, from, bytes);
    memcpy(packed, from, bytes);
    return STATUS_OK;
}

void weights_drop(struct weights_cache *cache, const void *key, const char *format)
{
    pthread_mutex_lock(&cache->lock);
    drop(cache, key, format);
    pthread_mutex_unlock(&cache->lock);
}

void weights_each(struct weights_cache *cache, weights_each_fn visit, void *arg)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (const struct piece *piece = cache->buckets[i]; piece != NULL; piece = piece->next)
            visit(arg, &(struct weights_piece){.key = piece->key,
                                               .format = piece->format,
                                               .packed = piece->packed,
                                               .bytes = piece->bytes});
}

enum status weights_read(struct weights_cache *cache, void *to, const void *packed, size_t bytes)
{
    const struct mem_source_ops *ops = cache->source->ops;

    if (ops->read != NULL)
        return ops->read(cache->source, to, packed, bytes);
    memcpy(to, packed, bytes);
    return STATUS_OK;
}

void weights_cache_fill_from(struct weights_cache *cache, const struct weights_copy *copy)
{
    pthread_mutex_lock(&cache->lock);
    cache->copy = copy;
    pthread_mutex_unlock(&cache->lock);
}

enum status weights_borrow(struct weights_cache *cache, size_t bytes, void **out_memory)
{
    struct chunk *chunk = NULL;
    enum status status;

    pthread_mutex_lock(&cache->lock);
    status = frozen_here == cache ? STATUS_UNSUPPORTED : chunk_create(cache, bytes, &chunk);
    if (status == STATUS_OK)
        status = chunk_grow(cache, chunk, bytes);
    if (status == STATUS_OK) {
        chunk->next = cache->lent;
        cache->lent = chunk;
        *out_memory = chunk->base;
    } else if (chunk != NULL) {
        chunk_destroy(cache, chunk);
    }
    pthread_mutex_unlock(&cache->lock);
    return status;
}

void weights_return(struct weights_cache *cache, void *memory)
{
    struct chunk **link = &cache->lent, *chunk;

    pthread_mutex_lock(&cache->lock);
    while ((chunk = *link) != NULL && chunk->base != memory)
        link = &chunk->next;
    if (chunk != NULL) {
        *link = chunk->next;
        chunk_destroy(cache, chunk);
    }
    pthread_mutex_unlock(&cache->lock);
}
