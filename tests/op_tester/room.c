/* Memory of a device that does not compute in the host's. */
#include "op_tester/internal.h"

enum { ROOM_BYTES = 1 << 28, ROOM_ALIGNMENT = 256, ROOM_ZONE = 256, ZONE_BYTE = 0xA5 };

void room_open(struct op_tester *tester)
{
    struct mem_source *source = tester->devices[0]->memory;
    void *base = NULL;

    if (!source->moves && source->ops->reserve(source, ROOM_BYTES, &base) != STATUS_OK)
        fail_msg("no addresses on the device");
    tester->room = (struct device_room){.base = base};
}

void room_close(struct op_tester *tester)
{
    struct mem_source *source = tester->devices[0]->memory;

    if (!source->moves)
        source->ops->release(source, tester->room.base, ROOM_BYTES);
}

void room_clear(struct op_tester *tester)
{
    struct mem_source *source = tester->devices[0]->memory;
    struct device_room *room = &tester->room;

    if (room->committed_bytes > 0)
        source->ops->decommit(source, room->base, room->committed_bytes);
    for (size_t i = 0; i < room->apart_count; i++)
        source->ops->release(source, room->apart[i].base, room->apart[i].bytes);
    room->committed_bytes = room->used_bytes = room->apart_count = 0;
}

static void *take_apart(struct op_tester *tester, size_t bytes, const void *from)
{
    struct mem_source *source = tester->devices[0]->memory;
    struct device_room *room = &tester->room;
    void *block = NULL;

    bytes = bytes > 0 ? bytes : 1;
    if (room->apart_count == ROOM_APART || source->ops->reserve(source, bytes, &block) != STATUS_OK)
        fail_msg("no memory on the device");
    room->apart[room->apart_count].base = block;
    room->apart[room->apart_count++].bytes = bytes;
    if (from != NULL)
        assert_int_equal(tester->devices[0]->ops->copy_in(tester->lanes[0], block, from, bytes),
                         STATUS_OK);
    return block;
}

void *room_take(struct op_tester *tester, size_t bytes, const void *from)
{
    struct mem_source *source = tester->devices[0]->memory;
    struct device_room *room = &tester->room;
    char zone[ROOM_ZONE], *block = room->base + room->used_bytes;
    size_t after = room->used_bytes + bytes + ROOM_ZONE;
    size_t wanted = (after + source->page_bytes - 1) / source->page_bytes * source->page_bytes;

    if (source->moves)
        return take_apart(tester, bytes, from);
    memset(zone, ZONE_BYTE, sizeof(zone));
    if (wanted > ROOM_BYTES || (wanted > room->committed_bytes &&
                                source->ops->commit(source, room->base + room->committed_bytes,
                                                    wanted - room->committed_bytes) != STATUS_OK))
        fail_msg("no memory on the device");
    room->committed_bytes = wanted > room->committed_bytes ? wanted : room->committed_bytes;
    room->used_bytes = (after + ROOM_ALIGNMENT - 1) / ROOM_ALIGNMENT * ROOM_ALIGNMENT;
    if (from != NULL && bytes > 0)
        assert_int_equal(tester->devices[0]->ops->copy_in(tester->lanes[0], block, from, bytes),
                         STATUS_OK);
    assert_int_equal(
        tester->devices[0]->ops->copy_in(tester->lanes[0], block + bytes, zone, sizeof(zone)),
        STATUS_OK);
    return block;
}

bool room_fetch(struct op_tester *tester, const void *block, size_t bytes, void *to)
{
    const struct device_ops *ops = tester->devices[0]->ops;
    unsigned char zone[ROOM_ZONE];

    if (bytes > 0)
        assert_int_equal(ops->copy_out(tester->lanes[0], to, block, bytes), STATUS_OK);
    if (tester->devices[0]->memory->moves)
        return ops->lane_wait(tester->lanes[0]) == STATUS_OK;
    assert_int_equal(
        ops->copy_out(tester->lanes[0], zone, (const char *)block + bytes, sizeof(zone)),
        STATUS_OK);
    assert_int_equal(ops->lane_wait(tester->lanes[0]), STATUS_OK);
    for (size_t i = 0; i < sizeof(zone); i++)
        if (zone[i] != ZONE_BYTE)
            return false;
    return true;
}
