/* Bytes of a file, mapped and counted: lives as long as anything points into it. */
#ifndef ONNX_FILE_H
#define ONNX_FILE_H

#include "base/error.h"
#include "tensor/dtype.h"

#include <stdatomic.h>
#include <stdbool.h>

struct file {
    atomic_uint references;
    bool mapped; /* else malloc'ed behind this struct */
    struct bytes data;
};

/* Maps a regular file.  One reference. */
MUST_CHECK enum status file_map(const char *path, struct file **out_file, struct error *err);
/* The same from a descriptor, which stays the caller's; path is for errors. */
MUST_CHECK enum status file_map_fd(int fd, const char *path, struct file **out_file,
                                   struct error *err);
/* A copy of `bytes`; NULL when malloc refuses. */
struct file *file_copy(struct bytes bytes);
/* `part` was read and is not wanted soon: its whole pages leave our memory, the system's cache
 * still has them. */
void file_let_go(const struct file *file, struct bytes part);
struct file *file_ref(struct file *file);
void file_unref(struct file *file); /* NULL is fine */

#endif
