/* NonMaxSuppression: per batch and class, boxes by falling score, each kept unless it overlaps one
 * kept before.  The candidates form a heap, so that only as many are sorted as are looked at. */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/move.h"
#include "ops/indexing.h"

struct box {
    float top, left, bottom, right, area;
};

struct candidate {
    float score;
    int32_t index;
};

struct nms {
    int64_t boxes;
    int64_t most; /* kept per class */
    float overlap;
    float least_score;
    bool has_least_score;
    bool centered;
    struct candidate *heap;
    struct box *kept;
};

/* Corners may come in any order. */
static struct box load_box(const struct nms *nms, const void *data, int64_t i)
{
    float v[4];
    struct box box;

    memcpy(v, (const char *)data + (size_t)i * sizeof(v), sizeof(v));
    if (nms->centered) { /* x, y, width, height */
        box = (struct box){v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2, 0};
    } else {
        box.top = v[0] < v[2] ? v[0] : v[2];
        box.bottom = v[0] < v[2] ? v[2] : v[0];
        box.left = v[1] < v[3] ? v[1] : v[3];
        box.right = v[1] < v[3] ? v[3] : v[1];
    }
    box.area = (box.bottom - box.top) * (box.right - box.left);
    return box;
}

static bool overlaps(const struct box *a, const struct box *b, float threshold)
{
    float top = a->top > b->top ? a->top : b->top;
    float left = a->left > b->left ? a->left : b->left;
    float bottom = a->bottom < b->bottom ? a->bottom : b->bottom;
    float right = a->right < b->right ? a->right : b->right;
    float common, both;

    if (bottom <= top || right <= left || a->area <= 0 || b->area <= 0)
        return false;
    common = (bottom - top) * (right - left);
    both = a->area + b->area - common;
    return both > 0 && common / both > threshold;
}

static bool is_better(struct candidate a, struct candidate b)
{
    return a.score > b.score || (a.score == b.score && a.index < b.index);
}

static void sift_down(struct candidate *heap, int64_t count, int64_t at)
{
    struct candidate moved = heap[at];

    for (;;) {
        int64_t child = 2 * at + 1;

        if (child >= count)
            break;
        if (child + 1 < count && is_better(heap[child + 1], heap[child]))
            child++;
        if (!is_better(heap[child], moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static int64_t gather_candidates(const struct nms *nms, const void *scores)
{
    int64_t count = 0;

    for (int64_t i = 0; i < nms->boxes; i++) {
        float score;

        memcpy(&score, (const char *)scores + (size_t)i * sizeof(score), sizeof(score));
        if (score != score || (nms->has_least_score && !(score > nms->least_score)))
            continue;
        nms->heap[count++] = (struct candidate){score, (int32_t)i};
    }
    for (int64_t i = count / 2; i-- > 0;)
        sift_down(nms->heap, count, i);
    return count;
}

static bool is_free(const struct nms *nms, const struct box *box, int64_t kept)
{
    for (int64_t i = 0; i < kept; i++)
        if (overlaps(box, &nms->kept[i], nms->overlap))
            return false;
    return true;
}

/* Writes the indices kept of one class and returns their number. */
static int64_t suppress(const struct nms *nms, const void *boxes, const void *scores, int64_t batch,
                        int64_t class, int64_t *out)
{
    int64_t count = gather_candidates(nms, scores), kept = 0;

    while (count > 0 && kept < nms->most) {
        int64_t index = nms->heap[0].index;
        struct box box = load_box(nms, boxes, index);

        nms->heap[0] = nms->heap[--count];
        if (count > 0)
            sift_down(nms->heap, count, 0);
        if (!is_free(nms, &box, kept))
            continue;
        nms->kept[kept] = box;
        out[3 * kept] = batch;
        out[3 * kept + 1] = class;
        out[3 * kept++ + 2] = index;
    }
    return kept;
}

static const char *refuse(const struct kernel_call *call)
{
    return call->in[0]->shape.dims[1] > INT32_MAX ? "too many boxes" : NULL;
}

static enum status prepare_nms(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->scratch_bytes = (size_t)prepare->call.in[0]->shape.dims[1] *
                             (sizeof(struct candidate) + sizeof(struct box));
    prepare->constants_used = UINT32_MAX;
    return STATUS_OK;
}

static float read_float(const struct kernel_call *call, const struct kernel_run *run, size_t index)
{
    float value = 0;

    if (index < call->inputs && call->in[index] != NULL)
        memcpy(&value, run->in[index], sizeof(value));
    return value;
}

static enum status run_nms(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct nms_attrs *attrs = call->attrs;
    const struct shape *scores = &call->in[1]->shape;
    int64_t batches = scores->dims[0], classes = scores->dims[1], boxes = scores->dims[2];
    int64_t found = 0;
    struct nms nms = {
        .boxes = boxes,
        .most =
            call->inputs > 2 && call->in[2] != NULL ? read_index(DTYPE_INT64, run->in[2], 0) : 0,
        .overlap = read_float(call, run, 3),
        .least_score = read_float(call, run, 4),
        .has_least_score = call->inputs > 4 && call->in[4] != NULL,
        .centered = attrs->center_point_box != 0,
        .heap = run->scratch,
        .kept = (struct box *)((struct candidate *)run->scratch + boxes),
    };

    (void)state;
    for (int64_t batch = 0; batch < batches; batch++)
        for (int64_t class = 0; class < classes; class ++)
            found += suppress(&nms, (const char *)run->in[0] + (size_t)(batch * boxes) * 16,
                              (const char *)run->in[1] +
                                  (size_t)((batch * classes + class) * boxes) * sizeof(float),
                              batch, class, (int64_t *)run->out[0] + 3 * found);
    run->out_shapes[0] = call->out[0]->shape;
    run->out_shapes[0].dims[0] = found;
    return STATUS_OK;
}

const struct kernel kernel_non_max_suppression_heap = {
    .name = "cpu:heap", .refuses = refuse, .prepare = prepare_nms, .enqueue = run_nms};
