/* Weights in the form that the library wants. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/onednn/onednn_internal.h"
#include "device/cpu/team.h"

int onednn_weight_dims(const struct onednn_conv *conv, int64_t *dims)
{
    const struct window *window = &conv->spec.geometry.window;
    int count = 0;

    if (conv->groups > 1)
        dims[count++] = conv->groups;
    dims[count++] = conv->out_per_group;
    dims[count++] = conv->in_per_group;
    for (size_t i = 0; i < window->spatial; i++)
        dims[count++] = window->kernel[i];
    return count;
}

/* The model's weights as [group][out][in][tap] with zeros for channels that only pad. */
static float *pad_weights(const struct onednn_conv *conv, const void *weights)
{
    const struct conv_geometry *g = &conv->spec.geometry;
    const int64_t in = g->in_channels / g->groups, out = g->out_channels / g->groups;
    const size_t tap_bytes = (size_t)conv->taps * sizeof(float);
    /* The channels in of a channel out lie side by side, but for a transposed convolution. */
    const int64_t run = conv->spec.transposed ? 1 : in;
    const char *from = weights;
    char *padded =
        calloc((size_t)(conv->groups * conv->out_per_group * conv->in_per_group), tap_bytes);

    for (int64_t group = 0; padded != NULL && group < g->groups; group++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < in; i += run) {
                int64_t at =
                    conv->spec.transposed ? (group * in + i) * out + o : (group * out + o) * in + i;
                int64_t to = (group * conv->out_per_group + o) * conv->in_per_group + i;

                memcpy(padded + (size_t)to * tap_bytes, from + (size_t)at * tap_bytes,
                       (size_t)run * tap_bytes);
            }
    return (float *)(void *)padded;
}

static enum status reorder_weights(const struct onednn_conv *conv, void *from, void *packed)
{
    static const dnnl_format_tag_t tags[] = {dnnl_abc, dnnl_abcd, dnnl_abcde, dnnl_abcdef};
    dnnl_memory_desc_t desc;
    dnnl_memory_t source = NULL, target = NULL;
    dnnl_primitive_desc_t primitive_desc = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_dims_t dims = {0};
    int rank = onednn_weight_dims(conv, dims);
    bool ok = onednn.memory_desc_init_by_tag(&desc, rank, dims, dnnl_f32, tags[rank - 3]) ==
                  dnnl_success &&
              onednn.memory_create(&source, &desc, onednn.engine, from) == dnnl_success &&
              onednn.memory_create(&target, &conv->desc[WEIGHTS], onednn.engine, packed) ==
                  dnnl_success &&
              onednn.reorder_primitive_desc_create(&primitive_desc, &desc, onednn.engine,
                                                   &conv->desc[WEIGHTS], onednn.engine,
                                                   NULL) == dnnl_success &&
              onednn.primitive_create(&primitive, primitive_desc) == dnnl_success;

    if (ok) {
        const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}};

        ok = onednn.primitive_execute(primitive, onednn.stream, 2, args) == dnnl_success;
    }
    if (primitive != NULL)
        (void)onednn.primitive_destroy(primitive);
    if (primitive_desc != NULL)
        (void)onednn.primitive_desc_destroy(primitive_desc);
    if (target != NULL)
        (void)onednn.memory_destroy(target);
    if (source != NULL)
        (void)onednn.memory_destroy(source);
    return ok ? STATUS_OK : STATUS_NO_MEMORY;
}

/* On this thread: others pack other weights meanwhile. */
static enum status reorder_alone(const struct onednn_conv *conv, void *from, void *packed)
{
    unsigned threads = team_enter(1);
    enum status status = reorder_weights(conv, from, packed);

    (void)team_enter(threads);
    return status;
}

enum status onednn_conv_pack(const struct onednn_conv *conv, const void *weights, void *packed)
{
    const struct conv_geometry *g = &conv->spec.geometry;
    bool as_it_lies = !conv->spec.transposed && conv->groups == g->groups &&
                      conv->groups * conv->in_per_group == g->in_channels &&
                      conv->groups * conv->out_per_group == g->out_channels &&
                      (uintptr_t)weights % sizeof(float) == 0;
    float *padded;
    enum status status;

    if (as_it_lies) /* oneDNN's memories are not const; the source of a reorder is only read */
        return reorder_alone(conv, (void *)(uintptr_t)weights, packed);
    padded = pad_weights(conv, weights);
    if (padded == NULL)
        return STATUS_NO_MEMORY;
    status = reorder_alone(conv, padded, packed);
    free(padded);
    return status;
}
