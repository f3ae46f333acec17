#include "models/message.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

ProtobufCMessage *message_create(const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *message = malloc(type->sizeof_message);

    if (message != NULL)
        type->message_init(message);
    return message;
}

void message_destroy(ProtobufCMessage *message)
{
    if (message != NULL)
        protobuf_c_message_free_unpacked(message, NULL);
}

/* ---- kinds of fields ---- */

bool message_field_is_repeated(const ProtobufCFieldDescriptor *field)
{
    return field->label == PROTOBUF_C_LABEL_REPEATED;
}

bool message_field_is_message(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_MESSAGE;
}

bool message_field_is_oneof(const ProtobufCFieldDescriptor *field)
{
    return (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0;
}

/* protoc turns map<K, V> into a repeated message "…Entry" of key = 1 and value = 2. */
bool message_field_is_map(const ProtobufCFieldDescriptor *field)
{
    const ProtobufCMessageDescriptor *entry = field->descriptor;
    size_t length;

    if (!message_field_is_repeated(field) || !message_field_is_message(field) ||
        entry->n_fields != 2)
        return false;
    length = strlen(entry->short_name);
    return length > 5 && strcmp(entry->short_name + length - 5, "Entry") == 0 &&
           strcmp(entry->fields[0].name, "key") == 0 && strcmp(entry->fields[1].name, "value") == 0;
}

/* ---- memory of fields ---- */

static size_t element_bytes(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 4;
    }
}

static void *member(const ProtobufCMessage *message, unsigned offset)
{
    return (char *)(uintptr_t)message + offset;
}

static void drop_value(ProtobufCType type, union message_value value)
{
    if (type == PROTOBUF_C_TYPE_STRING || type == PROTOBUF_C_TYPE_BYTES)
        free(value.text);
    else if (type == PROTOBUF_C_TYPE_MESSAGE)
        message_destroy(value.message);
}

static void store(ProtobufCType type, void *at, union message_value value)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        *(int64_t *)at = value.integer;
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        *(uint64_t *)at = value.natural;
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        *(uint32_t *)at = (uint32_t)value.natural;
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)at = value.natural != 0;
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        *(float *)at = (float)value.number;
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        *(double *)at = value.number;
        break;
    case PROTOBUF_C_TYPE_STRING:
        *(char **)at = value.text;
        break;
    case PROTOBUF_C_TYPE_BYTES:
        *(ProtobufCBinaryData *)at =
            (ProtobufCBinaryData){.len = strlen(value.text), .data = (uint8_t *)value.text};
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        *(ProtobufCMessage **)at = value.message;
        break;
    default: /* 32-bit signed ones and enums */
        *(int32_t *)at = (int32_t)value.integer;
        break;
    }
}

static union message_value load(ProtobufCType type, const void *at)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return (union message_value){.integer = *(const int64_t *)at};
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return (union message_value){.natural = *(const uint64_t *)at};
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return (union message_value){.natural = *(const uint32_t *)at};
    case PROTOBUF_C_TYPE_BOOL:
        return (union message_value){.natural = *(const protobuf_c_boolean *)at != 0};
    case PROTOBUF_C_TYPE_FLOAT:
        return (union message_value){.number = (double)*(const float *)at};
    case PROTOBUF_C_TYPE_DOUBLE:
        return (union message_value){.number = *(const double *)at};
    case PROTOBUF_C_TYPE_STRING:
        return (union message_value){.text = *(char *const *)at};
    case PROTOBUF_C_TYPE_BYTES:
        return (union message_value){.text = (char *)((const ProtobufCBinaryData *)at)->data};
    case PROTOBUF_C_TYPE_MESSAGE:
        return (union message_value){.message = *(ProtobufCMessage *const *)at};
    default:
        return (union message_value){.integer = *(const int32_t *)at};
    }
}

/* ---- reading ---- */

static bool is_default(ProtobufCType type, union message_value value)
{
    switch (type) {
    case PROTOBUF_C_TYPE_STRING:
        return value.text == NULL || value.text[0] == '\0';
    case PROTOBUF_C_TYPE_BYTES:
        return value.text == NULL;
    case PROTOBUF_C_TYPE_MESSAGE:
        return value.message == NULL;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        return value.number == 0.0;
    default:
        return value.natural == 0;
    }
}

static bool is_chosen(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return *(const uint32_t *)member(message, field->quantifier_offset) == field->id;
}

size_t message_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (message_field_is_repeated(field))
        return *(const size_t *)member(message, field->quantifier_offset);
    if (message_field_is_oneof(field))
        return is_chosen(message, field) ? 1 : 0;
    return is_default(field->type, load(field->type, member(message, field->offset))) ? 0 : 1;
}

union message_value message_get(const ProtobufCMessage *message,
                                const ProtobufCFieldDescriptor *field, size_t index)
{
    const char *at = member(message, field->offset);

    if (message_field_is_oneof(field) && !is_chosen(message, field))
        return (union message_value){.natural = 0};
    if (message_field_is_repeated(field))
        at = *(const char *const *)member(message, field->offset) +
             index * element_bytes(field->type);
    return load(field->type, at);
}

/* ---- writing ---- */

static bool same_key(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    const ProtobufCFieldDescriptor *key = &a->descriptor->fields[0];
    union message_value left = message_get(a, key, 0), right = message_get(b, key, 0);

    if (key->type == PROTOBUF_C_TYPE_STRING)
        return strcmp(left.text, right.text) == 0;
    return left.natural == right.natural;
}

static bool replace_entry(ProtobufCMessage **entries, size_t count, ProtobufCMessage *entry)
{
    for (size_t i = 0; i < count; i++)
        if (same_key(entries[i], entry)) {
            message_destroy(entries[i]);
            entries[i] = entry;
            return true;
        }
    return false;
}

static enum status add(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                       union message_value value)
{
    size_t *count = member(message, field->quantifier_offset);
    void **elements = member(message, field->offset);
    size_t bytes = element_bytes(field->type);
    void *grown;

    if (message_field_is_map(field) && replace_entry(*elements, *count, value.message))
        return STATUS_OK;
    /* Room doubles whenever the count is a power of two, so that it need not be kept anywhere. */
    if ((*count & (*count - 1)) == 0) {
        grown = realloc(*elements, (*count == 0 ? 1 : *count * 2) * bytes);
        if (grown == NULL) {
            drop_value(field->type, value);
            return STATUS_NO_MEMORY;
        }
        *elements = grown;
    }
    store(field->type, (char *)*elements + *count * bytes, value);
    ++*count;
    return STATUS_OK;
}

/* Empties the oneof that `field` belongs to. */
static void clear_oneof(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    uint32_t *chosen = member(message, field->quantifier_offset);

    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *other = &message->descriptor->fields[i];

        if (message_field_is_oneof(other) && other->id == *chosen &&
            other->quantifier_offset == field->quantifier_offset)
            drop_value(other->type, load(other->type, member(message, other->offset)));
    }
    *chosen = 0;
}

enum status message_put(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                        union message_value value)
{
    void *at = member(message, field->offset);

    if (message_field_is_repeated(field))
        return add(message, field, value);
    if (message_field_is_oneof(field)) {
        clear_oneof(message, field);
        *(uint32_t *)member(message, field->quantifier_offset) = field->id;
    } else {
        union message_value old = load(field->type, at);

        if (old.text != protobuf_c_empty_string || field->type != PROTOBUF_C_TYPE_STRING)
            drop_value(field->type, old);
    }
    store(field->type, at, value);
    return STATUS_OK;
}

/* ---- numbers ---- */

struct range {
    uint64_t largest;  /* positive */
    uint64_t smallest; /* magnitude of the most negative; 0: none may be */
    const char *name;
};

static struct range range_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return (struct range){INT64_MAX, (uint64_t)INT64_MAX + 1, "int64"};
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return (struct range){UINT64_MAX, 0, "uint64"};
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return (struct range){UINT32_MAX, 0, "uint32"};
    case PROTOBUF_C_TYPE_BOOL:
        return (struct range){1, 0, "bool"};
    default:
        return (struct range){INT32_MAX, (uint64_t)INT32_MAX + 1, "int32"};
    }
}

enum status message_check_integer(const ProtobufCFieldDescriptor *field, bool is_negative,
                                  uint64_t magnitude, union message_value *out_value,
                                  struct error *err)
{
    struct range range = range_of(field->type);

    if (magnitude > (is_negative ? range.smallest : range.largest))
        return error_set(err, STATUS_INVALID,
                         "field '%s' is %s, %s%" PRIu64 " is outside its range", field->name,
                         range.name, is_negative ? "-" : "", magnitude);
    if (is_negative)
        out_value->integer = (int64_t)(0 - magnitude);
    else
        out_value->natural = magnitude;
    return STATUS_OK;
}

/* ---- names ---- */

enum { NAME_ROOM = 64 };

/* Edits (insert, delete, change) between two names of less than NAME_ROOM letters. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_ROOM + 1], length = strlen(b);

    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < length; j++) {
            size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
            size_t either = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;

            diagonal = row[j + 1];
            row[j + 1] = change < either ? change : either;
        }
    }
    return row[length];
}

const ProtobufCFieldDescriptor *message_field(const ProtobufCMessageDescriptor *type,
                                              const char *name, const char **out_nearest)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(type, name);
    size_t nearest = strlen(name) / 3 + 1;

    *out_nearest = NULL;
    if (field != NULL || strlen(name) >= NAME_ROOM)
        return field;
    for (unsigned i = 0; i < type->n_fields; i++) {
        size_t edits = distance(name, type->fields[i].name);

        if (edits <= nearest) {
            nearest = edits;
            *out_nearest = type->fields[i].name;
        }
    }
    return NULL;
}
