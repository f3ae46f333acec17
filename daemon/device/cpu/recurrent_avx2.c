#include "device/cpu/recurrent_kernels.h"
