#include "npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *descr;
    enum dtype dtype;
} types[] = {
    {"<f4", DTYPE_FLOAT}, {"<f8", DTYPE_DOUBLE}, {"<f2", DTYPE_FLOAT16}, {"|b1", DTYPE_BOOL},
    {"|i1", DTYPE_INT8},  {"<i2", DTYPE_INT16},  {"<i4", DTYPE_INT32},   {"<i8", DTYPE_INT64},
    {"|u1", DTYPE_UINT8}, {"<u2", DTYPE_UINT16}, {"<u4", DTYPE_UINT32},  {"<u8", DTYPE_UINT64},
};
enum { TYPES = sizeof(types) / sizeof(types[0]), HEADER_MAX = 4096 };

static enum dtype parse_type(const char *header)
{
    for (size_t i = 0; i < TYPES; i++)
        if (strstr(header, types[i].descr) != NULL)
            return types[i].dtype;
    return DTYPE_NONE;
}

static bool parse_shape(const char *header, struct shape *out_shape)
{
    const char *at = strstr(header, "'shape': (");

    *out_shape = (struct shape){0};
    if (at == NULL)
        return false;
    for (at += strlen("'shape': ("); *at != ')';) {
        char *end;
        long long dim = strtoll(at, &end, 10);

        if (end == at || dim < 0 || out_shape->rank == SHAPE_MAX_RANK)
            return false;
        out_shape->dims[out_shape->rank++] = dim;
        at = end + strspn(end, ", ");
    }
    return true;
}

static bool read_header(FILE *file, char header[HEADER_MAX])
{
    unsigned char start[12];
    size_t length;

    if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6) != 0)
        return false;
    length = (size_t)start[8] | (size_t)start[9] << 8;
    if (start[6] > 1) {
        if (fread(start + 10, 1, 2, file) != 2)
            return false;
        length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    }
    if (length >= HEADER_MAX || fread(header, 1, length, file) != length)
        return false;
    header[length] = '\0';
    return strstr(header, "'fortran_order': False") != NULL;
}

enum status npy_read(const char *path, struct tensor *out_tensor, struct error *err)
{
    FILE *file = fopen(path, "re");
    struct tensor tensor = {0};
    char header[HEADER_MAX];
    int64_t elements;
    void *data = NULL;
    bool good;

    if (file == NULL)
        return error_set(err, STATUS_NOT_FOUND, "'%s' cannot be opened", path);
    good = read_header(file, header) && parse_shape(header, &tensor.shape) &&
           (tensor.dtype = parse_type(header)) != DTYPE_NONE &&
           shape_elements(&tensor.shape, &elements) == STATUS_OK &&
           (data = malloc(tensor_bytes(&tensor) + 1)) != NULL &&
           fread(data, 1, tensor_bytes(&tensor), file) == tensor_bytes(&tensor);
    fclose(file);
    if (!good) {
        free(data);
        return error_set(err, STATUS_INVALID, "'%s' is no .npy file that can be read", path);
    }
    tensor.data = data;
    *out_tensor = tensor;
    return STATUS_OK;
}

static const char *descr_of(enum dtype dtype)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype)
            return types[i].descr;
    return NULL;
}

enum status npy_write(const char *path, const struct tensor *tensor, struct error *err)
{
    const char *descr = descr_of(tensor->dtype);
    char header[512];
    size_t used, padded;
    FILE *file;
    bool good;

    if (descr == NULL)
        return error_set(err, STATUS_UNSUPPORTED, "no .npy form for %s", dtype_name(tensor->dtype));
    used = (size_t)snprintf(header, sizeof(header),
                            "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (size_t i = 0; i < tensor->shape.rank; i++)
        used += (size_t)snprintf(header + used, sizeof(header) - used, "%lld,",
                                 (long long)tensor->shape.dims[i]);
    used += (size_t)snprintf(header + used, sizeof(header) - used, "), }");
    padded = (10 + used + 1 + 63) / 64 * 64 - 10;
    memset(header + used, ' ', padded - used);
    header[padded - 1] = '\n';
    file = fopen(path, "we");
    if (file == NULL)
        return error_set(err, STATUS_IO, "'%s' cannot be written", path);
    good = fwrite("\x93NUMPY\x01\x00", 1, 8, file) == 8 && fputc((int)(padded & 0xFF), file) >= 0 &&
           fputc((int)(padded >> 8), file) >= 0 && fwrite(header, 1, padded, file) == padded &&
           fwrite(tensor->data, 1, tensor_bytes(tensor), file) == tensor_bytes(tensor);
    return fclose(file) == 0 && good ? STATUS_OK
                                     : error_set(err, STATUS_IO, "'%s' cannot be written", path);
}
