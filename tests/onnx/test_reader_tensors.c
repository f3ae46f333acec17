/* Constants: in the fields of a tensor, as raw bytes, in files beside the model. */
#include "onnx/reads.h"

static struct message typed_tensor(int type, unsigned field, size_t count, const int64_t *values)
{
    struct message tensor = {0}, packed = {0};

    put_int(&tensor, TENSOR_DIM, (int64_t)count);
    put_int(&tensor, TENSOR_TYPE, type);
    for (size_t i = 0; i < count; i++)
        put_varint(&packed, (uint64_t)values[i]);
    put(&tensor, field, &packed);
    return tensor;
}

static struct constant *read_tensor(const struct message *message)
{
    struct constant *constant = NULL;
    struct error err;

    if (onnx_read_tensor(message->bytes, message->size, &constant, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return constant;
}

static void expect_tensor_refused(const struct message *message, const char *words)
{
    struct constant *constant = NULL;
    struct error err;

    assert_int_not_equal(onnx_read_tensor(message->bytes, message->size, &constant, &err),
                         STATUS_OK);
    assert_null(constant);
    if (strstr(err.text, words) == NULL)
        fail_msg("'%s' has no '%s'", err.text, words);
}

static void typed_fields_are_converted(void **state)
{
    struct message tensor = typed_tensor(3, TENSOR_INT32, 3, (const int64_t[]){-128, 0, 127});
    struct constant *constant = read_tensor(&tensor);
    const int8_t *bytes = constant->tensor.data;

    (void)state;
    assert_true(bytes[0] == -128 && bytes[1] == 0 && bytes[2] == 127);
    constant_unref(constant);

    tensor = typed_tensor(7, TENSOR_INT64, 2, (const int64_t[]){INT64_MIN, -1});
    constant = read_tensor(&tensor);
    assert_true(((const int64_t *)constant->tensor.data)[0] == INT64_MIN);
    assert_true(((const int64_t *)constant->tensor.data)[1] == -1);
    constant_unref(constant);

    tensor = typed_tensor(10, TENSOR_INT32, 1, (const int64_t[]){0x3c00});
    constant = read_tensor(&tensor);
    assert_true(float_from_half(*(const uint16_t *)constant->tensor.data) == 1);
    constant_unref(constant);
}

static void values_outside_of_the_type_are_refused(void **state)
{
    struct message tensor = typed_tensor(3, TENSOR_INT32, 1, (const int64_t[]){128});

    (void)state;
    expect_tensor_refused(&tensor, "is no int8");
    tensor = typed_tensor(9, TENSOR_INT32, 1, (const int64_t[]){2});
    expect_tensor_refused(&tensor, "is no bool");
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    struct message tensor = typed_tensor(6, TENSOR_INT32, 3, (const int64_t[]){1, 2, 3});
    struct message graph = x_to_y();

    (void)state;
    put_int(&tensor, TENSOR_DIM, 2);
    expect_tensor_refused(&tensor, "its shape has 6");
    put_tensor(&graph, GRAPH_TENSOR, "w", 1, 1, (const int64_t[]){3}, numbers, sizeof(numbers));
    put_node(&graph, "Add", "x w", "y");
    expect_graph_refused(&graph, STATUS_INVALID, "8 bytes of data, its shape needs 12");
}

static void absurd_shapes_are_refused(void **state)
{
    static const int64_t shapes[][3] = {{-1, 1, 1},
                                        {INT64_MAX, 2, 2},
                                        {INT64_C(1) << 40, INT64_C(1) << 40, 0x7f},
                                        {INT64_MIN, 1, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct message graph = x_to_y();

        put_tensor(&graph, GRAPH_TENSOR, "w", 1, 3, shapes[i], numbers, sizeof(numbers));
        put_node(&graph, "Add", "x w", "y");
        expect_graph_refused(&graph, STATUS_INVALID, "is impossible");
    }
}

static void an_input_without_a_shape_is_refused(void **state)
{
    struct message graph = {0};

    (void)state;
    put_node(&graph, "Relu", "x", "y");
    put_port(&graph, GRAPH_INPUT, "x", 1, SIZE_MAX, NULL);
    put_port(&graph, GRAPH_OUTPUT, "y", 1, SIZE_MAX, NULL);
    expect_graph_refused(&graph, STATUS_UNSUPPORTED, "input 'x' has no shape");
}

static void unknown_element_types_are_refused_by_number(void **state)
{
    struct message graph = x_to_y();

    (void)state;
    put_tensor(&graph, GRAPH_TENSOR, "w", 17, 1, two, numbers, 2);
    put_node(&graph, "Relu", "x", "y");
    expect_graph_refused(&graph, STATUS_UNSUPPORTED, "element type 17");
}

/* --- external data ------------------------------------------------------------------------------
 */

static char folder[] = "/tmp/sluice-onnx-XXXXXX";

static int make_folder(void **state)
{
    char path[256];
    FILE *file;

    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    (void)snprintf(path, sizeof(path), "%s/weights.bin", folder);
    file = fopen(path, "wb");
    if (file == NULL)
        return -1;
    for (int i = 0; i < 16; i++)
        (void)fwrite(numbers, 1, sizeof(numbers), file);
    (void)fclose(file);
    (void)snprintf(path, sizeof(path), "%s/link", folder);
    return symlink("/etc/hostname", path);
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"weights.bin", "link", "model.onnx", NULL};
    char path[256];

    (void)state;
    for (size_t i = 0; names[i] != NULL; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    return rmdir(folder);
}

static void put_entry(struct message *tensor, const char *key, const char *value)
{
    struct message entry = {0};

    put_text(&entry, 1, key);
    put_text(&entry, 2, value);
    put(tensor, TENSOR_EXTERNAL, &entry);
}

static struct message external_model(const char *location, const char *offset, const char *length)
{
    struct message tensor = {0}, graph = x_to_y();

    put_int(&tensor, TENSOR_DIM, 2);
    put_int(&tensor, TENSOR_TYPE, 1);
    put_text(&tensor, TENSOR_NAME, "w");
    put_entry(&tensor, "location", location);
    if (offset != NULL)
        put_entry(&tensor, "offset", offset);
    if (length != NULL)
        put_entry(&tensor, "length", length);
    put_int(&tensor, TENSOR_LOCATION, 1);
    put(&graph, GRAPH_TENSOR, &tensor);
    put_node(&graph, "Add", "x w", "y");
    return model(13, &graph);
}

static struct result read_from_file(const struct message *model)
{
    struct result result = {0};
    char path[256];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/model.onnx", folder);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(model->bytes, 1, model->size, file), model->size);
    assert_int_equal(fclose(file), 0);
    result.status = onnx_read_file(path, &result.graph, &result.info, &result.err);
    return result;
}

static void external_data_is_found_beside_the_model(void **state)
{
    struct message message = external_model("weights.bin", "64", "8");
    struct result result = read_from_file(&message);
    const struct constant *constant;

    (void)state;
    expect_ok(&result);
    constant = nth_node(result.graph, 0)->in[1]->constant;
    assert_memory_equal(constant->tensor.data, numbers, sizeof(numbers));
    done(&result);
}

static void external_data_need_not_be_aligned(void **state)
{
    struct message message = external_model("weights.bin", "7", NULL);
    struct result result = read_from_file(&message);

    (void)state;
    expect_ok(&result);
    assert_int_equal(tensor_bytes(&nth_node(result.graph, 0)->in[1]->constant->tensor), 8);
    done(&result);
}

static void external_data_stays_within_its_file(void **state)
{
    static const struct {
        const char *offset, *length, *words;
    } wrong[] = {
        {"124", "8", "lies outside"},       {"999999999999999999", "8", "lies outside"},
        {"0", "4", "its shape needs 8"},    {"-8", "8", "no number of bytes"},
        {"8x", NULL, "no number of bytes"}, {"18446744073709551608", "8", "no number of bytes"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct message message = external_model("weights.bin", wrong[i].offset, wrong[i].length);
        struct result result = read_from_file(&message);

        assert_int_equal(result.status, STATUS_INVALID);
        if (strstr(result.err.text, wrong[i].words) == NULL)
            fail_msg("'%s' has no '%s'", result.err.text, wrong[i].words);
    }
}

static void external_data_stays_within_the_folder(void **state)
{
    static const char *const paths[] = {"/etc/hostname", "../hostname", "a/../../b", "..",
                                        "link",          "./../x"};

    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        struct message message = external_model(paths[i], NULL, NULL);
        struct result result = read_from_file(&message);

        assert_int_equal(result.status, STATUS_DENIED);
        assert_non_null(strstr(result.err.text, "outside of the model's folder"));
    }
}

static void external_data_without_a_folder_is_refused(void **state)
{
    struct message message = external_model("weights.bin", NULL, NULL);

    (void)state;
    expect_refused(&message, STATUS_INVALID, "no folder");
}

static void missing_files_are_said_to_be_missing(void **state)
{
    struct message message = external_model("nothing.bin", NULL, NULL);
    struct result result = read_from_file(&message);
    struct graph *graph = NULL;

    (void)state;
    assert_int_equal(result.status, STATUS_NOT_FOUND);
    assert_int_equal(onnx_read_file("/nowhere/model.onnx", &graph, NULL, &result.err),
                     STATUS_NOT_FOUND);
    assert_int_equal(onnx_read_file("/tmp", &graph, NULL, &result.err), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(typed_fields_are_converted),
        cmocka_unit_test(values_outside_of_the_type_are_refused),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(absurd_shapes_are_refused),
        cmocka_unit_test(an_input_without_a_shape_is_refused),
        cmocka_unit_test(unknown_element_types_are_refused_by_number),
        cmocka_unit_test(external_data_is_found_beside_the_model),
        cmocka_unit_test(external_data_need_not_be_aligned),
        cmocka_unit_test(external_data_stays_within_its_file),
        cmocka_unit_test(external_data_stays_within_the_folder),
        cmocka_unit_test(external_data_without_a_folder_is_refused),
        cmocka_unit_test(missing_files_are_said_to_be_missing),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
