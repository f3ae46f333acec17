/* What the daemon loads when it starts: known before anybody may ask, so that who asks too early is
 * told that it comes, and not that it is not there. */
#define LOG_COMPONENT "models"

#include <stdio.h>
#include <string.h>

#include "models/internal.h"
#include "observe/log.h"

static bool is_wanted_at_start(const struct repository *repository, const char *name)
{
    const struct text_list *load = &repository->config.load;

    if (repository->config.control != CONTROL_EXPLICIT)
        return true;
    for (size_t i = 0; i < load->count; i++)
        if (strcmp(load->items[i], "*") == 0 || strcmp(load->items[i], name) == 0)
            return true;
    return false;
}

/* Models that Load= names and that are not there are known, and the reason why they are not ready.
 */
static enum status note_missing(struct repository *repository, struct error *err)
{
    const struct text_list *load = &repository->config.load;

    for (size_t i = 0; repository->config.control == CONTROL_EXPLICIT && i < load->count; i++) {
        const char *name = load->items[i];
        struct entry *entry;

        if (strcmp(name, "*") == 0)
            continue;
        entry = entry_add(repository, name);
        if (entry == NULL)
            return error_set(err, STATUS_NO_MEMORY, "no memory for the list of models");
        entry->wanted = true;
        if (entry->on_disk)
            continue;
        (void)snprintf(entry->reason, sizeof(entry->reason),
                       "there is no such folder in the repository");
        log_error("model '%s', which Load= names, is not loaded: %s", name, entry->reason);
    }
    return STATUS_OK;
}

enum status start_look(struct repository *repository, struct error *err)
{
    enum status status = loader_scan(repository, err);

    if (status != STATUS_OK)
        return error_prefix(err, status, "the model repository cannot be read");
    for (size_t i = 0; i < repository->entries; i++)
        repository->entry[i]->is_loading =
            is_wanted_at_start(repository, repository->entry[i]->name);
    if (repository->config.control != CONTROL_EXPLICIT && repository->config.load.count > 0)
        log_warn("Load= has no effect under ControlMode=%s, ignoring",
                 repository->config.control == CONTROL_POLL ? "poll" : "none");
    return note_missing(repository, err);
}

/* The next by name that is waited for; NULL: there is none. */
static struct entry *next_due(struct repository *repository)
{
    struct entry *found = NULL;

    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < repository->entries && found == NULL; i++)
        if (repository->entry[i]->is_loading)
            found = repository->entry[i];
    pthread_mutex_unlock(&repository->lock);
    return found;
}

void start_load(struct repository *repository)
{
    struct error err = {.status = STATUS_OK};
    struct entry *entry = next_due(repository);

    while (entry != NULL && !atomic_load(&repository->stopping)) {
        (void)loader_load(repository, entry->name, NULL, LOAD_PROVEN_LATER, &err);
        entry = next_due(repository);
    }
}
