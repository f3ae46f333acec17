/* Another order of a plan's nodes, in which less of the arena is alive at once.
 *
 * Nodes and sets (share.c) become steps and blocks for graph/schedule.h, which looks for an order.
 * Its picture is a little simpler than the truth (results over dead inputs are guessed), so both
 * orders are measured as they would be placed, and the given one stays unless it is beaten.
 * Results do not change: each node still runs once, on the same operands, after those it needs;
 * nodes that draw random numbers keep their order among themselves.
 */
#include <string.h>

#include "engine/internal.h"
#include "graph/schedule.h"

struct reordering {
    struct making *making;
    struct arena arena; /* all below */
    uint32_t *maker;    /* by value id: its node's place in the order, 1 more; 0: none */
    uint32_t *number;   /* by set id: its block's number, 1 more; 0: no block */
    uint32_t *seen;     /* by block: the node that touched it last, 1 more */
    struct schedule_block *blocks;
    struct schedule_step *steps;
    struct schedule_problem problem;
    uint32_t *order;
};

static bool take_memory(struct reordering *reordering)
{
    const struct making *making = reordering->making;
    struct arena *arena = &reordering->arena;
    size_t values = making->graph->next_value_id + 1;

    reordering->maker = arena_take_array(arena, values, sizeof(*reordering->maker));
    reordering->number = arena_take_array(arena, values, sizeof(*reordering->number));
    reordering->seen = arena_take_array(arena, values, sizeof(*reordering->seen));
    reordering->blocks = arena_take_array(arena, values, sizeof(*reordering->blocks));
    reordering->steps = arena_take_array(arena, making->nodes, sizeof(*reordering->steps));
    reordering->order = arena_take_array(arena, making->nodes, sizeof(*reordering->order));
    return reordering->maker != NULL && reordering->number != NULL && reordering->seen != NULL &&
           reordering->blocks != NULL && reordering->steps != NULL && reordering->order != NULL;
}

/* The value's block; UINT32_MAX: it takes no bytes of the arena. */
static uint32_t block_of(struct reordering *reordering, const struct value *value)
{
    const struct making *making = reordering->making;
    const struct set *root;
    uint64_t ignored;
    uint32_t id;

    if (value == NULL || value->constant != NULL)
        return UINT32_MAX;
    root = making_root(making, value, &ignored);
    if (root->where != IN_ARENA || root->bytes == 0)
        return UINT32_MAX;
    id = (uint32_t)(root - making->sets);
    if (reordering->number[id] == 0) {
        reordering->blocks[reordering->problem.blocks].bytes = round_up(root->bytes);
        reordering->number[id] = (uint32_t)++reordering->problem.blocks;
    }
    return reordering->number[id] - 1;
}

static void touch(struct reordering *reordering, size_t n, const struct value *value,
                  uint32_t *touches, size_t *count)
{
    uint32_t block = block_of(reordering, value);

    if (block == UINT32_MAX || reordering->seen[block] == n + 1)
        return;
    reordering->seen[block] = (uint32_t)n + 1;
    touches[(*count)++] = block;
}

static void fill_overs(struct reordering *reordering, size_t n, struct schedule_over *over,
                       size_t *count)
{
    const struct node *node = reordering->making->order[n];
    size_t inputs[OVERLAYS_MAX], overlays = making_overlays(reordering->making, n, inputs);

    for (size_t i = 0; i < overlays; i++) {
        uint32_t dying, made;

        if (!making_may_overlay(reordering->making, node, inputs[i]))
            continue;
        dying = block_of(reordering, node->in[inputs[i]]);
        made = block_of(reordering, node->out[0]);
        if (dying != UINT32_MAX && made != UINT32_MAX && dying != made)
            over[(*count)++] = (struct schedule_over){.dying = dying, .made = made};
    }
}

/* random: the place of the last node that draws random numbers, 1 more; 0: none. */
static enum status fill_step(struct reordering *reordering, size_t n, uint32_t *random)
{
    const struct node *node = reordering->making->order[n];
    struct schedule_step *step = &reordering->steps[n];
    struct arena *arena = &reordering->arena;
    uint32_t *before = arena_take_array(arena, node->inputs + 1, sizeof(*before));
    uint32_t *touches = arena_take_array(arena, node->inputs + node->outputs, sizeof(*touches));
    struct schedule_over *over = arena_take_array(arena, OVERLAYS_MAX, sizeof(*over));

    if (before == NULL || touches == NULL || over == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < node->inputs; i++) {
        if (node->in[i] != NULL && reordering->maker[node->in[i]->id] > 0)
            before[step->befores++] = reordering->maker[node->in[i]->id] - 1;
        touch(reordering, n, node->in[i], touches, &step->touches);
    }
    if ((node->op->flags & OP_NOT_DETERMINISTIC) != 0) {
        if (*random > 0)
            before[step->befores++] = *random - 1;
        *random = (uint32_t)n + 1;
    }
    for (size_t i = 0; i < node->outputs; i++) {
        touch(reordering, n, node->out[i], touches, &step->touches);
        if (node->out[i] != NULL)
            reordering->maker[node->out[i]->id] = (uint32_t)n + 1;
    }
    fill_overs(reordering, n, over, &step->overs);
    step->before = before;
    step->touch = touches;
    step->over = over;
    if (!making_on_host(reordering->making, node))
        step->scratch_bytes = round_up(reordering->making->choices[n].prepare.scratch_bytes);
    return STATUS_OK;
}

static enum status describe(struct reordering *reordering)
{
    const struct making *making = reordering->making;
    uint32_t random = 0;

    if (!take_memory(reordering))
        return STATUS_NO_MEMORY;
    for (size_t n = 0; n < making->nodes; n++)
        TRY(fill_step(reordering, n, &random));
    for (size_t i = 0; i < making->graph->outputs; i++) {
        uint32_t block = block_of(reordering, making->graph->out[i]);

        if (block != UINT32_MAX)
            reordering->blocks[block].is_kept = true;
    }
    reordering->problem.block = reordering->blocks;
    reordering->problem.step = reordering->steps;
    reordering->problem.steps = making->nodes;
    return STATUS_OK;
}

/* The bound of the order that there is; the sets are as before. */
static enum status measure(struct reordering *reordering, uint64_t *out_bytes)
{
    struct making *making = reordering->making;
    size_t bytes = making->graph->next_value_id * sizeof(*making->sets);
    struct set *kept = arena_copy(&reordering->arena, making->sets, bytes);
    enum status status;

    if (kept == NULL)
        return STATUS_NO_MEMORY;
    making_live(making);
    making_overlay(making);
    status = making_bound(making, out_bytes);
    memcpy(making->sets, kept, bytes);
    return status;
}

/* Moves what there is per node: from[order[i]] to to[i]. */
static void arrange(struct making *making, const struct making *from, const uint32_t *order)
{
    for (size_t i = 0; i < making->nodes; i++) {
        making->order[i] = from->order[order[i]];
        making->choices[i] = from->choices[order[i]];
        making->placed[i] = from->placed[order[i]];
    }
}

static enum status try_order(struct reordering *reordering)
{
    struct making *making = reordering->making, given = *making;
    struct arena *arena = &reordering->arena;
    uint64_t before, after;

    given.order = arena_copy(arena, making->order, making->nodes * sizeof(*given.order));
    given.choices = arena_copy(arena, making->choices, making->nodes * sizeof(*given.choices));
    given.placed = arena_copy(arena, making->placed, making->nodes * sizeof(*given.placed));
    if (given.order == NULL || given.choices == NULL || given.placed == NULL)
        return STATUS_NO_MEMORY;
    TRY(measure(reordering, &before));
    arrange(making, &given, reordering->order);
    if (measure(reordering, &after) == STATUS_OK && after < before) {
        making->plan->order_saves_bytes = before - after;
        return STATUS_OK;
    }
    for (size_t i = 0; i < making->nodes; i++)
        reordering->order[i] = (uint32_t)i;
    arrange(making, &given, reordering->order);
    return STATUS_OK;
}

enum status making_reorder(struct making *making)
{
    struct reordering reordering = {.making = making};
    bool improved = false;
    enum status status;

    if (making->nodes < 3 || making->nodes > SCHEDULE_STEPS_MAX)
        return STATUS_OK;
    arena_init(&reordering.arena);
    status = describe(&reordering);
    if (status == STATUS_OK)
        status = schedule_order(&reordering.problem, reordering.order, &improved);
    if (status == STATUS_OK && improved)
        status = try_order(&reordering);
    arena_deinit(&reordering.arena);
    return status;
}
