/* What sluiced answers without serving: plans, operators, kernels. */
#ifndef LIFECYCLE_OFFLINE_H
#define LIFECYCLE_OFFLINE_H

#include <stdio.h>

#include "config/config.h"

/* What is asked about a model's file. */
struct offline_question {
    const char *file;
    int64_t batch; /* rows; 0: 1 */
    bool as_json;
    bool profile; /* runs the plan, and tells what each step takes */
};

/* Plans the model on the configured device and prints the plan.  Other open dimensions count as 1,
 * which the table says. */
MUST_CHECK enum status offline_explain_plan(const struct config *config,
                                            const struct offline_question *question, FILE *to,
                                            struct error *err);
void offline_list_ops(FILE *to);
MUST_CHECK enum status offline_list_kernels(const struct config *config, FILE *to,
                                            struct error *err);

#endif
