/* Statistics of every loaded model, for ModelStatistics and for `sluicectl stats`. */
#ifndef SERVE_ENDPOINTS_STATISTICS_H
#define SERVE_ENDPOINTS_STATISTICS_H

#include <stdbool.h>

#include "grpc_service.pb-c.h"

struct call;

/* Fills the reply in the call's memory; false: none left. */
bool statistics_collect(struct call *call, Inference__ModelStatisticsResponse *reply);

#endif
