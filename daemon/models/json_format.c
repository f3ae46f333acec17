#include "models/json_format.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/message.h"

/* ---- writing ---- */

static json_t *write_enum(const ProtobufCFieldDescriptor *field, int64_t number)
{
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value(field->descriptor, (int)number);

    return value == NULL ? json_integer(number) : json_string(value->name);
}

/* JSON integers here have 63 bits; what is more goes as a string, as protobuf writes all of them.
 */
static json_t *write_natural(uint64_t natural)
{
    char text[24];

    if (natural <= INT64_MAX)
        return json_integer((json_int_t)natural);
    (void)snprintf(text, sizeof(text), "%" PRIu64, natural);
    return json_string(text);
}

static json_t *write_number(double number)
{
    if (isfinite(number))
        return json_real(number);
    return json_string(isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
}

static json_t *write_value(const ProtobufCFieldDescriptor *field, union message_value value)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        return json_format_write(value.message);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
        return json_string(value.text == NULL ? "" : value.text);
    case PROTOBUF_C_TYPE_ENUM:
        return write_enum(field, value.integer);
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(value.natural != 0);
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        return write_number(value.number);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return write_natural(value.natural);
    default:
        return json_integer(value.integer);
    }
}

static json_t *write_list(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    json_t *list = json_array();

    for (size_t i = 0; list != NULL && i < message_count(message, field); i++)
        if (json_array_append_new(list, write_value(field, message_get(message, field, i))) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static const char *key_text(const ProtobufCMessage *entry, char room[24])
{
    const ProtobufCFieldDescriptor *key = &entry->descriptor->fields[0];
    union message_value value = message_get(entry, key, 0);

    if (key->type == PROTOBUF_C_TYPE_STRING)
        return value.text;
    (void)snprintf(room, 24, "%" PRIu64, value.natural);
    return room;
}

static json_t *write_map(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    json_t *map = json_object();

    for (size_t i = 0; map != NULL && i < message_count(message, field); i++) {
        const ProtobufCMessage *entry = message_get(message, field, i).message;
        const ProtobufCFieldDescriptor *value = &entry->descriptor->fields[1];
        char room[24];
        json_t *json;

        if (message_field_is_message(value) && message_count(entry, value) == 0)
            json = json_object();
        else
            json = write_value(value, message_get(entry, value, 0));
        if (json_object_set_new(map, key_text(entry, room), json) != 0) {
            json_decref(map);
            return NULL;
        }
    }
    return map;
}

/* NULL with *out_skip: the field is left out. */
static json_t *write_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                           bool *out_skip)
{
    *out_skip = false;
    if (message_field_is_map(field))
        return write_map(message, field);
    if (message_field_is_repeated(field))
        return write_list(message, field);
    *out_skip = (message_field_is_message(field) || message_field_is_oneof(field)) &&
                message_count(message, field) == 0;
    return *out_skip ? NULL : write_value(field, message_get(message, field, 0));
}

json_t *json_format_write(const ProtobufCMessage *message)
{
    json_t *json = json_object();

    for (unsigned i = 0; json != NULL && i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        bool skip;
        json_t *value = write_field(message, field, &skip);

        if (!skip && json_object_set_new(json, field->name, value) != 0) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}

/* ---- reading ---- */

enum { MAX_DEPTH = 64, MAX_NAME = 128 };

static enum status read_message(const ProtobufCMessageDescriptor *type, const json_t *json,
                                unsigned depth, ProtobufCMessage **out_message, struct error *err);

static const char *kind_of(const json_t *json)
{
    static const char *const names[] = {"an object", "a list", "a string", "an integer",
                                        "a number",  "true",   "false",    "null"};

    return names[json_typeof(json)];
}

static enum status wrong_kind(const ProtobufCFieldDescriptor *field, const json_t *json,
                              const char *wanted, struct error *err)
{
    return error_set(err, STATUS_INVALID, "field '%s' is %s, %s belongs there", field->name,
                     kind_of(json), wanted);
}

/* Integers come as numbers or, as protobuf writes 64-bit ones, as strings. */
static enum status read_integer(const ProtobufCFieldDescriptor *field, const json_t *json,
                                union message_value *out_value, struct error *err)
{
    if (json_is_string(json)) {
        const char *text = json_string_value(json);
        bool negative = text[0] == '-';
        uint64_t magnitude;
        char *end;

        errno = 0;
        magnitude = strtoull(text + (negative ? 1 : 0), &end, 10);
        if (!isdigit((unsigned char)text[negative ? 1 : 0]) || *end != '\0' || errno == ERANGE)
            return error_set(err, STATUS_INVALID, "field '%s': '%s' is no integer", field->name,
                             text);
        return message_check_integer(field, negative, magnitude, out_value, err);
    }
    if (json_is_integer(json)) {
        json_int_t number = json_integer_value(json);

        return message_check_integer(field, number < 0,
                                     number < 0 ? 0 - (uint64_t)number : (uint64_t)number,
                                     out_value, err);
    }
    return wrong_kind(field, json, "an integer", err);
}

static enum status read_number(const ProtobufCFieldDescriptor *field, const json_t *json,
                               union message_value *out_value, struct error *err)
{
    if (json_is_number(json)) {
        out_value->number = json_number_value(json);
        return STATUS_OK;
    }
    if (!json_is_string(json))
        return wrong_kind(field, json, "a number", err);
    if (strcmp(json_string_value(json), "NaN") == 0)
        out_value->number = NAN;
    else if (strcmp(json_string_value(json), "Infinity") == 0)
        out_value->number = HUGE_VAL;
    else if (strcmp(json_string_value(json), "-Infinity") == 0)
        out_value->number = -HUGE_VAL;
    else
        return wrong_kind(field, json, "a number", err);
    return STATUS_OK;
}

static enum status read_enum(const ProtobufCFieldDescriptor *field, const json_t *json,
                             union message_value *out_value, struct error *err)
{
    const ProtobufCEnumDescriptor *type = field->descriptor;
    const ProtobufCEnumValue *value = NULL;

    if (json_is_string(json))
        value = protobuf_c_enum_descriptor_get_value_by_name(type, json_string_value(json));
    else if (json_is_integer(json) && json_integer_value(json) >= 0 &&
             json_integer_value(json) <= INT32_MAX)
        value = protobuf_c_enum_descriptor_get_value(type, (int)json_integer_value(json));
    else
        return wrong_kind(field, json, "the name of a value", err);
    if (value == NULL)
        return error_set(err, STATUS_INVALID, "field '%s': '%s' is no value of %s", field->name,
                         json_is_string(json) ? json_string_value(json) : "the number",
                         type->short_name);
    out_value->integer = value->value;
    return STATUS_OK;
}

static enum status read_text(const ProtobufCFieldDescriptor *field, const json_t *json,
                             union message_value *out_value, struct error *err)
{
    if (!json_is_string(json))
        return wrong_kind(field, json, "a string", err);
    out_value->text = strdup(json_string_value(json));
    if (out_value->text == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for field '%s'", field->name);
    return STATUS_OK;
}

static enum status read_value(const ProtobufCFieldDescriptor *field, const json_t *json,
                              unsigned depth, union message_value *out_value, struct error *err)
{
    *out_value = (union message_value){.natural = 0};
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        if (!json_is_object(json))
            return wrong_kind(field, json, "an object", err);
        return read_message(field->descriptor, json, depth + 1, &out_value->message, err);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
        return read_text(field, json, out_value, err);
    case PROTOBUF_C_TYPE_ENUM:
        return read_enum(field, json, out_value, err);
    case PROTOBUF_C_TYPE_BOOL:
        if (!json_is_boolean(json))
            return wrong_kind(field, json, "true or false", err);
        out_value->natural = json_is_true(json) ? 1 : 0;
        return STATUS_OK;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        return read_number(field, json, out_value, err);
    default:
        return read_integer(field, json, out_value, err);
    }
}

static enum status put_value(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                             const json_t *json, unsigned depth, struct error *err)
{
    union message_value value;

    TRY(read_value(field, json, depth, &value, err));
    if (message_put(message, field, value) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory for field '%s'", field->name);
    return STATUS_OK;
}

static enum status read_list(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                             const json_t *json, unsigned depth, struct error *err)
{
    size_t index;
    json_t *element;

    if (!json_is_array(json))
        return wrong_kind(field, json, "a list", err);
    json_array_foreach(json, index, element)
    {
        enum status status = put_value(message, field, element, depth, err);

        if (status != STATUS_OK)
            return error_prefix(err, status, "%s[%zu]", field->name, index);
    }
    return STATUS_OK;
}

static enum status put_key(ProtobufCMessage *entry, const char *key, struct error *err)
{
    json_t *json = json_string(key);
    enum status status = json == NULL
                             ? STATUS_NO_MEMORY
                             : put_value(entry, &entry->descriptor->fields[0], json, 0, err);

    json_decref(json);
    return status;
}

static enum status read_map(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                            const json_t *json, unsigned depth, struct error *err)
{
    const char *key;
    json_t *element;

    if (!json_is_object(json))
        return wrong_kind(field, json, "an object", err);
    json_object_foreach((json_t *)(uintptr_t)json, key, element)
    {
        ProtobufCMessage *entry = message_create(field->descriptor);
        enum status status = STATUS_NO_MEMORY;

        if (entry != NULL)
            status = put_key(entry, key, err);
        if (status == STATUS_OK)
            status = put_value(entry, &entry->descriptor->fields[1], element, depth, err);
        if (status != STATUS_OK) {
            message_destroy(entry);
            return error_prefix(err, status, "%s['%s']", field->name, key);
        }
        TRY(message_put(message, field, (union message_value){.message = entry}));
    }
    return STATUS_OK;
}

/* "maxBatchSize" -> "max_batch_size"; names that are snake_case already stay. */
static void to_snake(const char *name, char snake[MAX_NAME])
{
    size_t to = 0;

    for (; *name != '\0' && to + 2 < MAX_NAME; name++) {
        if (isupper((unsigned char)*name))
            snake[to++] = '_';
        snake[to++] = (char)tolower((unsigned char)*name);
    }
    snake[to] = '\0';
}

static enum status read_field(ProtobufCMessage *message, const char *name, const json_t *json,
                              unsigned depth, struct error *err)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    const ProtobufCFieldDescriptor *field;
    char snake[MAX_NAME];
    const char *nearest;

    to_snake(name, snake);
    field = message_field(type, snake, &nearest);
    if (field == NULL)
        return error_set(err, STATUS_INVALID, "%s has no field '%s'%s%s%s", type->short_name, name,
                         nearest == NULL ? "" : "; did you mean '", nearest == NULL ? "" : nearest,
                         nearest == NULL ? "" : "'?");
    if (json_is_null(json))
        return STATUS_OK; /* null: as if it were not there */
    if (message_field_is_map(field))
        return read_map(message, field, json, depth, err);
    if (message_field_is_repeated(field))
        return read_list(message, field, json, depth, err);
    return put_value(message, field, json, depth, err);
}

static enum status read_members(ProtobufCMessage *message, const json_t *json, unsigned depth,
                                struct error *err)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)json, name, value)
        TRY(read_field(message, name, value, depth, err));
    return STATUS_OK;
}

static enum status read_message(const ProtobufCMessageDescriptor *type, const json_t *json,
                                unsigned depth, ProtobufCMessage **out_message, struct error *err)
{
    ProtobufCMessage *message;
    enum status status;

    if (depth > MAX_DEPTH)
        return error_set(err, STATUS_INVALID, "objects are nested more than %d deep", MAX_DEPTH);
    message = message_create(type);
    if (message == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for %s", type->short_name);
    status = read_members(message, json, depth, err);
    if (status != STATUS_OK) {
        message_destroy(message);
        return status;
    }
    *out_message = message;
    return STATUS_OK;
}

static enum status check_object(const ProtobufCMessageDescriptor *type, const json_t *json,
                                struct error *err)
{
    if (json_is_object(json))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s is %s, an object belongs there", type->short_name,
                     kind_of(json));
}

enum status json_format_read(const ProtobufCMessageDescriptor *type, const json_t *json,
                             ProtobufCMessage **out_message, struct error *err)
{
    TRY(check_object(type, json, err));
    return read_message(type, json, 0, out_message, err);
}

/* NULL: the text is no JSON. */
static json_t *load_text(const char *text, struct error *err)
{
    json_error_t error;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &error);

    if (json == NULL)
        (void)error_set(err, STATUS_INVALID, "line %d, column %d: %s", error.line, error.column,
                        error.text);
    return json;
}

enum status json_format_fill_text(ProtobufCMessage *message, const char *text, struct error *err)
{
    json_t *json = load_text(text, err);
    enum status status;

    if (json == NULL)
        return STATUS_INVALID;
    status = check_object(message->descriptor, json, err);
    if (status == STATUS_OK)
        status = read_members(message, json, 0, err);
    json_decref(json);
    return status;
}

enum status json_format_read_text(const ProtobufCMessageDescriptor *type, const char *text,
                                  ProtobufCMessage **out_message, struct error *err)
{
    json_t *json = load_text(text, err);
    enum status status;

    if (json == NULL)
        return STATUS_INVALID;
    status = json_format_read(type, json, out_message, err);
    json_decref(json);
    return status;
}
