#include "serve/codec/typed_contents.h"

#include "serve/codec/wire.h"

enum { ARENA_MOST = 4096 };

/* Which field carries a type, and how wide its elements are on the wire (0: varints). */
static unsigned field_of_dtype(enum dtype dtype, size_t *out_fixed)
{
    *out_fixed = 0;
    switch (dtype) {
    case DTYPE_BOOL:
        return 1;
    case DTYPE_INT8:
    case DTYPE_INT16:
    case DTYPE_INT32:
        return 2;
    case DTYPE_INT64:
        return 3;
    case DTYPE_UINT8:
    case DTYPE_UINT16:
    case DTYPE_UINT32:
        return 4;
    case DTYPE_UINT64:
        return 5;
    case DTYPE_FLOAT:
        *out_fixed = 4;
        return 6;
    case DTYPE_DOUBLE:
        *out_fixed = 8;
        return 7;
    case DTYPE_STRING:
        return 8;
    default:
        return 0; /* FLOAT16 and BFLOAT16 come only in raw form */
    }
}

static enum status mismatch(const struct infer_input *input, struct error *err)
{
    return error_set(err, STATUS_INVALID, "the contents of input '%.*s' do not fit its datatype %s",
                     (int)input->name.size, input->name.data, dtype_oip_name(input->dtype));
}

/* Elements in one field: packed or a single one. */
static size_t count_elements(const struct wire_field *field, size_t fixed)
{
    size_t count = 0;

    if (field->type != WIRE_BYTES)
        return 1;
    if (fixed > 0)
        return field->size / fixed;
    for (size_t i = 0; i < field->size; i++)
        count += (field->bytes[i] & 0x80) == 0;
    return count;
}

static enum status count_all(struct slice contents, const struct infer_input *input,
                             size_t *out_count, struct error *err)
{
    struct wire wire = wire_over(contents.data, contents.size);
    size_t fixed, count = 0;
    unsigned number = field_of_dtype(input->dtype, &fixed);
    struct wire_field field;

    while (wire_next(&wire, &field)) {
        if (field.number != number || (fixed > 0 && field.size % fixed != 0))
            return mismatch(input, err);
        count += number == 8 ? 1 : count_elements(&field, fixed);
    }
    if (wire.failed)
        return mismatch(input, err);
    *out_count = count;
    return STATUS_OK;
}

/* Fields for narrow types are int32 and uint32 (the low half of a varint, says protobuf). */
static bool fits(uint64_t value, enum dtype dtype)
{
    int32_t number = (int32_t)(uint32_t)value;

    switch (dtype) {
    case DTYPE_INT8:
        return number >= INT8_MIN && number <= INT8_MAX;
    case DTYPE_INT16:
        return number >= INT16_MIN && number <= INT16_MAX;
    case DTYPE_UINT8:
        return (uint32_t)value <= UINT8_MAX;
    case DTYPE_UINT16:
        return (uint32_t)value <= UINT16_MAX;
    default:
        return true;
    }
}

/* False: the value is none of its type. */
static bool put(uint8_t *to, uint64_t value, enum dtype dtype)
{
    if (dtype == DTYPE_BOOL)
        value = value != 0;
    else if (!fits(value, dtype))
        return false;
    memcpy(to, &value, dtype_bytes(dtype)); /* little-endian: the low bytes */
    return true;
}

/* Writes the elements of one field; returns the end of what was written, NULL when damaged
 * or out of its type's range. */
static uint8_t *put_elements(uint8_t *to, const struct wire_field *field, size_t fixed,
                             enum dtype dtype)
{
    struct wire wire = wire_over(field->bytes, field->size);
    uint64_t value;

    if (field->type != WIRE_BYTES) {
        return put(to, field->value, dtype) ? to + dtype_bytes(dtype) : NULL;
    }
    if (fixed > 0) {
        memcpy(to, field->bytes, field->size);
        return to + field->size;
    }
    while (wire.at < wire.end) {
        if (!wire_varint(&wire, &value) || !put(to, value, dtype))
            return NULL;
        to += dtype_bytes(dtype);
    }
    return to;
}

enum status typed_contents_decode(struct call *call, struct slice contents,
                                  struct infer_input *input, struct error *err)
{
    struct wire wire = wire_over(contents.data, contents.size);
    bool is_string = input->dtype == DTYPE_STRING;
    size_t fixed, count = 0;
    struct wire_field field;
    uint8_t *data, *to;

    (void)field_of_dtype(input->dtype, &fixed);
    TRY(count_all(contents, input, &count, err));
    if (count == 0)
        return STATUS_OK; /* an empty message is as good as none */
    input->bytes = count * dtype_bytes(input->dtype);
    data = input->bytes <= ARENA_MOST ? call_take(call, input->bytes)
                                      : call_take_pooled(call, input->bytes);
    if (data == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no host memory for input '%.*s'",
                         (int)input->name.size, input->name.data);
    to = data;
    while (wire_next(&wire, &field)) {
        if (is_string) {
            *(struct bytes *)(void *)to = (struct bytes){(const char *)field.bytes, field.size};
            to += sizeof(struct bytes);
            continue;
        }
        to = put_elements(to, &field, fixed, input->dtype);
        if (to == NULL)
            return mismatch(input, err);
    }
    input->data = data;
    input->has_data = input->is_ready = true;
    return STATUS_OK;
}
