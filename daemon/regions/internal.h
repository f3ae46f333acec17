/* What the files of regions/ share. */
#ifndef REGIONS_INTERNAL_H
#define REGIONS_INTERNAL_H

#include "base/list.h"
#include "regions/regions.h"

enum { IMPORT_KEY_BYTES = 64 }; /* a handle of CUDA */

struct region {
    struct list link; /* in regions->named; alone when its name is gone */
    struct regions *regions;
    enum region_kind kind;
    char name[REGION_NAME_MAX + 1];
    size_t name_size;
    uint64_t offset, bytes; /* of the object */
    unsigned references;    /* its name, each use */
    int owner_fd;           /* of the process it goes with; -1: it stays */
    pid_t owner;
    int64_t since_us, last_use_us;
    void *data;
    /* REGION_SYSTEM (system.c): */
    char key[REGION_KEY_MAX + 1];
    void *base; /* of whole pages; NULL: not mapped */
    size_t mapped_bytes;
    unsigned guard;
    bool is_guarded, is_writable;
    dev_t device;
    ino_t inode;
    /* REGION_CUDA: */
    void *imported; /* NULL: not */
    int64_t device_id;
    unsigned char handle[IMPORT_KEY_BYTES];
};

/* Maps the part of the object that is ordered.  A failure leaves nothing that system_unmap() would
 * not take away. */
enum status system_map(struct region *region, const struct region_order *order, struct error *err);
void system_unmap(struct region *region);
/* Whole pages that the part takes; UINT64_MAX: it cannot be. */
uint64_t system_page_bytes(uint64_t offset, uint64_t bytes);

#endif
