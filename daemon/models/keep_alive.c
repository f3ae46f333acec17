#include "models/keep_alive.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"

/* Longer is for ever: 100 years. */
#define LONGEST_US 3.2e15

static const struct unit {
    const char *name;
    double us;
} units[] = {
    {"ns", 1e-3}, {"us", 1}, {"µs", 1}, {"ms", 1e3}, {"s", 1e6}, {"m", 6e7}, {"h", 3.6e9},
};

bool keep_alive_from_seconds(double seconds, int64_t *out_us)
{
    if (isnan(seconds))
        return false;
    *out_us = seconds < 0 || seconds * 1e6 > LONGEST_US ? CLOCK_NEVER : (int64_t)(seconds * 1e6);
    return true;
}

struct reading {
    const char *at, *end;
};

/* Digits with at most one point among them; at least one digit. */
static bool read_number(struct reading *reading, double *out_value)
{
    double value = 0, place = 1;
    bool has_digit = false, behind = false;

    for (; reading->at < reading->end; reading->at++) {
        if (*reading->at == '.' && !behind) {
            behind = true;
            continue;
        }
        if (!isdigit((unsigned char)*reading->at))
            break;
        has_digit = true;
        value = value * 10 + (*reading->at - '0');
        place *= behind ? 10 : 1;
    }
    *out_value = value / place;
    return has_digit;
}

/* The longest name that fits: "ms" before "m". */
static const struct unit *read_unit(struct reading *reading)
{
    size_t left = (size_t)(reading->end - reading->at), longest = 0;
    const struct unit *found = NULL;

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t size = strlen(units[i].name);

        if (size > longest && size <= left && memcmp(reading->at, units[i].name, size) == 0) {
            found = &units[i];
            longest = size;
        }
    }
    reading->at += longest;
    return found;
}

bool keep_alive_parse(const char *text, size_t size, int64_t *out_us)
{
    struct reading reading = {text, text + size};
    bool negative = size > 0 && *text == '-';
    bool is_first = true;
    double sum_us = 0, number;

    if (size > 0 && (*text == '-' || *text == '+'))
        reading.at++;
    do {
        const struct unit *unit;

        if (!read_number(&reading, &number))
            return false;
        unit = read_unit(&reading);
        if (unit == NULL && (!is_first || reading.at != reading.end))
            return false;
        sum_us += number * (unit == NULL ? 1e6 : unit->us);
        is_first = false;
    } while (reading.at < reading.end);
    /* "-0" is 0. */
    return keep_alive_from_seconds(negative ? -sum_us * 1e-6 : sum_us * 1e-6, out_us);
}
