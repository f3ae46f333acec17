#include "device/cpu/loops_kernels.h"
