#include "compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tensor/element.h"

static double element(const struct tensor *tensor, size_t index)
{
    return dtype_is_float(tensor->dtype) ? element_read(tensor->dtype, tensor->data, index) : 0;
}

/* Relative rounding of the type itself, where that is coarser than RTOL. */
static double type_rtol(enum dtype dtype)
{
    return dtype == DTYPE_BFLOAT16 ? 1.0 / 64 : dtype == DTYPE_FLOAT16 ? 2e-3 : RTOL;
}

static double largest(const struct tensor *tensor, size_t count)
{
    double most = 0;

    for (size_t i = 0; i < count; i++) {
        double value = fabs(element(tensor, i));

        if (isfinite(value) && value > most)
            most = value;
    }
    return most;
}

static bool is_close(double got, double want, double rtol, double atol)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got))
        return want == got; /* NOLINT: infinities are exact */
    return fabs(got - want) <= atol + rtol * fabs(want);
}

static bool floats_agree(const struct tensor *got, const struct tensor *want, size_t count,
                         double slack, char *why, size_t room)
{
    double rtol = type_rtol(want->dtype);
    double atol = ATOL + slack * largest(want, count);

    for (size_t i = 0; i < count; i++) {
        double a = element(got, i), b = element(want, i);

        if (!is_close(a, b, rtol, atol)) {
            snprintf(why, room, "element %zu of %zu is %.9g, should be %.9g", i, count, a, b);
            return false;
        }
    }
    return true;
}

static bool strings_agree(const struct tensor *got, const struct tensor *want, size_t count,
                          char *why, size_t room)
{
    const struct bytes *a = got->data, *b = want->data;

    for (size_t i = 0; i < count; i++)
        if (a[i].size != b[i].size || memcmp(a[i].data, b[i].data, a[i].size) != 0) {
            snprintf(why, room, "string %zu of %zu is '%.*s', should be '%.*s'", i, count,
                     (int)a[i].size, a[i].data, (int)b[i].size, b[i].data);
            return false;
        }
    return true;
}

static bool bytes_agree(const struct tensor *got, const struct tensor *want, size_t count,
                        char *why, size_t room)
{
    size_t each = dtype_bytes(want->dtype);

    for (size_t i = 0; i < count; i++)
        if (memcmp((const char *)got->data + i * each, (const char *)want->data + i * each, each) !=
            0) {
            int64_t a = 0, b = 0;

            memcpy(&a, (const char *)got->data + i * each, each);
            memcpy(&b, (const char *)want->data + i * each, each);
            snprintf(why, room, "element %zu of %zu is %" PRId64 ", should be %" PRId64, i, count,
                     a, b);
            return false;
        }
    return true;
}

bool tensor_agrees(const struct tensor *got, const struct tensor *want, double slack, char *why,
                   size_t room)
{
    char a[SHAPE_TEXT_BYTES], b[SHAPE_TEXT_BYTES];
    struct tensor as_bfloat16 = *want;
    size_t count;

    as_bfloat16.dtype = DTYPE_BFLOAT16;
    /* The data of ONNX 1.12 declares bfloat16 answers as the uint16 that holds their (cut) bits. */
    if (got->dtype == DTYPE_BFLOAT16 && want->dtype == DTYPE_UINT16)
        want = &as_bfloat16;
    if (got->dtype != want->dtype) {
        snprintf(why, room, "type is %s, should be %s", dtype_name(got->dtype),
                 dtype_name(want->dtype));
        return false;
    }
    if (!shape_is_equal(&got->shape, &want->shape)) {
        snprintf(why, room, "shape is %s, should be %s", shape_format(&got->shape, a),
                 shape_format(&want->shape, b));
        return false;
    }
    count = (size_t)shape_count(&want->shape);
    if (dtype_is_float(want->dtype))
        return floats_agree(got, want, count, slack, why, room);
    return want->dtype == DTYPE_STRING ? strings_agree(got, want, count, why, room)
                                       : bytes_agree(got, want, count, why, room);
}
