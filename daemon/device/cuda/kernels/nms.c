/* NonMaxSuppression: the host waits to know how many boxes are left. */
#include "device/cuda/kernels/nms.h"

#include "device/cuda/kernels/rows.h"
#include "ops/indexing.h"

/* Parts of the scratch memory. */
struct nms_room {
    size_t candidates, counts, kept; /* bytes */
    uint32_t blocks;
    int64_t slots; /* for the candidates of a class */
    int64_t each;  /* boxes of a class that there is room for */
};

static struct nms_room room_of(const struct kernel_call *call)
{
    const struct shape *scores = &call->in[1]->shape;
    const int64_t lines = scores->dims[0] * scores->dims[1];
    struct nms_room room = {
        .blocks = lines < NMS_BLOCKS ? (uint32_t)lines : NMS_BLOCKS,
        .slots = (scores->dims[2] + NMS_THREADS - 1) / NMS_THREADS * NMS_THREADS,
        .each = lines > 0 ? call->out[0]->shape.dims[0] / lines : 0,
    };

    room.candidates = (size_t)(room.blocks * room.slots) * sizeof(uint64_t);
    room.counts = (size_t)(lines + 1) * sizeof(int64_t);
    room.kept = (size_t)(lines * room.each) * sizeof(int32_t);
    return room;
}

static const char *refuse_nms(const struct kernel_call *call)
{
    return call->in[0]->shape.dims[1] > INT32_MAX ? "too many boxes" : NULL;
}

static enum status prepare_nms(struct kernel_prepare *prepare, struct error *err)
{
    const struct nms_room room = room_of(&prepare->call);

    prepare->scratch_bytes = room.candidates + room.counts + room.kept;
    return prepare_stateless(prepare, err);
}

static enum status run_nms(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct nms_attrs *attrs = call->attrs;
    const struct shape *scores = &call->in[1]->shape;
    const struct nms_room room = room_of(call);
    char *scratch = run->scratch;
    const struct nms nms = {
        .images = scores->dims[0],
        .classes = scores->dims[1],
        .boxes = scores->dims[2],
        .room = room.each,
        .slots = room.slots,
        .blocks = room.blocks,
        .centered = attrs->center_point_box != 0,
        .box_data = run->in[0],
        .score_data = run->in[1],
        .most = run_input(call, run, 2),
        .overlap = run_input(call, run, 3),
        .least = run_input(call, run, 4),
        .candidates = (uint64_t *)(void *)scratch,
        .counts = (int64_t *)(void *)(scratch + room.candidates),
        .kept = (int32_t *)(void *)(scratch + room.candidates + room.counts),
        .out = run->out[0],
        .found = run_found(run),
    };

    (void)state;
    CU_TRY(cuda_nms(&nms, cuda_stream(run)));
    return cuda_lane_found(run->lane, &run->out_shapes[0].dims[0]);
}

const struct kernel kernel_non_max_suppression_counted = {
    .name = "cuda:counted",
    .refuses = refuse_nms,
    .prepare = prepare_nms,
    .enqueue = run_nms,
};
