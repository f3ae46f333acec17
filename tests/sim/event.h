#ifndef SLUICE_TESTS_SIM_EVENT_H
#define SLUICE_TESTS_SIM_EVENT_H

#include "stream.h"

enum { EVENT_MAGIC = 0x65766e74 };

struct CUevent_st {
    uint32_t magic;
    unsigned flags;
    int device;
    struct CUevent_st *next;
    struct CUstream_st *stream; /* NULL: never recorded */
    uint64_t ticket;
    uint64_t generation;     /* how often recorded */
    int64_t nanoseconds;     /* when the last record ran */
    struct capture *capture; /* recorded inside this capture ... */
    struct node_set *after;  /* ... behind these nodes */
};

/* The record's work: notes the time. */
void event_run(struct CUevent_st *event, uint64_t generation);

#endif
