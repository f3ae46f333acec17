/* Memory that clients share with the daemon, registered by name.
 *
 *   client: shm_open(), writes ──register──> region, mapped once
 *                                              │ region_take(name, offset, bytes)
 *                                              v
 *   request: reads and writes there in place, counted ──region_give()──> goes, if unregistered
 *
 * A region is a part of a POSIX shared memory object, or memory of the device that another process
 * exported (on devices that can import it).  The bytes are the client's: they count against a limit
 * of their own, not against the device's budget.  They may change under whoever looks at them, and
 * the object may shrink: then the region is broken, every use of it fails with a sentence, and
 * nothing else does (guard.h).
 *
 * A name is taken until it is unregistered, or until the process goes that registered it over a
 * Unix socket.  A region that is in use then loses its name at once and its memory with the last
 * use.
 *
 * Threads: one, the I/O thread; the bytes may be used by any while they are taken.
 */
#ifndef REGIONS_REGIONS_H
#define REGIONS_REGIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct device;
struct region;
struct regions;

enum region_kind { REGION_SYSTEM, REGION_CUDA, REGION_KINDS };
const char *region_kind_name(enum region_kind kind); /* "system", "cuda" */

enum { REGION_NAME_MAX = 255, REGION_KEY_MAX = 255 };

enum region_policy {
    REGIONS_LOCAL, /* clients of this machine may register */
    REGIONS_ANY,
    REGIONS_OFF,
};

struct region_limits {
    enum region_policy policy;
    unsigned regions;
    uint64_t bytes; /* of all regions, in whole pages */
};

/* Who asks. */
struct region_peer {
    bool is_local; /* on this machine */
    bool is_known; /* by its credentials: a Unix socket's other end */
    pid_t pid;
    uid_t uid;
    gid_t gid;
};

struct region_name {
    const char *data; /* UTF-8 without control characters, not terminated */
    size_t size;
};

struct region_order { /* what to register */
    struct region_name name;
    uint64_t bytes;
    struct region_peer peer;
    /* REGION_SYSTEM: */
    struct region_name key;
    uint64_t offset;
    /* REGION_CUDA: */
    const void *handle;
    size_t handle_bytes;
    int64_t device_id;
};

/* `device` (NULL: none) imports memory, and must outlive it. */
MUST_CHECK enum status regions_create(struct device *device, struct regions **out_regions);
void regions_destroy(struct regions *regions); /* nothing may be taken; NULL is fine */
/* What is registered already stays. */
void regions_set_limits(struct regions *regions, const struct region_limits *limits);

/* STATUS_UNSUPPORTED, _DENIED, _EXISTS, _INVALID, _NOT_FOUND, _NO_MEMORY, _IO: nothing changed. */
MUST_CHECK enum status regions_register(struct regions *regions, enum region_kind kind,
                                        const struct region_order *order, struct error *err);
/* Names that nobody registered, or as another kind, are passed over.  size 0: all of the kind. */
void regions_unregister(struct regions *regions, enum region_kind kind, struct region_name name);
/* Unregisters what belongs to processes that are gone; cheap. */
void regions_sweep(struct regions *regions);

/* ---- use ---- */

/* Bytes of a region, borrowed until region_give(). */
struct region_span {
    struct region *region;
    void *data; /* an address of the host (REGION_SYSTEM), of the device (REGION_CUDA) */
    uint64_t offset, bytes;
};
/* `writes`: the bytes are to be written; else only read. */
MUST_CHECK enum status region_take(struct regions *regions, struct region_name name,
                                   uint64_t offset, uint64_t bytes, bool writes,
                                   struct region_span *out_span, struct error *err);
void region_give(struct region *region);
/* After use: STATUS_INVALID when its memory was gone meanwhile; what was read or written is void.
 */
MUST_CHECK enum status region_check(const struct region *region, struct error *err);
enum region_kind region_kind_of(const struct region *region);
/* Whether two spans have bytes in common, by whatever name or mapping they came. */
bool region_spans_meet(const struct region_span *first, const struct region_span *second);

/* ---- to be told ---- */

struct region_info { /* borrowed until the next call */
    struct region_name name;
    enum region_kind kind;
    const char *key;
    uint64_t offset, bytes;
    int64_t device_id;
    unsigned uses; /* now */
    pid_t owner;   /* goes with this process; 0: stays */
    int64_t since_us, last_use_us;
    bool is_whole;
};
typedef void (*regions_each_fn)(void *arg, const struct region_info *info);
/* In the order of their registration; of one kind, or REGION_KINDS: of all. */
void regions_for_each(struct regions *regions, enum region_kind kind, regions_each_fn each,
                      void *arg);
/* STATUS_NOT_FOUND: no region of that kind has the name. */
MUST_CHECK enum status regions_find(struct regions *regions, enum region_kind kind,
                                    struct region_name name, struct region_info *out_info,
                                    struct error *err);

struct regions_use {
    uint64_t bytes[REGION_KINDS];
    unsigned count[REGION_KINDS];
    uint64_t leaving_bytes; /* of the bytes: unregistered, but still in use */
    uint64_t limit_bytes;
};
void regions_read_use(const struct regions *regions, struct regions_use *out_use);

#endif
