/* PSI files say EPOLLPRI, which libevent does not know: they are put into an epoll instance of
 * their own, which is readable when one of its files is.  FIFOs and sockets are plainly readable.
 */
#define LOG_COMPONENT "lifecycle"
#include "lifecycle/pressure.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "device/host_cgroup.h"
#include "observe/log.h"

#define TRIGGER "some 200000 2000000" /* µs of stall in µs: what systemd's default is, too */

enum { TRIGGER_MAX = 512 };

struct pressure {
    void (*pressed)(void *arg);
    void *arg;
    int fd;    /* of what is watched; -1: nothing */
    int epoll; /* around a PSI file; -1: fd is watched itself */
    struct event *event;
    char path[256];
    bool has_cgroup;
    struct host_cgroup cgroup;
    uint64_t events; /* how often its limits were met, when last looked at */
};

/* ---- opening ---- */

/* Standard base64, padded or not; returns how many bytes, SIZE_MAX when it is none. */
static size_t decode64(const char *text, unsigned char *bytes, size_t room)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    unsigned have = 0;
    size_t count = 0;

    for (; *text != '\0' && *text != '='; text++) {
        const char *digit = strchr(digits, *text);

        if (digit == NULL)
            return SIZE_MAX;
        bits = bits << 6 | (uint32_t)(digit - digits);
        have += 6;
        if (have < 8)
            continue;
        have -= 8;
        if (count == room)
            return SIZE_MAX;
        bytes[count++] = (unsigned char)(bits >> have);
    }
    return text[strspn(text, "=")] == '\0' ? count : SIZE_MAX;
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    if (strlen(path) >= sizeof(address.sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
                    fcntl(fd, F_SETFL, O_NONBLOCK) != 0)) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

static void close_watch(struct pressure *pressure)
{
    if (pressure->event != NULL)
        event_free(pressure->event);
    if (pressure->epoll >= 0)
        (void)close(pressure->epoll);
    if (pressure->fd >= 0)
        (void)close(pressure->fd);
    pressure->event = NULL;
    pressure->epoll = pressure->fd = -1;
}

/* PSI files are waited for in an epoll instance of their own. */
static bool begin_watch(struct pressure *pressure, const struct stat *info)
{
    struct epoll_event event = {.events = EPOLLPRI};

    if (!S_ISREG(info->st_mode))
        return true;
    pressure->epoll = epoll_create1(EPOLL_CLOEXEC);
    return pressure->epoll >= 0 &&
           epoll_ctl(pressure->epoll, EPOLL_CTL_ADD, pressure->fd, &event) == 0;
}

/* Opens what is at `path` and writes the trigger there; false: errno says why not. */
static bool open_watch(struct pressure *pressure, const char *path, const void *trigger,
                       size_t bytes)
{
    struct stat info;
    int reason;

    if (stat(path, &info) != 0)
        return false;
    if (!S_ISSOCK(info.st_mode) && !S_ISFIFO(info.st_mode) && !S_ISREG(info.st_mode)) {
        errno = ENOTSUP;
        return false;
    }
    pressure->fd =
        S_ISSOCK(info.st_mode) ? connect_to(path) : open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (pressure->fd < 0)
        return false;
    if (write(pressure->fd, trigger, bytes) == (ssize_t)bytes && begin_watch(pressure, &info)) {
        (void)snprintf(pressure->path, sizeof(pressure->path), "%s", path);
        return true;
    }
    reason = errno;
    close_watch(pressure);
    errno = reason;
    return false;
}

/* As systemd orders; false when it orders nothing. */
static bool open_ordered(struct pressure *pressure)
{
    const char *path = getenv("MEMORY_PRESSURE_WATCH"), *text = getenv("MEMORY_PRESSURE_WRITE");
    unsigned char trigger[TRIGGER_MAX];
    size_t bytes = text != NULL ? decode64(text, trigger, sizeof(trigger)) : 0;

    if (path == NULL || path[0] == '\0')
        return false;
    if (strcmp(path, "/dev/null") == 0)
        return true;
    if (path[0] != '/' || bytes == SIZE_MAX)
        log_warn("MEMORY_PRESSURE_WATCH='%s' is no absolute path, or MEMORY_PRESSURE_WRITE no "
                 "base64 of at most %d bytes, ignoring",
                 path, TRIGGER_MAX);
    else if (!open_watch(pressure, path, trigger, bytes))
        log_warn("cannot watch MEMORY_PRESSURE_WATCH='%s': %s, ignoring", path, strerror(errno));
    return true;
}

static void open_default(struct pressure *pressure)
{
    char folder[HOST_CGROUP_PATH_BYTES], path[HOST_CGROUP_PATH_BYTES + 32];

    if (host_own_cgroup(folder, sizeof(folder))) {
        (void)snprintf(path, sizeof(path), "%s/memory.pressure", folder);
        if (open_watch(pressure, path, TRIGGER, sizeof(TRIGGER)))
            return;
    }
    if (!open_watch(pressure, "/proc/pressure/memory", TRIGGER, sizeof(TRIGGER)))
        log_debug("no memory pressure to watch: %s", strerror(errno));
}

/* ---- hearing ---- */

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
    struct pressure *pressure = arg;
    struct epoll_event ready = {0};
    char said[256];
    bool over;

    (void)fd;
    (void)what;
    if (pressure->epoll >= 0) {
        (void)epoll_wait(pressure->epoll, &ready, 1, 0);
        over = (ready.events & EPOLLERR) != 0; /* the cgroup is gone */
    } else {
        ssize_t count = read(pressure->fd, said, sizeof(said));

        over = count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
    }
    if (over) {
        log_info("%s has ended, memory pressure is not watched any more", pressure->path);
        close_watch(pressure);
        return;
    }
    pressure->pressed(pressure->arg);
}

static uint64_t count_events(const struct pressure *pressure)
{
    return pressure->has_cgroup ? host_cgroup_events(&pressure->cgroup) : 0;
}

bool pressure_poll(struct pressure *pressure)
{
    uint64_t before = pressure->events;

    pressure->events = count_events(pressure);
    return pressure->events > before;
}

/* ---- life ---- */

enum status pressure_create(struct event_base *base, void (*pressed)(void *arg), void *arg,
                            struct pressure **out_pressure)
{
    struct pressure *pressure = calloc(1, sizeof(*pressure));

    if (pressure == NULL)
        return STATUS_NO_MEMORY;
    pressure->pressed = pressed;
    pressure->arg = arg;
    pressure->fd = pressure->epoll = -1;
    pressure->has_cgroup = host_cgroup_find(&pressure->cgroup);
    pressure->events = count_events(pressure);
    if (!open_ordered(pressure))
        open_default(pressure);
    if (pressure->fd >= 0) {
        int watched = pressure->epoll >= 0 ? pressure->epoll : pressure->fd;

        pressure->event = event_new(base, watched, EV_READ | EV_PERSIST, on_ready, pressure);
        if (pressure->event == NULL || event_add(pressure->event, NULL) != 0) {
            pressure_destroy(pressure);
            return STATUS_NO_MEMORY;
        }
        log_debug("memory pressure is watched: %s", pressure->path);
    }
    *out_pressure = pressure;
    return STATUS_OK;
}

void pressure_destroy(struct pressure *pressure)
{
    if (pressure == NULL)
        return;
    close_watch(pressure);
    free(pressure);
}

const char *pressure_watched(const struct pressure *pressure)
{
    return pressure->fd >= 0 ? pressure->path : "nothing";
}
