/* The server: listeners, the end of each loop turn, drain.
 *
 * A loop turn reads sockets and runs requests; what is to be said is only marked.  When the turn's
 * callbacks are through, turn_event (made active by the first of them) takes finished requests out
 * of the mailbox, lets every touched connection send, and says that the loop may sleep.  So answers
 * that finish together leave in one sendmsg, and nghttp2 is never entered from its own callbacks.
 */
#include "serve/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_COMPONENT "serve"
#include "base/clock.h"
#include "observe/log.h"
#include "serve/endpoint.h"
#include "serve/infer.h"
#include "serve/internal.h"

enum { DRAIN_GRACE_US = 100 * 1000, OVERDUE_US = 1000 };

/* True on the I/O thread: a request finished there need not go through the mailbox. */
static _Thread_local struct server *server_of_this_thread;

/* ---- requests that come back ---- */

static void request_done(struct request *request)
{
    struct call *call = request->owner;
    struct server *server = call->server;

    if (server_of_this_thread != server) {
        mailbox_put(&server->finished, &request->mail);
        return;
    }
    request->mail.next = NULL;
    *server->inline_last = &request->mail;
    server->inline_last = &request->mail.next;
    server_touch(server);
}

void server_submit(struct call *call, struct model_queue *queue)
{
    call->submitted = true;
    call->request.done = request_done;
    (void)call_ref(call);
    batcher_submit(call->server->batcher, queue, &call->request);
}

static void finish_requests(struct mail *mail)
{
    struct mail *next;

    for (; mail != NULL; mail = next) {
        struct request *request = CONTAINER_OF(mail, struct request, mail);
        struct call *call = request->owner;

        next = mail->next;
        call->submitted = false;
        infer_finish(call);
        call_unref(call);
    }
}

static void take_finished(struct server *server)
{
    struct mail *mail = server->inline_first;

    server->inline_first = NULL;
    server->inline_last = &server->inline_first;
    finish_requests(mail);
    finish_requests(mailbox_take_all(&server->finished));
}

static void take_notices(struct server *server)
{
    struct mail *next;

    for (struct mail *mail = mailbox_take_all(&server->notices); mail != NULL; mail = next) {
        struct notice *notice = CONTAINER_OF(mail, struct notice, mail);

        next = mail->next;
        notice->run(notice);
    }
}

void server_notify(struct server *server, struct notice *notice)
{
    mailbox_put(&server->notices, &notice->mail);
}

/* ---- turns of the loop ---- */

void server_touch(struct server *server)
{
    if (server->turn_due)
        return;
    server->turn_due = true;
    server->turn_us = clock_now_us();
    mailbox_rise(&server->finished); /* end_turn() looks, and only then it sleeps again */
    event_active(&server->turn_event, EV_TIMEOUT, 0);
}

static void settle_connections(struct server *server)
{
    struct connection *connection;

    while ((connection = LIST_FIRST(&server->dirty, struct connection, dirty_link)) != NULL) {
        list_remove(&connection->dirty_link);
        connection_settle(connection);
    }
}

static void free_closed(struct server *server)
{
    struct connection *connection;

    while ((connection = LIST_FIRST(&server->closed, struct connection, link)) != NULL)
        connection_free(connection);
}

static void resume_accepting(struct server *server)
{
    struct listener *listener;

    LIST_FOR_EACH (listener, &server->listeners, struct listener, link)
        listener_pause(listener, server->draining);
}

static void check_drained(struct server *server)
{
    void (*drained)(void *arg) = server->drained;

    if (drained == NULL || server->connection_count > 0 || server->busy > 0)
        return;
    server->drained = NULL;
    drained(server->drained_arg);
}

/* Busy lanes do not look at what waits: a timer does. */
static void arm_expiry(struct server *server)
{
    int64_t at_us = batcher_expiry_us(server->batcher), wait_us;
    struct timeval wait;

    if (at_us >= server->expiry_armed_us)
        return;
    wait_us = at_us - clock_now_us();
    wait_us = wait_us > 0 ? wait_us : OVERDUE_US; /* it was looked at already */
    wait = (struct timeval){.tv_sec = wait_us / 1000000, .tv_usec = wait_us % 1000000};
    if (event_add(&server->expiry_event, &wait) == 0)
        server->expiry_armed_us = at_us;
}

static void on_expiry(evutil_socket_t fd, short what, void *arg)
{
    struct server *server = arg;

    (void)fd;
    (void)what;
    server_touch(server);
    server->expiry_armed_us = CLOCK_NEVER;
    server->wake_batcher = true;
}

static void end_turn(evutil_socket_t fd, short what, void *arg)
{
    struct server *server = arg;

    (void)fd;
    (void)what;
    server_of_this_thread = server;
    do {
        take_finished(server);
        take_notices(server);
        settle_connections(server);
        if (!list_is_empty(&server->waiting))
            server_retry_waiting(server);
        if (server->wake_batcher) {
            server->wake_batcher = false;
            batcher_wake(server->batcher);
        }
        free_closed(server);
    } while (server->inline_first != NULL || !list_is_empty(&server->dirty) ||
             !mailbox_sleep(&server->finished) || !mailbox_sleep(&server->notices));
    server->turn_due = false;
    arm_expiry(server);
    check_drained(server);
}

static void on_mail(evutil_socket_t fd, short what, void *arg)
{
    struct server *server = arg;

    (void)what;
    mailbox_clear(fd == mailbox_fd(&server->finished) ? &server->finished : &server->notices);
    server_touch(server);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    struct server *server = arg;

    (void)fd;
    (void)what;
    server_touch(server);
    deadlines_run(server, clock_now_us());
}

static void on_second(evutil_socket_t fd, short what, void *arg)
{
    struct server *server = arg;
    struct connection *connection;
    int64_t now_us = clock_now_us();

    (void)fd;
    (void)what;
    server_touch(server);
    LIST_FOR_EACH (connection, &server->connections, struct connection, link)
        connection_sweep(connection, now_us);
    regions_sweep(server->regions);
    resume_accepting(server);
}

/* ---- models come and go ---- */

static void on_change_notice(struct notice *notice)
{
    struct server *server = CONTAINER_OF(notice, struct server, change_notice);

    atomic_store(&server->change_noted, false);
    health_notify_watchers(server);
}

static void on_models_changed(void *arg)
{
    struct server *server = arg;

    if (!atomic_exchange(&server->change_noted, true))
        server_notify(server, &server->change_notice);
}

bool server_is_ready(struct server *server)
{
    return !server->draining && repository_is_settled(server->repository) &&
           repository_is_ready(server->repository, server->limits.strict_readiness);
}

/* ---- life ---- */

static int64_t or_never(int64_t time_us)
{
    return time_us > 0 && time_us < CLOCK_NEVER / 4 ? time_us : CLOCK_NEVER / 4;
}

void server_configure(struct server *server, const struct config *config)
{
    const struct config_server *keys = &config->server;

    const struct region_limits regions = {
        .policy = strcmp(config->memory.shared_memory, "off") == 0   ? REGIONS_OFF
                  : strcmp(config->memory.shared_memory, "any") == 0 ? REGIONS_ANY
                                                                     : REGIONS_LOCAL,
        .regions = config->memory.shared_memory_regions,
        .bytes = config->memory.shared_memory_limit,
    };

    regions_set_limits(server->regions, &regions);
    server->limits = (struct limits){
        .max_connections = keys->max_connections,
        .max_streams = server->limits.max_streams ? server->limits.max_streams : keys->max_streams,
        .max_message_bytes =
            keys->max_message_bytes < INT32_MAX ? keys->max_message_bytes : INT32_MAX - 65536,
        .request_timeout_us = keys->request_timeout == CLOCK_NEVER ? 0 : keys->request_timeout,
        .receive_timeout_us = or_never(keys->receive_timeout),
        .idle_timeout_us = or_never(keys->idle_timeout),
        .grpc_idle_timeout_us = or_never(keys->grpc_idle_timeout),
        .strict_readiness = config->models.strict_readiness,
    };
}

static enum status open_listeners(struct server *server, const struct server_config *config,
                                  struct error *err)
{
    const struct config_server *keys = &config->config->server;
    const struct text_list *lists[ROLE_COUNT] = {&keys->grpc_listen, &keys->http_listen,
                                                 &keys->metrics_listen, &keys->admin_listen};

    for (enum listener_role role = 0; role < ROLE_COUNT; role++) {
        bool activated = false;

        for (size_t i = 0; i < config->activated; i++) {
            if (strcmp(config->activated_fds[i].name, listener_role_name(role)) != 0)
                continue;
            TRY(listener_adopt(server, role, config->activated_fds[i].fd, err));
            activated = true;
        }
        for (size_t i = 0; !activated && i < lists[role]->count; i++)
            TRY(listener_open(server, role, lists[role]->items[i], err));
    }
    return STATUS_OK;
}

static void init(struct server *server, const struct server_config *config)
{
    server->base = config->base;
    server->repository = config->repository;
    server->batcher = config->batcher;
    server->warden = config->warden;
    server->host_pool = config->host_pool;
    server->hooks = config->hooks;
    (void)snprintf(server->device, sizeof(server->device), "%s",
                   config->device != NULL ? config->device : "");
    server->started_us = clock_now_us();
    server->inline_last = &server->inline_first;
    server->deadlines.armed_us = server->expiry_armed_us = CLOCK_NEVER;
    server->finished.event_fd = server->notices.event_fd = -1;
    server->change_notice.run = on_change_notice;
    list_init(&server->listeners);
    list_init(&server->connections);
    list_init(&server->closed);
    list_init(&server->dirty);
    list_init(&server->waiting);
    list_init(&server->watchers);
}

enum status event_failure(void)
{
    return errno == ENOMEM ? STATUS_NO_MEMORY : STATUS_IO;
}

static enum status add_events(struct server *server)
{
    static const struct timeval second = {1, 0};
    struct event_base *base = server->base;

    TRY(mailbox_init(&server->finished));
    TRY(mailbox_init(&server->notices));
    if (event_assign(&server->turn_event, base, -1, 0, end_turn, server) != 0 ||
        event_assign(&server->second_event, base, -1, EV_PERSIST, on_second, server) != 0 ||
        event_assign(&server->deadline_event, base, -1, 0, on_deadline, server) != 0 ||
        event_assign(&server->expiry_event, base, -1, 0, on_expiry, server) != 0 ||
        event_assign(&server->finished_event, base, mailbox_fd(&server->finished),
                     EV_READ | EV_PERSIST, on_mail, server) != 0 ||
        event_assign(&server->notice_event, base, mailbox_fd(&server->notices),
                     EV_READ | EV_PERSIST, on_mail, server) != 0 ||
        event_add(&server->second_event, &second) != 0 ||
        event_add(&server->finished_event, NULL) != 0 ||
        event_add(&server->notice_event, NULL) != 0)
        return event_failure();
    /* A first turn, so that the mailboxes are said to sleep. */
    server_touch(server);
    return STATUS_OK;
}

static void adopt_nothing(struct server *server)
{
    struct listener *listener;

    /* Descriptors from systemd stay the caller's when the server could not be made. */
    LIST_FOR_EACH (listener, &server->listeners, struct listener, link)
        if (listener->unlink_path == NULL && listener->is_activated)
            listener->fd = -1;
}

enum status server_create(const struct server_config *config, struct server **out_server,
                          struct error *err)
{
    struct server *server;
    enum status status;

    if (config->config->server.io_threads != 1)
        return error_set(err, STATUS_INVALID, "IoThreads=%u: this version has 1 I/O thread",
                         config->config->server.io_threads);
    server = calloc(1, sizeof(*server));
    if (server == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the server");
    init(server, config);
    status = regions_create(config->importer, &server->regions);
    if (status == STATUS_OK)
        status = add_events(server);
    if (status != STATUS_OK)
        (void)error_set(err, status, "cannot make the loop's events");
    else
        server_configure(server, config->config);
    if (status == STATUS_OK)
        status = open_listeners(server, config, err);
    if (status != STATUS_OK) {
        adopt_nothing(server);
        server_destroy(server);
        return status;
    }
    repository_on_change(server->repository, on_models_changed, server);
    *out_server = server;
    return STATUS_OK;
}

static void delete_event(struct event *event)
{
    if (event_initialized(event))
        (void)event_del(event);
}

static void close_listeners(struct server *server)
{
    struct listener *listener;

    LIST_FOR_EACH (listener, &server->listeners, struct listener, link)
        listener_destroy(listener);
}

void server_destroy(struct server *server)
{
    struct connection *connection;

    if (server == NULL)
        return;
    repository_on_change(server->repository, NULL, NULL);
    close_listeners(server);
    LIST_FOR_EACH (connection, &server->connections, struct connection, link)
        connection_close(connection);
    if (server->finished.event_fd >= 0)
        take_finished(server);
    if (server->notices.event_fd >= 0)
        take_notices(server);
    free_closed(server);
    delete_event(&server->turn_event);
    delete_event(&server->second_event);
    delete_event(&server->deadline_event);
    delete_event(&server->expiry_event);
    delete_event(&server->drain_event);
    delete_event(&server->finished_event);
    delete_event(&server->notice_event);
    if (server->finished.event_fd >= 0)
        mailbox_deinit(&server->finished);
    if (server->notices.event_fd >= 0)
        mailbox_deinit(&server->notices);
    deadlines_deinit(server);
    call_pool_trim(server);
    regions_destroy(server->regions);
    free(server);
}

/* ---- drain ---- */

static void tell_connections(struct server *server, bool is_last_step)
{
    struct connection *connection;

    LIST_FOR_EACH (connection, &server->connections, struct connection, link) {
        connection->draining = true;
        if (connection->protocol != NULL)
            connection->protocol->drain(connection, is_last_step);
        else if (is_last_step)
            connection_close(connection);
        connection_touch(connection);
    }
}

static void on_drain_grace(evutil_socket_t fd, short what, void *arg)
{
    struct server *server = arg;

    (void)fd;
    (void)what;
    server_touch(server);
    server->drain_last_step = true;
    tell_connections(server, true);
}

/* Who has connected already believes to be served: closing a listener would cut them off. */
static void take_backlog(struct server *server)
{
    struct listener *listener;

    LIST_FOR_EACH (listener, &server->listeners, struct listener, link)
        listener_take_backlog(listener);
}

void server_drain(struct server *server, void (*drained)(void *arg), void *arg)
{
    static const struct timeval grace = {0, DRAIN_GRACE_US};

    if (server->draining)
        return;
    server->drained = drained;
    server->drained_arg = arg;
    take_backlog(server);
    server->draining = true;
    close_listeners(server);
    server_touch(server);
    health_notify_watchers(server);
    batcher_end_delays(server->batcher);
    tell_connections(server, false);
    if (event_assign(&server->drain_event, server->base, -1, 0, on_drain_grace, server) != 0 ||
        event_add(&server->drain_event, &grace) != 0)
        tell_connections(server, true);
}

void server_read_use(const struct server *server, struct server_use *out_use)
{
    *out_use = (struct server_use){.connections = server->role_connections[ROLE_GRPC] +
                                                  server->role_connections[ROLE_HTTP],
                                   .busy = server->busy,
                                   .accepted_total = server->accepted_total};
}

size_t server_busy(const struct server *server)
{
    return server->busy;
}
