/* The process as one object, and what the files of this folder do with it.  Everything on the first
 * I/O thread but for what says otherwise. */
#ifndef LIFECYCLE_DAEMON_H
#define LIFECYCLE_DAEMON_H

#include <event2/event.h>

#include "lifecycle/advice.h"
#include "lifecycle/budget.h"
#include "lifecycle/idle_exit.h"
#include "lifecycle/planning.h"
#include "lifecycle/pressure.h"
#include "serve/server.h"

enum { STOP_SECONDS = 10 }; /* what is left to tear down may take so long */

enum phase { PHASE_STARTING, PHASE_RUNNING, PHASE_DRAINING };

struct daemon {
    const struct config_source *source;
    struct config_set *config;
    struct config_set *started; /* what the process began with: keys that need a restart keep it */
    struct config_set *former;  /* before the last reload: somebody may still print it */
    struct budget budget;
    struct advice advice;
    enum phase phase;
    int64_t started_us;

    struct event_base *base;
    struct device *device;
    struct ledger *ledger;
    struct host_pool *host_pool;
    struct batcher *batcher;
    struct warden *warden;
    struct repository *repository;
    struct server *server;
    struct pressure *pressure;

    bool is_activated; /* systemd holds the listening sockets */
    struct idle_exit idle;
    int64_t governed_us; /* the governor's last tick */
    struct event *terminate, *interrupt, *hangup;
    struct event *settle, *govern, *watchdog, *status, *drain_limit;
    int64_t settle_us;
    bool is_drained; /* nothing is in flight any more */
    int64_t watchdog_us;
    uint64_t progress; /* of the lanes, when the watchdog was fed last */
    char plan_folder[PLANNING_FOLDER_BYTES];
    char device_text[256];
    char status_text[256];
};

static inline const struct config *daemon_values(const struct daemon *daemon)
{
    return config_values(daemon->config);
}

/* ---- timers.c ---- */
MUST_CHECK enum status timers_start(struct daemon *daemon, struct error *err);
void timers_arm(struct event *timer, int64_t us);
void timers_on_govern(evutil_socket_t fd, short what, void *daemon);
/* A batch waits for memory: the governor need not wait for its tick.  Any thread. */
void timers_on_wait(void *daemon);

/* ---- drain.c ---- */
/* No new work; ends the loop when what is in flight is answered, or DrainTimeout= is over. */
void drain_begin(void *daemon);
void drain_on_limit(evutil_socket_t fd, short what, void *daemon);
void drain_on_signal(evutil_socket_t fd, short what, void *daemon); /* the second one ends it */

/* ---- reload.c ---- */
/* Destroys it, unless it is what the process began with. */
void reload_drop(const struct daemon *daemon, struct config_set *set);
/* Reads everything again; a bad configuration leaves the old one in force.  OK: err->text names
 * what waits for a restart. */
enum status reload_config(void *daemon, struct error *err);
void reload_on_signal(evutil_socket_t fd, short what, void *daemon);

#endif
