/* Pow with integers, or with an exponent of another type than the base. */
#include <math.h>
#include <stdlib.h>

#include "device/cpu/broadcast.h"
#include "device/cpu/convert.h"
#include "device/cpu/cpu.h"
#include "device/cpu/flat.h"

struct pow_state {
    struct broadcast broadcast;
    const struct loops *loops;
    enum dtype base;
    enum dtype exponent;
};

/* Wraps like every integer product; a negative exponent leaves 1, -1 or nothing. */
static int64_t integer_power(int64_t base, int64_t exponent)
{
    uint64_t result = 1, factor = (uint64_t)base;

    if (exponent < 0)
        return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
    for (; exponent > 0; exponent /= 2) {
        if (exponent % 2 != 0)
            result *= factor;
        factor *= factor;
    }
    return (int64_t)result;
}

static void one_power(const struct pow_state *state, const void *base, const void *exponent,
                      void *out)
{
    if (!dtype_is_float(state->base) && !dtype_is_float(state->exponent)) {
        int64_t x, y, z;

        convert(state->loops, state->base, base, DTYPE_INT64, &x, 1);
        convert(state->loops, state->exponent, exponent, DTYPE_INT64, &y, 1);
        if (state->exponent == DTYPE_UINT64 && y < 0)
            y = INT64_MAX; /* only 0, 1 and -1 say anything there */
        z = integer_power(x, y);
        convert(state->loops, DTYPE_INT64, &z, state->base, out, 1);
    } else {
        double x, y, z;

        convert(state->loops, state->base, base, DTYPE_DOUBLE, &x, 1);
        convert(state->loops, state->exponent, exponent, DTYPE_DOUBLE, &y, 1);
        z = pow(x, y);
        convert(state->loops, DTYPE_DOUBLE, &z, state->base, out, 1);
    }
}

static void power_tile(void *arg, const struct tile *tile, const void *const *in, void *out)
{
    const struct pow_state *state = arg;
    ptrdiff_t x = (ptrdiff_t)dtype_bytes(state->base), y = (ptrdiff_t)dtype_bytes(state->exponent);

    for (ptrdiff_t r = 0; r < (ptrdiff_t)tile->rows; r++)
        for (ptrdiff_t i = 0; i < (ptrdiff_t)tile->columns; i++)
            one_power(
                state,
                (const char *)in[0] + (r * tile->row_strides[0] + i * tile->column_strides[0]) * x,
                (const char *)in[1] + (r * tile->row_strides[1] + i * tile->column_strides[1]) * y,
                (char *)out + (r * tile->out_row_stride + i) * x);
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct pow_state *state = calloc(1, sizeof(*state));

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a kernel's state");
    broadcast_make(&state->broadcast, call->out[0], 2, call->in, call->device);
    state->loops = loops_for(call->device);
    state->base = call->in[0]->dtype;
    state->exponent = call->in[1]->dtype;
    prepare->constants_used = 3;
    prepare->state = state;
    return STATUS_OK;
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct pow_state *power = state;
    const size_t bytes[2] = {dtype_bytes(power->base), dtype_bytes(power->exponent)};

    (void)call;
    broadcast_run(&power->broadcast, run->in, bytes, run->out[0], bytes[0], run->lane->threads, 30,
                  power_tile, (void *)(uintptr_t)power);
    return STATUS_OK;
}

const struct kernel kernel_pow_convert = {
    .name = "cpu:convert",
    .prepare = prepare,
    .enqueue = enqueue,
    .release = free,
};
