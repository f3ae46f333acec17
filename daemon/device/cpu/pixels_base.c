#include "device/cpu/pixels_kernels.h"
