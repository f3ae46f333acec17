/* The same elements in another layout; made by the layout pass only. */
#include "ops/op.h"

const struct op_def op_reorder = {
    .name = "reorder",
    .onnx = {"Reorder", .since = 1, .domain = "sluice"},
    .inputs = 1,
    .outputs = 1,
    .flags = OP_INTERNAL,
    .infer = op_infer_same,
};
