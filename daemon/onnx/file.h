/* Bytes of a file, counted.  Mapped while it is read, and then read again by piece.
 *
 * Nothing of a model points into the mapping once it is loaded: who overwrites or cuts the file in
 * place would change its numbers.  Reading again is refused then; what is read while the file is
 * cut is zeros from there on, and file_check() says so.
 */
#ifndef ONNX_FILE_H
#define ONNX_FILE_H

#include "base/error.h"
#include "tensor/dtype.h"

#include <stdatomic.h>
#include <stdbool.h>

struct file {
    atomic_uint references;
    bool mapped; /* else malloc'ed behind this struct */
    bool guarded;
    unsigned guard; /* of the mapping, where it is guarded */
    int fd;         /* of a mapped one, its own; else -1 */
    int64_t modified_ns;
    struct bytes data; /* after file_unmap() only its size counts */
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
/* The reading is over: nothing points into the bytes.  The file stays open for file_read_again().
 */
void file_unmap(struct file *file);
/* Reads `part` of the bytes, as they lay in the mapping at offset `at`.  STATUS_PRECONDITION: the
 * file was changed since it was mapped; STATUS_IO: it cannot be read. */
MUST_CHECK enum status file_read_again(const struct file *file, size_t at, void *to, size_t bytes);
/* STATUS_PRECONDITION: the file was changed since it was mapped. */
MUST_CHECK enum status file_check(const struct file *file);
struct file *file_ref(struct file *file);
void file_unref(struct file *file); /* NULL is fine */

#endif
