/* As much of the management library as the plug-in asks: 256 MiB more are in use each time. */
#include <string.h>

struct memory {
    unsigned long long total, free, used;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out_device);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *out_memory);

#define EXPORT __attribute__((visibility("default")))

EXPORT int nvmlInit_v2(void)
{
    return 0;
}

EXPORT int nvmlShutdown(void)
{
    return 0;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out_device)
{
    *out_device = NULL;
    return strcmp(bus, "0000:41:00.0") == 0 ? 0 : 6; /* NVML_ERROR_NOT_FOUND */
}

EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *out_memory)
{
    static unsigned long long used = 1ULL << 30;

    (void)device;
    *out_memory = (struct memory){4ULL << 30, (4ULL << 30) - used, used};
    used += 256ULL << 20;
    return 0;
}
