/* What the process holds of the device besides the memory it maps: context, code, the driver's own.
 *
 *     total = free + mapped by us + fixed + others' and the driver's
 *
 * Nobody tells the last two apart but by when they changed.  The context's part is what the
 * system's management library sees go when the context is made; without that library it counts as
 * others'.  Between mark and read (a load), and between begin and end (a library's plan that is
 * made or dropped, whoever asks for it), what changes is ours: what another process takes or gives
 * back in just that time is taken for ours, too.
 *
 * Threads: any.
 */
#ifndef DEVICE_CUDA_FIXED_H
#define DEVICE_CUDA_FIXED_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory/mem_source.h"

struct cuda_fixed {
    struct mem_source *source;
    pthread_mutex_t lock;
    uint64_t others_bytes; /* under lock */
    uint64_t fixed_bytes;
    bool marked;            /* what changes until the next read is ours */
    pthread_mutex_t making; /* held from begin to end: what two plans take is not told apart */
    uint64_t begun_bytes;   /* under making, with `is_begun` */
    bool is_begun;
};

/* `context_bytes`: what making the context took, as far as it is known. */
void cuda_fixed_init(struct cuda_fixed *fixed, struct mem_source *source, uint64_t context_bytes);
void cuda_fixed_deinit(struct cuda_fixed *fixed);
void cuda_fixed_mark(struct cuda_fixed *fixed);
uint64_t cuda_fixed_read(struct cuda_fixed *fixed);
/* Around what makes a library hold more or less.  Not nested. */
void cuda_fixed_begin(struct cuda_fixed *fixed);
void cuda_fixed_end(struct cuda_fixed *fixed);

/* Bytes in use on the device with this bus address, of all processes, without making a context.
 * False: the management library (libnvidia-ml) is not there or does not know. */
bool cuda_device_used(const char *bus, uint64_t *out_used);

#endif
