/* What lanes of a warp do together: shuffles, votes, matches, reductions. */
#include "arms.h"

#include <string.h>

enum shuffle { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BFLY, SHUFFLE_IDX };

/* The lane that `lane` reads from; false when it lies outside of its segment. */
static bool shuffle_source(unsigned kind, uint32_t lane, uint32_t b, uint32_t c, uint32_t *out)
{
    uint32_t clamp = c & 31;
    uint32_t segment = c >> 8 & 31;
    uint32_t top = (lane & segment) | (clamp & ~segment);
    uint32_t bottom = lane & segment;
    int32_t from;
    bool inside;

    b &= 31;
    switch (kind) {
    case SHUFFLE_UP:
        from = (int32_t)lane - (int32_t)b;
        inside = from >= (int32_t)top;
        break;
    case SHUFFLE_DOWN:
        from = (int32_t)(lane + b);
        inside = from <= (int32_t)top;
        break;
    case SHUFFLE_BFLY:
        from = (int32_t)(lane ^ b);
        inside = from <= (int32_t)top;
        break;
    default:
        from = (int32_t)(bottom | (b & ~segment));
        inside = from <= (int32_t)top;
        break;
    }
    *out = inside ? (uint32_t)from : lane;
    return inside;
}

/* op->list: {mask of lanes, predicate of the second result}. */
static void shuffled(struct warp *warp, const struct op *op, uint32_t mask)
{
    const uint32_t *a = reg(warp, op->a);
    const uint32_t *b = reg(warp, op->b);
    const uint32_t *c = reg(warp, op->c);
    uint32_t values[LANES];
    uint32_t good = 0;
    uint32_t inside = 0;
    uint32_t defined = written(warp, op->a) & mask;
    uint32_t how = written(warp, op->b) & written(warp, op->c);

    for (uint32_t left = mask; left != 0; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        uint32_t from;
        inside |= (uint32_t)shuffle_source(op->kind, lane, b[lane], c[lane], &from) << lane;
        values[lane] = a[from];
        good |= (defined >> from & 1) << lane;
    }
    uint32_t *d = reg(warp, op->d);
    for (uint32_t left = mask; left != 0; left &= left - 1)
        d[__builtin_ctz(left)] = values[__builtin_ctz(left)];
    mark_result(warp, op->d, mask, good & how);
    if (op->second) {
        predicate_set(warp, op->list[1], mask, inside);
        mark_result(warp, op->list[1], mask, how);
    }
}

static void op_shuffle(struct warp *warp, const struct op *op, uint32_t mask)
{
    warp_together(warp, op, mask, op->list[0], shuffled);
}

static void decode_shfl(struct builder *builder, struct statement *statement)
{
    static const char *const names[] = {"up", "down", "bfly", "idx", NULL};
    int kind = modifier_of(statement, names);
    struct operand list[2] = {{0}};

    if (!modifier(statement, "sync") || kind < 0)
        return;
    type_needed(builder, statement);
    need_arguments(builder, statement, 5, 5);
    list[0] = source(builder, &statement->arguments[4], 4);
    const struct argument *to = &statement->arguments[0];
    bool second = to->second != NULL;
    if (second) {
        struct argument predicate = {.kind = ARGUMENT_REGISTER, .variable = to->second};
        list[1] = destination_predicate(builder, &predicate);
    }
    statement->argument_count = 4;
    struct op *op = emit_operands(builder, statement, op_shuffle, 4, 4, 4, 4);
    op->list = own_list(builder, list, 2);
    op->kind = (uint8_t)kind;
    op->second = second;
}

enum vote { VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT };

/* op->b: the mask of lanes. */
static void voted(struct warp *warp, const struct op *op, uint32_t mask)
{
    uint32_t yes = (predicate(warp, op->a) ^ (op->flip ? UINT32_MAX : 0)) & mask;
    bool all = yes == mask;
    uint32_t good = (written(warp, op->a) & mask) == mask ? UINT32_MAX : 0;

    if (op->kind == VOTE_BALLOT) {
        uint32_t *d = reg(warp, op->d);
        EACH_LANE(mask, d[lane] = yes);
    } else {
        bool result = op->kind == VOTE_ALL   ? all
                      : op->kind == VOTE_ANY ? yes != 0
                                             : all || yes == 0;
        predicate_set(warp, op->d, mask, result ? UINT32_MAX : 0);
    }
    mark_result(warp, op->d, mask, good);
}

static void op_vote(struct warp *warp, const struct op *op, uint32_t mask)
{
    warp_together(warp, op, mask, op->b, voted);
}

static void decode_vote(struct builder *builder, struct statement *statement)
{
    static const char *const names[] = {"all", "any", "uni", "ballot", NULL};
    int kind = modifier_of(statement, names);
    bool flip;

    if (!modifier(statement, "sync") || kind < 0)
        return;
    type_needed(builder, statement);
    need_arguments(builder, statement, 3, 3);
    struct operand a = source_predicate(builder, &statement->arguments[1], &flip);
    struct operand b = source(builder, &statement->arguments[2], 4);
    struct operand d = kind == VOTE_BALLOT
                           ? destination(builder, &statement->arguments[0], 4)
                           : destination_predicate(builder, &statement->arguments[0]);
    struct op *op = emit(builder, statement, op_vote);
    op->d = d;
    op->a = a;
    op->b = b;
    op->kind = (uint8_t)kind;
    op->flip = flip;
}

static uint64_t lane_bits(const struct warp *warp, struct operand operand, unsigned bytes, int lane)
{
    uint64_t value = 0;

    memcpy(&value, (char *)reg(warp, operand) + (size_t)lane * bytes, bytes);
    return value;
}

/* match.any: the lanes with my value; match.all: all lanes, when they have the same. */
static void matched(struct warp *warp, const struct op *op, uint32_t mask)
{
    uint32_t *d = reg(warp, op->d);
    uint32_t all = 0;
    uint32_t good = (written(warp, op->a) & mask) == mask ? UINT32_MAX : 0;

    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint64_t mine = lane_bits(warp, op->a, op->bytes, lane);
        uint32_t same = 0;
        for (uint32_t other = mask; other != 0; other &= other - 1)
            if (lane_bits(warp, op->a, op->bytes, __builtin_ctz(other)) == mine)
                same |= other & -other;
        if (op->kind != 0)
            same = same == mask ? mask : 0;
        d[lane] = same;
        all |= same == mask ? (uint32_t)1 << lane : 0;
    }
    mark_result(warp, op->d, mask, good);
    if (op->second) {
        predicate_set(warp, op->c, mask, all);
        mark_result(warp, op->c, mask, good);
    }
}

static void op_match(struct warp *warp, const struct op *op, uint32_t mask)
{
    warp_together(warp, op, mask, op->b, matched);
}

static void decode_match(struct builder *builder, struct statement *statement)
{
    bool all = modifier(statement, "all");

    if ((!all && !modifier(statement, "any")) || !modifier(statement, "sync"))
        return;
    unsigned bytes = type_bytes(type_needed(builder, statement));
    const struct argument *to = &statement->arguments[0];
    struct operand second = {0};
    if (to->second != NULL) {
        struct argument predicate = {.kind = ARGUMENT_REGISTER, .variable = to->second};
        second = destination_predicate(builder, &predicate);
    }
    struct op *op = emit_operands(builder, statement, op_match, 4, bytes, 4, 0);
    op->c = second;
    op->second = to->second != NULL;
    op->bytes = (uint8_t)bytes;
    op->kind = all;
}

enum redux { REDUX_ADD, REDUX_MIN, REDUX_MAX, REDUX_AND, REDUX_OR, REDUX_XOR };

static void reduced(struct warp *warp, const struct op *op, uint32_t mask)
{
    const uint32_t *a = reg(warp, op->a);
    uint32_t *d = reg(warp, op->d);
    uint32_t result = a[__builtin_ctz(mask)];

    for (uint32_t left = mask & (mask - 1); left != 0; left &= left - 1) {
        uint32_t b = a[__builtin_ctz(left)];
        bool less = op->is_signed ? (int32_t)b < (int32_t)result : b < result;
        switch (op->kind) {
        case REDUX_ADD:
            result += b;
            break;
        case REDUX_MIN:
            result = less ? b : result;
            break;
        case REDUX_MAX:
            result = less ? result : b;
            break;
        case REDUX_AND:
            result &= b;
            break;
        case REDUX_OR:
            result |= b;
            break;
        default:
            result ^= b;
            break;
        }
    }
    bool good = (written(warp, op->a) & mask) == mask;
    EACH_LANE(mask, d[lane] = result);
    mark_result(warp, op->d, mask, good ? UINT32_MAX : 0);
}

static void op_redux(struct warp *warp, const struct op *op, uint32_t mask)
{
    warp_together(warp, op, mask, op->b, reduced);
}

static void decode_redux(struct builder *builder, struct statement *statement)
{
    static const char *const names[] = {"add", "min", "max", "and", "or", "xor", NULL};
    int kind = modifier_of(statement, names);
    bool sync = modifier(statement, "sync");
    enum type type = type_next(statement);

    if (kind < 0 || !sync || type_bytes(type) != 4 || type_is_float(type))
        return;
    struct op *op = emit_operands(builder, statement, op_redux, 4, 4, 4, 0);
    op->kind = (uint8_t)kind;
    op->is_signed = type_is_signed(type);
}

static void op_activemask(struct warp *warp, const struct op *op, uint32_t mask)
{
    uint32_t *d = reg(warp, op->d);

    EACH_LANE(mask, d[lane] = mask);
    mark_result(warp, op->d, mask, mask);
}

static void decode_activemask(struct builder *builder, struct statement *statement)
{
    type_needed(builder, statement);
    need_arguments(builder, statement, 1, 1);
    struct operand d = destination(builder, &statement->arguments[0], 4);
    emit(builder, statement, op_activemask)->d = d;
}

/* elect.sync d|p, mask: the lowest lane is the leader. */
static void elected(struct warp *warp, const struct op *op, uint32_t mask)
{
    uint32_t *d = reg(warp, op->d);
    uint32_t leader = (uint32_t)__builtin_ctz(mask);

    EACH_LANE(mask, d[lane] = leader);
    mark_result(warp, op->d, mask, mask);
    predicate_set(warp, op->c, mask, mask & -mask);
    mark_result(warp, op->c, mask, mask);
}

static void op_elect(struct warp *warp, const struct op *op, uint32_t mask)
{
    warp_together(warp, op, mask, op->a, elected);
}

static void decode_elect(struct builder *builder, struct statement *statement)
{
    const struct argument *to = &statement->arguments[0];

    if (!modifier(statement, "sync") || to->second == NULL)
        return;
    struct argument predicate = {.kind = ARGUMENT_REGISTER, .variable = to->second};
    struct operand second = destination_predicate(builder, &predicate);
    emit_operands(builder, statement, op_elect, 4, 4, 0, 0)->c = second;
}

const struct decoder decode_warp[] = {
    {"shfl", decode_shfl},
    {"vote", decode_vote},
    {"match", decode_match},
    {"redux", decode_redux},
    {"elect", decode_elect},
    {"activemask", decode_activemask},
    {NULL, NULL},
};
