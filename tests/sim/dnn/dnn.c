/* A simulated libcudnn.so.9: handles, what engines and plans answer, and running them. */
#include "part.h"

#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x646E6E68 };

struct cudnnContext {
    uint32_t magic;
    cudaStream_t stream;
};

SIM_EXPORT size_t cudnnGetVersion(void)
{
    return 91900;
}

SIM_EXPORT const char *cudnnGetErrorString(cudnnStatus_t status)
{
    switch (status) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_ALLOC_FAILED:
        return "CUDNN_STATUS_ALLOC_FAILED";
    default:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    }
}

/* ---- handles ---- */

static bool is_handle(cudnnHandle_t handle)
{
    return handle != NULL && handle->magic == MAGIC;
}

SIM_EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t *out_handle)
{
    int failure = sim_library_call("cudnnCreate");

    if (failure != 0)
        return (cudnnStatus_t)failure;
    *out_handle = calloc(1, sizeof(**out_handle));
    if (*out_handle == NULL)
        return CUDNN_STATUS_ALLOC_FAILED;
    (*out_handle)->magic = MAGIC;
    return CUDNN_STATUS_SUCCESS;
}

SIM_EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    if (!is_handle(handle))
        return dnn_wrong(__func__, "not a handle");
    handle->magic = 0;
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

SIM_EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    if (!is_handle(handle))
        return dnn_wrong(__func__, "not a handle");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- answers ---- */

static cudnnStatus_t fill_config(struct part *config, const struct part *graph,
                                 const struct engine *engine)
{
    cudnnBackendDescriptor_t made;
    struct part *part;
    cudnnStatus_t status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &made);

    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    part = made;
    (void)part_put(part, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 1, &graph, sizeof(graph), true);
    (void)part_put(part, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1, &engine->index, sizeof(engine->index),
                   false);
    part->finalized = true;
    status = part_put(config, CUDNN_ATTR_ENGINECFG_ENGINE, 1, &part, sizeof(part), true);
    config->finalized = true;
    (void)cudnnBackendDestroyDescriptor(part);
    return status;
}

static cudnnStatus_t answer_heuristic(const struct part *heuristic, int64_t room,
                                      int64_t *out_count, void *values)
{
    const struct part *graph = part_child(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 0);
    int64_t mode = part_number(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, -1);
    struct engine engines[8];
    struct network network;
    size_t count;

    (void)network_read(graph, &network);
    count = engines_for(&network, (cudnnBackendHeurMode_t)mode, engines);
    *out_count = (int64_t)count;
    for (size_t i = 0; (int64_t)i < room && i < count; i++) {
        struct part *config = part_of(((void **)values)[i], "cudnnBackendGetAttribute");

        if (config == NULL || config->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR ||
            config->finalized)
            return dnn_wrong("cudnnBackendGetAttribute", "no empty configuration to fill");
        if (fill_config(config, graph, &engines[i]) != CUDNN_STATUS_SUCCESS)
            return CUDNN_STATUS_ALLOC_FAILED;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Fills an empty engine with the configuration's. */
static cudnnStatus_t answer_engine(const struct part *config, int64_t *out_count, void *values)
{
    const struct part *from = part_child(config, CUDNN_ATTR_ENGINECFG_ENGINE, 0);
    struct part *to = part_of(*(void **)values, "cudnnBackendGetAttribute");
    const struct part *graph = part_child(from, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 0);
    int64_t index = part_number(from, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);

    if (to == NULL || to->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR || to->finalized)
        return dnn_wrong("cudnnBackendGetAttribute", "no empty engine to fill");
    (void)part_put(to, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 1, &graph, sizeof(graph), true);
    (void)part_put(to, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1, &index, sizeof(index), false);
    to->finalized = true;
    *out_count = 1;
    return CUDNN_STATUS_SUCCESS;
}

static void engine_of(const struct part *part, struct network *network, struct engine *engine)
{
    memset(engine, 0, sizeof(*engine));
    (void)network_read(part_child(part, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 0), network);
    (void)engine_find(network, part_number(part, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1), engine);
}

static cudnnStatus_t answer_notes(const struct part *part, bool behaviour, int64_t room,
                                  int64_t *out_count, int32_t *values)
{
    struct network network;
    struct engine engine;

    engine_of(part, &network, &engine);
    if (behaviour) {
        *out_count = engine.compiles ? 1 : 0;
        if (engine.compiles && room > 0)
            values[0] = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
        return CUDNN_STATUS_SUCCESS;
    }
    *out_count = engine.note_count;
    for (int64_t i = 0; i < engine.note_count && i < room; i++)
        values[i] = engine.notes[i];
    return CUDNN_STATUS_SUCCESS;
}

static void engine_of_plan(const struct part *plan, struct network *network, struct engine *engine)
{
    const struct part *config = part_child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 0);
    const struct attribute *text = part_find(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);

    memset(engine, 0, sizeof(*engine));
    if (config == NULL)
        (void)plan_read(text->values, (size_t)text->count, network, engine);
    else
        engine_of(part_child(config, CUDNN_ATTR_ENGINECFG_ENGINE, 0), network, engine);
}

bool plan_compiles(const struct part *plan)
{
    struct network network;
    struct engine engine;

    engine_of_plan(plan, &network, &engine);
    return part_find(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) != NULL && engine.compiles;
}

static cudnnStatus_t answer_text(const struct part *plan, int64_t room, int64_t *out_count,
                                 char *text)
{
    const size_t bytes = plan_text_bytes();
    struct network network;
    struct engine engine;

    engine_of_plan(plan, &network, &engine);
    *out_count = (int64_t)bytes;
    if (room >= (int64_t)bytes)
        plan_write(&network, engine.index, text);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t put_number(int64_t number, int64_t *out_count, void *values)
{
    *(int64_t *)values = number;
    *out_count = 1;
    return CUDNN_STATUS_SUCCESS;
}

SIM_EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                                  cudnnBackendAttributeName_t name,
                                                  cudnnBackendAttributeType_t type, int64_t room,
                                                  int64_t *out_count, void *values)
{
    struct part *part = part_of(descriptor, __func__);
    struct network network;
    struct engine engine;

    (void)type;
    if (part == NULL)
        return CUDNN_STATUS_BAD_PARAM;
    if (!part->finalized)
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return answer_heuristic(part, room, out_count, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        return answer_engine(part, out_count, values);
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
        *out_count = 0;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        return put_number(part_number(part, name, -1), out_count, values);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        return answer_notes(part, false, room, out_count, values);
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
        return answer_notes(part, true, room, out_count, values);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        engine_of_plan(part, &network, &engine);
        return put_number(engine.workspace_bytes, out_count, values);
    case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION:
        return answer_text(part, room, out_count, values);
    default:
        return dnn_wrong(__func__, "an attribute that is not simulated");
    }
}

/* ---- running ---- */

/* NULL, and addresses in the job, or what is wrong. */
static const char *place_tensors(struct job *job, const struct part *pack)
{
    const int64_t *ids = part_find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->values;
    void *const *addresses = part_find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->values;
    int64_t count = part_count(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS), placed = 0;

    for (size_t i = 0; i < job->network.tensors; i++) {
        struct tensor *tensor = &job->network.tensor[i];

        for (int64_t k = 0; k < count && !tensor->inner; k++)
            if (ids[k] == tensor->id) {
                tensor->at = addresses[k];
                placed++;
            }
        if (tensor->by_value && tensor->at != NULL)
            tensor->value = *(const float *)tensor->at; /* read now, whenever it runs */
        if (!tensor->inner && tensor->at == NULL)
            return "a tensor without an address";
        if (!tensor->by_value && (uintptr_t)tensor->at % (uintptr_t)tensor->alignment != 0)
            return "an address that is not aligned as the tensor says";
    }
    if (placed != count)
        return "an address for a tensor that the graph does not have";
    job->workspace = *(void *const *)part_find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->values;
    if (job->engine.workspace_bytes > 0 &&
        (job->workspace == NULL || (uintptr_t)job->workspace % 16 != 0))
        return "no workspace, or one out of line";
    return NULL;
}

SIM_EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                             cudnnBackendDescriptor_t pack)
{
    int failure = sim_library_call("cudnnBackendExecute");
    const struct part *plan_part = part_of(plan, __func__), *pack_part = part_of(pack, __func__);
    struct job job;
    const char *wrong;

    if (failure != 0)
        return (cudnnStatus_t)failure;
    if (!is_handle(handle) || plan_part == NULL || pack_part == NULL || !plan_part->finalized ||
        !pack_part->finalized)
        return dnn_wrong(__func__, "a wrong handle, or a descriptor that is not final");
    memset(&job, 0, sizeof(job));
    engine_of_plan(plan_part, &job.network, &job.engine);
    for (int64_t i = 0; i < job.engine.note_count; i++)
        job.tf32 = job.tf32 || job.engine.notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    wrong = place_tensors(&job, pack_part);
    if (wrong != NULL)
        return dnn_wrong(__func__, wrong);
    return sim_enqueue(handle->stream, "cudnnBackendExecute", job_run, &job, sizeof(job)) == 0
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_EXECUTION_FAILED;
}
