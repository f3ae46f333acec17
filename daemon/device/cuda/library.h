/* Libraries that are opened when something first wants them and never linked against.
 *
 * A library's struct (struct lt, struct dnn, …) begins with a field for each function that is
 * called of it.  A device makes one when it is first asked for and keeps it, or why there is none.
 *
 * Ownership: a device owns what cuda_library_get() made until cuda_library_close(), when the device
 *            closes.  The library itself stays loaded.
 * Threads:   cuda_library_get() any.
 */
#ifndef DEVICE_CUDA_LIBRARY_H
#define DEVICE_CUDA_LIBRARY_H

#include <stddef.h>

struct cuda_device;

extern const char cuda_library_no_memory[]; /* what start() says then */

struct cuda_function {
    size_t offset; /* of its field in the library's struct */
    const char *name;
};

struct cuda_library {
    const char *name;    /* "libcudnn.so.9" */
    const char *missing; /* "libcudnn.so.9 is not here" */
    const char *lacks;   /* "libcudnn.so.9 lacks a function" */
    const char *without; /* for the log: "convolutions are left to the plug-in's own kernels" */
    const struct cuda_function *functions;
    size_t count;
    size_t bytes; /* of the library's struct */
    /* Handles and the like, with the device made current.  NULL, or why not (borrowed);
     * cuda_library_no_memory: not now. */
    const char *(*start)(struct cuda_device *cuda, void *library);
    void (*end)(void *library); /* of what start() made, or half of it */
};

/* In struct cuda_device. */
struct cuda_library_slot {
    void *made;
    const char *why_not; /* with nothing made: the answer to all later calls; NULL: none yet */
};

/* Finds all functions, in `path` or by the library's name.  NULL, or why not. */
const char *cuda_library_open(const struct cuda_library *library, const char *path,
                              void *functions);
/* The device's struct of the library.  NULL: `*out_why` says why in borrowed words, the same at
 * every later call; but where memory was wanting the next call tries again. */
void *cuda_library_get(struct cuda_device *cuda, struct cuda_library_slot *slot,
                       const struct cuda_library *library, const char **out_why);
/* Nothing made is fine. */
void cuda_library_close(struct cuda_device *cuda, struct cuda_library_slot *slot,
                        const struct cuda_library *library);

#endif
