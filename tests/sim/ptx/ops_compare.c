/* setp and set: comparisons, alone or combined with another predicate. */
#include "arms.h"
#include "narrow.h"

#include <math.h>
#include <string.h>

/* The u forms hold for NaN too. */
enum compare { EQ, NE, LT, LE, GT, GE, EQU, NEU, LTU, LEU, GTU, GEU, NUM, UNNUM };

static const char *const compare_names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ", "neu",
                                            "ltu", "leu", "gtu", "geu", "num", "nan", NULL};
static const char *const unsigned_names[] = {"lo", "ls", "hi", "hs", NULL};

typedef uint32_t compare_fn(const void *a, const void *b, const struct op *op);

#define GATHER(expression)                                                                         \
    do {                                                                                           \
        for (int lane = 0; lane < LANES; lane++)                                                   \
            result |= (uint32_t)(expression) << lane;                                              \
    } while (0)

#define COMPARE_INTEGER(name, T)                                                                   \
    static uint32_t name(const void *left, const void *right, const struct op *op)                 \
    {                                                                                              \
        const T *a = left;                                                                         \
        const T *b = right;                                                                        \
        uint32_t result = 0;                                                                       \
        switch (op->kind) {                                                                        \
        case EQ:                                                                                   \
            GATHER(a[lane] == b[lane]);                                                            \
            break;                                                                                 \
        case NE:                                                                                   \
            GATHER(a[lane] != b[lane]);                                                            \
            break;                                                                                 \
        case LT:                                                                                   \
            GATHER(a[lane] < b[lane]);                                                             \
            break;                                                                                 \
        case LE:                                                                                   \
            GATHER(a[lane] <= b[lane]);                                                            \
            break;                                                                                 \
        case GT:                                                                                   \
            GATHER(a[lane] > b[lane]);                                                             \
            break;                                                                                 \
        default:                                                                                   \
            GATHER(a[lane] >= b[lane]);                                                            \
            break;                                                                                 \
        }                                                                                          \
        return result;                                                                             \
    }
COMPARE_INTEGER(compare_u16, uint16_t)
COMPARE_INTEGER(compare_s16, int16_t)
COMPARE_INTEGER(compare_u32, uint32_t)
COMPARE_INTEGER(compare_s32, int32_t)
COMPARE_INTEGER(compare_u64, uint64_t)
COMPARE_INTEGER(compare_s64, int64_t)

#define UNORDERED(a, b) ((a) != (a) || (b) != (b))
#define COMPARE_FLOAT(name, T, S, widen)                                                           \
    static uint32_t name(const void *left, const void *right, const struct op *op)                 \
    {                                                                                              \
        S a[LANES];                                                                                \
        S b[LANES];                                                                                \
        uint32_t result = 0;                                                                       \
        uint32_t unordered = 0;                                                                    \
        for (int lane = 0; lane < LANES; lane++) {                                                 \
            a[lane] = widen(((const T *)left)[lane]);                                              \
            b[lane] = widen(((const T *)right)[lane]);                                             \
            unordered |= (uint32_t)UNORDERED(a[lane], b[lane]) << lane;                            \
        }                                                                                          \
        switch (op->kind < EQU ? op->kind : op->kind - EQU) {                                      \
        case EQ:                                                                                   \
            GATHER(a[lane] == b[lane]);                                                            \
            break;                                                                                 \
        case NE:                                                                                   \
            GATHER(a[lane]<b[lane] || a[lane]> b[lane]);                                           \
            break;                                                                                 \
        case LT:                                                                                   \
            GATHER(a[lane] < b[lane]);                                                             \
            break;                                                                                 \
        case LE:                                                                                   \
            GATHER(a[lane] <= b[lane]);                                                            \
            break;                                                                                 \
        case GT:                                                                                   \
            GATHER(a[lane] > b[lane]);                                                             \
            break;                                                                                 \
        case GE:                                                                                   \
            GATHER(a[lane] >= b[lane]);                                                            \
            break;                                                                                 \
        default:                                                                                   \
            return op->kind == NUM ? ~unordered : unordered;                                       \
        }                                                                                          \
        return op->kind >= EQU ? result | unordered : result;                                      \
    }
#define AS_IT_IS(value) (value)
COMPARE_FLOAT(compare_f32, float, float, AS_IT_IS)
COMPARE_FLOAT(compare_ftz, float, float, flushed)
COMPARE_FLOAT(compare_f64, double, double, AS_IT_IS)
COMPARE_FLOAT(compare_f16, uint16_t, float, half_float)
COMPARE_FLOAT(compare_bf16, uint16_t, float, brain_float)

static compare_fn *compare_of(enum type type, bool ftz)
{
    switch (type) {
    case TYPE_U16:
    case TYPE_B16:
        return compare_u16;
    case TYPE_S16:
        return compare_s16;
    case TYPE_U32:
    case TYPE_B32:
        return compare_u32;
    case TYPE_S32:
        return compare_s32;
    case TYPE_U64:
    case TYPE_B64:
        return compare_u64;
    case TYPE_S64:
        return compare_s64;
    case TYPE_F16:
        return compare_f16;
    case TYPE_BF16:
        return compare_bf16;
    case TYPE_F32:
        return ftz ? compare_ftz : compare_f32;
    case TYPE_F64:
        return compare_f64;
    default:
        return NULL;
    }
}

struct comparison {
    compare_fn *fn;
    char combine; /* 'a', 'o', 'x' with the predicate c; 0: none */
    bool has_second;
    struct operand second;
};

/* op->count: the type of set's result, for set alone. */
static uint32_t compared(struct warp *warp, const struct op *op, uint32_t *out_good,
                         uint32_t *out_other)
{
    const struct comparison *comparison = op->extra;
    uint32_t value = comparison->fn(reg(warp, op->a), reg(warp, op->b), op);
    uint32_t other = ~value;

    *out_good = written(warp, op->a) & written(warp, op->b);
    if (comparison->combine != 0) {
        uint32_t c = predicate(warp, op->c) ^ (op->flip ? UINT32_MAX : 0);
        *out_good &= written(warp, op->c);
        switch (comparison->combine) {
        case 'a':
            value &= c;
            other &= c;
            break;
        case 'o':
            value |= c;
            other |= c;
            break;
        default:
            value ^= c;
            other ^= c;
            break;
        }
    }
    *out_other = other;
    return value;
}

static void op_setp(struct warp *warp, const struct op *op, uint32_t mask)
{
    const struct comparison *comparison = op->extra;
    uint32_t good;
    uint32_t other;
    uint32_t value = compared(warp, op, &good, &other);

    predicate_set(warp, op->d, mask, value);
    mark_result(warp, op->d, mask, good);
    if (!comparison->has_second)
        return;
    predicate_set(warp, comparison->second, mask, other);
    mark_result(warp, comparison->second, mask, good);
}

static void op_set(struct warp *warp, const struct op *op, uint32_t mask)
{
    uint32_t good;
    uint32_t other;
    uint32_t value = compared(warp, op, &good, &other);
    uint64_t yes = (uint64_t)op->offset;

    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint64_t bits = (value >> lane & 1) != 0 ? yes : 0;
        memcpy((char *)reg(warp, op->d) + (size_t)lane * op->store, &bits, op->store);
    }
    mark_result(warp, op->d, mask, good);
}

static int compare_kind(struct statement *statement)
{
    static const int same[] = {LT, LE, GT, GE};
    int kind = modifier_of(statement, compare_names);

    if (kind >= 0)
        return kind;
    kind = modifier_of(statement, unsigned_names);
    return kind < 0 ? -1 : same[kind];
}

/* What set writes for true: all ones, or 1.0. */
static uint64_t set_value(struct builder *builder, enum type type)
{
    switch (type) {
    case TYPE_U32:
    case TYPE_S32:
    case TYPE_B32:
        return UINT32_MAX;
    case TYPE_U16:
    case TYPE_S16:
        return UINT16_MAX;
    case TYPE_F32:
    case TYPE_F16:
    case TYPE_BF16:
        return value_bits(type, 1);
    default:
        refuse(builder, "set with a result of type .%s", type_name(type));
    }
}

static void decode_compare_op(struct builder *builder, struct statement *statement)
{
    static const char *const combines[] = {"and", "or", "xor", NULL};
    bool sets = strcmp(statement->name, "set") == 0;
    int kind = compare_kind(statement);
    int combine = modifier_of(statement, combines);
    bool ftz = modifier(statement, "ftz");
    enum type result = sets ? type_needed(builder, statement) : TYPE_PRED;
    enum type type = type_needed(builder, statement);
    compare_fn *fn = compare_of(type, ftz);
    unsigned count = combine >= 0 ? 4 : 3;
    bool flip = false;

    if (kind < 0 || fn == NULL || (kind > GE && !type_is_float(type)))
        return;
    need_arguments(builder, statement, count, count);
    struct comparison *comparison = own(builder, sizeof(*comparison));
    comparison->fn = fn;
    comparison->combine = combine < 0 ? 0 : "aox"[combine];
    struct operand a = source(builder, &statement->arguments[1], type_bytes(type));
    struct operand b = source(builder, &statement->arguments[2], type_bytes(type));
    struct operand c = {0};
    if (combine >= 0)
        c = source_predicate(builder, &statement->arguments[3], &flip);
    const struct argument *to = &statement->arguments[0];
    if (!sets && to->second != NULL) {
        struct argument second = {.kind = ARGUMENT_REGISTER, .variable = to->second};
        comparison->has_second = true;
        comparison->second = destination_predicate(builder, &second);
    }
    struct operand d =
        sets ? destination(builder, to, type_bytes(result)) : destination_predicate(builder, to);
    struct op *op = emit(builder, statement, sets ? op_set : op_setp);
    op->d = d;
    op->a = a;
    op->b = b;
    op->c = c;
    op->flip = flip;
    op->kind = (uint8_t)kind;
    op->extra = comparison;
    op->store = (uint8_t)type_bytes(result);
    op->offset = sets ? (int64_t)set_value(builder, result) : 0;
}

/* slct d, a, b, c: a where c >= 0. */
static void op_slct(struct warp *warp, const struct op *op, uint32_t mask)
{
    const int32_t *c = reg(warp, op->c);

    for (uint32_t left = mask; left != 0; left &= left - 1) {
        size_t lane = (size_t)__builtin_ctz(left);
        float number;
        memcpy(&number, &c[lane], sizeof(number));
        bool first = op->second ? number >= 0 : c[lane] >= 0;
        memcpy((char *)reg(warp, op->d) + lane * op->store,
               (char *)reg(warp, first ? op->a : op->b) + lane * op->store, op->store);
    }
    mark_result(warp, op->d, mask,
                written(warp, op->a) & written(warp, op->b) & written(warp, op->c));
}

static void decode_slct(struct builder *builder, struct statement *statement)
{
    modifier(statement, "ftz");
    unsigned bytes = type_bytes(type_needed(builder, statement));
    enum type type = type_needed(builder, statement);

    if (type != TYPE_S32 && type != TYPE_F32)
        return;
    struct op *op = emit_operands(builder, statement, op_slct, bytes, bytes, bytes, 4);
    op->store = (uint8_t)bytes;
    op->second = type == TYPE_F32;
}

const struct decoder decode_compare[] = {
    {"setp", decode_compare_op},
    {"set", decode_compare_op},
    {"slct", decode_slct},
    {NULL, NULL},
};
