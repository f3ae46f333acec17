#include "device/cpu/conv/winograd_kernels.h"
