/* sluice.v1.Admin: MemorySnapshot, in the form of torch.cuda.memory._snapshot(), so that
 * pytorch.org/memory_viz and torch.cuda._memory_viz read it (sluicectl makes a pickle of it).
 *
 *   segments         what is held from the device: each lane's arena, chunks of weights, constants
 *     blocks         in use: a batch, a piece of weights; the rest of a segment is inactive
 *   device_traces    the history ([Memory] History=), oldest first
 *   sluice           what that form has no place for
 *
 * A frame's name is the model, its file the lane or account.  Bytes that were booked without an
 * address stand at addresses of their own, from NOWHERE up, where no memory is.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "serve/endpoints/admin_job.h"

#define NOWHERE (UINT64_C(0x7f) << 48)

enum { PIECE_ALIGNMENT = 64, EVENTS_AT_ONCE = 64 };

struct writer {
    FILE *to;
    const char *comma; /* before the next member of the list being written */
    uint64_t nowhere;
    int64_t wall_us; /* wall clock − clock_now_us() */
};

/* ---- text ---- */

static void put_string(FILE *to, const char *text)
{
    size_t size = strlen(text);

    fputc('"', to);
    for (size_t i = 0, length; i<size; i += length> 0 ? length : 1) {
        unsigned char c = (unsigned char)text[i];

        length = c < 0x80 ? 1 : utf8_length(text + i, size - i);
        if (length == 0)
            fputs("\\ufffd", to);
        else if (c < ' ' || c == '"' || c == '\\' || c == 127)
            fprintf(to, "\\u%04x", c);
        else
            fwrite(text + i, 1, length, to);
    }
    fputc('"', to);
}

/* A model's own account is "weights": file names lose what stands before a '/'. */
static void put_frames(FILE *to, const char *model, const char *where)
{
    if (strcmp(model, where) == 0)
        where = mem_kind_name(MEM_WEIGHTS);
    fputs("\"frames\":[{\"name\":", to);
    put_string(to, model[0] != '\0' ? model : where);
    fputs(",\"filename\":", to);
    put_string(to, where);
    fputs(",\"line\":0}]", to);
}

/* The lane's number: lanes are what PyTorch's streams are. */
static unsigned stream_of(const char *owner)
{
    unsigned lane = 0;

    return sscanf(owner, "lane %u", &lane) == 1 ? lane : 0;
}

/* ---- segments ---- */

struct segment {
    uint64_t address, bytes, allocated, requested;
    const char *owner, *model;
};

static void open_segment(struct writer *writer, const struct segment *segment)
{
    fprintf(writer->to,
            "%s{\"device\":0,\"address\":%" PRIu64 ",\"total_size\":%" PRIu64
            ",\"allocated_size\":%" PRIu64 ",\"active_size\":%" PRIu64
            ",\"requested_size\":%" PRIu64
            ",\"stream\":%u,\"segment_type\":\"large\",\"segment_pool_id\":[0,0],"
            "\"is_expandable\":true,",
            writer->comma, segment->address, segment->bytes, segment->allocated, segment->allocated,
            segment->requested, stream_of(segment->owner));
    put_frames(writer->to, segment->model, segment->owner);
    fputs(",\"blocks\":[", writer->to);
    writer->comma = "";
}

static void close_segment(struct writer *writer)
{
    fputs("]}", writer->to);
    writer->comma = ",";
}

/* A block of the open segment; `where` NULL: inactive. */
static void put_block(struct writer *writer, const struct mem_block *block, const char *model,
                      const char *where)
{
    fprintf(writer->to,
            "%s{\"address\":%" PRIu64 ",\"size\":%" PRIu64 ",\"requested_size\":%" PRIu64
            ",\"state\":\"%s\",",
            writer->comma, block->address, block->bytes, block->requested,
            where != NULL ? "active_allocated" : "inactive");
    if (where != NULL)
        put_frames(writer->to, model, where);
    else
        fputs("\"frames\":[]", writer->to);
    fputc('}', writer->to);
    writer->comma = ",";
}

static void put_whole(struct writer *writer, const struct segment *segment)
{
    struct mem_block used = {
        .address = segment->address, .bytes = segment->allocated, .requested = segment->requested};
    struct mem_block rest = {.address = segment->address + segment->allocated,
                             .bytes = segment->bytes - segment->allocated};

    if (segment->bytes == 0)
        return;
    open_segment(writer, segment);
    if (used.bytes > 0)
        put_block(writer, &used, segment->model, segment->owner);
    if (rest.bytes > 0)
        put_block(writer, &rest, "", NULL);
    close_segment(writer);
}

/* A piece ends where the next one begins, or behind its alignment. */
static uint64_t end_of(const struct ledger_block *piece, const struct ledger_block *next,
                       uint64_t segment_end)
{
    uint64_t end = piece->block.address +
                   (piece->block.bytes + PIECE_ALIGNMENT - 1) / PIECE_ALIGNMENT * PIECE_ALIGNMENT;

    if (next != NULL && next->block.address < end)
        end = next->block.address;
    return end < segment_end ? end : segment_end;
}

static bool is_within(const struct ledger_block *piece, const struct mem_block *segment)
{
    return piece->block.address >= segment->address &&
           piece->block.address < segment->address + segment->bytes;
}

/* A segment that holds pieces: whatever is between them is booked, and so is active too. */
static void put_pieces(struct writer *writer, const struct segment *segment,
                       const struct ledger_block *pieces, size_t count)
{
    uint64_t at = segment->address, end = segment->address + segment->bytes;

    open_segment(writer, segment);
    for (size_t i = 0; i < count; i++) {
        struct mem_block block = pieces[i].block, gap = {.address = at};

        gap.bytes = block.address - at;
        if (gap.bytes > 0)
            put_block(writer, &gap, segment->model, "between pieces");
        at = end_of(&pieces[i], i + 1 < count ? &pieces[i + 1] : NULL, end);
        block.bytes = at - block.address;
        put_block(writer, &block, segment->model, segment->owner);
    }
    if (at < end)
        put_block(writer, &(struct mem_block){.address = at, .bytes = end - at}, segment->model,
                  "end of a chunk");
    close_segment(writer);
}

/* `blocks`: the account's; returns the bytes that its segments hold. */
static uint64_t put_account_segments(struct writer *writer, const struct ledger_pool *pool,
                                     const struct ledger_block *blocks, size_t count)
{
    size_t pieces = 0;
    uint64_t bytes = 0;

    while (pieces < count && !blocks[pieces].is_piece)
        pieces++;
    for (size_t i = 0, piece = pieces; i < count && !blocks[i].is_piece; i++) {
        const struct mem_block *block = &blocks[i].block;
        struct segment segment = {.address = block->address,
                                  .bytes = block->bytes,
                                  .allocated = block->bytes,
                                  .owner = pool->owner,
                                  .model = pool->owner};
        size_t first = piece;

        for (; piece < count && is_within(&blocks[piece], block); piece++)
            segment.requested += blocks[piece].block.requested;
        put_pieces(writer, &segment, &blocks[first], piece - first);
        bytes += block->bytes;
    }
    return bytes;
}

static void put_account(struct writer *writer, const struct ledger_pool *pool,
                        const struct ledger_block *blocks, size_t count)
{
    uint64_t listed = put_account_segments(writer, pool, blocks, count);
    struct segment rest = {.address = pool->address,
                           .bytes = pool->bytes - listed,
                           .allocated = pool->used > listed ? pool->used - listed : 0,
                           .owner = pool->owner,
                           .model = pool->user};

    rest.requested = pool->requested < rest.allocated ? pool->requested : rest.allocated;
    if (rest.address == 0) {
        rest.address = NOWHERE + writer->nowhere;
        writer->nowhere += rest.bytes;
    }
    put_whole(writer, &rest);
}

static void put_segments(struct writer *writer, const struct ledger_map *map)
{
    size_t at = 0;

    writer->comma = "";
    for (size_t i = 0; i < map->pool_count; i++) {
        size_t first = at;

        while (at < map->block_count && map->blocks[at].pool == i)
            at++;
        put_account(writer, &map->pools[i], &map->blocks[first], at - first);
    }
}

/* ---- the history ---- */

static void put_action(struct writer *writer, const struct mem_event *event, const char *action)
{
    bool is_oom = event->kind == MEM_EVENT_OOM;

    fprintf(writer->to,
            "%s{\"action\":\"%s\",\"%s\":%" PRIu64 ",\"size\":%" PRIu64
            ",\"stream\":%u,\"time_us\":%" PRId64 ",",
            writer->comma, action, is_oom ? "device_free" : "addr",
            is_oom ? event->other : event->address, event->bytes, stream_of(event->owner),
            event->time_us + writer->wall_us);
    put_frames(writer->to, event->model, event->owner);
    fputc('}', writer->to);
    writer->comma = ",";
}

/* What PyTorch has an action for. */
static void put_trace(struct writer *writer, const struct mem_event *event)
{
    switch (event->kind) {
    case MEM_EVENT_ALLOC:
        put_action(writer, event, "alloc");
        break;
    case MEM_EVENT_FREE:
        put_action(writer, event, "free_requested");
        put_action(writer, event, "free_completed");
        break;
    case MEM_EVENT_MAP:
        put_action(writer, event, "segment_map");
        break;
    case MEM_EVENT_UNMAP:
        put_action(writer, event, "segment_unmap");
        break;
    case MEM_EVENT_OOM:
        put_action(writer, event, "oom");
        break;
    default: /* in "sluice" only */
        break;
    }
}

static void put_history(struct writer *writer, const struct mem_event *event)
{
    fprintf(writer->to,
            "%s{\"number\":%" PRIu64 ",\"time_us\":%" PRId64 ",\"kind\":\"%s\",\"address\":%" PRIu64
            ",\"bytes\":%" PRIu64 ",\"other\":%" PRIu64 ",\"owner\":",
            writer->comma, event->number, event->time_us + writer->wall_us,
            mem_event_name(event->kind), event->address, event->bytes, event->other);
    put_string(writer->to, event->owner);
    fputs(",\"model\":", writer->to);
    put_string(writer->to, event->model);
    fputs(",\"note\":", writer->to);
    put_string(writer->to, event->note);
    fputc('}', writer->to);
    writer->comma = ",";
}

typedef void (*put_event_fn)(struct writer *writer, const struct mem_event *event);

/* Every event up to the one numbered `last`. */
static void put_events(struct writer *writer, struct ledger *ledger, uint64_t last,
                       put_event_fn put)
{
    struct mem_event events[EVENTS_AT_ONCE];
    uint64_t next = 1;
    size_t count;

    writer->comma = "";
    while ((count = ledger_history(ledger, &next, events, EVENTS_AT_ONCE)) > 0)
        for (size_t i = 0; i < count; i++) {
            if (events[i].number > last)
                return;
            put(writer, &events[i]);
        }
}

/* ---- the whole ---- */

static void put_settings(FILE *to)
{
    fputs("\"allocator_settings\":{\"PYTORCH_CUDA_ALLOC_CONF\":\"\",\"max_split_size\":-1,"
          "\"garbage_collection_threshold\":0.0,\"expandable_segments\":true,"
          "\"pinned_num_register_threads\":1,\"release_lock_on_cudamalloc\":false,"
          "\"pinned_use_cuda_host_register\":false,\"roundup_power2_divisions\":{}},"
          "\"external_annotations\":[],",
          to);
}

static void put_own(struct writer *writer, struct server *server)
{
    struct warden_view view;

    warden_read(server->warden, &view);
    fputs("\"sluice\":{\"version\":\"" SLUICE_VERSION "\",\"device\":", writer->to);
    put_string(writer->to, server->device);
    fprintf(writer->to,
            ",\"time_us\":%" PRId64 ",\"level\":\"%s\",\"budget_bytes\":%" PRIu64
            ",\"reserved_bytes\":%" PRIu64 ",\"allocated_bytes\":%" PRIu64
            ",\"planned_bytes\":%" PRIu64 ",\"history\":[",
            clock_now_us() + writer->wall_us, govern_level_name(view.level),
            view.ledger.budget_bytes, view.ledger.reserved_bytes, view.ledger.allocated_bytes,
            view.ledger.planned_bytes);
}

static enum status make_snapshot(struct admin_job *job, FILE *to, struct error *err)
{
    struct server *server = job->notice.call->server;
    struct ledger *ledger = warden_ledger(server->warden);
    struct writer writer = {.to = to, .wall_us = clock_wall_ms() * 1000 - clock_now_us()};
    struct ledger_map map;

    if (ledger_copy_map(ledger, &map) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "out of memory for the snapshot");
    fputs("{\"segments\":[", to);
    put_segments(&writer, &map);
    fputs("],\"device_traces\":[[", to);
    put_events(&writer, ledger, map.last_event, put_trace);
    fputs("]],", to);
    put_settings(to);
    put_own(&writer, server);
    put_events(&writer, ledger, map.last_event, put_history);
    fputs("]}}", to);
    ledger_map_deinit(&map);
    return STATUS_OK;
}

void run_admin_memory_snapshot(struct call *call)
{
    struct admin_job *job;

    if (call->server->snapshotting) {
        call_fail(call, STATUS_UNAVAILABLE, "another snapshot is being made, try again");
        return;
    }
    job = calloc(1, sizeof(*job));
    if (job == NULL) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory");
        return;
    }
    job->make = make_snapshot;
    job->busy = &call->server->snapshotting;
    admin_job_start(call, job);
}
