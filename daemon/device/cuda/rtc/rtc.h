/* NVRTC: kernels compiled while the program runs; opened when first wanted, never linked against.
 *
 * What is compiled includes the plug-in's own kernel headers, which it carries as text (texts.h),
 * and nothing of the machine.  Options are those of the precompiled kernels.
 *
 * Threads: rtc_get() any; rtc_compile() one at a time.
 */
#ifndef DEVICE_CUDA_RTC_RTC_H
#define DEVICE_CUDA_RTC_RTC_H

#include <nvrtc.h>

#include "device/cuda/cuda.h"

enum { RTC_KEY_BYTES = 64, RTC_ARCHITECTURES = 64 };

struct rtc {
#define FUNCTION(name) __typeof__(&name) name;
#include "device/cuda/rtc/rtc.def"
#undef FUNCTION
    /* "nvrtc 13.0 sm_90 1f…": with a source, all that decides what comes out. */
    char key[RTC_KEY_BYTES];
    char target[32];       /* --gpu-architecture=sm_90 */
    bool has_machine_code; /* else the driver makes it out of PTX: the device is newer than NVRTC */
};

/* The device's NVRTC.  NULL: `*out_why` says why in borrowed words. */
const struct rtc *rtc_get(struct cuda_device *cuda, const char **out_why);
void rtc_close(struct cuda_device *cuda); /* without one is fine */

/* Machine code, and PTX behind it for a driver that refuses that. */
struct rtc_code {
    size_t machine_bytes; /* 0: none */
    size_t ptx_bytes;     /* with its terminator */
    char *bytes;          /* machine code, then PTX; owned */
};
/* UNSUPPORTED: the compiler refuses it; its words are in the log. */
MUST_CHECK enum status rtc_compile(const struct rtc *rtc, const char *source,
                                   struct rtc_code *out_code);

#endif
