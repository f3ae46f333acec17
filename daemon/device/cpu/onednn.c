#include "device/cpu/onednn.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/epilogue.h"
#include "device/cpu/onednn_answers.h"
#include "device/cpu/team.h"

enum {
    /* Primitives that the library keeps for their next user: layers of one model repeat shapes.
     * More would keep the code of models long unloaded. */
    CACHE_CAPACITY = 64,
    MAX_DIMS = WINDOW_MAX_RANK + 3,
    CONV_HOST_BYTES = 96 << 10
};

/* The library is large, and drags a dozen others along: it is loaded for the first convolution that
 * wants it, so that a daemon without one starts in milliseconds and holds none of it. */
#define TEXT_OF(number) #number
#define SONAME(major)   "libdnnl.so." TEXT_OF(major)

#define FUNCTIONS(FUNCTION)                                                                        \
    FUNCTION(dilated_convolution_forward_desc_init)                                                \
    FUNCTION(dilated_deconvolution_forward_desc_init)                                              \
    FUNCTION(engine_create)                                                                        \
    FUNCTION(memory_create)                                                                        \
    FUNCTION(memory_desc_get_size)                                                                 \
    FUNCTION(memory_desc_init_by_tag)                                                              \
    FUNCTION(memory_destroy)                                                                       \
    FUNCTION(memory_set_data_handle_v2)                                                            \
    FUNCTION(post_ops_append_sum)                                                                  \
    FUNCTION(post_ops_create)                                                                      \
    FUNCTION(post_ops_destroy)                                                                     \
    FUNCTION(primitive_attr_create)                                                                \
    FUNCTION(primitive_attr_destroy)                                                               \
    FUNCTION(primitive_attr_set_post_ops)                                                          \
    FUNCTION(primitive_attr_set_scratchpad_mode)                                                   \
    FUNCTION(primitive_create)                                                                     \
    FUNCTION(primitive_desc_create)                                                                \
    FUNCTION(primitive_desc_destroy)                                                               \
    FUNCTION(primitive_desc_query)                                                                 \
    FUNCTION(primitive_desc_query_md)                                                              \
    FUNCTION(primitive_destroy)                                                                    \
    FUNCTION(primitive_execute)                                                                    \
    FUNCTION(reorder_primitive_desc_create)                                                        \
    FUNCTION(set_max_cpu_isa)                                                                      \
    FUNCTION(set_primitive_cache_capacity)                                                         \
    FUNCTION(stream_create)

static struct {
#define FUNCTION(name) __typeof__(dnnl_##name) *name;
    FUNCTIONS(FUNCTION)
#undef FUNCTION
} dnnl;

static dnnl_engine_t engine; /* NULL: none, every create answers STATUS_UNSUPPORTED */
static dnnl_stream_t stream;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum cpu_isa capped_isa = CPU_ISA_COUNT;
static char missing[128]; /* why there is no engine */

static bool load_functions(void)
{
    void *library = dlopen(SONAME(DNNL_VERSION_MAJOR), RTLD_LAZY | RTLD_LOCAL);
    bool all = library != NULL;

    if (!all)
        (void)snprintf(missing, sizeof(missing), "oneDNN is not there: %.100s", dlerror());
#define FUNCTION(name)                                                                             \
    if (all) {                                                                                     \
        dnnl.name = (__typeof__(dnnl.name))dlsym(library, "dnnl_" #name);                          \
        all = dnnl.name != NULL;                                                                   \
        if (!all)                                                                                  \
            (void)snprintf(missing, sizeof(missing), "oneDNN has no dnnl_" #name);                 \
    }
    FUNCTIONS(FUNCTION)
#undef FUNCTION
    return all;
}

static void open_library(void)
{
    if (!load_functions())
        return;
    if (capped_isa == CPU_AVX2)
        (void)dnnl.set_max_cpu_isa(dnnl_cpu_isa_avx2);
    if (capped_isa == CPU_BASELINE)
        (void)dnnl.set_max_cpu_isa(dnnl_cpu_isa_sse41);
    (void)dnnl.set_primitive_cache_capacity(CACHE_CAPACITY);
    if (dnnl.engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl.stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success)
        return;
    engine = NULL;
    (void)snprintf(missing, sizeof(missing), "oneDNN has no CPU engine");
}

void onednn_open(enum cpu_isa isa)
{
    static atomic_flag seen = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&seen))
        capped_isa = isa;
}

enum operand_index { X, WEIGHTS, BIAS, Y, SCRATCH, OPERANDS };

struct onednn_conv {
    struct onednn_conv_spec spec;
    int64_t out_per_group, in_per_group, groups; /* padded */
    int64_t taps;                                /* cells of a kernel */
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t desc[OPERANDS];
    dnnl_memory_t (*lanes)[OPERANDS];
    bool sums;         /* adds to the residual, which may be where the result will be */
    bool own_epilogue; /* applied by us afterwards, with a residual that is not added yet */
    size_t y_count;    /* floats, padding included */
    char format[256];
    char name[64];
};

static enum status status_of(dnnl_status_t status, const char *what, struct error *err)
{
    switch (status) {
    case dnnl_success:
        return STATUS_OK;
    case dnnl_out_of_memory:
        return error_set(err, STATUS_NO_MEMORY, "oneDNN %s: out of memory", what);
    case dnnl_unimplemented:
    case dnnl_invalid_arguments:
        return error_set(err, STATUS_UNSUPPORTED, "oneDNN %s: no implementation (%d)", what,
                         (int)status);
    default:
        return error_set(err, STATUS_INTERNAL, "oneDNN %s: status %d", what, (int)status);
    }
}

#define DNNL_TRY(call, what) TRY(status_of(call, what, err))

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
    DNNL_TRY(dnnl.memory_desc_init_by_tag(out_desc, (int)g->window.spatial + 2, dims, dnnl_f32,
                                          data_tag(layout, conv->spec.block, g->window.spatial)),
             "memory");
    return STATUS_OK;
}

/* [groups,] out, in, kernel… of any format. */
static int weight_dims(const struct onednn_conv *conv, int64_t *dims)
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
    rank = weight_dims(conv, dims);
    DNNL_TRY(dnnl.memory_desc_init_by_tag(&conv->desc[WEIGHTS], rank, dims, dnnl_f32,
                                          dnnl_format_tag_any),
             "weights");
    dims[0] = conv->groups * conv->out_per_group;
    DNNL_TRY(dnnl.memory_desc_init_by_tag(&conv->desc[BIAS], 1, dims, dnnl_f32, dnnl_a), "bias");
    return STATUS_OK;
}

static enum status make_attributes(const struct onednn_conv *conv, dnnl_primitive_attr_t *out_attr,
                                   struct error *err)
{
    dnnl_post_ops_t ops = NULL;
    enum status status;

    DNNL_TRY(dnnl.primitive_attr_create(out_attr), "attributes");
    status =
        status_of(dnnl.primitive_attr_set_scratchpad_mode(*out_attr, dnnl_scratchpad_mode_user),
                  "scratchpad mode", err);
    if (status != STATUS_OK || !conv->sums)
        return status;
    TRY(status_of(dnnl.post_ops_create(&ops), "post-ops", err));
    status = status_of(dnnl.post_ops_append_sum(ops, 1.0f), "sum", err);
    if (status == STATUS_OK)
        status = status_of(dnnl.primitive_attr_set_post_ops(*out_attr, ops), "post-ops", err);
    (void)dnnl.post_ops_destroy(ops);
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
               ? dnnl.dilated_deconvolution_forward_desc_init(
                     conv_desc, dnnl_forward_inference, dnnl_deconvolution_direct, &d[X],
                     &d[WEIGHTS], bias, &d[Y], n->stride, n->dilation, n->begin, n->end)
               : dnnl.dilated_convolution_forward_desc_init(
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
        status = status_of(dnnl.primitive_desc_create(out_desc, &desc, attr, engine, NULL),
                           "convolution", err);
    (void)dnnl.primitive_attr_destroy(attr);
    TRY(status);
    (void)dnnl.primitive_desc_query(*out_desc, dnnl_query_impl_info_str, 0, &name);
    snprintf(conv->name, sizeof(conv->name), "%s", name);
    if (!is_reference(name))
        return STATUS_OK;
    (void)dnnl.primitive_desc_destroy(*out_desc);
    *out_desc = NULL;
    return error_set(err, STATUS_UNSUPPORTED, "oneDNN has only reference code for it");
}

/* Activations are ours: the library's ReLU and Clip make a number of NaN. */
static enum status choose_implementation(struct onednn_conv *conv, dnnl_primitive_desc_t *out_desc,
                                         struct error *err)
{
    const struct epilogue *epilogue = &conv->spec.epilogue;

    if (engine == NULL)
        return error_set(err, STATUS_UNSUPPORTED, "%s", missing);
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
        status = status_of(dnnl.primitive_create(&conv->primitive, desc), "convolution", err);
    if (status == STATUS_OK) {
        conv->desc[WEIGHTS] = *dnnl.primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
        conv->desc[SCRATCH] = *dnnl.primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    }
    if (desc != NULL)
        (void)dnnl.primitive_desc_destroy(desc);
    return status;
}

static enum status make_memories(struct onednn_conv *conv, struct error *err)
{
    conv->lanes = calloc(conv->spec.lanes, sizeof(*conv->lanes));
    if (conv->lanes == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a convolution");
    for (unsigned lane = 0; lane < conv->spec.lanes; lane++)
        for (int i = 0; i < OPERANDS; i++)
            DNNL_TRY(
                dnnl.memory_create(&conv->lanes[lane][i], &conv->desc[i], engine, DNNL_MEMORY_NONE),
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
    conv->y_count = dnnl.memory_desc_get_size(&conv->desc[Y]) / sizeof(float);
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
        (void)dnnl.primitive_desc_destroy(desc);
    return status;
}

bool onednn_conv_is_possible(const struct onednn_conv_spec *spec)
{
    enum status status;
    unsigned threads;
    bool possible;

    (void)pthread_once(&once, open_library);
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
    (void)pthread_once(&once, open_library);
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
                (void)dnnl.memory_destroy(conv->lanes[lane][i]);
    free(conv->lanes);
    if (conv->primitive != NULL)
        (void)dnnl.primitive_destroy(conv->primitive);
    free(conv);
}

const char *onednn_conv_format(const struct onednn_conv *conv)
{
    return conv->format;
}

size_t onednn_conv_packed_bytes(const struct onednn_conv *conv)
{
    return dnnl.memory_desc_get_size(&conv->desc[WEIGHTS]);
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
    return dnnl.memory_desc_get_size(&conv->desc[SCRATCH]);
}

const char *onednn_conv_name(const struct onednn_conv *conv)
{
    return conv->name;
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
    int rank = weight_dims(conv, dims);
    bool ok =
        dnnl.memory_desc_init_by_tag(&desc, rank, dims, dnnl_f32, tags[rank - 3]) == dnnl_success &&
        dnnl.memory_create(&source, &desc, engine, from) == dnnl_success &&
        dnnl.memory_create(&target, &conv->desc[WEIGHTS], engine, packed) == dnnl_success &&
        dnnl.reorder_primitive_desc_create(&primitive_desc, &desc, engine, &conv->desc[WEIGHTS],
                                           engine, NULL) == dnnl_success &&
        dnnl.primitive_create(&primitive, primitive_desc) == dnnl_success;

    if (ok) {
        const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}};

        ok = dnnl.primitive_execute(primitive, stream, 2, args) == dnnl_success;
    }
    if (primitive != NULL)
        (void)dnnl.primitive_destroy(primitive);
    if (primitive_desc != NULL)
        (void)dnnl.primitive_desc_destroy(primitive_desc);
    if (target != NULL)
        (void)dnnl.memory_destroy(target);
    if (source != NULL)
        (void)dnnl.memory_destroy(source);
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
        if (dnnl.memory_set_data_handle_v2(memories[i], handles[i], stream) != dnnl_success)
            return STATUS_INTERNAL;
    if (dnnl.primitive_execute(conv->primitive, stream, conv->spec.has_bias ? 5 : 4, args) !=
        dnnl_success)
        return STATUS_INTERNAL;
    team_woke();
    if (conv->own_epilogue)
        apply_epilogue(conv, run);
    return STATUS_OK;
}
