#include "shadow.h"

#include <stdlib.h>
#include <string.h>

static bool bit(const struct span *span, uint64_t address)
{
    uint64_t at = address - span->shadow_from;

    return (span->shadow[at / 8] >> (at % 8) & 1) != 0;
}

static void mark(uint8_t *byte, unsigned mask, bool set)
{
    if (mask == 0xFF)
        __atomic_store_n(byte, set ? 0xFF : 0, __ATOMIC_RELAXED);
    else if (set)
        __atomic_fetch_or(byte, (uint8_t)mask, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(byte, (uint8_t)~mask, __ATOMIC_RELAXED);
}

static void change(const struct span *span, uint64_t address, size_t bytes, bool set)
{
    uint64_t at = address - span->shadow_from;
    uint64_t end = at + bytes;

    while (at < end && (at % 8 != 0 || end - at < 8)) {
        size_t first = at % 8;
        size_t count = 8 - first < end - at ? 8 - first : end - at;
        mark(&span->shadow[at / 8], ((1u << count) - 1) << first, set);
        at += count;
    }
    if (end - at >= 8) {
        memset(&span->shadow[at / 8], set ? 0xFF : 0, (end - at) / 8);
        at += (end - at) / 8 * 8;
    }
    if (at < end)
        mark(&span->shadow[at / 8], (1u << (end - at)) - 1, set);
}

void shadow_set(const struct span *span, uint64_t address, size_t bytes)
{
    change(span, address, bytes, true);
}

void shadow_clear(const struct span *span, uint64_t address, size_t bytes)
{
    change(span, address, bytes, false);
}

bool shadow_all_set(const struct span *span, uint64_t address, size_t bytes, uint64_t *out_first)
{
    uint64_t end = address + bytes;

    for (uint64_t at = address; at < end;) {
        uint64_t index = at - span->shadow_from;
        if (index % 8 == 0 && end - at >= 8 && span->shadow[index / 8] == 0xFF) {
            at += 8;
        } else if (bit(span, at)) {
            at++;
        } else {
            *out_first = at;
            return false;
        }
    }
    return true;
}

void shadow_copy(const struct span *to_span, uint64_t to, const struct span *from_span,
                 uint64_t from, size_t bytes)
{
    uint64_t unused;

    if (from_span->shadow == NULL || shadow_all_set(from_span, from, bytes, &unused)) {
        shadow_set(to_span, to, bytes);
        return;
    }
    bool *bits = malloc(bytes * sizeof(*bits)); /* the ranges may overlap */
    for (size_t i = 0; i < bytes; i++)
        bits[i] = bit(from_span, from + i);
    for (size_t i = 0; i < bytes; i++)
        change(to_span, to + i, 1, bits[i]);
    free(bits);
}
