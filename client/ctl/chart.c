#include "chart.h"

#include <string.h>

#include "ctl.h"

enum {
    LEAST_COLUMNS = 24,
    LEAST_ROWS = 6,
    SCALE_COLUMNS = 12, /* "  12.0 GiB |" */
    MARK_COLUMNS = 2,   /* " L" */
    LEAST_PLOT_ROWS = 3,
};

void chart_add(struct chart *chart, const struct chart_sample *sample)
{
    chart->sample[chart->samples++ % CHART_SAMPLES] = *sample;
}

void chart_add_event(struct chart *chart, const char *text)
{
    char *to = chart->event[chart->events++ % CHART_EVENTS];

    (void)snprintf(to, CHART_EVENT_BYTES, "%s", text);
    for (; *to != '\0'; to++) /* a model's name may hold anything */
        if ((unsigned char)*to < ' ' || *to == 0x7f)
            *to = '?';
}

/* The sample that stands `back` places left of the newest; NULL: there is none. */
static const struct chart_sample *sample_at(const struct chart *chart, size_t back)
{
    if (back >= chart->samples || back >= CHART_SAMPLES)
        return NULL;
    return &chart->sample[(chart->samples - 1 - back) % CHART_SAMPLES];
}

/* The row, counted from the bottom, that a number of bytes reaches into. */
static size_t row_of(const struct chart *chart, uint64_t bytes, size_t rows)
{
    double share = chart->budget > 0 ? (double)bytes / (double)chart->budget : 0;
    size_t row = (size_t)(share * (double)rows);

    return row < rows ? row : rows - 1;
}

/* The letter of the mark in this row, 0: none. */
static char mark_in(const struct chart *chart, size_t row, size_t rows)
{
    for (size_t i = 3; i-- > 0;)
        if (chart->marks[i] > 0 && row_of(chart, chart->marks[i], rows) == row)
            return "LHC"[i];
    return 0;
}

/* A cell is filled when the sample reaches its middle; what is not nothing shows at the bottom. */
static bool reaches(const struct chart *chart, uint64_t bytes, size_t row, size_t rows)
{
    double here = ((double)row + 0.5) / (double)rows * (double)chart->budget;

    return (double)bytes >= here || (row == 0 && bytes > 0);
}

static char cell(const struct chart *chart, const struct chart_sample *sample, size_t row,
                 size_t rows, char empty)
{
    if (sample == NULL)
        return empty;
    if (reaches(chart, sample->allocated, row, rows))
        return '#';
    return reaches(chart, sample->reserved, row, rows) ? '+' : empty;
}

static void draw_row(const struct chart *chart, size_t row, size_t rows, size_t width, FILE *to)
{
    char mark = mark_in(chart, row, rows);
    char scale[TEXT_ROOM] = "";

    if (row + 1 == rows)
        (void)text_of_bytes(chart->budget, scale);
    else if (row == 0)
        (void)snprintf(scale, sizeof(scale), "0");
    (void)fprintf(to, "%*s |", SCALE_COLUMNS - 2, scale);
    for (size_t i = 0; i < width; i++)
        (void)putc(cell(chart, sample_at(chart, width - 1 - i), row, rows, mark != 0 ? '-' : ' '),
                   to);
    if (mark != 0)
        (void)fprintf(to, " %c", mark);
    (void)putc('\n', to);
}

static void draw_head(const struct chart *chart, size_t columns, FILE *to)
{
    const struct chart_sample *now = sample_at(chart, 0);
    char reserved[TEXT_ROOM], allocated[TEXT_ROOM], line[256];

    (void)snprintf(line, sizeof(line), "reserved %s (+), allocated %s (#), level %s",
                   text_of_bytes(now != NULL ? now->reserved : 0, reserved),
                   text_of_bytes(now != NULL ? now->allocated : 0, allocated), chart->level);
    (void)fprintf(to, "%.*s\n", (int)columns, line);
}

void chart_draw(const struct chart *chart, size_t columns, size_t rows, FILE *to)
{
    size_t events = chart->events < CHART_EVENTS ? chart->events : CHART_EVENTS;
    size_t width, plot;

    columns = columns > LEAST_COLUMNS ? columns : LEAST_COLUMNS;
    rows = rows > LEAST_ROWS ? rows : LEAST_ROWS;
    if (events > rows - 1 - LEAST_PLOT_ROWS)
        events = rows - 1 - LEAST_PLOT_ROWS;
    plot = rows - 1 - events;
    width = columns - SCALE_COLUMNS - MARK_COLUMNS;
    width = width < CHART_SAMPLES ? width : CHART_SAMPLES;
    draw_head(chart, columns, to);
    for (size_t row = plot; row-- > 0;)
        draw_row(chart, row, plot, width, to);
    for (size_t i = events; i-- > 0;)
        (void)fprintf(to, "%.*s\n", (int)columns,
                      chart->event[(chart->events - 1 - i) % CHART_EVENTS]);
}
