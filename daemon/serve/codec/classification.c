#include "serve/codec/classification.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "serve/codec/bytes.h"
#include "tensor/element.h"

enum { CLASSES_MAX = 1000000, TEXT_MAX = 400 };

/* No double holds every number of 64 bits.  Shifted by half the range, those with a sign are in
 * the same order as those without. */
static uint64_t read_wide(enum dtype dtype, const void *row, size_t index)
{
    uint64_t value;

    memcpy(&value, (const char *)row + index * sizeof(value), sizeof(value));
    return dtype == DTYPE_INT64 ? value ^ (UINT64_C(1) << 63) : value;
}

static bool is_wide(enum dtype dtype)
{
    return dtype == DTYPE_INT64 || dtype == DTYPE_UINT64;
}

static bool is_better_wide(enum dtype dtype, const void *row, uint32_t a, uint32_t b)
{
    uint64_t left = read_wide(dtype, row, a), right = read_wide(dtype, row, b);

    return left != right ? left > right : a < b;
}

static bool is_better_number(enum dtype dtype, const void *row, uint32_t a, uint32_t b)
{
    double left = element_read(dtype, row, a), right = element_read(dtype, row, b);

    if (left != right && (left == left || right == right))
        return left == left && (right != right || left > right);
    return a < b;
}

/* `a` stands before `b`: larger, or equal and earlier; NaN comes last. */
static bool is_better(enum dtype dtype, const void *row, uint32_t a, uint32_t b)
{
    return is_wide(dtype) ? is_better_wide(dtype, row, a, b) : is_better_number(dtype, row, a, b);
}

/* A heap whose root is the worst of those kept. */
static void sift(enum dtype dtype, const void *row, uint32_t *heap, size_t count, size_t at)
{
    for (size_t below; (below = 2 * at + 1) < count; at = below) {
        uint32_t kept = heap[at];

        if (below + 1 < count && is_better(dtype, row, heap[below], heap[below + 1]))
            below++;
        if (!is_better(dtype, row, kept, heap[below]))
            return;
        heap[at] = heap[below];
        heap[below] = kept;
    }
}

/* Fills `best` with the indices of the `count` best of `size`, best first. */
static void select_best(enum dtype dtype, const void *row, size_t size, uint32_t *best,
                        size_t count)
{
    for (size_t i = 0; i < count; i++)
        best[i] = (uint32_t)i;
    for (size_t i = count / 2; i-- > 0;)
        sift(dtype, row, best, count, i);
    for (size_t i = count; i < size; i++) {
        if (!is_better(dtype, row, (uint32_t)i, best[0]))
            continue;
        best[0] = (uint32_t)i;
        sift(dtype, row, best, count, 0);
    }
    for (size_t left = count; left > 1; left--) {
        uint32_t worst = best[0];

        best[0] = best[left - 1];
        best[left - 1] = worst;
        sift(dtype, row, best, left - 1, 0);
    }
}

/* "VALUE:INDEX"; returns the length. */
static int write_value(enum dtype dtype, const void *row, uint32_t index, char text[TEXT_MAX])
{
    double value = element_read(dtype, row, index);
    uint64_t wide;

    if (is_wide(dtype)) {
        memcpy(&wide, (const char *)row + index * sizeof(wide), sizeof(wide));
        return dtype == DTYPE_INT64
                   ? snprintf(text, TEXT_MAX, "%" PRId64 ":%" PRIu32, (int64_t)wide, index)
                   : snprintf(text, TEXT_MAX, "%" PRIu64 ":%" PRIu32, wide, index);
    }
    return dtype_is_float(dtype) ? snprintf(text, TEXT_MAX, "%f:%" PRIu32, value, index)
                                 : snprintf(text, TEXT_MAX, "%.0f:%" PRIu32, value, index);
}

static struct bytes describe(struct call *call, const struct model_port *port, const void *row,
                             uint32_t index)
{
    const char *label = index < port->labels ? port->label[index] : NULL;
    char text[TEXT_MAX];
    int length = write_value(port->dtype, row, index, text);
    size_t size = length < 0 ? 0 : (size_t)length;
    size_t label_size = label != NULL ? strlen(label) : 0;
    char *copy = call_take(call, size + 1 + label_size + 1);

    if (copy == NULL)
        return (struct bytes){NULL, 0};
    memcpy(copy, text, size);
    if (label_size == 0)
        return (struct bytes){copy, size};
    copy[size] = ':';
    memcpy(copy + size + 1, label, label_size);
    return (struct bytes){copy, size + 1 + label_size};
}

enum status classify(struct call *call, const struct model_port *port, bool has_batch,
                     size_t classes, struct response_tensor *tensor, struct error *err)
{
    size_t total = (size_t)shape_count(&tensor->shape);
    size_t rows = has_batch && tensor->shape.rank > 0 ? (size_t)tensor->shape.dims[0] : 1;
    size_t size = rows > 0 ? total / rows : 0, count = classes < size ? classes : size;
    size_t row_bytes = size * dtype_bytes(tensor->dtype);
    struct bytes *elements;
    uint32_t *best;

    if (tensor->dtype == DTYPE_STRING || size > CLASSES_MAX)
        return error_set(err, STATUS_INVALID,
                         "output '%s' cannot be classified: %s with %zu elements a row, numbers "
                         "and at most %d are allowed",
                         port->name, dtype_oip_name(tensor->dtype), size, CLASSES_MAX);
    elements = arena_take_array(&call->request.arena, rows * count, sizeof(*elements));
    best = arena_take_array(&call->request.arena, count, sizeof(*best));
    if (elements == NULL || best == NULL)
        return error_set(err, STATUS_NO_MEMORY, "out of memory for the answer");
    for (size_t row = 0; row < rows; row++) {
        const void *data = (const uint8_t *)tensor->raw.data + row * row_bytes;

        select_best(port->dtype, data, size, best, count);
        for (size_t i = 0; i < count; i++) {
            elements[row * count + i] = describe(call, port, data, best[i]);
            if (elements[row * count + i].data == NULL)
                return error_set(err, STATUS_NO_MEMORY, "out of memory for the answer");
        }
    }
    tensor->dtype = DTYPE_STRING;
    tensor->elements = elements;
    tensor->shape.rank = 0;
    if (has_batch)
        tensor->shape.dims[tensor->shape.rank++] = (int64_t)rows;
    tensor->shape.dims[tensor->shape.rank++] = (int64_t)count;
    return STATUS_OK;
}
