#include "device/cpu/winograd_kernels.h"
