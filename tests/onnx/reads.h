/* Reads what writer.h wrote, and says what must have come of it. */
#ifndef TESTS_ONNX_READS_H
#define TESTS_ONNX_READS_H

#include "onnx/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "graph/match.h"
#include "onnx/reader.h"
#include "support/fail_alloc.h"

static const int64_t two[] = {2};
static const float numbers[] = {1.5F, -2};

/* What one read gave; destroyed by done(). */
struct result {
    struct graph *graph;
    struct onnx_info info;
    struct error err;
    enum status status;
};

static inline struct result read_model(const struct message *model)
{
    struct result result = {0};
    const char *reason = "";

    result.status =
        onnx_read_bytes(model->bytes, model->size, NULL, &result.graph, &result.info, &result.err);
    if (result.status == STATUS_OK && !graph_is_valid(result.graph, &reason))
        fail_msg("%s", reason);
    if (result.status != STATUS_OK)
        assert_null(result.graph);
    return result;
}

static inline struct result read_graph(int64_t opset, const struct message *graph)
{
    struct message message = model(opset, graph);

    return read_model(&message);
}

static inline void done(struct result *result)
{
    graph_destroy(result->graph);
}

static inline void expect_ok(const struct result *result)
{
    if (result->status != STATUS_OK)
        fail_msg("%s: %s", status_name(result->status), result->err.text);
}

static inline void expect_refused(const struct message *model, enum status status,
                                  const char *words)
{
    struct result result = read_model(model);

    if (result.status == STATUS_OK || strstr(result.err.text, words) == NULL)
        fail_msg("%s: '%s' has no '%s'", status_name(result.status), result.err.text, words);
    assert_int_equal(result.status, status);
    done(&result);
}

static inline void expect_graph_refused(const struct message *graph, enum status status,
                                        const char *words)
{
    struct message message = model(13, graph);

    expect_refused(&message, status, words);
}

static inline struct node *nth_node(const struct graph *graph, size_t n)
{
    struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        if (n-- == 0)
            return node;
    return NULL;
}

/* x [2] ──> y, the nodes are put by the test. */
static inline struct message x_to_y(void)
{
    struct message graph = {0};

    put_text(&graph, GRAPH_NAME, "test");
    put_port(&graph, GRAPH_INPUT, "x", 1, 1, two);
    put_port(&graph, GRAPH_OUTPUT, "y", 1, 1, two);
    return graph;
}

#endif
