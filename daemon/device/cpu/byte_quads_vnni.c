#include "device/cpu/byte_quads_kernels.h"
