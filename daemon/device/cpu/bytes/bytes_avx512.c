#include "device/cpu/bytes/bytes_kernels.h"
