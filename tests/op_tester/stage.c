/* One run of one kernel. */
#include "op_tester/internal.h"

#include "graph/fusion.h"

void *test_take(size_t bytes)
{
    size_t whole = (bytes + 63) / 64 * 64;
    void *data = aligned_alloc(64, whole > 0 ? whole : 64);

    assert_non_null(data);
    memset(data, 0, whole > 0 ? whole : 64);
    return data;
}

size_t stage_residual(const struct stage *stage)
{
    const struct node node = {.op = stage->call.op,
                              .attrs = (void *)(uintptr_t)stage->call.attrs,
                              .inputs = stage->call.inputs};

    return node_residual_index(&node);
}

void stage_init(struct stage *stage, const struct trial *trial, int team)
{
    unsigned block = trial->tester->devices[team]->channel_block;

    memset(stage, 0, sizeof(*stage));
    for (size_t i = 0; i < trial->test->inputs; i++) {
        const struct tensor *tensor = &trial->in[i];
        struct operand *operand = &stage->operands[i];
        bool constant = trial->test->in[i].constant;

        if (tensor->dtype == DTYPE_NONE)
            continue;
        stage->in[i] = operand;
        *operand = (struct operand){.dtype = tensor->dtype,
                                    .shape = tensor->shape,
                                    .layout = layout_of(i == 0 ? trial->in_layout : trial->layout,
                                                        &tensor->shape, constant),
                                    .constant = constant ? tensor->data : NULL,
                                    .constant_key = constant ? (void *)(uintptr_t)tensor : NULL};
        stage->in_bytes[i] =
            packed_elements(operand->layout, block, &tensor->shape) * dtype_bytes(tensor->dtype);
        stage->in_data[i] = test_take(stage->in_bytes[i]);
        if (operand->layout == LAYOUT_PLAIN)
            memcpy(stage->in_data[i], tensor->data, tensor_bytes(tensor));
        else
            repack(operand->layout, block, tensor, stage->in_data[i], false);
    }
    for (size_t i = 0; i < trial->outputs; i++) {
        const struct tensor *tensor = &trial->out[i];
        struct operand *operand = &stage->operands[OP_TEST_OPERANDS + i];

        stage->out[i] = operand;
        *operand = (struct operand){
            .dtype = tensor->dtype,
            .shape = tensor->shape,
            .layout = layout_of(i == 0 ? trial->out_layout : trial->layout, &tensor->shape, false)};
        stage->out_bytes[i] =
            packed_elements(operand->layout, block, &tensor->shape) * dtype_bytes(tensor->dtype);
        stage->out_data[i] = test_take(stage->out_bytes[i]);
        memset(stage->out_data[i], 0x5A, stage->out_bytes[i]);
        stage->out_shapes[i] = tensor->shape;
    }
    stage->call = (struct kernel_call){.op = trial->op,
                                       .attrs = trial->attrs,
                                       .inputs = trial->test->inputs,
                                       .in = stage->in,
                                       .outputs = trial->outputs,
                                       .out = stage->out,
                                       .device = trial->tester->devices[team],
                                       .threads = team == 0 ? 1 : SEVERAL_THREADS};
}

void stage_deinit(struct stage *stage)
{
    for (size_t i = 0; i < OP_TEST_OPERANDS; i++) {
        free(stage->in_data[i]);
        free(stage->out_data[i]);
    }
}

static const void *run_input(const struct stage *stage, const struct kernel_prepare *prepare,
                             size_t i)
{
    if (stage->in[i] == NULL)
        return NULL;
    if (stage->in[i]->constant != NULL && (prepare->constants_used >> i & 1) == 0)
        return NULL;
    return stage->in_data[i];
}

static enum status enqueue_on_host(const struct stage *stage, struct op_tester *tester,
                                   const struct kernel *kernel,
                                   const struct kernel_prepare *prepare, struct kernel_run *run)
{
    struct device *device = stage->call.device;
    void *scratch = test_take(prepare->scratch_bytes);
    enum status status;

    (void)tester;
    run->scratch = scratch;
    device->ops->lane_enter(run->lane);
    status = kernel->enqueue(prepare->state, &stage->call, run);
    if (status == STATUS_OK)
        status = device->ops->lane_wait(run->lane);
    free(scratch);
    return status;
}

/* Operands go to the device and results come back. */
static enum status enqueue_on_device(const struct stage *stage, struct op_tester *tester,
                                     const struct kernel *kernel,
                                     const struct kernel_prepare *prepare, struct kernel_run *run)
{
    const struct device_ops *ops = stage->call.device->ops;
    const void *in[OP_TEST_OPERANDS] = {NULL}, *const *host_in = run->in;
    void *out[OP_TEST_OPERANDS] = {NULL};
    bool intact = true;
    enum status status;

    ops->lane_enter(run->lane);
    for (size_t i = 0; i < stage->call.outputs; i++)
        if (stage->out[i] != NULL)
            out[i] = room_take(tester, stage->out_bytes[i], stage->out_data[i]);
    for (size_t i = 0; i < stage->call.inputs; i++)
        if (host_in[i] != NULL && host_in[i] == stage->out_data[0])
            in[i] = out[0];
        else if (host_in[i] != NULL)
            in[i] = room_take(tester, stage->in_bytes[i], host_in[i]);
    run->in = in;
    run->out = out;
    run->scratch = room_take(tester, prepare->scratch_bytes, NULL);
    status = kernel->enqueue(prepare->state, &stage->call, run);
    if (status == STATUS_OK)
        status = ops->lane_wait(run->lane);
    for (size_t i = 0; status == STATUS_OK && i < stage->call.outputs; i++)
        if (out[i] != NULL)
            intact = room_fetch(tester, out[i], stage->out_bytes[i], stage->out_data[i]) && intact;
    room_clear(tester);
    if (!intact)
        fail_msg("%s of %s wrote behind its output", kernel->name, stage->call.op->name);
    return status;
}

enum status stage_run(struct stage *stage, struct op_tester *tester, const struct kernel *kernel,
                      int team, enum way way, struct error *err)
{
    struct kernel_prepare prepare = {.call = stage->call, .weights = tester->weights};
    const void *in[OP_TEST_OPERANDS];
    struct kernel_run run = {.in = in,
                             .out = stage->out_data,
                             .lane = tester->lanes[team],
                             .out_shapes = stage->out_shapes,
                             .strings = tester->strings};
    enum status status = STATUS_OK;

    if (kernel->prepare != NULL)
        status = kernel->prepare(&prepare, err);
    else
        prepare.constants_used = UINT32_MAX;
    if (status != STATUS_OK)
        return status;
    if (strstr(prepare.note, "ref") != NULL)
        fail_msg("%s: '%s' is reference code, far too slow", kernel->name, prepare.note);
    for (size_t i = 0; i < stage->call.inputs; i++)
        in[i] = run_input(stage, &prepare, i);
    if (way != APART) {
        const size_t over = way == IN_PLACE ? 0 : stage_residual(stage);

        memcpy(stage->out_data[0], stage->in_data[over], stage->out_bytes[0]);
        in[over] = stage->out_data[0];
    }
    if (tester->devices[team]->ops->host_memory)
        status = enqueue_on_host(stage, tester, kernel, &prepare, &run);
    else
        status = enqueue_on_device(stage, tester, kernel, &prepare, &run);
    if (kernel->release != NULL)
        kernel->release(prepare.state);
    return status;
}
