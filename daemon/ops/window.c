/* Attributes of sliding windows, checked and resolved.
 *
 * Every number is kept below 2^31, so that no later product of two overflows 64 bits. */
#include "ops/window.h"

#include <inttypes.h>
#include <string.h>

const char *const window_auto_pad_words[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", NULL};

enum { NUMBER_LIMIT = INT32_MAX };

static enum status read_list(const struct ints *list, const char *name, size_t count, int64_t least,
                             int64_t standard, int64_t *values, struct error *err)
{
    for (size_t i = 0; i < count; i++)
        values[i] = standard;
    if (list->values == NULL)
        return STATUS_OK;
    if (list->count != count)
        return error_set(err, STATUS_INVALID, "attribute %s has %zu numbers; %zu are needed", name,
                         list->count, count);
    for (size_t i = 0; i < count; i++) {
        if (list->values[i] < least || list->values[i] >= NUMBER_LIMIT)
            return error_set(err, STATUS_INVALID,
                             "attribute %s holds %" PRId64 "; %" PRId64 " or more is allowed", name,
                             list->values[i], least);
        values[i] = list->values[i];
    }
    return STATUS_OK;
}

static enum status read_spatial(const struct shape *shape, struct window *window, struct error *err)
{
    char text[SHAPE_TEXT_BYTES];

    if (shape->rank < 3 || shape->rank > 2 + WINDOW_MAX_RANK)
        return error_set(err, STATUS_UNSUPPORTED,
                         "input 0 has shape %s; 3 to 5 dimensions are supported",
                         shape_format(shape, text));
    window->spatial = shape->rank - 2;
    for (size_t i = 0; i < window->spatial; i++) {
        window->in[i] = shape->dims[2 + i];
        if (window->in[i] < 1 || window->in[i] >= NUMBER_LIMIT)
            return error_set(err, STATUS_UNSUPPORTED,
                             "input 0 has shape %s; spatial dimensions from 1 are supported",
                             shape_format(shape, text));
    }
    return STATUS_OK;
}

static enum status read_kernel(const struct window_attrs *attrs, const int64_t *kernel,
                               struct window *window, struct error *err)
{
    if (attrs->kernel_shape.values == NULL && kernel == NULL)
        return error_set(err, STATUS_INVALID, "attribute kernel_shape is missing");
    TRY(read_list(&attrs->kernel_shape, "kernel_shape", window->spatial, 1, 1, window->kernel,
                  err));
    for (size_t i = 0; i < window->spatial && kernel != NULL; i++) {
        if (attrs->kernel_shape.values != NULL && kernel[i] != window->kernel[i])
            return error_set(err, STATUS_INVALID,
                             "attribute kernel_shape says %" PRId64
                             " where the weight has %" PRId64,
                             window->kernel[i], kernel[i]);
        if (kernel[i] < 1 || kernel[i] >= NUMBER_LIMIT)
            return error_set(err, STATUS_INVALID,
                             "the weight's kernel size %" PRId64 " is not allowed", kernel[i]);
        window->kernel[i] = kernel[i];
    }
    return STATUS_OK;
}

static enum status read_window(const struct window_attrs *attrs, const struct shape *shape,
                               const int64_t *kernel, struct window *window, struct error *err)
{
    int64_t pads[2 * WINDOW_MAX_RANK];
    size_t spatial;

    TRY(read_spatial(shape, window, err));
    spatial = window->spatial;
    TRY(read_kernel(attrs, kernel, window, err));
    TRY(read_list(&attrs->strides, "strides", spatial, 1, 1, window->stride, err));
    TRY(read_list(&attrs->dilations, "dilations", spatial, 1, 1, window->dilation, err));
    TRY(read_list(&attrs->pads, "pads", 2 * spatial, 0, 0, pads, err));
    for (size_t i = 0; i < spatial; i++) {
        window->pad_begin[i] = attrs->auto_pad == AUTO_PAD_NOTSET ? pads[i] : 0;
        window->pad_end[i] = attrs->auto_pad == AUTO_PAD_NOTSET ? pads[spatial + i] : 0;
    }
    return STATUS_OK;
}

static int64_t reach(const struct window *window, size_t i) /* cells from first to last tap */
{
    return (window->kernel[i] - 1) * window->dilation[i] + 1;
}

/* Windows that would be "padded" by less than -1 cell: ONNX's formula of pad_shape cuts cells off
 * in front, the words beside it, its shape inference and TensorFlow pad with nothing, ONNX Runtime
 * does the one or fails.  -1 comes off the end and changes nothing. */
static enum status refuse_apart(int64_t total, size_t i, struct error *err)
{
    return total >= -1
               ? STATUS_OK
               : error_set(err, STATUS_UNSUPPORTED,
                           "auto_pad leaves open where the windows of spatial dimension %zu "
                           "begin: they lie apart, and its padding would be %" PRId64,
                           i, total);
}

static void split_padding(int auto_pad, int64_t total, int64_t *begin, int64_t *end)
{
    int64_t small = total / 2;

    *begin = auto_pad == AUTO_PAD_SAME_LOWER ? total - small : small;
    *end = total - *begin;
}

static enum status resolve_axis(const struct window_attrs *attrs, bool ceil_mode, size_t i,
                                struct window *window, struct error *err)
{
    int64_t in = window->in[i], stride = window->stride[i], span;

    if (attrs->auto_pad == AUTO_PAD_SAME_UPPER || attrs->auto_pad == AUTO_PAD_SAME_LOWER) {
        int64_t total;

        window->out[i] = (in + stride - 1) / stride;
        total = (window->out[i] - 1) * stride + reach(window, i) - in;
        TRY(refuse_apart(total, i, err));
        split_padding(attrs->auto_pad, total > 0 ? total : 0, &window->pad_begin[i],
                      &window->pad_end[i]);
        return STATUS_OK;
    }
    span = in + window->pad_begin[i] + window->pad_end[i] - reach(window, i);
    if (span < 0)
        return error_set(err, STATUS_INVALID,
                         "the window of %" PRId64 " cells does not fit into %" PRId64
                         " of spatial dimension %zu",
                         reach(window, i), in + window->pad_begin[i] + window->pad_end[i], i);
    window->out[i] = (ceil_mode ? (span + stride - 1) / stride : span / stride) + 1;
    /* A window that would start in the padding behind the end is left out. */
    if (ceil_mode && (window->out[i] - 1) * stride >= in + window->pad_begin[i])
        window->out[i]--;
    return STATUS_OK;
}

enum status window_resolve(const struct window_attrs *attrs, const struct shape *shape,
                           const int64_t *kernel, bool ceil_mode, struct window *out_window,
                           struct error *err)
{
    struct window window = {0};

    TRY(read_window(attrs, shape, kernel, &window, err));
    for (size_t i = 0; i < window.spatial; i++)
        TRY(resolve_axis(attrs, ceil_mode, i, &window, err));
    *out_window = window;
    return STATUS_OK;
}

static enum status resolve_transposed_axis(const struct window_attrs *attrs, int64_t extra,
                                           const int64_t *wanted, size_t i, struct window *window,
                                           struct error *err)
{
    int64_t full = window->stride[i] * (window->in[i] - 1) + extra + reach(window, i);
    bool same = attrs->auto_pad == AUTO_PAD_SAME_UPPER || attrs->auto_pad == AUTO_PAD_SAME_LOWER;

    if (wanted != NULL || same) {
        int64_t out = wanted != NULL ? *wanted : window->in[i] * window->stride[i];

        if (wanted == NULL && full < out)
            return error_set(err, STATUS_UNSUPPORTED,
                             "auto_pad leaves open where %" PRId64
                             " cells of windows lie in %" PRId64 " of spatial dimension %zu",
                             full, out, i);
        /* ONNX: the smaller half goes first for SAME_UPPER, last for everything else */
        split_padding(attrs->auto_pad == AUTO_PAD_SAME_UPPER ? AUTO_PAD_SAME_UPPER
                                                             : AUTO_PAD_SAME_LOWER,
                      full > out ? full - out : 0, &window->pad_begin[i], &window->pad_end[i]);
        window->out[i] = out; /* cells that no window reaches hold the bias alone */
        return STATUS_OK;
    }
    window->out[i] = full - window->pad_begin[i] - window->pad_end[i];
    if (window->out[i] < 1)
        return error_set(err, STATUS_INVALID, "the padding leaves no output in dimension %zu", i);
    return STATUS_OK;
}

enum status window_resolve_transposed(const struct window_attrs *attrs, const struct shape *shape,
                                      const int64_t *kernel, const struct ints *output_padding,
                                      const struct ints *output_shape, struct window *out_window,
                                      struct error *err)
{
    struct window window = {0};
    int64_t extra[WINDOW_MAX_RANK], wanted[WINDOW_MAX_RANK];

    TRY(read_window(attrs, shape, kernel, &window, err));
    TRY(read_list(output_padding, "output_padding", window.spatial, 0, 0, extra, err));
    TRY(read_list(output_shape, "output_shape", window.spatial, 1, 1, wanted, err));
    for (size_t i = 0; i < window.spatial; i++)
        TRY(resolve_transposed_axis(
            attrs, extra[i], output_shape->values != NULL ? &wanted[i] : NULL, i, &window, err));
    *out_window = window;
    return STATUS_OK;
}

static bool last_is_narrow(const struct window *window)
{
    const size_t last = window->spatial - 1;

    return window->in[last] == 1 && window->out[last] == 1 && window->kernel[last] == 1 &&
           window->pad_begin[last] == 0;
}

static void turn(int64_t *list, size_t count)
{
    const int64_t last = list[count - 1];

    memmove(list + 1, list, (count - 1) * sizeof(*list));
    list[0] = last;
}

void window_turn_narrow(struct window *window)
{
    for (size_t i = 1; i < window->spatial && last_is_narrow(window); i++) {
        turn(window->in, window->spatial);
        turn(window->out, window->spatial);
        turn(window->kernel, window->spatial);
        turn(window->stride, window->spatial);
        turn(window->dilation, window->spatial);
        turn(window->pad_begin, window->spatial);
        turn(window->pad_end, window->spatial);
    }
}

void window_widen(struct window *w, size_t spatial)
{
    const size_t missing = w->spatial < spatial ? spatial - w->spatial : 0;
    int64_t *const lists[] = {w->in,       w->out,       w->kernel, w->stride,
                              w->dilation, w->pad_begin, w->pad_end};

    for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++) {
        memmove(lists[k] + missing, lists[k], w->spatial * sizeof(int64_t));
        for (size_t i = 0; i < missing; i++)
            lists[k][i] = lists[k] == w->pad_begin || lists[k] == w->pad_end ? 0 : 1;
    }
    w->spatial += missing;
}
