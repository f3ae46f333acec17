/* Room for another program on the same device: the ladder.
 *
 *   activations   what lanes cache                         back at once, comes again with the next
 * batch plans         of idle models (host-memory devices)     made again by the next request
 *   weights       of idle models, to host memory           a reload without reading
 *   host          of idle models that left (host-memory    a reload from the file
 *                 devices): dropped
 *
 * Each step asks only for what still lacks, and none is begun when the time is up.
 */
#define LOG_COMPONENT "models"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/host_source.h"
#include "models/internal.h"
#include "observe/log.h"

const char *room_step_name(enum room_step step)
{
    static const char *const names[] = {"activations", "plans", "weights", "host"};

    return names[step];
}

struct making_room {
    struct errand errand; /* first */
    struct room_request request;
    struct room_answer answer;
    room_done_fn done;
    void *arg;
    int64_t from_us;
};

static uint64_t lacking(const struct making_room *making)
{
    uint64_t freed = making->answer.freed_bytes;

    return freed < making->request.bytes && clock_now_us() < making->request.until_us
               ? making->request.bytes - freed
               : 0;
}

static void note_freed(struct making_room *making, enum room_step step, uint64_t bytes)
{
    making->answer.freed[step] += bytes;
    making->answer.freed_bytes += bytes;
}

static bool on_host(const struct repository *repository)
{
    return repository->config.device->ops->host_memory;
}

/* ---- the steps ---- */

static void give_activations(struct repository *repository, struct making_room *making)
{
    struct batcher *batcher = repository->config.batcher;
    uint64_t cached = batcher_cached_bytes(batcher), wanted = lacking(making);
    const uint64_t page = repository->config.device->memory->page_bytes;

    wanted = wanted < cached ? (wanted + page - 1) / page * page : wanted; /* no less is freed */
    if (wanted > 0)
        note_freed(making, ROOM_ACTIVATIONS,
                   batcher_trim(batcher, cached > wanted ? cached - wanted : 0));
}

static void give_plans(struct repository *repository, struct making_room *making)
{
    uint64_t freed;

    if (!on_host(repository) || lacking(making) == 0)
        return;
    freed = room_evict_by(repository, lacking(making), NULL, making->request.until_us,
                          resident_drop_plans);
    host_trim();
    note_freed(making, ROOM_PLANS, freed);
}

static uint64_t leave_for_host(struct model *model)
{
    return resident_leave(model, RESIDENCY_HOST, PARK_IDLE, NULL);
}

static void give_weights(struct repository *repository, struct making_room *making)
{
    if (lacking(making) > 0)
        note_freed(making, ROOM_WEIGHTS,
                   room_evict_by(repository, lacking(making), NULL, making->request.until_us,
                                 leave_for_host));
}

static void give_host(struct repository *repository, struct making_room *making)
{
    uint64_t freed = 1;

    while (on_host(repository) && freed > 0 && lacking(making) > 0) {
        freed = room_drop_coldest(repository);
        note_freed(making, ROOM_HOST, freed);
    }
}

/* ---- what is left ---- */

static void insert_left(struct room_answer *answer, const struct room_left *left)
{
    size_t at = answer->left_count < ROOM_LEFT_MAX ? answer->left_count++ : ROOM_LEFT_MAX;

    while (at > 0 && answer->left[at - 1].bytes < left->bytes) {
        if (at < ROOM_LEFT_MAX)
            answer->left[at] = answer->left[at - 1];
        at--;
    }
    if (at < ROOM_LEFT_MAX)
        answer->left[at] = *left;
}

static void list_left(struct repository *repository, struct room_answer *answer)
{
    struct ledger_stats stats;

    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < repository->entries; i++)
        for (size_t j = 0; j < repository->entry[i]->slots; j++) {
            struct model *model = repository->entry[i]->slot[j].model;
            struct room_left left;

            if (model == NULL)
                continue;
            left = (struct room_left){.bytes = network_resident_bytes(model->network),
                                      .why = resident_obstacle(model)};
            left.why = left.why == NULL ? "idle" : left.why;
            strncpy(left.name, model->name, sizeof(left.name) - 1);
            if (left.bytes > 0)
                insert_left(answer, &left);
        }
    pthread_mutex_unlock(&repository->lock);
    ledger_read(repository->config.ledger, &stats);
    answer->active_bytes = stats.kind_bytes[MEM_ACTIVATION];
}

/* ---- the whole ---- */

static void run_making_room(struct repository *repository, struct errand *errand)
{
    struct making_room *making = CONTAINER_OF(errand, struct making_room, errand);
    const struct room_request *request = &making->request;
    struct room_answer *answer = &making->answer;
    struct ledger_stats stats;
    uint64_t held;

    ledger_read(repository->config.ledger, &stats);
    held = request->bytes < stats.budget_bytes ? request->bytes : stats.budget_bytes;
    if (request->hold != NULL)
        request->hold(request->hold_arg, held);
    give_activations(repository, making);
    give_plans(repository, making);
    give_weights(repository, making);
    give_host(repository, making);
    if (request->unhold != NULL && answer->freed_bytes < held)
        request->unhold(request->hold_arg, held - answer->freed_bytes);
    list_left(repository, answer);
    answer->microseconds = clock_now_us() - making->from_us;
    log_info("made room: %" PRIu64 " of %" PRIu64 " bytes given back in %" PRId64 " us",
             answer->freed_bytes, request->bytes, answer->microseconds);
    making->done(making->arg, answer, NULL);
    free(making);
}

void repository_make_room(struct repository *repository, const struct room_request *request,
                          room_done_fn done, void *arg)
{
    struct making_room *making = calloc(1, sizeof(*making));
    const struct room_answer nothing = {.freed_bytes = 0};
    struct error err;

    if (making == NULL) {
        (void)error_set(&err, STATUS_NO_MEMORY, "no memory for the request");
        done(arg, &nothing, &err);
        return;
    }
    making->errand.run = run_making_room;
    making->request = *request;
    making->done = done;
    making->arg = arg;
    making->from_us = clock_now_us();
    keeper_send(repository, &making->errand);
}
