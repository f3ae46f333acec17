/* Checks of what a planner was given and of what it made; shares nothing with how it packs. */
#include <inttypes.h>
#include <stdlib.h>

#include "graph/planner.h"

struct entry { /* of a list by first step */
    uint32_t first;
    uint32_t index;
};

static int by_first(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;

    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

static enum status check_ends(const struct plan_buffer *buffers, size_t count, uint64_t peak_bytes,
                              struct error *err)
{
    uint64_t highest = 0;

    for (size_t i = 0; i < count; i++) {
        const struct plan_buffer *buffer = &buffers[i];

        if (buffer->first > buffer->last)
            return error_set(err, STATUS_INVALID, "buffer %zu lives from step %u to %u", i,
                             buffer->first, buffer->last);
        if (buffer->bytes > peak_bytes || buffer->offset > peak_bytes - buffer->bytes)
            return error_set(err, STATUS_INVALID,
                             "buffer %zu of %" PRIu64 " bytes at %" PRIu64
                             " ends above the peak of %" PRIu64,
                             i, buffer->bytes, buffer->offset, peak_bytes);
        if (buffer->bytes > 0 && buffer->offset + buffer->bytes > highest)
            highest = buffer->offset + buffer->bytes;
    }
    if (highest != peak_bytes)
        return error_set(err, STATUS_INVALID,
                         "the highest end is %" PRIu64 ", not the stated peak of %" PRIu64, highest,
                         peak_bytes);
    return STATUS_OK;
}

static enum status check_overlaps(const struct plan_buffer *buffers, const struct entry *entries,
                                  size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct plan_buffer *a = &buffers[entries[i].index];

        if (a->bytes == 0)
            continue;
        for (size_t j = i + 1; j < count && entries[j].first <= a->last; j++) {
            const struct plan_buffer *b = &buffers[entries[j].index];

            if (b->bytes > 0 && a->offset < b->offset + b->bytes &&
                b->offset < a->offset + a->bytes)
                return error_set(err, STATUS_INVALID, "buffers %u and %u share bytes at step %u",
                                 entries[i].index, entries[j].index, entries[j].first);
        }
    }
    return STATUS_OK;
}

enum status planner_check(const struct plan_buffer *buffers, size_t count, uint64_t peak_bytes,
                          struct error *err)
{
    struct entry *entries;
    enum status status;

    if (count >= UINT32_MAX)
        return error_set(err, STATUS_INVALID, "more buffers than can be numbered: %zu", count);
    TRY(check_ends(buffers, count, peak_bytes, err));
    if (count == 0)
        return STATUS_OK;
    entries = calloc(count, sizeof(*entries));
    if (entries == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory to check a plan");
    for (size_t i = 0; i < count; i++)
        entries[i] = (struct entry){.first = buffers[i].first, .index = (uint32_t)i};
    qsort(entries, count, sizeof(*entries), by_first);
    status = check_overlaps(buffers, entries, count, err);
    free(entries);
    return status;
}
