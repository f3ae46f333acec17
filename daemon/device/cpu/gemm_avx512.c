#include "device/cpu/gemm_kernels.h"
