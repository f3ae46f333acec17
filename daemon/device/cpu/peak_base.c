#include "device/cpu/peak_kernels.h"
