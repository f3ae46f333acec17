/* The ledger's statistics for more than one endpoint. */
#ifndef SERVE_ENDPOINTS_MEMORY_STATS_H
#define SERVE_ENDPOINTS_MEMORY_STATS_H

#include <stdio.h>

#include "memory/ledger.h"

struct server;

/* Every account, to be freed with free(); NULL: no memory. */
struct ledger_pool *memory_stats_pools(struct ledger *ledger, size_t *out_count);
/* The families sluice_memory_stat_* and sluice_model_memory_*. */
void memory_stats_write_metrics(FILE *to, struct server *server);

#endif
