/* What planner_search.c (the search) and planner_try.c (making one ready) share. */
#ifndef GRAPH_PLANNER_SEARCH_H
#define GRAPH_PLANNER_SEARCH_H

#include "graph/planner_internal.h"

#define SEARCH_NO_FRAME UINT32_MAX

struct search_range { /* of sections */
    uint32_t first, end;
};

/* Buffers left that share sections only among themselves: search->list[from..to). */
struct search_part {
    uint32_t from, to;
    struct search_range sections;
    uint32_t parent; /* frame of the decision that parted it; or SEARCH_NO_FRAME */
};

/* One part and the decision made in it: about search->list[part.from]. */
struct search_frame {
    struct search_part part;
    uint32_t waiting;      /* parts that waited before the decision */
    uint32_t trail_before; /* changes before it */
};

struct search_undo {
    uint32_t cell;
    int32_t value;
};

struct search_key {
    double major, minor;
};

struct search {
    const struct problem *problem;
    uint32_t count, sections;
    uint64_t unit; /* bytes of a unit */
    bool exact;    /* all sizes are multiples of the unit */
    int64_t deadline_us;
    const atomic_bool *cancelled;

    /* Of one try.  Buffers are numbered by preference, the most preferred is 0. */
    int32_t target;
    enum search_focus focus;
    uint64_t work, work_limit, work_checked;
    uint64_t fails, fail_limit;
    bool is_spent;
    struct search_range latest; /* of the buffer placed last */
    uint32_t *original;         /* per buffer: its number in the problem */
    int32_t *size;              /* per buffer, units */
    struct search_range *life;  /* per buffer */
    int32_t *offset;            /* per buffer, of those placed */
    uint32_t *list;             /* buffers: placed ones, then those of the parts */

    int32_t *cells; /* the three below, all that is undone */
    int32_t *low;   /* per buffer: it cannot start lower */
    int32_t *floor; /* per section: end of what is placed */
    int32_t *room;  /* per section: the highest low that the next one there may have */

    uint64_t *weight;        /* per section: 1 + how often it refuted, over all tries */
    int32_t *level;          /* per section, scratch */
    int32_t *choices;        /* per section, scratch */
    uint64_t *sorted;        /* per buffer, scratch */
    struct search_key *keys; /* per buffer of the problem, scratch */

    struct search_frame *frames;
    uint32_t depth;
    struct search_part *waiting;
    uint32_t waiting_count;
    struct search_undo *trail;
    uint32_t trail_count, trail_room;
};

/* Makes list[whole.from..to) waiting parts that share no section. */
void search_divide(struct search *search, struct search_part whole);
/* Searches from the waiting parts on. */
enum search_outcome search_explore(struct search *search);

#endif
