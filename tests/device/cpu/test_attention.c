/* Attention in one step against its definition, in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/cpu.h"
#include "ops/attention.h"
#include "support/cpu_cases.h"

/* Element of an operand at [lead…, row, column] of the geometry, broadcast. */
static double at(const struct test_array *array, const struct attention_axes *axes,
                 const int64_t *index)
{
    const struct shape *shape = &array->shape;
    int64_t place[SHAPE_MAX_RANK], offset = 0;

    for (size_t i = 0; i < shape->rank; i++)
        place[axes->axis[i]] = shape->dims[axes->axis[i]] == 1 ? 0 : index[i];
    for (size_t i = 0; i < shape->rank; i++)
        offset = offset * shape->dims[i] + place[i];
    return array->values[offset];
}

static double mask_at(const struct test_array *mask, size_t rank, const int64_t *index)
{
    int64_t offset = 0;

    for (size_t i = 0; i < mask->shape.rank; i++) {
        int64_t dim = mask->shape.dims[i];

        offset = offset * dim + (dim == 1 ? 0 : index[i + rank - mask->shape.rank]);
    }
    return mask->values[offset];
}

/* What mask `number` makes of a score. */
static double masked(const struct op_test *test, const struct test_array *mask, size_t number,
                     size_t rank, const int64_t *index, double score)
{
    const struct attention_attrs *attrs = test->attrs;
    const double element = mask_at(mask, rank, index);

    if (mask->dtype != DTYPE_BOOL)
        return score + element;
    return (element != 0) == attrs->mask[number].hides ? (double)attrs->mask[number].fill : score;
}

/* Parts of the sum of one query, divided by it. */
static void weigh(const struct op_test *test, const struct test_array *in,
                  const struct attention_geometry *g, int64_t *index, double *parts)
{
    const struct attention_attrs *attrs = test->attrs;
    const size_t row = g->rank - 2, column = g->rank - 1;
    const int64_t query = index[row];
    double top = -INFINITY, sum = 0;

    for (int64_t key = 0; key < g->keys; key++) {
        parts[key] = 0;
        for (int64_t i = 0; i < g->depth; i++) {
            double q;

            index[row] = query;
            index[column] = i;
            q = at(&in[ATTENTION_Q], &attrs->q, index);
            index[row] = key;
            parts[key] += q * at(&in[ATTENTION_K], &attrs->k, index) * (double)attrs->scale;
        }
        index[row] = query;
        index[column] = key;
        for (size_t i = ATTENTION_MASK; i < test->inputs; i++)
            parts[key] = masked(test, &in[i], i - ATTENTION_MASK, g->rank, index, parts[key]);
        if (attrs->is_causal && key > query + attrs->causal_offset)
            parts[key] = (double)attrs->causal_fill;
        top = fmax(top, parts[key]);
    }
    for (int64_t key = 0; key < g->keys; key++)
        sum += parts[key] = exp(parts[key] - top);
    for (int64_t key = 0; key < g->keys; key++)
        parts[key] = attrs->zeroes_nan && isnan(sum) ? 0 : parts[key] / sum;
}

static void reference(const struct op_test *test, const struct test_array *in,
                      struct test_array *out)
{
    const struct attention_attrs *attrs = test->attrs;
    const struct shape *masks[2] = {test->inputs > 3 ? &in[3].shape : NULL,
                                    test->inputs > 4 ? &in[4].shape : NULL};
    struct attention_geometry g;
    double *parts;

    assert_int_equal(
        attention_resolve(attrs, &in[0].shape, &in[1].shape, &in[2].shape, masks, &g, NULL),
        STATUS_OK);
    parts = calloc((size_t)g.keys, sizeof(*parts));
    for (int64_t line = 0; line < g.heads * g.queries; line++) {
        int64_t index[SHAPE_MAX_RANK], rest = line / g.queries, stride[SHAPE_MAX_RANK], unit = 1;

        for (size_t i = out->shape.rank; i-- > 0; unit *= out->shape.dims[i])
            stride[i] = unit;
        for (size_t i = g.lead.rank; i-- > 0; rest /= g.lead.dims[i])
            index[i] = rest % g.lead.dims[i];
        index[g.rank - 2] = line % g.queries;
        weigh(test, in, &g, index, parts);
        for (int64_t column = 0; column < g.width; column++) {
            int64_t offset = column;
            double sum = 0;

            for (int64_t key = 0; key < g.keys; key++) {
                index[g.rank - 2] = key;
                index[g.rank - 1] = column;
                sum += parts[key] * at(&in[ATTENTION_V], &attrs->v, index);
            }
            index[g.rank - 2] = line % g.queries;
            for (size_t i = 0; i + 1 < g.rank; i++)
                offset += index[i] * stride[attrs->out.axis[i]];
            out->values[offset] = sum;
        }
    }
    free(parts);
}

/* Of Q, K, V and the result; the group's. */
static enum dtype type = DTYPE_FLOAT;

/* What the roundings of the e^x and of the result leave. */
static double slack(void)
{
    return type == DTYPE_FLOAT ? 4e-6 : type == DTYPE_FLOAT16 ? 1.5e-3 : 1.2e-2;
}

/* Masks of 16-bit operands may be float32. */
static enum dtype mask_type(size_t number)
{
    return number % 2 == 0 ? type : DTYPE_FLOAT;
}

static struct op_test make_test(const struct attention_attrs *attrs, struct shape q, struct shape k,
                                struct shape v)
{
    return (struct op_test){.op = "Attention",
                            .domain = "sluice",
                            .attrs = attrs,
                            .inputs = 3,
                            .in = {{.dtype = type, .shape = q, .low = -1, .high = 1},
                                   {.dtype = type, .shape = k, .low = -1, .high = 1},
                                   {.dtype = type, .shape = v, .low = -1, .high = 1}},
                            .reference = reference,
                            .relative = slack() / 2,
                            .absolute = slack()};
}

/* [lead…, row, column] as they lie, and with rows in front of the heads. */
#define IN_ORDER                                                                                   \
    {                                                                                              \
        {                                                                                          \
            0, 1, 2, 3                                                                             \
        }                                                                                          \
    }
#define BY_ROWS                                                                                    \
    {                                                                                              \
        {                                                                                          \
            0, 2, 1, 3                                                                             \
        }                                                                                          \
    }

static const struct attention_attrs plain = {
    .scale = 0.25f, .q = IN_ORDER, .k = IN_ORDER, .v = IN_ORDER, .out = IN_ORDER};
static const struct attention_attrs heads = {
    .scale = 0.25f, .q = BY_ROWS, .k = BY_ROWS, .v = BY_ROWS, .out = BY_ROWS};

static void heads_of_every_size_are_right(void **state)
{
    static const int64_t sizes[][6] = {
        /* batch, heads, queries, keys, depth, width */
        {2, 3, 5, 7, 4, 4},       {1, 2, 1, 1, 1, 1},       {3, 2, 33, 49, 32, 32},
        {1, 2, 70, 1000, 20, 33}, {2, 1, 128, 128, 64, 64}, {1, 1, 9, 1601, 8, 49},
        {1, 3, 196, 50, 17, 80},  {2, 2, 65, 130, 24, 128}, {1, 1, 16, 64, 128, 2},
        {1, 2, 70, 75, 256, 256}, {1, 1, 9, 40, 137, 199},  {1, 1, 5, 33, 8, 160},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const int64_t *s = sizes[i];
        struct op_test test = make_test(&plain, (struct shape)SHAPE(s[0], s[1], s[2], s[4]),
                                        (struct shape)SHAPE(s[0], s[1], s[3], s[4]),
                                        (struct shape)SHAPE(s[0], s[1], s[3], s[5]));

        test.rows = true;
        op_test_run(tester, &test);
        test = make_test(&heads, (struct shape)SHAPE(s[0], s[2], s[1], s[4]),
                         (struct shape)SHAPE(s[0], s[3], s[1], s[4]),
                         (struct shape)SHAPE(s[0], s[3], s[1], s[5]));
        test.rows = true;
        op_test_run(tester, &test);
    }
}

static void operands_may_lie_in_any_order(void **state)
{
    const struct attention_attrs attrs = {.scale = 1,
                                          .q = {{0, 1, 3, 2}},
                                          .k = {{0, 1, 3, 2}},
                                          .v = {{1, 0, 3, 2}},
                                          .out = {{1, 0, 2, 3}}};
    struct op_test test =
        make_test(&attrs, (struct shape)SHAPE(2, 3, 8, 21), (struct shape)SHAPE(2, 3, 8, 30),
                  (struct shape)SHAPE(3, 2, 19, 30));

    (void)state;
    op_test_run(tester, &test);
}

static void matrices_without_heads_are_right(void **state)
{
    const struct attention_attrs attrs = {
        .scale = 0.5f, .q = {{0, 1}}, .k = {{0, 1}}, .v = {{0, 1}}, .out = {{0, 1}}};
    struct op_test test = make_test(&attrs, (struct shape)SHAPE(40, 24),
                                    (struct shape)SHAPE(50, 24), (struct shape)SHAPE(50, 24));

    (void)state;
    op_test_run(tester, &test);
    for (size_t i = 0; i < 3; i++)
        test.in[i].constant = true;
    op_test_run(tester, &test);
}

static void rows_a_page_apart_are_right(void **state)
{
    struct op_test test =
        make_test(&heads, (struct shape)SHAPE(1, 20, 16, 64), (struct shape)SHAPE(1, 20, 16, 64),
                  (struct shape)SHAPE(1, 20, 16, 64));

    (void)state;
    op_test_run(tester, &test);
}

static void keys_and_values_are_shared_by_heads(void **state)
{
    struct op_test test =
        make_test(&plain, (struct shape)SHAPE(2, 6, 12, 16), (struct shape)SHAPE(2, 1, 20, 16),
                  (struct shape)SHAPE(1, 1, 20, 24));

    (void)state;
    op_test_run(tester, &test);
}

static void masks_are_broadcast(void **state)
{
    static const struct shape masks[] = {
        SHAPE(2, 1, 1, 20), SHAPE(1, 1, 12, 20), SHAPE(2, 3, 12, 20), SHAPE(20),
        SHAPE(12, 20),      SHAPE(3, 1, 20),     SHAPE(1, 1, 1, 20),
    };

    (void)state;
    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        struct op_test test =
            make_test(&heads, (struct shape)SHAPE(2, 12, 3, 16), (struct shape)SHAPE(2, 20, 3, 16),
                      (struct shape)SHAPE(2, 20, 3, 16));

        test.inputs = 4;
        test.in[3] =
            (struct op_input){.dtype = mask_type(i), .shape = masks[i], .low = -3, .high = 3};
        op_test_run(tester, &test);
        test.inputs = 5;
        test.in[4] = (struct op_input){
            .dtype = mask_type(i / 2), .shape = masks[(i + 2) % 7], .low = -3, .high = 3};
        op_test_run(tester, &test);
    }
}

/* A query whose keys are all masked by a large number sees them all; by infinity, it is no number.
 */
static void queries_without_keys_are_as_softmax_has_them(void **state)
{
    struct attention_attrs attrs = {
        .scale = 1, .q = {{0, 1}}, .k = {{0, 1}}, .v = {{0, 1}}, .out = {{0, 1}}};
    double mask[4][18];
    struct op_test test = make_test(&attrs, (struct shape)SHAPE(4, 3), (struct shape)SHAPE(18, 3),
                                    (struct shape)SHAPE(18, 5));

    (void)state;
    for (int row = 0; row < 4; row++)
        for (int key = 0; key < 18; key++)
            mask[row][key] = row == 1 ? -10000 : row == 2 ? -INFINITY : key > 11 ? -INFINITY : 0;
    test.inputs = 4;
    test.in[3] = (struct op_input){.dtype = type, .shape = SHAPE(4, 18), .values = mask[0]};
    test.absolute = fmax(2e-3, slack()); /* -10000 leaves three digits of a score */
    op_test_run(tester, &test);
}

#ifndef OP_TEST_ONE_ISA /* a device that guards attention */
/* Whole blocks of queries without a key, and single ones among others. */
static void queries_without_keys_take_zeros_where_that_is_wanted(void **state)
{
    enum { QUERIES = 150, KEYS = 150 };
    static double mask[QUERIES][KEYS];
    struct attention_attrs attrs = {.scale = 1,
                                    .zeroes_nan = true,
                                    .q = {{0, 1}},
                                    .k = {{0, 1}},
                                    .v = {{0, 1}},
                                    .out = {{0, 1}}};
    struct op_test test = make_test(&attrs, (struct shape)SHAPE(QUERIES, 3),
                                    (struct shape)SHAPE(KEYS, 3), (struct shape)SHAPE(KEYS, 5));

    (void)state;
    for (int row = 0; row < QUERIES; row++)
        for (int key = 0; key < KEYS; key++)
            mask[row][key] = row > 130 || row % 9 == 4 || key < row ? -INFINITY : 0;
    test.inputs = 4;
    test.in[3] = (struct op_input){.dtype = type, .shape = SHAPE(QUERIES, KEYS), .values = mask[0]};
    op_test_run(tester, &test);
}
#endif

/* Keys are looked at in blocks: one that has none for a query may come before one that has. */
static void the_first_keys_may_all_be_masked(void **state)
{
    enum { QUERIES = 5, KEYS = 150 };
    struct attention_attrs attrs = {
        .scale = 1, .q = {{0, 1}}, .k = {{0, 1}}, .v = {{0, 1}}, .out = {{0, 1}}};
    double mask[QUERIES][KEYS];
    struct op_test test = make_test(&attrs, (struct shape)SHAPE(QUERIES, 3),
                                    (struct shape)SHAPE(KEYS, 3), (struct shape)SHAPE(KEYS, 5));

    (void)state;
    for (int row = 0; row < QUERIES; row++)
        for (int key = 0; key < KEYS; key++)
            mask[row][key] = key < 40 * row - 10 ? -INFINITY : 0;
    test.inputs = 4;
    test.in[3] =
        (struct op_input){.dtype = mask_type(1), .shape = SHAPE(QUERIES, KEYS), .values = mask[0]};
    op_test_run(tester, &test);
}

/* Kernels of the CPU leave these to its other steps. */
static void run_where_taken(struct op_test *test)
{
#ifndef OP_TEST_ONE_ISA
    test->any_kernel = true;
#endif
    op_test_run(tester, test);
}

static void boolean_masks_say_which_scores_stay(void **state)
{
    static const struct shape masks[] = {SHAPE(2, 1, 1, 70), SHAPE(1, 1, 12, 70),
                                         SHAPE(2, 3, 12, 70), SHAPE(12, 70), SHAPE(70)};
    static const float fills[] = {-INFINITY, -1e9F, -5};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(masks) / sizeof(masks[0]); i++) {
        struct attention_attrs attrs = heads;
        struct op_test test =
            make_test(&attrs, (struct shape)SHAPE(2, 12, 3, 16), (struct shape)SHAPE(2, 70, 3, 16),
                      (struct shape)SHAPE(2, 70, 3, 16));

        attrs.mask[0] = (struct attention_mask){.hides = i % 2 == 1, .fill = fills[i % 3]};
        attrs.mask[1] = (struct attention_mask){.hides = i % 2 == 0, .fill = fills[2]};
        test.inputs = 4;
        test.in[3] = (struct op_input){.dtype = DTYPE_BOOL, .shape = masks[i / 2]};
        run_where_taken(&test);
        test.inputs = 5;
        test.in[4] = (struct op_input){.dtype = i % 3 == 0 ? mask_type(i) : DTYPE_BOOL,
                                       .shape = masks[(i + 1) / 2 % 5],
                                       .low = -3,
                                       .high = i % 3 == 0 ? 3 : 0};
        if (i % 3 != 0)
            test.in[4].low = 0;
        run_where_taken(&test);
    }
}

/* Keys in front of all queries, as many as queries, fewer, and queries that see none. */
static void causal_attention_sees_what_was_before(void **state)
{
    static const int64_t sizes[][5] = {
        /* queries, keys, depth, offset, heads */
        {150, 150, 16, 0, 2},  {70, 200, 8, 130, 1}, {200, 70, 8, 0, 1},   {130, 130, 40, -1, 1},
        {140, 100, 8, -70, 1}, {5, 300, 16, 3, 2},   {66, 140, 160, 5, 1},
    };
    static const float fills[] = {-INFINITY, -3.4e38F, -1e4F};

    (void)state;
    for (size_t i = 0; i < 3 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        const int64_t *s = sizes[i / 3];
        struct attention_attrs attrs = plain;
        struct op_test test = make_test(&attrs, (struct shape)SHAPE(2, s[4], s[0], s[2]),
                                        (struct shape)SHAPE(2, s[4], s[1], s[2]),
                                        (struct shape)SHAPE(2, s[4], s[1], s[2]));

        attrs.is_causal = true;
        attrs.causal_offset = s[3];
        attrs.causal_fill = fills[i % 3];
        test.rows = true;
        run_where_taken(&test);
        test.rows = false;
        test.inputs = 4;
        test.in[3] = (struct op_input){
            .dtype = mask_type(i), .shape = SHAPE(1, 1, 1, s[1]), .low = -3, .high = 3};
        run_where_taken(&test);
    }
}

/* A number that hides counts where nothing that is seen is much larger. */
static void hidden_keys_count_where_all_scores_are_as_low(void **state)
{
    enum { SIDE = 140 };
    struct attention_attrs attrs = {.scale = 1,
                                    .q = {{0, 1}},
                                    .k = {{0, 1}},
                                    .v = {{0, 1}},
                                    .out = {{0, 1}},
                                    .is_causal = true,
                                    .causal_fill = -1};
    double mask[SIDE][SIDE];
    struct op_test test = make_test(&attrs, (struct shape)SHAPE(SIDE, 8),
                                    (struct shape)SHAPE(SIDE, 8), (struct shape)SHAPE(SIDE, 8));

    (void)state;
    run_where_taken(&test);
    for (int row = 0; row < SIDE; row++)
        for (int key = 0; key < SIDE; key++)
            mask[row][key] = row == 20 ? -INFINITY : row == 90 ? -20000 : 0;
    attrs.causal_fill = -10000;
    test.inputs = 4;
    test.in[3] =
        (struct op_input){.dtype = DTYPE_FLOAT, .shape = SHAPE(SIDE, SIDE), .values = mask[0]};
    run_where_taken(&test);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct op_test test =
        make_test(&plain, (struct shape)SHAPE(2, 3, 5, 4), (struct shape)SHAPE(2, 3, 7, 8),
                  (struct shape)SHAPE(2, 3, 7, 4));

    (void)state;
    assert_non_null(strstr(op_test_refused(tester, &test), "fit"));
    test.in[1].shape = (struct shape)SHAPE(2, 3, 7, 4);
    test.inputs = 4;
    test.in[3] = (struct op_input){.dtype = type, .shape = SHAPE(5, 1)};
    assert_non_null(strstr(op_test_refused(tester, &test), "mask"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_of_every_size_are_right),
        cmocka_unit_test(operands_may_lie_in_any_order),
        cmocka_unit_test(matrices_without_heads_are_right),
        cmocka_unit_test(rows_a_page_apart_are_right),
        cmocka_unit_test(keys_and_values_are_shared_by_heads),
        cmocka_unit_test(masks_are_broadcast),
        cmocka_unit_test(queries_without_keys_are_as_softmax_has_them),
#ifndef OP_TEST_ONE_ISA
        cmocka_unit_test(queries_without_keys_take_zeros_where_that_is_wanted),
#endif
        cmocka_unit_test(the_first_keys_may_all_be_masked),
        cmocka_unit_test(boolean_masks_say_which_scores_stay),
        cmocka_unit_test(causal_attention_sees_what_was_before),
        cmocka_unit_test(hidden_keys_count_where_all_scores_are_as_low),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };

#ifdef OP_TEST_ONE_ISA /* a device with a kernel for 16-bit types */
    static const enum dtype types[] = {DTYPE_FLOAT, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    const char *capability = getenv("SLUICE_SIM_CAPABILITY");
    const size_t count = capability != NULL && atoi(capability) < 80 ? 2 : 3; /* no bfloat16 */
    int failed = 0;

    for (size_t i = 0; i < count; i++) {
        type = types[i];
        failed += cmocka_run_group_tests_name(dtype_name(type), tests, open_tester, close_tester);
    }
    return failed;
#else
    return run_cases_on_each_isa(tests);
#endif
}
