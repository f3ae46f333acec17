/* A hash of bytes, for names of files and for looking things up; not against ill will. */
#ifndef DEVICE_CUDA_HASH_H
#define DEVICE_CUDA_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_EMPTY UINT64_C(0xcbf29ce484222325)

/* FNV-1a, with its high bits brought down at the end of each piece. */
static inline uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 29;
}

/* With its terminator: two texts are not one. */
static inline uint64_t hash_text(uint64_t hash, const char *text)
{
    return hash_bytes(hash, text, strlen(text) + 1);
}

#endif
