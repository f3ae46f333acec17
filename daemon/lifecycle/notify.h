/* What systemd is told (sd_notify); nothing happens without it. */
#ifndef LIFECYCLE_NOTIFY_H
#define LIFECYCLE_NOTIFY_H

#include <stdint.h>

/* `status`: the one line that `systemctl status` shows. */
void notify_ready(const char *status);
void notify_loading(const char *status); /* still starting: asks for more time too */
void notify_status(const char *status);
void notify_reloading(void);
void notify_stopping(int64_t up_to_us); /* asks for the time that a drain may take */
void notify_watchdog(void);
/* How often the watchdog must be fed at least; 0: nobody watches. */
int64_t notify_watchdog_us(void);

#endif
