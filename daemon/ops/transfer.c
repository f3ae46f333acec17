/* The same elements in the memory of the device or of the host; made when a plan is, for devices
 * whose memory is not the host's. */
#include "ops/op.h"

#define TRANSFER(stem, onnx_name)                                                                  \
    const struct op_def op_##stem = {                                                              \
        .name = #stem,                                                                             \
        .onnx = {onnx_name, .since = 1, .domain = "sluice"},                                       \
        .inputs = 1,                                                                               \
        .outputs = 1,                                                                              \
        .flags = OP_INTERNAL,                                                                      \
        .infer = op_infer_same,                                                                    \
    };
TRANSFER(to_device, "ToDevice")
TRANSFER(to_host, "ToHost")
