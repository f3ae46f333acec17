/* Bytes whose scale and zero point are those of the numbers at hand (ONNX's DynamicQuantizeLinear).
 */
#ifndef DEVICE_CPU_DYNAMIC_H
#define DEVICE_CPU_DYNAMIC_H

#include <math.h>
#include <stdint.h>

struct dynamic {
    float scale; /* 0: all numbers are */
    int32_t zero;
};

/* Of numbers from `low` to `high`; 0 is always among them. */
static inline struct dynamic dynamic_of(float low, float high)
{
    struct dynamic dynamic = {0};

    low = fminf(0, low);
    high = fmaxf(0, high);
    dynamic.scale = (high - low) / 255;
    if (dynamic.scale > 0)
        dynamic.zero = (int32_t)fminf(255, fmaxf(0, rintf(-low / dynamic.scale)));
    return dynamic;
}

#endif
