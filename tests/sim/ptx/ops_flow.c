/* Branches, ends and barriers of the block. */
#include "build.h"

/* Taken by the lanes of the mask; the others stand at the next instruction. */
static void op_branch(struct warp *warp, const struct op *op, uint32_t mask)
{
    uint32_t rest = warp->active & ~mask;

    if (rest == 0) {
        warp->pc = op->target;
    } else if (op->target > warp->pc) {
        warp_park(warp, mask, op->target);
    } else {
        warp_park(warp, rest, warp->pc);
        warp->pc = op->target;
    }
    if (warp->pc > warp->join)
        warp_reschedule(warp);
}

static void decode_branch(struct builder *builder, struct statement *statement)
{
    modifier(statement, "uni");
    need_arguments(builder, statement, 1, 1);
    if (statement->arguments[0].kind != ARGUMENT_LABEL)
        refuse(builder, "a branch to something that is no label");
    emit(builder, statement, op_branch);
    branch_to(builder, builder->kernel->op_count - 1, statement->arguments[0].text);
}

static void op_exit(struct warp *warp, const struct op *op, uint32_t mask)
{
    (void)op;
    warp_exit(warp, mask);
}

/* From a called function, which is part of its caller's code, ret leads to its end. */
static void decode_return(struct builder *builder, struct statement *statement)
{
    modifier(statement, "uni");
    if (builder->depth == 0) {
        emit(builder, statement, op_exit);
        return;
    }
    emit(builder, statement, op_branch);
    branch_to(builder, builder->kernel->op_count - 1, "end of function");
}

static void decode_exit(struct builder *builder, struct statement *statement)
{
    emit(builder, statement, op_exit);
}

static void op_trap(struct warp *warp, const struct op *op, uint32_t mask)
{
    fault(warp, op, mask, PTX_ILLEGAL_INSTRUCTION, "trap");
}

static void decode_trap(struct builder *builder, struct statement *statement)
{
    emit(builder, statement, op_trap);
}

/* A count of threads must be a multiple of 32 and the same in all lanes. */
static bool barrier_operands(struct warp *warp, const struct op *op, uint32_t mask,
                             unsigned *out_number, unsigned *out_expected)
{
    int lane = __builtin_ctz(mask);
    const uint32_t *numbers = reg(warp, op->a);
    const uint32_t *counts = reg(warp, op->b);

    if (undefined(warp, op, mask, op->a, "the number of a barrier") ||
        undefined(warp, op, mask, op->b, "the count of a barrier"))
        return false;
    *out_number = numbers[lane];
    *out_expected = counts[lane];
    if (*out_number >= BARRIERS || *out_expected % LANES != 0) {
        fault(warp, op, mask, PTX_ILLEGAL_INSTRUCTION,
              "barrier %u of %u threads: there are %d barriers, and whole warps meet at them",
              *out_number, *out_expected, BARRIERS);
        return false;
    }
    return true;
}

static void op_barrier(struct warp *warp, const struct op *op, uint32_t mask)
{
    unsigned number;
    unsigned expected;

    if (barrier_operands(warp, op, mask, &number, &expected))
        barrier_wait(warp, op, mask, number, expected, op->second);
}

/* bar.red: `kind` 1 counts, 2 and 3 say whether all or any predicates are true. */
static void op_barrier_reduce(struct warp *warp, const struct op *op, uint32_t mask)
{
    unsigned number;
    unsigned expected;
    uint32_t value = predicate(warp, op->c);

    if (undefined(warp, op, mask, op->c, "a condition") ||
        !barrier_operands(warp, op, mask, &number, &expected))
        return;
    struct barrier *barrier = &warp->worker->barriers[number];
    if (barrier->arrived == 0)
        barrier->set = 0;
    uint32_t set = barrier->set + (uint32_t)__builtin_popcount(mask & (op->flip ? ~value : value));
    barrier_wait(warp, op, mask, number, expected, false);
    barrier->set = set;
}

static void decode_reduce(struct builder *builder, struct statement *statement)
{
    static const char *const names[] = {"popc", "and", "or", NULL};
    int kind = modifier_of(statement, names);
    enum type type = type_needed(builder, statement);
    bool flip;

    need_arguments(builder, statement, 3, 4);
    bool counts = statement->argument_count == 4;
    struct operand d = kind == 0 ? destination(builder, &statement->arguments[0], 4)
                                 : destination_predicate(builder, &statement->arguments[0]);
    struct operand a = source(builder, &statement->arguments[1], 4);
    struct operand b =
        counts ? source(builder, &statement->arguments[2], 4) : constant(builder, 0, 4);
    struct operand c = source_predicate(builder, &statement->arguments[counts ? 3 : 2], &flip);
    if (kind < 0 || (kind == 0) != (type == TYPE_U32))
        refuse(builder, "bar.red of this kind");
    struct op *op = emit(builder, statement, op_barrier_reduce);
    op->d = d;
    op->a = a;
    op->b = b;
    op->c = c;
    op->flip = flip;
    op->kind = (uint8_t)(kind + 1);
}

static void op_warp_synced(struct warp *warp, const struct op *op, uint32_t mask)
{
    (void)op, (void)mask;
    warp->warp_epoch++;
}

static void op_warp_sync(struct warp *warp, const struct op *op, uint32_t mask)
{
    warp_together(warp, op, mask, op->a, op_warp_synced);
}

static void decode_barrier(struct builder *builder, struct statement *statement)
{
    modifier(statement, "cta");
    if (modifier(statement, "warp")) {
        need_arguments(builder, statement, 1, 1);
        if (!modifier(statement, "sync"))
            refuse(builder, "bar.warp without .sync");
        struct operand members = source(builder, &statement->arguments[0], 4);
        emit(builder, statement, op_warp_sync)->a = members;
        return;
    }
    modifier(statement, "aligned");
    if (modifier(statement, "red")) {
        decode_reduce(builder, statement);
        return;
    }
    bool arrive = modifier(statement, "arrive");
    if (!arrive && !modifier(statement, "sync"))
        return;
    need_arguments(builder, statement, 1, 2);
    struct operand a = source(builder, &statement->arguments[0], 4);
    struct operand b = statement->argument_count == 2 ? source(builder, &statement->arguments[1], 4)
                                                      : constant(builder, 0, 4);
    struct op *op = emit(builder, statement, op_barrier);
    op->a = a;
    op->b = b;
    op->second = arrive;
}

static void op_nothing(struct warp *warp, const struct op *op, uint32_t mask)
{
    (void)warp, (void)op, (void)mask;
}

/* Fences order what one thread after another sees; here every thread sees everything at once. */
static void decode_fence(struct builder *builder, struct statement *statement)
{
    static const char *const names[] = {"sc", "acq_rel", "acquire", "release", "cta",
                                        "gl", "gpu",     "sys",     "cluster", NULL};

    while (modifier_of(statement, names) >= 0)
        ;
    emit(builder, statement, op_nothing);
}

static void decode_nanosleep(struct builder *builder, struct statement *statement)
{
    type_needed(builder, statement);
    emit(builder, statement, op_nothing);
}

static void decode_dependency(struct builder *builder, struct statement *statement)
{
    if (modifier(statement, "wait") || modifier(statement, "launch_dependents"))
        emit(builder, statement, op_nothing);
}

const struct decoder decode_flow[] = {
    {"bra", decode_branch},
    {"ret", decode_return},
    {"exit", decode_exit},
    {"trap", decode_trap},
    {"bar", decode_barrier},
    {"barrier", decode_barrier},
    {"membar", decode_fence},
    {"fence", decode_fence},
    {"nanosleep", decode_nanosleep},
    {"griddepcontrol", decode_dependency},
    {NULL, NULL},
};
