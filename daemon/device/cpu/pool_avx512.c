#include "device/cpu/pool_kernels.h"
