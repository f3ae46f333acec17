/* ControlMode=poll: what changes in the folder changes in the table.
 *
 * A folder counts as changed only when two looks in a row saw the same new signature: people copy
 * files into a repository while it is looked at. */
#define LOG_COMPONENT "models"

#include <stdio.h>
#include <string.h>

#include "models/folder.h"
#include "models/internal.h"
#include "observe/log.h"

enum { PATH_ROOM = 4096 };

enum look { LOOK_SAME, LOOK_UNSETTLED, LOOK_CHANGED };

static enum look look_at(struct repository *repository, struct entry *entry)
{
    char path[PATH_ROOM];
    uint64_t signature;
    bool settled;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", repository->config.path, entry->name) >=
        sizeof(path))
        return LOOK_SAME;
    signature = folder_signature(path);
    if (signature == entry->loaded_signature)
        return LOOK_SAME;
    settled = signature == entry->seen_signature;
    entry->seen_signature = signature;
    return settled ? LOOK_CHANGED : LOOK_UNSETTLED;
}

/* Only this thread changes the table, so entries may be read without the lock; names of those that
 * leave are dropped when nothing of them is loaded any more. */
static bool poll_entry(struct repository *repository, struct entry *entry)
{
    struct error err;
    enum look look;

    if (!entry->on_disk) {
        if (entry->wanted) {
            log_info("model '%s' left the repository", entry->name);
            (void)loader_retire(repository, entry->name, NULL);
        }
        return false;
    }
    look = look_at(repository, entry);
    if (look == LOOK_CHANGED) {
        log_info("model '%s' changed", entry->name);
        (void)loader_load(repository, entry->name, NULL, LOAD_PROVEN, &err);
    }
    return look == LOOK_UNSETTLED;
}

static bool is_leftover(const struct entry *entry)
{
    if (entry->on_disk || entry->wanted)
        return false;
    for (size_t i = 0; i < entry->slots; i++)
        if (entry->slot[i].state != MODEL_UNAVAILABLE)
            return false;
    return true;
}

static void drop_leftovers(struct repository *repository)
{
    size_t before = repository->entries;

    pthread_mutex_lock(&repository->lock);
    for (size_t i = repository->entries; i > 0; i--)
        if (is_leftover(repository->entry[i - 1]))
            entry_remove(repository, repository->entry[i - 1]);
    pthread_mutex_unlock(&repository->lock);
    if (repository->entries != before)
        loader_notify(repository);
}

bool loader_poll(struct repository *repository)
{
    struct error err;
    bool unsettled = false;

    if (loader_scan(repository, &err) != STATUS_OK) {
        log_warn("the model repository cannot be read: %s, ignoring", err.text);
        return false;
    }
    for (size_t i = 0; i < repository->entries; i++)
        unsettled |= poll_entry(repository, repository->entry[i]);
    drop_leftovers(repository);
    return unsettled;
}
