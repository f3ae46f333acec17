#define LOG_COMPONENT "device"
#include "device/cuda/dnn/plan.h"

#include <stdlib.h>

#include "device/cuda/dnn/graph.h"
#include "observe/log.h"

enum { CONFIGS = 64, NOTES = 32, KNOBS = 48 };

/* ---- engines ---- */

static bool has(const int32_t *notes, int64_t count, int32_t first, int32_t last)
{
    for (int64_t i = 0; i < count; i++)
        if (notes[i] >= first && notes[i] <= last)
            return true;
    return false;
}

/* Whether the engine's notes allow it. */
static bool allowed(struct dnn_builder *builder, const struct dnn_graph *graph, dnn_part engine)
{
    int32_t notes[NOTES], behaviour[NOTES];
    bool whole = graph->dtype == DTYPE_FLOAT && graph->precision == CUDA_STRICT;
    int64_t count = dnn_ask(builder, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                            CUDNN_TYPE_NUMERICAL_NOTE, NOTES, notes);
    int64_t ways = dnn_ask(builder, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                           CUDNN_TYPE_BEHAVIOR_NOTE, NOTES, behaviour);

    if (has(behaviour, ways,
            graph->compiled ? CUDNN_BEHAVIOR_NOTE_REQUIRES_FILTER_INT8x32_REORDER
                            : CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION,
            CUDNN_BEHAVIOR_NOTE_REQUIRES_BIAS_INT8x32_REORDER))
        return false;
    if (has(notes, count, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
            CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13))
        return false;
    return !whole || !has(notes, count, CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                          CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
}

/* The configuration's engine and knobs on another graph. */
static dnn_part transplant(struct dnn_builder *builder, dnn_part config, int64_t index,
                           dnn_part graph)
{
    dnn_part knobs[KNOBS], engine, other;
    int64_t count;

    for (size_t i = 0; i < KNOBS; i++)
        knobs[i] = dnn_make(builder, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    count = dnn_ask(builder, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                    CUDNN_TYPE_BACKEND_DESCRIPTOR, KNOBS, knobs);
    engine = dnn_make(builder, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    dnn_set(builder, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &graph);
    dnn_set(builder, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
    if (builder->plan->dnn->properties != NULL)
        dnn_set(builder, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                &builder->plan->dnn->properties);
    dnn_finalize(builder, engine);
    other = dnn_make(builder, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    dnn_set(builder, other, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    if (count > 0)
        dnn_set(builder, other, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                count, knobs);
    dnn_finalize(builder, other);
    return other;
}

/* Makes the plan of what is set by one attribute; the builder's status says whether it worked. */
static void finish_by(struct dnn_builder *builder, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    const struct dnn *dnn = builder->plan->dnn;
    dnn_part plan = dnn_make(builder, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);

    dnn_set(builder, plan, name, type, count, values);
    if (dnn->properties != NULL)
        dnn_set(builder, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                1, &dnn->properties);
    else
        dnn_set(builder, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &dnn->maker);
    dnn_finalize(builder, plan);
    (void)dnn_ask(builder, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                  &builder->plan->workspace_bytes);
    if (builder->status == CUDNN_STATUS_SUCCESS)
        builder->plan->plan = plan;
}

static void finish(struct dnn_builder *builder, dnn_part config)
{
    finish_by(builder, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
              &config);
}

/* Descriptors behind the first `count` are destroyed. */
static void forget(struct dnn_plan *plan, size_t count)
{
    while (plan->count > count)
        (void)plan->dnn->cudnnBackendDestroyDescriptor(plan->parts[--plan->count]);
}

/* ---- the heuristic ---- */

static int64_t ask_heuristic(struct dnn_builder *builder, dnn_part graph,
                             cudnnBackendHeurMode_t mode, dnn_part configs[CONFIGS])
{
    dnn_part heuristic = dnn_make(builder, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);

    dnn_set(builder, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    dnn_set(builder, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (builder->plan->dnn->properties != NULL)
        dnn_set(builder, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                1, &builder->plan->dnn->properties);
    dnn_finalize(builder, heuristic);
    for (size_t i = 0; i < CONFIGS; i++)
        configs[i] = dnn_make(builder, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    return dnn_ask(builder, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                   CONFIGS, configs);
}

/* What says nothing of the engine. */
static bool is_hindrance(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING ||
           dnn_status(status) == STATUS_NO_MEMORY ||
           CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_EXECUTION_FAILED;
}

/* Tries one configuration that was found with DNN_IMAGES; true when there is a plan. */
static bool try_config(struct dnn_builder *builder, const struct dnn_graph *graph, dnn_part config,
                       dnn_part real)
{
    size_t before = builder->plan->count;
    dnn_part engine = dnn_make(builder, CUDNN_BACKEND_ENGINE_DESCRIPTOR);

    (void)dnn_ask(builder, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                  &engine);
    (void)dnn_ask(builder, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                  &builder->plan->engine);
    if (allowed(builder, graph, engine)) {
        finish(builder,
               real != NULL ? transplant(builder, config, builder->plan->engine, real) : config);
        if (builder->status == CUDNN_STATUS_SUCCESS)
            return true;
        if (real != NULL) {
            builder->status = CUDNN_STATUS_SUCCESS;
            finish(builder, config);
            builder->plan->inexact |= builder->status == CUDNN_STATUS_SUCCESS;
        }
    }
    builder->plan->rejected++;
    builder->plan->hindered |= is_hindrance(builder->status);
    forget(builder->plan, before);
    builder->status = CUDNN_STATUS_SUCCESS;
    return false;
}

/* Tries what one heuristic offers for DNN_IMAGES. */
static bool try_heuristic(struct dnn_builder *builder, const struct dnn_graph *graph,
                          dnn_part canonical, dnn_part real, cudnnBackendHeurMode_t mode)
{
    dnn_part configs[CONFIGS];
    int64_t offered = ask_heuristic(builder, canonical, mode, configs);

    /* One that knows nothing of such graphs is a failure to some versions, none to others. */
    builder->status = CUDNN_STATUS_SUCCESS;
    builder->plan->engines += offered;
    for (int64_t i = 0; i < offered; i++)
        if (try_config(builder, graph, configs[i], real))
            return true;
    return false;
}

static bool build(struct dnn_builder *builder, const struct dnn_graph *graph)
{
    dnn_part canonical = dnn_operations(builder, graph, DNN_IMAGES), real = NULL;

    int64_t images = graph->kind == DNN_ATTENTION ? graph->matrix[0].sizes[0] : graph->x[0];

    if (images != DNN_IMAGES)
        real = dnn_operations(builder, graph, images);
    if (builder->status != CUDNN_STATUS_SUCCESS)
        return false;
    return try_heuristic(builder, graph, canonical, real, CUDNN_HEUR_MODE_A) ||
           try_heuristic(builder, graph, canonical, real, CUDNN_HEUR_MODE_FALLBACK);
}

static void log_graph(const struct dnn_graph *graph, const struct dnn_plan *plan)
{
    char text[512];

    dnn_graph_format(graph, text, sizeof(text));
    log_debug("CUDA: cuDNN graph: %s: engine %lld of %lld, %lld bytes of workspace", text,
              (long long)plan->engine, (long long)plan->engines, (long long)plan->workspace_bytes);
}

enum status dnn_plan_make(const struct dnn *dnn, const struct dnn_graph *graph,
                          struct dnn_plan *out_plan, struct error *err)
{
    struct dnn_plan plan = {.dnn = dnn};
    struct dnn_builder builder = {.plan = &plan, .status = CUDNN_STATUS_SUCCESS};
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&dnn->lock;
    bool made;

    pthread_mutex_lock(lock);
    made = build(&builder, graph);
    pthread_mutex_unlock(lock);
    if (made) {
        log_graph(graph, &plan);
        *out_plan = plan;
        return STATUS_OK;
    }
    dnn_plan_free(&plan);
    *out_plan = (struct dnn_plan){.hindered = plan.hindered};
    if (builder.status != CUDNN_STATUS_SUCCESS && dnn_status(builder.status) != STATUS_INTERNAL)
        return error_set(err, dnn_status(builder.status), "cuDNN: %s",
                         dnn->cudnnGetErrorString(builder.status));
    /* What it finds wrong with a graph is its own limit: infer() has found the shapes right. */
    return error_set(err, STATUS_UNSUPPORTED, "cuDNN has none among %lld engines that will do (%s)",
                     (long long)plan.engines, dnn->cudnnGetErrorString(builder.status));
}

void dnn_plan_free(struct dnn_plan *plan)
{
    if (plan->dnn != NULL)
        forget(plan, 0);
    free(plan->parts);
    plan->parts = NULL;
    plan->room = 0;
}

/* ---- on disk ---- */

struct saved {
    int64_t engine, engines, rejected, inexact;
    char json[];
};

enum status dnn_plan_save(const struct dnn_plan *plan, void **out_bytes, size_t *out_count)
{
    const struct dnn *dnn = plan->dnn;
    struct saved *saved;
    int64_t room = 0, count = 0;
    cudnnStatus_t status = dnn->cudnnBackendGetAttribute(
        plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &room, NULL);

    if (status != CUDNN_STATUS_SUCCESS || room <= 0)
        return STATUS_UNSUPPORTED;
    saved = malloc(sizeof(*saved) + (size_t)room);
    if (saved == NULL)
        return STATUS_NO_MEMORY;
    *saved = (struct saved){plan->engine, plan->engines, plan->rejected, plan->inexact};
    status =
        dnn->cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                      CUDNN_TYPE_CHAR, room, &count, saved->json);
    if (status != CUDNN_STATUS_SUCCESS || count <= 0 || count > room) {
        free(saved);
        return STATUS_UNSUPPORTED;
    }
    *out_bytes = saved;
    *out_count = sizeof(*saved) + (size_t)count;
    return STATUS_OK;
}

enum status dnn_plan_load(const struct dnn *dnn, const void *bytes, size_t count,
                          struct dnn_plan *out_plan)
{
    const struct saved *saved = bytes;
    struct dnn_plan plan = {.dnn = dnn};
    struct dnn_builder builder = {.plan = &plan, .status = CUDNN_STATUS_SUCCESS};
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&dnn->lock;

    if (count <= sizeof(*saved))
        return STATUS_UNSUPPORTED;
    plan.engine = saved->engine;
    plan.engines = saved->engines;
    plan.rejected = saved->rejected;
    plan.inexact = saved->inexact != 0;
    pthread_mutex_lock(lock);
    finish_by(&builder, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
              (int64_t)(count - sizeof(*saved)), saved->json);
    pthread_mutex_unlock(lock);
    if (builder.status == CUDNN_STATUS_SUCCESS) {
        *out_plan = plan;
        return STATUS_OK;
    }
    dnn_plan_free(&plan);
    return dnn_status(builder.status);
}

/* ---- runs ---- */

static enum status run_by(const struct dnn_plan *plan, const struct dnn_operands *operands,
                          void *workspace, cudnnHandle_t handle, cudaStream_t stream)
{
    const struct dnn *dnn = plan->dnn;
    const void *all[] = {operands->x, operands->w, operands->bias, operands->z, operands->y};
    const void *addresses[5];
    dnn_part parts[1]; /* the pack, and no memory of its own */
    struct dnn_plan pack = {.dnn = dnn, .parts = parts, .room = 1};
    struct dnn_builder builder = {.plan = &pack, .status = CUDNN_STATUS_SUCCESS};
    int64_t ids[5], count = 0;
    dnn_part part;

    for (int64_t i = 0; i < 5; i++)
        if (all[i] != NULL) {
            addresses[count] = all[i];
            ids[count++] = DNN_X + i;
        }
    part = dnn_make(&builder, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    dnn_set(&builder, part, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    dnn_set(&builder, part, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
            addresses);
    dnn_set(&builder, part, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    dnn_finalize(&builder, part);
    if (builder.status == CUDNN_STATUS_SUCCESS)
        builder.status = dnn->cudnnSetStream(handle, stream);
    if (builder.status == CUDNN_STATUS_SUCCESS)
        builder.status = dnn->cudnnBackendExecute(handle, plan->plan, part);
    forget(&pack, 0);
    return dnn_status(builder.status);
}

enum status dnn_plan_run(const struct dnn_plan *plan, const struct dnn_operands *operands,
                         void *workspace, size_t lane, cudaStream_t stream)
{
    if (lane >= plan->dnn->lanes)
        return STATUS_INTERNAL;
    return run_by(plan, operands, workspace, plan->dnn->lane[lane], stream);
}

enum status dnn_plan_try(const struct dnn_plan *plan, const struct dnn_operands *operands,
                         void *workspace, cudaStream_t stream)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&plan->dnn->lock;
    enum status status;

    pthread_mutex_lock(lock);
    status = run_by(plan, operands, workspace, plan->dnn->maker, stream);
    pthread_mutex_unlock(lock);
    return status;
}
