/* sluice.v1.Admin: Memory and EmptyCache. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/endpoints/admin.h"
#include "serve/endpoints/admin_owners.h"

#define INT(value) ((json_int_t)(value))

/* The process's resident size, as the kernel has it; 0 when it cannot be told. */
static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long size = 0, resident = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%lu %lu", &size, &resident) != 2)
        resident = 0;
    (void)fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static json_t *list_kinds(const struct ledger_stats *ledger)
{
    json_t *kinds = json_object();

    for (unsigned kind = 0; kind < MEM_KINDS; kind++)
        (void)json_object_set_new(kinds, mem_kind_name(kind),
                                  json_integer(INT(ledger->kind_bytes[kind])));
    return kinds;
}

static json_t *describe_ledger(const struct ledger_stats *ledger)
{
    return json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "budget_bytes",
        INT(ledger->budget_bytes), "reserved_bytes", INT(ledger->reserved_bytes), "allocated_bytes",
        INT(ledger->allocated_bytes), "cached_bytes", INT(ledger->cached_bytes), "planned_bytes",
        INT(ledger->planned_bytes), "peak_allocated_bytes", INT(ledger->peak_allocated_bytes),
        "peak_reserved_bytes", INT(ledger->peak_reserved_bytes), "reservations_ok_total",
        INT(ledger->reservations_ok), "reservations_refused_total",
        INT(ledger->reservations_refused), "plan_violations_total", INT(ledger->plan_violations),
        "num_alloc_retries", INT(ledger->alloc_retries), "num_ooms", INT(ledger->ooms));
}

/* What the levels come from, apart from the marks. */
static json_t *describe_pressure(const struct warden_view *view)
{
    return json_pack(
        "{s:f,s:I,s:I,s:I,s:I,s:I}", "stall_share", view->stall_share, "stall_us_total",
        INT(view->stall_us_total), "external_bytes", INT(view->external_bytes),
        "refault_bytes_total", INT(view->refault_bytes_total), "evict_bytes_total",
        INT(view->evict_bytes_total), "system_presses_total", INT(view->system_presses_total));
}

static void add_region(void *arg, const struct region_info *info)
{
    json_int_t now_us = INT(clock_now_us());
    json_t *region =
        json_pack("{s:s%,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:b}", "name", info->name.data,
                  info->name.size, "kind", region_kind_name(info->kind), "bytes", INT(info->bytes),
                  "offset", INT(info->offset), "uses", INT(info->uses), "owner_pid",
                  INT(info->owner), "since_us", now_us - INT(info->since_us), "last_use_us",
                  now_us - INT(info->last_use_us), "broken", !info->is_whole);

    if (info->kind == REGION_SYSTEM)
        (void)json_object_set_new(region, "key", json_string(info->key));
    else
        (void)json_object_set_new(region, "device_id", json_integer(INT(info->device_id)));
    (void)json_array_append_new(arg, region);
}

/* Clients' memory: part of no budget, so of no sum above. */
static json_t *describe_regions(struct regions *regions)
{
    json_t *list = json_array();
    struct regions_use use;

    regions_read_use(regions, &use);
    regions_for_each(regions, REGION_KINDS, add_region, list);
    return json_pack("{s:I,s:I,s:I,s:I,s:o}", "limit_bytes", INT(use.limit_bytes), "system_bytes",
                     INT(use.bytes[REGION_SYSTEM]), "cuda_bytes", INT(use.bytes[REGION_CUDA]),
                     "leaving_bytes", INT(use.leaving_bytes), "regions", list);
}

void run_admin_memory(struct call *call)
{
    struct server *server = call->server;
    struct warden_view view;
    json_t *document, *governor;

    warden_read(server->warden, &view);
    document = describe_ledger(&view.ledger);
    governor = json_pack(
        "{s:s,s:s,s:b,s:o,s:{s:I,s:I,s:I},s:I,s:I,s:I,s:{s:I,s:I,s:I},s:I,s:I,s:I,"
        "s:{s:I,s:I,s:I,s:I},s:o}",
        "device", server->device, "level", govern_level_name(view.level), "pinned", view.pinned,
        "kinds", list_kinds(&view.ledger), "watermarks", "low", INT(view.low_bytes), "high",
        INT(view.high_bytes), "critical", INT(view.critical_bytes), "transitions_total",
        INT(view.transitions_total), "empty_cache_total", INT(view.empty_cache_total),
        "empty_cache_freed_bytes_total", INT(view.empty_cache_freed_bytes_total), "empty_cache_by",
        "governor", INT(view.empty_cache_by[0]), "decay", INT(view.empty_cache_by[1]), "operator",
        INT(view.empty_cache_by[2]), "device_free_bytes", INT(view.device_free_bytes),
        "device_total_bytes", INT(view.device_total_bytes), "resident_bytes", INT(resident_bytes()),
        "host", "limit_bytes", INT(view.host.limit_bytes), "in_use_bytes",
        INT(view.host.in_use_bytes), "cached_bytes", INT(view.host.cached_bytes), "refused_total",
        INT(view.host.refused_total), "owners", admin_list_owners(server, &view));
    if (document != NULL && governor != NULL) {
        (void)json_object_update(document, governor);
        (void)json_object_set_new(document, "pressure", describe_pressure(&view));
        (void)json_object_set_new(document, "shared_memory", describe_regions(server->regions));
        (void)json_object_set_new(document, "headroom_bytes",
                                  json_integer(INT(view.headroom_bytes)));
        (void)json_object_set_new(document, "floor_bytes", json_integer(INT(view.floor_bytes)));
        (void)json_object_set_new(document, "cores",
                                  json_integer(INT(sysconf(_SC_NPROCESSORS_ONLN))));
    }
    json_decref(governor);
    admin_reply(call, document);
}

/* ---- EmptyCache: done elsewhere, slice by slice; the loop goes on ---- */

struct emptied {
    struct notice notice;
    struct empty_cache_answer answer;
};

static void on_notice(struct notice *notice)
{
    struct emptied *emptied = CONTAINER_OF(notice, struct emptied, notice);
    const struct empty_cache_answer *answer = &emptied->answer;

    admin_reply(notice->call,
                json_pack("{s:I,s:{s:I,s:I,s:I,s:I},s:I}", "freed_bytes", INT(answer->freed_bytes),
                          "kept", "alive", INT(answer->kept_alive), "pending",
                          INT(answer->kept_pending), "floor", INT(answer->kept_floor), "graph",
                          INT(answer->kept_graph), "microseconds", INT(answer->microseconds)));
    call_unref(notice->call);
    free(emptied);
}

/* On the reclaimer's thread. */
static void on_emptied(void *arg, const struct empty_cache_answer *answer)
{
    struct emptied *emptied = arg;

    emptied->answer = *answer;
    server_notify(emptied->notice.call->server, &emptied->notice);
}

void run_admin_empty_cache(struct call *call)
{
    struct emptied *emptied = calloc(1, sizeof(*emptied));

    if (emptied == NULL) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory");
        return;
    }
    emptied->notice.run = on_notice;
    emptied->notice.call = call_ref(call);
    if (warden_empty_cache_then(call->server->warden, admin_request(call)->forced, on_emptied,
                                emptied) == STATUS_OK)
        return;
    call_fail(call, STATUS_NO_MEMORY, "out of memory");
    call_unref(call);
    free(emptied);
}
