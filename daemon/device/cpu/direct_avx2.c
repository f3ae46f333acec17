#include "device/cpu/direct_kernels.h"
