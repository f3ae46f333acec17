#include "lifecycle/idle_exit.h"

#include "base/clock.h"

bool idle_exit_is_due(struct idle_exit *idle, const struct server_use *use, int64_t after_us,
                      int64_t now_us)
{
    bool in_use =
        use->connections > 0 || use->busy > 0 || use->accepted_total != idle->accepted_seen;

    idle->accepted_seen = use->accepted_total;
    if (in_use)
        idle->since_us = 0;
    else if (idle->since_us == 0)
        idle->since_us = now_us;
    return !in_use && after_us > 0 && after_us != CLOCK_NEVER &&
           now_us - idle->since_us >= after_us;
}
