#include "device/cuda/kernels/pointwise_plan.h"

#include <stdio.h>

#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/rows.h"

enum pointwise_type pointwise_type_of(enum dtype dtype)
{
    if (dtype == DTYPE_DOUBLE)
        return PW_DOUBLE;
    if (dtype_is_float(dtype))
        return PW_FLOAT;
    return dtype == DTYPE_UINT64 ? PW_UNSIGNED : PW_SIGNED;
}

bool pointwise_axes(struct pointwise *program, struct axes *axes)
{
    struct walk_strides strides[WALK_OPERANDS];
    uint32_t last;

    axes_simplify(axes, 0);
    if (!axes_finish(axes, &program->walk, strides))
        return false;
    last = program->walk.rank - 1;
    program->grouped = last == 0 || program->walk.sizes[last] % 4 == 0;
    program->out.strides = strides[0];
    for (size_t i = 0; i + 1 < axes->operands; i++)
        program->in[i].strides = strides[i + 1];
    program->inputs = (uint32_t)axes->operands - 1;
    return true;
}

bool pointwise_operands(struct pointwise *program, const struct operand *out, size_t count,
                        const struct operand *const *in)
{
    struct axes axes;

    axes_broadcast(&axes, out, count, in);
    program->out.dtype = out->dtype;
    for (size_t i = 0; i < count; i++)
        program->in[i].dtype = in[i]->dtype;
    return pointwise_axes(program, &axes);
}

void pointwise_step(struct pointwise *program, uint8_t op, uint8_t from, double a, double b)
{
    program->step[program->steps++] =
        (struct pointwise_step){.op = op, .from = from, .a = a, .b = b};
}

/* Whether groups of four of an operand can be moved at once: neighbours, in multiples of four. */
static uint32_t is_vector(const struct pointwise *program, const struct pointwise_operand *operand)
{
    size_t bytes = dtype_bytes((enum dtype)operand->dtype);
    uint32_t last = program->walk.rank - 1;

    if (program->type != PW_FLOAT || !program->grouped || !dtype_is_float(operand->dtype) ||
        bytes > 4 || operand->strides.of[last] != 1 || (uintptr_t)operand->data % (4 * bytes) != 0)
        return 0;
    for (uint32_t i = 0; i < last; i++)
        if (operand->strides.of[i] % 4 != 0)
            return 0;
    return 1;
}

/* Which operands are moved four at once, where they lie: bit 0 the output, bit i + 1 input i. */
static uint32_t set_vectors(struct pointwise *program)
{
    uint32_t all = program->out.vector = is_vector(program, &program->out);

    for (uint32_t i = 0; i < program->inputs; i++) {
        program->in[i].vector = is_vector(program, &program->in[i]);
        all |= program->in[i].vector << (i + 1);
    }
    return all;
}

void pointwise_runner_init(struct pointwise_runner *runner, struct device *device,
                           const struct pointwise *program)
{
    struct pointwise aligned = *program; /* as operands are, but for views into others */

    runner->vectors = set_vectors(&aligned);
    runner->fused = program->walk.count > 0
                        ? fused_take(cuda_device_of(device), &aligned, &runner->why_not)
                        : NULL;
}

void pointwise_runner_deinit(struct pointwise_runner *runner)
{
    fused_drop(runner->fused);
    runner->fused = NULL;
}

void pointwise_runner_describe(const struct pointwise_runner *runner, char *text, size_t room)
{
    if (runner->fused != NULL)
        fused_describe(runner->fused, text, room);
    else if (runner->why_not != NULL)
        (void)snprintf(text, room, "interpreter: %s", runner->why_not);
}

static cudaError_t launch(const void *kernel, struct pointwise *program, cudaStream_t stream)
{
    const int64_t groups = (program->walk.count + 3) / 4;
    void *arguments[] = {program};

    return cudaLaunchKernel(kernel, (dim3){grid_for(groups), 1, 1}, (dim3){BLOCK_THREADS, 1, 1},
                            arguments, 0, stream);
}

enum status pointwise_run(const struct pointwise *program, const struct pointwise_runner *runner,
                          const struct kernel_run *run, const void *const *in, void *out)
{
    const void *kernel = runner != NULL ? fused_kernel(runner->fused) : NULL;
    struct pointwise ready = *program;
    uint32_t vectors;

    ready.out.data = out;
    for (uint32_t i = 0; i < ready.inputs; i++)
        ready.in[i].data = (void *)(uintptr_t)in[i];
    vectors = set_vectors(&ready);
    if (kernel != NULL && vectors == runner->vectors)
        return cuda_status(launch(kernel, &ready, cuda_stream(run)));
    return cuda_status(cuda_pointwise(&ready, cuda_stream(run)));
}
