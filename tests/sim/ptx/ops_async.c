/* cp.async: copies from global to shared memory that have happened only after their wait.
 *
 * Until then the bytes in shared memory count as never written and keep what they were, and whoever
 * touches them races with the copy.
 */
#include "access.h"
#include "arms.h"

#include <stdlib.h>
#include <string.h>

/* op->a: the address in shared memory; list: {address in global memory, bytes that are read}. */
static struct async_lane *lanes_of(struct warp *warp)
{
    if (warp->async == NULL)
        warp->async = calloc(LANES, sizeof(struct async_lane));
    return warp->async;
}

static void op_copy(struct warp *warp, const struct op *op, uint32_t mask)
{
    struct async_lane *lanes = lanes_of(warp);
    const uint64_t *from = reg(warp, op->list[0]);
    const uint32_t *from_bytes = reg(warp, op->list[1]);
    struct access access;

    if (undefined(warp, op, mask, op->list[0], "an address") ||
        undefined(warp, op, mask, op->list[1], "a size") ||
        !access_find(warp, op, mask, op->bytes, RACE_WRITE, &access))
        return;
    access_mark(&access, mask, 0, op->bytes, 0);
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int number = __builtin_ctz(left);
        struct async_lane *lane = &lanes[number];
        uint32_t to = (uint32_t)(access.at[number] - (uint8_t *)warp->worker->shared);
        if (warp->worker->grid->check_races)
            race_copy_begin(warp, op, number, to, op->bytes);
        if (warp->stopped)
            return;
        if (lane->count == lane->room) {
            lane->room = lane->room * 2 + 16;
            lane->copies = realloc(lane->copies, lane->room * sizeof(struct async_copy));
        }
        lane->copies[lane->count++] = (struct async_copy){
            .from = from[number] + (uint64_t)(intptr_t)op->extra,
            .to = to,
            .bytes = op->bytes,
            .from_bytes = from_bytes[number] < op->bytes ? from_bytes[number] : op->bytes,
            .group = lane->group,
            .op = op,
        };
    }
}

/* Does one copy. */
static void complete(struct warp *warp, int lane, const struct async_copy *copy)
{
    struct worker *worker = warp->worker;
    struct op at = *copy->op;
    uint8_t *shadow = NULL;
    uint8_t bytes[16] = {0};
    uint8_t marks[2] = {0xFF, 0xFF};

    if (copy->from_bytes > 0) {
        const uint8_t *from =
            access_one(warp, &at, lane, SPACE_GENERIC, copy->from, copy->bytes, RACE_READ, &shadow);
        if (from == NULL)
            return;
        memcpy(bytes, from, copy->from_bytes);
        if (shadow != NULL) {
            unsigned shift = (unsigned)(copy->from % 8);
            marks[0] = (uint8_t)(shadow[0] >> shift);
            marks[1] = copy->bytes == 16 ? shadow[1] : 0xFF;
        }
    }
    if (worker->grid->check_races)
        race_copy_end(warp, copy->op, lane, copy->to, copy->bytes, bytes);
    memcpy(worker->shared + copy->to, bytes, copy->bytes);
    for (unsigned i = 0; i < copy->bytes; i++) {
        uint8_t bit = (uint8_t)(1u << ((copy->to + i) % 8));
        bool good = i >= copy->from_bytes || (marks[i / 8] >> (i % 8) & 1) != 0;
        uint8_t *byte = &worker->shared_shadow[(copy->to + i) / 8];
        *byte = good ? *byte | bit : *byte & (uint8_t)~bit;
    }
}

/* All groups but the newest `keep`. */
static void wait_for(struct warp *warp, uint32_t mask, uint32_t keep)
{
    struct async_lane *lanes = lanes_of(warp);

    for (uint32_t left = mask; left != 0 && !warp->stopped; left &= left - 1) {
        int number = __builtin_ctz(left);
        struct async_lane *lane = &lanes[number];
        size_t done = 0;
        while (done < lane->count && lane->copies[done].group + keep < lane->group &&
               !warp->stopped)
            complete(warp, number, &lane->copies[done++]);
        if (done == 0)
            continue;
        lane->count -= done;
        memmove(lane->copies, lane->copies + done, lane->count * sizeof(struct async_copy));
    }
}

static void op_commit(struct warp *warp, const struct op *op, uint32_t mask)
{
    struct async_lane *lanes = lanes_of(warp);

    (void)op;
    EACH_LANE(mask, lanes[lane].group++);
}

static void op_wait_group(struct warp *warp, const struct op *op, uint32_t mask)
{
    wait_for(warp, mask, (uint32_t)op->offset);
}

static void op_wait_all(struct warp *warp, const struct op *op, uint32_t mask)
{
    op_commit(warp, op, mask);
    wait_for(warp, mask, 0);
}

static void decode_copy(struct builder *builder, struct statement *statement)
{
    static const char *const caches[] = {"ca", "cg", NULL};
    static const char *const hints[] = {"L2::64B", "L2::128B", "L2::256B", NULL};
    struct operand list[2];
    int cache = modifier_of(statement, caches);

    if (cache < 0)
        return;
    if ((!modifier(statement, "shared") && !modifier(statement, "shared::cta")) ||
        !modifier(statement, "global"))
        return;
    (void)modifier_of(statement, hints);
    need_arguments(builder, statement, 3, 4);
    const struct argument *from = &statement->arguments[1];
    uint64_t bytes = statement->arguments[2].number;
    if (statement->arguments[2].kind != ARGUMENT_NUMBER ||
        (bytes != 16 && (cache == 1 || (bytes != 4 && bytes != 8))) || !from->is_address ||
        from->kind != ARGUMENT_REGISTER)
        refuse(builder, "cp.async of this form");
    struct argument base = {.kind = ARGUMENT_REGISTER, .variable = from->variable};
    list[0] = source(builder, &base, 8);
    list[1] = statement->argument_count == 4 ? source(builder, &statement->arguments[3], 4)
                                             : constant(builder, bytes, 4);
    struct op *op = emit(builder, statement, op_copy);
    address_of(builder, op, &statement->arguments[0], SPACE_SHARED);
    op = &builder->kernel->ops[builder->kernel->op_count - 1];
    op->bytes = (uint8_t)bytes;
    op->list = own_list(builder, list, 2);
    op->extra = (const void *)(intptr_t)from->offset;
}

static void decode_cp(struct builder *builder, struct statement *statement)
{
    if (!modifier(statement, "async"))
        return;
    if (modifier(statement, "commit_group")) {
        emit(builder, statement, op_commit);
    } else if (modifier(statement, "wait_all")) {
        emit(builder, statement, op_wait_all);
    } else if (modifier(statement, "wait_group")) {
        need_arguments(builder, statement, 1, 1);
        if (statement->arguments[0].kind != ARGUMENT_NUMBER)
            refuse(builder, "cp.async.wait_group of no number");
        emit(builder, statement, op_wait_group)->offset = (int64_t)statement->arguments[0].number;
    } else {
        decode_copy(builder, statement);
    }
}

const struct decoder decode_async[] = {
    {"cp", decode_cp},
    {NULL, NULL},
};
