#include "onnx/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static enum status read_opset(struct reader *reader, struct bytes proto, struct opset *opset,
                              struct error *err)
{
    struct raw_opset raw;

    TRY(proto_read_opset(&reader->arena, proto, &raw, err));
    TRY(proto_text(&reader->arena, raw.domain, "a domain", &opset->domain, err));
    if (strcmp(opset->domain, "ai.onnx") == 0)
        opset->domain = "";
    opset->version = raw.version;
    if (opset->domain[0] == '\0' && (raw.version < OPSET_OLDEST || raw.version > OPSET_NEWEST))
        return error_set(err, STATUS_UNSUPPORTED,
                         "it is written for opset %" PRId64 ", supported are %d to %d", raw.version,
                         OPSET_OLDEST, OPSET_NEWEST);
    return STATUS_OK;
}

static enum status read_opsets(struct reader *reader, const struct bytes_list *protos,
                               struct opsets *opsets, struct error *err)
{
    opsets->items = arena_take_array(&reader->arena, protos->count, sizeof(*opsets->items));
    if (opsets->items == NULL)
        return reader_no_memory(err);
    for (size_t i = 0; i < protos->count; i++) {
        TRY(read_opset(reader, protos->items[i], &opsets->items[i], err));
        for (size_t k = 0; k < i; k++)
            if (strcmp(opsets->items[k].domain, opsets->items[i].domain) == 0 &&
                opsets->items[k].version != opsets->items[i].version)
                return error_set(err, STATUS_INVALID, "domain '%.100s' is imported twice",
                                 opsets->items[i].domain);
    }
    opsets->count = protos->count;
    return STATUS_OK;
}

static enum status read_function(struct reader *reader, struct bytes proto,
                                 struct function *function, struct error *err)
{
    struct arena *arena = &reader->arena;

    TRY(proto_read_function(arena, proto, &function->raw, err));
    TRY(proto_text(arena, function->raw.name, "a function's name", &function->name, err));
    TRY(proto_text(arena, function->raw.domain, "a function's domain", &function->domain, err));
    TRY(proto_text(arena, function->raw.overload, "a function's overload", &function->overload,
                   err));
    if (strcmp(function->domain, "ai.onnx") == 0)
        function->domain = "";
    return read_opsets(reader, &function->raw.opsets, &function->opsets, err);
}

static enum status read_functions(struct reader *reader, const struct bytes_list *protos,
                                  struct error *err)
{
    reader->function = arena_take_array(&reader->arena, protos->count, sizeof(struct function));
    if (reader->function == NULL)
        return reader_no_memory(err);
    for (size_t i = 0; i < protos->count; i++) {
        struct function *function = &reader->function[i];
        enum status status = read_function(reader, protos->items[i], function, err);

        if (status != STATUS_OK)
            return error_prefix(err, status, "function %zu", i);
        for (size_t k = 0; k < i; k++)
            if (strcmp(reader->function[k].name, function->name) == 0 &&
                strcmp(reader->function[k].domain, function->domain) == 0 &&
                strcmp(reader->function[k].overload, function->overload) == 0)
                return error_set(err, STATUS_INVALID, "two functions have the name '%.100s'",
                                 function->name);
    }
    reader->functions = protos->count;
    return STATUS_OK;
}

static void note_facts(struct reader *reader, const struct raw_model *raw)
{
    struct onnx_info *info = &reader->info;

    info->ir_version = raw->ir_version;
    info->file_bytes = reader->file->data.size;
    for (size_t i = 0; i < reader->opsets.count; i++)
        if (reader->opsets.items[i].domain[0] == '\0')
            info->opset = reader->opsets.items[i].version;
    (void)snprintf(info->producer, sizeof(info->producer), "%.*s",
                   (int)(raw->producer.size > 63 ? 63 : raw->producer.size),
                   raw->producer.size > 0 ? raw->producer.data : "");
}

static enum status read_model(struct reader *reader, struct graph *graph, struct error *err)
{
    struct raw_model raw;
    struct scope scope;
    enum status status;

    TRY(proto_read_model(&reader->arena, reader->file->data, &raw, err));
    if ((raw.present & UINT32_C(1) << 7) == 0)
        return error_set(err, STATUS_INVALID, "it holds no graph");
    if (raw.ir_version < 3)
        return error_set(err, STATUS_UNSUPPORTED,
                         "its IR version is %" PRId64 ", supported are 3 and newer",
                         raw.ir_version);
    TRY(read_opsets(reader, &raw.opsets, &reader->opsets, err));
    TRY(read_functions(reader, &raw.functions, err));
    note_facts(reader, &raw);
    scope_init(&scope, reader, graph, NULL, &reader->opsets);
    status = build_graph(&scope, raw.graph, err);
    scope_deinit(&scope);
    TRY(status);
    if (graph->outputs == 0)
        return error_set(err, STATUS_INVALID, "its graph has no output");
    return STATUS_OK;
}

static void reader_init(struct reader *reader, struct file *file, int folder_fd)
{
    *reader =
        (struct reader){.file = file, .folder_fd = folder_fd, .readable_bytes = file->data.size};
    arena_init(&reader->arena);
    if (getrandom(&reader->seed, sizeof(reader->seed), GRND_NONBLOCK) < 0)
        reader->seed = (uintptr_t)reader;
}

static void reader_deinit(struct reader *reader)
{
    for (struct external_file *entry = reader->external; entry != NULL; entry = entry->next) {
        file_unmap(entry->file);
        file_unref(entry->file);
    }
    arena_deinit(&reader->arena);
}

static enum status read_file(struct file *file, int folder_fd, struct graph **out_graph,
                             struct onnx_info *out_info, struct error *err)
{
    struct graph *graph = graph_create();
    struct reader reader;
    enum status status;

    if (graph == NULL)
        return reader_no_memory(err);
    reader_init(&reader, file, folder_fd);
    status = read_model(&reader, graph, err);
    if (status == STATUS_OK) {
        *out_graph = graph;
        if (out_info != NULL)
            *out_info = reader.info;
    } else {
        graph_destroy(graph);
    }
    reader_deinit(&reader);
    return status;
}

static int open_folder(const char *folder)
{
    return open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* The folder of a path: what stands before its last slash. */
static int open_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder;
    int fd;

    if (slash == NULL)
        return open_folder(".");
    folder = strndup(path, (size_t)(slash - path) + 1);
    if (folder == NULL)
        return -1;
    fd = open_folder(folder);
    free(folder);
    return fd;
}

/* A mixture of two files is neither. */
static enum status read_unchanged(struct file *file, int folder_fd, struct graph **out_graph,
                                  struct onnx_info *out_info, struct error *err)
{
    struct graph *graph = NULL;
    enum status status = read_file(file, folder_fd, &graph, out_info, err);

    if (file_check(file) != STATUS_OK) {
        graph_destroy(graph);
        return error_set(err, STATUS_PRECONDITION, "the file was changed while it was read");
    }
    if (status == STATUS_OK)
        *out_graph = graph;
    return status;
}

enum status onnx_read_file(const char *path, struct graph **out_graph, struct onnx_info *out_info,
                           struct error *err)
{
    struct file *file;
    enum status status;
    int folder_fd;

    TRY(file_map(path, &file, err));
    folder_fd = open_folder_of(path);
    if (folder_fd < 0)
        status = error_set(err, errno == ENOMEM ? STATUS_NO_MEMORY : STATUS_IO,
                           "the folder cannot be opened: %s", strerror(errno));
    else
        status = read_unchanged(file, folder_fd, out_graph, out_info, err);
    if (folder_fd >= 0)
        (void)close(folder_fd);
    file_unmap(file);
    file_unref(file);
    if (status != STATUS_OK)
        return error_prefix(err, status, "'%.200s'", path);
    return STATUS_OK;
}

enum status onnx_read_bytes(const void *bytes, size_t size, const char *folder,
                            struct graph **out_graph, struct onnx_info *out_info, struct error *err)
{
    struct file *file = file_copy((struct bytes){bytes, size});
    int folder_fd = -1;
    enum status status;

    if (file == NULL)
        return reader_no_memory(err);
    if (folder != NULL)
        folder_fd = open_folder(folder);
    if (folder != NULL && folder_fd < 0)
        status = error_set(err, STATUS_IO, "'%.200s': %s", folder, strerror(errno));
    else
        status = read_file(file, folder_fd, out_graph, out_info, err);
    if (folder_fd >= 0)
        (void)close(folder_fd);
    file_unref(file);
    return status;
}

enum status onnx_read_tensor(const void *bytes, size_t size, struct constant **out_tensor,
                             struct error *err)
{
    struct file *file = file_copy((struct bytes){bytes, size});
    struct reader reader;
    enum status status;

    if (file == NULL)
        return reader_no_memory(err);
    reader_init(&reader, file, -1);
    status = tensor_read(&reader, file, file->data, out_tensor, NULL, err);
    reader_deinit(&reader);
    file_unref(file);
    return status;
}
