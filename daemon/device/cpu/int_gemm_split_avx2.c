#define SPLIT_QUADS
#include "device/cpu/int_gemm_kernels.h"
