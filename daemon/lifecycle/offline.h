/* What sluiced answers without serving: plans, operators, kernels. */
#ifndef LIFECYCLE_OFFLINE_H
#define LIFECYCLE_OFFLINE_H

#include <stdio.h>

#include "config/config.h"

/* Plans the model of `file` on the configured device for `batch` rows (0: 1) and prints the plan.
 * Other open dimensions count as 1, which the table says. */
MUST_CHECK enum status offline_explain_plan(const struct config *config, const char *file,
                                            int64_t batch, bool as_json, FILE *to,
                                            struct error *err);
void offline_list_ops(FILE *to);
MUST_CHECK enum status offline_list_kernels(const struct config *config, FILE *to,
                                            struct error *err);

#endif
