/* All kernels that were made at run time for a device, in struct cuda_device; see rtc/fused.h. */
#ifndef DEVICE_CUDA_RTC_TABLE_H
#define DEVICE_CUDA_RTC_TABLE_H

#include <pthread.h>

#include "base/list.h"

struct fused_table {
    pthread_mutex_t lock;
    struct list all;
    size_t count;
};
void fused_table_init(struct fused_table *table);
void fused_table_deinit(struct fused_table *table); /* empty, and nothing is made any more */

#endif
