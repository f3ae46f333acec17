#include "device/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "device/host_cgroup.h"
#include "device/kernel.h"
#include "observe/log.h"
#include "ops/attention.h"
#include "ops/chain.h"
#include "ops/conv.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/ml.h"
#include "ops/movement.h"
#include "ops/pool.h"
#include "ops/quantize.h"
#include "ops/recurrent.h"
#include "ops/reduce.h"
#include "plugin_border.h"

enum { MAX_PLUGINS = 4, PATH_BYTES = 1024 };

/* The linker leaves out of a program what nobody in it calls; a plug-in may. */
__attribute__((used)) static const void *const exports[] = {
#define EXPORT(function) (const void *)function,
#include "device/plugin_exports.def"
#undef EXPORT
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct device_ops *loaded[MAX_PLUGINS]; /* under the lock */
static size_t loaded_count;

/* The one place where they may lie; NULL: several. */
static const char *place_wanted(void)
{
    const char *wanted = secure_getenv("SLUICE_PLUGIN_DIR");

    return wanted != NULL && *wanted != '\0' ? wanted : NULL;
}

/* Where plug-ins may lie, `index` counting from 0; false behind the last place. */
static bool place(size_t index, const char *name, char *path, size_t room)
{
    const char *wanted = place_wanted();
    char own[PATH_BYTES];
    ssize_t length;

    if (wanted != NULL)
        return index == 0 && snprintf(path, room, "%s/libsluice-%s.so", wanted, name) < (int)room;
    if (index == 1)
        return snprintf(path, room, "%s/libsluice-%s.so", SLUICE_PLUGIN_FOLDER, name) < (int)room;
    if (index > 1)
        return false;
    length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    if (length < 0)
        length = 0;
    own[length] = '\0';
    if (strrchr(own, '/') != NULL)
        *strrchr(own, '/') = '\0';
    return snprintf(path, room, "%s/libsluice-%s.so", own, name) < (int)room;
}

static enum status check(const struct plugin *plugin, const char *path, struct error *err)
{
    static const uint32_t sizes[PLUGIN_SIZE_COUNT] = PLUGIN_SIZES;

    if (plugin == NULL)
        return error_set(err, STATUS_PRECONDITION, "'%s' is no plug-in: it has no sluice_plugin",
                         path);
    if (plugin->abi != PLUGIN_ABI)
        return error_set(err, STATUS_PRECONDITION,
                         "'%s' speaks plug-in interface %u, this program %u: install both from one "
                         "version",
                         path, plugin->abi, PLUGIN_ABI);
    if (strcmp(plugin->version, SLUICE_VERSION) != 0 ||
        strcmp(plugin->border, PLUGIN_BORDER) != 0 ||
        memcmp(plugin->sizes, sizes, sizeof(sizes)) != 0)
        return error_set(err, STATUS_PRECONDITION,
                         "'%s' is of version %s, this program of %s, or of another build: install "
                         "both from one",
                         path, plugin->version, SLUICE_VERSION);
    return STATUS_OK;
}

/* Whether the file holds all that its segments claim.  The loader maps them and runs into SIGBUS
 * where a file was cut off; what is no ELF file at all it refuses in words. */
static bool is_whole(const char *path)
{
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    struct stat stat;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool whole = true;

    if (fd < 0)
        return true;
    if (fstat(fd, &stat) == 0 && pread(fd, &header, sizeof(header), 0) == sizeof(header) &&
        memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_phentsize == sizeof(segment))
        for (uint64_t i = 0; i < header.e_phnum && whole; i++)
            whole = pread(fd, &segment, sizeof(segment),
                          (off_t)(header.e_phoff + i * sizeof(segment))) == sizeof(segment) &&
                    segment.p_filesz <= (uint64_t)stat.st_size &&
                    segment.p_offset <= (uint64_t)stat.st_size - segment.p_filesz;
    close(fd);
    return whole;
}

static enum status open_file(const char *path, const struct device_ops **out_ops, struct error *err)
{
    const struct plugin *plugin;
    enum status status;
    void *file;

    if (!is_whole(path))
        return error_set(err, STATUS_PRECONDITION,
                         "'%s' is cut off: it ends before its last segment", path);
    file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (file == NULL) /* its sentence names the file, or the library that is missing */
        return error_set(err, STATUS_NOT_FOUND, "the plug-in does not open: %s", dlerror());
    plugin = dlsym(file, "sluice_plugin");
    status = check(plugin, path, err);
    if (status != STATUS_OK) {
        dlclose(file);
        return status;
    }
    log_debug("opened plug-in %s", path);
    *out_ops = plugin->ops;
    return STATUS_OK;
}

/* The first file that is there decides. */
static enum status find_file(const char *name, const struct device_ops **out_ops, struct error *err)
{
    char path[PATH_BYTES + 64];

    for (size_t i = 0; place(i, name, path, sizeof(path)); i++)
        if (access(path, F_OK) == 0)
            return open_file(path, out_ops, err);
    if (place_wanted() != NULL)
        return error_set(
            err, STATUS_NOT_FOUND,
            "the plug-in libsluice-%s.so is not in '%s', which SLUICE_PLUGIN_DIR names", name,
            place_wanted());
    return error_set(err, STATUS_NOT_FOUND,
                     "the plug-in libsluice-%s.so is not installed (looked beside the program and "
                     "in %s)",
                     name, SLUICE_PLUGIN_FOLDER);
}

enum status plugin_load(const char *name, const struct device_ops **out_ops, struct error *err)
{
    const struct device_ops *ops = NULL;
    enum status status = STATUS_OK;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < loaded_count; i++)
        if (strcmp(loaded[i]->name, name) == 0)
            ops = loaded[i];
    if (ops == NULL) {
        status = find_file(name, &ops, err);
        if (status == STATUS_OK && loaded_count < MAX_PLUGINS)
            loaded[loaded_count++] = ops;
    }
    pthread_mutex_unlock(&lock);
    if (status == STATUS_OK)
        *out_ops = ops;
    return status;
}
