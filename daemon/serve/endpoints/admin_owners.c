/* The owners in the answer to Memory: who holds what, since when, why, and what would free it. */
#include "serve/endpoints/admin_owners.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "models/why.h"
#include "serve/endpoints/admin.h"

#define INT(value) ((json_int_t)(value))

enum { OWNERS_MAX = 1024 };

struct known_model {
    char owner[sizeof(((struct model_info *)NULL)->name) +
               sizeof(((struct model_info *)NULL)->version)]; /* "resnet/1" */
    char name[sizeof(((struct model_info *)NULL)->name)];
    struct why_facts facts;
};

struct known_models {
    struct known_model *model;
    size_t count, room;
    int64_t now_us;
};

static void add_known(void *arg, const struct model_info *info, struct model *model)
{
    struct known_models *known = arg;
    const struct model_residency *residency = &info->residency;
    struct known_model *entry, *grown;
    struct queue_use use;

    if (model == NULL)
        return;
    if (known->count == known->room) {
        grown = realloc(known->model, (known->room * 2 + 8) * sizeof(*grown));
        if (grown == NULL)
            return; /* told without its reasons */
        known->model = grown;
        known->room = known->room * 2 + 8;
    }
    entry = &known->model[known->count++];
    (void)snprintf(entry->owner, sizeof(entry->owner), "%s/%s", info->name, info->version);
    (void)snprintf(entry->name, sizeof(entry->name), "%s", info->name);
    queue_read_use(model_queue(model), &use);
    entry->facts = (struct why_facts){
        .is_model = true,
        .requests = use.pending,
        .is_moving = residency->is_moving,
        .is_pinned = residency->is_pinned,
        .keep_alive_us = residency->keep_alive_us,
        .idle_us = known->now_us -
                   (residency->last_use_us > 0 ? residency->last_use_us : residency->since_us),
    };
}

static const struct known_model *find_known(const struct known_models *known, const char *owner)
{
    for (size_t i = 0; i < known->count; i++)
        if (strncmp(known->model[i].owner, owner, LEDGER_OWNER_BYTES - 1) == 0) /* it is cut */
            return &known->model[i];
    return NULL;
}

static int64_t decay_begins(const struct warden_view *view, int64_t now_us)
{
    if (view->idle_after_us <= 0 || view->idle_after_us == CLOCK_NEVER)
        return CLOCK_NEVER;
    return view->last_batch_us + view->idle_after_us - now_us;
}

static struct why explain(const struct ledger_entry *entry, const struct known_models *known,
                          const struct warden_view *view)
{
    const struct known_model *model =
        entry->kind == MEM_WEIGHTS ? find_known(known, entry->owner) : NULL;
    struct why_facts facts = {.kind = MEM_WEIGHTS};
    struct why why;

    if (model != NULL) {
        facts = model->facts;
        facts.name = model->name;
    }
    facts.kind = entry->kind;
    facts.user = entry->user;
    facts.decay_us = decay_begins(view, known->now_us);
    facts.shrink_us = view->idle_decay_us;
    facts.is_floor = view->ledger.cached_bytes <= view->floor_bytes;
    why_tell(&facts, &why);
    return why;
}

static json_int_t age_us(int64_t then_us, int64_t now_us)
{
    return then_us > 0 && then_us < now_us ? INT(now_us - then_us) : 0;
}

json_t *admin_list_owners(struct server *server, const struct warden_view *view)
{
    struct ledger_entry *entries = calloc(OWNERS_MAX, sizeof(*entries));
    struct known_models known = {.now_us = clock_now_us()};
    json_t *owners = json_array();
    size_t count;

    if (entries == NULL)
        return owners;
    repository_for_each(server->repository, add_known, &known);
    count = ledger_list(warden_ledger(server->warden), entries, OWNERS_MAX);
    for (size_t i = 0; i < count && i < OWNERS_MAX; i++) {
        struct why why = explain(&entries[i], &known, view);

        (void)json_array_append_new(
            owners,
            json_pack("{s:s,s:s,s:I,s:I,s:I,s:s,s:s,s:s}", "owner", entries[i].owner, "kind",
                      mem_kind_name(entries[i].kind), "bytes", INT(entries[i].bytes), "since_us",
                      age_us(entries[i].since_us, known.now_us), "last_use_us",
                      age_us(entries[i].last_use_us, known.now_us), "user", entries[i].user,
                      "held_for", why.held_for, "freed_by", why.freed_by));
    }
    free(known.model);
    free(entries);
    return owners;
}
