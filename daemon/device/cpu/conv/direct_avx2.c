#include "device/cpu/conv/direct_kernels.h"
