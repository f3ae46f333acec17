/* Numbers for Prometheus (text format 0.0.4): rows in metrics.def, labels per series.
 *
 * A histogram or counter object is embedded where it is counted (a model's statistics, the
 * governor) and written out by whoever owns it through metrics_write_*(); nothing is registered
 * globally, so a model that goes takes its series with it. Threads: counters and histograms are
 * atomic; writing is by one thread into its own buffer.
 */
#ifndef OBSERVE_METRICS_H
#define OBSERVE_METRICS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

enum metric {
#define METRIC(id, type, name, help) METRIC_##id,
#include "observe/metrics.def"
#undef METRIC
    METRIC_COUNT
};

enum { HISTOGRAM_BUCKETS = 24 };

/* Exponential buckets: upper bounds first * 2^i, the last one +Inf. */
struct histogram {
    double first; /* upper bound of bucket 0, in the unit written out */
    _Atomic uint64_t counts[HISTOGRAM_BUCKETS];
    _Atomic uint64_t sum_scaled; /* sum in millionths of the unit */
};

void histogram_init(struct histogram *histogram, double first);
void histogram_add(struct histogram *histogram, double value);

/* "# HELP", "# TYPE" of one family; once, before its series. */
void metrics_write_head(FILE *to, enum metric metric);
/* labels: "model=\"m\",version=\"1\"" (values already escaped by metrics_escape) or "". */
void metrics_write_value(FILE *to, enum metric metric, const char *labels, double value);
void metrics_write_histogram(FILE *to, enum metric metric, const char *labels,
                             const struct histogram *histogram);
/* Escapes a label value: backslash, quote, newline.  Returns `text`. */
const char *metrics_escape(const char *value, char *text, size_t room);

#endif
