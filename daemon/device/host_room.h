/* Host memory of a lane, for steps that run on the host beside a device: taken in whole units. */
#ifndef DEVICE_HOST_ROOM_H
#define DEVICE_HOST_ROOM_H

#include <stddef.h>

/* What device_lane_host_memory() takes for `bytes`. */
static inline size_t device_host_room(size_t bytes)
{
    const size_t unit = 1 << 20;

    return (bytes + unit - 1) / unit * unit;
}

#endif
