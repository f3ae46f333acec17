#include "device/cpu/conv/pool_kernels.h"
