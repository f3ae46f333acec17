#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATH_BYTES = 4352 };

bool file_read_all(int file, void *to, size_t bytes)
{
    char *at = to;

    while (bytes > 0) {
        ssize_t count = read(file, at, bytes);

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        at += count;
        bytes -= (size_t)count;
    }
    return true;
}

static bool write_all(int file, const struct file_piece *piece)
{
    const char *at = piece->bytes, *end = at + piece->count;

    while (at < end) {
        ssize_t count = write(file, at, (size_t)(end - at));

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        at += count;
    }
    return true;
}

static bool fits(int length)
{
    if (length > 0 && length < PATH_BYTES)
        return true;
    errno = ENAMETOOLONG;
    return false;
}

bool file_write_whole(const char *folder, const char *name, const char *begun,
                      const struct file_piece *pieces, size_t count)
{
    char path[PATH_BYTES], beside[PATH_BYTES];
    bool is_written = true;
    int file, why;

    if (!fits(snprintf(path, sizeof(path), "%s/%s", folder, name)) ||
        !fits(snprintf(beside, sizeof(beside), "%s/%sXXXXXX", folder, begun)))
        return false;
    file = mkostemp(beside, O_CLOEXEC);
    if (file < 0)
        return false;
    for (size_t i = 0; is_written && i < count; i++)
        is_written = write_all(file, &pieces[i]);
    is_written = close(file) == 0 && is_written;
    if (is_written && rename(beside, path) == 0)
        return true;
    why = errno;
    (void)unlink(beside);
    errno = why;
    return false;
}
