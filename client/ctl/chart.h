/* A picture of memory over time, in characters.
 *
 *   12.0 GiB |------------------------------------------- L     marks: L low, H high, C critical
 *            |              ++++
 *            |   ++++++++++++++##+++                            + cached   # allocated
 *          0 |###################################
 *
 * The newest sample stands at the right.  Drawing is a pure function of samples and size, for
 * tests.
 */
#ifndef CTL_CHART_H
#define CTL_CHART_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CHART_SAMPLES = 512, CHART_EVENTS = 6, CHART_EVENT_BYTES = 96 };

struct chart_sample {
    uint64_t reserved, allocated;
};

struct chart {
    uint64_t budget;
    uint64_t marks[3]; /* low, high, critical, in bytes */
    char level[24];
    size_t samples; /* added so far; the last CHART_SAMPLES are kept */
    struct chart_sample sample[CHART_SAMPLES];
    size_t events; /* the same */
    char event[CHART_EVENTS][CHART_EVENT_BYTES];
};

void chart_add(struct chart *chart, const struct chart_sample *sample);
void chart_add_event(struct chart *chart, const char *text); /* copies, cut to its room */
/* Lines of at most `columns` characters, `rows` of them at most; smaller than 24 x 6 is taken as
 * that. */
void chart_draw(const struct chart *chart, size_t columns, size_t rows, FILE *to);

#endif
