/* A copy of packed weights in host memory: one block, page-locked where the device can, with the
 * pieces one behind the other and a list of where each begins. */
#include "device/weights_copy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 64 };

struct saved {
    const void *key;
    char *format;
    size_t bytes, offset;
};

struct weights_copy {
    struct device *device;
    char *base;
    size_t bytes; /* of the block, whole pages */
    bool pinned;
    size_t count;
    struct saved *saved; /* by key */
};

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* ---- what there is ---- */

struct survey {
    weights_keep_fn keep;
    void *arg;
    size_t count, bytes;
};

static void look(void *arg, const struct weights_piece *piece)
{
    struct survey *survey = arg;

    if (!survey->keep(survey->arg, piece->key))
        return;
    survey->count++;
    survey->bytes += round_up(piece->bytes, ALIGNMENT);
}

static struct survey survey_of(struct weights_cache *cache, weights_keep_fn keep, void *arg)
{
    struct survey survey = {.keep = keep, .arg = arg};

    weights_each(cache, look, &survey);
    return survey;
}

static size_t whole_pages(size_t bytes)
{
    return round_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
}

size_t weights_copyable(struct weights_cache *cache, weights_keep_fn keep, void *arg)
{
    return whole_pages(survey_of(cache, keep, arg).bytes);
}

/* ---- copying ---- */

struct copying {
    struct weights_cache *cache;
    struct weights_copy *copy;
    const struct survey *survey;
    size_t used;
    enum status status;
};

static void copy_piece(void *arg, const struct weights_piece *piece)
{
    struct copying *copying = arg;
    struct weights_copy *copy = copying->copy;
    struct saved saved = {.key = piece->key, .bytes = piece->bytes, .offset = copying->used};

    if (copying->status != STATUS_OK || !copying->survey->keep(copying->survey->arg, piece->key))
        return;
    saved.format = strdup(piece->format);
    copying->status = saved.format == NULL ? STATUS_NO_MEMORY
                                           : weights_read(copying->cache, copy->base + saved.offset,
                                                          piece->packed, piece->bytes);
    if (copying->status != STATUS_OK) {
        free(saved.format);
        return;
    }
    copying->used += round_up(piece->bytes, ALIGNMENT);
    copy->saved[copy->count++] = saved;
}

static int by_key(const void *left, const void *right)
{
    uintptr_t a = (uintptr_t)((const struct saved *)left)->key;
    uintptr_t b = (uintptr_t)((const struct saved *)right)->key;

    return (a > b) - (a < b);
}

/* Without locked pages the copies are slower, nothing else. */
static enum status open_block(struct weights_copy *copy, size_t bytes)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED)
        return STATUS_NO_MEMORY;
    copy->base = base;
    copy->bytes = bytes;
    copy->pinned = copy->device->ops->pin != NULL &&
                   copy->device->ops->pin(copy->device, base, bytes) == STATUS_OK;
    return STATUS_OK;
}

static enum status fill(struct weights_copy *copy, struct weights_cache *cache,
                        const struct survey *survey)
{
    struct copying copying = {.cache = cache, .copy = copy, .survey = survey};

    copy->saved = calloc(survey->count, sizeof(*copy->saved));
    if (copy->saved == NULL)
        return STATUS_NO_MEMORY;
    TRY(open_block(copy, whole_pages(survey->bytes)));
    weights_each(cache, copy_piece, &copying);
    qsort(copy->saved, copy->count, sizeof(*copy->saved), by_key);
    return copying.status;
}

enum status weights_copy_create(struct weights_cache *cache, struct device *device,
                                weights_keep_fn keep, void *arg, struct weights_copy **out_copy)
{
    const struct survey survey = survey_of(cache, keep, arg);
    struct weights_copy *copy;
    enum status status;

    *out_copy = NULL;
    if (survey.bytes == 0)
        return STATUS_OK;
    copy = calloc(1, sizeof(*copy));
    if (copy == NULL)
        return STATUS_NO_MEMORY;
    copy->device = device;
    status = fill(copy, cache, &survey);
    if (status != STATUS_OK) {
        weights_copy_destroy(copy);
        return status;
    }
    *out_copy = copy;
    return STATUS_OK;
}

void weights_copy_destroy(struct weights_copy *copy)
{
    if (copy == NULL)
        return;
    if (copy->pinned)
        copy->device->ops->unpin(copy->device, copy->base);
    if (copy->base != NULL)
        (void)munmap(copy->base, copy->bytes);
    for (size_t i = 0; i < copy->count; i++)
        free(copy->saved[i].format);
    free(copy->saved);
    free(copy);
}

size_t weights_copy_bytes(const struct weights_copy *copy)
{
    return copy == NULL ? 0 : copy->bytes;
}

/* ---- finding ---- */

const void *weights_copy_find(const struct weights_copy *copy, const void *key, const char *format,
                              size_t bytes)
{
    size_t first = 0, end = copy->count;

    while (first < end) { /* the first that is not before the key */
        size_t middle = first + (end - first) / 2;

        if ((uintptr_t)copy->saved[middle].key < (uintptr_t)key)
            first = middle + 1;
        else
            end = middle;
    }
    for (; first < copy->count && copy->saved[first].key == key; first++)
        if (strcmp(copy->saved[first].format, format) == 0)
            return copy->saved[first].bytes == bytes ? copy->base + copy->saved[first].offset
                                                     : NULL;
    return NULL;
}
