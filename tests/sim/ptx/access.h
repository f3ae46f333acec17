/* From the addresses of a warp to bytes of the host, with every check on the way: that something is
 * mapped, that the address is aligned, that nobody else races for it. */
#ifndef SLUICE_TESTS_SIM_PTX_ACCESS_H
#define SLUICE_TESTS_SIM_PTX_ACCESS_H

#include "race.h"

/* Where all 32 lanes lie side by side or at one address, only what is said of lane 0 may be filled:
 * access_spread() fills the rest. */
struct access {
    uint8_t *flat;    /* when all 32 lanes lie side by side: where the first is; else NULL */
    bool uniform;     /* all 32 lanes at one address */
    bool is_spread;   /* all lanes are filled */
    uint32_t leaders; /* lanes that have another address than the lane before */
    uint8_t *at[LANES];
    uint8_t *shadow[LANES]; /* byte of the first mark; access_defined: all is written */
    uint64_t address[LANES];
    unsigned bytes;  /* of a lane */
    bool own_memory; /* of this worker: marks need no atomic change */
};

/* The marks of memory that has none. */
extern uint8_t access_defined[4];

/* Finds `bytes` for each lane of the mask.  False: a fault ended the launch. */
bool access_find(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                 enum race_kind kind, struct access *out);
/* The same; may leave the access as it is before access_spread(). */
bool access_look(struct warp *warp, const struct op *op, uint32_t mask, unsigned bytes,
                 enum race_kind kind, struct access *out);

void access_spread(struct access *access);

/* Lanes whose element of `bytes` at `skip` is all written. */
uint32_t access_written(struct access *access, uint32_t mask, unsigned skip, unsigned bytes);
/* Marks all of an access side by side as written, where `good` says so of all lanes and it begins
 * at a whole byte of marks.  False: nothing was done. */
bool access_mark_flat(const struct access *access, uint32_t good);
/* Marks it: as written in the lanes of `good`, as not written in the others. */
void access_mark(struct access *access, uint32_t mask, unsigned skip, unsigned bytes,
                 uint32_t good);

/* Races of a write to shared memory, when what is to be written is known; access_find() leaves them
 * out for RACE_WRITE. */
void access_races(struct warp *warp, const struct op *op, uint32_t mask,
                  const struct access *access, unsigned skip, const void *values, unsigned stride,
                  unsigned bytes);

/* Like access_find() for one lane and one address of a space, for instructions that have several.
 */
uint8_t *access_one(struct warp *warp, const struct op *op, int lane, enum space space,
                    uint64_t address, unsigned bytes, enum race_kind kind, uint8_t **out_shadow);

#endif
