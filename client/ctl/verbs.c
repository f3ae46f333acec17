/* Verbs that ask one question and print the answer: a table for people, JSON for programs. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"
#include "proto/admin.pb-c.h"
#include "proto/grpc_service.pb-c.h"

int ctl_ask(struct ctl *ctl, const char *verb, const Sluice__V1__AdminRequest *request,
            void (*show)(const json_t *answer))
{
    json_t *answer;
    int exit_status = ctl_admin(ctl, verb, request, &answer);

    if (exit_status != EXIT_DONE)
        return exit_status;
    if (!ctl_printed_json(ctl, answer))
        show(answer);
    json_decref(answer);
    return EXIT_DONE;
}

static const Sluice__V1__AdminRequest nothing = SLUICE__V1__ADMIN_REQUEST__INIT;

static const char *yes_no(const json_t *answer, const char *key)
{
    return json_is_true(json_object_get(answer, key)) ? "yes" : "no";
}

static void show_status(const json_t *answer)
{
    char text[TEXT_ROOM];

    (void)printf("sluiced %s, pid %" PRIu64 ", up %s\n", json_text(answer, "version"),
                 json_number(answer, "pid"), text_of_us(json_number(answer, "uptime_us"), text));
    (void)printf("  device       %s\n", json_text(answer, "device"));
    (void)printf("  ready        %s, draining %s\n", yes_no(answer, "ready"),
                 yes_no(answer, "draining"));
    (void)printf("  models       %" PRIu64 " ready, %" PRIu64 " not\n",
                 json_number(answer, "models_ready"), json_number(answer, "models_not_ready"));
    (void)printf("  connections  %" PRIu64 ", requests in flight %" PRIu64 "\n",
                 json_number(answer, "connections"), json_number(answer, "requests_in_flight"));
    (void)printf("  memory       level %s\n", json_text(answer, "level"));
}

int verb_status(struct ctl *ctl)
{
    return ctl_ask(ctl, "Status", &nothing, show_status);
}

int verb_health(struct ctl *ctl)
{
    Inference__ServerReadyRequest request = INFERENCE__SERVER_READY_REQUEST__INIT;
    Inference__ServerReadyResponse *reply;
    bool ready;
    int exit_status =
        ctl_call(ctl, "inference.GRPCInferenceService/ServerReady", &request.base,
                 &inference__server_ready_response__descriptor, (ProtobufCMessage **)&reply);

    if (exit_status != EXIT_DONE)
        return exit_status;
    ready = reply->ready;
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    if (ctl->as_json)
        (void)printf("{\"live\": true, \"ready\": %s}\n", ready ? "true" : "false");
    else
        (void)puts(ready ? "ready" : "alive, not ready");
    return ready ? EXIT_DONE : EXIT_NOT_READY;
}

static void show_models(const json_t *answer)
{
    static const char *const titles[] = {"MODEL",   "VERSION",  "STATE",     "BATCHING", "WHERE",
                                         "FOR",     "BYTES",    "LOADED IN", "RELOAD",   "ROWS",
                                         "BATCHES", "LAST USE", "REASON"};
    struct table *table = table_create(13, titles, "lllllrrrrrrrl");
    const json_t *row;
    size_t i;

    json_array_foreach(json_object_get(answer, "models"), i, row)
    {
        char bytes[TEXT_ROOM], load[TEXT_ROOM], rows[TEXT_ROOM], batches[TEXT_ROOM];
        char since[TEXT_ROOM] = "", reload[TEXT_ROOM] = "", use[TEXT_ROOM] = "", where[48];
        bool is_loaded = json_object_get(row, "residency") != NULL;

        if (is_loaded)
            (void)text_of_us(json_number(row, "since_us"), since);
        if (json_number(row, "reload_us") > 0)
            (void)text_of_us(json_number(row, "reload_us"), reload);
        if (is_loaded && json_integer_value(json_object_get(row, "last_use_us")) >= 0)
            (void)text_of_us(json_number(row, "last_use_us"), use);
        (void)snprintf(where, sizeof(where), "%.20s%s", json_text(row, "residency"),
                       json_is_true(json_object_get(row, "pinned")) ? ", pinned" : "");
        (void)snprintf(rows, sizeof(rows), "%" PRIu64, json_number(row, "inference_count"));
        (void)snprintf(batches, sizeof(batches), "%" PRIu64, json_number(row, "execution_count"));
        table_add(table, (const char *const[]){
                             json_text(row, "name"), json_text(row, "version"),
                             json_text(row, "state"), json_text(row, "batching"), where, since,
                             text_of_bytes(json_number(row, "resident_bytes"), bytes),
                             text_of_us(json_number(row, "load_us"), load), reload, rows, batches,
                             use, json_text(row, "reason")});
    }
    table_print(table, stdout);
}

int verb_models(struct ctl *ctl)
{
    return ctl_ask(ctl, "Models", &nothing, show_models);
}

static void show_loaded(const json_t *answer)
{
    char bytes[TEXT_ROOM], load[TEXT_ROOM];

    (void)printf("loaded: %s resident, in %s\n",
                 text_of_bytes(json_number(answer, "resident_bytes"), bytes),
                 text_of_us(json_number(answer, "load_us"), load));
}

int verb_load(struct ctl *ctl)
{
    Sluice__V1__AdminRequest request = SLUICE__V1__ADMIN_REQUEST__INIT;

    if (ctl->argc < 2 || ctl->argc > 3)
        return ctl_usage("load MODEL [CONFIG-AS-JSON]");
    request.model = ctl->argv[1];
    if (ctl->argc == 3)
        request.config = ctl->argv[2];
    return ctl_ask(ctl, "Load", &request, show_loaded);
}

static void show_freed(const json_t *answer)
{
    char bytes[TEXT_ROOM];

    (void)printf("unloaded: %s freed\n", text_of_bytes(json_number(answer, "freed_bytes"), bytes));
}

int verb_unload(struct ctl *ctl)
{
    Sluice__V1__AdminRequest request = SLUICE__V1__ADMIN_REQUEST__INIT;

    if (ctl->argc != 2)
        return ctl_usage("unload MODEL");
    request.model = ctl->argv[1];
    return ctl_ask(ctl, "Unload", &request, show_freed);
}

static void show_emptied(const json_t *answer)
{
    const json_t *kept = json_object_get(answer, "kept");
    char a[TEXT_ROOM], b[TEXT_ROOM], c[TEXT_ROOM], d[TEXT_ROOM];

    (void)printf("%s freed in %s; kept: %s alive, %s by the floor\n",
                 text_of_bytes(json_number(answer, "freed_bytes"), a),
                 text_of_us(json_number(answer, "microseconds"), b),
                 text_of_bytes(json_number(kept, "alive"), c),
                 text_of_bytes(json_number(kept, "floor"), d));
}

int verb_empty_cache(struct ctl *ctl)
{
    Sluice__V1__AdminRequest request = SLUICE__V1__ADMIN_REQUEST__INIT;

    request.forced = ctl->argc == 2 && strcmp(ctl->argv[1], "--force") == 0;
    if (ctl->argc > 2 || (ctl->argc == 2 && !request.forced))
        return ctl_usage("empty-cache [--force]");
    return ctl_ask(ctl, "EmptyCache", &request, show_emptied);
}

static bool parse_batch(const char *text, int64_t *out_batch)
{
    char *end;
    long long batch = strtoll(text, &end, 10);

    if (end == text || *end != '\0' || batch < 1 || batch > 1000000)
        return false;
    *out_batch = batch;
    return true;
}

enum { MOST_SHAPES = 64, MOST_DIMS = 8 };

struct shapes {
    size_t count;
    Sluice__V1__InputShape shape[MOST_SHAPES];
    Sluice__V1__InputShape *list[MOST_SHAPES];
    int64_t dims[MOST_SHAPES][MOST_DIMS];
    char name[MOST_SHAPES][256];
};

/* "x=1x3x224x224".  The last '=' parts the two. */
static bool parse_shape(const char *text, struct shapes *shapes)
{
    const char *at = strrchr(text, '=');
    Sluice__V1__InputShape *shape;
    char *name;

    if (at == NULL || shapes->count == MOST_SHAPES ||
        (size_t)(at - text) >= sizeof(shapes->name[0]))
        return false;
    shape = &shapes->shape[shapes->count];
    name = shapes->name[shapes->count];
    sluice__v1__input_shape__init(shape);
    memcpy(name, text, (size_t)(at - text));
    name[at - text] = '\0';
    shape->name = name;
    shape->shape = shapes->dims[shapes->count];
    do {
        char *end;
        long long dim;

        errno = 0;
        dim = strtoll(at + 1, &end, 10);
        if (end == at + 1 || errno != 0 || dim < 0 || shape->n_shape == MOST_DIMS)
            return false;
        shape->shape[shape->n_shape++] = dim;
        at = end;
    } while (*at == 'x');
    shapes->list[shapes->count++] = shape;
    return *at == '\0';
}

static int plan_usage(void)
{
    return ctl_usage("plan MODEL [--batch N] [--shape INPUT=1x3x224x224] [--profile]");
}

int verb_plan(struct ctl *ctl)
{
    Sluice__V1__AdminRequest request = SLUICE__V1__ADMIN_REQUEST__INIT;
    static struct shapes shapes;
    Sluice__V1__AdminReply *reply;
    int exit_status;

    for (int i = 1; i < ctl->argc; i++) {
        if (strcmp(ctl->argv[i], "--batch") == 0 && i + 1 < ctl->argc) {
            if (!parse_batch(ctl->argv[++i], &request.batch))
                return ctl_usage("--batch '%s': a number from 1 to 1000000 is allowed",
                                 ctl->argv[i]);
        } else if (strcmp(ctl->argv[i], "--shape") == 0 && i + 1 < ctl->argc) {
            if (!parse_shape(ctl->argv[++i], &shapes))
                return ctl_usage("--shape '%s': it looks like INPUT=1x3x224x224", ctl->argv[i]);
        } else if (strcmp(ctl->argv[i], "--profile") == 0) {
            request.profile = true;
        } else if (request.model[0] == '\0' && ctl->argv[i][0] != '-') {
            request.model = ctl->argv[i];
        } else {
            return plan_usage();
        }
    }
    if (request.model[0] == '\0')
        return plan_usage();
    request.text = !ctl->as_json;
    request.n_shapes = shapes.count;
    request.shapes = shapes.list;
    exit_status = ctl_call(ctl, "sluice.v1.Admin/Plan", &request.base,
                           &sluice__v1__admin_reply__descriptor, (ProtobufCMessage **)&reply);
    if (exit_status != EXIT_DONE)
        return exit_status;
    (void)fputs(reply->json, stdout);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return EXIT_DONE;
}

static void show_stats(const json_t *answer)
{
    static const char *const parts[] = {"success",       "fail",          "queue",
                                        "compute_input", "compute_infer", "compute_output"};
    const json_t *model;
    size_t i;

    json_array_foreach(json_object_get(answer, "model_stats"), i, model)
    {
        const json_t *times = json_object_get(model, "inference_stats");

        (void)printf("%s, version %s: %" PRIu64 " rows in %" PRIu64 " batches\n",
                     json_text(model, "name"), json_text(model, "version"),
                     json_number(model, "inference_count"), json_number(model, "execution_count"));
        for (size_t p = 0; p < sizeof(parts) / sizeof(parts[0]); p++) {
            const json_t *duration = json_object_get(times, parts[p]);
            uint64_t count = json_number(duration, "count"), ns = json_number(duration, "ns");
            char total[TEXT_ROOM], mean[TEXT_ROOM];

            if (count > 0)
                (void)printf("  %-15s %10" PRIu64 " times, %10s in all, %10s each\n", parts[p],
                             count, text_of_us(ns / 1000, total),
                             text_of_us(ns / count / 1000, mean));
        }
    }
}

int verb_stats(struct ctl *ctl)
{
    Sluice__V1__AdminRequest request = SLUICE__V1__ADMIN_REQUEST__INIT;

    if (ctl->argc > 2)
        return ctl_usage("stats [MODEL]");
    if (ctl->argc == 2)
        request.model = ctl->argv[1];
    return ctl_ask(ctl, "Stats", &request, show_stats);
}

/* Becomes the program of that name that came with this one, installed or just built; returns where
 * there is none. */
static void exec_beside(char **arguments)
{
    static const char *const places[] = {"", "../sbin/", "../daemon/"};
    char path[PATH_MAX + 64];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    char *name;

    while (length > 0 && path[length - 1] != '/')
        length--;
    if (length <= 0)
        return;
    name = path + length;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        (void)snprintf(name, 64, "%s%s", places[i], arguments[0]);
        (void)execv(path, arguments);
    }
}

/* Lets the daemon's own program check a file: there is one reader of configurations. */
static int check_config(const struct ctl *ctl)
{
    char *arguments[4] = {(char *)"sluiced", (char *)"--check-config", NULL, NULL};
    char file[4096];

    if (ctl->argc > 3)
        return ctl_usage("config check [FILE]");
    if (ctl->argc == 3) {
        (void)snprintf(file, sizeof(file), "--config=%s", ctl->argv[2]);
        arguments[2] = file;
    }
    exec_beside(arguments);
    (void)execvp(arguments[0], arguments);
    (void)fprintf(stderr, "sluicectl: sluiced is neither beside sluicectl nor in the PATH, and it "
                          "is what checks a configuration\n");
    return EXIT_REFUSED;
}

static void show_config(const json_t *answer)
{
    static const char *const titles[] = {"KEY", "VALUE", "ORIGIN", "RELOAD"};
    struct table *table = table_create(4, titles, "llll");
    const json_t *entry;
    size_t i;

    json_array_foreach(json_object_get(answer, "entries"), i, entry)
    {
        char key[128], reload[256];

        (void)snprintf(key, sizeof(key), "%s.%s", json_text(entry, "section"),
                       json_text(entry, "key"));
        if (json_object_get(entry, "waiting") != NULL)
            (void)snprintf(reload, sizeof(reload), "restart, then %s", json_text(entry, "waiting"));
        else
            (void)snprintf(reload, sizeof(reload), "%s",
                           json_is_true(json_object_get(entry, "live")) ? "live" : "restart");
        table_add(table, (const char *const[]){key, json_text(entry, "value"),
                                               json_text(entry, "origin"), reload});
    }
    table_print(table, stdout);
}

int verb_config(struct ctl *ctl)
{
    if (ctl->argc == 2 && strcmp(ctl->argv[1], "show") == 0)
        return ctl_ask(ctl, "Config", &nothing, show_config);
    if (ctl->argc >= 2 && strcmp(ctl->argv[1], "check") == 0)
        return check_config(ctl);
    return ctl_usage("config show | config check [FILE]");
}

static void show_reloaded(const json_t *answer)
{
    (void)puts("reloaded");
    if (json_text(answer, "needs_restart")[0] != '\0')
        (void)printf("a restart is needed for: %s\n", json_text(answer, "needs_restart"));
}

int verb_reload(struct ctl *ctl)
{
    /* --wait is what systemd's ExecReload= passes; the call returns when the reload is over anyway.
     */
    if (ctl->argc > 2 || (ctl->argc == 2 && strcmp(ctl->argv[1], "--wait") != 0))
        return ctl_usage("reload [--wait]");
    return ctl_ask(ctl, "Reload", &nothing, show_reloaded);
}

static void show_draining(const json_t *answer)
{
    (void)answer;
    (void)puts("draining: work in flight is answered, then the daemon stops");
}

int verb_drain(struct ctl *ctl)
{
    return ctl_ask(ctl, "Drain", &nothing, show_draining);
}
