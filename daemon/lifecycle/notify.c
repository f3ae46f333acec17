#include "lifecycle/notify.h"

#include <inttypes.h>
#include <systemd/sd-daemon.h>

#include "base/clock.h"

/* Asked again every second while it is needed, so one answer may be lost. */
enum { MORE_TIME_US = 30000000 };

/* The man page advises to ignore what sd_notify() returns: whoever listens may be gone. */

void notify_ready(const char *status)
{
    (void)sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void notify_loading(const char *status)
{
    (void)sd_notifyf(0, "STATUS=%s\nEXTEND_TIMEOUT_USEC=%d", status, MORE_TIME_US);
}

void notify_status(const char *status)
{
    (void)sd_notifyf(0, "STATUS=%s", status);
}

/* systemd 253 and later want the time with it, to know it from one that was under way before. */
void notify_reloading(void)
{
    (void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRId64, clock_now_us());
}

void notify_stopping(int64_t up_to_us)
{
    (void)sd_notifyf(0, "STOPPING=1\nSTATUS=Draining\nEXTEND_TIMEOUT_USEC=%" PRId64, up_to_us);
}

void notify_watchdog(void)
{
    (void)sd_notify(0, "WATCHDOG=1");
}

int64_t notify_watchdog_us(void)
{
    uint64_t us = 0;

    return sd_watchdog_enabled(0, &us) > 0 ? (int64_t)us : 0;
}
