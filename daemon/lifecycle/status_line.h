/* One line about the daemon, for `systemctl status` and the log. */
#ifndef LIFECYCLE_STATUS_LINE_H
#define LIFECYCLE_STATUS_LINE_H

#include "models/repository.h"
#include "models/warden.h"

/* "Serving 3 models | memory 1.2 of 8.0 GiB | level normal"; while starting, what is loaded so far.
 */
void status_line(struct repository *repository, struct warden *warden, bool is_starting, char *text,
                 size_t room);

#endif
