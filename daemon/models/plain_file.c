#include "models/plain_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status check(int fd, const char *path, size_t most, struct error *err)
{
    struct stat facts;

    if (fstat(fd, &facts) < 0)
        return error_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(facts.st_mode))
        return error_set(err, STATUS_INVALID, "%s: is no ordinary file", path);
    if ((uintmax_t)facts.st_size > most)
        return error_set(err, STATUS_INVALID, "%s: more than %zu bytes", path, most);
    return STATUS_OK;
}

enum status plain_file_open(const char *path, size_t most, FILE **out_file, struct error *err)
{
    /* O_NONBLOCK: a fifo must be refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    enum status status;

    if (fd < 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s: %s", path,
                         strerror(errno));
    status = check(fd, path, most, err);
    if (status == STATUS_OK && (*out_file = fdopen(fd, "rb")) == NULL)
        status = error_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
    if (status != STATUS_OK)
        (void)close(fd);
    return status;
}
