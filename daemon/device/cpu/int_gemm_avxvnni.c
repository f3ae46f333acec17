#include "device/cpu/int_gemm_kernels.h"
