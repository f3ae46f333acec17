/* sluice.v1.Admin: status, models, configuration, reload, drain. */
#include "serve/endpoints/admin.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "models/json_format.h"
#include "serve/control.h"
#include "serve/endpoints/statistics.h"

void admin_reply_text(struct call *call, const char *text)
{
    Sluice__V1__AdminReply reply = SLUICE__V1__ADMIN_REPLY__INIT;

    reply.json = arena_copy_string(&call->request.arena, text, strlen(text));
    if (reply.json == NULL)
        call_fail(call, STATUS_NO_MEMORY, "out of memory for the answer");
    else
        call_reply_message(call, &reply.base);
}

void admin_reply(struct call *call, json_t *document)
{
    char *text = document != NULL ? json_dumps(document, JSON_COMPACT) : NULL;

    json_decref(document);
    if (text == NULL)
        call_fail(call, STATUS_NO_MEMORY, "out of memory for the answer");
    else
        admin_reply_text(call, text);
    free(text);
}

/* ---- status ---- */

struct model_counts {
    int ready, other;
};

static void count_model(void *arg, const struct model_info *info, struct model *model)
{
    struct model_counts *counts = arg;

    (void)model;
    if (info->state == MODEL_READY)
        counts->ready++;
    else
        counts->other++;
}

void run_admin_status(struct call *call)
{
    struct server *server = call->server;
    struct model_counts counts = {0};
    struct warden_view view;

    repository_for_each(server->repository, count_model, &counts);
    warden_read(server->warden, &view);
    admin_reply(call, json_pack("{s:s,s:i,s:I,s:s,s:b,s:b,s:i,s:i,s:i,s:I,s:s}", "version",
                                SLUICE_VERSION, "pid", (int)getpid(), "uptime_us",
                                (json_int_t)(clock_now_us() - server->started_us), "device",
                                server->device, "ready", server_is_ready(server), "draining",
                                server->draining, "models_ready", counts.ready, "models_not_ready",
                                counts.other, "connections", (int)server->connection_count,
                                "requests_in_flight", (json_int_t)server->busy - 1, "level",
                                govern_level_name(view.level)));
}

/* ---- models ---- */

static void add_model(void *arg, const struct model_info *info, struct model *model)
{
    struct model_stats *stats = model != NULL ? queue_stats(model_queue(model)) : NULL;
    json_int_t rows = stats != NULL ? (json_int_t)atomic_load(&stats->inference_count) : 0;
    json_int_t batches = stats != NULL ? (json_int_t)atomic_load(&stats->execution_count) : 0;

    json_t *row = json_pack("{s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:I}", "name", info->name, "version",
                            info->version, "state", model_state_name(info->state), "reason",
                            info->reason, "batching", info->batching, "resident_bytes",
                            (json_int_t)info->resident_bytes, "load_us", (json_int_t)info->load_us,
                            "inference_count", rows, "execution_count", batches);

    if (model != NULL) {
        admin_add_residency(row, &info->residency);
        (void)json_object_set_new(row, "max_batch_size", json_integer(model_max_batch_size(model)));
        (void)json_object_set_new(
            row, "winograd_bytes",
            json_integer((json_int_t)network_winograd_bytes(model_network(model))));
        (void)json_object_set_new(
            row, "plan_bytes", json_integer((json_int_t)network_plan_bytes(model_network(model))));
    }
    (void)json_array_append_new(arg, row);
}

void run_admin_models(struct call *call)
{
    json_t *models = json_array();

    repository_for_each(call->server->repository, add_model, models);
    admin_reply(call, json_pack("{s:o}", "models", models));
}

struct wanted_model {
    const char *name;
    json_int_t resident_bytes, load_us;
};

static void find_model(void *arg, const struct model_info *info, struct model *model)
{
    struct wanted_model *wanted = arg;

    if (model == NULL || strcmp(info->name, wanted->name) != 0)
        return;
    wanted->resident_bytes += (json_int_t)info->resident_bytes;
    wanted->load_us += info->load_us;
}

static void answer_load(struct call *call, const char *model, uint64_t freed_bytes)
{
    struct wanted_model wanted = {.name = model};

    (void)freed_bytes;
    repository_for_each(call->server->repository, find_model, &wanted);
    admin_reply(call, json_pack("{s:s,s:I,s:I}", "name", model, "resident_bytes",
                                wanted.resident_bytes, "load_us", wanted.load_us));
}

void run_admin_load(struct call *call)
{
    const Sluice__V1__AdminRequest *request = admin_request(call);

    control_load(call, request->model, request->config[0] != '\0' ? request->config : NULL,
                 answer_load);
}

static void answer_unload(struct call *call, const char *model, uint64_t freed_bytes)
{
    admin_reply(call,
                json_pack("{s:s,s:I}", "name", model, "freed_bytes", (json_int_t)freed_bytes));
}

void run_admin_unload(struct call *call)
{
    control_unload(call, admin_request(call)->model, answer_unload);
}

void run_admin_stats(struct call *call)
{
    const char *model = admin_request(call)->model;
    Inference__ModelStatisticsResponse stats = INFERENCE__MODEL_STATISTICS_RESPONSE__INIT;
    size_t kept = 0;

    if (!statistics_collect(call, &stats)) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory for the answer");
        return;
    }
    for (size_t i = 0; i < stats.n_model_stats; i++)
        if (model[0] == '\0' || strcmp(stats.model_stats[i]->name, model) == 0)
            stats.model_stats[kept++] = stats.model_stats[i];
    stats.n_model_stats = kept;
    if (kept == 0 && model[0] != '\0')
        call_fail(call, STATUS_NOT_FOUND, "Request for unknown model: '%.200s' is not found",
                  model);
    else
        admin_reply(call, json_format_write(&stats.base));
}

/* ---- configuration ---- */

static void add_key(void *arg, const struct config_entry *entry)
{
    (void)json_array_append_new(
        arg, json_pack("{s:s,s:s,s:s,s:s,s:s*,s:b,s:s}", "section", entry->section, "key",
                       entry->key, "value", entry->value, "origin", entry->origin, "waiting",
                       entry->waiting, "live", entry->live, "help", entry->help));
}

void run_admin_config(struct call *call)
{
    const struct server_hooks *hooks = &call->server->hooks;
    json_t *entries;

    if (hooks->config == NULL) {
        call_fail(call, STATUS_UNSUPPORTED, "no configuration to show");
        return;
    }
    entries = json_array();
    config_for_each(hooks->config(hooks->arg), add_key, entries);
    admin_reply(call, json_pack("{s:o}", "entries", entries));
}

void run_admin_reload(struct call *call)
{
    const struct server_hooks *hooks = &call->server->hooks;
    struct error err = {0};

    if (hooks->reload == NULL)
        call_fail(call, STATUS_UNSUPPORTED, "nothing to reload");
    else if (hooks->reload(hooks->arg, &err) != STATUS_OK)
        call_fail_with(call, &err);
    else /* an OK with a text: what changed but needs a restart */
        admin_reply(call, json_pack("{s:s}", "needs_restart", err.text));
}

void run_admin_drain(struct call *call)
{
    const struct server_hooks *hooks = &call->server->hooks;

    if (hooks->drain == NULL) {
        call_fail(call, STATUS_UNSUPPORTED, "cannot drain");
        return;
    }
    admin_reply(call, json_object());
    hooks->drain(hooks->arg);
}
