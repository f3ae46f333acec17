/* Opening a GPU: which one, whether it will do, what it is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_COMPONENT "device"
#include "device/cuda/blas/lt.h"
#include "device/cuda/cuda.h"
#include "device/cuda/dnn/attention.h"
#include "device/cuda/dnn/dnn.h"
#include "device/cuda/import.h"
#include "device/cuda/kernels/attention_rows.h"
#include "device/cuda/kernels/move.h"
#include "device/cuda/lane.h"
#include "device/cuda/rtc/rtc.h"
#include "device/cuda/source.h"
#include "observe/log.h"

enum { LEAST_CAPABILITY = 75 }; /* what CUDA 13 still makes code for */

/* ---- which one ---- */

static enum status count_devices(int *out_count, struct error *err)
{
    cudaError_t error = cudaGetDeviceCount(out_count);

    (void)cudaGetLastError();
    switch (error) {
    case cudaSuccess:
        break;
    case cudaErrorNoDevice:
        return error_set(err, STATUS_NOT_FOUND, "CUDA: this machine shows no GPU");
    case cudaErrorInsufficientDriver:
        return error_set(err, STATUS_NOT_FOUND,
                         "CUDA: there is no NVIDIA driver, or it is older than this plug-in needs "
                         "(CUDA %d.%d)",
                         CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    default:
        return error_set(err, STATUS_NOT_FOUND, "CUDA: %s", cudaGetErrorString(error));
    }
    return *out_count > 0 ? STATUS_OK
                          : error_set(err, STATUS_NOT_FOUND, "CUDA: this machine shows no GPU");
}

/* "GPU-5c2f…" as nvidia-smi prints it. */
static void format_uuid(const cudaUUID_t *uuid, char text[64])
{
    size_t used = (size_t)sprintf(text, "GPU-");

    for (size_t i = 0; i < 16; i++)
        used +=
            (size_t)sprintf(text + used, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                            (unsigned char)uuid->bytes[i]);
}

static enum status find_uuid(const char *wanted, int count, int *out_ordinal, struct error *err)
{
    for (int i = 0; i < count; i++) {
        struct cudaDeviceProp prop;
        char text[64];

        if (cudaGetDeviceProperties(&prop, i) != cudaSuccess)
            continue;
        format_uuid(&prop.uuid, text);
        if (strcasecmp(text, wanted) == 0) {
            *out_ordinal = i;
            return STATUS_OK;
        }
    }
    if (strncasecmp(wanted, "MIG-", 4) == 0)
        return error_set(err, STATUS_NOT_FOUND,
                         "device 'cuda:%s': a MIG instance is chosen by CUDA_VISIBLE_DEVICES=%s, "
                         "and is then cuda:0",
                         wanted, wanted);
    return error_set(err, STATUS_NOT_FOUND, "device 'cuda:%s': none of the %d GPUs has this UUID",
                     wanted, count);
}

/* "cuda", "cuda:1", "cuda:GPU-…". */
static enum status find_ordinal(const char *name, int *out_ordinal, struct error *err)
{
    const char *which = strchr(name, ':');
    char *end;
    long number;
    int count;

    TRY(count_devices(&count, err));
    number = which == NULL ? 0 : strtol(which + 1, &end, 10);
    if (which != NULL && (end == which + 1 || *end != '\0'))
        return find_uuid(which + 1, count, out_ordinal, err);
    if (number < 0 || number >= count)
        return error_set(err, STATUS_NOT_FOUND, "device '%s': there are %d GPUs, counted from 0",
                         name, count);
    *out_ordinal = (int)number;
    return STATUS_OK;
}

/* Of what libraries and kernels read at a time: an algorithm for less is another one, with other
 * bits, and cuDNN's attention has none. */
enum { VIEW_ALIGNMENT = 16 };

/* ---- whether it will do ---- */

/* What of float32 models is computed in what: the rest, and other models, are as they are. */
static const struct precision {
    const char *name;
    enum cuda_precision precision; /* of what stays in float32 */
    enum dtype narrow;
    int capability; /* at least */
} precisions[] = {
    {"strict", CUDA_STRICT, DTYPE_NONE, 0},    {"default", CUDA_STRICT, DTYPE_NONE, 0},
    {"tf32", CUDA_TF32, DTYPE_NONE, 80},       {"fp16", CUDA_STRICT, DTYPE_FLOAT16, 0},
    {"bf16", CUDA_STRICT, DTYPE_BFLOAT16, 80}, {"int8", CUDA_STRICT, DTYPE_NONE, 0},
};

static enum status find_precision(const char *name, const struct precision **out_precision,
                                  struct error *err)
{
    TRY(device_check_precision("cuda", name, err));
    if (name == NULL)
        name = "strict";
    for (size_t i = 0; i < sizeof(precisions) / sizeof(precisions[0]); i++)
        if (strcmp(name, precisions[i].name) == 0) {
            *out_precision = &precisions[i];
            return STATUS_OK;
        }
    return error_set(err, STATUS_INTERNAL, "precision '%s' is allowed, but not known", name);
}

static enum status set_precision(struct cuda_device *cuda, const struct precision *precision,
                                 struct error *err)
{
    if (cuda->capability < precision->capability)
        return error_set(err, STATUS_UNSUPPORTED,
                         "precision '%s' needs compute capability %d.%d; %s has %d.%d",
                         precision->name, precision->capability / 10, precision->capability % 10,
                         cuda->name, cuda->capability / 10, cuda->capability % 10);
    cuda->precision = precision->precision;
    cuda->device.narrow = precision->narrow;
    cuda->device.demands_bytes = strcmp(precision->name, "int8") == 0;
    return STATUS_OK;
}

static enum status describe_device(struct cuda_device *cuda, struct error *err)
{
    struct cudaDeviceProp prop;
    cudaError_t error = cudaGetDeviceProperties(&prop, cuda->ordinal);

    if (error != cudaSuccess)
        return cuda_error(err, error, "the device's properties");
    cuda->capability = prop.major * 10 + prop.minor;
    cuda->processors = prop.multiProcessorCount;
    cuda->shared_bytes = prop.sharedMemPerBlockOptin;
    (void)snprintf(cuda->name, sizeof(cuda->name), "%s", prop.name);
    (void)snprintf(cuda->bus, sizeof(cuda->bus), "%04x:%02x:%02x.0", (unsigned)prop.pciDomainID,
                   (unsigned)prop.pciBusID, (unsigned)prop.pciDeviceID);
    if (cuda->capability < LEAST_CAPABILITY)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s has compute capability %d.%d, at least %d.%d is needed", prop.name,
                         prop.major, prop.minor, LEAST_CAPABILITY / 10, LEAST_CAPABILITY % 10);
    return STATUS_OK;
}

/* Makes the context: the first call that takes time and memory. */
static enum status start_device(const struct cuda_device *cuda, struct error *err)
{
    cudaError_t error =
        cudaInitDevice(cuda->ordinal, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid);

    if (error == cudaSuccess)
        error = cudaSetDevice(cuda->ordinal);
    return error == cudaSuccess ? STATUS_OK : cuda_error(err, error, "cannot start the device");
}

/* A build may hold code for few architectures: better known at the start than from each request. */
static enum status find_code(const struct cuda_device *cuda, struct error *err)
{
    cudaError_t error = cuda_load_code();

    if (error == cudaSuccess || error == cudaErrorMemoryAllocation || cuda_is_lost(error))
        return error == cudaSuccess ? STATUS_OK : cuda_error(err, error, "cannot load kernels");
    (void)cudaGetLastError();
    return error_set(err, STATUS_UNSUPPORTED,
                     "%s has compute capability %d.%d, for which the plug-in holds no code that "
                     "runs: %s",
                     cuda->name, cuda->capability / 10, cuda->capability % 10,
                     cudaGetErrorString(error));
}

static enum status fill(struct cuda_device *cuda, const struct device_config *config,
                        struct error *err)
{
    const struct precision *precision = NULL;
    uint64_t before, after;
    bool is_known;

    TRY(find_precision(config->precision, &precision, err));
    TRY(find_ordinal(config->name, &cuda->ordinal, err));
    TRY(describe_device(cuda, err));
    TRY(set_precision(cuda, precision, err));
    is_known = cuda_device_used(cuda->bus, &before);
    TRY(start_device(cuda, err));
    TRY(find_code(cuda, err));
    is_known = is_known && cuda_device_used(cuda->bus, &after) && after > before;
    TRY(cuda_source_create(cuda->ordinal, cuda->bus, &cuda->source, err));
    cuda->device.memory = cuda->source;
    cuda->device.multiplies_bytes = true;
    cuda->device.fuses_chains = true;
    cuda->device.fuses_narrow = true;
    cuda->device.lays_narrow_last = true;
    cuda->device.view_alignment = VIEW_ALIGNMENT;
    /* Its kernel computes in float32: where products may use tensor cores they stay apart. */
    cuda->device.fuses_attention = cuda->precision == CUDA_STRICT;
    cuda_fixed_init(&cuda->fixed, cuda->source, is_known ? after - before : 0);
    return STATUS_OK;
}

static void close_cuda(struct device *device)
{
    struct cuda_device *cuda = cuda_device_of(device);

    background_deinit(&cuda->background);
    dnn_close(cuda);
    lt_close(cuda);
    rtc_close(cuda);
    fused_table_deinit(&cuda->fused);
    nan_answers_deinit(&cuda->nan);
    cuda_fixed_deinit(&cuda->fixed);
    cuda_source_destroy(cuda->source);
    free(cuda);
}

static enum status open_cuda(const struct device_config *config, struct device **out_device,
                             struct error *err)
{
    struct cuda_device *cuda = calloc(1, sizeof(*cuda));
    enum status status;

    if (cuda == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the CUDA device");
    cuda->device.ops = &device_cuda_ops;
    cuda->device.lanes = config->lanes > 0 ? config->lanes : 1;
    cuda->device.threads_per_lane = 1;
    cuda_forget_loss();
    background_init(&cuda->background);
    disk_cache_init(&cuda->cache, config->cache_folder, DISK_CACHE_LIMIT);
    fused_table_init(&cuda->fused);
    nan_answers_init(&cuda->nan);
    status = fill(cuda, config, err);
    if (status != STATUS_OK) {
        close_cuda(&cuda->device);
        return status;
    }
    *out_device = &cuda->device;
    return STATUS_OK;
}

static void describe(struct device *device, char *text, size_t room)
{
    const struct cuda_device *cuda = cuda_device_of(device);
    int driver = 0;

    (void)cudaDriverGetVersion(&driver);
    (void)snprintf(text, room,
                   "cuda:%d: %s (%s, capability %d.%d, %d processors), driver for CUDA %d.%d, %u "
                   "lanes",
                   cuda->ordinal, cuda->name, cuda->bus, cuda->capability / 10,
                   cuda->capability % 10, cuda->processors, driver / 1000, driver % 1000 / 10,
                   device->lanes);
}

static uint64_t fixed_bytes(struct device *device)
{
    return cuda_fixed_read(&cuda_device_of(device)->fixed);
}

static void fixed_mark(struct device *device)
{
    cuda_fixed_mark(&cuda_device_of(device)->fixed);
}

static bool is_lost(struct device *device)
{
    (void)device;
    return cuda_was_lost();
}

static void settle(struct device *device)
{
    background_settle(&cuda_device_of(device)->background);
}

/* ---- host memory of requests ---- */

static enum status pin(struct device *device, void *base, size_t bytes)
{
    CU_TRY(cudaSetDevice(cuda_device_of(device)->ordinal));
    return cuda_status(cudaHostRegister(base, bytes, cudaHostRegisterDefault));
}

static void unpin(struct device *device, void *base)
{
    (void)cudaSetDevice(cuda_device_of(device)->ordinal);
    (void)cuda_status(cudaHostUnregister(base));
}

/* In 16 bits the library's engine where it may have one, which is compiled for the next start; else
 * our own. */
static bool takes_attention(struct device *device, const struct attention_attrs *attrs,
                            enum dtype dtype, const struct shape *const *shapes)
{
    if (dtype == DTYPE_FLOAT)
        return device->fuses_attention;
    return dnn_may_take_attention(device, attrs, dtype, shapes)
               ? dnn_takes_attention(device, attrs, dtype, shapes)
               : tensor_takes_attention(device, attrs, dtype, shapes);
}

const struct device_ops device_cuda_ops = {.name = "cuda",
                                           .open = open_cuda,
                                           .close = close_cuda,
                                           .lane_open = cuda_lane_open,
                                           .lane_close = cuda_lane_close,
                                           .lane_enter = cuda_lane_enter,
                                           .lane_wait = cuda_lane_wait,
                                           .copy_in = cuda_lane_copy_in,
                                           .copy_out = cuda_lane_copy_out,
                                           .copy = cuda_lane_copy,
                                           .record_begin = cuda_lane_record_begin,
                                           .record_end = cuda_lane_record_end,
                                           .replay = cuda_lane_replay,
                                           .recording_destroy = cuda_recording_destroy,
                                           .pin = pin,
                                           .unpin = unpin,
                                           .import_open = cuda_import_open,
                                           .import_close = cuda_import_close,
                                           .fixed_bytes = fixed_bytes,
                                           .fixed_mark = fixed_mark,
                                           .is_lost = is_lost,
                                           .settle = settle,
                                           .takes_attention = takes_attention,
                                           .kernels = cuda_kernels,
                                           .describe = describe};
