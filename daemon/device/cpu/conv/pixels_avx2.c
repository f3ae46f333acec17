#include "device/cpu/conv/pixels_kernels.h"
