#include "device/cpu/epilogue_kernels.h"
