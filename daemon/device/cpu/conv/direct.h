/* Convolutions on the blocked layout by sums of products, tap by tap: 1x1 of any stride, what
 * Winograd does not take, and transposed ones, phase by phase (phases.h). */
#ifndef DEVICE_CPU_DIRECT_H
#define DEVICE_CPU_DIRECT_H

#include "device/cpu/conv/conv_step.h"
#include "device/cpu/conv/phases.h"
#include "device/cpu/conv/pool.h"

enum {
    DIRECT_CHANNELS = 8,    /* of a step: neighbours in a block */
    DIRECT_SCATTERED = 4,   /* … or each wherever it lies */
    DIRECT_PANEL_BLOCKS = 2 /* of outputs, that a panel of weights is for, at most */
};

/* What a panel of outputs is in a phase. */
struct direct_panel {
    int64_t first, blocks; /* of outputs */
    int64_t from, steps;   /* of the phase: those of the channels that it needs */
    int64_t chunks;        /* of steps; 1 when there are none */
    int64_t weights;       /* floats before its own */
};

struct direct_phase {
    int64_t place[2]; /* its first one in the result */
    int64_t chunk;    /* steps at a time */
    /* Floats from a pixel's place in the first block: one a step, or one for each of its channels
     * when they are scattered. */
    const int64_t *offsets;
    const struct direct_panel *panels;
};

struct direct_range { /* [from, end) */
    int64_t from, end;
};

/* Neighbours in a line that the same columns of taps meet. */
struct direct_stretch {
    int64_t from, pixels;
    struct direct_range taps;
};

struct direct {
    struct phases_form form;
    int64_t vector; /* channels a block */
    struct epilogue epilogue;
    /* The input.  Axes: down, across. */
    int64_t images, in_channels, in_blocks;
    int64_t groups;
    int64_t x_shuffle, filter_shuffle; /* as in struct conv_attrs */
    int64_t in[2], stride[2], dilation[2], kernel[2], pad[2];
    int64_t x_image; /* floats from one image to the next; like y_image and residual_image */
    bool thin;       /* plain input of few channels: each is a block of its own, of one channel */
    bool prelude;    /* x becomes max(low, x * scale + shift) when it is packed */
    float prelude_low;
    const float *scale, *shift; /* padded with zeros */
    /* The output: lines of pixels that lie behind each other, each a row or, when `flat`, an image.
     * Pixels are those of a phase: `apart` in the result, which is `size` large. */
    int64_t out[2], out_channels, out_blocks;
    int64_t size[2], apart[2];
    int64_t y_image, residual_image;
    int64_t y_block; /* floats from a block of channels to the next, where the sums go */
    bool flat;
    int64_t line, lines; /* pixels of a line; lines of all images */
    /* Tiles: so many pixels of all lines (flat), or so many lines, of one image or of whole ones.
     */
    int64_t tile, tiles;
    /* A pool behind it.  Tiles are rows of the pool's result then, of one image, and `size` is that
     * of what is pooled: a panel's part of it, as far as a tile needs it, lies in the scratch. */
    bool pools;
    struct pool_plane pool;
    const struct pool_ops *pool_ops;
    int64_t panels;
    bool by_panels; /* members share panels, not tiles */
    unsigned members;
    /* Packed input of a tile: [in block][row][phase of the stride][pixel].  Not packed: the input
     * as it lies. */
    bool packs;
    int64_t phase, row, block; /* floats from one to the next */
    int64_t rows_of_image;     /* of the packed rows of a tile */
    int64_t packed_floats;
    int64_t strips;   /* about how often the micro-kernel runs in a tile for a chunk */
    int64_t taps;     /* of the kernel; spread: those that are met */
    int64_t channels; /* of a step */
    bool scattered;   /* … each has an offset of its own */
    /* Taps so far apart that many meet only padding: each by itself, where it meets cells, from the
     * input as it lies.  Steps are sorted by taps then, and chunks end with their tap. */
    bool spread;
    struct direct_range met[2]; /* rows and columns of taps that meet a cell anywhere */
    int64_t stretch_count;
    const struct direct_stretch *stretches; /* of a line */
    int64_t phase_count;
    const struct direct_phase *phases;
    int64_t scratch_floats; /* of a member, or of all when by_panels; what is packed comes first */
};

struct direct_segment { /* pixels of one line, or of several that lie behind each other */
    const float *v;     /* in the first block of channels */
    int64_t at;         /* of the first one in a block of channels of y */
    int64_t image;
    int64_t pixels;
};

struct direct_ops {
    int64_t vector; /* channels a block */
    int64_t rows;   /* pixels of the micro-kernel */
    /* One member's part; the others run the same at the same time. */
    conv_member_fn run;
    /* Pixels of a 1x1 by themselves, all outputs of some panels. */
    void (*pixels)(const struct conv_run *run, const struct direct_segment *segment,
                   int64_t from_panel, int64_t to_panel);
};

/* A 1x1 that is part of another kernel's step, which has its pixels computed some at a time. */
struct direct_inner {
    int64_t pixels;  /* at a time, about */
    int64_t x_block; /* floats from one block of channels to the next; 0: as the input lies */
    int64_t y_block; /* … of the result; 0: as the output lies */
};
/* NULL: at the baseline. */
const struct direct_ops *direct_ops_for(enum cpu_isa isa);
/* Of a convolution that kernel_conv_direct does not refuse.  NULL: no memory.  To be freed. */
struct direct *direct_create_inner(const struct kernel_call *call,
                                   const struct direct_inner *inner);
/* Fills the step's weights and bias. */
MUST_CHECK enum status direct_share(struct kernel_prepare *prepare, const struct direct *plan,
                                    struct conv_step *step);

/* Lines that what lies under rows [from, to) of the pool's result reaches over: [*first, *end). */
static inline void direct_pooled_lines(const struct direct *p, int64_t from, int64_t to,
                                       int64_t *first, int64_t *end)
{
    const struct window *w = &p->pool.window;

    *first = from * w->stride[1] - w->pad_begin[1];
    *end = (to - 1) * w->stride[1] - w->pad_begin[1] + (w->kernel[1] - 1) * w->dilation[1] + 1;
    *first = *first > 0 ? *first : 0;
    *end = *end < p->out[0] ? *end : p->out[0];
}

/* Floats from a pixel to the next. */
static inline int64_t direct_pitch(const struct direct *p)
{
    return p->thin ? 1 : p->vector;
}

/* The taps along an axis that meet a cell at a place of the result (of stride 1). */
static inline struct direct_range direct_met_at(const struct direct *p, size_t axis, int64_t place)
{
    const int64_t d = p->dilation[axis], first = place - p->pad[axis], left = p->in[axis] - first;
    const int64_t from = first < 0 ? (d - 1 - first) / d : 0,
                  end = left > 0 ? (left + d - 1) / d : 0;

    return (struct direct_range){from, end < p->kernel[axis] ? end : p->kernel[axis]};
}

/* Steps of one tap. */
static inline int64_t direct_tap_steps(const struct direct *p)
{
    return (p->in_channels + p->channels - 1) / p->channels;
}

/* spread.c: decides whether a plan with axes spreads, and counts the taps and stretches. */
void direct_choose_spread(const struct kernel_call *call, struct direct *p);
void direct_set_stretches(const struct direct *p, struct direct_stretch *to);
/* Fills the offsets of all steps and returns how many they are. */
int64_t direct_set_spread_offsets(const struct direct *p, int64_t *to);

/* Where a channel of the input lies, in floats behind a pixel's first block; those that fill up the
 * last step have weights of zero. */
int64_t direct_offset_of(const struct direct *p, int64_t channel);

/* Sets the channels of a step and counts the panels. */
void direct_choose_channels(struct direct *p);
/* All packed weights, in floats. */
int64_t direct_weight_floats(const struct direct *p);
/* Fills the panels of a phase of `steps` steps, whose weights lie behind `before` floats; fewer
 * steps when they do not need all channels.  Returns how many floats their weights are. */
int64_t direct_set_panels(const struct direct *p, int64_t steps, int64_t chunk, int64_t before,
                          struct direct_panel *panels);
/* A conv_pack_fn over a struct direct. */
enum status direct_pack(const void *plan, const float *weights, float *packed);
/* Sets scale and shift of a plan with a prelude. */
MUST_CHECK enum status direct_share_prelude(struct kernel_prepare *prepare, struct direct *p);

#endif
