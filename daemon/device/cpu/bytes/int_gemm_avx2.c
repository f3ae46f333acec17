#include "device/cpu/bytes/int_gemm_kernels.h"
