/* Server reflection, v1 and v1alpha (the same messages under two names): which services there are
 * and the files that define them, out of the FileDescriptorSet embedded in the program. */
#include <string.h>

#include "descriptors.h"
#include "reflection.pb-c.h"
#include "reflection_v1alpha.pb-c.h"
#include "serve/codec/wire.h"
#include "serve/endpoint.h"
#include "serve/internal.h"

typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;

enum { FILES_MAX = 16, SET_FILE = 1 };
enum { FILE_NAME = 1, FILE_PACKAGE = 2, FILE_DEPENDENCY = 3, FILE_MESSAGE = 4, FILE_ENUM = 5 };
enum { FILE_SERVICE = 6, NAME = 1, SERVICE_METHOD = 2, MESSAGE_NESTED = 3, MESSAGE_ENUM = 4 };

/* Calls `each` for every length-delimited field `number` of the message; stops when it says true.
 */
typedef bool (*each_fn)(void *arg, struct slice value);
static bool for_each_field(struct slice message, unsigned number, each_fn each, void *arg)
{
    struct wire wire = wire_over(message.data, message.size);
    struct wire_field field;

    while (wire_next(&wire, &field))
        if (field.number == number && field.type == WIRE_BYTES &&
            each(arg, (struct slice){(const char *)field.bytes, field.size}))
            return true;
    return false;
}

static bool keep_first(void *arg, struct slice value)
{
    *(struct slice *)arg = value;
    return true;
}

static struct slice text_of(struct slice message, unsigned number)
{
    struct slice text = {"", 0};

    (void)for_each_field(message, number, keep_first, &text);
    return text;
}

static struct slice whole_set(void)
{
    return (struct slice){(const char *)proto_descriptor_set,
                          (size_t)(proto_descriptor_set_end - proto_descriptor_set)};
}

/* ---- search ---- */

struct search {
    struct slice wanted; /* what is left of the symbol */
    struct slice found;  /* the file */
    bool by_name;
};

static bool eat(struct slice *text, struct slice part)
{
    if (text->size < part.size || memcmp(text->data, part.data, part.size) != 0)
        return false;
    text->data += part.size;
    text->size -= part.size;
    return true;
}

/* Does `scope` define the rest of the symbol: itself, or something inside? */
static bool defines(void *arg, struct slice scope)
{
    struct slice rest = *(struct slice *)arg;

    if (!eat(&rest, text_of(scope, NAME)))
        return false;
    if (rest.size == 0)
        return true;
    if (*rest.data != '.')
        return false;
    rest.data++;
    rest.size--;
    return for_each_field(scope, SERVICE_METHOD, defines, &rest) ||
           for_each_field(scope, MESSAGE_NESTED, defines, &rest) ||
           for_each_field(scope, MESSAGE_ENUM, defines, &rest);
}

static bool is_the_file(void *arg, struct slice file)
{
    struct search *search = arg;
    struct slice rest = search->wanted, name = text_of(file, FILE_NAME);
    bool found;

    if (search->by_name) {
        found = rest.size == name.size && memcmp(rest.data, name.data, name.size) == 0;
    } else {
        found = eat(&rest, text_of(file, FILE_PACKAGE)) && rest.size > 0 && *rest.data == '.';
        if (found) {
            rest.data++;
            rest.size--;
            found = for_each_field(file, FILE_MESSAGE, defines, &rest) ||
                    for_each_field(file, FILE_ENUM, defines, &rest) ||
                    for_each_field(file, FILE_SERVICE, defines, &rest);
        }
    }
    if (found)
        search->found = file;
    return found;
}

struct file_list {
    ProtobufCBinaryData files[FILES_MAX];
    size_t count;
};

/* Adds a file and, behind it, what it imports; each once. */
static bool add_import(void *arg, struct slice name);
static void add_file(struct file_list *list, struct slice file)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->files[i].data == (const uint8_t *)file.data)
            return;
    if (list->count == FILES_MAX)
        return;
    list->files[list->count++] = (ProtobufCBinaryData){file.size, (uint8_t *)(uintptr_t)file.data};
    (void)for_each_field(file, FILE_DEPENDENCY, add_import, list);
}

static bool add_import(void *arg, struct slice name)
{
    struct search search = {.wanted = name, .by_name = true};

    if (for_each_field(whole_set(), SET_FILE, is_the_file, &search))
        add_file(arg, search.found);
    return false;
}

/* ---- answers ---- */

static void set_error(reflection_response *reply, Grpc__Reflection__V1__ErrorResponse *error,
                      enum status status, char *text)
{
    error->error_code = status_grpc_code(status);
    error->error_message = text;
    reply->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    reply->error_response = error;
}

static void answer_file(struct call *call, reflection_response *reply, const char *wanted,
                        bool by_name)
{
    struct search search = {.wanted = {wanted, strlen(wanted)}, .by_name = by_name};
    Grpc__Reflection__V1__FileDescriptorResponse files =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    struct file_list list = {.count = 0};

    if (for_each_field(whole_set(), SET_FILE, is_the_file, &search)) {
        add_file(&list, search.found);
        files.file_descriptor_proto = list.files;
        files.n_file_descriptor_proto = list.count;
        reply->message_response_case =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
        reply->file_descriptor_response = &files;
    } else {
        set_error(reply, &error, STATUS_NOT_FOUND, "no such file or symbol");
    }
    call_reply_message(call, &reply->base);
}

static void answer_services(struct call *call, reflection_response *reply)
{
    Grpc__Reflection__V1__ServiceResponse services[FILES_MAX], *rows[FILES_MAX];
    Grpc__Reflection__V1__ListServiceResponse list =
        GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    unsigned carried = listener_services(call->stream->connection->role);
    const struct endpoint *const *table;
    size_t count, found = 0;

    table = endpoint_table(&count);
    for (size_t i = 0; i < count && found < FILES_MAX; i++) {
        const char *path = table[i]->path, *slash;
        struct slice name;
        bool known = false;

        if (path == NULL || (table[i]->service & carried) == 0)
            continue;
        slash = strchr(path + 1, '/');
        name = (struct slice){path + 1, (size_t)(slash - path - 1)};
        for (size_t k = 0; k < found; k++)
            known |= strlen(services[k].name) == name.size &&
                     memcmp(services[k].name, name.data, name.size) == 0;
        if (known)
            continue;
        grpc__reflection__v1__service_response__init(&services[found]);
        services[found].name = arena_copy_string(&call->request.arena, name.data, name.size);
        if (services[found].name == NULL)
            break;
        rows[found] = &services[found];
        found++;
    }
    list.service = rows;
    list.n_service = found;
    reply->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    reply->list_services_response = &list;
    call_reply_message(call, &reply->base);
}

void run_reflection(struct call *call)
{
    const reflection_request *request = (const void *)call->message;
    reflection_response reply = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;

    reply.valid_host = request->host;
    reply.original_request = (reflection_request *)(uintptr_t)request;
    switch (request->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        answer_services(call, &reply);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        answer_file(call, &reply, request->file_by_filename, true);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        answer_file(call, &reply, request->file_containing_symbol, false);
        break;
    default:
        set_error(&reply, &error, STATUS_UNSUPPORTED, "no extensions here");
        call_reply_message(call, &reply.base);
        break;
    }
}

/* The older name's messages have the same fields: read as the newer ones. */
void run_reflection_alpha(struct call *call)
{
    ProtobufCMessage *alpha = call->message;

    alpha->descriptor = &grpc__reflection__v1__server_reflection_request__descriptor;
    run_reflection(call);
}
