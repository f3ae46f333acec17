/* The wire forms of inference: what the decoders give, what they refuse, what the encoder writes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/grpc_service.pb-c.h"
#include "serve/codec/bytes.h"
#include "serve/codec/classification.h"
#include "serve/codec/infer_request.h"
#include "serve/codec/infer_response.h"
#include "serve/codec/json_infer.h"
#include "serve/endpoint.h"
#include "serve/lone_call.h"

static void pack(const Inference__ModelInferRequest *request)
{
    uint8_t bytes[4096];

    assert_true(inference__model_infer_request__get_packed_size(request) <= sizeof(bytes));
    give_body(bytes, inference__model_infer_request__pack(request, bytes));
}

struct built { /* a request of one input, to be changed by the tests */
    Inference__ModelInferRequest request;
    Inference__ModelInferRequest__InferInputTensor input, *inputs[1];
    Inference__InferTensorContents contents;
    ProtobufCBinaryData raw;
    int64_t shape[2];
};

static void build(struct built *built, const char *datatype)
{
    inference__model_infer_request__init(&built->request);
    inference__model_infer_request__infer_input_tensor__init(&built->input);
    inference__infer_tensor_contents__init(&built->contents);
    built->shape[0] = 1;
    built->shape[1] = 2;
    built->input.name = "x";
    built->input.datatype = (char *)(uintptr_t)datatype;
    built->input.shape = built->shape;
    built->input.n_shape = 2;
    built->inputs[0] = &built->input;
    built->request.model_name = "m";
    built->request.model_version = "3";
    built->request.id = "id7";
    built->request.inputs = built->inputs;
    built->request.n_inputs = 1;
}

static void give_raw(struct built *built, void *bytes, size_t size)
{
    built->raw = (ProtobufCBinaryData){size, bytes};
    built->request.raw_input_contents = &built->raw;
    built->request.n_raw_input_contents = 1;
}

static void raw_contents_are_found_where_they_are(void **state)
{
    float values[2] = {1, 2};
    struct built built;

    (void)state;
    build(&built, "FP32");
    give_raw(&built, values, sizeof(values));
    pack(&built.request);
    assert_int_equal(STATUS_OK, infer_request_decode(call, &err));
    assert_string_equal("m", call->infer->model_name);
    assert_string_equal("3", call->infer->model_version);
    assert_memory_equal("id7", call->infer->id.data, 3);
    assert_int_equal(1, call->infer->inputs);
    assert_int_equal(DTYPE_FLOAT, call->infer->in[0].dtype);
    assert_int_equal(2, call->infer->in[0].shape.dims[1]);
    assert_memory_equal(values, call->infer->in[0].data, sizeof(values));
    /* not copied: inside the body, where the prefix of the message says */
    assert_ptr_equal(call->infer->in[0].data,
                     call->body.bytes +
                         infer_request_raw_offset(call->body.bytes, call->body.received));
    assert_int_equal(0, infer_request_raw_offset(call->body.bytes, 10));
}

static void typed_contents_become_dense(void **state)
{
    int32_t small[] = {-3, 200};
    uint64_t wide[] = {UINT64_MAX, 1};
    float floats[] = {1.5f, -2};
    protobuf_c_boolean flags[] = {1, 0};
    struct built built;

    (void)state;
    build(&built, "INT16");
    built.input.contents = &built.contents;
    built.contents.int_contents = small;
    built.contents.n_int_contents = 2;
    pack(&built.request);
    assert_int_equal(STATUS_OK, infer_request_decode(call, &err));
    assert_memory_equal(((int16_t[]){-3, 200}), call->infer->in[0].data, 4);

    build(&built, "UINT64");
    built.input.contents = &built.contents;
    built.contents.uint64_contents = wide;
    built.contents.n_uint64_contents = 2;
    pack(&built.request);
    assert_int_equal(STATUS_OK, infer_request_decode(call, &err));
    assert_memory_equal(wide, call->infer->in[0].data, sizeof(wide));

    build(&built, "FP32");
    built.input.contents = &built.contents;
    built.contents.fp32_contents = floats;
    built.contents.n_fp32_contents = 2;
    pack(&built.request);
    assert_int_equal(STATUS_OK, infer_request_decode(call, &err));
    assert_memory_equal(floats, call->infer->in[0].data, sizeof(floats));

    build(&built, "BOOL");
    built.input.contents = &built.contents;
    built.contents.bool_contents = flags;
    built.contents.n_bool_contents = 2;
    pack(&built.request);
    assert_int_equal(STATUS_OK, infer_request_decode(call, &err));
    assert_memory_equal("\1\0", call->infer->in[0].data, 2);
}

static void contents_outside_their_type_are_refused(void **state)
{
    static const struct {
        const char *datatype;
        int32_t number;
    } cases[] = {{"INT8", 128},  {"INT8", -129}, {"INT16", 32768}, {"INT16", -32769},
                 {"UINT8", 256}, {"UINT8", -1},  {"UINT16", 65536}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t count = 1; count <= 2; count++) {
            int32_t numbers[] = {cases[i].number, 0};
            struct built built;

            build(&built, cases[i].datatype);
            built.input.contents = &built.contents;
            if (cases[i].datatype[0] == 'I') {
                built.contents.int_contents = numbers;
                built.contents.n_int_contents = count;
            } else {
                built.contents.uint_contents = (uint32_t *)numbers;
                built.contents.n_uint_contents = count;
            }
            pack(&built.request);
            assert_int_equal(STATUS_INVALID, infer_request_decode(call, &err));
        }
}

static void contents_of_another_type_are_refused(void **state)
{
    float floats[] = {1.5f, -2};
    struct built built;

    (void)state;
    build(&built, "INT32");
    built.input.contents = &built.contents;
    built.contents.fp32_contents = floats;
    built.contents.n_fp32_contents = 2;
    pack(&built.request);
    assert_int_equal(STATUS_INVALID, infer_request_decode(call, &err));
    build(&built, "FP16");
    built.input.contents = &built.contents;
    built.contents.fp32_contents = floats;
    built.contents.n_fp32_contents = 2;
    pack(&built.request);
    assert_int_equal(STATUS_INVALID, infer_request_decode(call, &err));
}

static void contents_beside_raw_ones_are_refused(void **state)
{
    float floats[] = {1.5f, -2};
    struct built built;

    (void)state;
    build(&built, "FP32");
    built.input.contents = &built.contents;
    built.contents.fp32_contents = floats;
    built.contents.n_fp32_contents = 2;
    give_raw(&built, floats, sizeof(floats));
    pack(&built.request);
    assert_int_equal(STATUS_INVALID, infer_request_decode(call, &err));
    assert_non_null(strstr(err.text, "contents field must not be specified"));
}

static void surplus_raw_contents_are_refused(void **state)
{
    float floats[] = {1.5f, -2};
    struct built built;

    (void)state;
    build(&built, "FP32");
    give_raw(&built, floats, sizeof(floats));
    built.request.n_inputs = 0;
    pack(&built.request);
    assert_int_equal(STATUS_INVALID, infer_request_decode(call, &err));
}

static void every_cut_of_a_request_is_an_error_or_a_request(void **state)
{
    float floats[] = {1.5f, -2};
    uint8_t whole[512];
    struct built built;
    size_t size;

    (void)state;
    build(&built, "FP32");
    give_raw(&built, floats, sizeof(floats));
    size = inference__model_infer_request__pack(&built.request, whole);
    for (size_t cut = 0; cut < size; cut++) {
        give_body(whole, cut);
        (void)!infer_request_decode(call, &err);
        (void)infer_request_raw_offset(whole, cut);
    }
}

static void hostile_counts_are_refused_before_memory_is_taken(void **state)
{
    static uint8_t bytes[64 << 10];

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i += 2)
        memcpy(bytes + i, "\x2a\0", 2); /* an empty input each */
    give_body(bytes, sizeof(bytes));
    assert_int_equal(STATUS_INVALID, infer_request_decode(call, &err));
}

static void strings_are_split_by_their_lengths(void **state)
{
    static const uint8_t raw[] = "\2\0\0\0ab\0\0\0\0";
    struct infer_input input = {
        .dtype = DTYPE_STRING, .shape = {1, {2}}, .data = raw, .bytes = 10, .name = {"x", 1}};
    struct infer_input cut = input, surplus = input;
    const struct bytes *elements;
    struct piece again;

    (void)state;
    assert_int_equal(STATUS_OK, bytes_decode(call, &input, "m", &err));
    elements = (const void *)input.data;
    assert_int_equal(2, elements[0].size);
    assert_memory_equal("ab", elements[0].data, 2);
    assert_int_equal(0, elements[1].size);
    assert_int_equal(STATUS_OK, bytes_encode(call, elements, 2, &again));
    assert_int_equal(10, again.size);
    assert_memory_equal(raw, again.data, 10);
    cut.bytes = 9;
    assert_int_equal(STATUS_INVALID, bytes_decode(call, &cut, "m", &err));
    surplus.shape.dims[0] = 1;
    assert_int_equal(STATUS_INVALID, bytes_decode(call, &surplus, "m", &err));
    surplus.shape.dims[0] = INT64_C(1) << 40;
    assert_int_equal(STATUS_INVALID, bytes_decode(call, &surplus, "m", &err));
}

static enum status decode_json(const char *json, int json_size)
{
    give_body(json, strlen(json));
    call->is_rest = false; /* `message` is not ours to free */
    call->path[0] = (struct slice){"m", 1};
    call->has_json_size = json_size >= 0;
    call->json_size = json_size >= 0 ? (uint64_t)json_size : 0;
    return json_infer_decode(call, &err);
}

static void json_members_may_come_in_any_order(void **state)
{
    static const int64_t expected[] = {1, -2};

    (void)state;
    assert_int_equal(STATUS_OK,
                     decode_json("{\"outputs\":[{\"parameters\":{\"classification\":3},\"name\":"
                                 "\"y\"}],\"inputs\":[{\"data\":[[1],[-2]],\"shape\":[2,1],"
                                 "\"x\":{\"y\":[]},\"datatype\":\"INT64\",\"name\":\"a\"}],"
                                 "\"parameters\":{\"priority\":2,\"timeout\":5},\"id\":\"q\"}",
                                 -1));
    assert_memory_equal(expected, call->infer->in[0].data, sizeof(expected));
    assert_int_equal(3, call->infer->out[0].classes);
    assert_int_equal(2, call->infer->priority);
    assert_int_equal(5, call->infer->timeout_us);
    assert_memory_equal("q", call->infer->id.data, 1);
}

static void binary_tensors_stand_behind_the_json(void **state)
{
    static const char json[] =
        "{\"inputs\":[{\"name\":\"a\",\"datatype\":\"UINT8\",\"shape\":[3],\"parameters\":{"
        "\"binary_data_size\":3}},{\"name\":\"b\",\"datatype\":\"UINT8\",\"shape\":[1],"
        "\"data\":[9]},{\"name\":\"c\",\"datatype\":\"UINT8\",\"shape\":[1],\"parameters\":{"
        "\"binary_data_size\":1}}]}";
    char body[512];

    (void)state;
    (void)snprintf(body, sizeof(body), "%sxyzw", json);
    assert_int_equal(STATUS_OK, decode_json(body, (int)strlen(json)));
    assert_memory_equal("xyz", call->infer->in[0].data, 3);
    assert_memory_equal("\x09", call->infer->in[1].data, 1);
    assert_memory_equal("w", call->infer->in[2].data, 1);
    (void)snprintf(body, sizeof(body), "%sxyzwv", json);
    assert_int_equal(STATUS_INVALID, decode_json(body, (int)strlen(json)));
    (void)snprintf(body, sizeof(body), "%sxyz", json);
    assert_int_equal(STATUS_INVALID, decode_json(body, (int)strlen(json)));
    assert_int_equal(STATUS_INVALID, decode_json(body, 4000));
}

static void json_that_claims_more_than_it_has_is_refused(void **state)
{
    (void)state;
    assert_int_equal(STATUS_INVALID,
                     decode_json("{\"inputs\":[{\"name\":\"a\",\"datatype\":\"UINT8\",\"shape\":"
                                 "[1000000000],\"data\":[1]}]}",
                                 -1));
    assert_int_equal(STATUS_INVALID,
                     decode_json("{\"inputs\":[{\"name\":\"a\",\"datatype\":\"UINT8\",\"shape\":"
                                 "[2],\"data\":[1]}]}",
                                 -1));
    assert_int_equal(
        STATUS_INVALID,
        decode_json("{\"inputs\":[{\"name\":\"a\",\"datatype\":\"U\",\"shape\":[]}]}", -1));
    assert_int_equal(STATUS_INVALID, decode_json("{\"inputs\":[{}]}", -1));
    assert_int_equal(STATUS_INVALID, decode_json("{\"inputs\":[{\"name\":\"a\"", -1));
}

/* The bytes of the first would be taken for what the second says. */
static void an_input_that_says_a_thing_twice_is_refused(void **state)
{
    static const char *const inputs[] = {
        "\"datatype\":\"INT64\",\"shape\":[2],\"data\":[4096,8],\"datatype\":\"BYTES\",\"shape\":["
        "1]",
        "\"datatype\":\"BYTES\",\"shape\":[1],\"data\":[\"t\"],\"datatype\":\"INT64\"",
        "\"datatype\":\"INT64\",\"shape\":[2],\"data\":[1,2],\"shape\":[1]",
        "\"datatype\":\"INT64\",\"shape\":[1],\"data\":[1],\"data\":[2]",
        "\"data\":[1],\"data\":[2],\"datatype\":\"INT64\",\"shape\":[1]",
        "\"datatype\":\"INT64\",\"shape\":[1],\"data\":[1],\"name\":\"b\"",
        "\"datatype\":\"INT64\",\"shape\":[0],\"parameters\":{\"binary_data_size\":0},"
        "\"parameters\":{}",
    };
    char json[512];

    (void)state;
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        (void)snprintf(json, sizeof(json), "{\"inputs\":[{\"name\":\"a\",%s}]}", inputs[i]);
        assert_int_equal(STATUS_INVALID, decode_json(json, -1));
        assert_non_null(strstr(err.text, "twice"));
    }
}

static void answers_are_what_protobuf_reads(void **state)
{
    struct infer_message message = {.id = {"id7", 3}};
    float values[3] = {1, 2, 3};
    struct response_tensor tensors[2] = {
        {.name = "a", .dtype = DTYPE_FLOAT, .shape = {2, {1, 3}}, .raw = {values, 12}},
        {.name = "b", .dtype = DTYPE_INT8, .shape = {1, {0}}},
    };
    Inference__ModelInferResponse *read;
    struct piece *pieces;
    uint8_t whole[512];
    size_t count, size = 0;

    (void)state;
    call->model = &fake.models[0];
    call->infer = &message;
    assert_int_equal(STATUS_OK, infer_response_encode(call, tensors, 2, &pieces, &count));
    for (size_t i = 0; i < count; size += pieces[i++].size)
        if (pieces[i].size > 0)
            memcpy(whole + size, pieces[i].data, pieces[i].size);
    assert_ptr_equal(values, pieces[1].data); /* by reference */
    read = inference__model_infer_response__unpack(NULL, size, whole);
    assert_non_null(read);
    assert_string_equal("ident", read->model_name);
    assert_string_equal("id7", read->id);
    assert_int_equal(2, read->n_outputs);
    assert_int_equal(2, read->n_raw_output_contents); /* an empty one too */
    assert_int_equal(12, read->raw_output_contents[0].len);
    assert_int_equal(0, read->raw_output_contents[1].len);
    assert_int_equal(3, read->outputs[0]->shape[1]);
    inference__model_infer_response__free_unpacked(read, NULL);
}

static void the_best_classes_come_first(void **state)
{
    float values[] = {0.1f, 0.7f, 0.2f, 5, 5, 1};
    static const char *const labels[] = {"cat", "dog"};
    struct model_port port = {.name = "y", .dtype = DTYPE_FLOAT, .labels = 2, .label = labels};
    struct response_tensor tensor = {
        .name = "y", .dtype = DTYPE_FLOAT, .shape = {2, {2, 3}}, .raw = {values, 24}};

    (void)state;
    assert_int_equal(STATUS_OK, classify(call, &port, true, 2, &tensor, &err));
    assert_int_equal(DTYPE_STRING, tensor.dtype);
    assert_int_equal(2, tensor.shape.rank);
    assert_int_equal(2, tensor.shape.dims[1]);
    assert_memory_equal("0.700000:1:dog", tensor.elements[0].data, 14);
    assert_memory_equal("0.200000:2", tensor.elements[1].data, 10);
    assert_memory_equal("5.000000:0:cat", tensor.elements[2].data, 14); /* equal: the earlier */
    assert_memory_equal("5.000000:1:dog", tensor.elements[3].data, 14);
}

/* Beyond 2^53 neighbours are one double. */
static void classes_of_64_bits_are_told_apart_and_written_exactly(void **state)
{
    int64_t values[] = {INT64_C(9007199254740992), INT64_C(9007199254740993), -1, INT64_MIN};
    uint64_t large[] = {UINT64_MAX - 1, UINT64_MAX, 0, UINT64_C(1) << 63};
    struct model_port port = {.name = "y", .dtype = DTYPE_INT64};
    struct response_tensor tensor = {
        .name = "y", .dtype = DTYPE_INT64, .shape = {2, {1, 4}}, .raw = {values, 32}};
    struct response_tensor other = {
        .name = "y", .dtype = DTYPE_UINT64, .shape = {2, {1, 4}}, .raw = {large, 32}};

    (void)state;
    assert_int_equal(STATUS_OK, classify(call, &port, true, 4, &tensor, &err));
    assert_memory_equal("9007199254740993:1", tensor.elements[0].data, 18);
    assert_memory_equal("9007199254740992:0", tensor.elements[1].data, 18);
    assert_memory_equal("-1:2", tensor.elements[2].data, 4);
    assert_memory_equal("-9223372036854775808:3", tensor.elements[3].data, 22);
    port.dtype = DTYPE_UINT64;
    assert_int_equal(STATUS_OK, classify(call, &port, true, 4, &other, &err));
    assert_memory_equal("18446744073709551615:1", other.elements[0].data, 22);
    assert_memory_equal("18446744073709551614:0", other.elements[1].data, 22);
    assert_memory_equal("9223372036854775808:3", other.elements[2].data, 21);
    assert_memory_equal("0:2", other.elements[3].data, 3);
}

static void every_endpoint_has_a_unique_path_and_every_route_a_field_for_its_variables(void **state)
{
    const struct endpoint *const *endpoints;
    const struct route *routes;
    size_t count;

    (void)state;
    endpoints = endpoint_table(&count);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            assert_true(endpoints[i]->path == NULL || endpoints[k]->path == NULL ||
                        strcmp(endpoints[i]->path, endpoints[k]->path) != 0);
    routes = route_table(&count);
    for (size_t i = 0; i < count; i++) {
        const char *open = strchr(routes[i].pattern, '{');

        for (; open != NULL; open = strchr(open + 1, '{')) {
            char name[64];

            (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(open + 1, "}"), open + 1);
            if (routes[i].endpoint->request != NULL)
                assert_non_null(protobuf_c_message_descriptor_get_field_by_name(
                    routes[i].endpoint->request, name));
        }
    }
}

static void a_path_is_not_over_at_a_nul(void **state)
{
    static const char path[512] = "/grpc.health.v1.Health/Check";

    (void)state;
    assert_ptr_equal(&endpoint_health_check, endpoint_find(ROLE_GRPC, path, strlen(path)));
    assert_null(endpoint_find(ROLE_GRPC, path, sizeof(path)));
    assert_null(endpoint_find(ROLE_GRPC, path, strlen(path) - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(raw_contents_are_found_where_they_are),
        TEST(typed_contents_become_dense),
        TEST(contents_outside_their_type_are_refused),
        TEST(contents_of_another_type_are_refused),
        TEST(contents_beside_raw_ones_are_refused),
        TEST(surplus_raw_contents_are_refused),
        TEST(every_cut_of_a_request_is_an_error_or_a_request),
        TEST(hostile_counts_are_refused_before_memory_is_taken),
        TEST(strings_are_split_by_their_lengths),
        TEST(json_members_may_come_in_any_order),
        TEST(binary_tensors_stand_behind_the_json),
        TEST(json_that_claims_more_than_it_has_is_refused),
        TEST(an_input_that_says_a_thing_twice_is_refused),
        TEST(answers_are_what_protobuf_reads),
        TEST(the_best_classes_come_first),
        TEST(classes_of_64_bits_are_told_apart_and_written_exactly),
        cmocka_unit_test(
            every_endpoint_has_a_unique_path_and_every_route_a_field_for_its_variables),
        cmocka_unit_test(a_path_is_not_over_at_a_nul),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    host_pool_destroy(fake.pool);
    ledger_destroy(fake.ledger);
    return failed;
}
