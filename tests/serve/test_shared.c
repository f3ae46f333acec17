/* Tensors in shared memory on the wire: parameters read and written, handles as text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/grpc_service.pb-c.h"
#include "serve/codec/base64.h"
#include "serve/codec/infer_request.h"
#include "serve/codec/infer_response.h"
#include "serve/codec/json_infer.h"
#include "serve/lone_call.h"

typedef Inference__ModelInferRequest__InferInputTensor__ParametersEntry input_entry;
typedef Inference__ModelInferRequest__InferRequestedOutputTensor__ParametersEntry output_entry;

/* A request of one input and one output, each with the parameters given: a text where `text` is
 * not NULL, else a number. */
struct parameter {
    const char *key;
    char *text;
    int64_t number;
};

static enum status decode(const struct parameter *in, size_t ins, const struct parameter *out,
                          size_t outs, bool has_raw)
{
    Inference__ModelInferRequest request = INFERENCE__MODEL_INFER_REQUEST__INIT;
    Inference__ModelInferRequest__InferInputTensor input, *inputs[] = {&input};
    Inference__ModelInferRequest__InferRequestedOutputTensor output, *outputs[] = {&output};
    Inference__InferParameter value[8];
    input_entry in_entry[4], *in_list[4];
    output_entry out_entry[4], *out_list[4];
    int64_t shape[] = {1, 2};
    ProtobufCBinaryData raw = {8, (uint8_t *)"12345678"};
    uint8_t bytes[1024];

    inference__model_infer_request__infer_input_tensor__init(&input);
    inference__model_infer_request__infer_requested_output_tensor__init(&output);
    for (size_t i = 0; i < ins + outs; i++) {
        const struct parameter *from = i < ins ? &in[i] : &out[i - ins];

        inference__infer_parameter__init(&value[i]);
        value[i].parameter_choice_case =
            from->text != NULL ? INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM
                               : INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
        if (from->text != NULL)
            value[i].string_param = from->text;
        else
            value[i].int64_param = from->number;
        if (i < ins) {
            inference__model_infer_request__infer_input_tensor__parameters_entry__init(
                &in_entry[i]);
            in_entry[i].key = (char *)(uintptr_t)from->key;
            in_entry[i].value = &value[i];
            in_list[i] = &in_entry[i];
        } else {
            inference__model_infer_request__infer_requested_output_tensor__parameters_entry__init(
                &out_entry[i - ins]);
            out_entry[i - ins].key = (char *)(uintptr_t)from->key;
            out_entry[i - ins].value = &value[i];
            out_list[i - ins] = &out_entry[i - ins];
        }
    }
    input.name = "x";
    input.datatype = "FP32";
    input.shape = shape;
    input.n_shape = 2;
    input.parameters = in_list;
    input.n_parameters = ins;
    output.name = "y";
    output.parameters = out_list;
    output.n_parameters = outs;
    request.model_name = "m";
    request.inputs = inputs;
    request.n_inputs = 1;
    request.outputs = outputs;
    request.n_outputs = 1;
    request.raw_input_contents = &raw;
    request.n_raw_input_contents = has_raw;
    assert_true(inference__model_infer_request__get_packed_size(&request) <= sizeof(bytes));
    give_body(bytes, inference__model_infer_request__pack(&request, bytes));
    return infer_request_decode(call, &err);
}

static void places_of_tensors_are_read(void **state)
{
    static const struct parameter in[] = {{"shared_memory_region", "r", 0},
                                          {"shared_memory_byte_size", NULL, 8},
                                          {"shared_memory_offset", NULL, 64}};
    const struct shared_wish *wish;

    (void)state;
    assert_int_equal(STATUS_OK, decode(in, 3, in, 2, false));
    wish = &call->infer->in[0].shared;
    assert_true(wish->is_given && wish->region.size == 1 && wish->region.data[0] == 'r');
    assert_int_equal(8, wish->bytes);
    assert_int_equal(64, wish->offset);
    assert_false(call->infer->in[0].has_data);
    wish = &call->infer->out[0].shared;
    assert_true(wish->is_given && wish->bytes == 8 && wish->offset == 0);
}

static void half_a_place_is_refused(void **state)
{
    static const struct parameter region = {"shared_memory_region", "r", 0},
                                  size = {"shared_memory_byte_size", NULL, 8},
                                  offset = {"shared_memory_offset", NULL, 0};

    (void)state;
    assert_int_equal(STATUS_INVALID, decode(&region, 1, NULL, 0, false));
    assert_int_equal(STATUS_INVALID, decode(&size, 1, NULL, 0, true));
    assert_int_equal(STATUS_INVALID, decode(&offset, 1, NULL, 0, true));
    assert_int_equal(STATUS_INVALID, decode(NULL, 0, &region, 1, true));
    assert_non_null(strstr(err.text, "output 'y' in shared memory needs both"));
    assert_int_equal(STATUS_INVALID, decode(NULL, 0, &size, 1, true));
}

static void parameters_of_another_kind_are_refused(void **state)
{
    static const struct parameter wrong[][3] = {
        {{"shared_memory_region", NULL, 5}, {"shared_memory_byte_size", NULL, 8}},
        {{"shared_memory_region", "r", 0}, {"shared_memory_byte_size", "8", 0}},
        {{"shared_memory_region", "r", 0}, {"shared_memory_byte_size", NULL, -8}},
        {{"shared_memory_region", "r", 0}, {"shared_memory_offset", NULL, INT64_MIN}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(STATUS_INVALID, decode(wrong[i], 2, NULL, 0, false));
        assert_non_null(strstr(err.text, "parameter of input"));
    }
}

static void raw_contents_pass_over_what_lies_in_shared_memory(void **state)
{
    static const struct parameter in[] = {{"shared_memory_region", "r", 0},
                                          {"shared_memory_byte_size", NULL, 8}};

    (void)state;
    assert_int_equal(STATUS_OK, decode(NULL, 0, in, 2, true));
    assert_true(call->infer->in[0].has_data);
    assert_int_equal(STATUS_INVALID, decode(in, 2, NULL, 0, true)); /* one block too many */
}

static enum status decode_json(const char *json)
{
    give_body(json, strlen(json));
    call->path[0] = (struct slice){"m", 1};
    return json_infer_decode(call, &err);
}

static void places_are_read_from_json(void **state)
{
    (void)state;
    assert_int_equal(
        STATUS_OK,
        decode_json(
            "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,2],"
            "\"parameters\":{\"shared_memory_offset\":64,\"shared_memory_region\":\"\\u0072\","
            "\"shared_memory_byte_size\":8}}],\"outputs\":[{\"name\":\"y\",\"parameters\":{"
            "\"shared_memory_region\":\"s\",\"shared_memory_byte_size\":9}}]}"));
    assert_int_equal(64, call->infer->in[0].shared.offset);
    assert_memory_equal("r", call->infer->in[0].shared.region.data, 1);
    assert_int_equal(9, call->infer->out[0].shared.bytes);
    assert_int_equal(STATUS_INVALID,
                     decode_json("{\"inputs\":[],\"outputs\":[{\"name\":\"y\",\"parameters\":{"
                                 "\"shared_memory_byte_size\":true}}]}"));
}

static void answers_say_where_tensors_lie(void **state)
{
    struct infer_message message = {0};
    struct shared_wish wish = {
        .is_given = true, .region = {"region", 6}, .offset = 1 << 20, .bytes = 300};
    struct response_tensor tensor = {
        .name = "a", .dtype = DTYPE_FLOAT, .shape = {2, {1, 75}}, .shared = &wish};
    const char json[] = "\"shape\":[1,75],\"parameters\":{\"shared_memory_region\":\"region\","
                        "\"shared_memory_offset\":1048576,\"shared_memory_byte_size\":300}}]}";
    Inference__ModelInferResponse *read;
    Inference__ModelInferResponse__InferOutputTensor *output;
    struct piece *pieces;
    uint8_t whole[512];
    size_t count, size = 0;

    (void)state;
    call->model = &fake.models[0];
    call->infer = &message;
    assert_int_equal(STATUS_OK, infer_response_encode(call, &tensor, 1, &pieces, &count));
    for (size_t i = 0; i < count; size += pieces[i++].size)
        if (pieces[i].size > 0)
            memcpy(whole + size, pieces[i].data, pieces[i].size);
    read = inference__model_infer_response__unpack(NULL, size, whole);
    assert_non_null(read);
    assert_int_equal(1, read->n_raw_output_contents);
    assert_int_equal(0, read->raw_output_contents[0].len);
    output = read->outputs[0];
    assert_int_equal(3, output->n_parameters);
    assert_string_equal("shared_memory_region", output->parameters[0]->key);
    assert_string_equal("region", output->parameters[0]->value->string_param);
    assert_int_equal(300, output->parameters[1]->value->int64_param);
    assert_int_equal(1 << 20, output->parameters[2]->value->int64_param);
    inference__model_infer_response__free_unpacked(read, NULL);

    assert_int_equal(STATUS_OK, json_infer_encode(call, &tensor, 1, &err));
    assert_true(call->reply.size > sizeof(json));
    assert_memory_equal(
        json, (const char *)call->reply.pieces[0].data + call->reply.pieces[0].size - strlen(json),
        strlen(json));
}

static void handles_are_read_from_base64(void **state)
{
    static const char *const wrong[] = {
        "A", "AB", "ABC", "AB==C", "A===", "AB=C", "A\nBC", "AC==", "AAAAAAAAAAAA"};
    uint8_t bytes[8];
    size_t size;

    (void)state;
    assert_true(base64_decode("", 0, bytes, 8, &size) && size == 0);
    assert_true(base64_decode("AP+/Zm9v", 8, bytes, 8, &size) && size == 6);
    assert_memory_equal("\x00\xff\xbf"
                        "foo",
                        bytes, 6);
    assert_true(base64_decode("Zm8=", 4, bytes, 8, &size) && size == 2);
    assert_true(base64_decode("Zg==", 4, bytes, 8, &size) && size == 1);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(base64_decode(wrong[i], strlen(wrong[i]), bytes, 8, &size));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(places_of_tensors_are_read),
        TEST(half_a_place_is_refused),
        TEST(parameters_of_another_kind_are_refused),
        TEST(raw_contents_pass_over_what_lies_in_shared_memory),
        TEST(places_are_read_from_json),
        TEST(answers_say_where_tensors_lie),
        TEST(handles_are_read_from_base64),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
