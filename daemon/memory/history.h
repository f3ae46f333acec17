/* What happened to the memory: a bounded record of events, for snapshots ([Memory] History=).
 *
 *   batches  alloc free reserve unreserve     many a second
 *   rest     map unmap oom empty_cache level evict
 *
 * Two rings of the same size, so that a busy lane does not wash out what is rare.  Each event has
 * a number that rises by one over both, by which a reader merges them and sees what it missed.
 *
 * Ownership: owns its memory, copies every name (cut at MEM_NAME_BYTES).
 * Threads:   none; the ledger calls it under its own lock.
 */
#ifndef MEMORY_HISTORY_H
#define MEMORY_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum mem_event_kind {
    MEM_EVENT_ALLOC,     /* a batch begins in an arena, or a piece of weights is made */
    MEM_EVENT_FREE,      /* it ends */
    MEM_EVENT_RESERVE,   /* the planned peak of a batch is admitted */
    MEM_EVENT_UNRESERVE, /* and given back */
    MEM_EVENT_MAP,       /* memory taken from the device */
    MEM_EVENT_UNMAP,     /* given back to it */
    MEM_EVENT_OOM,       /* `bytes` were refused for good; `other` is what there was */
    MEM_EVENT_EMPTY_CACHE,
    MEM_EVENT_LEVEL, /* `other` is the new level */
    MEM_EVENT_EVICT, /* a model left the device */
    MEM_EVENT_KINDS
};
const char *mem_event_name(enum mem_event_kind kind); /* "alloc" … */

enum { MEM_NAME_BYTES = 64, MEM_HISTORY_MOST = 65536 };

struct mem_event {
    uint64_t number; /* from 1 */
    int64_t time_us; /* clock_now_us() */
    enum mem_event_kind kind;
    uint64_t address; /* 0: it has none */
    uint64_t bytes;
    uint64_t requested; /* of an alloc: before alignment */
    uint64_t other;
    char owner[MEM_NAME_BYTES]; /* account: "lane 0", "resnet/1"; "": none */
    char model[MEM_NAME_BYTES]; /* on whose behalf; "": nobody's */
    char note[MEM_NAME_BYTES];  /* a step, a reason; "": none */
};

/* An event to be recorded; the strings are borrowed for the call, NULL is "". */
struct mem_note {
    enum mem_event_kind kind;
    uint64_t address, bytes, requested, other;
    const char *owner, *model, *note;
};

struct history;

/* `events` in each ring, 1 to MEM_HISTORY_MOST.  STATUS_NO_MEMORY. */
MUST_CHECK enum status history_create(uint32_t events, struct history **out_history);
void history_destroy(struct history *history); /* NULL is fine */
void history_add(struct history *history, const struct mem_note *note, int64_t now_us);
/* Copies up to `room` events that are numbered *io_next or higher, in order; *io_next is then the
 * number to go on from.  Returns how many: 0 when there is none. */
size_t history_read(const struct history *history, uint64_t *io_next, struct mem_event *events,
                    size_t room);
uint64_t history_last(const struct history *history); /* the last event's number; 0: none */
uint32_t history_size(const struct history *history); /* of one ring */

#endif
