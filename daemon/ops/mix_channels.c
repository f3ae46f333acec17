#include "ops/mix_channels.h"

int64_t shuffle_groups(const struct ints *from)
{
    const int64_t channels = (int64_t)from->count;
    int64_t groups;

    if (channels < 2 || from->values[1] < 1 || channels % from->values[1] != 0)
        return 0;
    groups = channels / from->values[1];
    for (int64_t c = 0; c < channels; c++)
        if (from->values[c] != shuffled_channel(c, channels, groups))
            return 0;
    return groups;
}

static enum status infer_mix_channels(const struct op_call *call, struct error *err)
{
    const struct mix_channels_attrs *attrs = call->attrs;
    struct shape out = call->in[0]->shape;
    int64_t channels = 0;

    for (size_t i = 0; i < call->inputs; i++) {
        struct shape shape = call->in[i]->shape;

        if (shape.rank < 3 || call->in[i]->dtype != call->in[0]->dtype)
            return error_set(err, STATUS_INVALID, "input %zu has no channels of the others' type",
                             i);
        channels += shape.dims[1];
        shape.dims[1] = out.dims[1];
        if (!shape_is_equal(&shape, &out))
            return error_set(err, STATUS_INVALID, "input %zu does not have the others' shape", i);
    }
    for (size_t c = 0; c < attrs->from.count; c++)
        if (attrs->from.values[c] < 0 || attrs->from.values[c] >= channels)
            return error_set(err, STATUS_INVALID, "channel %zu comes from none", c);
    out.dims[1] = (int64_t)attrs->from.count;
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = out;
    return STATUS_OK;
}

const struct op_def op_mix_channels = {
    .name = "mix_channels",
    .onnx = {"MixChannels", .since = 1, .domain = "sluice"},
    .inputs = -1,
    .min_inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs_size = sizeof(struct mix_channels_attrs),
    .flags = OP_INTERNAL | OP_PICKS,
    .infer = infer_mix_channels,
};
