/* Races in shared memory: two threads of a block touch the same bytes, one of them writes, and no
 * barrier lies between.  Threads of one warp are ordered by __syncwarp() alone: that they run in
 * step here is no promise of the hardware.
 *
 * Each word of shared memory has an entry that says who touched it last; a word of which parts were
 * touched has one for each of its bytes beside it.
 */
#ifndef SLUICE_TESTS_SIM_PTX_RACE_H
#define SLUICE_TESTS_SIM_PTX_RACE_H

#include "warp.h"

enum race_kind { RACE_READ, RACE_WRITE, RACE_ATOMIC };

/* Epochs of the block count barriers, those of the warp its own; 0: never. */
struct race_entry {
    uint32_t write_epoch;
    uint32_t read_epoch;
    uint16_t write_warp_epoch;
    uint16_t read_warp_epoch;
    /* With RACE_ATOMICALLY; on words, RACE_SPLIT where their bytes have entries, and RACE_PENDING
     * while a copy to them has begun and not been waited for. */
    uint16_t writer;
    uint16_t reader; /* RACE_SEVERAL: more than one thread */
};

enum {
    RACE_SEVERAL = 0x1FFF,
    RACE_THREAD = 0x1FFF,
    RACE_PENDING = 0x2000,
    RACE_SPLIT = 0x4000,
    RACE_ATOMICALLY = 0x8000
};

/* Entries of `bytes` of shared memory: a word's, then its bytes'. */
size_t race_entries(size_t bytes);

/* One lane's access to memory at `at`.  A race ends the launch with a finding; two writers of the
 * same value do no harm, so `value` is what is about to be written, NULL for reads and atomics. */
void race_check(struct warp *warp, const struct op *op, int lane, uint32_t address, unsigned bytes,
                enum race_kind kind, const void *value);
/* A copy to whole words begins, which races from now on with whoever touches them, the thread that
 * began it too; it ends, and they are written at that time. */
void race_copy_begin(struct warp *warp, const struct op *op, int lane, uint32_t address,
                     unsigned bytes);
void race_copy_end(struct warp *warp, const struct op *op, int lane, uint32_t address,
                   unsigned bytes, const void *value);

#endif
