#include "access.h"

#include <string.h>

static void addresses(const struct warp *warp, const struct op *op, uint64_t out[LANES])
{
    uint64_t offset = (uint64_t)op->offset;

    if (op->wide_address) {
        const uint64_t *base = reg(warp, op->a);
        for (int lane = 0; lane < LANES; lane++)
            out[lane] = base[lane] + offset;
    } else {
        const uint32_t *base = reg(warp, op->a);
        for (int lane = 0; lane < LANES; lane++)
            out[lane] = (uint32_t)(base[lane] + (uint32_t)offset);
    }
}

static const char *verb(enum race_kind kind)
{
    return kind == RACE_READ ? "read" : kind == RACE_WRITE ? "write" : "atomic operation";
}

static bool bad_address(struct warp *warp, const struct op *op, uint32_t lanes, uint64_t address,
                        unsigned bytes, enum race_kind kind, const char *where)
{
    struct span before;

    if (span_find(address, &before))
        fault(warp, op, lanes, PTX_ILLEGAL_ADDRESS,
              "invalid %s %s of %u bytes at 0x%llx: the memory ends at 0x%llx", where, verb(kind),
              bytes, (unsigned long long)address, (unsigned long long)before.high);
    else if (address > 0 && span_find(address - 1, &before))
        fault(warp, op, lanes, PTX_ILLEGAL_ADDRESS,
              "invalid %s %s of %u bytes at 0x%llx, right behind memory", where, verb(kind), bytes,
              (unsigned long long)address);
    else
        fault(warp, op, lanes, PTX_ILLEGAL_ADDRESS,
              "invalid %s %s of %u bytes at 0x%llx: nothing is mapped there", where, verb(kind),
              bytes, (unsigned long long)address);
    return false;
}

uint8_t access_defined[4] = {0xFF, 0xFF, 0xFF, 0xFF};

static bool misaligned(struct warp *warp, const struct op *op, uint32_t mask,
                       const uint64_t address[LANES], unsigned bytes, enum race_kind kind)
{
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        uint64_t one = address[__builtin_ctz(left)];
        if ((one & (bytes - 1)) == 0)
            continue;
        fault(warp, op, left, PTX_MISALIGNED, "misaligned %s of %u bytes at 0x%llx", verb(kind),
              bytes, (unsigned long long)one);
        break;
    }
    return false;
}

static bool aligned(struct warp *warp, const struct op *op, uint32_t mask,
                    const uint64_t address[LANES], unsigned bytes, enum race_kind kind)
{
    uint64_t all = 0;

    EACH_LANE(mask, all |= address[lane]);
    return (all & (bytes - 1)) == 0 || misaligned(warp, op, mask, address, bytes, kind);
}

static uint8_t *shadow_byte(const struct span *span, uint64_t address)
{
    return span->shadow == NULL ? access_defined : span->shadow + (address - span->shadow_from) / 8;
}

/* Lanes that do not all lie in the instruction's cached span: each is looked up. */
static bool global_each(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                        enum race_kind kind, struct access *out)
{
    struct span *span = &warp->worker->spans[op->slot];

    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint64_t address = out->address[lane];
        if ((address < span->low || address + bytes > span->high) &&
            (!span_find(address, span) || address + bytes > span->high)) {
            *span = (struct span){0};
            return bad_address(warp, op, left & -left, address, bytes, kind, "global");
        }
        out->at[lane] = (uint8_t *)(uintptr_t)(address + (uint64_t)span->to_host);
        out->shadow[lane] = shadow_byte(span, address);
    }
    return true;
}

static bool global_find(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                        enum race_kind kind, struct access *out)
{
    const struct span *span = &warp->worker->spans[op->slot];
    const uint64_t *address = out->address;
    uint64_t low = span->low;
    uint64_t high = span->high - bytes;
    unsigned outside = span->high < bytes;

    EACH_LANE(mask, outside |= (address[lane] < low) | (address[lane] > high));
    if (outside)
        return global_each(warp, op, mask, bytes, kind, out);
    uint64_t to_host = (uint64_t)span->to_host;
    EACH_LANE(mask, out->at[lane] = (uint8_t *)(uintptr_t)(address[lane] + to_host));
    if (span->shadow == NULL) {
        EACH_LANE(mask, out->shadow[lane] = access_defined);
        return true;
    }
    uint8_t *shadow = span->shadow;
    uint64_t from = span->shadow_from;
    EACH_LANE(mask, out->shadow[lane] = shadow + (address[lane] - from) / 8);
    return true;
}

static bool shared_outside(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                           enum race_kind kind, const struct access *out)
{
    size_t all = warp->worker->shared_bytes;

    for (uint32_t left = mask; left != 0; left &= left - 1) {
        uint64_t address = out->address[__builtin_ctz(left)];
        if (address + bytes <= all)
            continue;
        fault(warp, op, left, PTX_ILLEGAL_ADDRESS,
              "invalid shared %s of %u bytes at %llu: the block has %zu", verb(kind), bytes,
              (unsigned long long)address, all);
        break;
    }
    return false;
}

/* Read by several threads since the last barrier, and written by none: one more changes nothing. */
static bool is_quiet(const struct race_entry *word, uint32_t epoch)
{
    return word->read_epoch == epoch && word->write_epoch != epoch &&
           word->reader == RACE_SEVERAL && (word->writer & (RACE_SPLIT | RACE_PENDING)) == 0;
}

/* Most reads touch words that several threads have read since the last barrier: those are done
 * here.  Of neighbours at one address two are enough to say that they are several. */
static void shared_races(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                         enum race_kind kind, const struct access *out)
{
    const struct race_entry *words = warp->worker->races;
    uint32_t epoch = warp->worker->epoch;
    uint32_t lanes = kind == RACE_READ ? mask & (out->leaders | out->leaders << 1) : mask;

    for (uint32_t left = lanes; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint32_t address = (uint32_t)out->address[lane];
        unsigned quiet = 0;
        if (kind == RACE_READ && bytes % 4 == 0)
            while (quiet < bytes && is_quiet(&words[(address + quiet) / 4], epoch))
                quiet += 4;
        if (quiet < bytes)
            race_check(warp, op, lane, address + quiet, bytes - quiet, kind, NULL);
    }
}

static bool shared_find(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                        enum race_kind kind, struct access *out)
{
    struct worker *worker = warp->worker;
    const uint64_t *address = out->address;
    unsigned outside = worker->shared_bytes < bytes;
    uint64_t last = worker->shared_bytes - bytes;
    uint8_t *shared = (uint8_t *)worker->shared;
    uint8_t *shadow = worker->shared_shadow;

    out->own_memory = true;
    EACH_LANE(mask, outside |= address[lane] > last);
    if (outside)
        return shared_outside(warp, op, mask, bytes, kind, out);
    EACH_LANE(mask, out->at[lane] = shared + address[lane];
              out->shadow[lane] = shadow + address[lane] / 8);
    if (!worker->grid->check_races || kind == RACE_WRITE)
        return true;
    shared_races(warp, op, mask, bytes, kind, out);
    return !stopped(warp);
}

static bool local_find(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                       enum race_kind kind, struct access *out)
{
    const struct worker *worker = warp->worker;

    out->own_memory = true;
    out->leaders |= mask | mask << 1; /* one address is another place in each lane */
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint64_t address = out->address[lane];
        if (address + bytes > worker->kernel->local_bytes) {
            fault(warp, op, left, PTX_ILLEGAL_ADDRESS,
                  "invalid local %s of %u bytes at %llu: the thread has %zu", verb(kind), bytes,
                  (unsigned long long)address, worker->kernel->local_bytes);
            return false;
        }
        size_t at = (size_t)lane * worker->local_stride + address;
        out->at[lane] = (uint8_t *)warp->local + at;
        out->shadow[lane] = warp->local_shadow + at / 8;
    }
    return true;
}

static bool param_find(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                       enum race_kind kind, struct access *out)
{
    const struct worker *worker = warp->worker;
    const uint64_t *address = out->address;
    uint8_t *from = (uint8_t *)(uintptr_t)worker->grid->parameters;
    size_t all = worker->kernel->info.parameter_bytes;
    unsigned outside = kind != RACE_READ || bytes > all;

    EACH_LANE(mask, outside |= address[lane] > all - bytes);
    if (outside) {
        fault(warp, op, mask, PTX_ILLEGAL_ADDRESS,
              "invalid %s of %u bytes beyond the %zu of the parameters", verb(kind), bytes, all);
        return false;
    }
    EACH_LANE(mask, out->at[lane] = from + address[lane]; out->shadow[lane] = access_defined);
    return true;
}

typedef bool find_fn(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                     enum race_kind kind, struct access *out);

static find_fn *const finders[] = {
    [SPACE_GENERIC] = global_find, [SPACE_GLOBAL] = global_find, [SPACE_SHARED] = shared_find,
    [SPACE_LOCAL] = local_find,    [SPACE_PARAM] = param_find,
};

/* Lanes whose generic address lies in a window. */
static uint32_t in_window(const uint64_t address[LANES], uint32_t mask, uint64_t window)
{
    uint32_t found = 0;

    for (int lane = 0; lane < LANES; lane++)
        found |= (uint32_t)((address[lane] >> WINDOW_BITS) == (window >> WINDOW_BITS)) << lane;
    return found & mask;
}

static bool generic_find(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                         enum race_kind kind, struct access *out)
{
    static const struct {
        uint64_t base;
        enum space space;
    } windows[] = {
        {SHARED_WINDOW, SPACE_SHARED}, {LOCAL_WINDOW, SPACE_LOCAL}, {PARAM_WINDOW, SPACE_PARAM}};

    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        uint32_t lanes = in_window(out->address, mask, windows[i].base);
        if (lanes == 0)
            continue;
        for (uint32_t left = lanes; left != 0; left &= left - 1)
            out->address[__builtin_ctz(left)] -= windows[i].base;
        if (!finders[windows[i].space](warp, op, lanes, bytes, kind, out))
            return false;
        mask &= ~lanes;
        out->own_memory = mask == 0;
    }
    return mask == 0 || global_find(warp, op, mask, bytes, kind, out);
}

static uint32_t leaders_of(const uint64_t address[LANES])
{
    uint32_t leaders = 1;

    for (int lane = 1; lane < LANES; lane++)
        leaders |= (uint32_t)(address[lane] != address[lane - 1]) << lane;
    return leaders;
}

void access_spread(struct access *access)
{
    const bool defined = access->shadow[0] == access_defined;
    const uint64_t step = access->uniform ? 0 : access->bytes;

    if (access->is_spread)
        return;
    access->is_spread = true;
    for (unsigned lane = 1; lane < LANES; lane++) {
        uint64_t address = access->address[0] + lane * step;

        access->address[lane] = address;
        access->at[lane] = access->at[0] + lane * step;
        access->shadow[lane] =
            defined ? access_defined : access->shadow[0] + address / 8 - access->address[0] / 8;
    }
}

/* Where `first` and what follows it lie: in the global memory that the instruction was at before,
 * or in the parameters.  False: not so, or not well. */
static bool place_quick(struct warp *warp, const struct op *op, uint64_t first, unsigned bytes,
                        struct access *out)
{
    const struct worker *worker = warp->worker;
    const struct span *span = &worker->spans[op->slot];

    if (op->space == SPACE_PARAM) {
        if (first + bytes > worker->kernel->info.parameter_bytes)
            return false;
        out->at[0] = (uint8_t *)(uintptr_t)worker->grid->parameters + first;
        out->shadow[0] = access_defined;
        return true;
    }
    if (first < span->low || first >= span->high || span->high - first < bytes)
        return false;
    out->at[0] = (uint8_t *)(uintptr_t)(first + (uint64_t)span->to_host);
    out->shadow[0] = shadow_byte(span, first);
    return true;
}

/* Most instructions have all their lanes side by side or at one address: one look is enough. */
static bool find_quick(struct warp *warp, const struct op *op, unsigned bytes, struct access *out)
{
    const uint64_t first = out->address[0];
    uint64_t spread = 0, apart = 0;

    /* From lane 0 on, as the addresses were stored: vectors across two stores would wait for both.
     */
    for (int lane = 0; lane < LANES; lane++) {
        spread |= out->address[lane] ^ first;
        apart |= out->address[lane] - first - (uint64_t)lane * bytes;
    }
    if ((spread != 0 && apart != 0) || (first & (bytes - 1)) != 0 ||
        !place_quick(warp, op, first, spread == 0 ? bytes : bytes * LANES, out))
        return false;
    out->uniform = spread == 0;
    out->flat = spread == 0 ? NULL : out->at[0];
    out->leaders = spread == 0 ? 1 : (uint32_t)ALL_LANES;
    out->is_spread = false;
    return true;
}

/* Spaces where a read, and in global memory a write, may be found so. */
static bool may_be_quick(const struct op *op, enum race_kind kind)
{
    return op->space <= SPACE_GLOBAL || (op->space == SPACE_PARAM && kind == RACE_READ);
}

static bool find_each(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                      enum race_kind kind, struct access *out)
{
    bool found;

    if (!aligned(warp, op, mask, out->address, bytes, kind))
        return false;
    out->leaders = mask == (uint32_t)ALL_LANES ? leaders_of(out->address) : mask;
    if (op->space == SPACE_GENERIC)
        found = generic_find(warp, op, mask, bytes, kind, out);
    else
        found = finders[op->space](warp, op, mask, bytes, kind, out);
    if (!found || mask != (uint32_t)ALL_LANES)
        return found;
    uintptr_t apart = 0;
    uintptr_t first = (uintptr_t)out->at[0];
    for (int lane = 0; lane < LANES; lane++)
        apart |= (uintptr_t)out->at[lane] - first - (uintptr_t)lane * bytes;
    if (apart == 0)
        out->flat = out->at[0];
    out->uniform = out->leaders == 1;
    return true;
}

/* ---- sectors ---- */

enum { SECTOR_BYTES = 32 };

static struct {
    const char *name; /* of the kernels that are watched; NULL: none */
    uint64_t accesses, sectors;
} watch;

void ptx_watch_sectors(const char *name)
{
    watch.name = name;
    watch.accesses = watch.sectors = 0;
}

uint64_t ptx_sectors(uint64_t *out_accesses)
{
    *out_accesses = watch.accesses;
    return watch.sectors;
}

/* What one access of a warp takes of global memory. */
static void count_sectors(const struct warp *warp, const struct op *op, uint32_t mask,
                          unsigned bytes, const struct access *access)
{
    uint64_t seen[2 * LANES];
    unsigned count = 0;

    if (op->space > SPACE_GLOBAL || strstr(warp->worker->kernel->name, watch.name) == NULL)
        return;
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        const uint64_t first = access->address[__builtin_ctz(left)];

        for (uint64_t s = first / SECTOR_BYTES; s <= (first + bytes - 1) / SECTOR_BYTES; s++) {
            unsigned i = 0;

            while (i < count && seen[i] != s)
                i++;
            if (i == count && count < 2 * LANES)
                seen[count++] = s;
        }
    }
    __atomic_fetch_add(&watch.accesses, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&watch.sectors, count, __ATOMIC_RELAXED);
}

bool access_look(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                 enum race_kind kind, struct access *out)
{
    if (undefined(warp, op, mask, op->a, "an address"))
        return false;
    out->bytes = bytes;
    out->own_memory = false;
    out->flat = NULL;
    out->uniform = false;
    out->is_spread = true;
    addresses(warp, op, out->address);
    if (watch.name != NULL)
        count_sectors(warp, op, mask, bytes, out);
    return (mask == (uint32_t)ALL_LANES && may_be_quick(op, kind) &&
            find_quick(warp, op, bytes, out)) ||
           find_each(warp, op, mask, bytes, kind, out);
}

bool access_find(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                 enum race_kind kind, struct access *out)
{
    if (!access_look(warp, op, mask, bytes, kind, out))
        return false;
    access_spread(out);
    return true;
}

/* Whether the marks of 32 elements side by side are all set. */
static bool flat_written(const struct access *access)
{
    uint8_t all = 0xFF;

    if (access->shadow[0] == access_defined)
        return true;
    if (access->address[0] % 8 != 0)
        return false;
    for (unsigned i = 0; i < access->bytes * LANES / 8; i++)
        all &= access->shadow[0][i];
    return all == 0xFF;
}

uint32_t access_written(struct access *access, uint32_t mask, unsigned skip, unsigned bytes)
{
    uint32_t good = 0;
    unsigned want = (1u << (bytes < 8 ? bytes : 8)) - 1;

    if (access->flat != NULL && flat_written(access))
        return mask;
    if (!access->uniform)
        access_spread(access);
    for (uint32_t left = mask & access->leaders; left != 0;) {
        int lane = __builtin_ctz(left);
        unsigned at = (unsigned)(access->address[lane] % 8) + skip;
        const uint8_t *shadow = access->shadow[lane];
        left &= left - 1;
        if (shadow == access_defined)
            at %= 8;
        /* The lanes up to the next leader have the same. */
        uint32_t followers = (left & -left) - ((uint32_t)1 << lane);
        if ((shadow[at / 8] >> (at % 8) & want) == want)
            good |= followers;
    }
    return good & mask;
}

static void mark_lane(const struct access *access, int lane, unsigned skip, unsigned bytes,
                      bool set)
{
    unsigned at = (unsigned)(access->address[lane] % 8) + skip;
    uint8_t *byte = access->shadow[lane] + at / 8;
    uint8_t bits = (uint8_t)(((1u << (bytes < 8 ? bytes : 8)) - 1) << (at % 8));

    if (access->own_memory) {
        *byte = set ? *byte | bits : *byte & (uint8_t)~bits;
    } else if (set) {
        if ((__atomic_load_n(byte, __ATOMIC_RELAXED) & bits) != bits)
            __atomic_fetch_or(byte, bits, __ATOMIC_RELAXED);
    } else {
        __atomic_fetch_and(byte, (uint8_t)~bits, __ATOMIC_RELAXED);
    }
}

bool access_mark_flat(const struct access *access, uint32_t good)
{
    if (access->flat == NULL || good != (uint32_t)ALL_LANES || access->address[0] % 8 != 0)
        return false;
    if (access->shadow[0] != access_defined)
        memset(access->shadow[0], 0xFF, access->bytes * LANES / 8);
    return true;
}

void access_mark(struct access *access, uint32_t mask, unsigned skip, unsigned bytes, uint32_t good)
{
    if (access->flat != NULL && access->shadow[0] == access_defined)
        return;
    access_spread(access);
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        if (access->shadow[lane] != access_defined)
            mark_lane(access, lane, skip, bytes, (good >> lane & 1) != 0);
    }
}

void access_races(struct warp *warp, const struct op *op, uint32_t mask,
                  const struct access *access, unsigned skip, const void *values, unsigned stride,
                  unsigned bytes)
{
    const struct worker *worker = warp->worker;

    if (!worker->grid->check_races || !access->own_memory)
        return;
    const uint8_t *shared = (const uint8_t *)worker->shared;
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        const uint8_t *at = access->at[lane] + skip;
        if (at < shared || at >= shared + worker->shared_bytes)
            continue; /* local memory */
        race_check(warp, op, lane, (uint32_t)(at - shared), bytes, RACE_WRITE,
                   (const char *)values + (size_t)lane * stride);
        if (warp->stopped)
            return;
    }
}

uint8_t *access_one(struct warp *warp, const struct op *op, int lane, enum space space,
                    uint64_t address, unsigned bytes, enum race_kind kind, uint8_t **out_shadow)
{
    struct access access = {.bytes = bytes};
    uint32_t bit = (uint32_t)1 << lane;
    bool found;

    access.address[lane] = address;
    access.leaders = bit;
    if (!aligned(warp, op, bit, access.address, bytes, kind))
        return NULL;
    if (space == SPACE_GENERIC)
        found = generic_find(warp, op, bit, bytes, kind, &access);
    else
        found = finders[space](warp, op, bit, bytes, kind, &access);
    if (!found)
        return NULL;
    *out_shadow = access.shadow[lane] == access_defined ? NULL : access.shadow[lane];
    return access.at[lane];
}
