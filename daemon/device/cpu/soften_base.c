#include "device/cpu/soften_kernels.h"
