/* Barriers of a block, and what is said when its threads do not meet. */
#include "warp.h"

#include <string.h>

void barrier_wait(struct warp *warp, const struct op *op, uint32_t mask, unsigned number,
                  unsigned expected, bool leaves)
{
    struct barrier *barrier = &warp->worker->barriers[number];
    uint32_t thread = warp->number * LANES + (uint32_t)__builtin_ctz(mask);

    if (barrier->arrived == 0) {
        barrier->op = op;
        barrier->first = thread;
        barrier->expected = expected;
        barrier->set = 0;
    } else if (expected == 0 && barrier->op != op) {
        fault(warp, op, mask, PTX_FAILED,
              "threads met at different barriers: thread %u waits at line %u", barrier->first,
              barrier->op->place.line);
        return;
    }
    barrier->arrived += (uint32_t)__builtin_popcount(mask);
    if (leaves)
        return;
    for (uint32_t left = mask; left != 0; left &= left - 1)
        warp->lane_barrier[__builtin_ctz(left)] = (uint8_t)number;
    warp_park(warp, mask, warp->pc);
    warp->barrier |= mask;
    if (warp->active == 0)
        warp_reschedule(warp);
}

/* The result of bar.red: how many, any or all predicates were true. */
static void reduce(struct warp *warp, int lane, const struct barrier *barrier)
{
    const struct op *op = barrier->op;
    uint32_t bit = (uint32_t)1 << lane;

    if (op->kind == 0)
        return;
    if (op->kind == 1)
        ((uint32_t *)reg(warp, op->d))[lane] = barrier->set;
    else
        predicate_set(warp, op->d, bit,
                      (op->kind == 2 ? barrier->set == barrier->arrived : barrier->set != 0) ? bit
                                                                                             : 0);
    mark_result(warp, op->d, bit, bit);
}

static void release(struct worker *worker, unsigned number)
{
    for (unsigned w = 0; w < worker->warp_count; w++) {
        struct warp *warp = &worker->warps[w];
        for (uint32_t left = warp->barrier; left != 0; left &= left - 1) {
            int lane = __builtin_ctz(left);
            if (warp->lane_barrier[lane] != number)
                continue;
            reduce(warp, lane, &worker->barriers[number]);
            warp->barrier &= ~((uint32_t)1 << lane);
        }
        warp_reschedule(warp);
    }
    worker->barriers[number].arrived = 0;
    worker->epoch++;
}

bool barriers_release(struct worker *worker)
{
    uint32_t live = 0;
    bool any = false;

    for (unsigned w = 0; w < worker->warp_count; w++)
        live += (uint32_t)__builtin_popcount(worker->warps[w].live);
    for (unsigned number = 0; number < BARRIERS; number++) {
        const struct barrier *barrier = &worker->barriers[number];
        uint32_t expected = barrier->expected != 0 ? barrier->expected : live;
        if (barrier->arrived == 0 || barrier->arrived < expected)
            continue;
        release(worker, number);
        any = true;
    }
    return any;
}

void block_stuck(struct worker *worker)
{
    for (unsigned w = 0; w < worker->warp_count; w++) {
        struct warp *warp = &worker->warps[w];
        uint32_t lanes = warp->together != 0 ? warp->together : warp->barrier;
        if (lanes == 0)
            continue;
        uint32_t pc = warp->lane_pc[__builtin_ctz(lanes)];
        const struct op *op = &worker->kernel->ops[warp->together != 0 ? pc : pc - 1];
        fault(warp, op, lanes, PTX_TIMEOUT,
              warp->together != 0
                  ? "the threads wait for others of their warp that its mask names and that never "
                    "come here"
                  : "the threads wait at a barrier that the others of the block never come to");
        return;
    }
}
