#include "device/cpu/bytes/int_gemm.h"

#include <cpuid.h>
#include <string.h>

extern const struct int_gemm_ops int_gemm_ops_base, int_gemm_ops_avx2, int_gemm_ops_avx512,
    int_gemm_ops_avxvnni, int_gemm_ops_vnni, int_gemm_ops_split_avx2;

enum { SHIFT = 128 };

/* gcc 12 does not know the name.  Asked once, when the program starts, as libgcc asks for the
 * others: CPUID leaves a virtual machine, and what stands in for it in a benchmark needs a signal.
 */
static bool has_avx_vnni;

__attribute__((constructor)) static void ask_for_avx_vnni(void)
{
    unsigned a, b, c, d;

    __builtin_cpu_init();
    has_avx_vnni = __builtin_cpu_supports("avx2") && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 &&
                   (a & 1U << 4) != 0;
}

const struct int_gemm_ops *int_gemm_ops_for(enum cpu_isa isa)
{
    switch (isa) {
    case CPU_AVX512:
        return __builtin_cpu_supports("avx512vnni") ? &int_gemm_ops_vnni : &int_gemm_ops_avx512;
    case CPU_AVX2:
        return has_avx_vnni ? &int_gemm_ops_avxvnni : &int_gemm_ops_split_avx2;
    case CPU_BASELINE:
    case CPU_ISA_COUNT:
        break;
    }
    return &int_gemm_ops_base;
}

const struct int_gemm_ops *const *int_gemm_tables(void)
{
    static const struct int_gemm_ops *tables[7];
    size_t count = 0;

    tables[count++] = &int_gemm_ops_base;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        tables[count++] = &int_gemm_ops_avx2;
        tables[count++] = &int_gemm_ops_split_avx2;
    }
    if (has_avx_vnni)
        tables[count++] = &int_gemm_ops_avxvnni;
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        tables[count++] = &int_gemm_ops_avx512;
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl"))
        tables[count++] = &int_gemm_ops_vnni;
    tables[count] = NULL;
    return tables;
}

/* Two products with bytes up to 255 and their sum fit 16 bits. */
static bool fits(const int8_t *pair)
{
    const int sum = pair[0] + pair[1];

    if ((pair[0] < 0) != (pair[1] < 0)) /* one takes from the other */
        return true;
    return sum >= -128 && sum <= 128;
}

/* ---- which form ---- */

enum { LIST = 8, LOOKED_AT = 2048, MOST_SPLIT_PERCENT = 30 };

static bool quad_fits(const struct int_filters *filters, int64_t out, int64_t in, int64_t tap)
{
    const int32_t shift = filters->dtype == DTYPE_UINT8 ? SHIFT : 0;

    for (int64_t o = out; o < out + LIST && o < filters->out; o++) {
        int8_t quad[4] = {0};

        for (int64_t i = in; i < in + 4 && i < filters->in; i++)
            quad[i - in] = (int8_t)(int_byte_at(filters->dtype, filters->data,
                                                (o * filters->in + i) * filters->taps + tap) -
                                    shift);
        if (!fits(quad) || !fits(quad + 2))
            return false;
    }
    return true;
}

/* A sample of the quads will do. */
bool int_splits_too_often(const struct int_filters *filters)
{
    const int64_t quads = (filters->in + 3) / 4, lists = (filters->out + LIST - 1) / LIST;
    const int64_t all = quads * lists * filters->taps, step = all / LOOKED_AT | 1;
    int64_t count = 0, split = 0;

    for (int64_t i = 0; i < all; i += step, count++)
        split += !quad_fits(filters, i / quads % lists * LIST, i % quads * 4, i / quads / lists);
    return split * 100 > count * MOST_SPLIT_PERCENT;
}

const struct int_gemm_ops *int_gemm_ops_for_filters(enum cpu_isa isa,
                                                    const struct int_filters *filters)
{
    const struct int_gemm_ops *ops = int_gemm_ops_for(isa);

    return ops->list != 0 && int_splits_too_often(filters) ? &int_gemm_ops_avx2 : ops;
}

static bool is_quads(const struct int_gemm_ops *ops)
{
    return ops->element_bytes == 1;
}

/* ---- B: zero points [n], the sums in the bracket [n], the panels, lists of second halves ---- */

static int64_t padded_steps(const struct int_gemm_ops *ops, const struct int_shape *shape)
{
    return shape->segments * int_round_up(shape->length, ops->step);
}

static size_t panels_bytes(const struct int_gemm_ops *ops, const struct int_shape *shape)
{
    return (size_t)int_columns(ops, shape->n) *
           (2 * sizeof(int32_t) + (size_t)padded_steps(ops, shape) * ops->element_bytes);
}

size_t int_packed_bytes(const struct int_gemm_ops *ops, const struct int_shape *shape)
{
    size_t lists = 0;

    if (ops->list != 0)
        lists = (size_t)(int_columns(ops, shape->n) / ops->list) *
                int_halves_bytes(ops->list, padded_steps(ops, shape) / ops->step);
    return panels_bytes(ops, shape) + lists;
}

/* One column of a panel; returns the sum of its differences. */
static int32_t pack_column(const struct int_gemm_ops *ops, const struct int_shape *shape,
                           const struct int_matrix *b, int64_t column, int32_t zero, void *to)
{
    const int64_t padded = int_round_up(shape->length, ops->step), step = ops->step;
    const int32_t shift = is_quads(ops) && b->dtype == DTYPE_UINT8 ? SHIFT : 0;
    int32_t sum = 0;

    for (int64_t i = 0; i < shape->segments * shape->length; i++) {
        int64_t from =
            (b->steps != NULL ? b->steps[i] : i * b->row_stride) + column * b->column_stride;
        int64_t at = i / shape->length * padded + i % shape->length;
        int32_t byte = int_byte_at(b->dtype, b->data, from);

        at = at / step * step * ops->panel + at % step;
        if (is_quads(ops))
            ((int8_t *)to)[at] = (int8_t)(byte - shift);
        else
            ((int16_t *)to)[at] = (int16_t)(byte - zero);
        sum += byte - zero;
    }
    return sum;
}

/* Leaves the first halves in the columns of a quad; false where all of them fit. */
static bool split_quad(int64_t columns, int8_t *quad, int8_t *seconds)
{
    bool is_split = false;

    for (int64_t i = 0; i < columns * 4; i += 2) {
        seconds[i] = seconds[i + 1] = 0;
        if (fits(quad + i))
            continue;
        for (int64_t k = i; k < i + 2; k++) {
            seconds[k] = (int8_t)(quad[k] / 2);
            quad[k] = (int8_t)(quad[k] - seconds[k]);
        }
        is_split = true;
    }
    return is_split;
}

static void split(const struct int_gemm_ops *ops, const struct int_shape *shape, void *packed)
{
    const int64_t quads = padded_steps(ops, shape) / ops->step,
                  per_segment = quads / shape->segments;
    int8_t *panels = (int8_t *)packed + 2 * (size_t)int_columns(ops, shape->n) * sizeof(int32_t);
    char *lists = (char *)packed + panels_bytes(ops, shape);

    for (int64_t j = 0; j < int_columns(ops, shape->n); j += ops->list) {
        struct int_halves *halves = (struct int_halves *)(void *)lists;
        int8_t *quad = panels + j / ops->panel * ops->panel * quads * 4 + j % ops->panel * 4;
        int8_t *seconds = (int8_t *)(halves->at + quads);

        halves->count = 0;
        for (int64_t q = 0; q < quads; q++, quad += ops->panel * 4) {
            if (!split_quad(ops->list, quad, seconds))
                continue;
            halves->at[halves->count++] =
                (struct int_half){(int32_t)(q / per_segment), (int32_t)(q % per_segment)};
            seconds += ops->list * 4;
        }
        lists += int_halves_bytes(ops->list, quads);
    }
}

void int_pack(const struct int_gemm_ops *ops, const struct int_shape *shape,
              const struct int_matrix *b, void *packed)
{
    const int64_t columns = int_columns(ops, shape->n), k = padded_steps(ops, shape);
    const int32_t shift = is_quads(ops) && b->dtype == DTYPE_UINT8 ? SHIFT : 0;
    int32_t *zeros = packed, *sums = zeros + columns;
    char *panels = (char *)(sums + columns);

    memset(packed, 0, panels_bytes(ops, shape));
    for (int64_t j = 0; j < shape->n; j++) {
        int32_t zero =
            b->zero != NULL ? int_byte_at(b->dtype, b->zero, b->zero_per_column ? j : 0) : 0;
        int64_t at = j / ops->panel * ops->panel * k + j % ops->panel * ops->step;

        sums[j] = pack_column(ops, shape, b, j, zero, panels + (size_t)at * ops->element_bytes);
        if (is_quads(ops))
            zeros[j] = zero - shift;
    }
    if (ops->list != 0)
        split(ops, shape, packed);
}

bool int_has_zeros(const struct int_gemm_ops *ops, const struct int_shape *shape,
                   const void *packed)
{
    const int32_t *zeros = packed;

    for (int64_t j = 0; is_quads(ops) && j < shape->n; j++)
        if (zeros[j] != 0)
            return true;
    return false;
}

void int_begin(const struct int_gemm_ops *ops, const struct int_shape *shape, const void *packed,
               enum dtype a, int32_t a_zero, const int32_t *bias, int32_t *start)
{
    const int64_t columns = int_columns(ops, shape->n);
    const uint32_t *sums = (const uint32_t *)packed + columns;
    uint32_t zero = 0;

    if (is_quads(ops))
        zero = (uint32_t)(a_zero + (a == DTYPE_INT8 ? SHIFT : 0));
    for (int64_t j = 0; j < columns; j++)
        start[j] =
            (int32_t)((bias != NULL && j < shape->n ? (uint32_t)bias[j] : 0) - zero * sums[j]);
}

/* ---- A ---- */

void int_lay(const struct int_gemm_ops *ops, enum dtype a, const void *from, int64_t count,
             int32_t zero, void *to)
{
    const uint8_t *bytes = from;

    if (int_is_element(ops, a)) {
        memcpy(to, from, (size_t)count);
    } else if (is_quads(ops)) {
        for (int64_t i = 0; i < count; i++)
            ((uint8_t *)to)[i] = bytes[i] ^ SHIFT;
    } else if (a == DTYPE_UINT8) {
        for (int64_t i = 0; i < count; i++)
            ((int16_t *)to)[i] = (int16_t)(bytes[i] - zero);
    } else {
        for (int64_t i = 0; i < count; i++)
            ((int16_t *)to)[i] = (int16_t)((int8_t)bytes[i] - zero);
    }
}

void int_lay_zeros(const struct int_gemm_ops *ops, enum dtype a, int64_t count, int32_t zero,
                   void *to)
{
    int byte = is_quads(ops) ? (int)(uint8_t)(zero + (a == DTYPE_INT8 ? SHIFT : 0)) : 0;

    memset(to, byte, (size_t)count * ops->element_bytes);
}

int32_t int_row_sum(const struct int_gemm_ops *ops, const struct int_shape *shape, const char *row,
                    const int64_t *offsets)
{
    int32_t sum = 0;

    (void)ops; /* quads: the only ones with zero points in B */
    for (int64_t s = 0; s < shape->segments; s++) {
        const uint8_t *bytes = (const uint8_t *)row + offsets[s];

        for (int64_t i = 0; i < shape->length; i++)
            sum += bytes[i];
    }
    return sum;
}
