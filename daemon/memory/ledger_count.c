/* Statistics and history of the ledger: what each change counts for. */
#include "base/clock.h"
#include "memory/history_names.h"
#include "memory/internal.h"

/* The model that an account's bytes count for. */
struct ledger_account *account_model(struct ledger_account *account)
{
    return account_is_arena(account) ? account->user : account;
}

/* A model holds no part of an arena but what it uses: that is reserved on its behalf. */
void account_apply(struct ledger_account *account, const struct mem_change *change)
{
    const struct mem_change of_arena = {
        .reserved = change->allocated,
        .allocated = change->allocated,
        .requested = change->requested,
    };
    struct ledger *ledger = account->ledger;

    mem_stats_apply(&ledger->all, change);
    mem_stats_apply(&ledger->pools[account->kind], change);
    mem_stats_apply(&account->stats, change);
    if (!account_is_arena(account))
        mem_stats_apply(&account->on_behalf, change);
    else if (account->user != NULL)
        mem_stats_apply(&account->user->on_behalf, &of_arena);
}

void ledger_record(struct ledger *ledger, const struct mem_note *note)
{
    if (ledger->history != NULL)
        history_add(ledger->history, note, clock_now_us());
}

/* Names are looked up once an account and history; two histories never stand at one address while
 * an account knows the first: ledger_set_history() makes all of them forget. */
static uint16_t name_of(struct ledger_account *account, struct history *history)
{
    if (account == NULL)
        return 0;
    if (account->named_in != history) {
        account->name = history_name(history, account->owner);
        account->named_in = history;
    }
    return account->name;
}

void account_record(struct ledger_account *account, enum mem_event_kind kind,
                    const struct ledger_piece *piece, int64_t now_us)
{
    struct history *history = account->ledger->history;
    struct history_entry entry = {.kind = kind,
                                  .address = piece->address,
                                  .bytes = piece->bytes,
                                  .requested = piece->requested};

    if (history == NULL)
        return;
    entry.owner = name_of(account, history);
    entry.model = name_of(account_model(account), history);
    history_add_entry(history, &entry, now_us > 0 ? now_us : clock_now_us());
}

/* What is given back goes with the end of a batch, which has just been recorded: its time serves.
 */
void ledger_record_plan(struct ledger *ledger, enum mem_event_kind kind,
                        struct ledger_account *user, uint64_t bytes)
{
    struct history *history = ledger->history;
    struct history_entry entry = {.kind = kind, .bytes = bytes, .other = ledger->planned};

    if (history == NULL)
        return;
    entry.model = name_of(user, history);
    history_add_entry(history, &entry,
                      kind == MEM_EVENT_UNRESERVE && history_last_us(history) > 0
                          ? history_last_us(history)
                          : clock_now_us());
}

void ledger_book_oom(struct ledger *ledger, struct ledger_account *account,
                     struct ledger_account *user, const struct mem_note *note)
{
    ledger->all.ooms++;
    if (account != NULL) {
        ledger->pools[account->kind].ooms++;
        account->stats.ooms++;
    }
    if (user != NULL)
        user->on_behalf.ooms++;
    ledger_record(ledger, note);
}

void ledger_count_retry(struct ledger_account *account)
{
    struct ledger *ledger = account->ledger;
    struct ledger_account *model;

    pthread_mutex_lock(&ledger->lock);
    model = account_model(account);
    ledger->all.alloc_retries++;
    ledger->pools[account->kind].alloc_retries++;
    account->stats.alloc_retries++;
    if (model != NULL)
        model->on_behalf.alloc_retries++;
    pthread_mutex_unlock(&ledger->lock);
}

void ledger_count_oom(struct ledger *ledger, struct ledger_account *user, uint64_t bytes,
                      uint64_t available, const char *note)
{
    pthread_mutex_lock(&ledger->lock);
    ledger_book_oom(ledger, NULL, user,
                    &(struct mem_note){.kind = MEM_EVENT_OOM,
                                       .bytes = bytes,
                                       .other = available,
                                       .model = user != NULL ? user->owner : NULL,
                                       .note = note});
    pthread_mutex_unlock(&ledger->lock);
}

void ledger_count_violation(struct ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    ledger->plan_violations++;
    pthread_mutex_unlock(&ledger->lock);
}
