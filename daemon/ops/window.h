/* Sliding windows: what convolutions and pools share, from attributes to numbers. */
#ifndef OPS_WINDOW_H
#define OPS_WINDOW_H

#include "ops/op.h"

enum { WINDOW_MAX_RANK = 3 }; /* spatial dimensions */
enum auto_pad { AUTO_PAD_NOTSET, AUTO_PAD_SAME_UPPER, AUTO_PAD_SAME_LOWER, AUTO_PAD_VALID };

/* As the model gives them; a missing list means ones (pads: zeros). */
struct window_attrs {
    int auto_pad; /* enum auto_pad */
    struct ints dilations;
    struct ints kernel_shape;
    struct ints pads;
    struct ints strides;
};

extern const char *const window_auto_pad_words[];
/* Rows for an attribute struct that has its window_attrs in `window`. */
#define WINDOW_ATTRS_NO_DILATIONS(type)                                                            \
    {ATTR_ENUM, "auto_pad", offsetof(type, window.auto_pad), .words = window_auto_pad_words},      \
        {ATTR_INTS, "kernel_shape", offsetof(type, window.kernel_shape)},                          \
        {ATTR_INTS, "pads", offsetof(type, window.pads)},                                          \
    {                                                                                              \
        ATTR_INTS, "strides", offsetof(type, window.strides)                                       \
    }
#define WINDOW_ATTRS(type)                                                                         \
    WINDOW_ATTRS_NO_DILATIONS(type),                                                               \
    {                                                                                              \
        ATTR_INTS, "dilations", offsetof(type, window.dilations)                                   \
    }

/* Resolved for one input shape. */
struct window {
    size_t spatial; /* 1 to WINDOW_MAX_RANK */
    int64_t in[WINDOW_MAX_RANK];
    int64_t out[WINDOW_MAX_RANK];
    int64_t kernel[WINDOW_MAX_RANK];
    int64_t stride[WINDOW_MAX_RANK];
    int64_t dilation[WINDOW_MAX_RANK]; /* 1: none */
    int64_t pad_begin[WINDOW_MAX_RANK];
    int64_t pad_end[WINDOW_MAX_RANK]; /* as given; with ceil_mode a window may reach beyond it */
};

/* `shape` is [N, C, spatial…]; `kernel` (one per spatial dimension, of a weight) may be NULL when
 * the attributes name it. */
MUST_CHECK enum status window_resolve(const struct window_attrs *attrs, const struct shape *shape,
                                      const int64_t *kernel, bool ceil_mode,
                                      struct window *out_window, struct error *err);
/* The same for a transposed convolution; output_padding and output_shape as the model gives them.
 */
MUST_CHECK enum status window_resolve_transposed(const struct window_attrs *attrs,
                                                 const struct shape *shape, const int64_t *kernel,
                                                 const struct ints *output_padding,
                                                 const struct ints *output_shape,
                                                 struct window *out_window, struct error *err);

/* Moves trailing dimensions of one cell (in, out and kernel, no padding before) to the front: the
 * same windows over the same addresses, and rows of more than one cell for kernels that go along
 * them. */
void window_turn_narrow(struct window *window);

/* Leading dimensions of size 1, until there are `spatial`: one loop serves all ranks up to it. */
void window_widen(struct window *window, size_t spatial);

#endif
