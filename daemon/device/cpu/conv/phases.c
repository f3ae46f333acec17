#include "device/cpu/conv/phases.h"

#include <inttypes.h>
#include <stdio.h>

bool phases_resolve(const struct kernel_call *call, struct phases_form *out_form)
{
    const struct shape *x = &call->in[CONV_X]->shape, *w = &call->in[CONV_W]->shape;
    struct phases_form form = {.transposed = call->op == &op_conv_transpose};
    enum status status;

    if (form.transposed) {
        form.epilogue = ((const struct conv_transpose_attrs *)call->attrs)->epilogue;
        status = conv_transpose_resolve(call->attrs, x, w, &form.geometry, NULL);
    } else {
        form.epilogue = ((const struct conv_attrs *)call->attrs)->epilogue;
        status = conv_resolve(call->attrs, x, w, &form.geometry, NULL);
    }
    if (status != STATUS_OK)
        return false;
    window_turn_narrow(&form.geometry.window);
    window_widen(&form.geometry.window, 2);
    *out_form = form;
    return form.geometry.window.spatial == 2;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

/* The same from cell 0 on. */
static bool meets(const struct phases_form *form, size_t axis, int64_t first, int64_t k,
                  int64_t *out_cell)
{
    const struct window *w = &form->geometry.window;
    const int64_t at = first + w->pad_begin[axis] - k * w->dilation[axis];

    if (!form->transposed) { /* `first` is 0 */
        *out_cell = -at;
        return true;
    }
    *out_cell = floor_div(at, w->stride[axis]);
    return *out_cell * w->stride[axis] == at;
}

struct phases_axis phases_axis(const struct phases_form *form, size_t axis)
{
    const struct window *w = &form->geometry.window;
    struct phases_axis result = {.in = w->in[axis],
                                 .out = w->out[axis],
                                 .phases = form->transposed ? w->stride[axis] : 1,
                                 .step = form->transposed ? 1 : w->stride[axis],
                                 .base = INT64_MAX};
    int64_t last = INT64_MIN, cell;

    for (int64_t first = 0; first < result.phases; first++)
        for (int64_t k = 0; k < w->kernel[axis]; k++)
            if (meets(form, axis, first, k, &cell)) {
                result.base = cell < result.base ? cell : result.base;
                last = cell > last ? cell : last;
            }
    result.reach = last - result.base;
    return result;
}

bool phases_meet(const struct phases_form *form, const struct phases_axis *axes, size_t axis,
                 int64_t first, int64_t k, int64_t *out_cell)
{
    const bool there = meets(form, axis, first, k, out_cell);

    *out_cell -= axes[axis].base;
    return there;
}

void phases_format(const struct phases_form *form, char text[PHASES_FORMAT_BYTES])
{
    const struct window *w = &form->geometry.window;

    text[0] = '\0';
    if (form->transposed)
        (void)snprintf(text, PHASES_FORMAT_BYTES,
                       " %" PRId64 "x%" PRId64 " behind %" PRId64 "+%" PRId64 " apart %" PRId64
                       "x%" PRId64,
                       w->stride[0], w->stride[1], w->pad_begin[0], w->pad_begin[1], w->dilation[0],
                       w->dilation[1]);
}
