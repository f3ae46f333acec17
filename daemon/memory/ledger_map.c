/* Where the bytes of an account are: segments as they were taken from the device, and the pieces
 * (tensors, packed weights) in them.  For snapshots; arenas need none, they have one place each.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "memory/internal.h"

static bool is_listed(const struct ledger_account *account, const struct ledger_piece *piece)
{
    return !account_is_arena(account) && piece->address != 0 && piece->bytes > 0;
}

enum status account_map_add(struct ledger_account *account, const struct ledger_piece *piece)
{
    const struct mem_block block = {
        .address = piece->address, .bytes = piece->bytes, .requested = piece->requested};

    if (!is_listed(account, piece))
        return STATUS_OK;
    if (piece->grows && blocks_join(&account->segments, &block))
        return STATUS_OK;
    if (piece->requested == 0)
        return blocks_add(&account->segments, &block);
    TRY(blocks_add(&account->pieces, &block));
    if (blocks_add(&account->segments, &block) == STATUS_OK)
        return STATUS_OK;
    blocks_remove(&account->pieces, blocks_find(&account->pieces, block.address), 1);
    return STATUS_NO_MEMORY;
}

static void record_gone(struct ledger_account *account, const struct mem_block *block)
{
    account_record(account, MEM_EVENT_FREE,
                   &(struct ledger_piece){.bytes = block->bytes,
                                          .requested = block->requested,
                                          .address = block->address},
                   0);
}

static uint64_t remove_pieces(struct ledger_account *account, uint64_t from, uint64_t to)
{
    size_t first = blocks_find(&account->pieces, from), end = first;
    uint64_t requested = 0;

    for (; end < account->pieces.count && account->pieces.items[end].address < to; end++) {
        requested += account->pieces.items[end].requested;
        record_gone(account, &account->pieces.items[end]);
    }
    blocks_remove(&account->pieces, first, end - first);
    return requested;
}

uint64_t account_map_sub(struct ledger_account *account, const struct ledger_piece *piece)
{
    struct blocks *segments = &account->segments;
    size_t at = blocks_find(segments, piece->address);

    if (!is_listed(account, piece) || at == segments->count)
        return piece->requested;
    assert(segments->items[at].address <= piece->address);
    if (segments->items[at].address == piece->address)
        blocks_remove(segments, at, 1);
    else /* the end of a chunk that had grown */
        segments->items[at].bytes = piece->address - segments->items[at].address;
    return remove_pieces(account, piece->address, piece->address + piece->bytes);
}

enum status ledger_piece_made(struct ledger_account *account, uint64_t address, uint64_t requested)
{
    struct ledger *ledger = account->ledger;
    const struct mem_block block = {.address = address, .bytes = requested, .requested = requested};
    enum status status = STATUS_OK;

    pthread_mutex_lock(&ledger->lock);
    if (requested > 0)
        status = blocks_add(&account->pieces, &block);
    if (status == STATUS_OK) {
        account->requested += requested;
        account_apply(account, &(struct mem_change){.requested = (int64_t)requested});
        account_record(
            account, MEM_EVENT_ALLOC,
            &(struct ledger_piece){.bytes = requested, .requested = requested, .address = address},
            0);
        ledger_changed(ledger);
    }
    pthread_mutex_unlock(&ledger->lock);
    return status;
}

void ledger_piece_gone(struct ledger_account *account, uint64_t address)
{
    struct ledger *ledger = account->ledger;
    uint64_t requested;

    pthread_mutex_lock(&ledger->lock);
    requested = remove_pieces(account, address, address + 1);
    account->requested -= requested;
    account_apply(account, &(struct mem_change){.requested = -(int64_t)requested});
    pthread_mutex_unlock(&ledger->lock);
}

/* ---- copies for others ---- */

static void count_all(const struct ledger *ledger, size_t *out_pools, size_t *out_blocks)
{
    const struct ledger_account *account;
    size_t pools = 0, blocks = 0;

    LIST_FOR_EACH (account, &ledger->accounts, const struct ledger_account, link) {
        pools++;
        blocks += account->segments.count + account->pieces.count;
    }
    *out_pools = pools;
    *out_blocks = blocks;
}

static void copy_blocks(struct ledger_map *map, const struct blocks *blocks, bool is_piece)
{
    for (size_t i = 0; i < blocks->count; i++)
        map->blocks[map->block_count++] = (struct ledger_block){
            .block = blocks->items[i], .pool = map->pool_count, .is_piece = is_piece};
}

static void copy_all(const struct ledger *ledger, struct ledger_map *map)
{
    const struct ledger_account *account;

    map->pool_count = map->block_count = 0;
    map->last_event = ledger->history != NULL ? history_last(ledger->history) : 0;
    LIST_FOR_EACH (account, &ledger->accounts, const struct ledger_account, link) {
        copy_blocks(map, &account->segments, false);
        copy_blocks(map, &account->pieces, true);
        map->pools[map->pool_count++] = account_describe(account);
    }
}

enum status ledger_copy_map(struct ledger *ledger, struct ledger_map *out_map)
{
    size_t pool_room = 0, block_room = 0, pools, blocks;
    struct ledger_map map = {.pools = NULL};

    for (;;) {
        pthread_mutex_lock(&ledger->lock);
        count_all(ledger, &pools, &blocks);
        if (map.pools != NULL && pools <= pool_room && blocks <= block_room)
            break;
        pthread_mutex_unlock(&ledger->lock);
        ledger_map_deinit(&map);
        pool_room = pools + 8; /* some may come meanwhile */
        block_room = blocks + blocks / 8 + 64;
        map.pools = calloc(pool_room, sizeof(*map.pools));
        map.blocks = calloc(block_room, sizeof(*map.blocks));
        if (map.pools == NULL || map.blocks == NULL) {
            ledger_map_deinit(&map);
            return STATUS_NO_MEMORY;
        }
    }
    copy_all(ledger, &map);
    pthread_mutex_unlock(&ledger->lock);
    *out_map = map;
    return STATUS_OK;
}

void ledger_map_deinit(struct ledger_map *map)
{
    free(map->pools);
    free(map->blocks);
    *map = (struct ledger_map){.pools = NULL};
}
