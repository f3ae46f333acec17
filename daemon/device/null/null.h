/* The null device: every operator "runs" and answers zeros.  For tests of everything above. */
#ifndef DEVICE_NULL_NULL_H
#define DEVICE_NULL_NULL_H

#include "device/device.h"

extern const struct device_ops device_null_ops;

#endif
