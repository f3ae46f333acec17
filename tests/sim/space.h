/* The address space of the device.
 *
 * One window of addresses is the device's.  The program under test never has access to it: every
 * page of the window is PROT_NONE, so a host that reads or writes through a device pointer dies at
 * once, as it should.  The bytes lie one window higher, in the alias that only the simulator uses;
 * one bit a byte, in the shadow behind it, says whether the byte was ever written.
 *
 *     window + 0         addresses of the device      never accessible
 *     window + W         the alias                    mapped where memory is
 *     window + 2 W       the shadow, W / 8 bytes      mapped where memory is
 *
 * Addresses are given out upwards and come round only after the whole window, so that what was
 * freed stays unmapped for long.  Memory comes from two files without a name (data and shadow), so
 * that one handle can be mapped at several addresses and in other processes.
 *
 * Locks: callers hold sim.exec for all that changes the space, sim.exec or sim.lock for looking.
 */
#ifndef SLUICE_TESTS_SIM_SPACE_H
#define SLUICE_TESTS_SIM_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum region_kind {
    REGION_DEVICE,  /* cudaMalloc */
    REGION_POOL,    /* cudaMallocAsync */
    REGION_MAPPING, /* cuMemMap */
    REGION_MODULE,  /* variables of a module */
    REGION_IPC,     /* another process's */
    REGION_HOST,    /* page-locked memory of the host, at its own address */
};

/* Memory behind addresses: an extent of the files. */
struct extent {
    uint64_t offset;
    size_t bytes;
    int data_fd; /* of another process's memory; -1: ours */
    int shadow_fd;
};

struct region {
    uint64_t address;
    size_t bytes; /* exact: one byte further is out of bounds */
    size_t span;  /* addresses taken, with the guard behind; 0: none of the window's */
    enum region_kind kind;
    bool accessible;
    struct extent extent;
    void *owner; /* handle, pool: the kind's own */
    unsigned flags;
};

/* A stretch of accessible addresses without a gap. */
struct span {
    uint64_t low;
    uint64_t high;   /* first address behind */
    int64_t to_host; /* added to an address: where the bytes are */
    uint8_t *shadow; /* shadow[(address - shadow_from) / 8]; NULL: all is defined */
    uint64_t shadow_from;
};

enum { SPACE_UNIT = 32 << 10 }; /* extents and mappings are multiples of it: 4 KiB of shadow */

/* Takes addresses; `wish` is tried first when not 0.  False: none left. */
bool space_take(size_t bytes, size_t align, uint64_t wish, uint64_t *out_address);
void space_drop(uint64_t address, size_t bytes);
bool space_owns(uint64_t address);

/* New memory of `bytes`, a multiple of SPACE_UNIT: 0xFF everywhere, and marked as never written. */
struct extent extent_make(size_t bytes);
void extent_free(const struct extent *extent);
void extent_map(uint64_t address, const struct extent *extent, size_t bytes);
void extent_unmap(uint64_t address, size_t bytes);
/* The files of this process, for others to map. */
void extent_files(int *out_data, int *out_shadow);

/* Regions are found by any address inside.  region_add copies nothing: the region is the caller's
 * until region_remove(). */
void region_add(struct region *region);
void region_remove(struct region *region);
struct region *region_find(uint64_t address);
/* The first region that touches [address, address + bytes), or NULL. */
struct region *region_in(uint64_t address, size_t bytes);
/* All accessible addresses round `address` that follow each other; false when it is none. */
bool span_find(uint64_t address, struct span *out);

/* Memory of the device in whole: address, guard, memory, region. NULL: no memory (the charge is
 * the caller's). */
struct region *region_make(size_t bytes, enum region_kind kind);
void region_free(struct region *region);

#endif
