/* Products of bytes: C = (A - its zero point) (B - its zero points), exact in 32 bits.
 *
 * B is packed once.  A is a list of rows, each the address of its first element and the same for
 * all: `segments` runs of `length` elements at `offsets` bytes from it.  So a plain matrix, and the
 * windows of a convolution in an image with its channels last, are rows without being gathered.
 *
 * Pairs: 16-bit differences, two steps of k an instruction, on every machine.  Quads: the bytes
 * themselves, unsigned times signed, four steps at a time (VNNI).  Split quads: the same without
 * VNNI, where products of two steps meet in 16 bits that saturate.  Where two of B's bytes could
 * come to more, half of each goes into another quad, which is multiplied after the others; there is
 * a list of those for each vector of columns.
 *
 * In quads signed A and unsigned B are shifted by 128, their zero points with them.  With a, b the
 * shifted bytes, za and zb[j] the shifted zero points:
 *
 *     sum (a - za)(b - zb[j]) = sum a b - zb[j] sum a - za (sum b - k zb[j])
 *
 * The last term is known before the product and joins the bias in `start`; the middle one is there
 * only where B has zero points of its own.  All of it is exact modulo 2^32. */
#ifndef DEVICE_CPU_INT_GEMM_H
#define DEVICE_CPU_INT_GEMM_H

#include <stddef.h>
#include <stdint.h>

#include "device/cpu/cpu.h"
#include "device/cpu/loops.h"

/* B [segments x length][n]: step i of column j at (steps != NULL ? steps[i] : i * row_stride) +
 * j * column_stride elements. */
struct int_matrix {
    enum dtype dtype; /* INT8 or UINT8 */
    const void *data;
    const int64_t *steps;
    int64_t row_stride, column_stride;
    const void *zero; /* one number or one for each column, of the same type; NULL: zero */
    bool zero_per_column;
};

struct int_shape {
    int64_t segments, length, n;
};

/* What becomes of the sums. */
enum int_result {
    INT_SUMS,  /* int32 */
    INT_BYTES, /* saturate(round(sum * scale[j]) + zero) */
    INT_FLOATS /* sum * scale[j] + shift[j], rounded twice */
};

struct int_product {
    struct int_shape shape;
    const void *packed;
    int64_t rows;
    const char *const *row; /* addresses of elements */
    const int64_t *offsets; /* of the segments, bytes; all segments are in memory to whole steps */
    /* Columns [from, to) of n; `from` is a multiple of the form's panel. */
    int64_t from, to;
    const int32_t *start;    /* [n] to whole panels: what sums begin with, see begin() */
    const int32_t *row_sums; /* of A's elements; NULL: B has no zero points */
    enum int_result result;
    void *out; /* row 0, column 0 */
    int64_t ldo;
    const float *scale; /* [n] to whole panels */
    const float *shift; /* INT_FLOATS: the same; NULL: none is added */
    struct byte_range range;
};

struct int_gemm_ops {
    const char *form; /* for formats and notes: "pairs", "quads", "split quads" */
    int64_t panel;    /* columns packed together */
    int64_t step;     /* elements of k an instruction takes; segments are padded to it */
    size_t element_bytes;
    int64_t list; /* split quads: columns that share a list of second halves; else 0 */
    void (*run)(const struct int_product *product);
};

/* The best table for what the machine can do, up to `isa`. */
const struct int_gemm_ops *int_gemm_ops_for(enum cpu_isa isa);
/* Weights of a convolution [out][in][taps]. */
struct int_filters {
    enum dtype dtype; /* INT8 or UINT8 */
    const void *data;
    int64_t out, in, taps;
};
/* Whether split quads would multiply more than 30 % of the quads twice. */
bool int_splits_too_often(const struct int_filters *filters);
/* The best table for them: pairs instead of split quads that split too often (pairs take 1.3 to
 * 1.4 of the time of quads that are not split). */
const struct int_gemm_ops *int_gemm_ops_for_filters(enum cpu_isa isa,
                                                    const struct int_filters *filters);
/* All that this machine can run, for tests; NULL at the end. */
const struct int_gemm_ops *const *int_gemm_tables(void);

size_t int_packed_bytes(const struct int_gemm_ops *ops, const struct int_shape *shape);
void int_pack(const struct int_gemm_ops *ops, const struct int_shape *shape,
              const struct int_matrix *b, void *packed);
/* Whether sums of A's rows are needed. */
bool int_has_zeros(const struct int_gemm_ops *ops, const struct int_shape *shape,
                   const void *packed);

static inline int64_t int_round_up(int64_t count, int64_t unit)
{
    return (count + unit - 1) / unit * unit;
}
/* Second halves of some columns: where they belong, and as many quads of all columns behind the
 * room for the most of them. */
struct int_halves {
    int64_t count;
    struct int_half {
        int32_t segment, quad; /* of the segment */
    } at[];
};
static inline size_t int_halves_bytes(int64_t list, int64_t quads)
{
    return sizeof(struct int_halves) + (size_t)quads * (sizeof(struct int_half) + (size_t)list * 4);
}

/* Columns to whole panels. */
static inline int64_t int_columns(const struct int_gemm_ops *ops, int64_t n)
{
    return int_round_up(n, ops->panel);
}
/* Bytes of a segment of A to whole steps. */
static inline size_t int_segment_bytes(const struct int_gemm_ops *ops, int64_t length)
{
    return (size_t)int_round_up(length, ops->step) * ops->element_bytes;
}

/* start[j] = bias[j] - what A's zero point takes away, for all columns; bias may be NULL. */
void int_begin(const struct int_gemm_ops *ops, const struct int_shape *shape, const void *packed,
               enum dtype a, int32_t a_zero, const int32_t *bias, int32_t *start);
/* Whether bytes of this type are elements as they lie. */
static inline bool int_is_element(const struct int_gemm_ops *ops, enum dtype a)
{
    return ops->element_bytes == 1 && a == DTYPE_UINT8;
}
/* Elements from bytes, and elements that count as nothing. */
void int_lay(const struct int_gemm_ops *ops, enum dtype a, const void *from, int64_t count,
             int32_t zero, void *to);
void int_lay_zeros(const struct int_gemm_ops *ops, enum dtype a, int64_t count, int32_t zero,
                   void *to);
int32_t int_row_sum(const struct int_gemm_ops *ops, const struct int_shape *shape, const char *row,
                    const int64_t *offsets);

static inline int32_t int_byte_at(enum dtype dtype, const void *data, int64_t index)
{
    return dtype == DTYPE_INT8 ? ((const int8_t *)data)[index] : ((const uint8_t *)data)[index];
}

#endif
