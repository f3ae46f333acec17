#include "serve/codec/json_message.h"

#include <jansson.h>
#include <string.h>

#include "models/json_format.h"
#include "serve/endpoint.h"

/* ---- requests ---- */

static bool is_blank(const struct call *call)
{
    for (size_t i = 0; i < call->body.received; i++)
        if (memchr(" \t\r\n", call->body.bytes[i], 4) == NULL)
            return false;
    return true;
}

static enum status read_body(struct call *call, json_t **out_object, struct error *err)
{
    json_error_t problem;
    json_t *object = is_blank(call)
                         ? json_object()
                         : json_loadb((const char *)call->body.bytes, call->body.received,
                                      JSON_REJECT_DUPLICATES, &problem);

    if (object == NULL)
        return error_set(err, STATUS_INVALID, "failed to parse the request JSON buffer: %s at %d",
                         problem.text, problem.position);
    if (!json_is_object(object)) {
        json_decref(object);
        return error_set(err, STATUS_INVALID, "the request is JSON but no object");
    }
    *out_object = object;
    return STATUS_OK;
}

/* Path variables: the names in braces of the pattern, in their order. */
static int add_path(const struct call *call, json_t *object)
{
    size_t variable = 0;
    int failed = 0;

    for (const char *open = strchr(call->route->pattern, '{'); open != NULL;
         open = strchr(open + 1, '{')) {
        struct slice value = call->path[variable++];
        char name[32];
        size_t length = strcspn(open + 1, "}");

        memcpy(name, open + 1, length);
        name[length] = '\0';
        failed |= json_object_set_new(object, name, json_stringn(value.data, value.size));
    }
    return failed;
}

static json_t *query_value(const char *text, size_t size)
{
    if (size == 4 && memcmp(text, "true", 4) == 0)
        return json_true();
    if (size == 5 && memcmp(text, "false", 5) == 0)
        return json_false();
    return json_stringn(text, size);
}

/* "a=1&b=2"; numbers may stay text, the reader takes them.  Fields of the protocol come in bodies:
 * with its paths a query means nothing, as with Triton, whose clients may send any. */
static int add_query(const struct call *call, json_t *object)
{
    const char *at = call->query.data, *end = at + call->query.size;
    int failed = 0;

    if (strncmp(call->route->pattern, "/sluice/", 8) != 0)
        return 0;
    while (at < end) {
        const char *stop = memchr(at, '&', (size_t)(end - at));
        const char *item_end = stop != NULL ? stop : end;
        const char *equals = memchr(at, '=', (size_t)(item_end - at));
        char name[64];

        if (equals == NULL || (size_t)(equals - at) >= sizeof(name))
            return -1;
        memcpy(name, at, (size_t)(equals - at));
        name[equals - at] = '\0';
        failed |= json_object_set_new(object, name,
                                      query_value(equals + 1, (size_t)(item_end - equals - 1)));
        at = stop != NULL ? stop + 1 : end;
    }
    return failed;
}

/* {"config": "…"} as {"config": {"string_param": "…"}}; null: not there.  `integer`: the member for
 * numbers. */
static json_t *wrap_choices(const json_t *bare, const char *integer)
{
    json_t *wrapped = json_object(), *value;
    const char *name;

    json_object_foreach((json_t *)(uintptr_t)bare, name, value)
    {
        const char *member = json_is_boolean(value)   ? "bool_param"
                             : json_is_integer(value) ? integer
                             : json_is_string(value)  ? "string_param"
                             : json_is_array(value)   ? "value"
                                                      : "double_param";
        json_t *choice = json_is_null(value) ? json_object() : json_pack("{s:O}", member, value);

        if (choice == NULL || json_object_set_new(wrapped, name, choice) != 0) {
            json_decref(wrapped);
            return NULL;
        }
    }
    return wrapped;
}

/* Settings may also be set by a bare text; their messages know only lists (`value`). */
static json_t *wrap_settings(const json_t *bare)
{
    json_t *wrapped = json_object(), *value;
    const char *name;

    json_object_foreach((json_t *)(uintptr_t)bare, name, value)
    {
        json_t *list = json_is_array(value) ? json_incref(value) : json_pack("[O]", value);
        json_t *setting = list != NULL ? json_pack("{s:o}", "value", list) : NULL;

        if (setting == NULL || json_object_set_new(wrapped, name, setting) != 0) {
            json_decref(wrapped);
            return NULL;
        }
    }
    return wrapped;
}

static enum status bend(struct call *call, json_t **object, struct error *err)
{
    json_t *parameters = json_object_get(*object, "parameters"), *bent;

    if (call->route->answer == ANSWER_SETTINGS) {
        bool is_trace = call->endpoint == &endpoint_trace_setting;

        bent = is_trace ? wrap_settings(*object) : wrap_choices(*object, "uint32_param");
        json_decref(*object);
        *object = json_pack("{s:o}", "settings", bent);
        return *object != NULL ? STATUS_OK : error_set(err, STATUS_NO_MEMORY, "out of memory");
    }
    if (call->endpoint == &endpoint_cuda_shared_memory_register) {
        bent = json_incref(json_object_get(json_object_get(*object, "raw_handle"), "b64"));
        return bent == NULL || json_object_set_new(*object, "raw_handle", bent) == 0
                   ? STATUS_OK
                   : error_set(err, STATUS_NO_MEMORY, "out of memory");
    }
    if (!json_is_object(parameters))
        return STATUS_OK;
    bent = wrap_choices(parameters, "int64_param");
    if (bent == NULL || json_object_set_new(*object, "parameters", bent) != 0)
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    return STATUS_OK;
}

enum status json_read_request(struct call *call, struct error *err)
{
    json_t *object;
    enum status status;

    TRY(read_body(call, &object, err));
    status = bend(call, &object, err);
    if (status == STATUS_OK && (add_path(call, object) != 0 || add_query(call, object) != 0))
        status = error_set(err, STATUS_INVALID, "the path or query of the request is malformed");
    if (status == STATUS_OK)
        status = json_format_read(call->endpoint->request, object, &call->message, err);
    json_decref(object);
    return status;
}

/* ---- answers ---- */

/* A map of messages as a list of them. */
static json_t *list_values(json_t *map)
{
    json_t *list = json_array(), *value;
    const char *name;

    json_object_foreach(map, name, value)
    {
        (void)json_array_append(list, value);
    }
    return list;
}

/* What a setting holds: the chosen scalar, or its list; of lists with one text, the text. */
static json_t *bare_setting(const char *name, json_t *setting)
{
    void *first = json_object_iter(setting);
    json_t *value = first != NULL ? json_object_iter_value(first) : NULL;

    if (value == NULL)
        return json_null();
    if (json_array_size(value) == 1 && strcmp(name, "trace_level") != 0)
        value = json_array_get(value, 0);
    return json_incref(value);
}

static json_t *bare_settings(json_t *map)
{
    json_t *bare = json_object(), *setting;
    const char *name;

    json_object_foreach(map, name, setting)
    {
        (void)json_object_set_new(bare, name, bare_setting(name, setting));
    }
    return bare;
}

/* A new reference to what is to be printed; NULL: nothing. */
static json_t *shape_answer(struct call *call, json_t *whole, json_t *first)
{
    switch (call->route->answer) {
    case ANSWER_LIST:
        return json_is_object(first) && call->endpoint != &endpoint_model_config
                   ? list_values(first)
                   : json_incref(first);
    case ANSWER_SETTINGS:
        return bare_settings(first);
    case ANSWER_FLAG:
        if (!json_is_true(first))
            call->reply.http_code = 400;
        return json_incref(whole);
    default:
        return json_object_size(whole) > 0 ? json_incref(whole) : NULL;
    }
}

static enum status print(struct call *call, const json_t *document, void **out_text,
                         size_t *out_size)
{
    size_t flags = JSON_COMPACT | JSON_ENCODE_ANY, size = json_dumpb(document, NULL, 0, flags);
    char *text = size > 0 ? call_take(call, size) : NULL;

    if (text == NULL)
        return STATUS_NO_MEMORY;
    *out_size = json_dumpb(document, text, size, flags);
    *out_text = text;
    return STATUS_OK;
}

enum status json_write_answer(struct call *call, const ProtobufCMessage *message, void **out_text,
                              size_t *out_size)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    json_t *whole, *answer;
    enum status status = STATUS_OK;

    *out_text = NULL;
    *out_size = 0;
    if (type->n_fields == 0)
        return STATUS_OK;
    if (call->route->answer == ANSWER_TEXT) {
        *out_text = *(char *const *)((const char *)message + type->fields[0].offset);
        *out_size = strlen(*out_text);
        return STATUS_OK;
    }
    whole = json_format_write(message);
    if (whole == NULL)
        return STATUS_NO_MEMORY;
    answer = shape_answer(call, whole, json_object_get(whole, type->fields[0].name));
    if (answer != NULL)
        status = print(call, answer, out_text, out_size);
    json_decref(answer);
    json_decref(whole);
    return status;
}
