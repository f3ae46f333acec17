#include "device/cuda/dmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "device/host_cgroup.h"

enum { PATH_BYTES = 2048 };

/* A region's name holds the bus address, in small or capital hexadecimal digits. */
static bool names(const char *line, const char *bus)
{
    size_t length = strlen(bus);

    for (; *line != '\0' && *line != ' '; line++)
        if (strncasecmp(line, bus, length) == 0)
            return true;
    return false;
}

/* Sum over the device's regions; false: no file, no region of it, or one without a number. */
static bool read_regions(const char *folder, const char *file_name, const char *bus,
                         uint64_t *out_bytes)
{
    char path[PATH_BYTES + 32], line[512];
    bool found = false;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, file_name);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    *out_bytes = 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *number = strchr(line, ' ');
        uint64_t bytes;

        if (number == NULL || !names(line, bus))
            continue;
        found = sscanf(number, " %" SCNu64, &bytes) == 1;
        if (!found)
            break;
        *out_bytes += bytes;
    }
    fclose(file);
    return found;
}

bool dmem_limit_of(const char *folder, const char *bus, uint64_t *out_left, uint64_t *out_limit)
{
    uint64_t max, current;

    if (*bus == '\0' || !read_regions(folder, "dmem.max", bus, &max) ||
        !read_regions(folder, "dmem.current", bus, &current))
        return false;
    *out_limit = max;
    *out_left = max > current ? max - current : 0;
    return true;
}

bool dmem_limit(const char *bus, uint64_t *out_left, uint64_t *out_limit)
{
    char folder[PATH_BYTES];
    bool found = false;

    if (!host_own_cgroup(folder, sizeof(folder)))
        return false;
    for (char *slash; strlen(folder) > strlen("/sys/fs/cgroup"); *slash = '\0') {
        uint64_t left, limit;

        if (dmem_limit_of(folder, bus, &left, &limit)) {
            *out_left = found && *out_left < left ? *out_left : left;
            *out_limit = found && *out_limit < limit ? *out_limit : limit;
            found = true;
        }
        slash = strrchr(folder, '/');
    }
    return found;
}
