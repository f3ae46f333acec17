#include "memory/history.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct ring {
    uint64_t added; /* events so far; the oldest one kept is added − size, if that many */
    struct mem_event *events;
};

enum { RING_BATCHES, RING_REST, RINGS };

struct history {
    uint32_t size;
    uint64_t number; /* of the last event */
    struct ring rings[RINGS];
    struct mem_event room[]; /* RINGS * size */
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

/* Costs as much as the name is long, not as the room. */
static void copy_name(char to[MEM_NAME_BYTES], const char *from)
{
    to[0] = '\0';
    if (from != NULL && memccpy(to, from, '\0', MEM_NAME_BYTES) == NULL)
        to[MEM_NAME_BYTES - 1] = '\0';
}

void history_add(struct history *history, const struct mem_note *note, int64_t now_us)
{
    struct ring *ring =
        &history->rings[note->kind <= MEM_EVENT_UNRESERVE ? RING_BATCHES : RING_REST];
    struct mem_event *event = &ring->events[ring->added++ % history->size];

    event->number = ++history->number;
    event->time_us = now_us;
    event->kind = note->kind;
    event->address = note->address;
    event->bytes = note->bytes;
    event->requested = note->requested;
    event->other = note->other;
    copy_name(event->owner, note->owner);
    copy_name(event->model, note->model);
    copy_name(event->note, note->note);
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
        const struct mem_event *first = NULL;
        unsigned from = 0;

        for (unsigned i = 0; i < RINGS; i++) {
            const struct ring *ring = &history->rings[i];
            const struct mem_event *event = &ring->events[place[i] % history->size];

            if (place[i] == ring->added || (first != NULL && first->number < event->number))
                continue;
            first = event;
            from = i;
        }
        if (first == NULL)
            break;
        events[count] = *first;
        place[from]++;
    }
    if (count > 0)
        *io_next = events[count - 1].number + 1;
    return count;
}
