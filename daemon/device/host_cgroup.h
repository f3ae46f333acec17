/* What the system allows this process and its neighbours together: the memory limits of the cgroups
 * above us, in version 2 or, where memory is still counted there, version 1.
 */
#ifndef DEVICE_HOST_CGROUP_H
#define DEVICE_HOST_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HOST_CGROUP_PATH_BYTES = 2048 };

struct host_cgroup {
    char folder[HOST_CGROUP_PATH_BYTES]; /* ours, without a slash at the end */
    size_t mount_length;                 /* of it: where the folders that we see begin */
    bool is_v1;
};

/* Whose files count our memory; false: there is none.  The second is for tests: another /proc/self.
 */
bool host_cgroup_find(struct host_cgroup *out_cgroup);
bool host_cgroup_find_in(const char *proc_self, struct host_cgroup *out_cgroup);

/* Our folder of version 2, whatever is counted there. */
bool host_own_cgroup(char *path, size_t room);

/* Lowers both to what the tightest limit at or above the cgroup leaves: pages of files that the
 * kernel would drop count as free. */
void host_cgroup_limit(const struct host_cgroup *cgroup, uint64_t *free_bytes,
                       uint64_t *total_bytes);

/* How often the limits of the cgroup itself were met so far; 0 where nobody counts it. */
uint64_t host_cgroup_events(const struct host_cgroup *cgroup);

#endif
