/* IsNaN and IsInf: float bits to truth values. */
#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "device/cpu/flat.h"
#include "ops/elementwise.h"

/* Everything is said by the bits: an exponent of ones is infinite with fraction zero, else NaN. */
struct predicate {
    enum dtype dtype;
    bool nan;
    bool positive; /* infinities wanted */
    bool negative;
};

#define PREDICATE(type, one, exponent)                                                             \
    static void test_##type(const struct predicate *p, const type *x, uint8_t *y, size_t count)    \
    {                                                                                              \
        const type top = (type)((type)(one) << (sizeof(type) * 8 - 1));                            \
                                                                                                   \
        for (size_t i = 0; i < count; i++) {                                                       \
            type magnitude = x[i] & (type)~top;                                                    \
            bool wanted = (x[i] & top) != 0 ? p->negative : p->positive;                           \
                                                                                                   \
            y[i] = p->nan ? magnitude > (exponent) : magnitude == (exponent) && wanted;            \
        }                                                                                          \
    }
PREDICATE(uint32_t, 1, 0x7F800000)
PREDICATE(uint64_t, 1, 0x7FF0000000000000)

static void test_16(const struct predicate *p, const uint16_t *x, uint8_t *y, size_t count)
{
    uint16_t exponent = p->dtype == DTYPE_FLOAT16 ? 0x7C00 : 0x7F80;

    for (size_t i = 0; i < count; i++) {
        uint16_t magnitude = x[i] & 0x7FFF;
        bool wanted = (x[i] & 0x8000) != 0 ? p->negative : p->positive;

        y[i] = p->nan ? magnitude > exponent : magnitude == exponent && wanted;
    }
}

static void test_piece(void *arg, const void *in, void *out, size_t count)
{
    const struct predicate *p = arg;

    if (p->dtype == DTYPE_FLOAT)
        test_uint32_t(p, in, out, count);
    else if (p->dtype == DTYPE_DOUBLE)
        test_uint64_t(p, in, out, count);
    else
        test_16(p, in, out, count);
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    struct flat flat = flat_make(call->in[0], call->out[0], call->device);
    struct predicate p = {.dtype = call->in[0]->dtype, .nan = call->op == &op_is_nan};

    (void)state;
    if (!p.nan) {
        const struct is_inf_attrs *attrs = call->attrs;

        p.positive = attrs->detect_positive != 0;
        p.negative = attrs->detect_negative != 0;
    }
    flat_run(&flat, run->in[0], dtype_bytes(p.dtype), run->out[0], 1, run->lane->threads, 0.3,
             test_piece, &p);
    return STATUS_OK;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->constants_used = 1;
    return STATUS_OK;
}

const struct kernel kernel_is_nan_bits = {
    .name = "cpu:bits",
    .flags = KERNEL_STRIDED,
    .layouts = FLAT_LAYOUTS,
    .prepare = prepare,
    .enqueue = enqueue,
};

const struct kernel kernel_is_inf_bits = {
    .name = "cpu:bits",
    .flags = KERNEL_STRIDED,
    .layouts = FLAT_LAYOUTS,
    .prepare = prepare,
    .enqueue = enqueue,
};
