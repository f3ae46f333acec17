#include "device/cpu/mix_channels_kernels.h"
