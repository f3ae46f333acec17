#include "device/cuda/kernels/move_plan.h"

#include "device/cuda/kernels/rows.h"

enum { TILED_MIN = 8 };

/* Whether the innermost axes can be counted in units of `by` elements on both sides. */
static bool is_multiple(const struct axes *axes, int64_t by, int64_t to, int64_t from)
{
    size_t last = axes->rank - 1;

    if (axes->strides[0][last] != 1 || axes->strides[1][last] != 1 || axes->sizes[last] % by != 0 ||
        to % by != 0 || from % by != 0)
        return false;
    for (size_t i = 0; i < last; i++)
        if (axes->strides[0][i] % by != 0 || axes->strides[1][i] % by != 0)
            return false;
    return true;
}

static void widen(struct axes *axes, int64_t by)
{
    size_t last = axes->rank - 1;

    axes->sizes[last] /= by;
    for (size_t i = 0; i < last; i++) {
        axes->strides[0][i] /= by;
        axes->strides[1][i] /= by;
    }
}

static void remove_axis(struct axes *axes, size_t axis)
{
    for (size_t i = axis; i + 1 < axes->rank; i++) {
        axes->sizes[i] = axes->sizes[i + 1];
        axes->strides[0][i] = axes->strides[0][i + 1];
        axes->strides[1][i] = axes->strides[1][i + 1];
    }
    axes->rank--;
}

/* Takes the plane that is to be turned out of the axes, where there is one. */
static void find_plane(struct move *move, struct axes *axes)
{
    size_t last = axes->rank - 1;

    if (axes->strides[0][last] != 1 || axes->strides[1][last] <= 1 || axes->sizes[last] < TILED_MIN)
        return;
    for (size_t i = 0; i < last; i++) {
        if (axes->strides[1][i] != 1 || axes->sizes[i] < TILED_MIN)
            continue;
        move->tiled = 1;
        move->rows = axes->sizes[i];
        move->row_to = axes->strides[0][i];
        move->columns = axes->sizes[last];
        move->column_from = axes->strides[1][last];
        remove_axis(axes, last);
        remove_axis(axes, i);
        if (axes->rank == 0) {
            const int64_t none[2] = {0};

            axes_add(axes, 1, none);
        }
        return;
    }
}

static void finish(struct move *move, struct axes axes, size_t bytes)
{
    struct walk_strides strides[2];

    *move = (struct move){.bytes = (uint32_t)bytes};
    find_plane(move, &axes);
    if (!axes_finish(&axes, &move->walk, strides))
        return; /* cannot be: the rules bound the rank */
    move->to = strides[0];
    move->from = strides[1];
}

void move_plan(struct move_plan *plan, struct axes *axes, size_t element_bytes, int64_t to,
               int64_t from)
{
    int64_t by = UNIT_MAX / (int64_t)element_bytes;

    axes_simplify(axes, 0);
    plan->to_bytes = to * (int64_t)element_bytes;
    plan->from_bytes = from * (int64_t)element_bytes;
    finish(&plan->narrow, *axes, element_bytes);
    while (by > 1 && !is_multiple(axes, by, to, from))
        by /= 2;
    if (by > 1)
        widen(axes, by);
    finish(&plan->wide, *axes, element_bytes * (size_t)by);
}

enum status move_run(const struct move_plan *plan, void *to, const void *from,
                     const struct kernel_run *run)
{
    struct move move = plan->wide;
    char *to_data = (char *)to + plan->to_bytes;
    const char *from_data = (const char *)from + plan->from_bytes;

    if (((uintptr_t)to_data | (uintptr_t)from_data) % move.bytes != 0)
        move = plan->narrow;
    move.to_data = to_data;
    move.from_data = from_data;
    return cuda_status(cuda_move(&move, cuda_stream(run)));
}
