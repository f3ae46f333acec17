/* oneDNN behind a few calls of our own: the only header that others see (version 2.6).
 *
 * A convolution is created when a plan is prepared and shared by all lanes; each lane has memory
 * objects of its own in it, so that a run allocates nothing of ours.  Scratch is the caller's.
 *
 * Channels in LAYOUT_BLOCKED are declared padded to the block, never as a oneDNN padding area: the
 * library would write zeros there each time an address is set.
 */
#ifndef DEVICE_CPU_ONEDNN_H
#define DEVICE_CPU_ONEDNN_H

#include "device/cpu/cpu.h"
#include "ops/conv.h"

/* Before anything else here: caps the instruction set.  Later calls change nothing.  The library
 * itself is loaded when the first convolution is created. */
void onednn_open(enum cpu_isa isa);

struct onednn_conv_spec {
    struct conv_geometry geometry;
    bool transposed; /* weights [C, M/group, …] of a transposed convolution */
    enum layout x_layout;
    enum layout y_layout;
    unsigned block;
    enum cpu_isa isa;
    bool has_bias;
    struct epilogue epilogue;
    unsigned lanes;
    unsigned threads; /* of a lane */
};

struct onednn_conv;

/* Whether the library has more than reference code for it, in batches of any size (1 and 8 are
 * asked for).  Nothing is generated; an answer is kept for the next who asks. */
bool onednn_conv_is_possible(const struct onednn_conv_spec *spec);
/* STATUS_UNSUPPORTED: the library has no such convolution, or only reference code for it. */
MUST_CHECK enum status onednn_conv_create(const struct onednn_conv_spec *spec,
                                          struct onednn_conv **out_conv, struct error *err);
void onednn_conv_destroy(struct onednn_conv *conv); /* NULL is fine */

/* The packed form of the weights: how it is called, its size, and how to make it. */
const char *onednn_conv_format(const struct onednn_conv *conv);
size_t onednn_conv_packed_bytes(const struct onednn_conv *conv);
MUST_CHECK enum status onednn_conv_pack(const struct onednn_conv *conv, const void *weights,
                                        void *packed);
size_t onednn_conv_bias_count(const struct onednn_conv *conv); /* floats, padding included */
size_t onednn_conv_scratch_bytes(const struct onednn_conv *conv);
/* The most that a convolution takes of the host's memory, generated code included: the library
 * tells nobody, so it is what was measured with oneDNN 2.6.3, and what its test measures: from 34
 * KiB (depthwise) to 48 KiB (7x7) with AVX2, from 36 to 86 KiB with AVX-512. */
size_t onednn_conv_host_bytes(void);
const char *onednn_conv_name(const struct onednn_conv *conv); /* "jit:avx512_core" */

struct onednn_conv_run {
    unsigned lane;
    const void *x, *packed, *bias;
    const void *residual; /* NULL: none; best y itself */
    void *y;
    void *scratch;
};
MUST_CHECK enum status onednn_conv_run(const struct onednn_conv *conv,
                                       const struct onednn_conv_run *run);

#endif
