/* What a library's kernel leaves to do behind itself: an activation that it does not know, and for
 * convolutions that cannot take them along bias and residual.  One pointwise program over the
 * result, in place. */
#ifndef DEVICE_CUDA_KERNELS_EPILOGUE_PLAN_H
#define DEVICE_CUDA_KERNELS_EPILOGUE_PLAN_H

#include "device/cuda/kernels/pointwise_plan.h"
#include "ops/epilogue.h"

struct epilogue_program {
    bool wanted;
    struct pointwise program; /* with `wanted` */
    struct pointwise_runner runner;
};

/* Adds `bias`, activates as `epilogue` says, and adds `residual` before or behind that (operands
 * that broadcast to out; NULL: none, whatever the epilogue says).  False: more dimensions than a
 * program has. */
bool epilogue_program_make(struct epilogue_program *program, const struct epilogue *epilogue,
                           const struct operand *out, const struct operand *bias,
                           const struct operand *residual);
/* Lets a kernel be made for it; where nothing does, the interpreter runs it. */
void epilogue_program_fuse(struct epilogue_program *program, struct device *device);
void epilogue_program_free(struct epilogue_program *program); /* zeroed is fine */
/* Behind the note of a step: "", or what runs it. */
void epilogue_program_describe(const struct epilogue_program *program, char *text, size_t room);
/* `bias` and `residual`: addresses, as they were made with. */
enum status epilogue_program_run(const struct epilogue_program *program,
                                 const struct kernel_run *run, void *out, const void *bias,
                                 const void *residual);

#endif
