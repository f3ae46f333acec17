#include "device/cuda/kernels/lines_plan.h"

#include <string.h>

enum { BLOCK = 256, ELEMENTS_A_WORKER = 4, COLUMN_WORKERS = 8, LONG_COLUMN = 4096 };

static void add_from(struct axes *to, const struct axes *from, size_t axis)
{
    int64_t strides[WALK_OPERANDS];

    for (size_t k = 0; k < from->operands; k++)
        strides[k] = from->strides[k][axis];
    axes_add(to, from->sizes[axis], strides);
}

static uint32_t power_of_two(int64_t least, uint32_t most)
{
    uint32_t power = 1;

    while (power < most && (int64_t)power < least)
        power *= 2;
    return power;
}

/* Threads of a line: as many as leave each a few elements.  Lines that lie side by side share
 * cache lines, so fewer threads go along each of them. */
static void choose_workers(struct lines *lines, const struct axes *kept, const struct axes *reduced)
{
    int64_t along = reduced->strides[0][reduced->rank - 1];
    int64_t beside = kept->strides[0][kept->rank - 1];
    int64_t count = lines->reduced.count;

    lines->columns = beside == 1 && along != 1 && kept->sizes[kept->rank - 1] > 1;
    if (!lines->columns)
        lines->workers = power_of_two(count / ELEMENTS_A_WORKER, BLOCK);
    else
        lines->workers =
            power_of_two(count / (2 * ELEMENTS_A_WORKER),
                         count >= LONG_COLUMN ? BLOCK / COLUMN_WORKERS : COLUMN_WORKERS);
}

void lines_make(struct lines *lines, const struct axes *axes, const bool *reduced,
                struct lines_strides *out_strides)
{
    struct axes kept = {.operands = axes->operands}, gone = {.operands = axes->operands};
    struct walk_strides kept_strides[WALK_OPERANDS], gone_strides[WALK_OPERANDS];

    for (size_t i = 0; i < axes->rank; i++)
        add_from(reduced[i] ? &gone : &kept, axes, i);
    axes_simplify(&kept, 0);
    axes_simplify(&gone, 0);
    (void)axes_finish(&kept, &lines->kept, kept_strides);
    (void)axes_finish(&gone, &lines->reduced, gone_strides);
    lines->in_kept = kept_strides[0];
    lines->in_reduced = gone_strides[0];
    lines->out_kept = kept_strides[1];
    lines->out_reduced = gone_strides[1];
    choose_workers(lines, &kept, &gone);
    for (size_t k = 0; out_strides != NULL && k + 2 < axes->operands; k++) {
        out_strides->kept[k] = kept_strides[k + 2];
        out_strides->reduced[k] = gone_strides[k + 2];
    }
}

void lines_axes_of_map(struct axes *axes, const struct operand *in, const struct operand *out)
{
    int64_t from[SHAPE_MAX_RANK], to[SHAPE_MAX_RANK];

    *axes = (struct axes){.operands = 2};
    operand_strides(in, from);
    operand_strides(out, to);
    for (size_t i = 0; i < in->shape.rank; i++)
        axes_add(axes, in->shape.dims[i], (const int64_t[WALK_OPERANDS]){from[i], to[i]});
}

void lines_axes_of_reduction(struct axes *axes, const struct operand *in, const struct operand *out,
                             const bool *reduced)
{
    bool keeps = out->shape.rank == in->shape.rank;
    int64_t from[SHAPE_MAX_RANK], to[SHAPE_MAX_RANK];
    size_t place = 0;

    *axes = (struct axes){.operands = 2};
    operand_strides(in, from);
    operand_strides(out, to);
    for (size_t i = 0; i < in->shape.rank; i++) {
        int64_t stride = reduced[i] ? 0 : to[keeps ? i : place];

        axes_add(axes, in->shape.dims[i], (const int64_t[WALK_OPERANDS]){from[i], stride});
        place += !reduced[i];
    }
}
