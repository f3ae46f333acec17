/* The answer of an inference over REST: JSON, then binary tensors by reference. */
#include <string.h>

#include "base/utf8.h"
#include "serve/codec/json_infer.h"
#include "serve/codec/text.h"

static void put_string(struct text *text, const char *string)
{
    text_json_string(text, string, strlen(string));
}

static void put_number(struct text *text, enum dtype dtype, const void *data, size_t i)
{
    switch (dtype) {
    case DTYPE_FLOAT:
        text_float(text, ((const float *)data)[i]);
        break;
    case DTYPE_DOUBLE:
        text_double(text, ((const double *)data)[i]);
        break;
    case DTYPE_FLOAT16:
        text_float(text, float_from_half(((const uint16_t *)data)[i]));
        break;
    case DTYPE_BFLOAT16:
        text_float(text, float_from_bfloat16(((const uint16_t *)data)[i]));
        break;
    case DTYPE_BOOL:
        text_string(text, ((const uint8_t *)data)[i] ? "true" : "false");
        break;
    case DTYPE_INT8:
        text_signed(text, ((const int8_t *)data)[i]);
        break;
    case DTYPE_UINT8:
        text_unsigned(text, ((const uint8_t *)data)[i]);
        break;
    case DTYPE_INT16:
        text_signed(text, ((const int16_t *)data)[i]);
        break;
    case DTYPE_UINT16:
        text_unsigned(text, ((const uint16_t *)data)[i]);
        break;
    case DTYPE_INT32:
        text_signed(text, ((const int32_t *)data)[i]);
        break;
    case DTYPE_UINT32:
        text_unsigned(text, ((const uint32_t *)data)[i]);
        break;
    case DTYPE_INT64:
        text_signed(text, ((const int64_t *)data)[i]);
        break;
    default:
        text_unsigned(text, ((const uint64_t *)data)[i]);
    }
}

static bool is_utf8(const struct bytes *element)
{
    for (size_t i = 0, length; i < element->size; i += length) {
        length = utf8_length(element->data + i, element->size - i);
        if (length == 0)
            return false;
    }
    return true;
}

static enum status put_elements(struct text *text, const struct response_tensor *tensor,
                                struct error *err)
{
    size_t count = (size_t)shape_count(&tensor->shape);

    text_char(text, '[');
    for (size_t i = 0; i < count && !text->failed; i++) {
        if (i > 0)
            text_char(text, ',');
        if (tensor->dtype != DTYPE_STRING) {
            put_number(text, tensor->dtype, tensor->raw.data, i);
            continue;
        }
        if (!is_utf8(&tensor->elements[i]))
            return error_set(err, STATUS_INVALID,
                             "output '%s' holds bytes that are no UTF-8, which JSON cannot carry: "
                             "ask for binary_data",
                             tensor->name);
        text_json_string(text, tensor->elements[i].data, tensor->elements[i].size);
    }
    text_char(text, ']');
    return STATUS_OK;
}

/* Where the tensor lies instead of here; closes the shape. */
static void put_shared(struct text *text, const struct shared_wish *shared)
{
    text_string(text, "],\"parameters\":{\"shared_memory_region\":");
    text_json_string(text, shared->region.data, shared->region.size);
    if (shared->offset > 0) {
        text_string(text, ",\"shared_memory_offset\":");
        text_unsigned(text, shared->offset);
    }
    text_string(text, ",\"shared_memory_byte_size\":");
    text_unsigned(text, shared->bytes);
    text_char(text, '}');
}

static enum status put_output(struct text *text, const struct response_tensor *tensor,
                              struct error *err)
{
    text_string(text, "{\"name\":");
    put_string(text, tensor->name);
    text_string(text, ",\"datatype\":\"");
    text_string(text, dtype_oip_name(tensor->dtype));
    text_string(text, "\",\"shape\":[");
    for (size_t i = 0; i < tensor->shape.rank; i++) {
        if (i > 0)
            text_char(text, ',');
        text_signed(text, tensor->shape.dims[i]);
    }
    if (tensor->shared != NULL) {
        put_shared(text, tensor->shared);
    } else if (tensor->is_binary) {
        text_string(text, "],\"parameters\":{\"binary_data_size\":");
        text_unsigned(text, tensor->raw.size);
        text_char(text, '}');
    } else {
        text_string(text, "],\"data\":");
        TRY(put_elements(text, tensor, err));
    }
    text_char(text, '}');
    return STATUS_OK;
}

static void put_head(struct text *text, const struct call *call)
{
    text_char(text, '{');
    if (call->infer->id.size > 0) {
        text_string(text, "\"id\":");
        text_json_string(text, call->infer->id.data, call->infer->id.size);
        text_char(text, ',');
    }
    text_string(text, "\"model_name\":");
    put_string(text, model_name(call->model));
    text_string(text, ",\"model_version\":");
    put_string(text, model_version(call->model));
    text_string(text, ",\"outputs\":[");
}

enum status json_infer_encode(struct call *call, const struct response_tensor *tensors,
                              size_t count, struct error *err)
{
    struct piece *pieces = arena_take_array(&call->request.arena, count + 1, sizeof(*pieces));
    size_t used = 1;
    struct text text;

    text_init(&text, call);
    put_head(&text, call);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            text_char(&text, ',');
        TRY(put_output(&text, &tensors[i], err));
        if (tensors[i].is_binary && pieces != NULL)
            pieces[used++] = tensors[i].raw;
    }
    text_string(&text, "]}");
    if (pieces == NULL || text.failed)
        return error_set(err, STATUS_NO_MEMORY, "no host memory for the answer");
    pieces[0] = (struct piece){text.data, text.size};
    if (used > 1) {
        call->reply.content_type = "application/octet-stream";
        call->reply.json_size = text.size;
    }
    call_reply_pieces(call, pieces, used);
    return STATUS_OK;
}
