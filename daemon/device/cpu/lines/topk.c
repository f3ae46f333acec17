/* TopK: a heap of the best k of a row, its worst on top, then emptied from the back.
 * Equal elements come in the order of their indices. */
#include "device/cpu/cpu.h"
#include "device/cpu/lines/order.h"
#include "device/cpu/move.h"
#include "device/cpu/team.h"
#include "ops/indexing.h"

struct entry {
    uint64_t key;
    int64_t index;
};

struct job {
    const struct kernel_run *run;
    enum dtype dtype;
    int64_t outer, length, inner, k;
    uint64_t flip;       /* all ones turns the order round */
    struct entry *heaps; /* k entries a member */
};

static bool is_worse(struct entry a, struct entry b)
{
    return a.key < b.key || (a.key == b.key && a.index > b.index);
}

static void sift_down(struct entry *heap, int64_t count, int64_t at)
{
    struct entry moved = heap[at];

    for (;;) {
        int64_t child = 2 * at + 1;

        if (child >= count)
            break;
        if (child + 1 < count && is_worse(heap[child + 1], heap[child]))
            child++;
        if (!is_worse(heap[child], moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* Leaves the best k of a row in `heap`, best first. */
static inline __attribute__((always_inline)) void
select_row(const struct job *job, enum dtype dtype, int64_t start, struct entry *heap)
{
    const void *data = job->run->in[0];

    for (int64_t i = 0; i < job->k; i++)
        heap[i] = (struct entry){key_of(dtype, data, start + i * job->inner) ^ job->flip, i};
    for (int64_t i = job->k / 2; i-- > 0;)
        sift_down(heap, job->k, i);
    for (int64_t i = job->k; i < job->length; i++) {
        uint64_t key = key_of(dtype, data, start + i * job->inner) ^ job->flip;

        if (key > heap[0].key) {
            heap[0] = (struct entry){key, i};
            sift_down(heap, job->k, 0);
        }
    }
    for (int64_t left = job->k; left > 1; left--) {
        struct entry worst = heap[0];

        heap[0] = heap[left - 1];
        heap[left - 1] = worst;
        sift_down(heap, left - 1, 0);
    }
}

static void store_row(const struct job *job, int64_t row, const struct entry *best)
{
    size_t bytes = dtype_bytes(job->dtype);
    int64_t outer = row / job->inner, inner = row % job->inner;

    for (int64_t i = 0; i < job->k; i++) {
        int64_t from = (outer * job->length + best[i].index) * job->inner + inner;
        int64_t to = (outer * job->k + i) * job->inner + inner;

        if (job->run->out[0] != NULL)
            memcpy((char *)job->run->out[0] + (size_t)to * bytes,
                   (const char *)job->run->in[0] + (size_t)from * bytes, bytes);
        if (job->run->out[1] != NULL)
            ((int64_t *)job->run->out[1])[to] = best[i].index;
    }
}

static void topk_share(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    struct entry *heap = job->heaps + (size_t)job->k * member;
    size_t first, last;

    team_share((size_t)(job->outer * job->inner), member, members, &first, &last);
    for (int64_t row = (int64_t)first; row < (int64_t)last; row++) {
        int64_t start = row / job->inner * job->length * job->inner + row % job->inner;

        if (job->dtype == DTYPE_FLOAT)
            select_row(job, DTYPE_FLOAT, start, heap);
        else
            select_row(job, job->dtype, start, heap);
        store_row(job, row, heap);
    }
}

static int64_t k_of(const struct kernel_call *call)
{
    const struct topk_attrs *attrs = call->attrs;
    const struct operand *out = call->out[0] != NULL ? call->out[0] : call->out[1];

    return out->shape.dims[shape_axis(&out->shape, attrs->axis)];
}

static enum status prepare_topk(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->scratch_bytes =
        (size_t)k_of(&prepare->call) * sizeof(struct entry) * prepare->call.threads;
    prepare->constants_used = 1 << 0;
    return STATUS_OK;
}

static enum status run_topk(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    const struct topk_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    size_t axis = shape_axis(in, attrs->axis);
    void *const out[2] = {run->out[0], call->outputs > 1 ? run->out[1] : NULL};
    struct kernel_run both = *run;
    struct job job = {
        .run = &both,
        .dtype = call->in[0]->dtype,
        .outer = shape_product(in, 0, axis),
        .length = in->dims[axis],
        .inner = shape_product(in, axis + 1, in->rank),
        .k = k_of(call),
        .flip = attrs->largest ? 0 : UINT64_MAX,
        .heaps = run->scratch,
    };

    (void)state;
    both.out = out;
    if (job.k > 0 && job.outer * job.inner > 0)
        team_run(team_size(call->threads, 2 * (double)shape_count(in)), topk_share, &job);
    return STATUS_OK;
}

const struct kernel kernel_topk_heap = {
    .name = "cpu:heap",
    .prepare = prepare_topk,
    .enqueue = run_topk,
};
