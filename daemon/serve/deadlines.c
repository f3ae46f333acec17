/* Exact deadlines: a binary heap of calls and one timer for its top.
 *
 * The timer is only moved when the top becomes earlier: with the usual deadline of a minute it
 * stays where it is while thousands of calls come and go.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "serve/internal.h"

static void put(struct deadlines *deadlines, size_t slot, struct call *call)
{
    deadlines->heap[slot] = call;
    call->deadline_slot = slot;
}

static void sift_up(struct deadlines *deadlines, size_t slot, struct call *call)
{
    while (slot > 0) {
        size_t above = (slot - 1) / 2;

        if (deadlines->heap[above]->deadline_us <= call->deadline_us)
            break;
        put(deadlines, slot, deadlines->heap[above]);
        slot = above;
    }
    put(deadlines, slot, call);
}

static void sift_down(struct deadlines *deadlines, size_t slot, struct call *call)
{
    for (;;) {
        size_t below = 2 * slot + 1;

        if (below >= deadlines->count)
            break;
        if (below + 1 < deadlines->count &&
            deadlines->heap[below + 1]->deadline_us < deadlines->heap[below]->deadline_us)
            below++;
        if (call->deadline_us <= deadlines->heap[below]->deadline_us)
            break;
        put(deadlines, slot, deadlines->heap[below]);
        slot = below;
    }
    put(deadlines, slot, call);
}

static void arm(struct server *server, int64_t now_us)
{
    struct deadlines *deadlines = &server->deadlines;
    int64_t due_us = deadlines->count > 0 ? deadlines->heap[0]->deadline_us : CLOCK_NEVER;
    int64_t left_us;
    struct timeval wait;

    if (due_us >= deadlines->armed_us)
        return;
    left_us = due_us > now_us ? due_us - now_us : 0;
    wait = (struct timeval){.tv_sec = left_us / 1000000, .tv_usec = left_us % 1000000};
    if (event_add(&server->deadline_event, &wait) == 0)
        deadlines->armed_us = due_us;
}

enum status deadlines_add(struct server *server, struct call *call)
{
    struct deadlines *deadlines = &server->deadlines;

    if (call->deadline_us == CLOCK_NEVER || call->deadline_slot != SIZE_MAX)
        return STATUS_OK;
    if (deadlines->count == deadlines->capacity) {
        size_t capacity = deadlines->capacity ? deadlines->capacity * 2 : 256;
        struct call **heap = realloc(deadlines->heap, capacity * sizeof(struct call *));

        if (heap == NULL)
            return STATUS_NO_MEMORY;
        deadlines->heap = heap;
        deadlines->capacity = capacity;
    }
    sift_up(deadlines, deadlines->count++, call);
    if (call->deadline_slot == 0)
        arm(server, clock_now_us());
    return STATUS_OK;
}

void deadlines_remove(struct server *server, struct call *call)
{
    struct deadlines *deadlines = &server->deadlines;
    size_t slot = call->deadline_slot;
    struct call *last;

    if (slot == SIZE_MAX)
        return;
    call->deadline_slot = SIZE_MAX;
    last = deadlines->heap[--deadlines->count];
    if (last == call)
        return;
    if (slot > 0 && deadlines->heap[(slot - 1) / 2]->deadline_us > last->deadline_us)
        sift_up(deadlines, slot, last);
    else
        sift_down(deadlines, slot, last);
}

void deadlines_run(struct server *server, int64_t now_us)
{
    struct deadlines *deadlines = &server->deadlines;

    deadlines->armed_us = CLOCK_NEVER;
    while (deadlines->count > 0 && deadlines->heap[0]->deadline_us <= now_us) {
        struct call *call = call_ref(deadlines->heap[0]);

        deadlines_remove(server, call);
        call_expire(call);
        call_unref(call);
    }
    arm(server, now_us);
}

void deadlines_deinit(struct server *server)
{
    free(server->deadlines.heap);
    server->deadlines = (struct deadlines){.armed_us = CLOCK_NEVER};
}
