#include "device/cpu/product/gemm_kernels.h"
