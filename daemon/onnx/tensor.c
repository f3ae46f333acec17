/* TensorProto → constant: converted, copied, or left in the file to be read from it later; never
 * left in the mapping (see file.h). */
#include "onnx/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct tensor_source {
    struct reader *reader;
    struct file *file; /* in which the bytes lie */
    struct bytes proto;
    struct raw_tensor raw;
    struct tensor tensor; /* type and shape */
    size_t elements;
    const char *name;
};

/* Where the elements of a copy still are. */
struct file_origin {
    struct constant_origin origin;
    struct file *file;
    size_t at, bytes;
};

static enum status restore_from_file(const struct constant_origin *origin, void *to)
{
    const struct file_origin *from = (const struct file_origin *)origin;

    return file_read_again(from->file, from->at, to, from->bytes);
}

static enum status check_file_origin(const struct constant_origin *origin)
{
    return file_check(((const struct file_origin *)origin)->file);
}

static void release_file_origin(struct constant_origin *origin)
{
    file_unref(((struct file_origin *)origin)->file);
    free(origin);
}

/* NULL: malloc refuses, or the bytes are in no file. */
static struct constant_origin *make_origin(struct file *file, struct bytes data)
{
    struct file_origin *origin = file->mapped ? calloc(1, sizeof(*origin)) : NULL;

    if (origin == NULL)
        return NULL;
    origin->origin.restore = restore_from_file;
    origin->origin.release = release_file_origin;
    origin->origin.check = check_file_origin;
    origin->file = file_ref(file);
    origin->at = (size_t)(data.data - file->data.data);
    origin->bytes = data.size;
    return &origin->origin;
}

/* What is heavy is only read when somebody wants it, by whichever thread. */
static struct constant *leave_in_file(const struct tensor *tensor, struct file *file,
                                      struct bytes data)
{
    struct constant_origin *origin = make_origin(file, data);
    struct constant *constant =
        origin == NULL ? NULL : constant_promise(tensor->dtype, &tensor->shape, origin);

    if (constant == NULL && origin != NULL)
        origin->release(origin);
    return constant;
}

/* Without an origin the copy just stays in memory. */
static struct constant *copy_elements(const struct tensor *tensor, struct file *file,
                                      struct bytes data)
{
    struct constant *constant = constant_allocate(tensor->dtype, &tensor->shape);

    if (constant == NULL || data.size == 0)
        return constant;
    memcpy((void *)(uintptr_t)constant->tensor.data, data.data, data.size);
    file_let_go(file, data);
    constant->origin = make_origin(file, data);
    return constant;
}

/* A STRING tensor: the elements, and behind them their texts. */
static void release_texts(struct constant *constant)
{
    free(constant->owner);
}

static enum status read_shape(const struct ints *dims, struct shape *shape, size_t *out_elements,
                              struct error *err)
{
    int64_t elements;

    if (dims->count > SHAPE_MAX_RANK)
        return error_set(err, STATUS_UNSUPPORTED, "it has %zu dimensions, at most %d are supported",
                         dims->count, SHAPE_MAX_RANK);
    *shape = shape_make(dims->count, dims->values);
    if (shape_elements(shape, &elements) != STATUS_OK) {
        char text[SHAPE_TEXT_BYTES];

        return error_set(err, STATUS_INVALID, "its shape %s is impossible",
                         shape_format(shape, text));
    }
    *out_elements = (size_t)elements;
    return STATUS_OK;
}

static enum status check_bools(const struct bytes *data, struct error *err)
{
    for (size_t i = 0; i < data->size; i++)
        if ((unsigned char)data->data[i] > 1)
            return error_set(err, STATUS_INVALID, "boolean %zu is neither 0 nor 1", i);
    return STATUS_OK;
}

/* Little-endian elements that lie in `file`. */
static enum status take_raw(struct tensor_source *source, struct file *file, struct bytes data,
                            struct constant **out_constant, struct error *err)
{
    size_t element = dtype_bytes(source->tensor.dtype);
    size_t wanted = source->elements * element;
    struct constant *constant;

    if (data.size != wanted)
        return error_set(err, STATUS_INVALID, "it has %zu bytes of data, its shape needs %zu",
                         data.size, wanted);
    if (source->tensor.dtype == DTYPE_BOOL)
        TRY(check_bools(&data, err));
    if (file->mapped && constant_is_heavy(source->tensor.dtype, &source->tensor.shape))
        constant = leave_in_file(&source->tensor, file, data);
    else
        constant = copy_elements(&source->tensor, file, data);
    if (constant == NULL)
        return reader_no_memory(err);
    source->reader->info.copied_bytes += wanted;
    *out_constant = constant;
    return STATUS_OK;
}

/* Typed fields: which one holds elements of a type, and what values are allowed there. */
struct typed_field {
    enum dtype dtype;
    uint32_t field;
    enum wire_type wire;
    int64_t low, high; /* 0, 0: anything */
};

static const struct typed_field typed_fields[] = {
    {DTYPE_FLOAT, TENSOR_FIELD_FLOAT, WIRE_32, 0, 0},
    {DTYPE_DOUBLE, TENSOR_FIELD_DOUBLE, WIRE_64, 0, 0},
    {DTYPE_INT64, TENSOR_FIELD_INT64, WIRE_VARINT, 0, 0},
    {DTYPE_INT32, TENSOR_FIELD_INT32, WIRE_VARINT, INT32_MIN, INT32_MAX},
    {DTYPE_INT16, TENSOR_FIELD_INT32, WIRE_VARINT, INT16_MIN, INT16_MAX},
    {DTYPE_INT8, TENSOR_FIELD_INT32, WIRE_VARINT, INT8_MIN, INT8_MAX},
    {DTYPE_UINT16, TENSOR_FIELD_INT32, WIRE_VARINT, 0, UINT16_MAX},
    {DTYPE_UINT8, TENSOR_FIELD_INT32, WIRE_VARINT, 0, UINT8_MAX},
    {DTYPE_BOOL, TENSOR_FIELD_INT32, WIRE_VARINT, 0, 1},
    {DTYPE_FLOAT16, TENSOR_FIELD_INT32, WIRE_VARINT, 0, UINT16_MAX},
    {DTYPE_BFLOAT16, TENSOR_FIELD_INT32, WIRE_VARINT, 0, UINT16_MAX},
    {DTYPE_UINT32, TENSOR_FIELD_UINT64, WIRE_VARINT, 0, UINT32_MAX},
    {DTYPE_UINT64, TENSOR_FIELD_UINT64, WIRE_VARINT, 0, 0},
};

static const struct typed_field *find_typed(enum dtype dtype)
{
    for (size_t i = 0; i < sizeof(typed_fields) / sizeof(typed_fields[0]); i++)
        if (typed_fields[i].dtype == dtype)
            return &typed_fields[i];
    return NULL;
}

static bool has_field(const struct tensor_source *source, uint32_t field)
{
    return (source->raw.present & UINT32_C(1) << field) != 0;
}

/* Walks the tensor again for the elements of one field; stores them when `to` is given. */
static enum status walk_typed(const struct tensor_source *source, const struct typed_field *typed,
                              unsigned char *to, size_t *out_count, struct error *err)
{
    size_t element = dtype_bytes(typed->dtype), count = 0;
    struct wire wire = wire_over(source->proto);
    struct wire_field field;
    uint64_t value;

    while (wire_next(&wire, &field)) {
        struct wire_list list;
        size_t more;

        if (field.number != typed->field)
            continue;
        if (!wire_count(&field, typed->wire, &more))
            return error_set(err, STATUS_INVALID, "its data field %u has a wrong form",
                             field.number);
        list = wire_list(&field, typed->wire);
        while (to != NULL && wire_list_next(&list, &value)) {
            if ((typed->low != 0 || typed->high != 0) &&
                ((int64_t)value < typed->low || (int64_t)value > typed->high))
                return error_set(err, STATUS_INVALID, "its value %" PRId64 " is no %s",
                                 (int64_t)value, dtype_name(typed->dtype));
            memcpy(to, &value, element); /* little endian */
            to += element;
        }
        count += more;
    }
    *out_count = count;
    return STATUS_OK;
}

static enum status take_typed(struct tensor_source *source, struct constant **out_constant,
                              struct error *err)
{
    const struct typed_field *typed = find_typed(source->tensor.dtype);
    struct constant *constant;
    enum status status;
    size_t count;

    if (typed == NULL)
        return error_set(err, STATUS_INVALID, "it holds no data");
    TRY(walk_typed(source, typed, NULL, &count, err));
    if (count != source->elements)
        return error_set(err, STATUS_INVALID, "it holds %zu elements, its shape has %zu", count,
                         source->elements);
    constant = constant_allocate(source->tensor.dtype, &source->tensor.shape);
    if (constant == NULL)
        return reader_no_memory(err);
    status = walk_typed(source, typed, (void *)(uintptr_t)constant->tensor.data, &count, err);
    if (status != STATUS_OK) {
        constant_unref(constant);
        return status;
    }
    source->reader->info.copied_bytes += tensor_bytes(&source->tensor);
    *out_constant = constant;
    return STATUS_OK;
}

enum status tensor_from_texts(const struct shape *shape, const struct bytes_list *texts,
                              struct constant **out_constant, struct error *err)
{
    struct tensor tensor = {.dtype = DTYPE_STRING, .shape = *shape};
    size_t bytes = texts->count * sizeof(struct bytes);
    struct bytes *elements;
    char *to;

    for (size_t i = 0; i < texts->count; i++)
        bytes += texts->items[i].size;
    elements = malloc(bytes + 1);
    if (elements == NULL)
        return reader_no_memory(err);
    to = (char *)(elements + texts->count);
    for (size_t i = 0; i < texts->count; i++) {
        elements[i] = (struct bytes){to, texts->items[i].size};
        if (elements[i].size > 0)
            memcpy(to, texts->items[i].data, elements[i].size);
        to += elements[i].size;
    }
    tensor.data = elements;
    *out_constant = constant_create(&tensor, elements, release_texts);
    if (*out_constant != NULL)
        return STATUS_OK;
    free(elements);
    return reader_no_memory(err);
}

static enum status take_texts(struct tensor_source *source, struct constant **out_constant,
                              struct error *err)
{
    const struct bytes_list *strings = &source->raw.strings;

    if (strings->count != source->elements)
        return error_set(err, STATUS_INVALID, "it holds %zu strings, its shape has %zu",
                         strings->count, source->elements);
    return tensor_from_texts(&source->tensor.shape, strings, out_constant, err);
}

/* A path that names something in the folder or below, whatever the folder holds. */
static bool path_stays_inside(const char *path)
{
    if (path[0] == '/' || path[0] == '\0')
        return false;
    for (const char *part = path; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return false;
    }
    return true;
}

/* Opens without following links out of the folder.  Returns a descriptor or -1 with errno. */
static int open_inside(int folder_fd, const char *path)
{
    struct open_how how = {
        .flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };
    long fd = syscall(SYS_openat2, folder_fd, path, &how, sizeof(how));

    /* Old kernels and sandboxes do not know the call: then no link at the end, no folder but this.
     */
    if (fd < 0 && (errno == ENOSYS || errno == EPERM) && strchr(path, '/') == NULL)
        fd = openat(folder_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
    return (int)fd;
}

static enum status open_external(struct reader *reader, const char *path, struct file **out_file,
                                 struct error *err)
{
    struct external_file *entry;
    enum status status;
    int fd;

    for (entry = reader->external; entry != NULL; entry = entry->next) {
        if (strcmp(entry->path, path) == 0) {
            *out_file = entry->file;
            return STATUS_OK;
        }
    }
    if (reader->folder_fd < 0)
        return error_set(err, STATUS_INVALID,
                         "its data is in the file '%.200s', but there is no "
                         "folder to look for it",
                         path);
    if (!path_stays_inside(path))
        return error_set(err, STATUS_DENIED,
                         "its data is in '%.200s', outside of the model's "
                         "folder",
                         path);
    entry = arena_take(&reader->arena, sizeof(*entry));
    if (entry == NULL)
        return reader_no_memory(err);
    fd = open_inside(reader->folder_fd, path);
    if (fd < 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_DENIED,
                         "its data file '%.200s' cannot be opened: %s", path,
                         errno == EXDEV || errno == ELOOP ? "it lies outside of the model's folder"
                                                          : strerror(errno));
    status = file_map_fd(fd, path, &entry->file, err);
    (void)close(fd);
    if (status != STATUS_OK)
        return status;
    reader->readable_bytes += entry->file->data.size;
    entry->path = path;
    entry->next = reader->external;
    reader->external = entry;
    *out_file = entry->file;
    return STATUS_OK;
}

struct external_place {
    const char *path;
    uint64_t offset;
    uint64_t length;
    bool has_length;
};

static enum status read_number(struct bytes text, const char *what, uint64_t *out_number,
                               struct error *err)
{
    uint64_t number = 0;

    if (text.size == 0 || text.size > 18)
        return error_set(err, STATUS_INVALID, "its external %s '%.*s' is no number of bytes", what,
                         (int)(text.size > 60 ? 60 : text.size), text.data);
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return error_set(err, STATUS_INVALID, "its external %s '%.*s' is no number of bytes",
                             what, (int)text.size, text.data);
        number = number * 10 + (uint64_t)(text.data[i] - '0');
    }
    *out_number = number;
    return STATUS_OK;
}

static enum status read_place(struct tensor_source *source, struct external_place *place,
                              struct error *err)
{
    struct arena *arena = &source->reader->arena;

    for (size_t i = 0; i < source->raw.external.count; i++) {
        struct raw_entry entry;

        TRY(proto_read_entry(arena, source->raw.external.items[i], &entry, err));
        if (bytes_equal(entry.key, "location")) {
            TRY(proto_text(arena, entry.value, "the location of its data", &place->path, err));
        } else if (bytes_equal(entry.key, "offset")) {
            TRY(read_number(entry.value, "offset", &place->offset, err));
        } else if (bytes_equal(entry.key, "length")) {
            TRY(read_number(entry.value, "length", &place->length, err));
            place->has_length = true;
        }
    }
    if (place->path == NULL)
        return error_set(err, STATUS_INVALID, "its data is external, but no location is given");
    return STATUS_OK;
}

static enum status take_external(struct tensor_source *source, struct constant **out_constant,
                                 struct error *err)
{
    struct external_place place = {0};
    struct file *file = NULL;

    if (source->tensor.dtype == DTYPE_STRING)
        return error_set(err, STATUS_INVALID, "strings cannot be external data");
    TRY(read_place(source, &place, err));
    TRY(open_external(source->reader, place.path, &file, err));
    if (!place.has_length)
        place.length = source->elements * dtype_bytes(source->tensor.dtype);
    if (place.offset > file->data.size || place.length > file->data.size - place.offset)
        return error_set(err, STATUS_INVALID,
                         "its data, %" PRIu64 " bytes from %" PRIu64
                         ", lies outside of '%.200s', which has %zu",
                         place.length, place.offset, place.path, file->data.size);
    return take_raw(source, file,
                    (struct bytes){file->data.data + place.offset, (size_t)place.length},
                    out_constant, err);
}

static enum status take_data(struct tensor_source *source, struct constant **out_constant,
                             struct error *err)
{
    const uint32_t typed_bits =
        UINT32_C(1) << TENSOR_FIELD_FLOAT | UINT32_C(1) << TENSOR_FIELD_INT32 |
        UINT32_C(1) << TENSOR_FIELD_STRING | UINT32_C(1) << TENSOR_FIELD_INT64 |
        UINT32_C(1) << TENSOR_FIELD_DOUBLE | UINT32_C(1) << TENSOR_FIELD_UINT64;

    if (source->raw.data_location == 1)
        return take_external(source, out_constant, err);
    if (source->raw.data_location != 0)
        return error_set(err, STATUS_INVALID, "its data location %" PRId64 " is unknown",
                         source->raw.data_location);
    if (has_field(source, TENSOR_FIELD_RAW)) {
        if (source->raw.raw_data.size > 0 && (source->raw.present & typed_bits) != 0)
            return error_set(err, STATUS_INVALID, "it holds its data twice");
        if (source->tensor.dtype == DTYPE_STRING)
            return error_set(err, STATUS_INVALID, "strings cannot be raw data");
        if (source->raw.raw_data.size > 0 || source->elements == 0)
            return take_raw(source, source->file, source->raw.raw_data, out_constant, err);
    }
    if (source->tensor.dtype == DTYPE_STRING)
        return take_texts(source, out_constant, err);
    return take_typed(source, out_constant, err);
}

static enum status read_tensor(struct tensor_source *source, struct constant **out_constant,
                               struct error *err)
{
    int64_t type = source->raw.data_type;

    if (has_field(source, TENSOR_FIELD_SEGMENT))
        return error_set(err, STATUS_UNSUPPORTED, "it is only a segment of a tensor");
    if (type < 0 || type >= DTYPE_COUNT || !dtype_is_valid((enum dtype)type))
        return error_set(err, type > 0 && type < 64 ? STATUS_UNSUPPORTED : STATUS_INVALID,
                         "its element type %" PRId64 " is not supported", type);
    source->tensor.dtype = (enum dtype)type;
    TRY(read_shape(&source->raw.dims, &source->tensor.shape, &source->elements, err));
    TRY(take_data(source, out_constant, err));
    source->reader->info.weight_bytes += tensor_bytes(&source->tensor);
    return STATUS_OK;
}

enum status tensor_read(struct reader *reader, struct file *file, struct bytes proto,
                        struct constant **out_constant, const char **out_name, struct error *err)
{
    struct tensor_source source = {.reader = reader, .file = file, .proto = proto};
    enum status status;

    TRY(proto_read_tensor(&reader->arena, proto, &source.raw, err));
    TRY(proto_text(&reader->arena, source.raw.name, "a tensor's name", &source.name, err));
    status = read_tensor(&source, out_constant, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "tensor '%.100s'", source.name);
    if (out_name != NULL)
        *out_name = source.name;
    return STATUS_OK;
}
