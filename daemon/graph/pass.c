#include "graph/pass.h"

#include <assert.h>

static const struct pass *const passes[] = {
#define PASS(name) &pass_##name,
#include "graph/passes.def"
#undef PASS
    NULL,
};

static enum status run_children(struct graph *graph, enum pass_stage stage,
                                const struct pass_context *context, struct error *err)
{
    for (struct graph *child = graph->children; child != NULL; child = child->next_child)
        TRY(pass_run_all(child, stage, context, err));
    return STATUS_OK;
}

enum status pass_run_all(struct graph *graph, enum pass_stage stage,
                         const struct pass_context *context, struct error *err)
{
    /* A plan's clone has no children: branches are planned when they are taken. */
    TRY(run_children(graph, stage, context, err));
    graph_remove_dead(graph);
    for (size_t i = 0; passes[i] != NULL; i++) {
        const char *reason = "";
        enum status status;

        if (passes[i]->stage != stage)
            continue;
        status = passes[i]->run(graph, context, err);
        graph_remove_dead(graph);
        assert(graph_is_valid(graph, &reason));
        (void)reason;
        if (status != STATUS_OK)
            return error_prefix(err, status, "pass %s", passes[i]->name);
    }
    return STATUS_OK;
}
