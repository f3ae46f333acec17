/* Control of the compiler that stands before the real NVRTC. */
#ifndef SLUICE_TESTS_SIM_NVRTC_H
#define SLUICE_TESTS_SIM_NVRTC_H

#include <stdbool.h>

/* While true, compilations wait; await says when one does. */
__attribute__((visibility("default"))) void sim_nvrtc_hold(bool hold);
__attribute__((visibility("default"))) void sim_nvrtc_await_held(void);

#endif
