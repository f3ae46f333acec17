/* The ledger: sums, and one list of accounts.
 *
 *   pinned   = bytes of every account that is no arena: weights, workspaces, io, fixed
 *   arenas   = committed bytes of arenas, of which `used` is in use and the rest cached
 *   reserved = pinned + arenas
 *
 * A reservation is admitted against pinned + planned (I1), not against reserved: what idle arenas
 * hold can be taken back without waiting.  So booking bytes that fit by I1 but not beside the cache
 * (I2) first asks the arenas to give back as much as is missing, and looks again after each of
 * them.
 *
 * Lock order: reclaim_lock, an arena's own lock, lock.  Hooks are called with reclaim_lock only.
 */
#include "memory/ledger.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct ledger_account {
    struct list link;
    struct ledger *ledger;
    enum mem_kind kind;
    bool arena;
    uint64_t bytes;
    uint64_t used; /* arenas: the part in use; others: always all */
    int64_t since_us;
    int64_t last_use_us;
    ledger_reclaim_fn reclaim;
    void *reclaim_arg;
    uint64_t pass; /* the last reclaim pass that asked it */
    char owner[sizeof(((struct ledger_entry *)NULL)->owner)];
};

struct ledger {
    pthread_mutex_t lock;
    pthread_mutex_t reclaim_lock; /* one pass at a time; an account with a hook closes under it */
    struct list accounts;
    uint64_t budget;
    uint64_t allowed; /* budget, or what was held when the budget fell below it: only falls then */
    uint64_t page;    /* reservations are rounded up to it */
    uint64_t pinned;
    uint64_t arenas;
    uint64_t used; /* of arenas */
    uint64_t planned;
    uint64_t kind[MEM_KINDS]; /* of arenas the part in use */
    uint64_t peak_allocated, peak_reserved;
    uint64_t reservations_ok, reservations_refused, plan_violations;
    uint64_t pass;
};

const char *mem_kind_name(enum mem_kind kind)
{
    static const char *const names[MEM_KINDS] = {
        [MEM_WEIGHTS] = "weights", [MEM_ACTIVATION] = "activation", [MEM_WORKSPACE] = "workspace",
        [MEM_IO] = "io",           [MEM_FIXED] = "fixed",           [MEM_CACHED] = "cached",
    };

    assert((unsigned)kind < MEM_KINDS);
    return names[kind];
}

static bool is_arena(const struct ledger_account *account)
{
    return account->arena;
}

static uint64_t reserved_of(const struct ledger *ledger)
{
    return ledger->pinned + ledger->arenas;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What I1 and I2 compare with the budget. */
static uint64_t claim_of(const struct ledger *ledger)
{
    return larger(reserved_of(ledger), ledger->pinned + ledger->planned);
}

static bool sums_agree(const struct ledger *ledger)
{
    uint64_t pinned = 0, arenas = 0, used = 0;
    struct ledger_account *account;

    LIST_FOR_EACH (account, &ledger->accounts, struct ledger_account, link) {
        if (account->used > account->bytes)
            return false;
        if (is_arena(account)) {
            arenas += account->bytes;
            used += account->used;
        } else {
            pinned += account->bytes;
        }
    }
    return pinned == ledger->pinned && arenas == ledger->arenas && used == ledger->used;
}

static bool is_valid(const struct ledger *ledger)
{
    return sums_agree(ledger) && claim_of(ledger) <= ledger->allowed &&
           ledger->allowed >= ledger->budget;
}

/* After every change, under the lock. */
static void changed(struct ledger *ledger)
{
    uint64_t reserved = reserved_of(ledger);
    uint64_t allocated = ledger->pinned + ledger->used;

    ledger->allowed = larger(ledger->budget, claim_of(ledger) < ledger->allowed ? claim_of(ledger)
                                                                                : ledger->allowed);
    ledger->peak_reserved = larger(ledger->peak_reserved, reserved);
    ledger->peak_allocated = larger(ledger->peak_allocated, allocated);
    assert(is_valid(ledger));
}

enum status ledger_create(uint64_t budget_bytes, struct ledger **out_ledger)
{
    struct ledger *ledger = calloc(1, sizeof(*ledger));

    if (ledger == NULL)
        return STATUS_NO_MEMORY;
    list_init(&ledger->accounts);
    ledger->budget = ledger->allowed = budget_bytes;
    ledger->page = 1;
    pthread_mutex_init(&ledger->lock, NULL);
    pthread_mutex_init(&ledger->reclaim_lock, NULL);
    *out_ledger = ledger;
    return STATUS_OK;
}

void ledger_destroy(struct ledger *ledger)
{
    if (ledger == NULL)
        return;
    assert(list_is_empty(&ledger->accounts));
    pthread_mutex_destroy(&ledger->reclaim_lock);
    pthread_mutex_destroy(&ledger->lock);
    free(ledger);
}

void ledger_set_budget(struct ledger *ledger, uint64_t budget_bytes)
{
    pthread_mutex_lock(&ledger->lock);
    ledger->budget = budget_bytes;
    ledger->allowed = larger(budget_bytes, claim_of(ledger));
    changed(ledger);
    pthread_mutex_unlock(&ledger->lock);
}

void ledger_set_page(struct ledger *ledger, uint64_t page_bytes)
{
    pthread_mutex_lock(&ledger->lock);
    assert(ledger->planned == 0 || page_bytes <= ledger->page);
    ledger->page = larger(ledger->page, page_bytes);
    pthread_mutex_unlock(&ledger->lock);
}

static enum status open_account(struct ledger *ledger, const char *owner, enum mem_kind kind,
                                bool arena, struct ledger_account **out_account)
{
    struct ledger_account *account = calloc(1, sizeof(*account));

    assert((unsigned)kind < MEM_CACHED); /* cached is what arenas do not use, nobody's kind */
    if (account == NULL)
        return STATUS_NO_MEMORY;
    account->ledger = ledger;
    account->kind = kind;
    account->arena = arena;
    account->since_us = account->last_use_us = clock_now_us();
    strncpy(account->owner, owner, sizeof(account->owner) - 1);

    pthread_mutex_lock(&ledger->lock);
    list_append(&ledger->accounts, &account->link);
    pthread_mutex_unlock(&ledger->lock);
    *out_account = account;
    return STATUS_OK;
}

enum status ledger_open(struct ledger *ledger, const char *owner, enum mem_kind kind,
                        struct ledger_account **out_account)
{
    return open_account(ledger, owner, kind, kind == MEM_ACTIVATION, out_account);
}

enum status ledger_open_arena(struct ledger *ledger, const char *owner, enum mem_kind kind,
                              struct ledger_account **out_account)
{
    assert(kind == MEM_ACTIVATION || kind == MEM_IO);
    return open_account(ledger, owner, kind, true, out_account);
}

void ledger_set_reclaim(struct ledger_account *account, ledger_reclaim_fn reclaim, void *arg)
{
    struct ledger *ledger = account->ledger;

    assert(is_arena(account));
    pthread_mutex_lock(&ledger->reclaim_lock);
    account->reclaim = reclaim;
    account->reclaim_arg = arg;
    pthread_mutex_unlock(&ledger->reclaim_lock);
}

void ledger_close(struct ledger_account *account)
{
    struct ledger *ledger;

    if (account == NULL)
        return;
    ledger = account->ledger;
    pthread_mutex_lock(&ledger->reclaim_lock);
    pthread_mutex_lock(&ledger->lock);
    if (is_arena(account)) {
        ledger->arenas -= account->bytes;
        ledger->used -= account->used;
    } else {
        ledger->pinned -= account->bytes;
    }
    ledger->kind[account->kind] -= account->used;
    list_remove(&account->link);
    changed(ledger);
    pthread_mutex_unlock(&ledger->lock);
    pthread_mutex_unlock(&ledger->reclaim_lock);
    free(account);
}

/* Whether `bytes` more for `account` keep I1; *out_missing then is what I2 still lacks. */
static bool may_add(const struct ledger_account *account, uint64_t bytes, uint64_t *out_missing)
{
    const struct ledger *ledger = account->ledger;
    uint64_t reserved = reserved_of(ledger);
    uint64_t firm = ledger->pinned + (is_arena(account) ? ledger->used : ledger->planned);

    if (firm > ledger->budget || bytes > ledger->budget - firm)
        return false;
    *out_missing = reserved + bytes > ledger->budget ? reserved + bytes - ledger->budget : 0;
    return true;
}

static void add(struct ledger_account *account, uint64_t bytes)
{
    struct ledger *ledger = account->ledger;

    account->bytes += bytes;
    if (is_arena(account)) {
        ledger->arenas += bytes;
    } else {
        account->used += bytes;
        ledger->pinned += bytes;
        ledger->kind[account->kind] += bytes;
    }
    if (account->bytes == bytes)
        account->since_us = clock_now_us();
    changed(ledger);
}

/* STATUS_UNAVAILABLE: it fits but for `*out_missing` bytes of somebody's cache. */
static enum status try_add(struct ledger_account *account, uint64_t bytes, uint64_t *out_missing)
{
    struct ledger *ledger = account->ledger;
    enum status status = STATUS_OK;

    pthread_mutex_lock(&ledger->lock);
    if (!may_add(account, bytes, out_missing))
        status = STATUS_NO_MEMORY;
    else if (*out_missing > 0)
        status = STATUS_UNAVAILABLE;
    else
        add(account, bytes);
    pthread_mutex_unlock(&ledger->lock);
    return status;
}

/* The arena with the most cached bytes that this pass has not asked yet. */
static struct ledger_account *next_victim(struct ledger *ledger)
{
    struct ledger_account *account, *best = NULL;

    pthread_mutex_lock(&ledger->lock);
    LIST_FOR_EACH (account, &ledger->accounts, struct ledger_account, link) {
        uint64_t cached = account->bytes - account->used;

        if (account->reclaim == NULL || account->pass == ledger->pass || cached == 0)
            continue;
        if (best == NULL || cached > best->bytes - best->used)
            best = account;
    }
    if (best != NULL)
        best->pass = ledger->pass;
    pthread_mutex_unlock(&ledger->lock);
    return best;
}

static enum status reclaim_and_add(struct ledger_account *account, uint64_t bytes)
{
    struct ledger *ledger = account->ledger;
    enum status status;
    uint64_t missing;

    pthread_mutex_lock(&ledger->reclaim_lock);
    ledger->pass++;
    while ((status = try_add(account, bytes, &missing)) == STATUS_UNAVAILABLE) {
        struct ledger_account *victim = next_victim(ledger);

        if (victim == NULL)
            break;
        victim->reclaim(victim->reclaim_arg, missing);
    }
    pthread_mutex_unlock(&ledger->reclaim_lock);
    return status == STATUS_OK ? STATUS_OK : STATUS_NO_MEMORY;
}

enum status ledger_add(struct ledger_account *account, uint64_t bytes)
{
    uint64_t missing;
    enum status status = try_add(account, bytes, &missing);

    return status == STATUS_UNAVAILABLE ? reclaim_and_add(account, bytes) : status;
}

uint64_t ledger_reclaim(struct ledger *ledger, uint64_t bytes)
{
    struct ledger_account *victim;
    uint64_t freed = 0;

    pthread_mutex_lock(&ledger->reclaim_lock);
    ledger->pass++;
    while (freed < bytes && (victim = next_victim(ledger)) != NULL)
        freed += victim->reclaim(victim->reclaim_arg, bytes - freed);
    pthread_mutex_unlock(&ledger->reclaim_lock);
    return freed;
}

void ledger_sub(struct ledger_account *account, uint64_t bytes)
{
    struct ledger *ledger = account->ledger;

    pthread_mutex_lock(&ledger->lock);
    assert(bytes <= account->bytes);
    account->bytes -= bytes;
    if (is_arena(account)) {
        assert(account->used <= account->bytes);
        ledger->arenas -= bytes;
    } else {
        account->used -= bytes;
        ledger->pinned -= bytes;
        ledger->kind[account->kind] -= bytes;
    }
    changed(ledger);
    pthread_mutex_unlock(&ledger->lock);
}

uint64_t ledger_account_bytes(const struct ledger_account *account)
{
    uint64_t bytes;

    pthread_mutex_lock(&account->ledger->lock);
    bytes = account->bytes;
    pthread_mutex_unlock(&account->ledger->lock);
    return bytes;
}

void ledger_set_used(struct ledger_account *account, uint64_t used_bytes, int64_t now_us)
{
    struct ledger *ledger = account->ledger;

    pthread_mutex_lock(&ledger->lock);
    account->last_use_us = now_us;
    if (is_arena(account)) {
        assert(used_bytes <= account->bytes);
        ledger->used = ledger->used - account->used + used_bytes;
        ledger->kind[account->kind] = ledger->kind[account->kind] - account->used + used_bytes;
        account->used = used_bytes;
        changed(ledger);
    }
    pthread_mutex_unlock(&ledger->lock);
}

static uint64_t round_up(uint64_t bytes, uint64_t step)
{
    uint64_t rest = bytes % step;

    if (rest == 0)
        return bytes;
    return bytes > UINT64_MAX - (step - rest) ? UINT64_MAX : bytes + (step - rest);
}

enum status ledger_reserve(struct ledger *ledger, uint64_t bytes, uint64_t *out_available)
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
        changed(ledger);
    } else {
        ledger->reservations_refused++;
    }
    pthread_mutex_unlock(&ledger->lock);
    if (out_available != NULL)
        *out_available = available;
    return fits ? STATUS_OK : STATUS_NO_MEMORY;
}

void ledger_unreserve(struct ledger *ledger, uint64_t bytes)
{
    uint64_t whole;

    pthread_mutex_lock(&ledger->lock);
    whole = round_up(bytes, ledger->page);
    assert(whole <= ledger->planned);
    ledger->planned -= whole;
    changed(ledger);
    pthread_mutex_unlock(&ledger->lock);
}

uint64_t ledger_ceiling(struct ledger *ledger)
{
    uint64_t ceiling;

    pthread_mutex_lock(&ledger->lock);
    ceiling = ledger->pinned < ledger->budget ? ledger->budget - ledger->pinned : 0;
    pthread_mutex_unlock(&ledger->lock);
    return ceiling;
}

void ledger_count_violation(struct ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    ledger->plan_violations++;
    pthread_mutex_unlock(&ledger->lock);
}

void ledger_read(struct ledger *ledger, struct ledger_stats *out_stats)
{
    pthread_mutex_lock(&ledger->lock);
    *out_stats = (struct ledger_stats){
        .budget_bytes = ledger->budget,
        .reserved_bytes = reserved_of(ledger),
        .allocated_bytes = ledger->pinned + ledger->used,
        .cached_bytes = ledger->arenas - ledger->used,
        .planned_bytes = ledger->planned,
        .peak_allocated_bytes = ledger->peak_allocated,
        .peak_reserved_bytes = ledger->peak_reserved,
        .reservations_ok = ledger->reservations_ok,
        .reservations_refused = ledger->reservations_refused,
        .plan_violations = ledger->plan_violations,
    };
    memcpy(out_stats->kind_bytes, ledger->kind, sizeof(ledger->kind));
    out_stats->kind_bytes[MEM_CACHED] = ledger->arenas - ledger->used;
    pthread_mutex_unlock(&ledger->lock);
}

void ledger_reset_peaks(struct ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    ledger->peak_reserved = ledger->peak_allocated = 0;
    changed(ledger);
    pthread_mutex_unlock(&ledger->lock);
}

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

bool ledger_is_valid(struct ledger *ledger)
{
    bool valid;

    pthread_mutex_lock(&ledger->lock);
    valid = is_valid(ledger);
    pthread_mutex_unlock(&ledger->lock);
    return valid;
}
