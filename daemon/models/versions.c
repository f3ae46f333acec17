#include "models/versions.h"

#include <inttypes.h>

bool versions_contain(const int64_t *versions, size_t count, int64_t version)
{
    for (size_t i = 0; i < count; i++)
        if (versions[i] == version)
            return true;
    return false;
}

bool versions_wanted(const Inference__ModelVersionPolicy *policy, int64_t version, size_t rank)
{
    if (policy == NULL || policy->policy_choice_case == 0)
        return rank == 0;
    switch (policy->policy_choice_case) {
    case INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_ALL:
        return true;
    case INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC:
        for (size_t i = 0; i < policy->specific->n_versions; i++)
            if (policy->specific->versions[i] == version)
                return true;
        return false;
    default:
        return rank < (policy->latest->num_versions == 0 ? 1 : policy->latest->num_versions);
    }
}

/* The first version that a specific policy names and that is not there; 0: all are. */
static int64_t missing_version(const Inference__ModelVersionPolicy *policy, const int64_t *versions,
                               size_t count)
{
    if (policy == NULL ||
        policy->policy_choice_case != INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC)
        return 0;
    for (size_t i = 0; i < policy->specific->n_versions; i++) {
        if (!versions_contain(versions, count, policy->specific->versions[i]))
            return policy->specific->versions[i];
    }
    return 0;
}

enum status versions_check(const Inference__ModelConfig *config, const char *name,
                           const int64_t *versions, size_t count, struct error *err)
{
    int64_t missing = missing_version(config->version_policy, versions, count);

    if (count == 0)
        return error_set(err, STATUS_NOT_FOUND,
                         "model '%s' has no version: a folder with a number, as in %s/1/model.onnx",
                         name, name);
    if (missing != 0)
        return error_set(err, STATUS_NOT_FOUND,
                         "model '%s': version_policy wants version %" PRId64 ", which is not there",
                         name, missing);
    return STATUS_OK;
}
