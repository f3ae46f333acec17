#define LOG_COMPONENT "device"
#include "device/cuda/rtc/rtc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/hash.h"
#include "device/cuda/rtc/texts.h"
#include "observe/log.h"

/* Behind the target: cmake/cuda.cmake's for the same text.  Products and sums stay two operations,
 * so that a kernel of many steps rounds as the interpreter does, which takes one at a time. */
static const char *const options[] = {"-std=c++17", "-fmad=false", "-default-device"};
enum { OPTIONS = sizeof(options) / sizeof(options[0]) };

/* ---- opening ---- */

static const struct cuda_function functions[] = {
#define FUNCTION(name) {offsetof(struct rtc, name), #name},
#include "device/cuda/rtc/rtc.def"
#undef FUNCTION
};

/* The newest architecture that NVRTC makes code for and the device can run. */
static int find_architecture(const struct rtc *rtc, int capability)
{
    int known[RTC_ARCHITECTURES], count = 0, best = 0;

    if (rtc->nvrtcGetNumSupportedArchs(&count) != NVRTC_SUCCESS || count > RTC_ARCHITECTURES ||
        rtc->nvrtcGetSupportedArchs(known) != NVRTC_SUCCESS)
        return 0;
    for (int i = 0; i < count; i++)
        if (known[i] <= capability && known[i] > best)
            best = known[i];
    return best;
}

static uint64_t hash_texts(void)
{
    uint64_t hash = HASH_EMPTY;

    for (int i = 0; i < rtc_text_count; i++)
        hash = hash_text(hash_text(hash, rtc_text_names[i]), rtc_texts[i]);
    for (size_t i = 0; i < OPTIONS; i++)
        hash = hash_text(hash, options[i]);
    return hash;
}

static const char *start(struct cuda_device *cuda, void *library)
{
    struct rtc *rtc = library;
    int major = 0, minor = 0, architecture;
    nvrtcResult result = rtc->nvrtcVersion(&major, &minor);

    if (result != NVRTC_SUCCESS) {
        log_info("CUDA: NVRTC does not start: %s", rtc->nvrtcGetErrorString(result));
        return "NVRTC does not start";
    }
    architecture = find_architecture(rtc, cuda->capability);
    if (architecture == 0)
        return "NVRTC knows no architecture that this device runs";
    /* Machine code runs on later minor versions of its own generation, too. */
    rtc->has_machine_code = architecture / 10 == cuda->capability / 10;
    (void)snprintf(rtc->target, sizeof(rtc->target), "--gpu-architecture=%s_%d",
                   rtc->has_machine_code ? "sm" : "compute", architecture);
    (void)snprintf(rtc->key, sizeof(rtc->key), "nvrtc %d.%d %s %016" PRIx64, major, minor,
                   strchr(rtc->target, '=') + 1, hash_texts());
    log_info("CUDA: NVRTC %d.%d, %s", major, minor, strchr(rtc->target, '=') + 1);
    return NULL;
}

static void end(void *library)
{
    (void)library;
}

static const struct cuda_library nvrtc = {
    .name = "libnvrtc.so.13",
    .missing = "libnvrtc.so.13 is not here",
    .lacks = "libnvrtc.so.13 lacks a function",
    .without = "element-wise chains are left to the interpreter",
    .functions = functions,
    .count = sizeof(functions) / sizeof(functions[0]),
    .bytes = sizeof(struct rtc),
    .start = start,
    .end = end,
};

const struct rtc *rtc_get(struct cuda_device *cuda, const char **out_why)
{
    return cuda_library_get(cuda, &cuda->rtc, &nvrtc, out_why);
}

void rtc_close(struct cuda_device *cuda)
{
    cuda_library_close(cuda, &cuda->rtc, &nvrtc);
}

/* ---- compiling ---- */

static void log_refusal(const struct rtc *rtc, nvrtcProgram program, nvrtcResult result,
                        const char *source)
{
    size_t bytes = 0;
    char *words = NULL;

    if (rtc->nvrtcGetProgramLogSize(program, &bytes) == NVRTC_SUCCESS)
        words = calloc(1, bytes + 1);
    if (words != NULL)
        (void)rtc->nvrtcGetProgramLog(program, words);
    log_warn("CUDA: NVRTC refuses a kernel, ignoring: %s: %.2000s",
             rtc->nvrtcGetErrorString(result), words != NULL ? words : "");
    log_debug("CUDA: it was: %s", source);
    free(words);
}

static nvrtcResult take_code(const struct rtc *rtc, nvrtcProgram program, struct rtc_code *code)
{
    nvrtcResult result = NVRTC_SUCCESS;

    if (rtc->has_machine_code)
        result = rtc->nvrtcGetCUBINSize(program, &code->machine_bytes);
    if (result == NVRTC_SUCCESS)
        result = rtc->nvrtcGetPTXSize(program, &code->ptx_bytes);
    if (result != NVRTC_SUCCESS)
        return result;
    code->bytes = malloc(code->machine_bytes + code->ptx_bytes);
    if (code->bytes == NULL)
        return NVRTC_ERROR_OUT_OF_MEMORY;
    if (code->machine_bytes > 0)
        result = rtc->nvrtcGetCUBIN(program, code->bytes);
    if (result == NVRTC_SUCCESS)
        result = rtc->nvrtcGetPTX(program, code->bytes + code->machine_bytes);
    return result;
}

enum status rtc_compile(const struct rtc *rtc, const char *source, struct rtc_code *out_code)
{
    const char *all[OPTIONS + 1] = {rtc->target};
    struct rtc_code code = {0};
    nvrtcProgram program = NULL;
    nvrtcResult result = rtc->nvrtcCreateProgram(&program, source, "fused.cu", rtc_text_count,
                                                 rtc_texts, rtc_text_names);

    memcpy(all + 1, options, sizeof(options));
    if (result == NVRTC_SUCCESS)
        result = rtc->nvrtcCompileProgram(program, OPTIONS + 1, all);
    if (result == NVRTC_SUCCESS)
        result = take_code(rtc, program, &code);
    if (result != NVRTC_SUCCESS) {
        log_refusal(rtc, program, result, source);
        free(code.bytes);
    }
    if (program != NULL)
        (void)rtc->nvrtcDestroyProgram(&program);
    if (result != NVRTC_SUCCESS)
        return result == NVRTC_ERROR_OUT_OF_MEMORY ? STATUS_NO_MEMORY : STATUS_UNSUPPORTED;
    *out_code = code;
    return STATUS_OK;
}
