/* Sleep and wake: models leave and come back at somebody's word.  On the keeper's thread; a wake is
 * over when none of its models is on its way any more. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "models/internal.h"

struct command_models {
    size_t count;
    struct model **model; /* referenced */
};

static void release_models(struct command_models *models)
{
    for (size_t i = 0; i < models->count; i++)
        model_unref(models->model[i]);
    free(models->model);
    *models = (struct command_models){.count = 0};
}

static enum status collect_all(struct repository *repository, struct command_models *models,
                               struct error *err)
{
    size_t count = 0;

    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < repository->entries; i++)
        count += repository->entry[i]->slots;
    models->model = calloc(count + 1, sizeof(struct model *));
    for (size_t i = 0; models->model != NULL && i < repository->entries; i++)
        for (size_t j = 0; j < repository->entry[i]->slots; j++) {
            struct slot *slot = &repository->entry[i]->slot[j];

            if (slot->model != NULL && slot->state == MODEL_READY)
                models->model[models->count++] = model_ref(slot->model);
        }
    pthread_mutex_unlock(&repository->lock);
    return models->model != NULL ? STATUS_OK
                                 : error_set(err, STATUS_NO_MEMORY, "no memory for the request");
}

/* Every READY version of the model, of all models when the name is "". */
static enum status collect(struct repository *repository, const char *name,
                           struct command_models *models, struct error *err)
{
    struct model *newest;
    size_t kept = 0;

    if (name[0] != '\0') {
        TRY(repository_find(repository, name, "", &newest, err));
        model_unref(newest);
    }
    TRY(collect_all(repository, models, err));
    for (size_t i = 0; i < models->count; i++) {
        if (name[0] == '\0' || strcmp(models->model[i]->name, name) == 0)
            models->model[kept++] = models->model[i];
        else
            model_unref(models->model[i]);
    }
    models->count = kept;
    return STATUS_OK;
}

struct residency_command {
    struct errand errand; /* first */
    struct list link;     /* in keeper->waking */
    char *name;
    enum sleep_level level;
    residency_done_fn done;
    void *arg;
    int64_t from_us;
    struct residency_answer answer;
    struct command_models models; /* wake: until they are back */
};

static void finish(struct residency_command *command, const struct error *err)
{
    command->answer.microseconds = clock_now_us() - command->from_us;
    command->done(command->arg, &command->answer, err);
    release_models(&command->models);
    free(command->name);
    free(command);
}

static enum residency where_is(struct model *model)
{
    struct repository *repository = model->resident.repository;
    enum residency where;

    pthread_mutex_lock(&repository->lock);
    where = model->resident.where;
    pthread_mutex_unlock(&repository->lock);
    return where;
}

/* Away, and for nobody on its way back. */
static bool sleeps(struct model *model, enum residency to)
{
    struct repository *repository = model->resident.repository;
    struct queue_use use;
    bool away;

    pthread_mutex_lock(&repository->lock);
    queue_read_use(model->queue, &use);
    away = model->resident.where >= to && !model->resident.is_moving &&
           !model->resident.is_wanted && use.waiting == 0;
    pthread_mutex_unlock(&repository->lock);
    return away;
}

static void put_to_sleep(struct model *model, enum residency to, struct residency_answer *answer)
{
    enum residency before = where_is(model);

    if (model->resident.is_pinned) {
        answer->pinned++;
        return;
    }
    answer->freed_bytes += resident_leave(model, to, PARK_IDLE, NULL);
    answer->models += where_is(model) != before;
    if (sleeps(model, to))
        return;
    answer->busy++;
    resident_dismiss(model, to);
}

static void run_sleep(struct repository *repository, struct errand *errand)
{
    struct residency_command *command = CONTAINER_OF(errand, struct residency_command, errand);
    struct error err = {.status = STATUS_OK};
    struct command_models models = {.count = 0};
    enum status status = collect(repository, command->name, &models, &err);

    if (status == STATUS_OK && command->level != SLEEP_ACTIVATIONS)
        for (size_t i = 0; i < models.count; i++)
            put_to_sleep(models.model[i],
                         command->level == SLEEP_ALL ? RESIDENCY_DROPPED : RESIDENCY_HOST,
                         &command->answer);
    release_models(&models);
    if (status == STATUS_OK)
        command->answer.freed_bytes += batcher_trim(repository->config.batcher, 0);
    finish(command, status == STATUS_OK ? NULL : &err);
}

/* At level evict only what could stay is brought.  Of all models none leaves for another. */
static enum status check_room(struct repository *repository,
                              const struct residency_command *command, struct error *err)
{
    struct room_wish wish = {.name = command->name, .evicts = command->name[0] != '\0'};
    enum status status;

    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < command->models.count; i++)
        if (command->models.model[i]->resident.where != RESIDENCY_DEVICE)
            wish.bytes += command->models.model[i]->resident.device_bytes;
    pthread_mutex_unlock(&repository->lock);
    if (wish.bytes == 0)
        return STATUS_OK;
    status = room_to_keep(repository, &wish, err);
    if (status != STATUS_OK)
        room_name_obstacles(repository, NULL, err);
    return status;
}

static void run_wake(struct repository *repository, struct errand *errand)
{
    struct residency_command *command = CONTAINER_OF(errand, struct residency_command, errand);
    struct error err = {.status = STATUS_OK};
    enum status status = collect(repository, command->name, &command->models, &err);

    if (status == STATUS_OK)
        status = check_room(repository, command, &err);
    if (status != STATUS_OK) {
        finish(command, &err);
        return;
    }
    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < command->models.count; i++) {
        struct resident *resident = &command->models.model[i]->resident;

        if (resident->where == RESIDENCY_DEVICE && !resident->is_moving)
            continue;
        resident->is_wanted = true;
        resident->last_error.status = STATUS_OK;
        command->answer.models++;
    }
    pthread_mutex_unlock(&repository->lock);
    list_append(&repository->keeper.waking, &command->link);
}

/* Whether none of its models is on its way any more; *err: the first that did not come. */
static bool is_over(struct repository *repository, struct residency_command *command,
                    struct error *err)
{
    bool over = true;

    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < command->models.count; i++) {
        const struct resident *resident = &command->models.model[i]->resident;

        over = over && ((!resident->is_wanted && !resident->is_moving) || resident->is_retired);
        if (err->status != STATUS_OK)
            continue;
        if (resident->last_error.status != STATUS_OK)
            *err = resident->last_error;
        else if (resident->is_retired && resident->where != RESIDENCY_DEVICE)
            (void)error_set(err, STATUS_UNAVAILABLE,
                            "model '%s' version %s was unloaded before it was back on the device",
                            command->models.model[i]->name, command->models.model[i]->version_text);
    }
    pthread_mutex_unlock(&repository->lock);
    return over || repository->keeper.is_stopping;
}

void sleep_finish_woken(struct repository *repository)
{
    struct residency_command *command;

    LIST_FOR_EACH (command, &repository->keeper.waking, struct residency_command, link) {
        struct error err = {.status = STATUS_OK};

        if (!is_over(repository, command, &err))
            continue;
        list_remove(&command->link);
        finish(command, err.status == STATUS_OK ? NULL : &err);
    }
}

static void send_command(struct repository *repository, struct residency_command wanted,
                         const char *name)
{
    struct residency_command *command = malloc(sizeof(*command));
    struct error err;

    if (command != NULL) {
        *command = wanted;
        command->from_us = clock_now_us();
        command->name = strdup(name);
        if (command->name != NULL) {
            keeper_send(repository, &command->errand);
            return;
        }
    }
    free(command);
    (void)error_set(&err, STATUS_NO_MEMORY, "no memory for the request");
    wanted.done(wanted.arg, &wanted.answer, &err);
}

void repository_sleep(struct repository *repository, const char *name, enum sleep_level level,
                      residency_done_fn done, void *arg)
{
    send_command(repository,
                 (struct residency_command){
                     .errand.run = run_sleep, .level = level, .done = done, .arg = arg},
                 name);
}

void repository_wake(struct repository *repository, const char *name, residency_done_fn done,
                     void *arg)
{
    send_command(repository,
                 (struct residency_command){.errand.run = run_wake, .done = done, .arg = arg},
                 name);
}

void repository_set_gate(struct repository *repository, uint64_t (*may_hold)(void *arg), void *arg)
{
    pthread_mutex_lock(&repository->lock);
    repository->may_hold = may_hold;
    repository->may_hold_arg = arg;
    pthread_mutex_unlock(&repository->lock);
}
