#include "device/cuda/kernels/pointwise_plan.h"

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

enum status pointwise_run(const struct pointwise *program, const struct kernel_run *run,
                          const void *const *in, void *out)
{
    struct pointwise ready = *program;

    ready.out.data = out;
    ready.out.vector = is_vector(&ready, &ready.out);
    for (uint32_t i = 0; i < ready.inputs; i++) {
        ready.in[i].data = (void *)(uintptr_t)in[i];
        ready.in[i].vector = is_vector(&ready, &ready.in[i]);
    }
    return cuda_status(cuda_pointwise(&ready, cuda_stream(run)));
}
