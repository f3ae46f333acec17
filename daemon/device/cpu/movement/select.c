/* NonZero, Compress, Unique: how much comes out depends on the values. */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/lines/order.h"
#include "device/cpu/move.h"
#include "ops/indexing.h"

/* ---- NonZero ---- */

static bool is_zero(enum dtype dtype, const void *data, int64_t i)
{
    static const char zeros[8];
    size_t bytes = dtype_bytes(dtype);

    if (dtype_is_float(dtype)) /* -0 is zero too */
        return key_of(dtype, data, i) == key_of(dtype, zeros, 0);
    return memcmp((const char *)data + (size_t)i * bytes, zeros, bytes) == 0;
}

static enum status run_nonzero(const void *state, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    const struct shape *in = &call->in[0]->shape;
    int64_t elements = shape_count(in), count = 0, found = 0;
    enum dtype dtype = call->in[0]->dtype;
    int64_t *out = run->out[0];

    (void)state;
    for (int64_t i = 0; i < elements; i++)
        count += !is_zero(dtype, run->in[0], i);
    for (int64_t i = 0; i < elements; i++) {
        int64_t rest = i;

        if (is_zero(dtype, run->in[0], i))
            continue;
        for (size_t axis = in->rank; axis-- > 0; rest /= in->dims[axis])
            out[(int64_t)axis * count + found] = rest % in->dims[axis];
        found++;
    }
    run->out_shapes[0] = call->out[0]->shape;
    run->out_shapes[0].dims[1] = count;
    return STATUS_OK;
}

const struct kernel kernel_nonzero_loop = {.name = "cpu:loop", .enqueue = run_nonzero};

/* ---- Compress ---- */

static enum status run_compress(const void *state, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    const struct compress_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    bool flat = attrs->axis == INT64_MIN;
    size_t axis = flat ? 0 : shape_axis(in, attrs->axis);
    int64_t outer = flat ? 1 : shape_product(in, 0, axis);
    int64_t length = flat ? shape_count(in) : in->dims[axis];
    size_t bytes = (flat ? 1 : (size_t)shape_product(in, axis + 1, in->rank)) *
                   dtype_bytes(call->in[0]->dtype);
    int64_t asked = call->in[1]->shape.dims[0] < length ? call->in[1]->shape.dims[0] : length;
    const uint8_t *condition = run->in[1];
    char *to = run->out[0];
    int64_t kept = 0;

    (void)state;
    for (int64_t i = 0; i < asked; i++)
        kept += condition[i] != 0;
    for (int64_t i = 0; i < outer; i++)
        for (int64_t k = 0; k < asked; k++)
            if (condition[k] != 0) {
                memcpy(to, (const char *)run->in[0] + (size_t)(i * length + k) * bytes, bytes);
                to += bytes;
            }
    run->out_shapes[0] = call->out[0]->shape;
    run->out_shapes[0].dims[axis] = kept;
    return STATUS_OK;
}

const struct kernel kernel_compress_loop = {.name = "cpu:loop", .enqueue = run_compress};

/* ---- Unique: items are elements, or slices across an axis ---- */

struct items {
    enum dtype dtype;
    const void *data;
    int64_t outer, length, inner;
};

static int compare_strings(const struct bytes *a, const struct bytes *b)
{
    size_t least = a->size < b->size ? a->size : b->size;
    int order = least > 0 ? memcmp(a->data, b->data, least) : 0;

    return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

static int compare_elements(const struct items *items, int64_t a, int64_t b)
{
    uint64_t x, y;

    if (items->dtype == DTYPE_STRING) {
        const struct bytes *strings = items->data;

        return compare_strings(&strings[a], &strings[b]);
    }
    x = key_of(items->dtype, items->data, a);
    y = key_of(items->dtype, items->data, b);
    return (x > y) - (x < y);
}

static int compare_items(const struct items *items, int64_t a, int64_t b)
{
    int order = 0;

    for (int64_t i = 0; i < items->outer && order == 0; i++)
        for (int64_t k = 0; k < items->inner && order == 0; k++)
            order = compare_elements(items, (i * items->length + a) * items->inner + k,
                                     (i * items->length + b) * items->inner + k);
    return order;
}

static bool comes_before(const struct items *items, int64_t a, int64_t b)
{
    int order = compare_items(items, a, b);

    return order < 0 || (order == 0 && a < b);
}

static void sift_down(const struct items *items, int64_t *heap, int64_t count, int64_t at)
{
    int64_t moved = heap[at];

    for (;;) {
        int64_t child = 2 * at + 1;

        if (child >= count)
            break;
        if (child + 1 < count && comes_before(items, heap[child], heap[child + 1]))
            child++;
        if (!comes_before(items, moved, heap[child]))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* Heap sort: no memory, no bad case. */
static void sort_items(const struct items *items, int64_t *order)
{
    for (int64_t i = 0; i < items->length; i++)
        order[i] = i;
    for (int64_t i = items->length / 2; i-- > 0;)
        sift_down(items, order, items->length, i);
    for (int64_t left = items->length; left > 1; left--) {
        int64_t last = order[0];

        order[0] = order[left - 1];
        order[left - 1] = last;
        sift_down(items, order, left - 1, 0);
    }
}

struct groups {
    int64_t count;
    int64_t *order; /* items sorted */
    int64_t *of;    /* group of each item */
    int64_t *first; /* its first item */
    int64_t *size;
    int64_t *place; /* where it comes out */
};

static void find_groups(const struct items *items, struct groups *groups, bool sorted)
{
    int64_t next = 0;

    sort_items(items, groups->order);
    groups->count = 0;
    for (int64_t i = 0; i < items->length; i++) {
        int64_t item = groups->order[i];

        if (i == 0 || compare_items(items, groups->order[i - 1], item) != 0) {
            groups->first[groups->count] = item;
            groups->size[groups->count++] = 0;
        }
        groups->size[groups->count - 1]++;
        groups->of[item] = groups->count - 1;
    }
    for (int64_t i = 0; i < items->length; i++) {
        int64_t group = groups->of[i];

        if (groups->first[group] == i)
            groups->place[group] = sorted ? group : next++;
    }
}

static enum status prepare_unique(struct kernel_prepare *prepare, struct error *err)
{
    const struct unique_attrs *attrs = prepare->call.attrs;
    const struct shape *in = &prepare->call.in[0]->shape;
    int64_t length =
        attrs->axis == INT64_MIN ? shape_count(in) : in->dims[shape_axis(in, attrs->axis)];

    (void)err;
    prepare->scratch_bytes = (size_t)length * 5 * sizeof(int64_t);
    prepare->constants_used = 1 << 0;
    return STATUS_OK;
}

static void store_values(const struct items *items, const struct groups *groups, void *out)
{
    size_t bytes = (size_t)items->inner * dtype_bytes(items->dtype);

    for (int64_t i = 0; i < items->outer; i++)
        for (int64_t g = 0; g < groups->count; g++)
            memcpy((char *)out + (size_t)(i * groups->count + groups->place[g]) * bytes,
                   (const char *)items->data +
                       (size_t)(i * items->length + groups->first[g]) * bytes,
                   bytes);
}

static enum status run_unique(const void *state, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    const struct unique_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    bool flat = attrs->axis == INT64_MIN;
    size_t axis = flat ? 0 : shape_axis(in, attrs->axis);
    struct items items = {
        .dtype = call->in[0]->dtype,
        .data = run->in[0],
        .outer = flat ? 1 : shape_product(in, 0, axis),
        .length = flat ? shape_count(in) : in->dims[axis],
        .inner = flat ? 1 : shape_product(in, axis + 1, in->rank),
    };
    int64_t *room = run->scratch;
    struct groups groups = {
        .order = room,
        .of = room + items.length,
        .first = room + 2 * items.length,
        .size = room + 3 * items.length,
        .place = room + 4 * items.length,
    };

    (void)state;
    find_groups(&items, &groups, attrs->sorted != 0);
    for (size_t i = 0; i < call->outputs; i++) {
        if (call->out[i] == NULL)
            continue;
        run->out_shapes[i] = call->out[i]->shape;
        if (i != 2)
            run->out_shapes[i].dims[i == 0 ? axis : 0] = groups.count;
    }
    if (run->out[0] != NULL)
        store_values(&items, &groups, run->out[0]);
    for (int64_t g = 0; g < groups.count; g++) {
        if (call->outputs > 1 && run->out[1] != NULL)
            ((int64_t *)run->out[1])[groups.place[g]] = groups.first[g];
        if (call->outputs > 3 && run->out[3] != NULL)
            ((int64_t *)run->out[3])[groups.place[g]] = groups.size[g];
    }
    for (int64_t i = 0; i < items.length && call->outputs > 2 && run->out[2] != NULL; i++)
        ((int64_t *)run->out[2])[i] = groups.place[groups.of[i]];
    return STATUS_OK;
}

const struct kernel kernel_unique_sort = {
    .name = "cpu:sort", .prepare = prepare_unique, .enqueue = run_unique};
