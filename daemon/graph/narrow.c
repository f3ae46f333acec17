#include "graph/narrow.h"

#include <math.h>
#include <stdlib.h>

#include "graph/match.h"

enum status narrowing_init(struct narrowing *narrowing, struct graph *graph, enum dtype to)
{
    *narrowing = (struct narrowing){.graph = graph, .to = to, .count = graph->next_value_id};
    narrowing->twin = arena_take_array(&graph->arena, narrowing->count, sizeof(struct value *));
    return narrowing->twin != NULL ? STATUS_OK : STATUS_NO_MEMORY;
}

struct value *narrowing_twin(const struct narrowing *narrowing, const struct value *value)
{
    return value->id < narrowing->count ? narrowing->twin[value->id] : NULL;
}

void narrowing_set_twin(struct narrowing *narrowing, const struct value *value, struct value *twin)
{
    if (value->id < narrowing->count)
        narrowing->twin[value->id] = twin;
}

bool node_is_cast(const struct node *node, enum dtype from, enum dtype to)
{
    return node_is(node, "Cast") && node->in[0]->dtype == from && node->in[0]->constant == NULL &&
           node->out[0] != NULL && node_attr_int(node, "to", 0) == (int64_t)to;
}

/* ---- constants ---- */

static uint16_t narrowed(enum dtype to, float value)
{
    return to == DTYPE_FLOAT16 ? half_from_float(value) : bfloat16_from_float(value);
}

/* float32 elements for as long as they are looked at. */
static const float *elements_of(struct constant *constant, bool *out_brought)
{
    *out_brought = constant->tensor.data == NULL;
    return constant_restore(constant) == STATUS_OK ? constant->tensor.data : NULL;
}

static bool are_in_range(const float *elements, size_t count, bool factors)
{
    const float greatest = 65504, least_normal = 6.103515625e-05F;
    float largest = 0;

    for (size_t i = 0; i < count; i++) {
        float size = fabsf(elements[i]);

        if (isfinite(size) && size > largest)
            largest = size;
    }
    return largest <= greatest && !(factors && largest > 0 && largest < least_normal);
}

bool narrowing_fits(const struct narrowing *narrowing, struct constant *constant, bool factors)
{
    size_t count = (size_t)shape_count(&constant->tensor.shape);
    const float *elements;
    bool brought, fits;

    if (constant->tensor.dtype != DTYPE_FLOAT)
        return false;
    if (narrowing->to == DTYPE_BFLOAT16 || count == 0)
        return true;
    elements = elements_of(constant, &brought);
    fits = elements != NULL && are_in_range(elements, count, factors);
    if (brought)
        constant_drop(constant);
    return fits;
}

/* How narrowed elements come back once they have left memory: from the float32 ones. */
static enum status narrow_elements(const struct constant_origin *origin, void *to, enum dtype type)
{
    const struct tensor *from = &origin->source->tensor;
    size_t count = (size_t)shape_count(&from->shape);

    for (size_t i = 0; i < count; i++)
        ((uint16_t *)to)[i] = narrowed(type, ((const float *)from->data)[i]);
    return STATUS_OK;
}

static enum status narrow_to_half(const struct constant_origin *origin, void *to)
{
    return narrow_elements(origin, to, DTYPE_FLOAT16);
}

static enum status narrow_to_bfloat16(const struct constant_origin *origin, void *to)
{
    return narrow_elements(origin, to, DTYPE_BFLOAT16);
}

static void release_origin(struct constant_origin *origin)
{
    constant_unref(origin->source);
    free(origin);
}

static struct constant *narrow_constant(enum dtype to, struct constant *from)
{
    struct constant *made = constant_allocate(to, &from->tensor.shape);
    struct constant_origin *origin = malloc(sizeof(*origin));
    bool brought;

    if (made == NULL || origin == NULL || elements_of(from, &brought) == NULL)
        goto fail;
    *origin = (struct constant_origin){.restore = to == DTYPE_FLOAT16 ? narrow_to_half
                                                                      : narrow_to_bfloat16,
                                       .release = release_origin,
                                       .source = from};
    if (origin->restore(origin, (void *)(uintptr_t)made->tensor.data) != STATUS_OK)
        goto fail;
    (void)constant_ref(from);
    made->origin = origin;
    if (brought)
        constant_drop(from);
    return made;
fail:
    constant_unref(made);
    free(origin);
    return NULL;
}

/* ---- values ---- */

static struct value *add_like(struct narrowing *narrowing, const struct value *like)
{
    struct value *value = graph_add_value(narrowing->graph, "");

    if (value == NULL)
        return NULL;
    value->dtype = narrowing->to;
    value->shape = like->shape;
    value->shape_known = like->shape_known;
    value->shape_bound = like->shape_bound;
    return value;
}

static struct node *add_cast(struct narrowing *narrowing, struct node *before, const char *name,
                             struct value *from, struct value *to, enum dtype type)
{
    struct node *cast = graph_add_node(narrowing->graph, before, op_find("", "Cast"), name, 1, 1);

    if (cast == NULL)
        return NULL;
    op_attrs_default(cast->op, cast->attrs);
    (void)node_set_int(cast, "to", (int64_t)type);
    node_set_input(cast, 0, from);
    node_set_output(cast, 0, to);
    return cast;
}

enum status narrowing_input(struct narrowing *narrowing, struct node *node, struct value *value,
                            struct value **out_twin)
{
    struct value *twin = narrowing_twin(narrowing, value);

    if (twin == NULL && value->constant != NULL) {
        struct constant *made = narrow_constant(narrowing->to, value->constant);

        twin = made != NULL ? graph_add_constant(narrowing->graph, value->name, made) : NULL;
    } else if (twin == NULL) {
        twin = add_like(narrowing, value);
        if (twin != NULL &&
            add_cast(narrowing, node, node->name, value, twin, narrowing->to) == NULL)
            twin = NULL;
    }
    narrowing_set_twin(narrowing, value, twin);
    *out_twin = twin;
    return twin != NULL ? STATUS_OK : STATUS_NO_MEMORY;
}

enum status narrowing_output(struct narrowing *narrowing, struct node *node, size_t index)
{
    struct value *out = node->out[index], *twin = add_like(narrowing, out);
    struct list *next = node->link.next;
    struct node *before =
        next == &narrowing->graph->nodes ? NULL : CONTAINER_OF(next, struct node, link);

    if (twin == NULL)
        return STATUS_NO_MEMORY;
    node_set_output(node, index, twin);
    if (add_cast(narrowing, before, node->name, twin, out, DTYPE_FLOAT) == NULL)
        return STATUS_NO_MEMORY;
    out->dtype = DTYPE_FLOAT;
    narrowing_set_twin(narrowing, out, twin);
    return STATUS_OK;
}
