/* A call with a body and no client, for the decoders of inference requests. */
#ifndef TESTS_FUZZ_FUZZ_INFER_H
#define TESTS_FUZZ_FUZZ_INFER_H

#include "../serve/fake_daemon.h"

#include "fuzz.h"
#include "serve/codec/bytes.h"
#include "serve/infer.h"
#include "serve/internal.h"

static uint64_t fuzz_read_texts(const struct infer_input *input)
{
    const struct bytes *text = (const void *)input->data;
    uint64_t sum = 0;

    for (size_t i = 0; i < input->bytes / sizeof(*text); i++)
        for (size_t k = 0; k < text[i].size; k++)
            sum += (unsigned char)text[i].data[k];
    return sum;
}

/* Decodes the bytes with `decode`, reads every tensor it gives, and looks that nothing leaks. */
static void fuzz_decode(const uint8_t *data, size_t size, size_t json_size,
                        enum status (*decode)(struct call *call, struct error *err))
{
    static struct server server;
    struct host_pool_stats stats;
    struct error err = {0};
    struct call *call;

    if (fake.pool == NULL) {
        fake_init(64 << 20);
        list_init(&server.waiting);
        server.turn_due = true;
        server.host_pool = fake.pool;
        server.limits.max_message_bytes = 1 << 20;
        server.deadlines.armed_us = CLOCK_NEVER;
    }
    call = call_create(&server, NULL);
    if (call == NULL)
        return;
    call->path[0] = (struct slice){"m", 1};
    call->body.bytes = malloc(size + 1);
    call->body.size = call->body.received = size;
    call->has_json_size = json_size != SIZE_MAX;
    call->json_size = json_size;
    if (call->body.bytes != NULL) {
        uint8_t *body = call->body.bytes;

        memcpy(body, data, size);
        body[size] = 0; /* the server's bodies have room behind them, too */
        if (decode(call, &err) == STATUS_OK) {
            for (size_t i = 0; i < call->infer->inputs; i++) {
                struct infer_input *input = &call->infer->in[i];
                uint64_t sum = 0;

                if (input->has_data && input->dtype == DTYPE_STRING && !input->is_ready)
                    (void)!bytes_decode(call, input, "m", &err);
                for (size_t k = 0; input->has_data && k < input->bytes; k++)
                    sum += input->data[k];
                if (input->dtype == DTYPE_STRING && input->is_ready)
                    sum += fuzz_read_texts(input);
                if (sum == UINT64_MAX)
                    abort(); /* never: but the bytes were read */
            }
        } else if (err.text[0] == '\0') {
            abort(); /* a refusal without a sentence */
        }
        free(body);
    }
    call_unref(call);
    host_pool_read(fake.pool, &stats);
    if (stats.in_use_bytes != 0)
        abort();
}

#endif
