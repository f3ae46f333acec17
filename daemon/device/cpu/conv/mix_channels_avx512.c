#include "device/cpu/conv/mix_channels_kernels.h"
