/* What took long to make, in files: FOLDER/<hash of the key>.made.
 *
 *   magic, version, byte order
 *   bytes of key and data, a sum over both
 *   key      all that decides the data, in words: compared whole
 *   data
 *
 * A file is a proposal: one that is damaged, of another build or of another key counts for none and
 * is written anew.  Files appear whole or not at all.  Several processes may share a folder.  Those
 * that were not used for longest go when all together are more than the limit.
 *
 * Threads: one at a time.
 */
#ifndef DEVICE_CUDA_DISK_CACHE_H
#define DEVICE_CUDA_DISK_CACHE_H

#include <stddef.h>
#include <stdint.h>

enum { DISK_CACHE_FOLDER_BYTES = 4096 };
#define DISK_CACHE_LIMIT (UINT64_C(64) << 20)

struct disk_cache {
    char folder[DISK_CACHE_FOLDER_BYTES]; /* "": nothing is kept */
    uint64_t limit_bytes;
};

/* `folder` may be NULL: none.  It is made with the first file. */
void disk_cache_init(struct disk_cache *cache, const char *folder, uint64_t limit_bytes);
/* Bytes for the caller to free; NULL: there are none. */
void *disk_cache_find(const struct disk_cache *cache, const char *key, size_t *out_count);
/* What cannot be written is a warning, once a process. */
void disk_cache_keep(const struct disk_cache *cache, const char *key, const void *data,
                     size_t count);

#endif
