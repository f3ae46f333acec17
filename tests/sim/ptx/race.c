#include "race.h"

#include <string.h>

size_t race_entries(size_t bytes)
{
    return (bytes / 4 + 1) * 5;
}

/* Whether what `other` did in (epoch, warp_epoch) comes before what this thread does. */
static bool ordered(const struct warp *warp, uint32_t me, uint32_t epoch, uint16_t warp_epoch,
                    uint32_t other)
{
    if (epoch != warp->worker->epoch || other == me)
        return true;
    return other != RACE_SEVERAL && other / LANES == warp->number &&
           warp_epoch != (uint16_t)warp->warp_epoch;
}

static void report(struct warp *warp, const struct op *op, int lane, uint32_t address,
                   const char *what, uint32_t other)
{
    uint32_t bit = (uint32_t)1 << lane;

    if (other == RACE_SEVERAL)
        fault(warp, op, bit, PTX_FAILED,
              "%s race in shared memory at %u with several other threads: no barrier between", what,
              address);
    else
        fault(warp, op, bit, PTX_FAILED,
              "%s race in shared memory at %u with thread %u: no barrier between", what, address,
              other);
}

static void note_read(const struct warp *warp, uint32_t me, struct race_entry *entry)
{
    uint32_t epoch = warp->worker->epoch;
    bool fresh = entry->read_epoch != epoch ||
                 (entry->reader != RACE_SEVERAL && entry->reader / LANES == warp->number &&
                  entry->read_warp_epoch != (uint16_t)warp->warp_epoch);

    if (fresh)
        entry->reader = (uint16_t)me;
    else if (entry->reader != me)
        entry->reader = RACE_SEVERAL;
    entry->read_epoch = epoch;
    entry->read_warp_epoch = (uint16_t)warp->warp_epoch;
}

static bool touch(struct warp *warp, const struct op *op, int lane, uint32_t address,
                  unsigned bytes, struct race_entry *entry, enum race_kind kind, const void *value)
{
    uint32_t me = warp->number * LANES + (uint32_t)lane;
    uint32_t epoch = warp->worker->epoch;
    uint32_t writer = entry->writer & RACE_THREAD;
    bool atomically = (entry->writer & RACE_ATOMICALLY) != 0;

    if (entry->write_epoch == epoch &&
        !ordered(warp, me, entry->write_epoch, entry->write_warp_epoch, writer) &&
        !(kind == RACE_ATOMIC && atomically) &&
        (value == NULL || memcmp(warp->worker->shared + address, value, bytes) != 0)) {
        report(warp, op, lane, address, kind == RACE_READ ? "write/read" : "write/write", writer);
        return false;
    }
    if (kind == RACE_READ) {
        note_read(warp, me, entry);
        return true;
    }
    if (entry->read_epoch == epoch &&
        !ordered(warp, me, entry->read_epoch, entry->read_warp_epoch, entry->reader)) {
        report(warp, op, lane, address, "read/write", entry->reader);
        return false;
    }
    entry->write_epoch = epoch;
    entry->write_warp_epoch = (uint16_t)warp->warp_epoch;
    entry->writer =
        (uint16_t)((entry->writer & RACE_SPLIT) | me | (kind == RACE_ATOMIC ? RACE_ATOMICALLY : 0));
    return true;
}

/* Bytes of a word, each with its own entry, which begin as what the word's was. */
static bool touch_bytes(struct warp *warp, const struct op *op, int lane, uint32_t address,
                        unsigned bytes, struct race_entry *word, enum race_kind kind,
                        const char *value)
{
    struct race_entry *own =
        warp->worker->races + warp->worker->race_words + (size_t)(address & ~3u);

    if ((word->writer & RACE_SPLIT) == 0) {
        for (int i = 0; i < 4; i++)
            own[i] = *word;
        word->writer |= RACE_SPLIT;
    }
    for (unsigned i = 0; i < bytes; i++)
        if (!touch(warp, op, lane, address + i, 1, &own[address % 4 + i], kind,
                   value == NULL ? NULL : value + i))
            return false;
    return true;
}

void race_check(struct warp *warp, const struct op *op, int lane, uint32_t address, unsigned bytes,
                enum race_kind kind, const void *value)
{
    const char *from = value;

    for (uint32_t at = address; at < address + bytes;) {
        struct race_entry *word = &warp->worker->races[at / 4];
        unsigned count = 4 - at % 4;
        if ((word->writer & RACE_PENDING) != 0) {
            fault(warp, op, (uint32_t)1 << lane, PTX_FAILED,
                  "race in shared memory at %u with a copy that has not been waited for", at);
            return;
        }
        if (count > address + bytes - at)
            count = address + bytes - at;
        const char *here = from == NULL ? NULL : from + (at - address);
        bool fine = count == 4 && (word->writer & RACE_SPLIT) == 0
                        ? touch(warp, op, lane, at, 4, word, kind, here)
                        : touch_bytes(warp, op, lane, at, count, word, kind, here);
        if (!fine)
            return;
        at += count;
    }
}

void race_copy_begin(struct warp *warp, const struct op *op, int lane, uint32_t address,
                     unsigned bytes)
{
    race_check(warp, op, lane, address, bytes, RACE_WRITE, NULL);
    for (uint32_t at = address; at < address + bytes; at += 4)
        warp->worker->races[at / 4].writer |= RACE_PENDING;
}

void race_copy_end(struct warp *warp, const struct op *op, int lane, uint32_t address,
                   unsigned bytes, const void *value)
{
    for (uint32_t at = address; at < address + bytes; at += 4)
        warp->worker->races[at / 4].writer &= (uint16_t)~RACE_PENDING;
    race_check(warp, op, lane, address, bytes, RACE_WRITE, value);
}
