/* What the ledger tells: sums, statistics, owners, history.  Booking is in ledger.c. */
#include <string.h>

#include "base/clock.h"
#include "memory/internal.h"

void ledger_read(struct ledger *ledger, struct ledger_stats *out_stats)
{
    pthread_mutex_lock(&ledger->lock);
    *out_stats = (struct ledger_stats){
        .budget_bytes = ledger->budget,
        .held_bytes = ledger->held,
        .reserved_bytes = ledger_reserved(ledger),
        .allocated_bytes = ledger->pinned + ledger->used,
        .cached_bytes = ledger->arenas - ledger->used,
        .planned_bytes = ledger->planned,
        .peak_allocated_bytes = ledger->all.allocated.peak,
        .peak_reserved_bytes = ledger->all.reserved.peak,
        .reservations_ok = ledger->reservations_ok,
        .reservations_refused = ledger->reservations_refused,
        .plan_violations = ledger->plan_violations,
        .alloc_retries = ledger->all.alloc_retries,
        .ooms = ledger->all.ooms,
    };
    memcpy(out_stats->kind_bytes, ledger->kind, sizeof(ledger->kind));
    out_stats->kind_bytes[MEM_CACHED] = ledger->arenas - ledger->used;
    pthread_mutex_unlock(&ledger->lock);
}

/* ---- statistics ---- */

void ledger_read_stats(struct ledger *ledger, struct ledger_stats_view *out_view)
{
    pthread_mutex_lock(&ledger->lock);
    out_view->all = ledger->all;
    memcpy(out_view->kinds, ledger->pools, sizeof(out_view->kinds));
    pthread_mutex_unlock(&ledger->lock);
}

struct ledger_pool account_describe(const struct ledger_account *account)
{
    struct ledger_pool pool = {
        .kind = account->kind,
        .bytes = account->bytes,
        .used = account->used,
        .requested = account->requested,
        .address = account->address,
        .largest_use = account->largest_use,
        .since_us = account->since_us,
        .last_use_us = account->last_use_us,
        .stats = account->stats,
        .on_behalf = account->on_behalf,
    };

    memcpy(pool.owner, account->owner, sizeof(pool.owner));
    if (account->user != NULL)
        memcpy(pool.user, account->user->owner, sizeof(pool.user));
    return pool;
}

size_t ledger_list_pools(struct ledger *ledger, struct ledger_pool *pools, size_t room)
{
    struct ledger_account *account;
    size_t count = 0;

    pthread_mutex_lock(&ledger->lock);
    LIST_FOR_EACH (account, &ledger->accounts, struct ledger_account, link) {
        if (count < room)
            pools[count] = account_describe(account);
        count++;
    }
    pthread_mutex_unlock(&ledger->lock);
    return count;
}

static void reset_account(struct ledger_account *account)
{
    mem_stats_reset_peaks(&account->stats);
    mem_stats_reset_peaks(&account->on_behalf);
    account->largest_use = 0;
}

void ledger_reset_peaks(struct ledger *ledger)
{
    struct ledger_account *account;

    pthread_mutex_lock(&ledger->lock);
    mem_stats_reset_peaks(&ledger->all);
    for (unsigned kind = 0; kind < MEM_CACHED; kind++)
        mem_stats_reset_peaks(&ledger->pools[kind]);
    LIST_FOR_EACH (account, &ledger->accounts, struct ledger_account, link)
        reset_account(account);
    pthread_mutex_unlock(&ledger->lock);
}

/* The whole name, or what stands before the version. */
static bool is_named(const struct ledger_account *account, const char *name)
{
    size_t length = strlen(name);

    return strncmp(account->owner, name, length) == 0 &&
           (account->owner[length] == '\0' || account->owner[length] == '/');
}

bool ledger_reset_peaks_of(struct ledger *ledger, const char *name)
{
    struct ledger_account *account;
    bool found = false;

    pthread_mutex_lock(&ledger->lock);
    for (unsigned kind = 0; kind < MEM_CACHED; kind++) {
        if (strcmp(name, mem_kind_name(kind)) != 0)
            continue;
        mem_stats_reset_peaks(&ledger->pools[kind]);
        found = true;
    }
    LIST_FOR_EACH (account, &ledger->accounts, struct ledger_account, link) {
        if (!is_named(account, name))
            continue;
        reset_account(account);
        found = true;
    }
    pthread_mutex_unlock(&ledger->lock);
    return found;
}

/* ---- history ---- */

enum status ledger_set_history(struct ledger *ledger, uint32_t events)
{
    struct history *history = NULL, *old;
    struct ledger_account *account;
    bool same;

    pthread_mutex_lock(&ledger->lock);
    same = events == (ledger->history != NULL ? history_size(ledger->history) : 0);
    pthread_mutex_unlock(&ledger->lock);
    if (same)
        return STATUS_OK;
    if (events > 0)
        TRY(history_create(events, &history));
    pthread_mutex_lock(&ledger->lock);
    old = ledger->history;
    ledger->history = history;
    LIST_FOR_EACH (account, &ledger->accounts, struct ledger_account, link) {
        account->told = account->used; /* what runs now began before */
        account->named_in = NULL;
    }
    pthread_mutex_unlock(&ledger->lock);
    history_destroy(old);
    return STATUS_OK;
}

void ledger_note(struct ledger *ledger, const struct mem_note *note)
{
    pthread_mutex_lock(&ledger->lock);
    if (ledger->history != NULL)
        history_add(ledger->history, note, clock_now_us());
    pthread_mutex_unlock(&ledger->lock);
}

size_t ledger_history(struct ledger *ledger, uint64_t *io_next, struct mem_event *events,
                      size_t room)
{
    size_t count = 0;

    pthread_mutex_lock(&ledger->lock);
    if (ledger->history != NULL)
        count = history_read(ledger->history, io_next, events, room);
    pthread_mutex_unlock(&ledger->lock);
    return count;
}

/* ---- owners ---- */

/* Keeps entries[0 .. room) the largest so far, in order; `count` were offered before. */
static void offer(struct ledger_entry *entries, size_t room, size_t count,
                  const struct ledger_account *account, enum mem_kind kind, uint64_t bytes)
{
    size_t at = count < room ? count : room;

    while (at > 0 && entries[at - 1].bytes < bytes) {
        if (at < room)
            entries[at] = entries[at - 1];
        at--;
    }
    if (at == room)
        return;
    entries[at] = (struct ledger_entry){
        .kind = kind,
        .bytes = bytes,
        .since_us = account->since_us,
        .last_use_us = account->last_use_us,
    };
    memcpy(entries[at].owner, account->owner, sizeof(entries[at].owner));
    if (account->user != NULL && kind != MEM_CACHED)
        memcpy(entries[at].user, account->user->owner, sizeof(entries[at].user));
}

size_t ledger_list(struct ledger *ledger, struct ledger_entry *entries, size_t room)
{
    struct ledger_account *account;
    size_t count = 0;

    pthread_mutex_lock(&ledger->lock);
    LIST_FOR_EACH (account, &ledger->accounts, struct ledger_account, link) {
        if (account->used > 0)
            offer(entries, room, count++, account, account->kind, account->used);
        if (account->bytes > account->used)
            offer(entries, room, count++, account, MEM_CACHED, account->bytes - account->used);
    }
    pthread_mutex_unlock(&ledger->lock);
    return count;
}
