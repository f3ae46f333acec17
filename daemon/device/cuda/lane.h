/* A lane: a stream and the event at its end.  Rows of device_cuda_ops, see device/device.h. */
#ifndef DEVICE_CUDA_LANE_H
#define DEVICE_CUDA_LANE_H

#include "device/device.h"

enum status cuda_lane_open(struct device *device, unsigned index, struct device_lane **out_lane);
void cuda_lane_close(struct device_lane *lane);
void cuda_lane_enter(struct device_lane *lane);
enum status cuda_lane_wait(struct device_lane *lane);
enum status cuda_lane_copy_in(struct device_lane *lane, void *to, const void *from, size_t bytes);
enum status cuda_lane_copy_out(struct device_lane *lane, void *to, const void *from, size_t bytes);
enum status cuda_lane_copy(struct device_lane *lane, void *to, const void *from, size_t bytes);
enum status cuda_lane_record_begin(struct device_lane *lane);
enum status cuda_lane_record_end(struct device_lane *lane, struct device_recording **out_recording);
enum status cuda_lane_replay(struct device_lane *lane, struct device_recording *recording);
void cuda_recording_destroy(struct device_recording *recording);

#endif
