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

static bool aligned(struct warp *warp, const struct op *op, uint32_t mask,
                    const uint64_t address[LANES], unsigned bytes, enum race_kind kind)
{
    uint64_t all = 0;

    for (uint32_t left = mask; left != 0; left &= left - 1)
        all |= address[__builtin_ctz(left)];
    if ((all & (bytes - 1)) == 0)
        return true;
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

static uint8_t *shadow_byte(const struct span *span, uint64_t address)
{
    return span->shadow == NULL ? NULL : span->shadow + (address - span->shadow_from) / 8;
}

/* The instruction's cached span holds all lanes, or each is looked up. */
static bool global_find(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                        enum race_kind kind, struct access *out)
{
    struct span *span = &warp->worker->spans[op->slot];
    bool fits = true;

    for (uint32_t left = mask; left != 0; left &= left - 1) {
        uint64_t address = out->address[__builtin_ctz(left)];
        fits &= address >= span->low && address + bytes <= span->high;
    }
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint64_t address = out->address[lane];
        if (!fits && (address < span->low || address + bytes > span->high) &&
            (!span_find(address, span) || address + bytes > span->high)) {
            *span = (struct span){0};
            return bad_address(warp, op, left & -left, address, bytes, kind, "global");
        }
        out->at[lane] = (uint8_t *)(uintptr_t)(address + (uint64_t)span->to_host);
        out->shadow[lane] = shadow_byte(span, address);
    }
    return true;
}

static bool shared_find(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                        enum race_kind kind, struct access *out)
{
    struct worker *worker = warp->worker;
    bool races = worker->grid->check_races && kind != RACE_WRITE;

    out->own_memory = true;
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint64_t address = out->address[lane];
        if (address + bytes > worker->shared_bytes) {
            fault(warp, op, left, PTX_ILLEGAL_ADDRESS,
                  "invalid shared %s of %u bytes at %llu: the block has %zu", verb(kind), bytes,
                  (unsigned long long)address, worker->shared_bytes);
            return false;
        }
        out->at[lane] = (uint8_t *)worker->shared + address;
        out->shadow[lane] = worker->shared_shadow + address / 8;
        if (races)
            race_check(warp, op, lane, (uint32_t)address, bytes, kind, false);
    }
    return !races || !stopped(warp);
}

static bool local_find(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                       enum race_kind kind, struct access *out)
{
    const struct worker *worker = warp->worker;

    out->own_memory = true;
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

    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint64_t address = out->address[lane];
        if (address + bytes > worker->kernel->info.parameter_bytes || kind != RACE_READ) {
            fault(warp, op, left, PTX_ILLEGAL_ADDRESS,
                  "invalid %s of %u bytes at %llu of the parameters", verb(kind), bytes,
                  (unsigned long long)address);
            return false;
        }
        out->at[lane] = (uint8_t *)(uintptr_t)worker->grid->parameters + address;
        out->shadow[lane] = NULL;
    }
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

bool access_find(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                 enum race_kind kind, struct access *out)
{
    bool found;

    if (undefined(warp, op, mask, op->a, "an address"))
        return false;
    out->bytes = bytes;
    out->own_memory = false;
    out->flat = NULL;
    addresses(warp, op, out->address);
    if (!aligned(warp, op, mask, out->address, bytes, kind))
        return false;
    if (op->space == SPACE_GENERIC)
        found = generic_find(warp, op, mask, bytes, kind, out);
    else
        found = finders[op->space](warp, op, mask, bytes, kind, out);
    if (!found || mask != (uint32_t)ALL_LANES)
        return found;
    unsigned apart = 0;
    for (int lane = 1; lane < LANES; lane++)
        apart |= out->at[lane] != out->at[0] + (size_t)lane * bytes;
    if (apart == 0)
        out->flat = out->at[0];
    return true;
}

/* Whether the marks of 32 elements side by side are all set. */
static bool flat_written(const struct access *access)
{
    uint8_t all = 0xFF;

    if (access->address[0] % 8 != 0)
        return false;
    for (unsigned i = 0; i < access->bytes * LANES / 8; i++)
        all &= access->shadow[0][i];
    return all == 0xFF;
}

uint32_t access_written(const struct access *access, uint32_t mask, unsigned skip, unsigned bytes)
{
    uint32_t good = 0;
    unsigned want = (1u << (bytes < 8 ? bytes : 8)) - 1;

    if (access->flat != NULL && (access->shadow[0] == NULL || flat_written(access)))
        return mask;
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        const uint8_t *shadow = access->shadow[lane];
        unsigned at = (unsigned)(access->address[lane] % 8) + skip;
        if (shadow == NULL || (shadow[at / 8] >> (at % 8) & want) == want)
            good |= (uint32_t)1 << lane;
    }
    return good;
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

void access_mark(const struct access *access, uint32_t mask, unsigned skip, unsigned bytes,
                 uint32_t good)
{
    if (access->flat != NULL && access->shadow[0] == NULL)
        return;
    if (access->flat != NULL && (good & mask) == (uint32_t)ALL_LANES &&
        access->address[0] % 8 == 0 && access->bytes == bytes) {
        memset(access->shadow[0], 0xFF, bytes * LANES / 8);
        return;
    }
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        if (access->shadow[lane] != NULL)
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
    for (uint32_t left = mask; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        const uint8_t *at = access->at[lane] + skip;
        const uint8_t *shared = (const uint8_t *)worker->shared;
        if (at < shared || at >= shared + worker->shared_bytes)
            continue; /* local memory */
        bool same = memcmp(at, (const char *)values + (size_t)lane * stride, bytes) == 0;
        race_check(warp, op, lane, (uint32_t)(at - shared), bytes, RACE_WRITE, same);
        if (stopped(warp))
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
    if (!aligned(warp, op, bit, access.address, bytes, kind))
        return NULL;
    if (space == SPACE_GENERIC)
        found = generic_find(warp, op, bit, bytes, kind, &access);
    else
        found = finders[space](warp, op, bit, bytes, kind, &access);
    if (!found)
        return NULL;
    *out_shadow = access.shadow[lane];
    return access.at[lane];
}
