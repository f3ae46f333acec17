#include "device/cpu/bytes_kernels.h"
