/* ValueInfoProto: name, element type and shape of an input or output. */
#include "onnx/internal.h"

#include <inttypes.h>

static enum status read_dim(struct reader *reader, struct bytes proto, int64_t *out_dim,
                            struct error *err)
{
    struct raw_dim dim;

    TRY(proto_read_dim(&reader->arena, proto, &dim, err));
    /* A dimension may be a number, a name or nothing; exporters also write -1 for "any". */
    if ((dim.present & UINT32_C(1) << DIM_FIELD_VALUE) == 0 || dim.value < 0)
        dim.value = SHAPE_UNKNOWN;
    *out_dim = dim.value;
    return STATUS_OK;
}

static enum status read_dims(struct reader *reader, struct bytes proto, struct shape *out_shape,
                             struct error *err)
{
    struct shape shape = {0}, known;
    struct raw_shape raw;
    int64_t elements;

    TRY(proto_read_shape(&reader->arena, proto, &raw, err));
    if (raw.dims.count > SHAPE_MAX_RANK)
        return error_set(err, STATUS_UNSUPPORTED, "it has %zu dimensions, at most %d are supported",
                         raw.dims.count, SHAPE_MAX_RANK);
    shape.rank = raw.dims.count;
    for (size_t i = 0; i < raw.dims.count; i++)
        TRY(read_dim(reader, raw.dims.items[i], &shape.dims[i], err));
    known = shape;
    for (size_t i = 0; i < known.rank; i++)
        if (known.dims[i] == SHAPE_UNKNOWN)
            known.dims[i] = 1;
    if (shape_elements(&known, &elements) != STATUS_OK) {
        char text[SHAPE_TEXT_BYTES];

        return error_set(err, STATUS_INVALID, "its declared shape %s is impossible",
                         shape_format(&shape, text));
    }
    *out_shape = shape;
    return STATUS_OK;
}

static enum status read_tensor_type(struct reader *reader, struct bytes proto, struct value *facts,
                                    struct error *err)
{
    struct raw_tensor_type raw;

    TRY(proto_read_tensor_type(&reader->arena, proto, &raw, err));
    if (raw.dtype != 0) {
        if (raw.dtype < 0 || raw.dtype >= DTYPE_COUNT || !dtype_is_valid((enum dtype)raw.dtype))
            return error_set(err, STATUS_UNSUPPORTED,
                             "its element type %" PRId64 " is not supported", raw.dtype);
        facts->dtype = (enum dtype)raw.dtype;
    }
    if ((raw.present & UINT32_C(1) << 2) == 0)
        return STATUS_OK;
    TRY(read_dims(reader, raw.shape, &facts->shape, err));
    facts->shape_known = true;
    return STATUS_OK;
}

static enum status read_type(struct reader *reader, struct bytes proto, struct value *facts,
                             bool *out_is_tensor, struct error *err)
{
    struct raw_type type;

    TRY(proto_read_type(&reader->arena, proto, &type, err));
    *out_is_tensor = proto.size == 0 || (type.present & UINT32_C(1) << TYPE_FIELD_TENSOR) != 0;
    return *out_is_tensor ? read_tensor_type(reader, type.tensor, facts, err) : STATUS_OK;
}

enum status port_refuse(const char *name, struct error *err)
{
    return error_set(err, STATUS_UNSUPPORTED,
                     "'%.200s': it is no tensor (a sequence, map or optional), which is not "
                     "supported",
                     name);
}

enum status port_read(struct reader *reader, struct bytes proto, const char **out_name,
                      struct value *facts, bool *out_is_tensor, struct error *err)
{
    bool is_tensor;
    struct raw_port port;
    const char *name;
    enum status status;

    TRY(proto_read_port(&reader->arena, proto, &port, err));
    TRY(proto_text(&reader->arena, port.name, "the name of an input or output", &name, err));
    if (port.name.size == 0)
        return error_set(err, STATUS_INVALID, "an input or output has no name");
    *facts = (struct value){.dtype = DTYPE_NONE};
    status = read_type(reader, port.type, facts, &is_tensor, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "'%.200s'", name);
    if (out_is_tensor != NULL)
        *out_is_tensor = is_tensor;
    else if (!is_tensor)
        return port_refuse(name, err);
    *out_name = name;
    return STATUS_OK;
}
