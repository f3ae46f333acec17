#define LOG_COMPONENT "device"
#include "device/cuda/disk_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "device/cuda/hash.h"
#include "observe/log.h"

enum { FORMAT_VERSION = 1, NAME_BYTES = 64, MOST_FILES = 4096 };
enum { PATH_BYTES = DISK_CACHE_FOLDER_BYTES + NAME_BYTES };
enum { STALE_SECONDS = 3600 }; /* of a file that somebody began and never finished */
#define SUFFIX ".made"
#define BEGUN  ".made."

struct header {
    char magic[8];
    uint32_t version;
    uint32_t byte_order; /* 0x01020304 as this machine writes it */
    uint64_t key_bytes;
    uint64_t data_bytes;
    uint64_t check;
};

static struct header make_header(const char *key, const void *data, size_t count)
{
    struct header header = {
        .magic = "SLMADE\r\n", .version = FORMAT_VERSION, .byte_order = 0x01020304};

    header.key_bytes = strlen(key);
    header.data_bytes = count;
    header.check = hash_bytes(hash_text(HASH_EMPTY, key), data, count);
    return header;
}

void disk_cache_init(struct disk_cache *cache, const char *folder, uint64_t limit_bytes)
{
    cache->folder[0] = '\0';
    cache->limit_bytes = limit_bytes;
    if (folder != NULL && strlen(folder) < sizeof(cache->folder))
        memcpy(cache->folder, folder, strlen(folder) + 1);
}

static void name_file(const char *key, char name[NAME_BYTES])
{
    uint64_t hash = hash_text(HASH_EMPTY, key);

    (void)snprintf(name, NAME_BYTES, "%016" PRIx64 "%016" PRIx64 SUFFIX, hash,
                   hash_text(~hash, key));
}

/* ---- reading ---- */

/* The whole file: a plain one of this user's, not larger than all may be. */
static void *read_file(const struct disk_cache *cache, int file, size_t *out_bytes)
{
    struct stat facts;
    void *bytes;

    if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_uid != geteuid() ||
        (uint64_t)facts.st_size < sizeof(struct header) ||
        (uint64_t)facts.st_size > cache->limit_bytes)
        return NULL;
    bytes = malloc((size_t)facts.st_size);
    if (bytes != NULL && file_read_all(file, bytes, (size_t)facts.st_size)) {
        *out_bytes = (size_t)facts.st_size;
        return bytes;
    }
    free(bytes);
    return NULL;
}

/* The data of a file's bytes, moved to their begin; false: it is not what `key` leads to. */
static bool take_data(char *bytes, size_t size, const char *key, size_t *out_count)
{
    struct header header, wanted;
    size_t before = sizeof(header) + strlen(key);
    const char *data = bytes + before;

    if (size < before)
        return false;
    memcpy(&header, bytes, sizeof(header));
    wanted = make_header(key, data, size - before);
    if (memcmp(&header, &wanted, sizeof(header)) != 0 ||
        memcmp(bytes + sizeof(header), key, strlen(key)) != 0)
        return false;
    *out_count = size - before;
    memmove(bytes, data, *out_count);
    return true;
}

void *disk_cache_find(const struct disk_cache *cache, const char *key, size_t *out_count)
{
    char name[NAME_BYTES], path[PATH_BYTES];
    size_t size = 0;
    void *bytes;
    int file;

    if (cache->folder[0] == '\0')
        return NULL;
    name_file(key, name);
    (void)snprintf(path, sizeof(path), "%s/%s", cache->folder, name);
    file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0)
        return NULL;
    bytes = read_file(cache, file, &size);
    if (bytes != NULL && take_data(bytes, size, key, out_count)) {
        (void)futimens(file, NULL); /* used now */
        close(file);
        return bytes;
    }
    close(file);
    free(bytes);
    log_warn("CUDA: '%s' is not what was written there, ignoring", path);
    return NULL;
}

/* ---- the limit ---- */

struct found {
    char name[NAME_BYTES];
    uint64_t bytes;
    struct timespec used;
};

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);

    return length >= tail && strcmp(name + length - tail, end) == 0;
}

/* Files of this cache; those that were begun long ago are nobody's any more. */
static size_t list_files(DIR *folder, struct found *found)
{
    const struct dirent *entry;
    size_t count = 0;

    while (count < MOST_FILES && (entry = readdir(folder)) != NULL) {
        struct stat facts;

        if (strlen(entry->d_name) >= sizeof(found->name) ||
            fstatat(dirfd(folder), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(facts.st_mode))
            continue;
        if (strncmp(entry->d_name, BEGUN, strlen(BEGUN)) == 0 &&
            facts.st_mtim.tv_sec + STALE_SECONDS < time(NULL))
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
        if (!ends_with(entry->d_name, SUFFIX))
            continue;
        memcpy(found[count].name, entry->d_name, strlen(entry->d_name) + 1);
        found[count].bytes = (uint64_t)facts.st_size;
        found[count++].used = facts.st_mtim;
    }
    return count;
}

static int by_use(const void *left, const void *right)
{
    const struct found *a = left, *b = right;

    if (a->used.tv_sec != b->used.tv_sec)
        return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    if (a->used.tv_nsec != b->used.tv_nsec)
        return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
    return strcmp(a->name, b->name);
}

static void keep_limit(const struct disk_cache *cache)
{
    struct found *found = calloc(MOST_FILES, sizeof(*found));
    DIR *folder = found != NULL ? opendir(cache->folder) : NULL;
    uint64_t all = 0;
    size_t count;

    if (folder != NULL) {
        count = list_files(folder, found);
        qsort(found, count, sizeof(*found), by_use);
        for (size_t i = 0; i < count; i++)
            all += found[i].bytes;
        for (size_t i = 0; i < count && (all > cache->limit_bytes || count - i >= MOST_FILES); i++)
            if (unlinkat(dirfd(folder), found[i].name, 0) == 0)
                all -= found[i].bytes;
        closedir(folder);
    }
    free(found);
}

/* ---- writing ---- */

static bool write_file(const struct disk_cache *cache, const char *key, const void *data,
                       size_t count)
{
    struct header header = make_header(key, data, count);
    const struct file_piece pieces[] = {
        {&header, sizeof(header)}, {key, strlen(key)}, {data, count}};
    char name[NAME_BYTES];

    name_file(key, name);
    return file_write_whole(cache->folder, name, BEGUN, pieces, 3);
}

void disk_cache_keep(const struct disk_cache *cache, const char *key, const void *data,
                     size_t count)
{
    static atomic_bool was_said;

    if (cache->folder[0] == '\0' ||
        sizeof(struct header) + strlen(key) + count > cache->limit_bytes)
        return;
    (void)mkdir(cache->folder, 0750);
    if (write_file(cache, key, data, count))
        keep_limit(cache);
    else if (!atomic_exchange(&was_said, true))
        log_warn("CUDA: kernels cannot be kept in '%s': %s, ignoring", cache->folder,
                 strerror(errno));
}
