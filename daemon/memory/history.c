/* Entries hold numbers of names: one cache line each.  The names stand in a table that only grows;
 * readers get them back as text. */
#include "memory/history.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "memory/history_names.h"

enum { RING_BATCHES, RING_REST, RINGS };
enum { NAMES_MOST = 2048 };

struct stored {
    uint64_t number;
    int64_t time_us;
    struct history_entry entry;
};

struct ring {
    uint64_t added; /* events so far; the oldest one kept is added − size, if that many */
    struct stored *events;
};

struct history {
    uint32_t size;
    uint64_t number; /* of the last event */
    int64_t last_us;
    struct ring rings[RINGS];
    unsigned names; /* name[0] is "" */
    char name[NAMES_MOST][MEM_NAME_BYTES];
    struct stored room[]; /* RINGS * size */
};

const char *mem_event_name(enum mem_event_kind kind)
{
    static const char *const names[MEM_EVENT_KINDS] = {
        [MEM_EVENT_ALLOC] = "alloc",     [MEM_EVENT_FREE] = "free",
        [MEM_EVENT_RESERVE] = "reserve", [MEM_EVENT_UNRESERVE] = "unreserve",
        [MEM_EVENT_MAP] = "map",         [MEM_EVENT_UNMAP] = "unmap",
        [MEM_EVENT_OOM] = "oom",         [MEM_EVENT_EMPTY_CACHE] = "empty_cache",
        [MEM_EVENT_LEVEL] = "level",     [MEM_EVENT_EVICT] = "evict",
    };

    assert((unsigned)kind < MEM_EVENT_KINDS);
    return names[kind];
}

enum status history_create(uint32_t events, struct history **out_history)
{
    struct history *history;

    assert(events > 0 && events <= MEM_HISTORY_MOST);
    history = calloc(1, sizeof(*history) + (size_t)RINGS * events * sizeof(history->room[0]));
    if (history == NULL)
        return STATUS_NO_MEMORY;
    history->size = events;
    history->names = 1;
    for (unsigned i = 0; i < RINGS; i++)
        history->rings[i].events = &history->room[(size_t)i * events];
    *out_history = history;
    return STATUS_OK;
}

void history_destroy(struct history *history)
{
    free(history);
}

uint64_t history_last(const struct history *history)
{
    return history->number;
}

uint32_t history_size(const struct history *history)
{
    return history->size;
}

int64_t history_last_us(const struct history *history)
{
    return history->last_us;
}

uint16_t history_name(struct history *history, const char *name)
{
    if (name == NULL || name[0] == '\0')
        return 0;
    for (unsigned i = 1; i < history->names; i++)
        if (strncmp(history->name[i], name, MEM_NAME_BYTES - 1) == 0)
            return (uint16_t)i;
    if (history->names == NAMES_MOST)
        return 0;
    strncpy(history->name[history->names], name, MEM_NAME_BYTES - 1);
    return (uint16_t)history->names++;
}

void history_add_entry(struct history *history, const struct history_entry *entry, int64_t now_us)
{
    struct ring *ring =
        &history->rings[entry->kind <= MEM_EVENT_UNRESERVE ? RING_BATCHES : RING_REST];
    struct stored *stored = &ring->events[ring->added++ % history->size];

    stored->number = ++history->number;
    stored->time_us = history->last_us = now_us;
    stored->entry = *entry;
}

void history_add(struct history *history, const struct mem_note *note, int64_t now_us)
{
    const struct history_entry entry = {
        .kind = note->kind,
        .address = note->address,
        .bytes = note->bytes,
        .requested = note->requested,
        .other = note->other,
        .owner = history_name(history, note->owner),
        .model = history_name(history, note->model),
        .note = history_name(history, note->note),
    };

    history_add_entry(history, &entry, now_us);
}

static struct mem_event read_back(const struct history *history, const struct stored *stored)
{
    const struct history_entry *entry = &stored->entry;
    struct mem_event event = {
        .number = stored->number,
        .time_us = stored->time_us,
        .kind = entry->kind,
        .address = entry->address,
        .bytes = entry->bytes,
        .requested = entry->requested,
        .other = entry->other,
    };

    memcpy(event.owner, history->name[entry->owner], MEM_NAME_BYTES);
    memcpy(event.model, history->name[entry->model], MEM_NAME_BYTES);
    memcpy(event.note, history->name[entry->note], MEM_NAME_BYTES);
    return event;
}

/* The place, counted in `added`, of the first event numbered `from` or higher: numbers rise. */
static uint64_t first_place(const struct history *history, const struct ring *ring, uint64_t from)
{
    uint64_t low = ring->added > history->size ? ring->added - history->size : 0;
    uint64_t high = ring->added;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (ring->events[middle % history->size].number < from)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t history_read(const struct history *history, uint64_t *io_next, struct mem_event *events,
                    size_t room)
{
    uint64_t place[RINGS];
    size_t count = 0;

    for (unsigned i = 0; i < RINGS; i++)
        place[i] = first_place(history, &history->rings[i], *io_next);
    for (; count < room; count++) {
        const struct stored *first = NULL;
        unsigned from = 0;

        for (unsigned i = 0; i < RINGS; i++) {
            const struct ring *ring = &history->rings[i];
            const struct stored *event = &ring->events[place[i] % history->size];

            if (place[i] == ring->added || (first != NULL && first->number < event->number))
                continue;
            first = event;
            from = i;
        }
        if (first == NULL)
            break;
        events[count] = read_back(history, first);
        place[from]++;
    }
    if (count > 0)
        *io_next = events[count - 1].number + 1;
    return count;
}
