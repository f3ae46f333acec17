#include "device/cpu/cpu.h"

#include <assert.h>
#include <cpuid.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "device/cpu/onednn/onednn.h"
#include "device/cpu/peak.h"
#include "device/cpu/team.h"
#include "device/host_source.h"

/* Where more threads share a picture, each has so few of its rows that what neighbours compute
 * twice (separable_conv.c) costs what is saved. */
enum { SEPARABLE_THREADS = 8 };

struct cpu_device {
    struct device device;
    enum cpu_isa isa;
    bool strict;
    char model[96]; /* "Intel(R) Xeon(R) Processor" */
};

static const struct row {
    const struct op_def *op;
    const struct kernel *kernel;
} rows[] = {
#define KERNEL(operator, variant) {&op_##operator, & kernel_##operator##_##variant },
#include "device/cpu/kernels.def"
#undef KERNEL
    {NULL, NULL}};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) - 1 };

/* The rows gathered by operator: each list ends with NULL. */
static struct {
    const struct op_def *op;
    const struct kernel *const *list;
} lists[ROWS + 1];
static const struct kernel *pool[2 * ROWS + 1];
static pthread_once_t lists_once = PTHREAD_ONCE_INIT;

static bool is_listed(const struct op_def *op, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (lists[i].op == op)
            return true;
    return false;
}

static void gather(void)
{
    size_t listed = 0, used = 0;

    for (size_t i = 0; rows[i].op != NULL; i++) {
        if (is_listed(rows[i].op, listed))
            continue;
        lists[listed].op = rows[i].op;
        lists[listed++].list = pool + used;
        for (size_t k = i; rows[k].op != NULL; k++)
            if (rows[k].op == rows[i].op)
                pool[used++] = rows[k].kernel;
        pool[used++] = NULL;
    }
}

static const struct kernel *const *kernels(struct device *device, const struct op_def *op)
{
    (void)device;
    pthread_once(&lists_once, gather);
    for (size_t i = 0; lists[i].op != NULL; i++)
        if (lists[i].op == op)
            return lists[i].list;
    return NULL;
}

static const char *const isa_names[CPU_ISA_COUNT] = {"baseline", "avx2", "avx512"};

const char *cpu_isa_name(enum cpu_isa isa)
{
    return isa_names[isa];
}

static const struct cpu_device *of(const struct device *device)
{
    assert(device->ops == &device_cpu_ops);
    return CONTAINER_OF(device, const struct cpu_device, device);
}

enum cpu_isa cpu_isa_of(const struct device *device)
{
    return of(device)->isa;
}

bool cpu_is_strict(const struct device *device)
{
    return of(device)->strict;
}

static bool has_f16c(void) /* clang 14 does not know the name */
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static enum cpu_isa detect_isa(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("fma") && has_f16c())
        return CPU_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        return CPU_AVX2;
    return CPU_BASELINE;
}

/* What the machine has, or less when SLUICE_CPU asks for it. */
static enum status choose_isa(enum cpu_isa *out_isa, struct error *err)
{
    const char *wanted = getenv("SLUICE_CPU");
    enum cpu_isa best = detect_isa();

    *out_isa = best;
    if (wanted == NULL || *wanted == '\0')
        return STATUS_OK;
    for (int i = 0; i < CPU_ISA_COUNT; i++)
        if (strcmp(wanted, isa_names[i]) == 0) {
            *out_isa = i < (int)best ? (enum cpu_isa)i : best;
            return STATUS_OK;
        }
    return error_set(err, STATUS_INVALID,
                     "SLUICE_CPU is '%s'; allowed are baseline, avx2 and avx512", wanted);
}

static void read_model(char *text, size_t room)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];

    snprintf(text, room, "unknown processor");
    if (file == NULL)
        return;
    while (fgets(line, sizeof(line), file) != NULL) {
        char *colon = strchr(line, ':');

        if (strncmp(line, "model name", strlen("model name")) != 0 || colon == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(text, room, "%s", colon + 2);
        break;
    }
    fclose(file);
}

static unsigned count_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    return CPU_COUNT(&set) > 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

static enum status open_cpu(const struct device_config *config, struct device **out_device,
                            struct error *err)
{
    unsigned lanes = config->lanes > 0 ? config->lanes : 1;
    unsigned threads = config->threads > 0 ? config->threads : count_cores();
    const char *precision = config->precision != NULL ? config->precision : "default";
    struct cpu_device *cpu;
    enum cpu_isa isa;

    TRY(device_check_precision("cpu", precision, err));
    TRY(choose_isa(&isa, err));
    cpu = calloc(1, sizeof(*cpu));
    if (cpu == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the CPU device");
    cpu->isa = isa;
    cpu->device.demands_bytes = strcmp(precision, "int8") == 0;
    cpu->strict = strcmp(precision, "strict") == 0 || cpu->device.demands_bytes;
    read_model(cpu->model, sizeof(cpu->model));
    cpu->device.ops = &device_cpu_ops;
    cpu->device.memory = host_source();
    cpu->device.multiplies_bytes = true;
    cpu->device.weighs_bytes = true;
    cpu->device.spreads_rows = true;
    cpu->device.channel_block = isa == CPU_AVX512 ? 16 : 8;
    cpu->device.fuses_attention = true;
    cpu->device.guards_attention = true;
    cpu->device.fuses_preludes = isa != CPU_BASELINE; /* what direct.c needs */
    cpu->device.fuses_pools = isa != CPU_BASELINE;    /* … likewise */
    cpu->device.fuses_shuffles = isa != CPU_BASELINE; /* … and mix_channels.c */
    cpu->device.lanes = lanes;
    cpu->device.threads_per_lane = threads > lanes ? threads / lanes : 1;
    cpu->device.fuses_separable =
        isa != CPU_BASELINE && cpu->device.threads_per_lane <= SEPARABLE_THREADS;
    (void)team_open();
    onednn_open(isa);
    *out_device = &cpu->device;
    return STATUS_OK;
}

static void close_cpu(struct device *device)
{
    free(CONTAINER_OF(device, struct cpu_device, device));
}

static enum status lane_open(struct device *device, unsigned index, struct device_lane **out_lane)
{
    struct device_lane *lane = calloc(1, sizeof(*lane));

    if (lane == NULL)
        return STATUS_NO_MEMORY;
    lane->device = device;
    lane->index = index;
    lane->threads = device->threads_per_lane;
    *out_lane = lane;
    return STATUS_OK;
}

static void lane_close(struct device_lane *lane)
{
    free(lane);
}

/* The team size is a property of the calling thread in OpenMP; oneDNN asks for it there. */
static void lane_enter(struct device_lane *lane)
{
    static _Thread_local unsigned entered_threads;

    if (entered_threads == lane->threads)
        return;
    (void)team_enter(lane->threads);
    entered_threads = lane->threads;
}

static enum status lane_wait(struct device_lane *lane)
{
    (void)lane;
    return STATUS_OK;
}

static enum status copy(struct device_lane *lane, void *to, const void *from, size_t bytes)
{
    (void)lane;
    if (bytes > 0)
        memcpy(to, from, bytes);
    return STATUS_OK;
}

static void describe(struct device *device, char *text, size_t room)
{
    const struct cpu_device *cpu = of(device);

    snprintf(text, room, "cpu: %s, %u lanes of %u threads, %s", cpu->model, device->lanes,
             device->threads_per_lane, isa_names[cpu->isa]);
}

const struct device_ops device_cpu_ops = {.name = "cpu",
                                          .open = open_cpu,
                                          .close = close_cpu,
                                          .lane_open = lane_open,
                                          .lane_close = lane_close,
                                          .lane_enter = lane_enter,
                                          .lane_wait = lane_wait,
                                          .copy_in = copy,
                                          .copy_out = copy,
                                          .kernels = kernels,
                                          .describe = describe,
                                          .measure_peaks = peak_measure,
                                          .host_memory = true};
