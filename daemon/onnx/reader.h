/* ONNX bytes → graph.
 *
 *   file ──mmap──> wire walker ──> nodes of any opset ──upgrade──> newest form ──> graph
 *
 * Tensor data is copied out of the mapping, which is gone when the reading is over; what can be
 * read again keeps the file open for that (file.h says why).  Model-local functions are inlined.
 * Every file that is not a sound model is refused with one sentence; nothing is left behind.
 *
 * The graph as read: every node is in the newest form that its op_def describes, nodes are in
 * order, a graph output always has a producer node, graph inputs carry the declared type and shape
 * (SHAPE_UNKNOWN where open).  Outputs carry what the file declares, which may be wrong; shapes in
 * between are unknown.
 *
 * Threads: any; calls share nothing.
 */
#ifndef ONNX_READER_H
#define ONNX_READER_H

#include "graph/graph.h"

struct onnx_info {
    int64_t ir_version;
    int64_t opset; /* of ai.onnx; 0 when the model imports none */
    char producer[64];
    size_t nodes;          /* of the graph as read, sub-graphs and inlined functions included */
    uint64_t file_bytes;   /* of the model file, external data apart */
    uint64_t weight_bytes; /* of all initializers */
    uint64_t copied_bytes; /* of these, how many became copies of ours */
};

/* Reads the model at `path`; external data is looked for in its folder only.  out_info may be NULL.
 * STATUS_INVALID: no sound model; STATUS_UNSUPPORTED: sound, but uses what we do not have (names
 * the node); STATUS_NOT_FOUND, STATUS_IO, STATUS_NO_MEMORY. */
MUST_CHECK enum status onnx_read_file(const char *path, struct graph **out_graph,
                                      struct onnx_info *out_info, struct error *err);

/* The same from memory, which is copied.  folder: of external data; NULL: a model with such data is
 * refused. */
MUST_CHECK enum status onnx_read_bytes(const void *bytes, size_t size, const char *folder,
                                       struct graph **out_graph, struct onnx_info *out_info,
                                       struct error *err);

/* One serialized TensorProto, as ONNX's test data has them; the bytes are copied. */
MUST_CHECK enum status onnx_read_tensor(const void *bytes, size_t size,
                                        struct constant **out_tensor, struct error *err);

#endif
