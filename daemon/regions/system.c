/* Parts of POSIX shared memory objects, mapped.
 *
 * The key comes from a client that may ask for anything: it names an object right below /dev/shm
 * and nothing else, and a client whose user is known gets only what that user could open itself. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/guard.h"
#include "regions/internal.h"

static uint64_t page_size(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t system_page_bytes(uint64_t offset, uint64_t bytes)
{
    uint64_t page = page_size(), start = offset % page;

    return bytes > UINT64_MAX - start - page ? UINT64_MAX
                                             : (start + bytes + page - 1) / page * page;
}

/* Objects in the same folder that belong to the process itself, or are no memory to be shared. */
static bool is_reserved(const char *name, size_t size)
{
    static const char *const prefixes[] = {"sem.", "cuda.shm.", "nvidia"};

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (size >= strlen(prefixes[i]) && memcmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* The name of an object as shm_open() takes it everywhere: one slash, then none. */
static enum status read_key(const struct region_order *order, char key[REGION_KEY_MAX + 1],
                            struct error *err)
{
    const char *data = order->key.data;
    size_t size = order->key.size;

    if (size > 0 && data[0] == '/') {
        data++;
        size--;
    }
    if (size == 0 || size > REGION_KEY_MAX - 2 || memchr(data, '/', size) != NULL ||
        memchr(data, '\0', size) != NULL || (size == 1 && data[0] == '.') ||
        (size == 2 && memcmp(data, "..", 2) == 0))
        return error_set(err, STATUS_INVALID,
                         "failed to register shared memory region '%.*s': the key is no name of a "
                         "shared memory object",
                         (int)order->name.size, order->name.data);
    if (is_reserved(data, size))
        return error_set(
            err, STATUS_DENIED,
            "failed to register shared memory region '%.*s': the key '%.*s' is reserved",
            (int)order->name.size, order->name.data, (int)size, data);
    key[0] = '/';
    memcpy(key + 1, data, size);
    key[size + 1] = '\0';
    return STATUS_OK;
}

/* Whether the client could have opened the object itself. */
static bool may_open(const struct region_peer *peer, const struct stat *object, bool writes)
{
    mode_t wanted = writes ? 06 : 04;

    if (!peer->is_known || peer->uid == 0)
        return true;
    if (peer->uid == object->st_uid)
        wanted <<= 6;
    else if (peer->gid == object->st_gid)
        wanted <<= 3;
    return (object->st_mode & wanted) == wanted;
}

static enum status refuse_key(const char *key, int error, struct error *err)
{
    return error_set(err,
                     error == EACCES || error == EPERM ? STATUS_DENIED
                     : error == ENOENT                 ? STATUS_NOT_FOUND
                                                       : STATUS_IO,
                     "Unable to open shared memory region: '%s' (%s)", key, strerror(error));
}

/* A read-only object can hold inputs.  Nothing here may wait: what is no regular file is refused.
 */
static enum status open_object(const char *key, int *out_fd, bool *out_writable, struct error *err)
{
    int fd = shm_open(key, O_RDWR | O_NONBLOCK, 0);
    int error;

    *out_writable = fd >= 0;
    if (fd < 0 && errno == EACCES)
        fd = shm_open(key, O_RDONLY | O_NONBLOCK, 0);
    error = errno;
    if (fd < 0)
        return refuse_key(key, error, err);
    *out_fd = fd;
    return STATUS_OK;
}

static enum status check_object(const struct region_order *order, const char *key, int fd,
                                bool *writable, struct stat *object, struct error *err)
{
    if (fstat(fd, object) != 0)
        return refuse_key(key, errno, err);
    if (!S_ISREG(object->st_mode))
        return refuse_key(key, ENXIO, err);
    if (*writable && !may_open(&order->peer, object, true))
        *writable = false;
    if (!*writable && !may_open(&order->peer, object, false))
        return refuse_key(key, EACCES, err);
    if (object->st_size < 0 || order->offset > (uint64_t)object->st_size ||
        order->bytes > (uint64_t)object->st_size - order->offset)
        return error_set(err, STATUS_INVALID,
                         "failed to register shared memory region '%.*s': %llu bytes at %llu are "
                         "not all in '%s', which has %lld",
                         (int)order->name.size, order->name.data, (unsigned long long)order->bytes,
                         (unsigned long long)order->offset, key, (long long)object->st_size);
    return STATUS_OK;
}

static enum status map_object(struct region *region, int fd, struct error *err)
{
    uint64_t start = region->offset % page_size();
    size_t bytes = (size_t)system_page_bytes(region->offset, region->bytes);
    int access = PROT_READ | (region->is_writable ? PROT_WRITE : 0);
    void *base = mmap(NULL, bytes, access, MAP_SHARED, fd, (off_t)(region->offset - start));
    enum status status;

    if (base == MAP_FAILED)
        return error_set(err, errno == ENOMEM ? STATUS_NO_MEMORY : STATUS_IO,
                         "failed to register shared memory region '%s': it cannot be mapped (%s)",
                         region->name, strerror(errno));
    region->base = base;
    region->mapped_bytes = bytes;
    region->data = (char *)base + start;
    status = guard_add(base, bytes, &region->guard);
    if (status != STATUS_OK)
        return error_set(err, status,
                         "failed to register shared memory region '%s': it cannot be guarded",
                         region->name);
    region->is_guarded = true;
    return STATUS_OK;
}

enum status system_map(struct region *region, const struct region_order *order, struct error *err)
{
    char key[REGION_KEY_MAX + 1];
    struct stat object;
    enum status status;
    int fd = -1;

    TRY(read_key(order, key, err));
    memcpy(region->key, order->key.data, order->key.size); /* as the client wrote it */
    TRY(open_object(key, &fd, &region->is_writable, err));
    status = check_object(order, key, fd, &region->is_writable, &object, err);
    if (status == STATUS_OK) {
        region->device = object.st_dev;
        region->inode = object.st_ino;
        status = map_object(region, fd, err);
    }
    (void)close(fd);
    return status;
}

void system_unmap(struct region *region)
{
    if (region->is_guarded)
        guard_remove(region->guard);
    if (region->base != NULL)
        (void)munmap(region->base, region->mapped_bytes);
    region->is_guarded = false;
    region->base = NULL;
}
