/* The rows of kernels.def gathered by operator. */
#include <pthread.h>

#include "device/cuda/cuda.h"

static const struct kernel *const kernels[] = {
#define KERNEL(operator, variant) &kernel_##operator##_##variant,
#include "device/cuda/kernels.def"
#undef KERNEL
};

enum { ROWS = sizeof(kernels) / sizeof(kernels[0]) };

static const struct op_def *const operators[ROWS] = {
#define KERNEL(operator, variant) &op_##operator,
#include "device/cuda/kernels.def"
#undef KERNEL
};

/* Each list ends with NULL. */
static const struct kernel *lists[2 * ROWS + 1];
static const struct kernel *const *first[ROWS]; /* list of operators[i]; NULL: listed before */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool is_first(size_t row)
{
    for (size_t i = 0; i < row; i++)
        if (operators[i] == operators[row])
            return false;
    return true;
}

static void gather(void)
{
    size_t used = 0;

    for (size_t i = 0; i < ROWS; i++) {
        if (!is_first(i))
            continue;
        first[i] = lists + used;
        for (size_t k = i; k < ROWS; k++)
            if (operators[k] == operators[i])
                lists[used++] = kernels[k];
        lists[used++] = NULL;
    }
}

const struct kernel *const *cuda_kernels(struct device *device, const struct op_def *op)
{
    (void)device;
    pthread_once(&once, gather);
    for (size_t i = 0; i < ROWS; i++)
        if (operators[i] == op && first[i] != NULL)
            return first[i];
    return NULL;
}
