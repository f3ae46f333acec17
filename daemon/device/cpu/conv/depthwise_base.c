#include "device/cpu/conv/depthwise_kernels.h"
