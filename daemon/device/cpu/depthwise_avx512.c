#include "device/cpu/depthwise_kernels.h"
