#include "onnx/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/guard.h"

static int64_t modified_ns(const struct stat *facts)
{
    return (int64_t)facts->st_mtim.tv_sec * 1000000000 + facts->st_mtim.tv_nsec;
}

enum status file_map_fd(int fd, const char *path, struct file **out_file, struct error *err)
{
    struct file *file;
    struct stat facts;
    void *data = NULL;

    if (fstat(fd, &facts) < 0)
        return error_set(err, STATUS_IO, "'%s': %s", path, strerror(errno));
    if (!S_ISREG(facts.st_mode))
        return error_set(err, STATUS_INVALID, "'%s' is not a regular file", path);
    file = calloc(1, sizeof(*file));
    if (file == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory to read '%s'", path);
    if (facts.st_size > 0)
        data = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        enum status status = errno == ENOMEM ? STATUS_NO_MEMORY : STATUS_IO;

        free(file);
        return error_set(err, status, "'%s' cannot be mapped: %s", path, strerror(errno));
    }
    atomic_init(&file->references, 1);
    file->mapped = true;
    file->modified_ns = modified_ns(&facts);
    file->data = (struct bytes){data == NULL ? "" : data, (size_t)facts.st_size};
    file->guarded = data != NULL && guard_add(data, file->data.size, &file->guard) == STATUS_OK;
    file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (file->fd < 0) {
        file_unref(file);
        return error_set(err, STATUS_IO, "'%s' cannot be kept open: %s", path, strerror(errno));
    }
    *out_file = file;
    return STATUS_OK;
}

enum status file_map(const char *path, struct file **out_file, struct error *err)
{
    /* O_NONBLOCK: a fifo in the folder must not hang the loader. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    enum status status;

    if (fd < 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "'%s': %s", path,
                         strerror(errno));
    status = file_map_fd(fd, path, out_file, err);
    (void)close(fd);
    return status;
}

struct file *file_copy(struct bytes bytes)
{
    struct file *file =
        bytes.size > SIZE_MAX - sizeof(*file) ? NULL : malloc(sizeof(*file) + bytes.size);

    if (file == NULL)
        return NULL;
    atomic_init(&file->references, 1);
    file->mapped = file->guarded = false;
    file->fd = -1;
    file->data = (struct bytes){(const char *)(file + 1), bytes.size};
    if (bytes.size > 0)
        memcpy(file + 1, bytes.data, bytes.size);
    return file;
}

void file_let_go(const struct file *file, struct bytes part)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)part.data + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)part.data + part.size) / page * page;

    if (file->mapped && from < to)
        (void)madvise((void *)from, to - from, MADV_DONTNEED);
}

void file_unmap(struct file *file)
{
    if (file->guarded)
        guard_remove(file->guard);
    file->guarded = false;
    if (file->mapped && file->data.data != NULL && file->data.size > 0)
        (void)munmap((void *)(uintptr_t)file->data.data, file->data.size);
    if (file->mapped)
        file->data.data = NULL;
}

static bool is_unchanged(const struct file *file)
{
    struct stat facts;

    return fstat(file->fd, &facts) == 0 && (size_t)facts.st_size == file->data.size &&
           modified_ns(&facts) == file->modified_ns;
}

enum status file_check(const struct file *file)
{
    return !file->mapped || is_unchanged(file) ? STATUS_OK : STATUS_PRECONDITION;
}

enum status file_read_again(const struct file *file, size_t at, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t count = pread(file->fd, (char *)to + done, bytes - done, (off_t)(at + done));

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return is_unchanged(file) ? STATUS_IO : STATUS_PRECONDITION;
        done += (size_t)count;
    }
    /* Looked at afterwards, so that a change during the reading is seen too. */
    return is_unchanged(file) ? STATUS_OK : STATUS_PRECONDITION;
}

struct file *file_ref(struct file *file)
{
    atomic_fetch_add_explicit(&file->references, 1, memory_order_relaxed);
    return file;
}

void file_unref(struct file *file)
{
    if (file == NULL || atomic_fetch_sub_explicit(&file->references, 1, memory_order_acq_rel) != 1)
        return;
    file_unmap(file);
    if (file->fd >= 0)
        (void)close(file->fd);
    free(file);
}
