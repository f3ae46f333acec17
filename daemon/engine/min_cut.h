/* The cheapest way to give each of many things one of two sides.
 *
 * min_cut_cost(a, b, w): w is paid when a is on side 0 and b on side 1.  Things MIN_CUT_SIDE_0 and
 * MIN_CUT_SIDE_1 stand for the sides themselves, so a cost against them is a preference.
 * (Maximum flow, Dinic's algorithm; sizes here are thousands.)
 */
#ifndef ENGINE_MIN_CUT_H
#define ENGINE_MIN_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

#define MIN_CUT_NEVER (UINT64_C(1) << 60)
enum { MIN_CUT_SIDE_0 = 0, MIN_CUT_SIDE_1 = 1, MIN_CUT_FIRST = 2 };

struct min_cut_edge {
    uint32_t to;
    uint32_t next; /* edge of the same tail; 0: none */
    uint64_t room;
};

struct min_cut {
    struct arena *arena;
    uint32_t things, things_room;
    uint32_t *first; /* edge by thing; 0: none */
    uint32_t edges, edges_room;
    struct min_cut_edge *edge; /* edge e and e ^ 1 are each other's reverse */
    uint32_t *level, *cursor, *queue;
};

/* Room for so many things (the two sides included) and costs; memory is the arena's. */
MUST_CHECK enum status min_cut_init(struct min_cut *cut, struct arena *arena, uint32_t things,
                                    uint32_t costs);
uint32_t min_cut_thing(struct min_cut *cut);
void min_cut_cost(struct min_cut *cut, uint32_t on_0, uint32_t on_1, uint64_t cost);
/* After this min_cut_side() tells. */
void min_cut_solve(struct min_cut *cut);
bool min_cut_side(const struct min_cut *cut, uint32_t thing); /* false: side 0 */

#endif
