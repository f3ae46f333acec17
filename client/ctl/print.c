/* Bytes, times and tables for people. */
#include <stdlib.h>
#include <string.h>

#include "ctl.h"

const char *text_of_bytes(uint64_t bytes, char text[TEXT_ROOM])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;

    for (; value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
        value /= 1024;
    (void)snprintf(text, TEXT_ROOM, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

const char *text_of_us(uint64_t us, char text[TEXT_ROOM])
{
    if (us < 1000)
        (void)snprintf(text, TEXT_ROOM, "%llu us", (unsigned long long)us);
    else if (us < 1000000)
        (void)snprintf(text, TEXT_ROOM, "%.1f ms", (double)us / 1e3);
    else if (us < 120 * UINT64_C(1000000))
        (void)snprintf(text, TEXT_ROOM, "%.1f s", (double)us / 1e6);
    else
        (void)snprintf(text, TEXT_ROOM, "%.0f min", (double)us / 60e6);
    return text;
}

struct table {
    size_t columns;
    const char *right_aligned; /* 'r' at a column's place: numbers */
    char **cells;              /* rows x columns, the titles first */
    size_t rows, room;
};

struct table *table_create(size_t columns, const char *const *titles, const char *right_aligned)
{
    struct table *table = calloc(1, sizeof(*table));

    if (table == NULL)
        abort();
    table->columns = columns;
    table->right_aligned = right_aligned;
    table_add(table, titles);
    return table;
}

/* The name of a model may hold anything; a terminal obeys control characters. */
static void blank_controls(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

void table_add(struct table *table, const char *const *cells)
{
    if (table->rows == table->room) {
        table->room = table->room * 2 + 8;
        table->cells = realloc(table->cells, table->room * table->columns * sizeof(*table->cells));
        if (table->cells == NULL)
            abort();
    }
    for (size_t i = 0; i < table->columns; i++) {
        table->cells[table->rows * table->columns + i] = strdup(cells[i] != NULL ? cells[i] : "");
        if (table->cells[table->rows * table->columns + i] == NULL)
            abort();
        blank_controls(table->cells[table->rows * table->columns + i]);
    }
    table->rows++;
}

static int column_width(const struct table *table, size_t column)
{
    size_t width = 0;

    for (size_t row = 0; row < table->rows; row++) {
        size_t length = strlen(table->cells[row * table->columns + column]);

        width = length > width ? length : width;
    }
    return (int)width;
}

void table_print(struct table *table, FILE *to)
{
    for (size_t row = 0; row < table->rows; row++)
        for (size_t column = 0; column < table->columns; column++) {
            bool is_last = column + 1 == table->columns;
            int width = is_last ? 0 : column_width(table, column);
            const char *cell = table->cells[row * table->columns + column];

            if (table->right_aligned[column] == 'r')
                (void)fprintf(to, "%*s%s", column_width(table, column), cell,
                              is_last ? "\n" : "  ");
            else
                (void)fprintf(to, "%-*s%s", width, cell, is_last ? "\n" : "  ");
        }
    for (size_t i = 0; i < table->rows * table->columns; i++)
        free(table->cells[i]);
    free(table->cells);
    free(table);
}
