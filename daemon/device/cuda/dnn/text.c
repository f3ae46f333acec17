/* Graphs in words: for the log, and for the table of plans that the tests keep. */
#include <stdio.h>

#include "device/cuda/dnn/plan.h"

static size_t put_list(char *text, size_t room, const char *name, const int64_t *values,
                       size_t count)
{
    size_t used = 0;

    for (size_t i = 0; i < count && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%s%lld", i == 0 ? " " : "x",
                                 i == 0 ? name : "", (long long)values[i]);
    return used;
}

static void format_attention(const struct dnn_graph *graph, char *text, size_t room)
{
    static const char *const names[DNN_MATRICES] = {"q=", "k=", "v=", "out="};
    size_t used = (size_t)snprintf(text, room, "attention %s", dtype_name(graph->dtype));

    for (size_t i = 0; i < DNN_MATRICES && used < room; i++) {
        used += put_list(text + used, room - used, names[i], graph->matrix[i].sizes, 4);
        if (used < room)
            used += put_list(text + used, room - used, "by=", graph->matrix[i].strides, 4);
    }
}

/* What the convolution takes along. */
static void format_epilogue(const struct dnn_graph *graph, char *text, size_t room)
{
    static const char *const names[ACT_COUNT] = {[ACT_SIGMOID] = " sigmoid",
                                                 [ACT_TANH] = " tanh",
                                                 [ACT_SILU] = " silu",
                                                 [ACT_GELU_ERF] = " gelu_erf",
                                                 [ACT_GELU_TANH] = " gelu_tanh"};
    const char *name = graph->relu ? " relu" : names[graph->act];

    (void)snprintf(text, room, "%s%s%s%s", graph->compiled ? " compiled" : "",
                   graph->has_z && !graph->z_behind ? " z" : "", name != NULL ? name : "",
                   graph->has_z && graph->z_behind ? " z_behind" : "");
}

void dnn_graph_format(const struct dnn_graph *graph, char *text, size_t room)
{
    static const char *const kinds[] = {"conv", "transposed", "average", "average_padded"};
    const struct {
        const char *name;
        const int64_t *values;
        size_t count;
    } lists[] = {{"x=", graph->x, graph->spatial + 2},
                 {"w=", graph->w, graph->kind <= DNN_TRANSPOSED ? graph->spatial + 2 : 0},
                 {"y=", graph->y, graph->spatial + 2},
                 {"window=", graph->window, graph->spatial},
                 {"stride=", graph->stride, graph->spatial},
                 {"dilation=", graph->dilation, graph->spatial},
                 {"begin=", graph->pad_begin, graph->spatial},
                 {"end=", graph->pad_end, graph->spatial}};
    char epilogue[64];
    size_t used;

    if (graph->kind == DNN_ATTENTION) {
        format_attention(graph, text, room);
        return;
    }
    format_epilogue(graph, epilogue, sizeof(epilogue));
    used = (size_t)snprintf(text, room, "%s %s %s%s", kinds[graph->kind], dtype_name(graph->dtype),
                            graph->channels_last ? "nhwc" : "nchw", epilogue);

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]) && used < room; i++)
        used += put_list(text + used, room - used, lists[i].name, lists[i].values, lists[i].count);
}
