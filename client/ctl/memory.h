/* What the files of `sluicectl memory` share. */
#ifndef CTL_MEMORY_H
#define CTL_MEMORY_H

#include "ctl.h"

/* memory --snapshot FILE: as a pickle, or as JSON when the name ends in .json. */
int memory_snapshot(struct ctl *ctl, const char *file);

struct watch_options {
    double interval_s;
    uint64_t count; /* of pictures; 0: until it is interrupted */
};
/* memory --watch: a chart on a terminal, lines otherwise. */
int memory_watch(struct ctl *ctl, const struct watch_options *options);

#endif
