/* What the kernels of Resize share: tables of source indices and weights for each axis. */
#ifndef DEVICE_CPU_RESIZE_INTERNAL_H
#define DEVICE_CPU_RESIZE_INTERNAL_H

#include "device/cpu/cpu.h"
#include "ops/indexing.h"

enum { OUTSIDE = -1 }; /* an index: beyond the crop */

struct resize_taps {
    int64_t in, out;
    int64_t stride; /* of the source, elements */
    unsigned taps;
    bool same; /* out[i] is in[i] */
    const int32_t *index;
    const float *weight; /* nearest has none */
};

struct resize_state {
    size_t outer; /* axes before the row */
    struct resize_taps axes[SHAPE_MAX_RANK + 1];
    int64_t rows;           /* of the output */
    int64_t image_rows;     /* of them that lie behind each other: an image's */
    int64_t image_elements; /* from there to the next image's */
    int64_t inner;          /* elements behind the row axis */
    size_t bytes;           /* of an element */
    bool doubles_row;       /* nearest: exactly twice as long */
    uint64_t extrapolation; /* the value in the type's bytes */
    int32_t *table;
    float *weights;
};

struct loops;

struct resize_job {
    const struct resize_state *state;
    const struct kernel_run *run;
    char *scratch;
    size_t scratch_each;
    enum dtype dtype;
    const struct loops *loops; /* of floats */
};

enum resize_mode resize_mode_of(const struct kernel_call *call);
/* NULL, or why no kernel takes the call. */
const char *resize_refuse(const struct kernel_call *call);
/* Fills the tables.  The state is the prepare's, and goes with resize_release(). */
MUST_CHECK enum status resize_prepare(struct kernel_prepare *prepare,
                                      struct resize_state **out_state, struct error *err);
void resize_release(void *state);

/* The source row of output row `row`, as an offset in elements; OUTSIDE when there is none.  Tap
 * numbers of the outer axes come out of `combination`; *weight is multiplied by theirs. */
int64_t resize_source_row(const struct resize_state *state, int64_t row, unsigned combination,
                          float *weight);
/* Where output row `row` begins. */
char *resize_row_out(const struct resize_state *state, void *out, int64_t row);
bool resize_has_outside(const struct resize_taps *row);
/* `elements` of the extrapolation value. */
void resize_fill_outside(const struct resize_state *state, char *to, int64_t elements);

#endif
