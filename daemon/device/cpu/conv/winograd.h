/* 3x3 stride 1 convolutions on the blocked layout by Winograd's F(2x2) and F(4x4). */
#ifndef DEVICE_CPU_WINOGRAD_H
#define DEVICE_CPU_WINOGRAD_H

#include "device/cpu/conv/conv_step.h"

enum winograd_order {
    WINOGRAD_TILES, /* each member takes tile blocks that fit its L2; all outputs of one block */
    WINOGRAD_POINTS /* one big tile block, shared; points outermost: every weight is read once */
};

struct winograd {
    int m, points; /* output tile edge; (m + 2)² */
    enum winograd_order order;
    int64_t images, in_channels, out_channels;
    int64_t h, w, out_h, out_w, pad_top, pad_left;
    int64_t in_blocks, out_blocks;            /* of channels */
    int64_t panels;                           /* of two output blocks */
    int64_t x_image, y_image, residual_image; /* floats from one image to the next */
    int64_t tiles_across, tiles_down, tiles;  /* tiles: of all images */
    int64_t block_tiles, blocks;              /* tiles at a time */
    int64_t stride;   /* floats from one channel block to the next in the scratch */
    unsigned members; /* at most */
    struct epilogue epilogue;
};

/* The same channel in of some kernels, to be transformed: G k G'. */
enum { WINOGRAD_EDGE = 6 }; /* of a transformed tile, at most */
struct winograd_weights {
    double g[WINOGRAD_EDGE][3];
    int edge; /* of a transformed tile */
    const float *kernels;
    int64_t step, count; /* floats from a kernel to the next; kernels, at most `vector` */
    float *to;           /* point i of all of them begins at to + i * stride */
    int64_t stride;
};

struct winograd_ops {
    int64_t vector; /* channels a block */
    int64_t rows;   /* tiles of the micro-kernel */
    /* One member's part; the others run the same at the same time. */
    conv_member_fn run;
    void (*transform)(const struct winograd_weights *job);
};

#endif
