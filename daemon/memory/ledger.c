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
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "memory/internal.h"

const char *mem_kind_name(enum mem_kind kind)
{
    static const char *const names[MEM_KINDS] = {
        [MEM_WEIGHTS] = "weights", [MEM_ACTIVATION] = "activation", [MEM_WORKSPACE] = "workspace",
        [MEM_IO] = "io",           [MEM_FIXED] = "fixed",           [MEM_CACHED] = "cached",
    };

    assert((unsigned)kind < MEM_KINDS);
    return names[kind];
}

/* What I1 and I2 compare with the budget. */
static uint64_t claim_of(const struct ledger *ledger)
{
    return ledger_larger(ledger_reserved(ledger), ledger->pinned + ledger->planned);
}

static bool sums_agree(const struct ledger *ledger)
{
    uint64_t pinned = 0, arenas = 0, used = 0;
    struct ledger_account *account;

    LIST_FOR_EACH (account, &ledger->accounts, struct ledger_account, link) {
        if (account->used > account->bytes || account->requested > account->used)
            return false;
        if (account_is_arena(account)) {
            arenas += account->bytes;
            used += account->used;
        } else {
            pinned += account->bytes;
        }
    }
    return pinned == ledger->pinned && arenas == ledger->arenas && used == ledger->used &&
           ledger->all.reserved.current == pinned + arenas &&
           ledger->all.allocated.current == pinned + used;
}

static bool is_valid(const struct ledger *ledger)
{
    return sums_agree(ledger) && claim_of(ledger) <= ledger->allowed &&
           ledger->allowed >= ledger->budget;
}

/* After every change, under the lock. */
void ledger_changed(struct ledger *ledger)
{
    ledger->allowed = ledger_larger(
        ledger->budget, claim_of(ledger) < ledger->allowed ? claim_of(ledger) : ledger->allowed);
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
    history_destroy(ledger->history);
    pthread_mutex_destroy(&ledger->reclaim_lock);
    pthread_mutex_destroy(&ledger->lock);
    free(ledger);
}

void ledger_set_budget(struct ledger *ledger, uint64_t budget_bytes)
{
    ledger_set_budget_for_now(ledger, budget_bytes, 0);
}

void ledger_set_budget_for_now(struct ledger *ledger, uint64_t budget_bytes, uint64_t held_bytes)
{
    pthread_mutex_lock(&ledger->lock);
    ledger->budget = budget_bytes;
    ledger->held = held_bytes;
    ledger->allowed = ledger_larger(budget_bytes, claim_of(ledger));
    ledger_changed(ledger);
    pthread_mutex_unlock(&ledger->lock);
}

void ledger_set_page(struct ledger *ledger, uint64_t page_bytes)
{
    pthread_mutex_lock(&ledger->lock);
    assert(ledger->planned == 0 || page_bytes <= ledger->page);
    ledger->page = ledger_larger(ledger->page, page_bytes);
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

    assert(account_is_arena(account));
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
    account_apply(account, &(struct mem_change){.reserved = -(int64_t)account->bytes,
                                                .allocated = -(int64_t)account->used,
                                                .requested = -(int64_t)account->requested});
    if (account_is_arena(account)) {
        ledger->arenas -= account->bytes;
        ledger->used -= account->used;
    } else {
        ledger->pinned -= account->bytes;
    }
    ledger->kind[account->kind] -= account->used;
    list_remove(&account->link);
    ledger_changed(ledger);
    pthread_mutex_unlock(&ledger->lock);
    pthread_mutex_unlock(&ledger->reclaim_lock);
    blocks_deinit(&account->segments);
    blocks_deinit(&account->pieces);
    free(account);
}

/* Whether `bytes` more for `account` keep I1; *out_missing then is what I2 still lacks. */
static bool may_add(const struct ledger_account *account, uint64_t bytes, uint64_t *out_missing)
{
    const struct ledger *ledger = account->ledger;
    uint64_t reserved = ledger_reserved(ledger), limit = ledger->budget;
    uint64_t firm = ledger->pinned + (account_is_arena(account) ? ledger->used : ledger->planned);

    if (account_is_arena(account)) /* the budget may have fallen since a batch was admitted */
        limit = ledger_larger(limit, ledger->pinned + ledger->planned);
    if (firm > limit || bytes > limit - firm)
        return false;
    *out_missing = reserved + bytes > limit ? reserved + bytes - limit : 0;
    return true;
}

/* `bytes` of the piece more, or less. */
static struct mem_change change_of(const struct ledger_account *account,
                                   const struct ledger_piece *piece)
{
    int64_t bytes = (int64_t)piece->bytes;

    if (account_is_arena(account))
        return (struct mem_change){.reserved = bytes};
    return (struct mem_change){
        .reserved = bytes, .allocated = bytes, .requested = (int64_t)piece->requested};
}

static void add(struct ledger_account *account, const struct ledger_piece *piece)
{
    struct ledger *ledger = account->ledger;
    struct mem_change change = change_of(account, piece);
    struct ledger_account *model = account_model(account);

    account->bytes += piece->bytes;
    if (account_is_arena(account)) {
        ledger->arenas += piece->bytes;
    } else {
        account->used += piece->bytes;
        account->requested += piece->requested;
        ledger->pinned += piece->bytes;
        ledger->kind[account->kind] += piece->bytes;
    }
    if (account->bytes == piece->bytes)
        account->since_us = clock_now_us();
    account_apply(account, &change);
    ledger->all.device_allocs++;
    ledger->pools[account->kind].device_allocs++;
    account->stats.device_allocs++;
    if (model != NULL)
        model->on_behalf.device_allocs++;
    account_record(account, MEM_EVENT_MAP, piece, 0);
    if (piece->requested > 0 && piece->address != 0)
        account_record(account, MEM_EVENT_ALLOC, piece, 0);
    ledger_changed(ledger);
}

static void refuse(struct ledger_account *account, const struct ledger_piece *piece)
{
    struct ledger *ledger = account->ledger;
    struct ledger_account *user = account_model(account);
    uint64_t reserved = ledger_reserved(ledger);
    const struct mem_note note = {
        .kind = MEM_EVENT_OOM,
        .address = piece->address,
        .bytes = piece->bytes,
        .other = reserved < ledger->budget ? ledger->budget - reserved : 0,
        .owner = account->owner,
        .model = user != NULL ? user->owner : NULL,
        .note = "the budget",
    };

    ledger_book_oom(ledger, account, user, &note);
}

/* STATUS_UNAVAILABLE: it fits but for `*out_missing` bytes of somebody's cache. */
static enum status try_add(struct ledger_account *account, const struct ledger_piece *piece,
                           uint64_t *out_missing)
{
    struct ledger *ledger = account->ledger;
    enum status status = STATUS_OK;

    pthread_mutex_lock(&ledger->lock);
    if (!may_add(account, piece->bytes, out_missing)) {
        refuse(account, piece);
        status = STATUS_NO_MEMORY;
    } else if (*out_missing > 0) {
        status = STATUS_UNAVAILABLE;
    } else {
        status = account_map_add(account, piece);
        if (status == STATUS_OK)
            add(account, piece);
    }
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

static enum status reclaim_and_add(struct ledger_account *account, const struct ledger_piece *piece)
{
    struct ledger *ledger = account->ledger;
    enum status status;
    uint64_t missing;

    ledger_count_retry(account);
    pthread_mutex_lock(&ledger->reclaim_lock);
    ledger->pass++;
    while ((status = try_add(account, piece, &missing)) == STATUS_UNAVAILABLE) {
        struct ledger_account *victim = next_victim(ledger);

        if (victim == NULL)
            break;
        victim->reclaim(victim->reclaim_arg, missing);
    }
    pthread_mutex_unlock(&ledger->reclaim_lock);
    if (status != STATUS_UNAVAILABLE)
        return status;
    pthread_mutex_lock(&ledger->lock);
    refuse(account, piece);
    pthread_mutex_unlock(&ledger->lock);
    return STATUS_NO_MEMORY;
}

void ledger_set_make_way(struct ledger *ledger, ledger_make_way_fn make_way, void *arg)
{
    pthread_mutex_lock(&ledger->lock);
    ledger->make_way = make_way;
    ledger->make_way_arg = arg;
    pthread_mutex_unlock(&ledger->lock);
}

/* Asks others to leave for what `bytes` more lack; false: nothing lacks, or nobody left. */
static bool others_leave(struct ledger_account *account, uint64_t bytes)
{
    struct ledger *ledger = account->ledger;
    ledger_make_way_fn make_way;
    uint64_t firm, lacking;
    void *arg;

    pthread_mutex_lock(&ledger->lock);
    make_way = account_is_arena(account) ? NULL : ledger->make_way;
    arg = ledger->make_way_arg;
    firm = ledger->pinned + ledger->planned;
    lacking = firm + bytes > ledger->budget ? firm + bytes - ledger->budget : 0;
    pthread_mutex_unlock(&ledger->lock);
    return make_way != NULL && lacking > 0 && make_way(arg, lacking) > 0;
}

enum status ledger_add_at(struct ledger_account *account, const struct ledger_piece *piece)
{
    enum status status;
    uint64_t missing;

    while (others_leave(account, piece->bytes))
        ;
    status = try_add(account, piece, &missing);
    return status == STATUS_UNAVAILABLE ? reclaim_and_add(account, piece) : status;
}

enum status ledger_add(struct ledger_account *account, uint64_t bytes)
{
    return ledger_add_at(account, &(struct ledger_piece){.bytes = bytes, .requested = bytes});
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

/* Takes the piece out of the sums; the statistics are the caller's. */
static void take_out(struct ledger_account *account, const struct ledger_piece *piece)
{
    struct ledger *ledger = account->ledger;

    assert(piece->bytes <= account->bytes);
    account->bytes -= piece->bytes;
    if (account_is_arena(account)) {
        assert(account->used <= account->bytes);
        ledger->arenas -= piece->bytes;
    } else {
        account->used -= piece->bytes;
        account->requested -= piece->requested;
        ledger->pinned -= piece->bytes;
        ledger->kind[account->kind] -= piece->bytes;
    }
}

void ledger_sub_at(struct ledger_account *account, const struct ledger_piece *piece)
{
    struct ledger *ledger = account->ledger;
    struct ledger_piece whole = *piece;
    struct mem_change change;

    pthread_mutex_lock(&ledger->lock);
    whole.requested = account_map_sub(account, piece);
    change = change_of(account, &whole);
    change.reserved = -change.reserved;
    change.allocated = -change.allocated;
    change.requested = -change.requested;
    take_out(account, &whole);
    account_apply(account, &change);
    ledger->all.device_frees++;
    ledger->pools[account->kind].device_frees++;
    account->stats.device_frees++;
    if (!account_is_arena(account)) /* whose batch the cache came from is forgotten */
        account->on_behalf.device_frees++;
    account_record(account, MEM_EVENT_UNMAP, piece, 0);
    ledger_changed(ledger);
    pthread_mutex_unlock(&ledger->lock);
}

void ledger_sub(struct ledger_account *account, uint64_t bytes)
{
    ledger_sub_at(account, &(struct ledger_piece){.bytes = bytes, .requested = bytes});
}

void ledger_undo_add(struct ledger_account *account, const struct ledger_piece *piece)
{
    struct mem_change change = change_of(account, piece);
    struct ledger *ledger = account->ledger;
    struct mem_stats *const each[] = {&ledger->all, &ledger->pools[account->kind], &account->stats,
                                      account_is_arena(account) ? NULL : &account->on_behalf};

    pthread_mutex_lock(&ledger->lock);
    (void)account_map_sub(account, piece); /* as it was added */
    take_out(account, piece);
    if (account_is_arena(account) && account->user != NULL)
        account->user->on_behalf.device_allocs--;
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]) && each[i] != NULL; i++) {
        mem_stats_undo(each[i], &change);
        each[i]->device_allocs--;
    }
    account_record(account, MEM_EVENT_UNMAP, piece, 0);
    ledger_changed(ledger);
    pthread_mutex_unlock(&ledger->lock);
}

bool ledger_is_valid(struct ledger *ledger)
{
    bool valid;

    pthread_mutex_lock(&ledger->lock);
    valid = is_valid(ledger);
    pthread_mutex_unlock(&ledger->lock);
    return valid;
}
