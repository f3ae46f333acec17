/* A device whose memory the host cannot touch, for tests of everything that deals with such.
 *
 * It computes a few operators by the CPU device's kernels, on memory that is mapped twice: at the
 * addresses that everybody knows nothing can be read or written, the kernels and copies know the
 * others.  All work waits in the lane until somebody waits for it: a wait that is missing shows
 * every time.  The rest of the operators have no kernel here and run on the host.
 */
#ifndef TESTS_SUPPORT_FAR_DEVICE_H
#define TESTS_SUPPORT_FAR_DEVICE_H

#include "device/device.h"

extern const struct device_ops far_device_ops; /* "far"; needs the CPU device registered */

struct far_counts {
    unsigned kernels, copies, waits, recorded, replayed;
    unsigned reads, pins, unpins; /* of memory by the host; of pages of the host */
};
extern struct far_counts far_counts; /* since the test set it to zero */

#endif
