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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_is_found_by_its_name),
        cmocka_unit_test(attributes_stay_inside_their_struct),
        cmocka_unit_test(both_spellings_of_the_standard_domain_mean_the_same),
        cmocka_unit_test(broadcast_rule_names_the_input_that_does_not_fit),
        cmocka_unit_test(ints_are_read_from_both_widths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
