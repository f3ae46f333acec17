/* Direct convolution with taps far apart (large dilations on small maps): which layers, and which
 * columns of taps meet which part of a line. */
#include "device/cpu/conv/direct.h"
#include "ops/conv_pool.h"

enum {
    SHORTEST = 4,  /* pixels that the micro-kernel needs to be at its best, about */
    WORTH_IT = 80, /* percent of the products with all taps everywhere, at most */
};

static int64_t count_of(struct direct_range range)
{
    return range.end - range.from;
}

static bool is_same(struct direct_range a, struct direct_range b)
{
    return a.from == b.from && a.end == b.end;
}

/* Taps over all places, and which of them are met anywhere; false: a place meets none. */
static bool count_taps(const struct direct *p, size_t axis, struct direct_range *out_met,
                       int64_t *out_taps)
{
    struct direct_range met = {p->kernel[axis], 0};

    *out_taps = 0;
    for (int64_t place = 0; place < p->out[axis]; place++) {
        const struct direct_range taps = direct_met_at(p, axis, place);

        if (count_of(taps) <= 0)
            return false;
        met.from = taps.from < met.from ? taps.from : met.from;
        met.end = taps.end > met.end ? taps.end : met.end;
        *out_taps += count_of(taps);
    }
    *out_met = met;
    return true;
}

/* The next stretch of a line from a place on. */
static struct direct_stretch stretch_from(const struct direct *p, int64_t from)
{
    struct direct_stretch stretch = {from, 1, direct_met_at(p, 1, from)};

    while (from + stretch.pixels < p->out[1] &&
           is_same(direct_met_at(p, 1, from + stretch.pixels), stretch.taps))
        stretch.pixels++;
    return stretch;
}

/* Between taps the sums wait in the result, where what is added last may lie. */
static bool can_spread(const struct kernel_call *call, const struct direct *p)
{
    return call->op != &op_conv_pool && !p->form.transposed && !p->thin && p->groups == 1 &&
           !p->prelude && p->x_shuffle == 0 && p->stride[0] == 1 && p->stride[1] == 1 &&
           !(p->epilogue.has_residual && p->epilogue.residual_after);
}

void direct_choose_spread(const struct kernel_call *call, struct direct *p)
{
    struct direct_range met[2];
    int64_t rows, columns, cost = 0, stretches = 0;

    if (!can_spread(call, p) || !count_taps(p, 0, &met[0], &rows) ||
        !count_taps(p, 1, &met[1], &columns))
        return;
    for (int64_t from = 0; from < p->out[1]; stretches++) {
        const struct direct_stretch stretch = stretch_from(p, from);

        cost += count_of(stretch.taps) * (stretch.pixels > SHORTEST ? stretch.pixels : SHORTEST);
        from += stretch.pixels;
    }
    if (100.0 * (double)rows * (double)cost >
        WORTH_IT * (double)(p->out[0] * p->kernel[0]) * (double)(p->out[1] * p->kernel[1]))
        return;
    p->spread = true;
    p->met[0] = met[0];
    p->met[1] = met[1];
    p->taps = count_of(met[0]) * count_of(met[1]);
    p->stretch_count = stretches;
}

void direct_set_stretches(const struct direct *p, struct direct_stretch *to)
{
    for (int64_t from = 0; from < p->out[1]; from += to++->pixels)
        *to = stretch_from(p, from);
}

int64_t direct_set_spread_offsets(const struct direct *p, int64_t *to)
{
    for (int64_t i = p->met[0].from; i < p->met[0].end; i++)
        for (int64_t j = p->met[1].from; j < p->met[1].end; j++)
            for (int64_t c = 0; c < p->in_channels; c += p->channels)
                *to++ = direct_offset_of(p, c) + (i * p->dilation[0] - p->pad[0]) * p->row +
                        (j * p->dilation[1] - p->pad[1]) * p->vector;
    return p->taps * direct_tap_steps(p);
}
