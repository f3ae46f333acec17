#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops/op.h"

static void every_operator_is_found_by_its_name(void **state)
{
    size_t count;
    const struct op_def *const *table = op_table(&count);

    (void)state;
    for (size_t i = 0; i < count; i++) {
        assert_non_null(table[i]->name);
        assert_non_null(table[i]->infer);
        if (table[i]->onnx.name != NULL)
            assert_ptr_equal(op_find(table[i]->onnx.domain, table[i]->onnx.name), table[i]);
    }
}

static void attributes_stay_inside_their_struct(void **state)
{
    size_t count;
    const struct op_def *const *table = op_table(&count);

    (void)state;
    for (size_t i = 0; i < count; i++)
        for (const struct attr_def *def = table[i]->attrs; def != NULL && def->type != ATTR_END;
             def++) {
            assert_non_null(def->name);
            assert_true(def->offset < table[i]->attrs_size);
        }
}

static void both_spellings_of_the_standard_domain_mean_the_same(void **state)
{
    (void)state;
    assert_ptr_equal(op_find(NULL, "Relu"), op_find("ai.onnx", "Relu"));
    assert_ptr_equal(op_find("", "Relu"), op_find("ai.onnx", "Relu"));
    assert_null(op_find("com.example", "Relu"));
    assert_null(op_find("", "Rela"));
}

static void broadcast_rule_names_the_input_that_does_not_fit(void **state)
{
    struct tensor a = {.dtype = DTYPE_FLOAT, .shape = {2, {3, 4}}};
    struct tensor b = {.dtype = DTYPE_FLOAT, .shape = {1, {5}}};
    const struct tensor *in[] = {&a, &b};
    struct tensor out = {0}, *outs[] = {&out};
    struct op_call call = {.inputs = 2, .in = in, .outputs = 1, .out = outs};
    struct error err;

    (void)state;
    assert_int_equal(op_infer_broadcast(&call, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "[5]"));
    b.shape.dims[0] = 4;
    assert_int_equal(op_infer_broadcast(&call, &err), STATUS_OK);
    assert_int_equal(out.shape.rank, 2);
    b.dtype = DTYPE_DOUBLE;
    assert_int_equal(op_infer_broadcast(&call, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "double"));
}

static void ints_are_read_from_both_widths(void **state)
{
    int32_t narrow[] = {1, -2};
    int64_t wide[] = {3, -4}, values[2];
    struct tensor tensor = {.dtype = DTYPE_INT32, .shape = {1, {2}}, .data = narrow};
    size_t count;

    (void)state;
    assert_int_equal(op_read_ints(&tensor, "axes", 2, values, &count, NULL), STATUS_OK);
    assert_int_equal(count, 2);
    assert_int_equal(values[1], -2);
    tensor.dtype = DTYPE_INT64;
    tensor.data = wide;
    assert_int_equal(op_read_ints(&tensor, "axes", 2, values, &count, NULL), STATUS_OK);
    assert_int_equal(values[1], -4);
    assert_int_equal(op_read_ints(&tensor, "axes", 1, values, &count, NULL), STATUS_INVALID);
    tensor.data = NULL;
    assert_int_equal(op_read_ints(&tensor, "axes", 2, values, &count, NULL), STATUS_UNSUPPORTED);
}

/* Of shapes: x, w and what comes out. */
static uint64_t flops_of(const struct op_def *op, struct shape x, struct shape w,
                         struct shape other, struct shape out)
{
    struct tensor in[3] = {{.dtype = DTYPE_FLOAT, .shape = x},
                           {.dtype = DTYPE_FLOAT, .shape = w},
                           {.dtype = DTYPE_FLOAT, .shape = other}};
    struct tensor result = {.dtype = DTYPE_FLOAT, .shape = out};
    const struct tensor *ins[3] = {&in[0], &in[1], &in[2]};
    struct tensor *outs[1] = {&result};
    unsigned char attrs[1024] = {0};

    op_attrs_default(op, attrs);
    return op_flops(
        op, &(struct op_call){.attrs = attrs, .inputs = 3, .in = ins, .outputs = 1, .out = outs});
}

static void operations_are_counted_by_the_textbook(void **state)
{
    const struct shape none = {.rank = 0};

    (void)state;
    assert_int_equal(flops_of(&op_conv, (struct shape){4, {1, 8, 10, 10}},
                              (struct shape){4, {16, 8, 3, 3}}, none,
                              (struct shape){4, {1, 16, 8, 8}}),
                     2 * 16 * 8 * 8 * 8 * 9);
    assert_int_equal(flops_of(&op_conv_transpose, (struct shape){4, {1, 8, 10, 10}},
                              (struct shape){4, {8, 16, 2, 2}}, none,
                              (struct shape){4, {1, 16, 20, 20}}),
                     2 * 8 * 100 * 16 * 4);
    assert_int_equal(flops_of(&op_gemm, (struct shape){2, {5, 7}}, (struct shape){2, {7, 3}}, none,
                              (struct shape){2, {5, 3}}),
                     2 * 5 * 7 * 3);
    assert_int_equal(flops_of(&op_lstm, (struct shape){3, {6, 2, 10}},
                              (struct shape){3, {1, 32, 10}}, (struct shape){3, {1, 32, 8}},
                              (struct shape){4, {6, 1, 2, 8}}),
                     2 * 12 * 32 * 18);
    assert_int_equal(flops_of(&op_add, (struct shape){2, {5, 7}}, (struct shape){1, {7}}, none,
                              (struct shape){2, {5, 7}}),
                     35);
    assert_int_equal(
        flops_of(&op_reduce_sum, (struct shape){2, {5, 7}}, none, none, (struct shape){1, {5}}),
        35);
    assert_int_equal(
        flops_of(&op_transpose, (struct shape){2, {5, 7}}, none, none, (struct shape){2, {7, 5}}),
        0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_is_found_by_its_name),
        cmocka_unit_test(attributes_stay_inside_their_struct),
        cmocka_unit_test(both_spellings_of_the_standard_domain_mean_the_same),
        cmocka_unit_test(broadcast_rule_names_the_input_that_does_not_fit),
        cmocka_unit_test(ints_are_read_from_both_widths),
        cmocka_unit_test(operations_are_counted_by_the_textbook),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
