/* Races in shared memory: two threads of a block touch the same bytes, one of them writes, and no
 * barrier lies between.  Threads of one warp are ordered by __syncwarp() alone: that they run in
 * step here is no promise of the hardware. */
#ifndef SLUICE_TESTS_SIM_PTX_RACE_H
#define SLUICE_TESTS_SIM_PTX_RACE_H

#include "warp.h"

enum race_kind { RACE_READ, RACE_WRITE, RACE_ATOMIC };

/* Who touched four bytes last.  While accesses are whole words `split` is false and one entry is
 * enough; otherwise the four bytes have an entry each. */
struct race_entry {
    uint32_t write_epoch; /* of the block; 0: never */
    uint32_t write_warp_epoch;
    uint32_t read_epoch;
    uint32_t read_warp_epoch;
    uint16_t writer;
    uint16_t reader; /* UINT16_MAX: several */
    bool atomic;
};

struct race_cell {
    bool split;
    struct race_entry entry[4];
};

/* One lane's access; a race ends the launch with a finding.  `same` says that what is written is
 * there already: then two writers do no harm. */
void race_check(struct warp *warp, const struct op *op, int lane, uint32_t address, unsigned bytes,
                enum race_kind kind, bool same);

#endif
