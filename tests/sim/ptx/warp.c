/* How a warp moves: groups of lanes that part, wait and join. */
#include "warp.h"

void warp_park(struct warp *warp, uint32_t lanes, uint32_t pc)
{
    for (uint32_t left = lanes; left != 0; left &= left - 1)
        warp->lane_pc[__builtin_ctz(left)] = pc;
    warp->active &= ~lanes;
    if (pc < warp->join)
        warp->join = pc;
}

void warp_reschedule(struct warp *warp)
{
    uint32_t ready;
    uint32_t lowest = UINT32_MAX;
    uint32_t second = UINT32_MAX;
    uint32_t group = 0;

    for (uint32_t left = warp->active; left != 0; left &= left - 1)
        warp->lane_pc[__builtin_ctz(left)] = warp->pc;
    ready = warp->live & ~warp->barrier & ~warp->together;
    for (uint32_t left = ready; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint32_t pc = warp->lane_pc[lane];
        if (pc < lowest) {
            second = lowest;
            lowest = pc;
            group = 0;
        } else if (pc > lowest && pc < second) {
            second = pc;
        }
        if (pc == lowest)
            group |= (uint32_t)1 << lane;
    }
    warp->active = group;
    warp->pc = lowest;
    warp->join = second;
    warp->stopped = group == 0;
}

void warp_exit(struct warp *warp, uint32_t lanes)
{
    warp->live &= ~lanes;
    warp->active &= ~lanes;
    if (warp->active == 0)
        warp_reschedule(warp);
}

void warp_run(struct warp *warp, uint64_t slice)
{
    const struct op *ops = warp->worker->kernel->ops;
    uint64_t end = warp->instructions + slice;

    while (!warp->stopped) {
        const struct op *op = &ops[warp->pc];
        uint32_t mask = warp->active;
        if (op->guarded) {
            uint32_t value = predicate(warp, op->guard);
            if (undefined(warp, op, mask, op->guard, "a condition"))
                return;
            mask &= op->guard_not ? ~value : value;
        }
        warp->pc++;
        warp->instructions++;
        if (mask != 0) {
            warp->lane_instructions += (unsigned)__builtin_popcount(mask);
            op->fn(warp, op, mask);
        }
        if (warp->pc >= warp->join)
            warp_reschedule(warp);
        if (warp->instructions >= end)
            return;
    }
}

/* Lanes of `among` whose value is that of `value`. */
static uint32_t same(const uint32_t *values, uint32_t among, uint32_t value)
{
    uint32_t equal = 0;

    for (int lane = 0; lane < LANES; lane++)
        equal |= (uint32_t)(values[lane] == value) << lane;
    return equal & among;
}

void warp_together(struct warp *warp, const struct op *op, uint32_t mask, struct operand members,
                   op_fn *act)
{
    const uint32_t *named = reg(warp, members);
    uint32_t here = (uint32_t)(op - warp->worker->kernel->ops);
    uint32_t waiting = 0;

    if (undefined(warp, op, mask, members, "the mask of lanes"))
        return;
    for (uint32_t left = warp->together; left != 0; left &= left - 1)
        if (warp->lane_pc[__builtin_ctz(left)] == here)
            waiting |= left & -left;
    for (uint32_t left = mask; left != 0;) {
        int lane = __builtin_ctz(left);
        uint32_t group = same(named, mask | waiting, named[lane]);
        uint32_t need = named[lane] & warp->live;
        left &= ~group;
        if ((group & ~named[lane]) != 0) {
            fault(warp, op, group & ~named[lane], PTX_FAILED,
                  "the mask of lanes 0x%08x does not name the thread itself", named[lane]);
            return;
        }
        if ((group & need) == need) {
            warp->together &= ~group;
            warp->active |= group;
            act(warp, op, group);
        } else {
            warp->together |= group;
            warp_park(warp, group & mask, here);
        }
    }
    if (warp->active == 0)
        warp_reschedule(warp);
}
