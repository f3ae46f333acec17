#include "device/cpu/recurrent/recurrent_kernels.h"
