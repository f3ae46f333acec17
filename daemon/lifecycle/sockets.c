#define LOG_COMPONENT "lifecycle"
#include "lifecycle/sockets.h"

#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "observe/log.h"

static bool is_known(const char *name)
{
    static const char *const known[] = {"grpc", "http", "metrics", "admin"};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(name, known[i]) == 0)
            return true;
    }
    return false;
}

enum status sockets_take(struct sockets *out_sockets)
{
    struct sockets sockets = {0};
    int count = sd_listen_fds_with_names(1, &sockets.names);

    *out_sockets = (struct sockets){0};
    if (count <= 0)
        return count == 0 ? STATUS_OK : STATUS_NO_MEMORY;
    sockets.fds = calloc((size_t)count, sizeof(*sockets.fds));
    if (sockets.fds == NULL) {
        sockets_deinit(&sockets);
        return STATUS_NO_MEMORY;
    }
    for (int i = 0; i < count; i++) {
        const char *name = sockets.names[i];
        int fd = SD_LISTEN_FDS_START + i;

        if (!is_known(name)) {
            log_warn("systemd passed a socket named '%s', known are grpc, http, metrics and admin "
                     "(FileDescriptorName=), ignoring",
                     name);
            close(fd);
            continue;
        }
        sockets.fds[sockets.count++] = (struct activated_fd){.name = name, .fd = fd};
    }
    *out_sockets = sockets;
    return STATUS_OK;
}

void sockets_deinit(struct sockets *sockets)
{
    for (char **name = sockets->names; name != NULL && *name != NULL; name++)
        free(*name);
    free(sockets->names);
    free(sockets->fds);
    *sockets = (struct sockets){0};
}
