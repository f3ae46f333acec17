#include "graph/fusion.h"
#include "op_tester/internal.h"

struct op_tester *op_tester_create(const char *device)
{
    struct op_tester *tester = calloc(1, sizeof(*tester));
    const char *every = getenv("OP_TEST_EVERY");

    assert_non_null(tester);
    tester->every = every != NULL && atoi(every) > 0 ? (unsigned)atoi(every) : 1;
    tester->strings = string_heap_create();
    tester->teams = 1;
    for (unsigned i = 0; i < tester->teams; i++) {
        struct device_config config = {.name = device, .lanes = 1, .precision = "default"};

        config.threads = i == 0 ? 1 : SEVERAL_THREADS;
        if (device_open(&config, &tester->devices[i], &tester->error) != STATUS_OK ||
            tester->devices[i]->ops->lane_open(tester->devices[i], 0, &tester->lanes[i]) !=
                STATUS_OK)
            fail_msg("device %s: %s", device, tester->error.text);
        if (tester->devices[0]->ops->host_memory)
            tester->teams = TEAMS;
    }
    if (tester->teams == 1)
        room_open(tester);
    return tester;
}

void op_tester_destroy(struct op_tester *tester)
{
    if (tester->every > 1)
        print_message("%u of %u tests passed over\n", tester->passed_over, tester->asked);
    if (tester->teams == 1) {
        print_message("%u runs of kernels, %u operators left to the host\n", tester->kernel_runs,
                      tester->left_to_host);
        room_close(tester);
    }
    for (unsigned i = 0; i < tester->teams; i++) {
        tester->devices[i]->ops->lane_close(tester->lanes[i]);
        device_close(tester->devices[i]);
    }
    string_heap_destroy(tester->strings);
    free(tester);
}

/* Whether output 0 may lie over this input by what the kernel says of itself. */
static bool may_lie_over(const struct trial *trial, const struct stage *stage, size_t index,
                         enum kernel_flag flag)
{
    return (trial->kernel->flags & flag) != 0 && index < stage->call.inputs &&
           stage->in[index] != NULL && stage->in[index]->constant == NULL &&
           stage->in[index]->layout == stage->out[0]->layout &&
           tensor_bytes(&trial->in[index]) == tensor_bytes(&trial->out[0]) &&
           shape_is_equal(&trial->in[index].shape, &trial->out[0].shape);
}

/* The same of a residual that is not added behind an activation. */
static bool may_lie_over_residual(const struct trial *trial, const struct stage *stage)
{
    const struct node node = {.op = trial->op, .attrs = (void *)(uintptr_t)stage->call.attrs};
    const struct epilogue *epilogue = node_epilogue(&node);

    return epilogue != NULL && epilogue->has_residual && !epilogue->residual_after &&
           may_lie_over(trial, stage, stage_residual(stage), KERNEL_IN_PLACE_LAST);
}

/* False when the kernel refuses. */
static bool try_kernel(struct trial *trial)
{
    struct stage stage;
    struct error err = {.text = ""};
    const char *refusal;
    enum status status;

    stage_init(&stage, trial, 0);
    refusal = trial->kernel->refuses != NULL ? trial->kernel->refuses(&stage.call) : NULL;
    if (refusal != NULL) {
        (void)error_set(&trial->tester->error, STATUS_UNSUPPORTED, "%s", refusal);
        stage_deinit(&stage);
        return false;
    }
    status = stage_run(&stage, trial->tester, trial->kernel, 0, APART, &err);
    if (status == STATUS_UNSUPPORTED) { /* prepare() may refuse, too: the next kernel is asked */
        (void)error_set(&trial->tester->error, STATUS_UNSUPPORTED, "%s", err.text);
        stage_deinit(&stage);
        return false;
    }
    if (status != STATUS_OK)
        trial_failed(trial, err.text[0] != '\0' ? err.text : "enqueue failed");
    check_outputs(trial, &stage, trial->tester->devices[0]->channel_block);
    if (trial->tester->teams > 1)
        expect_same_bits(trial, &stage, 1, APART, "several threads give other bits than one");
    expect_same_apart(trial, &stage);
    if (trial->test->rows && trial->out[0].shape.rank > 0 && trial->out[0].shape.dims[0] > 1)
        expect_same_row(trial, &stage);
    if (may_lie_over(trial, &stage, 0, KERNEL_IN_PLACE))
        expect_same_bits(trial, &stage, 0, IN_PLACE, "in place gives other bits than apart");
    if (may_lie_over_residual(trial, &stage))
        expect_same_bits(trial, &stage, 0, IN_PLACE_RESIDUAL,
                         "over its residual it gives other bits than apart");
    stage_deinit(&stage);
    return true;
}

/* Whether the kernel says that it takes in[0], the others and out[0] in the trial's layouts. */
static bool takes_layouts(const struct trial *trial)
{
    const struct kernel *kernel = trial->kernel;
    uint32_t layouts = kernel->layouts != 0 ? kernel->layouts : 1u << LAYOUT_PLAIN;
    uint32_t same = 1u << trial->layout;

    if ((kernel->flags & KERNEL_LAYOUT_CHANGE) != 0)
        return trial->layout == LAYOUT_PLAIN && (layouts >> trial->in_layout & 1) != 0 &&
               (layouts >> trial->out_layout & 1) != 0;
    return (layouts & same) != 0 && ((same | kernel->in_layouts) >> trial->in_layout & 1) != 0 &&
           ((kernel->out_layouts != 0 ? kernel->out_layouts : same) >> trial->out_layout & 1) != 0;
}

/* The number of kernel and layout pairs that did not refuse. */
static unsigned try_all(struct trial *trial)
{
    struct device *device = trial->tester->devices[0];
    const struct kernel *const *kernels = device->ops->kernels(device, trial->op);
    unsigned ran = 0;

    if (kernels == NULL) {
        (void)error_set(&trial->tester->error, STATUS_UNSUPPORTED, "the device lists no kernel");
        return 0;
    }
    for (; *kernels != NULL; kernels++) {
        trial->kernel = *kernels;
        for (int code = 0; code < LAYOUT_COUNT * LAYOUT_COUNT * LAYOUT_COUNT; code++) {
            trial->layout = (enum layout)(code % LAYOUT_COUNT);
            trial->in_layout = (enum layout)(code / LAYOUT_COUNT % LAYOUT_COUNT);
            trial->out_layout = (enum layout)(code / LAYOUT_COUNT / LAYOUT_COUNT);
            if (takes_layouts(trial))
                ran += try_kernel(trial) ? 1 : 0;
        }
    }
    return ran;
}

/* Said, so that it is seen what a device does not compute. */
static void leave_to_host(const struct trial *trial)
{
    trial->tester->left_to_host++;
    print_message("left to the host: %s of %s: %s\n", trial->test->op,
                  dtype_name(trial->test->in[0].dtype), trial->tester->error.text);
}

void op_test_run(struct op_tester *tester, const struct op_test *test)
{
    _Alignas(16) char attrs[ATTRS_MAX_BYTES];
    struct trial trial;
    unsigned ran;

    if (tester->asked++ % tester->every != 0) {
        tester->passed_over++;
        return;
    }
    if (trial_init(&trial, tester, test, attrs, &tester->error) != STATUS_OK)
        fail_msg("%s: %s", test->op, tester->error.text);
    trial_expect(&trial);
    ran = try_all(&trial);
    tester->kernel_runs += ran;
    if (ran == 0 && tester->devices[0]->host != NULL)
        leave_to_host(&trial);
    else if (ran == 0 && !test->any_kernel)
        fail_msg("%s of %s: every kernel refuses: %s", test->op, dtype_name(test->in[0].dtype),
                 tester->error.text);
    trial_deinit(&trial);
}

const char *op_test_refused(struct op_tester *tester, const struct op_test *test)
{
    _Alignas(16) char attrs[ATTRS_MAX_BYTES];
    struct trial trial;
    enum status status;

    tester->error.text[0] = '\0';
    status = trial_init(&trial, tester, test, attrs, &tester->error);
    if (status == STATUS_OK) {
        trial_expect(&trial);
        if (try_all(&trial) > 0)
            fail_msg("%s was not refused", test->op);
    }
    trial_deinit(&trial);
    if (tester->error.text[0] == '\0')
        fail_msg("%s was refused without a sentence", test->op);
    return tester->error.text;
}

void op_tester_free(struct tensor *tensor)
{
    free((void *)(uintptr_t)tensor->data);
    tensor->data = NULL;
}

/* The device for an operator: the host's where its own kernels all refuse. */
static void choose_device(struct op_tester *tester, const struct trial *trial)
{
    struct device *device = tester->devices[0];
    const struct kernel *const *kernels = device->ops->kernels(device, trial->op);
    struct stage stage;
    bool refused = true;

    if (device->host == NULL)
        return;
    stage_init(&stage, trial, 0);
    for (; kernels != NULL && *kernels != NULL; kernels++)
        refused =
            refused && (*kernels)->refuses != NULL && (*kernels)->refuses(&stage.call) != NULL;
    stage_deinit(&stage);
    if (refused) {
        tester->left_to_host++;
        tester->devices[0] = device->host;
        tester->lanes[0] = tester->lanes[0]->host;
    }
}

static enum status eval_on_device(struct op_tester *tester, struct trial *trial, struct tensor *out,
                                  struct error *err)
{
    const struct kernel *const *kernels;
    struct stage stage;
    enum status status;

    TRY(weights_cache_create(tester->devices[0]->memory, NULL, &tester->weights));
    kernels = tester->devices[0]->ops->kernels(tester->devices[0], trial->op);
    stage_init(&stage, trial, 0);
    status = error_set(err, STATUS_UNSUPPORTED, "no kernel");
    for (; kernels != NULL && *kernels != NULL; kernels++) {
        const char *refusal = (*kernels)->refuses != NULL ? (*kernels)->refuses(&stage.call) : NULL;

        if (refusal == NULL) {
            status = stage_run(&stage, tester, *kernels, 0, APART, err);
            break;
        }
        status = error_set(err, STATUS_UNSUPPORTED, "%s", refusal);
    }
    for (size_t i = 0; i < trial->outputs && status == STATUS_OK; i++) {
        out[i] = trial->out[i];
        out[i].shape = stage.out_shapes[i];
        out[i].data = stage.out_data[i];
        stage.out_data[i] = NULL;
    }
    stage_deinit(&stage);
    weights_cache_destroy(tester->weights);
    tester->weights = NULL;
    return status;
}

enum status op_tester_eval(struct op_tester *tester, const char *domain, const char *op,
                           const void *attrs, size_t inputs, const struct tensor *const *in,
                           bool constants, size_t outputs, struct tensor *out, struct error *err)
{
    _Alignas(16) char default_attrs[ATTRS_MAX_BYTES];
    struct op_test test = {.op = op, .domain = domain, .inputs = inputs, .outputs = outputs};
    struct trial trial = {.tester = tester, .test = &test, .outputs = outputs};
    struct device *const device = tester->devices[0];
    struct device_lane *const lane = tester->lanes[0];
    enum status status;

    trial.op = op_find(domain, op);
    if (trial.op == NULL)
        return error_set(err, STATUS_NOT_FOUND, "there is no operator %s", op);
    if (attrs == NULL)
        op_attrs_default(trial.op, default_attrs);
    trial.attrs = attrs != NULL ? attrs : default_attrs;
    for (size_t i = 0; i < inputs; i++) {
        test.in[i].constant = constants;
        if (in[i] != NULL)
            trial.in[i] = *in[i];
    }
    TRY(trial_infer(&trial, true, err));
    choose_device(tester, &trial);
    status = eval_on_device(tester, &trial, out, err);
    tester->devices[0] = device;
    tester->lanes[0] = lane;
    return status;
}
