/* Statistics and history of the ledger: what each change counts for. */
#include "base/clock.h"
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

void account_record(const struct ledger_account *account, enum mem_event_kind kind,
                    const struct ledger_piece *piece)
{
    const struct ledger_account *user = account->user;

    if (account->ledger->history == NULL)
        return;
    ledger_record(account->ledger,
                  &(struct mem_note){.kind = kind,
                                     .address = piece->address,
                                     .bytes = piece->bytes,
                                     .requested = piece->requested,
                                     .owner = account->owner,
                                     .model = user != NULL                ? user->owner
                                              : account_is_arena(account) ? NULL
                                                                          : account->owner});
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
