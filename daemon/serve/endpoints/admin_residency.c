/* sluice.v1.Admin: Sleep, Wake, MakeRoom, and where models are. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "serve/endpoints/admin.h"

#define INT(value) ((json_int_t)(value))

static json_int_t age_us(int64_t then_us)
{
    int64_t now_us = clock_now_us();

    return then_us > 0 && then_us < now_us ? now_us - then_us : 0;
}

void admin_add_residency(json_t *row, const struct model_residency *residency)
{
    bool for_ever = residency->keep_alive_us == CLOCK_NEVER;
    json_t *more = json_pack(
        "{s:s,s:b,s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "residency",
        residency_name(residency->where), "moving", residency->is_moving, "pinned",
        residency->is_pinned, "since_us", age_us(residency->since_us), "last_use_us",
        residency->last_use_us == 0 ? (json_int_t)-1 : age_us(residency->last_use_us),
        "keep_alive_us", for_ever ? (json_int_t)-1 : INT(residency->keep_alive_us), "device_bytes",
        INT(residency->device_bytes), "host_bytes", INT(residency->host_bytes), "evictions",
        INT(residency->evictions), "reloads", INT(residency->reloads), "failed_reloads",
        INT(residency->failed_reloads), "reload_us", INT(residency->reload_us));

    if (more != NULL)
        (void)json_object_set_new(more, "reloads_us", json_integer(INT(residency->reloads_us)));
    if (more != NULL)
        (void)json_object_set_new(more, "reload_attempts",
                                  json_integer(INT(residency->reload_attempts)));
    (void)json_object_update(row, more);
    json_decref(more);
}

/* ---- sleep and wake: handed to the keeper, answered when it is done ---- */

struct move {
    struct notice notice;
    struct residency_answer answer;
    struct error err;
};

static void on_notice(struct notice *notice)
{
    struct move *move = CONTAINER_OF(notice, struct move, notice);
    const struct residency_answer *answer = &move->answer;
    struct call *call = notice->call;

    if (move->err.status != STATUS_OK)
        call_fail_with(call, &move->err);
    else
        admin_reply(call,
                    json_pack("{s:I,s:I,s:I,s:I,s:I}", "models", INT(answer->models), "busy",
                              INT(answer->busy), "pinned", INT(answer->pinned), "freed_bytes",
                              INT(answer->freed_bytes), "microseconds", INT(answer->microseconds)));
    call_unref(call);
    free(move);
}

/* On the keeper's thread. */
static void on_done(void *arg, const struct residency_answer *answer, const struct error *err)
{
    struct move *move = arg;

    move->answer = *answer;
    if (err != NULL)
        move->err = *err;
    server_notify(move->notice.call->server, &move->notice);
}

static struct move *move_create(struct call *call)
{
    struct move *move = calloc(1, sizeof(*move));

    if (move == NULL) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory");
        return NULL;
    }
    move->notice.run = on_notice;
    move->notice.call = call_ref(call);
    return move;
}

static bool read_level(const char *text, enum sleep_level *out_level)
{
    static const char *const levels[] = {
        [SLEEP_ACTIVATIONS] = "activations", [SLEEP_WEIGHTS] = "weights", [SLEEP_ALL] = "all"};

    *out_level = SLEEP_WEIGHTS;
    if (text[0] == '\0')
        return true;
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
        if (strcmp(levels[i], text) == 0) {
            *out_level = (enum sleep_level)i;
            return true;
        }
    return false;
}

void run_admin_sleep(struct call *call)
{
    const Sluice__V1__AdminRequest *request = admin_request(call);
    enum sleep_level level;
    struct move *move;

    if (!read_level(request->level, &level)) {
        call_fail(call, STATUS_INVALID, "level '%.40s': activations, weights or all is allowed",
                  request->level);
        return;
    }
    move = move_create(call);
    if (move != NULL)
        repository_sleep(call->server->repository, request->model, level, on_done, move);
}

void run_admin_wake(struct call *call)
{
    struct move *move = move_create(call);

    if (move != NULL)
        repository_wake(call->server->repository, admin_request(call)->model, on_done, move);
}

/* ---- room for others ---- */

enum { WITHIN_US = 1000000, LONGEST_US = 86400000 };

struct room {
    struct notice notice;
    struct warden *warden;
    int64_t hold_us;
    struct room_request request;
    struct room_answer answer;
    struct error err;
};

static json_t *list_freed(const struct room_answer *answer)
{
    json_t *freed = json_object();

    for (unsigned step = 0; step < ROOM_STEPS; step++)
        (void)json_object_set_new(freed, room_step_name(step),
                                  json_integer(INT(answer->freed[step])));
    return freed;
}

static json_t *list_left(const struct room_answer *answer)
{
    json_t *left = json_array();

    for (size_t i = 0; i < answer->left_count; i++)
        (void)json_array_append_new(left, json_pack("{s:s,s:I,s:s}", "model", answer->left[i].name,
                                                    "bytes", INT(answer->left[i].bytes), "why",
                                                    answer->left[i].why));
    return left;
}

static void on_room(struct notice *notice)
{
    struct room *room = CONTAINER_OF(notice, struct room, notice);
    const struct room_answer *answer = &room->answer;
    struct call *call = notice->call;

    if (room->err.status != STATUS_OK)
        call_fail_with(call, &room->err);
    else
        admin_reply(call,
                    json_pack("{s:I,s:I,s:b,s:o,s:I,s:o,s:I,s:I}", "wanted_bytes",
                              INT(room->request.bytes), "freed_bytes", INT(answer->freed_bytes),
                              "enough", answer->freed_bytes >= room->request.bytes, "freed",
                              list_freed(answer), "active_bytes", INT(answer->active_bytes), "left",
                              list_left(answer), "held_us", INT(room->hold_us), "microseconds",
                              INT(answer->microseconds)));
    call_unref(call);
    free(room);
}

/* These three on the keeper's thread. */
static void on_room_made(void *arg, const struct room_answer *answer, const struct error *err)
{
    struct room *room = arg;

    room->answer = *answer;
    if (err != NULL)
        room->err = *err;
    server_notify(room->notice.call->server, &room->notice);
}

static void hold(void *arg, uint64_t bytes)
{
    struct room *room = arg;

    warden_hold(room->warden, bytes, clock_now_us() + room->hold_us);
}

static void unhold(void *arg, uint64_t bytes)
{
    warden_unhold(((struct room *)arg)->warden, bytes);
}

static bool is_time(int64_t us)
{
    return us >= 0 && us <= LONGEST_US * INT64_C(1000);
}

void run_admin_make_room(struct call *call)
{
    const Sluice__V1__AdminRequest *asked = admin_request(call);
    struct room *room;

    if (asked->bytes == 0 || !is_time(asked->within_us) || !is_time(asked->hold_us)) {
        call_fail(call, STATUS_INVALID,
                  "make-room needs `bytes` above 0, `within_us` and `hold_us` from 0 to a day");
        return;
    }
    room = calloc(1, sizeof(*room));
    if (room == NULL) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory");
        return;
    }
    room->notice.run = on_room;
    room->notice.call = call_ref(call);
    room->warden = call->server->warden;
    room->hold_us = asked->hold_us;
    room->request = (struct room_request){
        .bytes = asked->bytes,
        .until_us = clock_now_us() + (asked->within_us > 0 ? asked->within_us : WITHIN_US),
        .hold = asked->hold_us > 0 ? hold : NULL,
        .unhold = asked->hold_us > 0 ? unhold : NULL,
        .hold_arg = room,
    };
    repository_make_room(call->server->repository, &room->request, on_room_made, room);
}
