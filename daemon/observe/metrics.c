#include "observe/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct row {
    const char *name;
    const char *help;
    enum metric_type type;
} rows[METRIC_COUNT] = {
#define COUNTER                       METRIC_COUNTER
#define GAUGE                         METRIC_GAUGE
#define HISTOGRAM                     METRIC_HISTOGRAM
#define METRIC(id, kind, text, words) [METRIC_##id] = {.name = text, .help = words, .type = kind},
#include "observe/metrics.def"
#undef METRIC
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
};

#define SUM_SCALE 1e6

void histogram_init(struct histogram *histogram, double first)
{
    memset(histogram, 0, sizeof(*histogram));
    histogram->first = first;
}

void histogram_add(struct histogram *histogram, double value)
{
    double bound = histogram->first;
    size_t bucket = 0;

    while (bucket < HISTOGRAM_BUCKETS - 1 && value > bound) {
        bound *= 2;
        bucket++;
    }
    atomic_fetch_add_explicit(&histogram->counts[bucket], 1, memory_order_relaxed);
    if (value > 0)
        atomic_fetch_add_explicit(&histogram->sum_scaled, (uint64_t)llround(value * SUM_SCALE),
                                  memory_order_relaxed);
}

void metrics_write_head(FILE *to, enum metric metric)
{
    static const char *const types[] = {
        [METRIC_COUNTER] = "counter", [METRIC_GAUGE] = "gauge", [METRIC_HISTOGRAM] = "histogram"};
    const struct row *row = &rows[metric];

    fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help, row->name, types[row->type]);
}

static void write_number(FILE *to, double value)
{
    if (isnan(value))
        fputs("NaN", to);
    else if (isinf(value))
        fputs(value > 0 ? "+Inf" : "-Inf", to);
    else if (value == floor(value) && fabs(value) < 9007199254740992.0) /* exact as an integer */
        fprintf(to, "%.0f", value);
    else
        fprintf(to, "%.15g", value);
}

/* name + suffix{labels} value */
static void write_series(FILE *to, const char *name, const char *suffix, const char *labels,
                         double value)
{
    fprintf(to, "%s%s", name, suffix);
    if (labels[0] != '\0')
        fprintf(to, "{%s}", labels);
    fputc(' ', to);
    write_number(to, value);
    fputc('\n', to);
}

void metrics_write_value(FILE *to, enum metric metric, const char *labels, double value)
{
    write_series(to, rows[metric].name, "", labels, value);
}

void metrics_write_histogram(FILE *to, enum metric metric, const char *labels,
                             const struct histogram *histogram)
{
    const char *name = rows[metric].name;
    const char *comma = labels[0] == '\0' ? "" : ",";
    double bound = histogram->first;
    uint64_t count = 0;

    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++, bound *= 2) {
        count += atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
        fprintf(to, "%s_bucket{%s%sle=\"", name, labels, comma);
        write_number(to, i == HISTOGRAM_BUCKETS - 1 ? INFINITY : bound);
        fprintf(to, "\"} %" PRIu64 "\n", count);
    }
    write_series(to, name, "_sum", labels,
                 (double)atomic_load_explicit(&histogram->sum_scaled, memory_order_relaxed) /
                     SUM_SCALE);
    write_series(to, name, "_count", labels, (double)count);
}

const char *metrics_escape(const char *value, char *text, size_t room)
{
    size_t at = 0;

    for (; *value != '\0'; value++) {
        char second = *value == '\n' ? 'n' : *value;
        size_t need = *value == '\\' || *value == '"' || *value == '\n' ? 2 : 1;

        if (at + need >= room)
            break;
        if (need == 2)
            text[at++] = '\\';
        text[at++] = second;
    }
    text[at] = '\0';
    return text;
}
