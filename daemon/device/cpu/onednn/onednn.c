/* A convolution: described, made, run. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/epilogue.h"
#include "device/cpu/onednn/onednn_answers.h"
#include "device/cpu/onednn/onednn_internal.h"
#include "device/cpu/team.h"

enum { CONV_HOST_BYTES = 96 << 10 };

static int64_t round_up(int64_t count, enum layout layout, unsigned block)
{
    return layout == LAYOUT_BLOCKED ? (count + block - 1) / block * block : count;
}

/* Channel counts as the library is told: whole blocks where the layout is blocked.  Groups of more
 * than one channel are multiples of the block already (the kernel refuses others). */
static void pad_channels(struct onednn_conv *conv)
{
    const struct onednn_conv_spec *spec = &conv->spec;
    const struct conv_geometry *g = &spec->geometry;
    bool depthwise = g->groups > 1 && g->groups == g->in_channels && g->groups == g->out_channels;

    conv->groups = depthwise ? round_up(g->groups, spec->x_layout, spec->block) : g->groups;
    conv->in_per_group = g->in_channels / g->groups;
    conv->out_per_group = g->out_channels / g->groups;
    if (g->groups == 1) {
        conv->in_per_group = round_up(conv->in_per_group, spec->x_layout, spec->block);
        conv->out_per_group = round_up(conv->out_per_group, spec->y_layout, spec->block);
    }
    conv->taps = 1;
    for (size_t i = 0; i < g->window.spatial; i++)
        conv->taps *= g->window.kernel[i];
}

static dnnl_format_tag_t data_tag(enum layout layout, unsigned block, size_t spatial)
{
    static const dnnl_format_tag_t tags[][WINDOW_MAX_RANK] = {
        {dnnl_abc, dnnl_abcd, dnnl_abcde},          /* plain */
        {dnnl_acb, dnnl_acdb, dnnl_acdeb},          /* channels last */
        {dnnl_aBc8b, dnnl_aBcd8b, dnnl_aBcde8b},    /* blocked by 8 */
        {dnnl_aBc16b, dnnl_aBcd16b, dnnl_aBcde16b}, /* blocked by 16 */
    };
    size_t row = layout == LAYOUT_PLAIN ? 0 : layout == LAYOUT_NHWC ? 1 : block == 8 ? 2 : 3;

    return tags[row][spatial - 1];
}

static enum status describe_data(const struct onednn_conv *conv, int64_t channels,
                                 const int64_t *spatial, enum layout layout,
                                 dnnl_memory_desc_t *out_desc, struct error *err)
{
    const struct conv_geometry *g = &conv->spec.geometry;
    dnnl_dims_t dims = {g->batch, channels};

    memcpy(dims + 2, spatial, g->window.spatial * sizeof(*dims));
    DNNL_TRY(onednn.memory_desc_init_by_tag(out_desc, (int)g->window.spatial + 2, dims, dnnl_f32,
                                            data_tag(layout, conv->spec.block, g->window.spatial)),
             "memory");
    return STATUS_OK;
}

static enum status describe_all(struct onednn_conv *conv, struct error *err)
{
    const struct onednn_conv_spec *spec = &conv->spec;
    const struct window *window = &spec->geometry.window;
    dnnl_dims_t dims;
    int rank;

    TRY(describe_data(conv, conv->groups * conv->in_per_group, window->in, spec->x_layout,
                      &conv->desc[X], err));
    TRY(describe_data(conv, conv->groups * conv->out_per_group, window->out, spec->y_layout,
                      &conv->desc[Y], err));
    rank = onednn_weight_dims(conv, dims);
    DNNL_TRY(onednn.memory_desc_init_by_tag(&conv->desc[WEIGHTS], rank, dims, dnnl_f32,
                                            dnnl_format_tag_any),
             "weights");
    dims[0] = conv->groups * conv->out_per_group;
    DNNL_TRY(onednn.memory_desc_init_by_tag(&conv->desc[BIAS], 1, dims, dnnl_f32, dnnl_a), "bias");
    return STATUS_OK;
}

static enum status make_attributes(const struct onednn_conv *conv, dnnl_primitive_attr_t *out_attr,
                                   struct error *err)
{
    dnnl_post_ops_t ops = NULL;
    enum status status;

    DNNL_TRY(onednn.primitive_attr_create(out_attr), "attributes");
    status = onednn_status(
        onednn.primitive_attr_set_scratchpad_mode(*out_attr, dnnl_scratchpad_mode_user),
        "scratchpad mode", err);
    if (status != STATUS_OK || !conv->sums)
        return status;
    TRY(onednn_status(onednn.post_ops_create(&ops), "post-ops", err));
    status = onednn_status(onednn.post_ops_append_sum(ops, 1.0f), "sum", err);
    if (status == STATUS_OK)
        status = onednn_status(onednn.primitive_attr_set_post_ops(*out_attr, ops), "post-ops", err);
    (void)onednn.post_ops_destroy(ops);
    return status;
}

/* Padding behind the end, such that the library computes the very output size that ONNX has. */
static int64_t pad_end(const struct window *window, size_t i, bool transposed)
{
    int64_t reach = (window->kernel[i] - 1) * window->dilation[i] + 1;
    int64_t small = transposed ? window->in[i] : window->out[i];
    int64_t large = transposed ? window->out[i] : window->in[i];

    return (small - 1) * window->stride[i] + reach - large - window->pad_begin[i];
}

struct numbers {
    dnnl_dims_t stride, dilation, begin, end;
};

static enum status read_numbers(const struct onednn_conv *conv, struct numbers *numbers,
                                struct error *err)
{
    const struct window *window = &conv->spec.geometry.window;

    for (size_t i = 0; i < window->spatial; i++) {
        int64_t end = pad_end(window, i, conv->spec.transposed);

        numbers->stride[i] = window->stride[i];
        numbers->dilation[i] = window->dilation[i] - 1;
        numbers->begin[i] = window->pad_begin[i];
        numbers->end[i] = end;
        if (end < 0 && end > -window->stride[i])
            numbers->end[i] = 0; /* less than a stride is rounded away */
        else if (end < 0)
            return error_set(err, STATUS_UNSUPPORTED, "oneDNN: the output is padded too far");
    }
    return STATUS_OK;
}

static dnnl_status_t init_desc(const struct onednn_conv *conv, const struct numbers *n,
                               dnnl_convolution_desc_t *conv_desc)
{
    const dnnl_memory_desc_t *d = conv->desc;
    const dnnl_memory_desc_t *bias = conv->spec.has_bias ? &d[BIAS] : NULL;

    return conv->spec.transposed
               ? onednn.dilated_deconvolution_forward_desc_init(
                     conv_desc, dnnl_forward_inference, dnnl_deconvolution_direct, &d[X],
                     &d[WEIGHTS], bias, &d[Y], n->stride, n->dilation, n->begin, n->end)
               : onednn.dilated_convolution_forward_desc_init(
                     conv_desc, dnnl_forward_inference, dnnl_convolution_direct, &d[X], &d[WEIGHTS],
                     bias, &d[Y], n->stride, n->dilation, n->begin, n->end);
}

/* Reference code is plain loops, a thousand times too slow: as good as no implementation. */
static bool is_reference(const char *name)
{
    return strstr(name, "ref") != NULL;
}

/* The implementation that the library would take. */
static enum status describe_primitive(struct onednn_conv *conv, dnnl_primitive_desc_t *out_desc,
                                      struct error *err)
{
    dnnl_convolution_desc_t desc;
    dnnl_primitive_attr_t attr = NULL;
    const char *name = "";
    struct numbers numbers;
    enum status status;

    TRY(read_numbers(conv, &numbers, err));
    DNNL_TRY(init_desc(conv, &numbers, &desc), "convolution");
    status = make_attributes(conv, &attr, err);
    if (status == STATUS_OK)
        status =
            onednn_status(onednn.primitive_desc_create(out_desc, &desc, attr, onednn.engine, NULL),
                          "convolution", err);
    (void)onednn.primitive_attr_destroy(attr);
    TRY(status);
    (void)onednn.primitive_desc_query(*out_desc, dnnl_query_impl_info_str, 0, &name);
    snprintf(conv->name, sizeof(conv->name), "%s", name);
    if (!is_reference(name))
        return STATUS_OK;
    (void)onednn.primitive_desc_destroy(*out_desc);
    *out_desc = NULL;
    return error_set(err, STATUS_UNSUPPORTED, "oneDNN has only reference code for it");
}

/* Activations are ours: the library's ReLU and Clip make a number of NaN. */
static enum status choose_implementation(struct onednn_conv *conv, dnnl_primitive_desc_t *out_desc,
                                         struct error *err)
{
    const struct epilogue *epilogue = &conv->spec.epilogue;

    if (onednn.engine == NULL)
        return error_set(err, STATUS_UNSUPPORTED, "%s", onednn.missing);
    pad_channels(conv);
    conv->sums = epilogue->has_residual && !epilogue->residual_after && !conv->spec.transposed;
    conv->own_epilogue = epilogue->act != ACT_NONE || (epilogue->has_residual && !conv->sums);
    TRY(describe_all(conv, err));
    return describe_primitive(conv, out_desc, err);
}

static enum status make_primitive(struct onednn_conv *conv, struct error *err)
{
    dnnl_primitive_desc_t desc = NULL;
    enum status status = choose_implementation(conv, &desc, err);

    if (status == STATUS_OK)
        status = onednn_status(onednn.primitive_create(&conv->primitive, desc), "convolution", err);
    if (status == STATUS_OK) {
        conv->desc[WEIGHTS] = *onednn.primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
        conv->desc[SCRATCH] = *onednn.primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    }
    if (desc != NULL)
        (void)onednn.primitive_desc_destroy(desc);
    return status;
}

static enum status make_memories(struct onednn_conv *conv, struct error *err)
{
    conv->lanes = calloc(conv->spec.lanes, sizeof(*conv->lanes));
    if (conv->lanes == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a convolution");
    for (unsigned lane = 0; lane < conv->spec.lanes; lane++)
        for (int i = 0; i < OPERANDS; i++)
            DNNL_TRY(onednn.memory_create(&conv->lanes[lane][i], &conv->desc[i], onednn.engine,
                                          DNNL_MEMORY_NONE),
                     "memory");
    return STATUS_OK;
}

/* Everything by which two packed forms can differ. */
static void write_format(struct onednn_conv *conv)
{
    const dnnl_memory_desc_t *d = &conv->desc[WEIGHTS];
    const dnnl_blocking_desc_t *b = &d->format_desc.blocking;
    size_t used = (size_t)snprintf(conv->format, sizeof(conv->format), "onednn%s",
                                   conv->spec.transposed ? "-t" : "");

    for (int i = 0; i < d->ndims && used < sizeof(conv->format); i++)
        used += (size_t)snprintf(conv->format + used, sizeof(conv->format) - used,
                                 " %" PRId64 "*%" PRId64, d->padded_dims[i], b->strides[i]);
    for (int i = 0; i < b->inner_nblks && used < sizeof(conv->format); i++)
        used += (size_t)snprintf(conv->format + used, sizeof(conv->format) - used,
                                 " b%" PRId64 ":%" PRId64, b->inner_blks[i], b->inner_idxs[i]);
}

static enum status build(struct onednn_conv *conv, struct error *err)
{
    TRY(make_primitive(conv, err));
    conv->y_count = onednn.memory_desc_get_size(&conv->desc[Y]) / sizeof(float);
    write_format(conv);
    return make_memories(conv, err);
}

/* ---- what the library can do ---- */

/* STATUS_NO_MEMORY is no answer. */
static enum status ask_library(const struct onednn_conv_spec *spec, int64_t batch)
{
    struct onednn_conv conv = {.spec = *spec};
    dnnl_primitive_desc_t desc = NULL;
    struct error ignored = {0};
    enum status status;

    window_widen(&conv.spec.geometry.window, 2); /* the same bytes, and more code for it */
    conv.spec.geometry.batch = batch;
    status = choose_implementation(&conv, &desc, &ignored);
    if (desc != NULL)
        (void)onednn.primitive_desc_destroy(desc);
    return status;
}

bool onednn_conv_is_possible(const struct onednn_conv_spec *spec)
{
    enum status status;
    unsigned threads;
    bool possible;

    onednn_load();
    if (onednn_answers_find(spec, &possible))
        return possible;
    threads = team_enter(spec->threads);
    /* The answer, and so the bits of a row, must not depend on the batch. */
    status = ask_library(spec, 1);
    if (status == STATUS_OK)
        status = ask_library(spec, 8);
    (void)team_enter(threads);
    if (status != STATUS_NO_MEMORY)
        onednn_answers_keep(spec, status == STATUS_OK);
    return status == STATUS_OK;
}

enum status onednn_conv_create(const struct onednn_conv_spec *spec, struct onednn_conv **out_conv,
                               struct error *err)
{
    struct onednn_conv *conv = calloc(1, sizeof(*conv));
    unsigned threads;
    enum status status;

    if (conv == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a convolution");
    conv->spec = *spec;
    window_widen(&conv->spec.geometry.window, 2);
    onednn_load();
    threads = team_enter(spec->threads); /* the primitive divides its work for so many */
    status = build(conv, err);
    (void)team_enter(threads);
    if (status != STATUS_OK) {
        onednn_conv_destroy(conv);
        return status;
    }
    *out_conv = conv;
    return STATUS_OK;
}

void onednn_conv_destroy(struct onednn_conv *conv)
{
    if (conv == NULL)
        return;
    for (unsigned lane = 0; conv->lanes != NULL && lane < conv->spec.lanes; lane++)
        for (int i = 0; i < OPERANDS; i++)
            if (conv->lanes[lane][i] != NULL)
                (void)onednn.memory_destroy(conv->lanes[lane][i]);
    free(conv->lanes);
    if (conv->primitive != NULL)
        (void)onednn.primitive_destroy(conv->primitive);
    free(conv);
}

const char *onednn_conv_format(const struct onednn_conv *conv)
{
    return conv->format;
}

size_t onednn_conv_packed_bytes(const struct onednn_conv *conv)
{
    return onednn.memory_desc_get_size(&conv->desc[WEIGHTS]);
}

size_t onednn_conv_bias_count(const struct onednn_conv *conv)
{
    return (size_t)(conv->groups * conv->out_per_group);
}

size_t onednn_conv_host_bytes(void)
{
    return CONV_HOST_BYTES;
}

size_t onednn_conv_scratch_bytes(const struct onednn_conv *conv)
{
    return onednn.memory_desc_get_size(&conv->desc[SCRATCH]);
}

const char *onednn_conv_name(const struct onednn_conv *conv)
{
    return conv->name;
}

struct epilogue_job {
    const struct onednn_conv *conv;
    float *y;
    const float *residual; /* NULL: none */
};

static void apply_share(void *arg, unsigned member, unsigned members)
{
    enum { LINE = 16 }; /* floats: members write to no line together */
    const struct epilogue_job *job = arg;
    const struct onednn_conv *conv = job->conv;
    size_t from, to;

    team_share((conv->y_count + LINE - 1) / LINE, member, members, &from, &to);
    from *= LINE;
    to = to * LINE < conv->y_count ? to * LINE : conv->y_count;
    if (to > from)
        epilogue_ops_for(conv->spec.isa)
            ->apply(&conv->spec.epilogue, job->y + from,
                    job->residual != NULL ? job->residual + from : NULL, to - from);
}

static void apply_epilogue(const struct onednn_conv *conv, const struct onednn_conv_run *run)
{
    struct epilogue_job job = {
        .conv = conv, .y = run->y, .residual = conv->sums ? NULL : run->residual};

    team_run(team_size(conv->spec.threads, (double)conv->y_count * 0.5), apply_share, &job);
}

enum status onednn_conv_run(const struct onednn_conv *conv, const struct onednn_conv_run *run)
{
    dnnl_memory_t *memories = conv->lanes[run->lane];
    void *const handles[OPERANDS] = {
        [X] = (void *)(uintptr_t)run->x,
        [WEIGHTS] = (void *)(uintptr_t)run->packed,
        [BIAS] = (void *)(uintptr_t)run->bias,
        [Y] = run->y,
        [SCRATCH] = run->scratch,
    };
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, memories[X]},     {DNNL_ARG_WEIGHTS, memories[WEIGHTS]},
        {DNNL_ARG_DST, memories[Y]},     {DNNL_ARG_SCRATCHPAD, memories[SCRATCH]},
        {DNNL_ARG_BIAS, memories[BIAS]},
    };

    if (conv->sums && run->residual != run->y)
        memcpy(run->y, run->residual, conv->y_count * sizeof(float));
    for (int i = 0; i < OPERANDS; i++)
        if (onednn.memory_set_data_handle_v2(memories[i], handles[i], onednn.stream) !=
            dnnl_success)
            return STATUS_INTERNAL;
    if (onednn.primitive_execute(conv->primitive, onednn.stream, conv->spec.has_bias ? 5 : 4,
                                 args) != dnnl_success)
        return STATUS_INTERNAL;
    team_woke();
    if (conv->own_epilogue)
        apply_epilogue(conv, run);
    return STATUS_OK;
}
