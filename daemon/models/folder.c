#include "models/folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/utf8.h"

enum { MAX_NAME = 255, MAX_DEPTH = 4, PATH_ROOM = 4096 };

bool folder_is_model_name(const char *name)
{
    size_t length = strlen(name);

    return length > 0 && length <= MAX_NAME && name[0] != '.' && strchr(name, '/') == NULL &&
           utf8_is_text(name, length);
}

bool folder_exists(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool join(char path[PATH_ROOM], const char *folder, const char *name)
{
    return (size_t)snprintf(path, PATH_ROOM, "%s/%s", folder, name) < PATH_ROOM;
}

/* ---- lists ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void folder_free_names(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

static enum status add_name(char ***names, size_t *count, const char *name)
{
    char **grown = realloc(*names, (*count + 1) * sizeof(*grown));

    if (grown == NULL)
        return STATUS_NO_MEMORY;
    *names = grown;
    grown[*count] = strdup(name);
    if (grown[*count] == NULL)
        return STATUS_NO_MEMORY;
    ++*count;
    return STATUS_OK;
}

enum status folder_models(const char *path, char ***out_names, size_t *out_count, struct error *err)
{
    DIR *folder = opendir(path);
    enum status status = STATUS_OK;
    struct dirent *found;
    char **names = NULL;
    size_t count = 0;

    if (folder == NULL)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s: %s", path,
                         strerror(errno));
    while (status == STATUS_OK && (found = readdir(folder)) != NULL) {
        char below[PATH_ROOM];

        if (folder_is_model_name(found->d_name) && join(below, path, found->d_name) &&
            folder_exists(below))
            status = add_name(&names, &count, found->d_name);
    }
    (void)closedir(folder);
    if (status != STATUS_OK) {
        folder_free_names(names, count);
        return error_set(err, status, "%s: no memory for its list", path);
    }
    if (count > 0)
        qsort(names, count, sizeof(*names), by_name);
    *out_names = names;
    *out_count = count;
    return STATUS_OK;
}

static int by_number(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

    return left < right ? -1 : left > right ? 1 : 0;
}

/* 0: no version. */
static int64_t version_of(const char *name)
{
    int64_t version;
    char *end;

    if (!isdigit((unsigned char)name[0]) || name[0] == '0')
        return 0;
    errno = 0;
    version = strtoll(name, &end, 10);
    return *end != '\0' || errno != 0 ? 0 : version;
}

static enum status add_version(int64_t **versions, size_t *count, int64_t version)
{
    int64_t *grown = realloc(*versions, (*count + 1) * sizeof(*grown));

    if (grown == NULL)
        return STATUS_NO_MEMORY;
    *versions = grown;
    grown[(*count)++] = version;
    return STATUS_OK;
}

enum status folder_versions(const char *path, int64_t **out_versions, size_t *out_count,
                            struct error *err)
{
    DIR *folder = opendir(path);
    enum status status = STATUS_OK;
    int64_t *versions = NULL;
    struct dirent *found;
    size_t count = 0;

    if (folder == NULL)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s: %s", path,
                         strerror(errno));
    while (status == STATUS_OK && (found = readdir(folder)) != NULL) {
        int64_t version = version_of(found->d_name);
        char below[PATH_ROOM];

        if (version > 0 && join(below, path, found->d_name) && folder_exists(below))
            status = add_version(&versions, &count, version);
    }
    (void)closedir(folder);
    if (status != STATUS_OK) {
        free(versions);
        return error_set(err, status, "%s: no memory for its list", path);
    }
    if (count > 0)
        qsort(versions, count, sizeof(*versions), by_number);
    *out_versions = versions;
    *out_count = count;
    return STATUS_OK;
}

/* ---- signature ---- */

static uint64_t mix(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001B3);
    return hash;
}

/* Entries are summed up, not chained: the order of readdir does not matter. */
static uint64_t sign(const char *path, unsigned depth)
{
    DIR *folder = depth < MAX_DEPTH ? opendir(path) : NULL;
    struct dirent *found;
    uint64_t sum = 0;

    if (folder == NULL)
        return 0;
    while ((found = readdir(folder)) != NULL) {
        uint64_t hash = UINT64_C(0xCBF29CE484222325);
        char below[PATH_ROOM];
        struct stat info;

        if (found->d_name[0] == '.' || !join(below, path, found->d_name) || stat(below, &info) != 0)
            continue;
        hash = mix(hash, found->d_name, strlen(found->d_name));
        if (S_ISDIR(info.st_mode)) {
            uint64_t inside = sign(below, depth + 1);

            hash = mix(hash, &inside, sizeof(inside));
        } else {
            hash = mix(hash, &info.st_size, sizeof(info.st_size));
            hash = mix(hash, &info.st_mtim, sizeof(info.st_mtim));
            hash = mix(hash, &info.st_ino, sizeof(info.st_ino));
        }
        sum += hash;
    }
    (void)closedir(folder);
    return sum + 1;
}

uint64_t folder_signature(const char *path)
{
    return sign(path, 0);
}

static uint64_t weigh(const char *path, unsigned depth)
{
    DIR *folder = depth < MAX_DEPTH ? opendir(path) : NULL;
    struct dirent *found;
    uint64_t bytes = 0;

    if (folder == NULL)
        return 0;
    while ((found = readdir(folder)) != NULL) {
        char below[PATH_ROOM];
        struct stat info;

        if (found->d_name[0] == '.' || !join(below, path, found->d_name) || stat(below, &info) != 0)
            continue;
        if (S_ISDIR(info.st_mode))
            bytes += weigh(below, depth + 1);
        else if (S_ISREG(info.st_mode))
            bytes += (uint64_t)info.st_size;
    }
    (void)closedir(folder);
    return bytes;
}

uint64_t folder_bytes(const char *path)
{
    return weigh(path, 0);
}
