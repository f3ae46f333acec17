#include "device/cuda/kernels/epilogue_plan.h"

/* Row: the step of each activation. */
static const uint8_t steps[ACT_COUNT] = {
    [ACT_RELU] = PW_relu,
    [ACT_LEAKY_RELU] = PW_leaky_relu,
    [ACT_CLIP] = PW_clip,
    [ACT_SIGMOID] = PW_sigmoid,
    [ACT_TANH] = PW_tanh,
    [ACT_SILU] = PW_silu,
    [ACT_HARD_SIGMOID] = PW_hard_sigmoid,
    [ACT_HARD_SWISH] = PW_hard_swish,
    [ACT_GELU_ERF] = PW_gelu,
    [ACT_GELU_TANH] = PW_gelu_tanh,
    [ACT_MISH] = PW_mish,
    [ACT_ELU] = PW_elu,
    [ACT_SOFTPLUS] = PW_softplus,
};

bool epilogue_program_make(struct epilogue_program *program, const struct epilogue *epilogue,
                           const struct operand *out, const struct operand *bias,
                           const struct operand *residual)
{
    struct pointwise *pointwise = &program->program;
    const struct operand *in[] = {out, NULL, NULL};
    bool acts = epilogue->act != ACT_NONE;
    size_t count = 1;

    program->wanted = acts || bias != NULL || residual != NULL;
    if (!program->wanted)
        return true;
    pointwise->type = pointwise_type_of(out->dtype);
    pointwise_step(pointwise, PW_load, 0, 0, 0);
    if (bias != NULL) {
        pointwise_step(pointwise, PW_add, (uint8_t)count, 0, 0);
        in[count++] = bias;
    }
    if (acts && epilogue->residual_after)
        pointwise_step(pointwise, steps[epilogue->act], PW_FROM_NOTHING, (double)epilogue->a,
                       (double)epilogue->b);
    if (residual != NULL) {
        pointwise_step(pointwise, PW_add, (uint8_t)count, 0, 0);
        in[count++] = residual;
    }
    if (acts && !epilogue->residual_after)
        pointwise_step(pointwise, steps[epilogue->act], PW_FROM_NOTHING, (double)epilogue->a,
                       (double)epilogue->b);
    return pointwise_operands(pointwise, out, count, in);
}

void epilogue_program_fuse(struct epilogue_program *program, struct device *device)
{
    if (program->wanted)
        pointwise_runner_init(&program->runner, device, &program->program);
}

void epilogue_program_free(struct epilogue_program *program)
{
    pointwise_runner_deinit(&program->runner);
}

void epilogue_program_describe(const struct epilogue_program *program, char *text, size_t room)
{
    if (program->wanted)
        pointwise_runner_describe(&program->runner, text, room);
}

enum status epilogue_program_run(const struct epilogue_program *program,
                                 const struct kernel_run *run, void *out, const void *bias,
                                 const void *residual)
{
    const void *in[] = {out, bias != NULL ? bias : residual, residual};

    return program->wanted ? pointwise_run(&program->program, &program->runner, run, in, out)
                           : STATUS_OK;
}
