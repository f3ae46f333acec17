#include "support/unit.h"

#include <string.h>

#include <poll.h>
#include <stdlib.h>

#include <sluice/sluice.h>

#include "client/fake_server.h"
#include "wire.h"

static const float elements[] = {1, 2, 3, 4};
static const struct sluice_tensor input = {.name = "x",
                                           .datatype = "FP32",
                                           .rank = 2,
                                           .shape = {2, 2},
                                           .data = elements,
                                           .bytes = sizeof(elements)};
static const struct sluice_infer_request request = {
    .model = "m", .version = "3", .id = "abc", .inputs = 1, .input = &input, .priority = 2};

static struct sluice_client *open_client(struct fake_server *server)
{
    struct sluice_client *client;

    assert_int_equal(sluice_open(fake_server_address(server), &client, NULL), SLUICE_OK);
    return client;
}

/* A ModelInferResponse with one output 'y' FP32 [4] and its raw bytes. */
static size_t make_reply(unsigned char *to)
{
    struct wire_writer tensor = {NULL, 0}, reply = {to, 0};

    wire_put_text(&tensor, 1, "y");
    wire_put_text(&tensor, 2, "FP32");
    wire_put_tag(&tensor, 3, WIRE_VARINT);
    wire_put_varint(&tensor, 4);
    wire_put_text(&reply, 1, "m");
    wire_put_text(&reply, 2, "3");
    wire_put_length(&reply, 5, tensor.bytes);
    wire_put_text(&reply, 1, "y");
    wire_put_text(&reply, 2, "FP32");
    wire_put_tag(&reply, 3, WIRE_VARINT);
    wire_put_varint(&reply, 4);
    wire_put_length(&reply, 6, sizeof(elements));
    memcpy(to + reply.bytes, elements, sizeof(elements));
    return reply.bytes + sizeof(elements);
}

static void infer_gives_the_outputs_by_name(void **state)
{
    unsigned char bytes[256];
    struct fake_server *server = fake_server_start(FAKE_ANSWER, bytes, make_reply(bytes));
    struct sluice_client *client = open_client(server);
    struct sluice_response *response;
    const struct sluice_tensor *output;

    (void)state;
    for (int again = 0; again < 3; again++) {
        assert_int_equal(sluice_infer(client, &request, &response, NULL), SLUICE_OK);
        assert_string_equal(sluice_response_version(response), "3");
        output = sluice_response_output(response, "y");
        assert_non_null(output);
        assert_string_equal(output->datatype, "FP32");
        assert_int_equal(output->rank, 1);
        assert_int_equal(output->shape[0], 4);
        assert_int_equal(output->bytes, sizeof(elements));
        assert_memory_equal(output->data, elements, sizeof(elements));
        assert_null(sluice_response_output(response, "z"));
        sluice_response_free(response);
    }
    sluice_close(client);
    fake_server_stop(server);
}

/* A reply of `count` outputs, "0", "1" …, of `sizes` bytes each; returns its length. */
static size_t make_odd_reply(unsigned char *to, const char *model, const uint8_t *sizes,
                             uint8_t count)
{
    struct wire_writer reply = {to, 0};
    char name[2] = "0";

    wire_put_text(&reply, 1, model);
    for (uint8_t i = 0; i < count; i++) {
        name[0] = (char)('0' + i);
        wire_put_length(&reply, 5, 3 + 7 + 2);
        wire_put_text(&reply, 1, name);
        wire_put_text(&reply, 2, "UINT8");
        wire_put_tag(&reply, 3, WIRE_VARINT);
        wire_put_varint(&reply, sizes[i]);
    }
    for (uint8_t i = 0; i < count; i++) {
        wire_put_length(&reply, 6, sizes[i]);
        memset(to + reply.bytes, i + 1, sizes[i]);
        reply.bytes += sizes[i];
    }
    return reply.bytes;
}

static void outputs_of_any_length_come_aligned_and_whole(void **state)
{
    static const uint8_t sizes[][4] = {{4, 4, 4, 4}, {1, 1, 1, 1}, {5, 12, 3, 7}, {0, 1, 0, 9}};
    static const char *const models[] = {"m",     "mm",     "mmm",     "mmmm",
                                         "m5m5m", "m6m6m6", "m7m7m7m", "m8m8m8m8"};
    struct sluice_response *response;
    unsigned char bytes[256];

    (void)state;
    for (size_t trial = 0; trial < 32; trial++) {
        const uint8_t *size = sizes[trial % 4];
        struct fake_server *server = fake_server_start(
            FAKE_ANSWER, bytes, make_odd_reply(bytes, models[trial / 4], size, 4));
        struct sluice_client *client = open_client(server);
        const struct sluice_tensor *outputs;

        assert_int_equal(sluice_infer(client, &request, &response, NULL), SLUICE_OK);
        assert_int_equal(sluice_response_outputs(response, &outputs), 4);
        for (uint8_t i = 0; i < 4; i++) {
            const uint8_t *data = outputs[i].data;

            assert_int_equal(outputs[i].bytes, size[i]);
            assert_int_equal((uintptr_t)data % 8, 0);
            for (size_t k = 0; k < size[i]; k++)
                assert_int_equal(data[k], i + 1);
        }
        sluice_response_free(response);
        sluice_close(client);
        fake_server_stop(server);
    }
}

static void the_request_carries_model_version_id_priority_and_bytes(void **state)
{
    unsigned char reply[256];
    struct fake_server *server = fake_server_start(FAKE_ANSWER, reply, make_reply(reply));
    struct sluice_client *client = open_client(server);
    struct sluice_response *response;
    struct wire_reader reader = {0};
    struct wire_field field;
    unsigned seen = 0;
    size_t bytes;

    (void)state;
    assert_int_equal(sluice_infer(client, &request, &response, NULL), SLUICE_OK);
    sluice_response_free(response);
    reader.at = fake_server_request(server, &bytes);
    reader.end = reader.at + bytes;
    while (wire_get_field(&reader, &field)) {
        seen |= 1U << field.number;
        if (field.number == 1)
            assert_memory_equal(field.bytes.at, "m", 1);
        if (field.number == 2)
            assert_memory_equal(field.bytes.at, "3", 1);
        if (field.number == 3)
            assert_memory_equal(field.bytes.at, "abc", 3);
        if (field.number == 7)
            assert_memory_equal(field.bytes.at, elements, sizeof(elements));
    }
    assert_false(reader.is_bad);
    assert_int_equal(seen, 1U << 1 | 1U << 2 | 1U << 3 | 1U << 4 | 1U << 5 | 1U << 7);
    sluice_close(client);
    fake_server_stop(server);
}

static void what_cannot_be_sent_is_refused(void **state)
{
    static const char *const unnamed[] = {NULL};
    const struct {
        struct sluice_tensor input;
        size_t outputs;
        const char *word;
    } cases[] = {
        {{.name = "x", .datatype = "FP32", .bytes = 4}, 0, "no data"},
        {{.name = "x", .datatype = "FP32", .data = elements, .bytes = SIZE_MAX / 2}, 0, "4 GiB"},
        {{.name = "x", .datatype = "FP32", .rank = SLUICE_MAX_RANK + 1}, 0, "rank 9"},
        {{.name = "x"}, 0, "datatype"},
        {{.name = "x", .datatype = "FP32"}, 1, "output 0"},
    };
    struct sluice_client *client;
    struct sluice_response *response;
    struct sluice_error error;

    (void)state;
    assert_int_equal(sluice_open("unix:/nonexistent", &client, NULL), SLUICE_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct sluice_infer_request bad = {.model = "m",
                                                 .inputs = 1,
                                                 .input = &cases[i].input,
                                                 .outputs = cases[i].outputs,
                                                 .output = unnamed};

        assert_int_equal(sluice_infer(client, &bad, &response, &error), SLUICE_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, cases[i].word));
    }
    sluice_close(client);
}

static void a_server_error_comes_with_its_decoded_message(void **state)
{
    struct fake_server *server = fake_server_start(FAKE_ERROR, NULL, 0);
    struct sluice_client *client = open_client(server);
    struct sluice_response *response = NULL;
    struct sluice_error error;

    (void)state;
    assert_int_equal(sluice_infer(client, &request, &response, &error), SLUICE_RESOURCE_EXHAUSTED);
    assert_string_equal(error.message, "50% of {x}");
    assert_null(response);
    sluice_close(client);
    fake_server_stop(server);
}

static void a_silent_server_ends_in_the_deadline_and_a_reset(void **state)
{
    struct fake_server *server = fake_server_start(FAKE_SILENCE, NULL, 0);
    struct sluice_client *client = open_client(server);
    struct sluice_response *response = NULL;
    struct sluice_error error;

    (void)state;
    sluice_set_timeout(client, 30000);
    assert_int_equal(sluice_infer(client, &request, &response, &error), SLUICE_DEADLINE_EXCEEDED);
    sluice_close(client);
    fake_server_stop(server);
}

static void a_lost_connection_is_unavailable_and_the_next_call_connects_again(void **state)
{
    struct fake_server *server = fake_server_start(FAKE_HANG_UP, NULL, 0);
    struct sluice_client *client = open_client(server);
    struct sluice_response *response = NULL;
    struct sluice_error error;

    (void)state;
    for (int again = 0; again < 2; again++)
        assert_int_equal(sluice_infer(client, &request, &response, &error), SLUICE_UNAVAILABLE);
    sluice_close(client);
    fake_server_stop(server);
}

static void an_answer_that_is_not_grpc_says_so(void **state)
{
    struct fake_server *server = fake_server_start(FAKE_NOT_GRPC, NULL, 0);
    struct sluice_client *client = open_client(server);
    struct sluice_response *response = NULL;
    struct sluice_error error;

    (void)state;
    assert_int_equal(sluice_infer(client, &request, &response, &error), SLUICE_UNKNOWN);
    assert_non_null(strstr(error.message, "404"));
    sluice_close(client);
    fake_server_stop(server);
}

static void a_malformed_reply_is_refused(void **state)
{
    static const unsigned char bytes[] = {0x2A, 0x7F, 0x01}; /* outputs: 127 bytes, one is there */
    struct fake_server *server = fake_server_start(FAKE_ANSWER, bytes, sizeof(bytes));
    struct sluice_client *client = open_client(server);
    struct sluice_response *response = NULL;
    struct sluice_error error;

    (void)state;
    assert_int_equal(sluice_infer(client, &request, &response, &error), SLUICE_INTERNAL);
    assert_null(response);
    sluice_close(client);
    fake_server_stop(server);
}

static void calls_run_side_by_side_without_blocking(void **state)
{
    unsigned char bytes[256];
    struct fake_server *server = fake_server_start(FAKE_ANSWER, bytes, make_reply(bytes));
    struct sluice_client *client = open_client(server);
    struct sluice_call *calls[8];
    struct sluice_response *response;

    (void)state;
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(sluice_infer_start(client, &request, &calls[i], NULL), SLUICE_OK);
    for (size_t i = 0; i < 8; i++) {
        while (!sluice_call_is_done(calls[i]))
            assert_int_equal(sluice_client_step(client, 1000, NULL), SLUICE_OK);
        assert_int_equal(sluice_infer_finish(calls[i], &response, NULL), SLUICE_OK);
        sluice_response_free(response);
    }
    sluice_close(client);
    fake_server_stop(server);
}

static void an_unfinished_call_is_cancelled(void **state)
{
    struct fake_server *server = fake_server_start(FAKE_SILENCE, NULL, 0);
    struct sluice_client *client = open_client(server);
    struct sluice_call *call;
    struct sluice_response *response = NULL;

    (void)state;
    assert_int_equal(sluice_infer_start(client, &request, &call, NULL), SLUICE_OK);
    assert_int_equal(sluice_client_step(client, 100, NULL), SLUICE_OK);
    assert_int_equal(sluice_infer_finish(call, &response, NULL), SLUICE_CANCELLED);
    while (fake_server_resets(server) == 0)
        (void)poll(NULL, 0, 1);
    sluice_close(client);
    fake_server_stop(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infer_gives_the_outputs_by_name),
        cmocka_unit_test(outputs_of_any_length_come_aligned_and_whole),
        cmocka_unit_test(the_request_carries_model_version_id_priority_and_bytes),
        cmocka_unit_test(a_server_error_comes_with_its_decoded_message),
        cmocka_unit_test(a_silent_server_ends_in_the_deadline_and_a_reset),
        cmocka_unit_test(a_lost_connection_is_unavailable_and_the_next_call_connects_again),
        cmocka_unit_test(an_answer_that_is_not_grpc_says_so),
        cmocka_unit_test(a_malformed_reply_is_refused),
        cmocka_unit_test(calls_run_side_by_side_without_blocking),
        cmocka_unit_test(an_unfinished_call_is_cancelled),
        cmocka_unit_test(what_cannot_be_sent_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
