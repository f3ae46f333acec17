/* The ONNX reader: any bytes are a sound graph or a sentence; and a graph stays sound in the
 * passes, whatever nonsense its attributes are. */
#include "fuzz.h"

#include <stdlib.h>

#include "graph/pass.h"
#include "onnx/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const struct pass_context context = {.fold = NULL};
    struct constant *tensor;
    struct graph *graph;
    struct error err;
    const char *reason;

    if (onnx_read_bytes(data, bytes, NULL, &graph, NULL, &err) == STATUS_OK) {
        if (!graph_is_valid(graph, &reason))
            abort();
        (void)!pass_run_all(graph, PASS_MODEL, &context, &err);
        if (!graph_is_valid(graph, &reason))
            abort();
        graph_destroy(graph);
    }
    if (onnx_read_tensor(data, bytes, &tensor, &err) == STATUS_OK)
        constant_unref(tensor);
    return 0;
}
