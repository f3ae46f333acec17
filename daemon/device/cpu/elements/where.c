/* Where: elements of any type, moved by their size. */
#include <stdlib.h>

#include "device/cpu/broadcast.h"
#include "device/cpu/cpu.h"
#include "device/cpu/flat.h"

typedef struct {
    uint64_t halves[2];
} uint128_t; /* a string's address and size */

#define WHERE(type)                                                                                \
    static void where_##type(void *arg, const struct tile *tile, const void *const *in, void *out) \
    {                                                                                              \
        const uint8_t *chosen = in[0];                                                             \
        const type *a = in[1], *b = in[2];                                                         \
        type *c = out;                                                                             \
                                                                                                   \
        (void)arg;                                                                                 \
        for (size_t r = 0; r < tile->rows; r++) {                                                  \
            for (size_t i = 0; i < tile->columns; i++) {                                           \
                type x = a[(ptrdiff_t)i * tile->column_strides[1]];                                \
                type y = b[(ptrdiff_t)i * tile->column_strides[2]];                                \
                                                                                                   \
                c[i] = chosen[(ptrdiff_t)i * tile->column_strides[0]] != 0 ? x : y;                \
            }                                                                                      \
            chosen += tile->row_strides[0];                                                        \
            a += tile->row_strides[1];                                                             \
            b += tile->row_strides[2];                                                             \
            c += tile->out_row_stride;                                                             \
        }                                                                                          \
    }
WHERE(uint8_t)
WHERE(uint16_t)
WHERE(uint32_t)
WHERE(uint64_t)
WHERE(uint128_t)

struct where_state {
    struct broadcast broadcast;
    const void *packed[3];
    size_t bytes[3];
    tile_fn fn;
};

static tile_fn choose(size_t bytes)
{
    switch (bytes) {
    case 1:
        return where_uint8_t;
    case 2:
        return where_uint16_t;
    case 4:
        return where_uint32_t;
    case 8:
        return where_uint64_t;
    default:
        return where_uint128_t;
    }
}

static const char *refuses(const struct kernel_call *call)
{
    return broadcast_refuses(call->out[0], 3, call->in);
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct where_state *state = calloc(1, sizeof(*state));

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a kernel's state");
    for (uint32_t i = 0; i < 3; i++) {
        state->bytes[i] = dtype_bytes(call->in[i]->dtype);
        if (!broadcast_wants_pack(call->out[0], call->in[i])) {
            prepare->constants_used |= UINT32_C(1) << i;
        } else if (broadcast_pack(prepare, call->out[0], call->in[i], &state->packed[i]) !=
                   STATUS_OK) {
            free(state);
            return error_set(err, STATUS_NO_MEMORY, "no memory for packed constants");
        }
    }
    broadcast_make(&state->broadcast, call->out[0], 3, call->in, call->device);
    state->fn = choose(state->bytes[1]);
    prepare->state = state;
    return STATUS_OK;
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct where_state *where = state;
    const void *in[3];

    for (size_t i = 0; i < 3; i++)
        in[i] = where->packed[i] != NULL ? where->packed[i] : run->in[i];
    broadcast_run(&where->broadcast, in, where->bytes, run->out[0], where->bytes[1],
                  run->lane->threads, 1, where->fn, NULL);
    operand_zero_padding(call->out[0], call->device, run->out[0]);
    return STATUS_OK;
}

const struct kernel kernel_where_tiles = {
    .name = "cpu:tiles",
    .flags = KERNEL_STRIDED,
    .layouts = FLAT_LAYOUTS,
    .refuses = refuses,
    .prepare = prepare,
    .enqueue = enqueue,
    .release = free,
};
