/* The command line of sluiced. */
#ifndef LIFECYCLE_OPTIONS_H
#define LIFECYCLE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "config/config.h"

enum action {
    ACTION_RUN,
    ACTION_CHECK_CONFIG,
    ACTION_DUMP_CONFIG,
    ACTION_EXPLAIN_PLAN,
    ACTION_LIST_OPS,
    ACTION_LIST_KERNELS,
    ACTION_VERSION,
    ACTION_HELP,
};

enum { OPTION_SETS = 64 };

struct options {
    enum action action;
    struct config_source source; /* sets: `sets` below */
    const char *sets[OPTION_SETS];
    char repository_set[4096]; /* --model-repository as a set */
    const char *model_file;    /* of ACTION_EXPLAIN_PLAN */
    int64_t batch;             /* 0: not given */
    bool as_json;
    bool profile;
};

/* Texts stay in argv.  STATUS_INVALID says which option, found, allowed.  `options` points into
 * itself: it must stay where it is. */
MUST_CHECK enum status options_read(struct options *options, int argc, char **argv,
                                    struct error *err);
void options_help(FILE *to);

#endif
