/* Gather: whole slices of the input picked by index. */
#include <stdatomic.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/move.h"
#include "device/cpu/team.h"
#include "ops/movement.h"

struct job {
    const char *source;
    const void *indices;
    char *target;
    enum dtype index_dtype;
    int64_t outer;  /* product of the axes before the gathered one */
    int64_t length; /* of the gathered axis */
    int64_t picks;
    size_t slice_bytes; /* everything behind the axis */
    atomic_bool outside;
};

static inline __attribute__((always_inline)) bool pick(const struct job *job, int64_t from,
                                                       int64_t to, size_t bytes)
{
    for (int64_t i = from; i < to; i++) {
        int64_t index = read_index(job->index_dtype, job->indices, i % job->picks);

        if (index < 0)
            index += job->length;
        if (index < 0 || index >= job->length)
            return false;
        memcpy(job->target + (size_t)i * bytes,
               job->source + (size_t)(i / job->picks * job->length + index) * bytes, bytes);
    }
    return true;
}

static void gather_share(void *arg, unsigned member, unsigned members)
{
    struct job *job = arg;
    size_t from, to;
    bool inside;

    team_share((size_t)(job->outer * job->picks), member, members, &from, &to);
    if (job->slice_bytes == 4)
        inside = pick(job, (int64_t)from, (int64_t)to, 4);
    else if (job->slice_bytes == 8)
        inside = pick(job, (int64_t)from, (int64_t)to, 8);
    else
        inside = pick(job, (int64_t)from, (int64_t)to, job->slice_bytes);
    if (!inside)
        atomic_store_explicit(&job->outside, true, memory_order_relaxed);
}

static enum status run_gather(const void *state, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    const struct gather_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    size_t axis = shape_axis(in, attrs->axis);
    struct job job = {
        .source = run->in[0],
        .indices = run->in[1],
        .target = run->out[0],
        .index_dtype = call->in[1]->dtype,
        .outer = shape_product(in, 0, axis),
        .length = in->dims[axis],
        .picks = shape_count(&call->in[1]->shape),
        .slice_bytes =
            (size_t)shape_product(in, axis + 1, in->rank) * dtype_bytes(call->in[0]->dtype),
    };
    int64_t slices = job.outer * job.picks;
    double nanoseconds = (double)slices * (4 + (double)job.slice_bytes / 8);

    (void)state;
    if (slices > 0)
        team_run(team_size(call->threads, nanoseconds), gather_share, &job);
    return atomic_load(&job.outside) ? STATUS_INVALID : STATUS_OK;
}

const struct kernel kernel_gather_move = {
    .name = "cpu:move",
    .enqueue = run_gather,
};
