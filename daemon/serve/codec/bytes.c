#include "serve/codec/bytes.h"

#include <string.h>

enum { ARENA_MOST = 4096 };

static void *take(struct call *call, size_t size)
{
    return size <= ARENA_MOST ? call_take(call, size) : call_take_pooled(call, size);
}

enum status bytes_decode(struct call *call, struct infer_input *input, const char *model,
                         struct error *err)
{
    const uint8_t *at = input->data, *end = at + input->bytes;
    int64_t expected = 0;
    struct bytes *elements;
    size_t count = 0;

    if (shape_elements(&input->shape, &expected) != STATUS_OK)
        return error_set(err, STATUS_INVALID, "the shape of input '%.*s' is no shape",
                         (int)input->name.size, input->name.data);
    /* Each element takes at least its length: a claim of more is no reason to allocate. */
    if ((uint64_t)expected > input->bytes / sizeof(uint32_t))
        return error_set(err, STATUS_INVALID,
                         "expected %lld string elements for inference input '%.*s' for model "
                         "'%s', got %zu bytes",
                         (long long)expected, (int)input->name.size, input->name.data, model,
                         input->bytes);
    elements = take(call, ((size_t)expected + 1) * sizeof(*elements));
    if (elements == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no host memory for input '%.*s'",
                         (int)input->name.size, input->name.data);
    while (at < end && count < (size_t)expected) {
        uint32_t length;

        if ((size_t)(end - at) < sizeof(length))
            break;
        memcpy(&length, at, sizeof(length));
        at += sizeof(length);
        if (length > (size_t)(end - at))
            break;
        elements[count++] = (struct bytes){(const char *)at, length};
        at += length;
    }
    if (at != end || count != (size_t)expected)
        return error_set(err, STATUS_INVALID,
                         "incomplete or surplus string data for inference input '%.*s' for model "
                         "'%s': expected %lld elements, found %zu and %zu bytes behind them",
                         (int)input->name.size, input->name.data, model, (long long)expected, count,
                         (size_t)(end - at));
    input->data = (const uint8_t *)elements;
    input->bytes = count * sizeof(*elements);
    input->is_ready = true;
    return STATUS_OK;
}

enum status bytes_encode(struct call *call, const struct bytes *elements, size_t count,
                         struct piece *out_piece)
{
    size_t size = 0;
    uint8_t *data, *at;

    for (size_t i = 0; i < count; i++)
        size += sizeof(uint32_t) + elements[i].size;
    data = at = take(call, size);
    if (data == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        uint32_t length = (uint32_t)elements[i].size;

        memcpy(at, &length, sizeof(length));
        at += sizeof(length);
        if (length > 0)
            memcpy(at, elements[i].data, length);
        at += length;
    }
    *out_piece = (struct piece){data, size};
    return STATUS_OK;
}
