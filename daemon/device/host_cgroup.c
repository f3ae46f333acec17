/* The folder is found by two files: /proc/self/cgroup names our cgroup as the hierarchy has it,
 * /proc/self/mountinfo where that hierarchy is mounted, and which of its cgroups is the root there
 * (in a container often our own). */
#include "device/host_cgroup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 4096 };

/* What the two versions call the same thing. */
struct files {
    const char *max, *high, *current, *reclaimable, *events;
};
static const struct files version_1 = {
    .max = "memory.limit_in_bytes",
    .current = "memory.usage_in_bytes",
    .reclaimable = "total_inactive_file",
    .events = "memory.failcnt",
};
static const struct files version_2 = {
    .max = "memory.max",
    .high = "memory.high", /* beyond it the kernel makes us wait */
    .current = "memory.current",
    .reclaimable = "inactive_file",
    .events = "memory.events",
};

static const struct files *files_of(const struct host_cgroup *cgroup)
{
    return cgroup->is_v1 ? &version_1 : &version_2;
}

/* ---- where ---- */

static FILE *open_in(const char *folder, const char *name)
{
    char path[HOST_CGROUP_PATH_BYTES + 64];

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) >= sizeof(path))
        return NULL;
    return fopen(path, "re");
}

/* Whether the list, with commas, has the word. */
static bool lists(const char *list, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ',') && (at[length] == '\0' || at[length] == ','))
            return true;
    return false;
}

/* Our cgroup's name: "4:memory:/a/b", or "0::/a/b". */
static bool read_name(const char *proc_self, bool is_v1, char name[HOST_CGROUP_PATH_BYTES])
{
    FILE *file = open_in(proc_self, "cgroup");
    char line[LINE_BYTES];
    bool found = false;

    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        char *controllers = strchr(line, ':');
        char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');

        if (path == NULL)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        found = is_v1 ? lists(controllers + 1, "memory") : strncmp(line, "0:", 2) == 0;
        if (found)
            found =
                (size_t)snprintf(name, HOST_CGROUP_PATH_BYTES, "%s", path) < HOST_CGROUP_PATH_BYTES;
    }
    fclose(file);
    return found;
}

struct mount {
    char root[HOST_CGROUP_PATH_BYTES]; /* the cgroup that is seen at … */
    char point[HOST_CGROUP_PATH_BYTES];
};

/* "35 31 0:32 /root /point options … - type source options of the file system" */
static bool read_mount_line(const char *line, bool is_v1, struct mount *out_mount)
{
    char type[32], options[LINE_BYTES];
    const char *rest = strstr(line, " - ");

    return rest != NULL &&
           sscanf(line, "%*s %*s %*s %2047s %2047s", out_mount->root, out_mount->point) == 2 &&
           sscanf(rest, " - %31s %*s %4095s", type, options) == 2 &&
           strcmp(type, is_v1 ? "cgroup" : "cgroup2") == 0 && (!is_v1 || lists(options, "memory"));
}

static bool read_mount(const char *proc_self, bool is_v1, struct mount *out_mount)
{
    FILE *file = open_in(proc_self, "mountinfo");
    char line[LINE_BYTES];
    bool found = false;

    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof(line), file) != NULL)
        found = read_mount_line(line, is_v1, out_mount);
    fclose(file);
    return found;
}

/* The name as seen below the mount; "": its root. */
static const char *below(const struct mount *mount, const char *name)
{
    size_t length = strlen(mount->root);

    if (strcmp(mount->root, "/") == 0)
        return name;
    if (strncmp(name, mount->root, length) == 0 && (name[length] == '/' || name[length] == '\0'))
        return name + length;
    return "";
}

static bool find(const char *proc_self, bool is_v1, struct host_cgroup *cgroup)
{
    char name[HOST_CGROUP_PATH_BYTES];
    struct mount mount;
    size_t length;

    if (!read_name(proc_self, is_v1, name) || !read_mount(proc_self, is_v1, &mount))
        return false;
    cgroup->is_v1 = is_v1;
    cgroup->mount_length = strlen(mount.point);
    length = (size_t)snprintf(cgroup->folder, sizeof(cgroup->folder), "%s%s", mount.point,
                              below(&mount, name));
    if (length >= sizeof(cgroup->folder) || access(cgroup->folder, F_OK) != 0)
        cgroup->folder[cgroup->mount_length] =
            '\0'; /* of another name space: what we see is ours */
    for (length = strlen(cgroup->folder);
         length > cgroup->mount_length && cgroup->folder[length - 1] == '/'; length--)
        cgroup->folder[length - 1] = '\0';
    return true;
}

bool host_cgroup_find_in(const char *proc_self, struct host_cgroup *out_cgroup)
{
    return find(proc_self, true, out_cgroup) || find(proc_self, false, out_cgroup);
}

bool host_cgroup_find(struct host_cgroup *out_cgroup)
{
    return host_cgroup_find_in("/proc/self", out_cgroup);
}

bool host_own_cgroup(char *path, size_t room)
{
    struct host_cgroup cgroup;

    return find("/proc/self", false, &cgroup) &&
           (size_t)snprintf(path, room, "%s", cgroup.folder) < room;
}

/* ---- how much ---- */

/* The number in a one-line file; false for "max" and for no file. */
static bool read_number(const char *folder, const char *name, uint64_t *out_number)
{
    FILE *file = name == NULL ? NULL : open_in(folder, name);
    bool found;

    if (file == NULL)
        return false;
    found = fscanf(file, "%" SCNu64, out_number) == 1;
    fclose(file);
    return found;
}

/* The sum of the lines "key 1234" of a file of such lines, and of a line that is a number. */
static uint64_t sum_fields(const char *folder, const char *name, const char *const *keys)
{
    FILE *file = open_in(folder, name);
    uint64_t sum = 0, number;
    char line[256], key[128];

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%" SCNu64, &number) == 1)
            sum += number;
        else if (sscanf(line, "%127s %" SCNu64, key, &number) == 2)
            for (size_t i = 0; keys[i] != NULL; i++)
                sum += strcmp(key, keys[i]) == 0 ? number : 0;
    }
    if (file != NULL)
        fclose(file);
    return sum;
}

/* UINT64_MAX: no limit.  (Version 1 says so with a number that is larger than any memory.) */
static uint64_t limit_of(const char *folder, const struct files *files)
{
    uint64_t max = UINT64_MAX, high = UINT64_MAX;

    (void)read_number(folder, files->max, &max);
    (void)read_number(folder, files->high, &high);
    return high < max ? high : max;
}

static void limit_by(const char *folder, const struct files *files, uint64_t *free_bytes,
                     uint64_t *total_bytes)
{
    const char *const keys[] = {files->reclaimable, NULL};
    uint64_t max = limit_of(folder, files), current, reclaimable, left;

    if (max == UINT64_MAX || !read_number(folder, files->current, &current))
        return;
    reclaimable = sum_fields(folder, "memory.stat", keys);
    current -= reclaimable < current ? reclaimable : current;
    left = max > current ? max - current : 0;
    if (left < *free_bytes)
        *free_bytes = left;
    if (max < *total_bytes)
        *total_bytes = max;
}

void host_cgroup_limit(const struct host_cgroup *cgroup, uint64_t *free_bytes,
                       uint64_t *total_bytes)
{
    struct host_cgroup above = *cgroup;

    for (;;) {
        limit_by(above.folder, files_of(cgroup), free_bytes, total_bytes);
        if (strlen(above.folder) <= above.mount_length)
            return;
        *strrchr(above.folder, '/') = '\0';
    }
}

uint64_t host_cgroup_events(const struct host_cgroup *cgroup)
{
    static const char *const keys[] = {"high", "max", NULL};

    return sum_fields(cgroup->folder, files_of(cgroup)->events, keys);
}
