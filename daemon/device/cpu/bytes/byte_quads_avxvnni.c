#include "device/cpu/bytes/byte_quads_kernels.h"
