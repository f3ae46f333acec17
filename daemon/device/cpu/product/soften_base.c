#include "device/cpu/product/soften_kernels.h"
