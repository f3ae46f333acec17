/* From raw scores to what a classic model answers. */
#ifndef DEVICE_CPU_SCORES_H
#define DEVICE_CPU_SCORES_H

#include "ops/ml.h"

struct string_heap;

void scores_transform(enum post_transform post, double *scores, size_t count);

/* Writes label `index` as element `at` of an INT64 or STRING tensor. */
MUST_CHECK enum status scores_put_label(const struct ints *numbers, const struct strings *texts,
                                        size_t index, void *labels, size_t at,
                                        struct string_heap *strings);

#endif
