/* atom and red: one lane after another, and against the other workers by the host's atomics. */
#include "access.h"
#include "arms.h"
#include "narrow.h"

#include <math.h>
#include <string.h>

enum atomic {
    ATOMIC_ADD,
    ATOMIC_MIN,
    ATOMIC_MAX,
    ATOMIC_AND,
    ATOMIC_OR,
    ATOMIC_XOR,
    ATOMIC_EXCH,
    ATOMIC_CAS,
    ATOMIC_INC,
    ATOMIC_DEC
};

static const char *const atomic_names[] = {"add",  "min", "max", "and", "or", "xor",
                                           "exch", "cas", "inc", "dec", NULL};

static uint64_t half_pair(enum type half, unsigned kind, uint64_t old, uint64_t value)
{
    uint64_t result = 0;

    for (int shift = 0; shift < 32; shift += 16) {
        long double a = bits_value(half, old >> shift & 0xFFFF);
        long double b = bits_value(half, value >> shift & 0xFFFF);
        long double r = kind == ATOMIC_ADD ? a + b : kind == ATOMIC_MIN ? fminl(a, b) : fmaxl(a, b);
        r = round_format(r, format_of(half), ROUND_NEAREST, false);
        result |= value_bits(half, r) << shift;
    }
    return result;
}

static uint64_t float_result(enum type type, unsigned kind, uint64_t old, uint64_t value)
{
    if (type == TYPE_F16X2 || type == TYPE_BF16X2)
        return half_pair(type == TYPE_F16X2 ? TYPE_F16 : TYPE_BF16, kind, old, value);
    if (type == TYPE_F32 && kind == ATOMIC_ADD)
        return value_bits(type, (float)bits_value(type, old) + (float)bits_value(type, value));
    if (type == TYPE_F64 && kind == ATOMIC_ADD)
        return value_bits(type, (double)bits_value(type, old) + (double)bits_value(type, value));
    long double a = bits_value(type, old);
    long double b = bits_value(type, value);
    long double r = kind == ATOMIC_ADD ? a + b : kind == ATOMIC_MIN ? fminl(a, b) : fmaxl(a, b);
    return value_bits(type, round_format(r, format_of(type), ROUND_NEAREST, false));
}

static int64_t extended(uint64_t bits, unsigned bytes)
{
    unsigned unused = 64 - 8 * bytes;

    return (int64_t)(bits << unused) >> unused;
}

/* What the memory holds after the operation. */
static uint64_t result_of(const struct op *op, enum type type, uint64_t old, uint64_t value,
                          uint64_t third)
{
    bool less = op->is_signed ? extended(value, op->bytes) < extended(old, op->bytes) : value < old;

    switch (op->kind) {
    case ATOMIC_ADD:
        return old + value;
    case ATOMIC_MIN:
        return less ? value : old;
    case ATOMIC_MAX:
        return less ? old : value;
    case ATOMIC_AND:
        return old & value;
    case ATOMIC_OR:
        return old | value;
    case ATOMIC_XOR:
        return old ^ value;
    case ATOMIC_EXCH:
        return value;
    case ATOMIC_CAS:
        return old == value ? third : old;
    case ATOMIC_INC:
        return old >= value ? 0 : old + 1;
    default:
        return old == 0 || old > value ? value : old - 1;
    }
    (void)type;
}

static uint64_t next_value(const struct op *op, enum type type, uint64_t old, uint64_t value,
                           uint64_t third)
{
    bool arithmetic = op->kind <= ATOMIC_MAX;

    return type_is_float(type) && arithmetic ? float_result(type, op->kind, old, value)
                                             : result_of(op, type, old, value, third);
}

/* Changes one place by compare and exchange until nobody came between. */
#define CHANGE(T)                                                                                  \
    do {                                                                                           \
        T *at = (T *)(void *)memory;                                                               \
        T old = __atomic_load_n(at, __ATOMIC_RELAXED);                                             \
        T next;                                                                                    \
        do                                                                                         \
            next = (T)next_value(op, type, old, value, third);                                     \
        while (!__atomic_compare_exchange_n(at, &old, next, false, __ATOMIC_RELAXED,               \
                                            __ATOMIC_RELAXED));                                    \
        return old;                                                                                \
    } while (0)

static uint64_t change(const struct op *op, enum type type, uint8_t *memory, uint64_t value,
                       uint64_t third)
{
    if (op->bytes == 2)
        CHANGE(uint16_t);
    if (op->bytes == 4)
        CHANGE(uint32_t);
    CHANGE(uint64_t);
}

struct atomic_form {
    enum type type;
    bool returns;
    struct operand results[4];
    struct operand values[4];
    struct operand third; /* of cas */
};

static uint64_t lane_bits(const struct warp *warp, struct operand operand, unsigned bytes, int lane)
{
    uint64_t value = 0;

    memcpy(&value, (char *)reg(warp, operand) + (size_t)lane * bytes, bytes);
    return value;
}

static void one_element(struct warp *warp, const struct op *op, uint32_t mask,
                        struct access *access, unsigned i)
{
    const struct atomic_form *form = op->extra;
    unsigned skip = i * op->bytes;
    uint32_t there = access_written(access, mask, skip, op->bytes);
    uint32_t good = there & written(warp, form->values[i]);
    bool cas = op->kind == ATOMIC_CAS;

    if (cas)
        good &= written(warp, form->third);
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint64_t old = change(op, form->type, access->at[lane] + skip,
                              lane_bits(warp, form->values[i], op->bytes, lane),
                              cas ? lane_bits(warp, form->third, op->bytes, lane) : 0);
        if (form->returns)
            memcpy((char *)reg(warp, form->results[i]) + (size_t)lane * op->bytes, &old, op->bytes);
    }
    if (form->returns)
        mark_result(warp, form->results[i], mask, there);
    access_mark(access, mask, skip, op->bytes,
                op->kind == ATOMIC_EXCH ? written(warp, form->values[i]) : good);
}

static void op_atomic(struct warp *warp, const struct op *op, uint32_t mask)
{
    struct access access;

    if (!access_find(warp, op, mask, (unsigned)op->bytes * op->count, RACE_ATOMIC, &access))
        return;
    for (unsigned i = 0; i < op->count; i++)
        one_element(warp, op, mask, &access, i);
}

static void orders_take(struct statement *statement)
{
    static const char *const names[] = {"relaxed", "acquire", "release", "acq_rel", "cta",
                                        "cluster", "gpu",     "sys",     "noftz",   NULL};

    while (modifier_of(statement, names) >= 0)
        ;
}

/* Which operations a type has. */
static bool allowed(enum type type, int kind)
{
    if (!type_is_float(type))
        return true;
    return kind == ATOMIC_ADD ||
           ((kind == ATOMIC_MIN || kind == ATOMIC_MAX) && type != TYPE_F32 && type != TYPE_F64);
}

static void decode_atom(struct builder *builder, struct statement *statement)
{
    static const char *const vectors[] = {"v2", "v4", NULL};
    bool returns = strcmp(statement->name, "atom") == 0;
    unsigned at = returns ? 1 : 0;

    orders_take(statement);
    enum space space = space_of(builder, statement);
    int kind = modifier_of(statement, atomic_names);
    int vector = modifier_of(statement, vectors);
    enum type type = type_needed(builder, statement);
    unsigned bytes = type_bytes(type);
    unsigned count = vector < 0 ? 1 : 2u << vector;
    if (kind < 0 || bytes < 2 || bytes > 8 || !allowed(type, kind))
        return;
    need_arguments(builder, statement, at + 2, at + 2 + (kind == ATOMIC_CAS));
    struct atomic_form *form = own(builder, sizeof(*form));
    form->type = type;
    form->returns = returns;
    const struct argument *value = &statement->arguments[at + 1];
    if (count > 1 && (value->count != count || (returns && statement->arguments[0].count != count)))
        refuse(builder, "%s of %u elements", statement->name, count);
    for (unsigned i = 0; i < count; i++) {
        form->values[i] = source(builder, count > 1 ? &value->items[i] : value, bytes);
        if (returns)
            form->results[i] = destination(
                builder, count > 1 ? &statement->arguments[0].items[i] : &statement->arguments[0],
                bytes);
    }
    if (kind == ATOMIC_CAS)
        form->third = source(builder, &statement->arguments[at + 2], bytes);
    struct op *op = emit(builder, statement, op_atomic);
    address_of(builder, op, &statement->arguments[at], space);
    op = &builder->kernel->ops[builder->kernel->op_count - 1];
    op->bytes = (uint8_t)bytes;
    op->count = (uint8_t)count;
    op->kind = (uint8_t)kind;
    op->is_signed = type_is_signed(type);
    op->extra = form;
}

const struct decoder decode_atomic[] = {
    {"atom", decode_atom},
    {"red", decode_atom},
    {NULL, NULL},
};
