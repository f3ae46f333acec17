#include "race.h"

enum { SEVERAL = UINT16_MAX };

/* Whether what happened in (epoch, warp_epoch) by `other` comes before what this thread does. */
static bool ordered(const struct warp *warp, uint32_t me, uint32_t epoch, uint32_t warp_epoch,
                    uint32_t other)
{
    if (epoch != warp->worker->epoch || other == me)
        return true;
    return other != SEVERAL && other / LANES == warp->number && warp_epoch != warp->warp_epoch;
}

static void report(struct warp *warp, const struct op *op, int lane, uint32_t address,
                   const char *what, uint32_t other)
{
    uint32_t bit = (uint32_t)1 << lane;

    if (other == SEVERAL)
        fault(warp, op, bit, PTX_FAILED,
              "%s race in shared memory at %u with several other threads: no barrier between", what,
              address);
    else
        fault(warp, op, bit, PTX_FAILED,
              "%s race in shared memory at %u with thread %u: no barrier between", what, address,
              other);
}

static bool touch(struct warp *warp, const struct op *op, int lane, uint32_t address,
                  struct race_entry *entry, enum race_kind kind, bool same)
{
    uint32_t me = warp->number * LANES + (uint32_t)lane;
    uint32_t epoch = warp->worker->epoch;
    bool written = entry->write_epoch != 0 &&
                   !ordered(warp, me, entry->write_epoch, entry->write_warp_epoch, entry->writer);

    if (written && !(kind == RACE_ATOMIC && entry->atomic) && !(kind == RACE_WRITE && same)) {
        report(warp, op, lane, address, kind == RACE_READ ? "write/read" : "write/write",
               entry->writer);
        return false;
    }
    if (kind == RACE_READ) {
        bool fresh = entry->read_epoch != epoch ||
                     (entry->reader != SEVERAL && entry->reader / LANES == warp->number &&
                      entry->read_warp_epoch != warp->warp_epoch);
        if (fresh)
            entry->reader = (uint16_t)me;
        else if (entry->reader != me)
            entry->reader = SEVERAL;
        entry->read_epoch = epoch;
        entry->read_warp_epoch = warp->warp_epoch;
        return true;
    }
    if (entry->read_epoch != 0 &&
        !ordered(warp, me, entry->read_epoch, entry->read_warp_epoch, entry->reader)) {
        report(warp, op, lane, address, "read/write", entry->reader);
        return false;
    }
    entry->write_epoch = epoch;
    entry->write_warp_epoch = warp->warp_epoch;
    entry->writer = (uint16_t)me;
    entry->atomic = kind == RACE_ATOMIC;
    return true;
}

static void split(struct race_cell *cell)
{
    for (int i = 1; i < 4; i++)
        cell->entry[i] = cell->entry[0];
    cell->split = true;
}

void race_check(struct warp *warp, const struct op *op, int lane, uint32_t address, unsigned bytes,
                enum race_kind kind, bool same)
{
    for (uint32_t at = address; at < address + bytes;) {
        struct race_cell *cell = &warp->worker->races[at / 4];
        unsigned first = at % 4;
        unsigned count = 4 - first < address + bytes - at ? 4 - first : address + bytes - at;
        if (count != 4 && !cell->split)
            split(cell);
        unsigned entries = cell->split ? count : 1;
        for (unsigned i = 0; i < entries; i++)
            if (!touch(warp, op, lane, at + i, &cell->entry[cell->split ? first + i : 0], kind,
                       same))
                return;
        at += count;
    }
}
