/* .npy files (numpy.lib.format, versions 1.0 to 3.0): a magic, a header that is a Python dictionary
 * literal, and the elements.  Only little-endian plain types; Fortran order is refused. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"

static const struct npy_type {
    const char *descr;
    const char *datatype;
    size_t bytes;
} types[] = {
    {"<f4", "FP32", 4},   {"<f8", "FP64", 8},   {"<f2", "FP16", 2},   {"|i1", "INT8", 1},
    {"<i2", "INT16", 2},  {"<i4", "INT32", 4},  {"<i8", "INT64", 8},  {"|u1", "UINT8", 1},
    {"<u2", "UINT16", 2}, {"<u4", "UINT32", 4}, {"<u8", "UINT64", 8}, {"|b1", "BOOL", 1},
};
enum { TYPES = sizeof(types) / sizeof(types[0]), HEADER_LIMIT = 64 << 10 };

size_t datatype_bytes(const char *datatype)
{
    for (size_t i = 0; i < TYPES; i++)
        if (strcmp(types[i].datatype, datatype) == 0)
            return types[i].bytes;
    return strcmp(datatype, "BF16") == 0 ? 2 : 0;
}

static bool refuse(char why[256], const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(char why[256], const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, 256, format, args);
    va_end(args);
    return false;
}

/* What stands behind 'key': in the header's dictionary, or NULL. */
static const char *header_value(const char *header, const char *key)
{
    char quoted[32];
    const char *at;

    (void)snprintf(quoted, sizeof(quoted), "'%s':", key);
    at = strstr(header, quoted);
    if (at == NULL)
        return NULL;
    at += strlen(quoted);
    return at + strspn(at, " ");
}

static bool parse_shape(const char *text, struct npy *npy, char why[256])
{
    if (*text++ != '(')
        return refuse(why, "the header's shape is no tuple");
    for (npy->rank = 0;; npy->rank++) {
        char *end;

        text += strspn(text, " ,");
        if (*text == ')')
            return true;
        if (npy->rank == SLUICE_MAX_RANK)
            return refuse(why, "the rank is above %d", SLUICE_MAX_RANK);
        errno = 0;
        npy->shape[npy->rank] = strtoll(text, &end, 10);
        if (end == text || errno != 0 || npy->shape[npy->rank] < 0)
            return refuse(why, "dimension %zu of the header's shape is no number ≥ 0", npy->rank);
        text = end;
    }
}

static bool parse_header(const char *header, struct npy *npy, char why[256])
{
    const char *descr = header_value(header, "descr"),
               *order = header_value(header, "fortran_order");
    const char *shape = header_value(header, "shape");
    uint64_t bytes = 0;

    if (descr == NULL || order == NULL || shape == NULL)
        return refuse(why, "the header lacks descr, fortran_order or shape");
    if (strncmp(order, "False", 5) != 0)
        return refuse(why, "the array is in Fortran order; save it in C order");
    for (size_t i = 0; i < TYPES; i++)
        if (descr[0] == '\'' && strncmp(descr + 1, types[i].descr, 3) == 0 && descr[4] == '\'') {
            npy->datatype = types[i].datatype;
            bytes = types[i].bytes;
        }
    if (bytes == 0)
        return refuse(
            why, "the element type %.8s is not one of float16/32/64, int and uint 8 to 64, bool",
            descr);
    if (!parse_shape(shape, npy, why))
        return false;
    for (size_t i = 0; i < npy->rank; i++)
        if (__builtin_mul_overflow(bytes, (uint64_t)npy->shape[i], &bytes))
            return refuse(why, "the shape's byte count overflows");
    npy->byte_count = bytes;
    return true;
}

bool npy_parse(const unsigned char *file, size_t file_bytes, struct npy *out_npy, char why[256])
{
    struct npy npy = {0};
    size_t header_at, header_bytes;
    char *header;
    bool is_good;

    if (file_bytes < 12 || memcmp(file, "\x93NUMPY", 6) != 0)
        return refuse(why, "it does not begin with the magic of .npy");
    if (file[6] < 1 || file[6] > 3)
        return refuse(why, "its version is %u, known are 1 to 3", file[6]);
    header_at = file[6] == 1 ? 10 : 12;
    header_bytes = (size_t)file[8] | (size_t)file[9] << 8;
    if (file[6] > 1)
        header_bytes |= (size_t)file[10] << 16 | (size_t)file[11] << 24;
    if (header_bytes > HEADER_LIMIT || header_bytes > file_bytes - header_at)
        return refuse(why, "its header of %zu bytes is longer than the file or 64 KiB",
                      header_bytes);
    header = strndup((const char *)file + header_at, header_bytes);
    if (header == NULL)
        return refuse(why, "there is no memory for its header");
    is_good = parse_header(header, &npy, why);
    free(header);
    if (!is_good)
        return false;
    if (file_bytes - header_at - header_bytes != npy.byte_count)
        return refuse(why, "it has %zu bytes of elements, its shape needs %zu",
                      file_bytes - header_at - header_bytes, npy.byte_count);
    npy.bytes = malloc(npy.byte_count + 1);
    if (npy.bytes == NULL)
        return refuse(why, "there is no memory for its %zu bytes", npy.byte_count);
    memcpy(npy.bytes, file + header_at + header_bytes, npy.byte_count);
    *out_npy = npy;
    return true;
}

bool npy_read(const char *path, struct npy *out_npy, char why[256])
{
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = NULL;
    long size;
    bool is_good = false;

    if (file == NULL)
        return refuse(why, "%s", strerror(errno));
    if (fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0)
        (void)refuse(why, "%s", strerror(errno));
    else if ((bytes = malloc((size_t)size + 1)) == NULL)
        (void)refuse(why, "there is no memory for its %ld bytes", size);
    else if (fread(bytes, 1, (size_t)size, file) != (size_t)size)
        (void)refuse(why, "it cannot be read to its end");
    else
        is_good = npy_parse(bytes, (size_t)size, out_npy, why);
    free(bytes);
    (void)fclose(file);
    return is_good;
}

static const char *descr_of(const char *datatype)
{
    for (size_t i = 0; i < TYPES; i++)
        if (strcmp(types[i].datatype, datatype) == 0)
            return types[i].descr;
    return NULL;
}

bool npy_write(const char *path, const struct sluice_tensor *tensor, char why[256])
{
    const char *descr = descr_of(tensor->datatype);
    char header[512];
    size_t used, padded;
    FILE *file;
    bool is_good;

    if (descr == NULL)
        return refuse(why, "an array of %s has no .npy form", tensor->datatype);
    used = (size_t)snprintf(header, sizeof(header),
                            "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (size_t i = 0; i < tensor->rank; i++)
        used += (size_t)snprintf(header + used, sizeof(header) - used, "%lld,",
                                 (long long)tensor->shape[i]);
    used += (size_t)snprintf(header + used, sizeof(header) - used, "), }");
    padded = (10 + used + 1 + 63) / 64 * 64 - 10; /* elements begin at a multiple of 64 */
    file = fopen(path, "wb");
    if (file == NULL)
        return refuse(why, "%s", strerror(errno));
    (void)fwrite("\x93NUMPY\x01\x00", 1, 8, file);
    (void)fputc((int)(padded & 0xFF), file);
    (void)fputc((int)(padded >> 8), file);
    (void)fprintf(file, "%-*s\n", (int)padded - 1, header);
    (void)fwrite(tensor->data, 1, tensor->bytes, file);
    is_good = ferror(file) == 0;
    if (fclose(file) != 0 || !is_good)
        return refuse(why, "%s", strerror(errno));
    return true;
}
