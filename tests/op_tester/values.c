#include "op_tester/values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static uint64_t random_state;

static uint64_t next_random(void)
{
    if (random_state == 0) {
        const char *seed = getenv("OP_TEST_SEED");
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        random_state = seed != NULL ? strtoull(seed, NULL, 0)
                                    : (uint64_t)now.tv_sec * 1000003 + (uint64_t)now.tv_nsec;
        random_state |= random_state == 0;
    }
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

uint64_t test_random_mark(void)
{
    (void)next_random();
    return random_state;
}

double test_random(double low, double high)
{
    return low + (high - low) * ((double)(next_random() >> 11) * 0x1p-53);
}

int64_t test_random_int(int64_t low, int64_t high)
{
    return low + (int64_t)(next_random() % (uint64_t)(high - low + 1));
}

struct shape test_random_shape(size_t rank, int64_t low, int64_t high)
{
    struct shape shape = {.rank = rank};

    for (size_t i = 0; i < rank; i++)
        shape.dims[i] = test_random_int(low, high);
    return shape;
}

double test_get(enum dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case DTYPE_FLOAT:
        return (double)((const float *)data)[i];
    case DTYPE_DOUBLE:
        return ((const double *)data)[i];
    case DTYPE_FLOAT16:
        return (double)float_from_half(((const uint16_t *)data)[i]);
    case DTYPE_BFLOAT16:
        return (double)float_from_bfloat16(((const uint16_t *)data)[i]);
    case DTYPE_INT8:
        return ((const int8_t *)data)[i];
    case DTYPE_UINT8:
    case DTYPE_BOOL:
        return ((const uint8_t *)data)[i];
    case DTYPE_INT16:
        return ((const int16_t *)data)[i];
    case DTYPE_UINT16:
        return ((const uint16_t *)data)[i];
    case DTYPE_INT32:
        return ((const int32_t *)data)[i];
    case DTYPE_UINT32:
        return ((const uint32_t *)data)[i];
    case DTYPE_INT64:
        return (double)((const int64_t *)data)[i];
    case DTYPE_UINT64:
        return (double)((const uint64_t *)data)[i];
    case DTYPE_NONE:
    case DTYPE_STRING:
    case DTYPE_COUNT:
        break;
    }
    fail_msg("no number in an element of type %s", dtype_name(dtype));
    return 0;
}

static double clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

void test_put(enum dtype dtype, void *data, int64_t i, double value)
{
    switch (dtype) {
    case DTYPE_FLOAT:
        ((float *)data)[i] = (float)value;
        break;
    case DTYPE_DOUBLE:
        ((double *)data)[i] = value;
        break;
    case DTYPE_FLOAT16:
        ((uint16_t *)data)[i] = half_from_float((float)value);
        break;
    case DTYPE_BFLOAT16:
        ((uint16_t *)data)[i] = bfloat16_from_float((float)value);
        break;
    case DTYPE_INT8:
        ((int8_t *)data)[i] = (int8_t)clamp(value, -128, 127);
        break;
    case DTYPE_UINT8:
        ((uint8_t *)data)[i] = (uint8_t)clamp(value, 0, 255);
        break;
    case DTYPE_BOOL:
        ((uint8_t *)data)[i] = value != 0;
        break;
    case DTYPE_INT16:
        ((int16_t *)data)[i] = (int16_t)clamp(value, -32768, 32767);
        break;
    case DTYPE_UINT16:
        ((uint16_t *)data)[i] = (uint16_t)clamp(value, 0, 65535);
        break;
    case DTYPE_INT32:
        ((int32_t *)data)[i] = (int32_t)clamp(value, INT32_MIN, INT32_MAX);
        break;
    case DTYPE_UINT32:
        ((uint32_t *)data)[i] = (uint32_t)clamp(value, 0, UINT32_MAX);
        break;
    case DTYPE_INT64:
        ((int64_t *)data)[i] = (int64_t)clamp(value, -0x1p62, 0x1p62);
        break;
    case DTYPE_UINT64:
        ((uint64_t *)data)[i] = (uint64_t)clamp(value, 0, 0x1p63);
        break;
    case DTYPE_NONE:
    case DTYPE_STRING:
    case DTYPE_COUNT:
        fail_msg("no number fits an element of type %s", dtype_name(dtype));
    }
}
