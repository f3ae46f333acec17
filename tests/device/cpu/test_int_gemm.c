/* Products of bytes of each instruction set that this machine has, by the tables themselves: the
 * device picks only the best. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/bytes/int_gemm.h"

struct sample {
    struct int_shape shape;
    enum dtype a_type, b_type;
    int64_t rows;
    int32_t a_zero;
    uint8_t *a, *b, *zeros; /* [rows][k], [k][n], [n] */
};

static uint32_t seed = 1;

static uint8_t *random_bytes(int64_t count)
{
    uint8_t *bytes = malloc((size_t)count + 1);

    assert_non_null(bytes);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        /* many extremes: there 16-bit sums of pairs would overflow */
        bytes[i] = (seed >> 28) < 6 ? (uint8_t)((seed >> 27 & 1) * 255 ^ 0x80 * (seed >> 26 & 1))
                                    : (uint8_t)(seed >> 16);
    }
    return bytes;
}

static int64_t steps_of(const struct sample *s)
{
    return s->shape.segments * s->shape.length;
}

static int64_t expected(const struct sample *s, int64_t row, int64_t column)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < steps_of(s); i++)
        sum += (int64_t)(int_byte_at(s->a_type, s->a, row * steps_of(s) + i) - s->a_zero) *
               (int_byte_at(s->b_type, s->b, i * s->shape.n + column) -
                int_byte_at(s->b_type, s->zeros, column));
    return sum;
}

static void *room(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);

    assert_non_null(memory);
    return memory;
}

static void check(const struct int_gemm_ops *ops, const struct sample *s)
{
    const int64_t columns = int_columns(ops, s->shape.n), n = s->shape.n;
    const size_t segment = int_segment_bytes(ops, s->shape.length);
    const size_t row_bytes = segment * (size_t)s->shape.segments;
    const struct int_matrix b = {.dtype = s->b_type,
                                 .data = s->b,
                                 .row_stride = n,
                                 .column_stride = 1,
                                 .zero = s->zeros,
                                 .zero_per_column = true};
    void *packed = room(int_packed_bytes(ops, &s->shape));
    char *rows = room(row_bytes * (size_t)s->rows);
    const char **addresses = calloc((size_t)s->rows, sizeof(*addresses));
    int32_t *sums = calloc((size_t)s->rows, sizeof(*sums));
    int32_t *start = room((size_t)columns * sizeof(*start));
    int32_t *out = calloc((size_t)(s->rows * n), sizeof(*out));
    int64_t offsets[8];

    assert_true(s->shape.segments <= 8 && addresses != NULL && sums != NULL && out != NULL);
    int_pack(ops, &s->shape, &b, packed);
    int_begin(ops, &s->shape, packed, s->a_type, s->a_zero, NULL, start);
    for (int64_t g = 0; g < s->shape.segments; g++)
        offsets[g] = g * (int64_t)segment;
    for (int64_t r = 0; r < s->rows; r++) {
        addresses[r] = rows + (size_t)r * row_bytes;
        for (int64_t g = 0; g < s->shape.segments; g++)
            int_lay(ops, s->a_type, s->a + r * steps_of(s) + g * s->shape.length, s->shape.length,
                    s->a_zero, rows + (size_t)r * row_bytes + (size_t)g * segment);
        sums[r] = int_row_sum(ops, &s->shape, addresses[r], offsets);
    }
    ops->run(&(struct int_product){.shape = s->shape,
                                   .packed = packed,
                                   .rows = s->rows,
                                   .row = addresses,
                                   .offsets = offsets,
                                   .to = n,
                                   .start = start,
                                   .row_sums = int_has_zeros(ops, &s->shape, packed) ? sums : NULL,
                                   .result = INT_SUMS,
                                   .out = out,
                                   .ldo = n});
    for (int64_t i = 0; i < s->rows * n; i++)
        if (out[i] != expected(s, i / n, i % n))
            fail_msg("%s of %lld columns: element %lld is %d instead of %lld", ops->form,
                     (long long)ops->panel, (long long)i, out[i],
                     (long long)expected(s, i / n, i % n));
    free(packed);
    free(rows);
    free((void *)addresses);
    free(sums);
    free(start);
    free(out);
}

static void products_are_exact_on_every_instruction_set(void **state)
{
    static const struct int_shape shapes[] = {{1, 1, 1},   {1, 64, 64},  {3, 9, 17},
                                              {2, 48, 33}, {1, 131, 70}, {8, 16, 100}};

    (void)state;
    for (int code = 0; code < 6 * 4 * 3; code++) {
        struct sample s = {.shape = shapes[code % 6],
                           .a_type = code / 6 % 2 ? DTYPE_INT8 : DTYPE_UINT8,
                           .b_type = code / 12 % 2 ? DTYPE_INT8 : DTYPE_UINT8,
                           .rows = (int64_t[]){1, 7, 29}[code / 24]};

        s.a_zero = s.a_type == DTYPE_INT8 ? -128 : 255;
        s.a = random_bytes(s.rows * steps_of(&s));
        s.b = random_bytes(steps_of(&s) * s.shape.n);
        s.zeros = random_bytes(s.shape.n);
        for (const struct int_gemm_ops *const *ops = int_gemm_tables(); *ops != NULL; ops++)
            check(*ops, &s);
        free(s.a);
        free(s.b);
        free(s.zeros);
    }
}

/* A quad counts once, however many of its columns split it. */
static void weights_that_split_too_often_are_noticed(void **state)
{
    enum { OUT = 19, IN = 10, TAPS = 3 };
    int8_t weights[OUT][IN][TAPS];
    struct int_filters filters = {
        .dtype = DTYPE_INT8, .data = weights, .out = OUT, .in = IN, .taps = TAPS};

    (void)state;
    memset(weights, 64, sizeof(weights)); /* 64 + 64 times 255 fits */
    assert_false(int_splits_too_often(&filters));
    for (int tap = 0; tap < TAPS; tap++)
        weights[18][9][tap] = weights[3][1][tap] = 65; /* two of three lists of three quads each */
    assert_false(int_splits_too_often(&filters));
    for (int tap = 0; tap < TAPS; tap++) {
        weights[12][7][tap] = -65; /* a third: more than 30 % of the nine */
        weights[12][6][tap] = -64;
    }
    assert_true(int_splits_too_often(&filters));
    memset(weights, 0x80 + 64, sizeof(weights)); /* the same, unsigned and shifted */
    filters.dtype = DTYPE_UINT8;
    assert_false(int_splits_too_often(&filters));
    memset(weights, 0x80 + 65, sizeof(weights));
    assert_true(int_splits_too_often(&filters));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_exact_on_every_instruction_set),
        cmocka_unit_test(weights_that_split_too_often_are_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
