/* Room on the device: who may leave for it, and who is in the way. */
#define LOG_COMPONENT "models"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "govern/eviction.h"
#include "models/internal.h"

/* Who has come back stays for so many times what its way back took, whoever presses. */
enum { STAY_FACTOR = 2 };
/* Who was pressed does not come back before: its room is for somebody else. */
enum { PRESSED_US = 100000 };

/* ---- who may leave ---- */

struct idle_list {
    size_t count;
    struct model **model; /* referenced */
    struct eviction_candidate *candidate;
    size_t *order;
};

static void release_idle(struct idle_list *idle)
{
    for (size_t i = 0; i < idle->count; i++)
        model_unref(idle->model[i]);
    free(idle->model);
    free(idle->candidate);
    free(idle->order);
}

static struct eviction_candidate judge(struct model *model, const struct queue_use *use,
                                       int64_t now_us)
{
    const struct resident *resident = &model->resident;
    int64_t lived_us = now_us - resident->born_us;

    return (struct eviction_candidate){
        .bytes = network_resident_bytes(model->network),
        .reload_us = resident->reload_us > 0 ? resident->reload_us : model->load_us,
        .idle_us = use->idle_since_us == CLOCK_NEVER ? 0 : now_us - use->idle_since_us,
        .interval_us = use->requests > 0 ? lived_us / (int64_t)use->requests + 1 : 0,
    };
}

static size_t count_slots(const struct repository *repository)
{
    size_t count = 0;

    for (size_t i = 0; i < repository->entries; i++)
        count += repository->entry[i]->slots;
    return count;
}

/* Lock held for these. */
static bool is_idle(struct model *model, int64_t now_us)
{
    (void)now_us;
    return resident_obstacle(model) == NULL;
}

static bool is_pressable(struct model *model, int64_t now_us)
{
    const struct resident *resident = &model->resident;

    return !resident->is_pinned && !resident->is_moving &&
           (resident_obstacle(model) == NULL ||
            now_us - resident->since_us > STAY_FACTOR * resident->reload_us);
}

static void add_model(struct idle_list *list, struct model *model, int64_t now_us)
{
    struct queue_use use;

    queue_read_use(model->queue, &use);
    list->candidate[list->count] = judge(model, &use, now_us);
    list->model[list->count++] = model_ref(model);
}

/* The models on the device of which `test` is true, but for that of the queue `spared` (may be
 * NULL).  False: there are none, or no memory for the list. */
static bool list_models(struct repository *repository, const struct model_queue *spared,
                        bool (*test)(struct model *model, int64_t now_us), struct idle_list *idle)
{
    int64_t now_us = clock_now_us();
    size_t room;

    *idle = (struct idle_list){.count = 0};
    pthread_mutex_lock(&repository->lock);
    room = count_slots(repository) + 1;
    idle->model = calloc(room, sizeof(struct model *));
    idle->candidate = calloc(room, sizeof(*idle->candidate));
    idle->order = calloc(room, sizeof(*idle->order));
    if (idle->model != NULL && idle->candidate != NULL && idle->order != NULL)
        for (size_t i = 0; i < repository->entries; i++)
            for (size_t j = 0; j < repository->entry[i]->slots; j++) {
                struct slot *slot = &repository->entry[i]->slot[j];

                if (slot->model != NULL && slot->state == MODEL_READY &&
                    slot->model->queue != spared &&
                    slot->model->resident.where == RESIDENCY_DEVICE && test(slot->model, now_us))
                    add_model(idle, slot->model, now_us);
            }
    pthread_mutex_unlock(&repository->lock);
    return idle->count > 0;
}

static uint64_t leave_for_host(struct model *model)
{
    return resident_leave(model, RESIDENCY_HOST, PARK_IDLE, NULL);
}

uint64_t room_evict(struct repository *repository, uint64_t bytes, const struct model *spared)
{
    return room_evict_by(repository, bytes, spared, CLOCK_NEVER, leave_for_host);
}

uint64_t room_evict_by(struct repository *repository, uint64_t bytes, const struct model *spared,
                       int64_t until_us, uint64_t (*let_go)(struct model *model))
{
    uint64_t freed = 0, before;

    do {
        struct idle_list idle;
        size_t count;

        before = freed;
        if (list_models(repository, spared == NULL ? NULL : spared->queue, is_idle, &idle)) {
            count = eviction_choose(idle.candidate, idle.count, bytes - freed, idle.order);
            for (size_t i = 0; i < count && clock_now_us() < until_us; i++)
                freed += let_go(idle.model[idle.order[i]]);
        }
        release_idle(&idle);
    } while (freed < bytes && freed > before);
    return freed;
}

static uint64_t press(struct model *model)
{
    struct repository *repository = model->resident.repository;

    pthread_mutex_lock(&repository->lock);
    model->resident.retry_us = clock_now_us() + PRESSED_US;
    pthread_mutex_unlock(&repository->lock);
    return resident_leave(model, RESIDENCY_HOST, PARK_NEEDED, NULL);
}

/* Whose requests wait too long for memory may make others wait: models in use leave as soon as none
 * of their batches runs, least worth first, but for those that came back a moment ago. */
uint64_t room_press(struct repository *repository, uint64_t bytes, const struct model_queue *needy)
{
    struct idle_list list;
    uint64_t freed = 0;
    size_t count;

    if (list_models(repository, needy, is_pressable, &list)) {
        count = eviction_choose(list.candidate, list.count, bytes, list.order);
        for (size_t i = 0; i < count; i++)
            freed += press(list.model[list.order[i]]);
    }
    release_idle(&list);
    return freed;
}

static uint64_t idle_bytes(struct repository *repository, const struct model *spared)
{
    struct idle_list idle;
    uint64_t bytes = 0;

    (void)list_models(repository, spared == NULL ? NULL : spared->queue, is_idle, &idle);
    for (size_t i = 0; i < idle.count; i++)
        bytes += idle.candidate[i].bytes;
    release_idle(&idle);
    return bytes;
}

uint64_t repository_evictable(void *arg)
{
    return idle_bytes(arg, NULL);
}

uint64_t repository_evict(void *arg, uint64_t bytes)
{
    struct repository *repository = arg;
    uint64_t most = repository_evictable(repository);

    if (bytes > most)
        bytes = most;
    if (bytes == 0)
        return 0;
    atomic_store(&repository->keeper.evict_bytes, bytes);
    keeper_nudge(repository);
    return bytes;
}

/* Weights that may leave sometime: all but the needy network's own (whose queue may be a probe's)
 * and those of pinned models.  A model that is being loaded counts for others: it comes into the
 * table, or goes. */
static uint64_t movable_bytes(struct repository *repository, const struct network *needy)
{
    uint64_t fixed = network_resident_bytes(needy);
    struct ledger_stats stats;

    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < repository->entries; i++)
        for (size_t j = 0; j < repository->entry[i]->slots; j++) {
            const struct model *model = repository->entry[i]->slot[j].model;

            if (model != NULL && model->network != needy && model->resident.is_pinned)
                fixed += network_resident_bytes(model->network);
        }
    pthread_mutex_unlock(&repository->lock);
    ledger_read(repository->config.ledger, &stats);
    return stats.kind_bytes[MEM_WEIGHTS] > fixed ? stats.kind_bytes[MEM_WEIGHTS] - fixed : 0;
}

bool room_make_way(void *arg, const struct model_queue *needy, uint64_t bytes, int64_t waited_us)
{
    struct repository *repository = arg;
    struct need *need = &repository->keeper.need;
    struct ledger_stats stats;

    ledger_read(repository->config.ledger, &stats);
    if (movable_bytes(repository, queue_network(needy)) + stats.held_bytes < bytes)
        return false;
    pthread_mutex_lock(&repository->lock);
    if (bytes > need->bytes) {
        need->bytes = bytes;
        need->queue = needy;
    }
    need->is_urgent = need->is_urgent || waited_us >= ROOM_PATIENCE_US;
    pthread_mutex_unlock(&repository->lock);
    keeper_nudge(repository);
    return true;
}

void room_serve_need(struct repository *repository)
{
    struct need need;
    uint64_t freed;

    pthread_mutex_lock(&repository->lock);
    need = repository->keeper.need;
    repository->keeper.need = (struct need){.bytes = 0};
    pthread_mutex_unlock(&repository->lock);
    if (need.bytes == 0)
        return;
    freed = room_evict(repository, need.bytes, NULL);
    if (freed < need.bytes && need.is_urgent)
        (void)room_press(repository, need.bytes - freed, need.queue);
}

/* ---- who is in the way ---- */

static void explain_model(struct model *model, char *text, size_t room)
{
    const char *obstacle = resident_obstacle(model);
    size_t used = strlen(text);
    uint64_t bytes = network_resident_bytes(model->network);

    if (bytes == 0)
        return;
    (void)snprintf(text + used, room - used, "%s'%.60s' %" PRIu64 " bytes (%s)",
                   used == 0 ? "" : ", ", model->name, bytes, obstacle == NULL ? "idle" : obstacle);
}

bool room_is_taken(struct repository *repository)
{
    struct ledger_stats stats;
    bool taken;

    ledger_read(repository->config.ledger, &stats);
    taken = stats.planned_bytes > 0 || stats.held_bytes > 0;
    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < repository->entries; i++)
        for (size_t j = 0; j < repository->entry[i]->slots; j++) {
            struct model *model = repository->entry[i]->slot[j].model;

            taken = taken || (model != NULL && network_resident_bytes(model->network) > 0 &&
                              resident_obstacle(model) != NULL);
        }
    pthread_mutex_unlock(&repository->lock);
    return taken;
}

void room_explain(struct repository *repository, const struct model *spared, char *text,
                  size_t room)
{
    struct ledger_stats stats;
    size_t used;

    text[0] = '\0';
    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < repository->entries; i++)
        for (size_t j = 0; j < repository->entry[i]->slots; j++) {
            struct model *model = repository->entry[i]->slot[j].model;

            if (model != NULL && model != spared)
                explain_model(model, text, room);
        }
    pthread_mutex_unlock(&repository->lock);
    ledger_read(repository->config.ledger, &stats);
    used = strlen(text);
    if (stats.held_bytes > 0)
        (void)snprintf(text + used, room - used, "%s%" PRIu64 " bytes held for another program",
                       used == 0 ? "" : ", ", stats.held_bytes);
    used = strlen(text);
    if (stats.planned_bytes > 0)
        (void)snprintf(text + used, room - used, "%s%" PRIu64 " bytes of batches that run",
                       used == 0 ? "" : ", ", stats.planned_bytes);
    if (text[0] == '\0')
        (void)snprintf(text, room, "nothing, the budget is smaller");
}

void room_name_obstacles(struct repository *repository, const struct model *spared,
                         struct error *err)
{
    char obstacles[ERROR_TEXT_BYTES / 2], text[ERROR_TEXT_BYTES / 2];

    (void)snprintf(text, sizeof(text), "%.380s", err->text);
    room_explain(repository, spared, obstacles, sizeof(obstacles));
    (void)error_set(err, STATUS_NO_MEMORY, "%s; on the device: %s", text, obstacles);
}

static uint64_t limit_to_keep(struct repository *repository)
{
    uint64_t (*may_hold)(void *arg);
    void *arg;

    pthread_mutex_lock(&repository->lock);
    may_hold = repository->may_hold;
    arg = repository->may_hold_arg;
    pthread_mutex_unlock(&repository->lock);
    return may_hold == NULL ? UINT64_MAX : may_hold(arg);
}

/* *out_over: what idle models have to give for it. */
static enum status look_for_room(struct repository *repository, const struct room_wish *wish,
                                 uint64_t *out_over, struct error *err)
{
    uint64_t limit = limit_to_keep(repository), held, idle = 0;
    struct ledger_stats stats;

    *out_over = 0;
    if (limit == UINT64_MAX)
        return STATUS_OK;
    ledger_read(repository->config.ledger, &stats);
    held = stats.reserved_bytes - stats.cached_bytes + wish->bytes - wish->leaving_bytes;
    if (held <= limit)
        return STATUS_OK;
    if (wish->evicts)
        idle = idle_bytes(repository, wish->spared);
    if (held - limit > idle)
        return error_set(err, STATUS_NO_MEMORY,
                         "memory is at level evict: %s%s%s%" PRIu64
                         " bytes more than may stay on the device would have to go, idle models "
                         "have %" PRIu64,
                         wish->name[0] == '\0' ? "" : "for model '", wish->name,
                         wish->name[0] == '\0' ? "" : "' ", held - limit, idle);
    *out_over = held - limit;
    return STATUS_OK;
}

enum status room_may_keep(struct repository *repository, const struct room_wish *wish,
                          struct error *err)
{
    uint64_t over;

    return look_for_room(repository, wish, &over, err);
}

enum status room_to_keep(struct repository *repository, const struct room_wish *wish,
                         struct error *err)
{
    uint64_t over;

    TRY(look_for_room(repository, wish, &over, err));
    if (over > 0)
        (void)room_evict(repository, over, wish->spared);
    return STATUS_OK;
}

/* What stays whatever happens: weights of pinned models, and what is no model's. */
static uint64_t fixed_bytes(struct repository *repository, const struct model *spared)
{
    struct ledger_stats stats;
    uint64_t bytes;

    ledger_read(repository->config.ledger, &stats);
    bytes = stats.kind_bytes[MEM_FIXED] + stats.kind_bytes[MEM_WORKSPACE];
    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < repository->entries; i++)
        for (size_t j = 0; j < repository->entry[i]->slots; j++) {
            const struct model *model = repository->entry[i]->slot[j].model;

            if (model != NULL && model != spared && model->resident.is_pinned)
                bytes += network_resident_bytes(model->network);
        }
    pthread_mutex_unlock(&repository->lock);
    return bytes;
}

/* *out_budget: with what is held for others, which comes back by itself. */
static uint64_t available_bytes(struct repository *repository, uint64_t *out_budget)
{
    struct ledger_stats stats;
    uint64_t ceiling = ledger_ceiling(repository->config.ledger);

    ledger_read(repository->config.ledger, &stats);
    *out_budget = stats.budget_bytes + stats.held_bytes;
    return ceiling > stats.planned_bytes ? ceiling - stats.planned_bytes : 0;
}

bool room_make(struct repository *repository, uint64_t bytes, const struct model *needy,
               bool *out_never, uint64_t *out_available)
{
    uint64_t budget, available = available_bytes(repository, &budget);
    int64_t since_us;

    pthread_mutex_lock(&repository->lock);
    since_us = needy->resident.needy_since_us;
    pthread_mutex_unlock(&repository->lock);
    if (available < bytes) {
        (void)room_evict(repository, bytes - available, needy);
        available = available_bytes(repository, &budget);
    }
    if (available < bytes && since_us > 0 && clock_now_us() - since_us >= ROOM_PATIENCE_US) {
        (void)room_press(repository, bytes - available, needy->queue);
        available = available_bytes(repository, &budget);
    }
    *out_available = available;
    *out_never = bytes > budget || fixed_bytes(repository, needy) > budget - bytes;
    return available >= bytes;
}

/* ---- host memory of models that left ---- */

/* The model in host memory that was used longest ago, referenced; NULL: none may be dropped.
 * *out_bytes: of all of them. */
static struct model *coldest_on_host(struct repository *repository, const struct model *spared,
                                     uint64_t *out_bytes)
{
    int64_t coldest_us = CLOCK_NEVER;
    struct model *coldest = NULL;
    uint64_t bytes = 0;

    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < repository->entries; i++)
        for (size_t j = 0; j < repository->entry[i]->slots; j++) {
            struct model *model = repository->entry[i]->slot[j].model;
            struct queue_use use;

            if (model == NULL || model == spared || model->resident.where != RESIDENCY_HOST)
                continue;
            bytes += network_host_bytes(model->network);
            queue_read_use(model->queue, &use);
            if (resident_obstacle(model) == NULL && use.idle_since_us < coldest_us) {
                coldest = model;
                coldest_us = use.idle_since_us;
            }
        }
    if (coldest != NULL)
        (void)model_ref(coldest);
    pthread_mutex_unlock(&repository->lock);
    *out_bytes = bytes;
    return coldest;
}

uint64_t room_drop_coldest(struct repository *repository)
{
    uint64_t others, freed = 0;
    struct model *coldest = coldest_on_host(repository, NULL, &others);

    if (coldest != NULL)
        (void)resident_leave(coldest, RESIDENCY_DROPPED, PARK_IDLE, &freed);
    model_unref(coldest);
    return freed;
}

void repository_system_presses(struct repository *repository)
{
    atomic_store(&repository->keeper.pressed, true);
    keeper_nudge(repository);
}

bool room_on_host(struct repository *repository, const struct model *model, uint64_t mine)
{
    uint64_t limit = atomic_load(&repository->host_cache_bytes), others;

    while (mine <= limit) {
        struct model *coldest = coldest_on_host(repository, model, &others);
        bool fits = others <= limit - mine;

        if (!fits && coldest != NULL)
            (void)resident_leave(coldest, RESIDENCY_DROPPED, PARK_IDLE, NULL);
        model_unref(coldest);
        if (fits || coldest == NULL)
            return fits;
    }
    return false;
}

void room_fit_host(struct repository *repository)
{
    uint64_t limit = atomic_load(&repository->host_cache_bytes), bytes, freed = 1;

    while (freed > 0) {
        struct model *coldest = coldest_on_host(repository, NULL, &bytes);

        freed = 0;
        if (coldest != NULL && bytes > limit)
            (void)resident_leave(coldest, RESIDENCY_DROPPED, PARK_IDLE, &freed);
        model_unref(coldest);
    }
}
