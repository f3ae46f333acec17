/* Which versions of those on disk a model's policy wants.  Lists are ascending; pure. */
#ifndef MODELS_VERSIONS_H
#define MODELS_VERSIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/model_config.pb-c.h"

bool versions_contain(const int64_t *versions, size_t count, int64_t version);
/* Whether the policy (NULL: the latest one) wants `version`, the `rank`th of those on disk counted
 * from the newest. */
bool versions_wanted(const Inference__ModelVersionPolicy *policy, int64_t version, size_t rank);
/* STATUS_NOT_FOUND: there are none, or not one that a specific policy names. */
MUST_CHECK enum status versions_check(const Inference__ModelConfig *config, const char *name,
                                      const int64_t *versions, size_t count, struct error *err);

#endif
