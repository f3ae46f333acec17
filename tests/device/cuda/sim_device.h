/* The plug-in over the simulated runtime, as tests open it. */
#ifndef TESTS_DEVICE_CUDA_SIM_DEVICE_H
#define TESTS_DEVICE_CUDA_SIM_DEVICE_H

#include <string.h>

#include "device/cpu/cpu.h"
#include "sim.h"
#include "support/unit.h"

static inline enum status try_open(const char *name, const char *precision,
                                   struct device **out_device, struct error *err)
{
    const struct device_config config = {
        .name = name, .lanes = 2, .threads = 1, .precision = precision};

    device_register(&device_cpu_ops);
    return device_open(&config, out_device, err);
}

static inline struct device *open_cuda(void)
{
    struct device *device;
    struct error err = {.text = ""};

    if (try_open("cuda", "strict", &device, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return device;
}

/* What the checkers of the simulator found, and what was left open, fails the test. */
static inline void assert_nothing_left(void)
{
    if (sim_findings() > 0)
        fail_msg("the simulator found: %s", sim_last_finding());
    if (sim_report_open() > 0)
        fail_msg("something of the device is still open");
}

static inline int clean_slate(void **state)
{
    (void)state;
    sim_reset();
    sim_set_mode(SIM_EAGER);
    return 0;
}

#endif
