/* Panels of weights: which channels each needs, where its weights lie, and how they get there. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/direct.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* The input channels that a panel's outputs are sums of, in steps, from a whole block on. */
struct extent {
    int64_t block, steps;
};

static struct extent find_extent(const struct direct *p, int64_t panel)
{
    const int64_t in = p->in_channels / p->groups, out = p->out_channels / p->groups;
    const int64_t width = DIRECT_PANEL_BLOCKS * p->vector, first = panel * width;
    const int64_t end = first + width;
    const int64_t last = (end < p->out_channels ? end : p->out_channels) - 1;
    const int64_t block = first / out * in / direct_pitch(p);
    const int64_t channels = (last / out + 1) * in - block * direct_pitch(p);

    return (struct extent){block, ceil_div(channels, direct_channels(p))};
}

/* Of a panel, by one channel in. */
static int64_t width_of(const struct direct *p, int64_t panel)
{
    const int64_t left = p->out_blocks - panel * DIRECT_PANEL_BLOCKS;

    return (left < DIRECT_PANEL_BLOCKS ? left : DIRECT_PANEL_BLOCKS) * p->vector;
}

int64_t direct_weight_floats(const struct direct *p)
{
    const int64_t taps = p->steps / ceil_div(p->in_channels, direct_channels(p));
    int64_t floats = 0;

    for (int64_t i = 0; i < p->panels; i++)
        floats += find_extent(p, i).steps * taps * direct_channels(p) * width_of(p, i);
    return floats;
}

int64_t direct_set_panels(const struct direct *p, int64_t steps, int64_t chunk, int64_t before,
                          struct direct_panel *panels)
{
    const int64_t taps = steps / ceil_div(p->in_channels, direct_channels(p));
    int64_t floats = before;

    for (int64_t i = 0; i < p->panels; i++) {
        const struct extent extent = find_extent(p, i);
        const int64_t count = extent.steps * taps;

        panels[i] = (struct direct_panel){.in_block = extent.block,
                                          .steps = count,
                                          .chunks = count > 0 ? ceil_div(count, chunk) : 1,
                                          .weights = floats};
        floats += count * direct_channels(p) * width_of(p, i);
    }
    return floats - before;
}

/* ---- packing ---- */

/* The taps of a phase by their numbers in the kernel; returns how many they are. */
static int64_t list_taps(const struct phases_form *form, const struct direct_phase *phase,
                         int64_t *numbers)
{
    const struct window *w = &form->geometry.window;
    const struct phases_axis axes[2] = {phases_axis(form, 0), phases_axis(form, 1)};
    int64_t count = 0, ignored;

    for (int64_t i = 0; i < w->kernel[0]; i++)
        for (int64_t j = 0; j < w->kernel[1]; j++)
            if (phases_meet(form, axes, 0, phase->place[0], i, &ignored) &&
                phases_meet(form, axes, 1, phase->place[1], j, &ignored))
                numbers[count++] = i * w->kernel[1] + j;
    return count;
}

/* One channel pair's taps at their place: [panel][channels of a step][tap][channel][out channel].
 */
static void pack_taps(const struct direct *p, const struct direct_phase *phase, int64_t o,
                      int64_t c, const float *taps, const int64_t *numbers, int64_t count,
                      float *packed)
{
    const int64_t channels = direct_channels(p), panel_width = DIRECT_PANEL_BLOCKS * p->vector;
    const int64_t index = o / panel_width, width = width_of(p, index);
    const struct direct_panel *panel = &phase->panels[index];

    c -= panel->in_block * direct_pitch(p);
    packed += panel->weights + o % panel_width;
    for (int64_t i = 0; i < count; i++)
        packed[((c / channels * count + i) * channels + c % channels) * width] = taps[numbers[i]];
}

static void pack_phase(const struct direct *p, const struct phases_form *form,
                       const struct direct_phase *phase, const float *kernels, int64_t *numbers,
                       float *packed)
{
    const int64_t taps = form->geometry.window.kernel[0] * form->geometry.window.kernel[1];
    const int64_t count = list_taps(form, phase, numbers);
    const int64_t in = p->in_channels / p->groups, out = p->out_channels / p->groups;

    for (int64_t o = 0; o < p->out_channels; o++)
        for (int64_t i = 0; i < in; i++) {
            const int64_t c = o / out * in + i; /* a transposed one has no groups */
            const int64_t filter = form->transposed ? c * p->out_channels + o : o * in + i;

            pack_taps(p, phase, o, c, kernels + filter * taps, numbers, count, packed);
        }
}

enum status direct_pack(const void *plan, const float *weights, float *packed)
{
    const struct direct *p = plan;
    const struct window *w = &p->form.geometry.window;
    int64_t *numbers = calloc((size_t)(w->kernel[0] * w->kernel[1]), sizeof(*numbers));

    if (numbers == NULL)
        return STATUS_NO_MEMORY;
    memset(packed, 0, (size_t)direct_weight_floats(p) * sizeof(float));
    for (int64_t k = 0; k < p->phase_count; k++)
        pack_phase(p, &p->form, &p->phases[k], weights, numbers, packed);
    free(numbers);
    return STATUS_OK;
}

/* ---- the prelude ---- */

static double element(const struct operand *operand, size_t i)
{
    float value;

    memcpy(&value, (const char *)operand->constant + i * sizeof(value), sizeof(value));
    return (double)value;
}

/* A prelude's factors, then its summands, each padded with zeros to whole blocks. */
static void fill_prelude(const struct kernel_call *call, size_t channels, size_t padded,
                         float *factors)
{
    const struct conv_attrs *attrs = call->attrs;
    const struct operand *const *in = call->in + CONV_PRELUDE; /* scale, B, mean, var */

    memset(factors, 0, 2 * padded * sizeof(float));
    for (size_t c = 0; c < channels; c++) {
        double factor =
            element(in[0], c) / sqrt(element(in[3], c) + (double)attrs->prelude_epsilon);

        factors[c] = (float)factor;
        factors[padded + c] = (float)(element(in[1], c) - element(in[2], c) * factor);
    }
}

enum status direct_share_prelude(struct kernel_prepare *prepare, struct direct *p)
{
    const struct operand *const *in = prepare->call.in + CONV_PRELUDE;
    const struct conv_attrs *attrs = prepare->call.attrs;
    const size_t channels = (size_t)p->in_channels;
    const size_t padded = (size_t)(p->in_blocks * p->vector);
    char format[128];
    void *factors;
    bool is_new;

    if (!p->prelude)
        return STATUS_OK;
    snprintf(format, sizeof(format), "prelude %p %p %p %a by %zu", in[1]->constant_key,
             in[2]->constant_key, in[3]->constant_key, (double)attrs->prelude_epsilon, padded);
    TRY(weights_share(prepare->weights, in[0]->constant_key, format, 2 * padded * sizeof(float),
                      &factors, &is_new));
    if (is_new)
        fill_prelude(&prepare->call, channels, padded, factors);
    p->scale = factors;
    p->shift = p->scale + padded;
    return STATUS_OK;
}
