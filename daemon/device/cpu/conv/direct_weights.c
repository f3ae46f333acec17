/* Panels of weights: which channels each needs, where its weights lie, and how they get there. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/conv/direct.h"
#include "ops/mix_channels.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* ---- panels ---- */

/* Percent of the time of half a panel of two that a block takes as a panel of its own: more loads a
 * product, and with AVX2 fewer sums than multiply-adds are under way. */
enum { ALONE_TAKES = 115, ALONE_TAKES_AVX2 = 145 };

/* The input channels that the outputs of some blocks are sums of, in steps of one tap. */
struct extent {
    int64_t from, steps;
};

static struct extent find_extent(const struct direct *p, int64_t block, int64_t blocks)
{
    const int64_t in = p->in_channels / p->groups, out = p->out_channels / p->groups;
    const int64_t first = block * p->vector, end = first + blocks * p->vector;
    const int64_t last = (end < p->out_channels ? end : p->out_channels) - 1;
    const int64_t from = first / out * in / p->channels;

    return (struct extent){from, ceil_div((last / out + 1) * in, p->channels) - from};
}

/* How many blocks the panel that begins with this one has.  Two that meet other groups, and would
 * multiply the channels of each by zeros for the other's, are panels of their own. */
static int64_t panel_blocks(const struct direct *p, int64_t first)
{
    const int64_t takes = p->vector == 16 ? ALONE_TAKES : ALONE_TAKES_AVX2;

    if (p->out_blocks - first < DIRECT_PANEL_BLOCKS)
        return 1;
    return 100 * DIRECT_PANEL_BLOCKS * find_extent(p, first, DIRECT_PANEL_BLOCKS).steps <=
                   takes * (find_extent(p, first, 1).steps + find_extent(p, first + 1, 1).steps)
               ? DIRECT_PANEL_BLOCKS
               : 1;
}

int64_t direct_weight_floats(const struct direct *p)
{
    int64_t floats = 0;

    for (int64_t first = 0, blocks; first < p->out_blocks; first += blocks) {
        blocks = panel_blocks(p, first);
        floats += find_extent(p, first, blocks).steps * blocks;
    }
    return floats * p->taps * p->channels * p->vector;
}

/* Short steps where some channels of long ones would often be of groups that nobody asked for. */
void direct_choose_channels(struct direct *p)
{
    int64_t floats;

    p->channels = p->thin ? 1 : DIRECT_CHANNELS;
    p->scattered = p->x_shuffle != 0;
    if (p->scattered) {
        p->channels = DIRECT_SCATTERED;
    } else if (p->groups > 1) {
        floats = direct_weight_floats(p);
        p->channels = DIRECT_SCATTERED;
        p->scattered = 10 * direct_weight_floats(p) <= 9 * floats;
        if (!p->scattered)
            p->channels = DIRECT_CHANNELS;
    }
    p->panels = 0;
    for (int64_t first = 0; first < p->out_blocks; first += panel_blocks(p, first))
        p->panels++;
}

int64_t direct_set_panels(const struct direct *p, int64_t steps, int64_t chunk, int64_t before,
                          struct direct_panel *panels)
{
    const int64_t taps = steps / ceil_div(p->in_channels, p->channels);
    int64_t floats = before;

    for (int64_t first = 0; first < p->out_blocks; first += panels++->blocks) {
        const int64_t blocks = panel_blocks(p, first);
        const struct extent extent = find_extent(p, first, blocks);
        const int64_t count = extent.steps * taps;

        *panels = (struct direct_panel){.first = first,
                                        .blocks = blocks,
                                        .from = extent.from * taps,
                                        .steps = count,
                                        .chunks = count > 0 ? ceil_div(count, chunk) : 1,
                                        .weights = floats};
        floats += count * p->channels * blocks * p->vector;
    }
    return floats - before;
}

/* ---- packing ---- */

static bool is_met(const struct direct *p, int64_t i, int64_t j)
{
    return !p->spread ||
           (i >= p->met[0].from && i < p->met[0].end && j >= p->met[1].from && j < p->met[1].end);
}

/* The taps of a phase by their numbers in the kernel; returns how many they are. */
static int64_t list_taps(const struct direct *p, const struct direct_phase *phase, int64_t *numbers)
{
    const struct phases_form *form = &p->form;
    const struct window *w = &form->geometry.window;
    const struct phases_axis axes[2] = {phases_axis(form, 0), phases_axis(form, 1)};
    int64_t count = 0, ignored;

    for (int64_t i = 0; i < w->kernel[0]; i++)
        for (int64_t j = 0; j < w->kernel[1]; j++)
            if (phases_meet(form, axes, 0, phase->place[0], i, &ignored) &&
                phases_meet(form, axes, 1, phase->place[1], j, &ignored) && is_met(p, i, j))
                numbers[count++] = i * w->kernel[1] + j;
    return count;
}

/* One channel pair's taps at their place in a panel: [channels of a step][tap][channel][output], or
 * [tap][channels of a step]… when they spread.  `c` and `o` count from the first channel and output
 * of the panel. */
static void pack_taps(const struct direct *p, int64_t width, int64_t o, int64_t c,
                      const float *taps, const int64_t *numbers, int64_t count, float *packed)
{
    const int64_t channels = p->channels, group = c / channels;
    const int64_t first = p->spread ? group : group * count;
    const int64_t apart = p->spread ? direct_tap_steps(p) : 1;

    packed += o;
    for (int64_t i = 0; i < count; i++)
        packed[((first + i * apart) * channels + c % channels) * width] = taps[numbers[i]];
}

static void pack_panel(const struct direct *p, const struct phases_form *form,
                       const struct direct_panel *panel, const float *kernels,
                       const int64_t *numbers, int64_t count, float *packed)
{
    const int64_t in = p->in_channels / p->groups, out = p->out_channels / p->groups;
    const int64_t first = panel->first * p->vector, width = panel->blocks * p->vector;
    const int64_t end = first + width < p->out_channels ? first + width : p->out_channels;
    const int64_t before = count > 0 ? panel->from / count * p->channels : 0;
    const int64_t all = form->geometry.window.kernel[0] * form->geometry.window.kernel[1];

    for (int64_t o = first; o < end; o++)
        for (int64_t i = 0; i < in; i++) {
            const int64_t c = o / out * in + i; /* a transposed one has no groups */
            const int64_t number = p->filter_shuffle != 0
                                       ? shuffled_channel(o, p->out_channels, p->filter_shuffle)
                                       : o;
            const int64_t filter = form->transposed ? c * p->out_channels + o : number * in + i;

            pack_taps(p, width, o - first, c - before, kernels + filter * all, numbers, count,
                      packed + panel->weights);
        }
}

enum status direct_pack(const void *plan, const float *weights, float *packed)
{
    const struct direct *p = plan;
    int64_t *numbers = calloc((size_t)p->taps, sizeof(*numbers));

    if (numbers == NULL)
        return STATUS_NO_MEMORY;
    memset(packed, 0, (size_t)direct_weight_floats(p) * sizeof(float));
    for (int64_t k = 0; k < p->phase_count; k++) {
        const int64_t count = list_taps(p, &p->phases[k], numbers);

        for (int64_t i = 0; i < p->panels; i++)
            pack_panel(p, &p->form, &p->phases[k].panels[i], weights, numbers, count, packed);
    }
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
