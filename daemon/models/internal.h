/* What repository.c (lookups, any thread) and loader.c (the loader thread) share. */
#ifndef MODELS_INTERNAL_H
#define MODELS_INTERNAL_H

#include <pthread.h>

#include "models/model.h"

/* One version of a model, known while it is or was wanted.
 *
 *   LOADING -> READY -> UNLOADING -> UNAVAILABLE        LOADING -> UNAVAILABLE (the load failed)
 *   READY -> READY (replaced: the old model leaves by itself)
 */
struct slot {
    int64_t version;
    enum model_state state;
    bool wanted;
    char reason[512];
    struct model *model; /* READY and UNLOADING; the published reference */
};

struct entry { /* a model by name */
    char *name;
    bool wanted;      /* should be loaded: counts for readiness */
    char reason[512]; /* why none of its versions could even be tried; "" */
    size_t slots;
    struct slot *slot; /* ascending */
    /* the loader's alone */
    bool on_disk;
    uint64_t loaded_signature, seen_signature;
};

struct command { /* an explicit load or unload */
    struct message message;
    bool is_unload;
    char *name;
    char *config_json; /* NULL: none */
    repository_done_fn done;
    void *arg;
    size_t remaining; /* models that must be gone before it is done */
    uint64_t freed_bytes;
};

struct repository {
    struct repository_config config; /* `load` and strings are copies in `arena` */
    struct arena arena;
    _Atomic int64_t poll_interval_us;
    pthread_t thread;
    bool has_thread;
    struct mailbox loader;
    struct message stop;
    atomic_bool settled;
    _Atomic size_t leaving; /* models retired and not gone yet */
    _Atomic uint64_t loads_ok, loads_failed;
    pthread_mutex_t lock;
    /* under lock */
    size_t entries, room;
    struct entry **entry; /* sorted by name */
    void (*changed)(void *arg);
    void *changed_arg;
};

/* ---- repository.c; lock held ---- */
struct entry *entry_find(struct repository *repository, const char *name);
/* Finds or adds; NULL: no memory. */
struct entry *entry_add(struct repository *repository, const char *name);
void entry_remove(struct repository *repository, struct entry *entry);
struct slot *slot_find(struct entry *entry, int64_t version);
struct slot *slot_add(struct entry *entry, int64_t version);

/* ---- loader.c ---- */
void *loader_main(void *repository);

/* ---- poll.c, on the loader thread ---- */
/* Looks at the folders; loads, reloads and retires what changed.  Returns whether something is half
 * written, so that another look is due soon. */
bool loader_poll(struct repository *repository);

/* ---- loader.c, for poll.c ---- */
/* The table and the log have the outcome; a caller who wants it too gets it. */
enum status loader_load(struct repository *repository, const char *name, const char *config_json,
                        struct error *err);
/* Starts the retirement of every version; returns how many models leave. */
size_t loader_retire(struct repository *repository, const char *name, struct command *waiter);
void loader_notify(struct repository *repository);
/* Notes what is on disk: names known, on_disk set.  STATUS_IO and the like leave all as it was. */
MUST_CHECK enum status loader_scan(struct repository *repository, struct error *err);

#endif
