/* SparseTensorProto (coordinates) → a dense constant. */
#include "onnx/internal.h"

#include <inttypes.h>
#include <string.h>

struct sparse {
    struct raw_sparse raw;
    struct constant *values;  /* [n] */
    struct constant *indices; /* [n] or [n, rank] of INT64 */
    const char *name;
};

/* The place of element i in the dense tensor, or -1. */
static int64_t place_of(const struct sparse *sparse, const struct shape *shape, size_t i)
{
    const int64_t *index = sparse->indices->tensor.data;
    int64_t place = 0;

    if (sparse->indices->tensor.shape.rank == 1) {
        place = index[i];
        return place >= 0 && place < shape_count(shape) ? place : -1;
    }
    for (size_t d = 0; d < shape->rank; d++) {
        int64_t at = index[i * shape->rank + d];

        if (at < 0 || at >= shape->dims[d])
            return -1;
        place = place * shape->dims[d] + at;
    }
    return place;
}

static enum status check(const struct sparse *sparse, struct shape *shape, struct error *err)
{
    const struct tensor *values = &sparse->values->tensor, *indices = &sparse->indices->tensor;
    int64_t elements;

    if (sparse->raw.dims.count > SHAPE_MAX_RANK)
        return error_set(err, STATUS_UNSUPPORTED, "it has %zu dimensions, at most %d are supported",
                         sparse->raw.dims.count, SHAPE_MAX_RANK);
    *shape = shape_make(sparse->raw.dims.count, sparse->raw.dims.values);
    if (shape_elements(shape, &elements) != STATUS_OK ||
        elements > INT64_C(1048576) * DENSE_LIMIT_MIB / 16)
        return error_set(err, STATUS_INVALID, "it is too large to be made dense");
    if (values->shape.rank != 1 || values->dtype == DTYPE_STRING || indices->dtype != DTYPE_INT64)
        return error_set(err, STATUS_INVALID, "its values or indices have a wrong type or rank");
    if (indices->shape.rank == 0 || indices->shape.rank > 2 ||
        indices->shape.dims[0] != values->shape.dims[0] ||
        (indices->shape.rank == 2 && indices->shape.dims[1] != (int64_t)shape->rank))
        return error_set(err, STATUS_INVALID, "its indices do not fit its values");
    return STATUS_OK;
}

static enum status make_dense(struct reader *reader, const struct sparse *sparse,
                              struct constant **out_constant, struct error *err)
{
    size_t element = dtype_bytes(sparse->values->tensor.dtype);
    const char *from = sparse->values->tensor.data;
    struct constant *dense;
    struct shape shape;
    char *to;

    TRY(check(sparse, &shape, err));
    dense = constant_allocate(sparse->values->tensor.dtype, &shape);
    if (dense == NULL)
        return reader_no_memory(err);
    to = (char *)(uintptr_t)dense->tensor.data;
    for (int64_t i = 0; i < sparse->values->tensor.shape.dims[0]; i++) {
        int64_t place = place_of(sparse, &shape, (size_t)i);

        if (place < 0) {
            constant_unref(dense);
            return error_set(err, STATUS_INVALID, "index %" PRId64 " is outside of its shape", i);
        }
        memcpy(to + (size_t)place * element, from + (size_t)i * element, element);
    }
    reader->info.weight_bytes += tensor_bytes(&dense->tensor);
    *out_constant = dense;
    return STATUS_OK;
}

enum status tensor_read_sparse(struct reader *reader, struct bytes proto,
                               struct constant **out_constant, const char **out_name,
                               struct error *err)
{
    struct sparse sparse = {0};
    enum status status;

    TRY(proto_read_sparse(&reader->arena, proto, &sparse.raw, err));
    TRY(tensor_read(reader, reader->file, sparse.raw.values, &sparse.values, &sparse.name, err));
    status = tensor_read(reader, reader->file, sparse.raw.indices, &sparse.indices, NULL, err);
    if (status == STATUS_OK) {
        status = make_dense(reader, &sparse, out_constant, err);
        if (status != STATUS_OK)
            (void)error_prefix(err, status, "sparse tensor '%.100s'", sparse.name);
    }
    constant_unref(sparse.values);
    constant_unref(sparse.indices);
    if (status == STATUS_OK && out_name != NULL)
        *out_name = sparse.name;
    return status;
}
