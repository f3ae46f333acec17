/* Between the files of oneDNN: the library as it was opened, and what a convolution is made of.
 *
 * Threads: onednn_load() any, once; onednn is constant behind it.
 */
#ifndef DEVICE_CPU_ONEDNN_INTERNAL_H
#define DEVICE_CPU_ONEDNN_INTERNAL_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>

#include "device/cpu/onednn/onednn.h"

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

struct onednn_library {
    dnnl_engine_t engine; /* NULL: none, every create answers STATUS_UNSUPPORTED */
    dnnl_stream_t stream;
    char missing[128]; /* why there is no engine */
#define FUNCTION(name) __typeof__(dnnl_##name) *name;
    FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* The library is large, and drags a dozen others along: it is loaded for the first convolution that
 * wants it, so that a daemon without one starts in milliseconds and holds none of it. */
extern struct onednn_library onednn;
void onednn_load(void);

/* What the library's status means here; `what` goes into the sentence. */
enum status onednn_status(dnnl_status_t status, const char *what, struct error *err);
#define DNNL_TRY(call, what) TRY(onednn_status(call, what, err))

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

/* [groups,] out, in, kernel… of any format: writes dims, returns how many. */
int onednn_weight_dims(const struct onednn_conv *conv, int64_t *dims);

#endif
