/* What is in use of the booked bytes, and what is planned: arenas, pieces of weights, reservations.
 */
#include <assert.h>

#include "memory/internal.h"

void ledger_set_address(struct ledger_account *account, uint64_t address)
{
    pthread_mutex_lock(&account->ledger->lock);
    account->address = address;
    pthread_mutex_unlock(&account->ledger->lock);
}

uint64_t ledger_account_bytes(const struct ledger_account *account)
{
    uint64_t bytes;

    pthread_mutex_lock(&account->ledger->lock);
    bytes = account->bytes;
    pthread_mutex_unlock(&account->ledger->lock);
    return bytes;
}

/* An arena's batch as the history has it, once it has all its memory. */
static void tell_use(struct ledger_account *account, const struct ledger_use *use, int64_t now_us)
{
    struct ledger_piece piece = {.bytes = account->told, .address = account->address};

    if (account->ledger->history == NULL || use->grows || use->bytes == account->told)
        return;
    if (account->told > 0)
        account_record(account, MEM_EVENT_FREE, &piece, now_us);
    account->told = use->bytes;
    piece.bytes = use->bytes;
    piece.requested = use->requested;
    if (use->bytes > 0)
        account_record(account, MEM_EVENT_ALLOC, &piece, now_us);
}

static void set_use(struct ledger_account *account, const struct ledger_use *use, int64_t now_us)
{
    struct ledger *ledger = account->ledger;
    const struct mem_change change = {
        .allocated = (int64_t)(use->bytes - account->used),
        .requested = (int64_t)(use->requested - account->requested),
    };

    assert(use->bytes <= account->bytes && use->requested <= use->bytes);
    assert(account->used == 0 || use->bytes == 0 || account->user == use->user);
    if (use->bytes > 0)
        account->user = use->user;
    ledger->used = ledger->used - account->used + use->bytes;
    ledger->kind[account->kind] = ledger->kind[account->kind] - account->used + use->bytes;
    account->used = use->bytes;
    account->requested = use->requested;
    account_apply(account, &change);
    if (account->user != NULL)
        account->user->largest_use = ledger_larger(account->user->largest_use, use->bytes);
    tell_use(account, use, now_us);
    if (use->bytes == 0)
        account->user = NULL;
    ledger_changed(ledger);
}

void ledger_set_use(struct ledger_account *account, const struct ledger_use *use, int64_t now_us)
{
    pthread_mutex_lock(&account->ledger->lock);
    account->last_use_us = now_us;
    if (account_is_arena(account)) {
        if (use->user != NULL)
            use->user->last_use_us = now_us;
        set_use(account, use, now_us);
    }
    pthread_mutex_unlock(&account->ledger->lock);
}

void ledger_set_used(struct ledger_account *account, uint64_t used_bytes, int64_t now_us)
{
    const struct ledger_use use = {.bytes = used_bytes, .requested = used_bytes};

    ledger_set_use(account, &use, now_us);
}

/* ---- reservations ---- */

static uint64_t round_up(uint64_t bytes, uint64_t step)
{
    uint64_t rest = bytes % step;

    if (rest == 0)
        return bytes;
    return bytes > UINT64_MAX - (step - rest) ? UINT64_MAX : bytes + (step - rest);
}

/* The ledger's own again: what it notes in it (the number of its name) is no business of callers.
 */
static struct ledger_account *known(const struct ledger_account *user)
{
    return (struct ledger_account *)(uintptr_t)user;
}

enum status ledger_reserve_for(struct ledger *ledger, const struct ledger_account *user,
                               uint64_t bytes, uint64_t *out_available)
{
    uint64_t claimed, available, whole;
    bool fits;

    pthread_mutex_lock(&ledger->lock);
    claimed = ledger->pinned + ledger->planned;
    available = claimed < ledger->budget ? ledger->budget - claimed : 0;
    whole = round_up(bytes, ledger->page);
    fits = whole <= available;
    if (fits) {
        ledger->planned += whole;
        ledger->reservations_ok++;
        ledger_record_plan(ledger, MEM_EVENT_RESERVE, known(user), whole);
        ledger_changed(ledger);
    } else {
        ledger->reservations_refused++;
    }
    pthread_mutex_unlock(&ledger->lock);
    if (out_available != NULL)
        *out_available = available;
    return fits ? STATUS_OK : STATUS_NO_MEMORY;
}

enum status ledger_reserve(struct ledger *ledger, uint64_t bytes, uint64_t *out_available)
{
    return ledger_reserve_for(ledger, NULL, bytes, out_available);
}

void ledger_unreserve_for(struct ledger *ledger, const struct ledger_account *user, uint64_t bytes)
{
    uint64_t whole;

    pthread_mutex_lock(&ledger->lock);
    whole = round_up(bytes, ledger->page);
    assert(whole <= ledger->planned);
    ledger->planned -= whole;
    ledger_record_plan(ledger, MEM_EVENT_UNRESERVE, known(user), whole);
    ledger_changed(ledger);
    pthread_mutex_unlock(&ledger->lock);
}

void ledger_unreserve(struct ledger *ledger, uint64_t bytes)
{
    ledger_unreserve_for(ledger, NULL, bytes);
}

uint64_t ledger_ceiling(struct ledger *ledger)
{
    uint64_t ceiling;

    pthread_mutex_lock(&ledger->lock);
    ceiling = ledger->pinned < ledger->budget ? ledger->budget - ledger->pinned : 0;
    pthread_mutex_unlock(&ledger->lock);
    return ceiling;
}

uint64_t ledger_ceiling_later(struct ledger *ledger)
{
    uint64_t budget, ceiling;

    pthread_mutex_lock(&ledger->lock);
    budget = ledger->budget + ledger->held;
    ceiling = ledger->pinned < budget ? budget - ledger->pinned : 0;
    pthread_mutex_unlock(&ledger->lock);
    return ceiling;
}
