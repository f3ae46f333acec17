/* ld and st, in all widths and as vectors; cvta, isspacep and hints. */
#include "access.h"
#include "build.h"

#include <string.h>

typedef void move_fn(void *lanes, struct access *access, unsigned skip, uint32_t mask);

/* Threads of a kernel may read what others write: that is the kernel's race, not the simulator's.
 */
#define UNORDERED __attribute__((no_sanitize("thread")))

/* Memory to registers: M in memory, R a lane. */
#define LOADER(name, M, R)                                                                         \
    static UNORDERED void name(void *lanes, struct access *access, unsigned skip, uint32_t mask)   \
    {                                                                                              \
        R *d = lanes;                                                                              \
        if (access->flat != NULL && access->bytes == sizeof(M)) {                                  \
            const M *s = (const void *)access->flat;                                               \
            for (int lane = 0; lane < LANES; lane++)                                               \
                d[lane] = (R)s[lane];                                                              \
            return;                                                                                \
        }                                                                                          \
        if (access->flat != NULL) {                                                                \
            const uint8_t *s = access->flat + skip;                                                \
            for (unsigned lane = 0; lane < LANES; lane++) {                                        \
                M value;                                                                           \
                memcpy(&value, s + lane * access->bytes, sizeof(value));                           \
                d[lane] = (R)value;                                                                \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        if (access->uniform) {                                                                     \
            M value;                                                                               \
            memcpy(&value, access->at[0] + skip, sizeof(value));                                   \
            for (int lane = 0; lane < LANES; lane++)                                               \
                d[lane] = (R)value;                                                                \
            return;                                                                                \
        }                                                                                          \
        for (uint32_t left = mask; left != 0; left &= left - 1) {                                  \
            int lane = __builtin_ctz(left);                                                        \
            M value;                                                                               \
            memcpy(&value, access->at[lane] + skip, sizeof(value));                                \
            d[lane] = (R)value;                                                                    \
        }                                                                                          \
    }

#define STORER(name, M, R)                                                                         \
    static UNORDERED void name(void *lanes, struct access *access, unsigned skip, uint32_t mask)   \
    {                                                                                              \
        const R *s = lanes;                                                                        \
        if (access->flat != NULL && access->bytes == sizeof(M)) {                                  \
            M *d = (void *)access->flat;                                                           \
            for (int lane = 0; lane < LANES; lane++)                                               \
                d[lane] = (M)s[lane];                                                              \
            return;                                                                                \
        }                                                                                          \
        access_spread(access);                                                                     \
        for (uint32_t left = mask; left != 0; left &= left - 1) {                                  \
            int lane = __builtin_ctz(left);                                                        \
            M value = (M)s[lane];                                                                  \
            memcpy(access->at[lane] + skip, &value, sizeof(value));                                \
        }                                                                                          \
    }

LOADER(load_u8_2, uint8_t, uint16_t)
LOADER(load_u8_4, uint8_t, uint32_t)
LOADER(load_u8_8, uint8_t, uint64_t)
LOADER(load_s8_2, int8_t, int16_t)
LOADER(load_s8_4, int8_t, int32_t)
LOADER(load_s8_8, int8_t, int64_t)
LOADER(load_u16_2, uint16_t, uint16_t)
LOADER(load_u16_4, uint16_t, uint32_t)
LOADER(load_u16_8, uint16_t, uint64_t)
LOADER(load_s16_4, int16_t, int32_t)
LOADER(load_s16_8, int16_t, int64_t)
LOADER(load_u32_4, uint32_t, uint32_t)
LOADER(load_u32_8, uint32_t, uint64_t)
LOADER(load_s32_8, int32_t, int64_t)
LOADER(load_u64_8, uint64_t, uint64_t)
STORER(store_8_2, uint8_t, uint16_t)
STORER(store_8_4, uint8_t, uint32_t)
STORER(store_8_8, uint8_t, uint64_t)
STORER(store_16_2, uint16_t, uint16_t)
STORER(store_16_4, uint16_t, uint32_t)
STORER(store_16_8, uint16_t, uint64_t)
STORER(store_32_4, uint32_t, uint32_t)
STORER(store_32_8, uint32_t, uint64_t)
STORER(store_64_8, uint64_t, uint64_t)

struct mover {
    unsigned bytes;
    bool is_signed;
    unsigned store;
    move_fn *fn;
};

static const struct mover loaders[] = {
    {1, false, 2, load_u8_2},  {1, false, 4, load_u8_4},  {1, false, 8, load_u8_8},
    {1, true, 2, load_s8_2},   {1, true, 4, load_s8_4},   {1, true, 8, load_s8_8},
    {2, false, 2, load_u16_2}, {2, true, 2, load_u16_2},  {2, false, 4, load_u16_4},
    {2, false, 8, load_u16_8}, {2, true, 4, load_s16_4},  {2, true, 8, load_s16_8},
    {4, false, 4, load_u32_4}, {4, true, 4, load_u32_4},  {4, false, 8, load_u32_8},
    {4, true, 8, load_s32_8},  {8, false, 8, load_u64_8}, {8, true, 8, load_u64_8},
};

static const struct mover storers[] = {
    {1, false, 2, store_8_2},  {1, false, 4, store_8_4},  {1, false, 8, store_8_8},
    {2, false, 2, store_16_2}, {2, false, 4, store_16_4}, {2, false, 8, store_16_8},
    {4, false, 4, store_32_4}, {4, false, 8, store_32_8}, {8, false, 8, store_64_8},
};

static move_fn *mover_of(struct builder *builder, const struct mover *list, size_t count,
                         unsigned bytes, bool is_signed, unsigned store)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].bytes == bytes && list[i].is_signed == is_signed && list[i].store == store)
            return list[i].fn;
    refuse(builder, "%u bytes of memory and a register of %u", bytes, store);
}

/* Each element with how it is moved. */
struct element {
    struct operand operand;
    move_fn *fn;
    unsigned store;
};

static void op_load(struct warp *warp, const struct op *op, uint32_t mask)
{
    const struct element *elements = op->extra;
    struct access access;

    if (!access_look(warp, op, mask, (unsigned)op->bytes * op->count, RACE_READ, &access))
        return;
    for (unsigned i = 0; i < op->count; i++) {
        unsigned skip = i * op->bytes;
        elements[i].fn(reg(warp, elements[i].operand), &access, skip, mask);
        mark_result(warp, elements[i].operand, mask,
                    access_written(&access, mask, skip, op->bytes));
    }
}

static void op_store(struct warp *warp, const struct op *op, uint32_t mask)
{
    const struct element *elements = op->extra;
    struct access access;

    if (!access_look(warp, op, mask, (unsigned)op->bytes * op->count, RACE_WRITE, &access))
        return;
    uint32_t good = mask;
    for (unsigned i = 0; i < op->count; i++) {
        unsigned skip = i * op->bytes;
        void *values = reg(warp, elements[i].operand);
        access_races(warp, op, mask, &access, skip, values, elements[i].store, op->bytes);
        elements[i].fn(values, &access, skip, mask);
        good &= written(warp, elements[i].operand);
    }
    if (access_mark_flat(&access, good))
        return;
    for (unsigned i = 0; i < op->count; i++)
        access_mark(&access, mask, i * op->bytes, op->bytes, written(warp, elements[i].operand));
}

/* Parameters of the kernel at a fixed place: the same for all lanes. */
static void op_load_parameter(struct warp *warp, const struct op *op, uint32_t mask)
{
    const struct element *elements = op->extra;
    const unsigned char *from = warp->worker->grid->parameters + op->offset;
    struct access access;

    access.flat = NULL;
    access.uniform = mask == (uint32_t)ALL_LANES;
    access.at[0] = (uint8_t *)(uintptr_t)from;
    for (int lane = 1; lane < LANES && !access.uniform; lane++)
        access.at[lane] = access.at[0];
    for (unsigned i = 0; i < op->count; i++) {
        elements[i].fn(reg(warp, elements[i].operand), &access, i * op->bytes, mask);
        mark_result(warp, elements[i].operand, mask, mask);
    }
}

/* Orders, scopes and hints for caches: one device runs one instruction at a time, so that none of
 * them changes a result. */
static void hints_take(struct builder *builder, struct statement *statement)
{
    static const char *const names[] = {"volatile",
                                        "relaxed",
                                        "acquire",
                                        "release",
                                        "weak",
                                        "cta",
                                        "cluster",
                                        "gpu",
                                        "sys",
                                        "ca",
                                        "cg",
                                        "cs",
                                        "lu",
                                        "cv",
                                        "nc",
                                        "wb",
                                        "wt",
                                        "unified",
                                        "L1::no_allocate",
                                        "L1::evict_first",
                                        "L1::evict_last",
                                        "L1::evict_normal",
                                        "L1::evict_unchanged",
                                        "L2::64B",
                                        "L2::128B",
                                        "L2::256B",
                                        NULL};

    (void)builder;
    while (modifier_of(statement, names) >= 0)
        ;
}

static void decode_access(struct builder *builder, struct statement *statement, bool load)
{
    static const char *const vectors[] = {"v2", "v4", "v8", NULL};
    const struct argument *value = &statement->arguments[load ? 0 : 1];
    const struct argument *address = &statement->arguments[load ? 1 : 0];
    size_t loader_count = sizeof(loaders) / sizeof(loaders[0]);
    size_t storer_count = sizeof(storers) / sizeof(storers[0]);

    need_arguments(builder, statement, 2, 2);
    hints_take(builder, statement);
    enum space space = space_of(builder, statement);
    int vector = modifier_of(statement, vectors);
    unsigned count = vector < 0 ? 1 : 2u << vector;
    enum type type = type_needed(builder, statement);
    unsigned bytes = type_bytes(type);
    if (bytes > 8 || bytes == 0 || (vector >= 0 && value->count != count))
        refuse(builder, "%s of type .%s", statement->name, type_name(type));
    struct element *elements = own(builder, count * sizeof(*elements));
    bool extends = load && type_is_signed(type) && !type_is_float(type);
    for (unsigned i = 0; i < count; i++) {
        const struct argument *one = vector < 0 ? value : &value->items[i];
        elements[i].operand =
            load ? destination_wide(builder, one, bytes < 2 ? 2 : bytes, &elements[i].store)
                 : source_wide(builder, one, bytes < 2 ? 2 : bytes, &elements[i].store);
        elements[i].fn =
            mover_of(builder, load ? loaders : storers, load ? loader_count : storer_count, bytes,
                     extends, elements[i].store);
    }
    struct op *op = emit(builder, statement, load ? op_load : op_store);
    address_of(builder, op, address, space);
    op = &builder->kernel->ops[builder->kernel->op_count - 1];
    op->bytes = (uint8_t)bytes;
    op->count = (uint8_t)count;
    op->extra = elements;
    if (load && op->space == SPACE_PARAM && address->kind == ARGUMENT_SYMBOL)
        op->fn = op_load_parameter;
}

static void decode_ld(struct builder *builder, struct statement *statement)
{
    decode_access(builder, statement, true);
}

static void decode_st(struct builder *builder, struct statement *statement)
{
    decode_access(builder, statement, false);
}

/* Generic addresses of global memory are the addresses themselves; other spaces have windows. */
static void op_cvta(struct warp *warp, const struct op *op, uint32_t mask)
{
    uint64_t *d = reg(warp, op->d);
    const uint64_t *a = reg(warp, op->a);
    uint64_t offset = (uint64_t)op->offset;

    EACH_LANE(mask, d[lane] = a[lane] + offset);
    mark_result(warp, op->d, mask, written(warp, op->a));
}

static void decode_cvta(struct builder *builder, struct statement *statement)
{
    static const uint64_t windows[] = {[SPACE_GENERIC] = 0,
                                       [SPACE_GLOBAL] = 0,
                                       [SPACE_SHARED] = SHARED_WINDOW,
                                       [SPACE_LOCAL] = LOCAL_WINDOW,
                                       [SPACE_PARAM] = PARAM_WINDOW};
    bool to = modifier(statement, "to");
    enum space space = space_of(builder, statement);

    need_arguments(builder, statement, 2, 2);
    if (type_bytes(type_needed(builder, statement)) != 8)
        refuse(builder, "cvta of addresses of 32 bits");
    struct operand d = destination(builder, &statement->arguments[0], 8);
    struct operand a = source(builder, &statement->arguments[1], 8);
    struct op *op = emit(builder, statement, op_cvta);
    op->d = d;
    op->a = a;
    op->offset = to ? -(int64_t)windows[space] : (int64_t)windows[space];
}

static void op_isspacep(struct warp *warp, const struct op *op, uint32_t mask)
{
    const uint64_t *a = reg(warp, op->a);
    uint32_t inside = 0;
    uint64_t base = (uint64_t)op->offset;

    for (int lane = 0; lane < LANES; lane++) {
        bool windowed = a[lane] >= SHARED_WINDOW &&
                        a[lane] < LOCAL_WINDOW + (LOCAL_WINDOW >> 1) + ((uint64_t)1 << WINDOW_BITS);
        bool yes = base == 0 ? !windowed : a[lane] >> WINDOW_BITS == base >> WINDOW_BITS;
        inside |= (uint32_t)yes << lane;
    }
    predicate_set(warp, op->d, mask, inside);
    mark_result(warp, op->d, mask, written(warp, op->a));
}

static void decode_isspacep(struct builder *builder, struct statement *statement)
{
    enum space space = space_of(builder, statement);

    need_arguments(builder, statement, 2, 2);
    struct operand d = destination_predicate(builder, &statement->arguments[0]);
    struct operand a = source(builder, &statement->arguments[1], 8);
    struct op *op = emit(builder, statement, op_isspacep);
    op->d = d;
    op->a = a;
    op->offset = space == SPACE_SHARED  ? (int64_t)SHARED_WINDOW
                 : space == SPACE_LOCAL ? (int64_t)LOCAL_WINDOW
                 : space == SPACE_PARAM ? (int64_t)PARAM_WINDOW
                                        : 0;
}

static void op_nothing(struct warp *warp, const struct op *op, uint32_t mask)
{
    (void)warp, (void)op, (void)mask;
}

static void decode_hint(struct builder *builder, struct statement *statement)
{
    static const char *const levels[] = {
        "L1", "L2", "global", "local", "L2::evict_last", "L2::evict_normal", NULL};

    while (modifier_of(statement, levels) >= 0)
        ;
    emit(builder, statement, op_nothing);
}

const struct decoder decode_memory[] = {
    {"ld", decode_ld},
    {"ldu", decode_ld},
    {"st", decode_st},
    {"cvta", decode_cvta},
    {"isspacep", decode_isspacep},
    {"prefetch", decode_hint},
    {"prefetchu", decode_hint},
    {NULL, NULL},
};
