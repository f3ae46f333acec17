#include "part.h"

#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x70617274 };

cudnnStatus_t dnn_wrong(const char *call, const char *what)
{
    sim_find("%s: %s", call, what);
    return CUDNN_STATUS_BAD_PARAM;
}

/* Row: what a descriptor may be given, how many of it, and whether it must be. */
static const struct rule {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t values;
    int64_t most;
    bool required;
} rules[] = {
#define RULE(type, name, values, most, required)                                                   \
    {CUDNN_BACKEND_##type##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##values, most, required},
#include "rules.def"
#undef RULE
};

static const struct rule *find_rule(cudnnBackendDescriptorType_t type,
                                    cudnnBackendAttributeName_t name)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (rules[i].type == type && rules[i].name == name)
            return &rules[i];
    return NULL;
}

static size_t bytes_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    case CUDNN_TYPE_CHAR:
        return 1;
    default:
        return 4; /* float and enumerations */
    }
}

/* ---- looking ---- */

struct part *part_of(cudnnBackendDescriptor_t descriptor, const char *call)
{
    struct part *part = descriptor;

    if (part != NULL && part->magic == MAGIC)
        return part;
    sim_find("%s: not a descriptor, or one that was destroyed", call);
    return NULL;
}

const struct attribute *part_find(const struct part *part, cudnnBackendAttributeName_t name)
{
    for (size_t i = 0; i < part->count; i++)
        if (part->attributes[i].name == name)
            return &part->attributes[i];
    return NULL;
}

int64_t part_number(const struct part *part, cudnnBackendAttributeName_t name, int64_t absent)
{
    const struct attribute *attribute = part_find(part, name);
    const struct rule *rule = find_rule(part->type, name);

    if (attribute == NULL || attribute->count == 0)
        return absent;
    if (bytes_of(rule->values) == 8)
        return *(const int64_t *)attribute->values;
    if (bytes_of(rule->values) == 4)
        return *(const int32_t *)attribute->values;
    return *(const uint8_t *)attribute->values;
}

const struct part *part_child(const struct part *part, cudnnBackendAttributeName_t name,
                              int64_t index)
{
    const struct attribute *attribute = part_find(part, name);

    if (attribute == NULL || index >= attribute->count)
        return NULL;
    return ((struct part *const *)attribute->values)[index];
}

int64_t part_count(const struct part *part, cudnnBackendAttributeName_t name)
{
    const struct attribute *attribute = part_find(part, name);

    return attribute == NULL ? 0 : attribute->count;
}

/* ---- life ---- */

SIM_EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                      cudnnBackendDescriptor_t *out_descriptor)
{
    int failure = sim_library_call("cudnnBackendCreateDescriptor");
    struct part *part;

    if (failure != 0)
        return (cudnnStatus_t)failure;
    part = calloc(1, sizeof(*part));
    if (part == NULL)
        return CUDNN_STATUS_ALLOC_FAILED;
    part->magic = MAGIC;
    part->type = type;
    part->references = 1;
    *out_descriptor = part;
    return CUDNN_STATUS_SUCCESS;
}

static void drop(struct part *part);

static void release(struct attribute *attribute, bool are_parts)
{
    for (int64_t i = 0; are_parts && i < attribute->count; i++)
        drop(((struct part **)attribute->values)[i]);
    free(attribute->values);
}

static void drop(struct part *part)
{
    if (__atomic_sub_fetch(&part->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (size_t i = 0; i < part->count; i++)
        release(&part->attributes[i], find_rule(part->type, part->attributes[i].name)->values ==
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR);
    sim_plan_drop(part->held);
    part->magic = 0;
    free(part);
}

SIM_EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    struct part *part = part_of(descriptor, __func__);

    (void)sim_library_call("cudnnBackendDestroyDescriptor");
    if (part == NULL)
        return CUDNN_STATUS_BAD_PARAM;
    drop(part);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t part_put(struct part *part, cudnnBackendAttributeName_t name, int64_t count,
                       const void *values, size_t bytes, bool are_parts)
{
    struct attribute *attribute = (struct attribute *)(uintptr_t)part_find(part, name);
    void *copy = malloc(bytes + 1);

    if (copy == NULL)
        return CUDNN_STATUS_ALLOC_FAILED;
    memcpy(copy, values, bytes);
    for (int64_t i = 0; are_parts && i < count; i++)
        __atomic_add_fetch(&((struct part **)copy)[i]->references, 1, __ATOMIC_RELAXED);
    if (attribute == NULL)
        attribute = &part->attributes[part->count++];
    else
        release(attribute, are_parts);
    *attribute = (struct attribute){name, count, copy};
    return CUDNN_STATUS_SUCCESS;
}

SIM_EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                  cudnnBackendAttributeName_t name,
                                                  cudnnBackendAttributeType_t type, int64_t count,
                                                  const void *values)
{
    struct part *part = part_of(descriptor, __func__);
    const struct rule *rule;

    if (part == NULL)
        return CUDNN_STATUS_BAD_PARAM;
    rule = find_rule(part->type, name);
    if (part->finalized)
        return dnn_wrong(__func__, "the descriptor is final");
    if (rule == NULL)
        return dnn_wrong(__func__, "an attribute that this descriptor does not have");
    if (rule->values != type)
        return dnn_wrong(__func__, "values of another type");
    if (count < 1 || count > rule->most || values == NULL)
        return dnn_wrong(__func__, "a number of values that is not allowed");
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < count; i++) {
            struct part *child = part_of(((void *const *)values)[i], __func__);

            if (child == NULL || !child->finalized)
                return dnn_wrong(__func__, "a descriptor that is not final is named");
        }
    return part_put(part, name, count, values, (size_t)count * bytes_of(type),
                    type == CUDNN_TYPE_BACKEND_DESCRIPTOR);
}

SIM_EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    struct part *part = part_of(descriptor, __func__);
    int failure = sim_library_call("cudnnBackendFinalize");
    const char *wrong;

    if (failure != 0)
        return (cudnnStatus_t)failure;
    if (part == NULL)
        return CUDNN_STATUS_BAD_PARAM;
    if (part->finalized)
        return dnn_wrong(__func__, "finalized twice");
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (rules[i].type == part->type && rules[i].required &&
            part_find(part, rules[i].name) == NULL) {
            sim_find("%s: attribute %d is missing", __func__, (int)rules[i].name);
            return CUDNN_STATUS_BAD_PARAM;
        }
    wrong = part_check(part);
    if (wrong != NULL)
        return dnn_wrong(__func__, wrong);
    if (part->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && plan_compiles(part)) {
        failure = sim_library_call("cudnnCompile");
        if (failure != 0)
            return (cudnnStatus_t)failure;
    }
    if (part->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
        part->held = sim_plan_hold();
    part->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}
