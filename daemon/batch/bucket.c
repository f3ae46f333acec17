#include "batch/bucket.h"

/* The highest power of two ≤ rows. */
static int64_t power_below(int64_t rows)
{
    return INT64_C(1) << (63 - __builtin_clzll((uint64_t)rows));
}

int64_t bucket_down(int64_t rows, int64_t largest)
{
    int64_t power, middle;

    if (rows <= 1)
        return 1;
    if (rows == largest)
        return rows;
    power = power_below(rows);
    middle = power + power / 2;
    return rows >= middle ? middle : power;
}

int64_t bucket_up(int64_t rows, int64_t largest)
{
    int64_t below = bucket_down(rows, largest);
    int64_t power, above;

    if (rows <= 1)
        return 1;
    if (below == rows)
        return rows;
    power = power_below(rows);
    above = below == power ? power + power / 2 : power * 2;
    return above > largest && rows <= largest ? largest : above;
}

bool bucket_is(int64_t rows, int64_t largest)
{
    return bucket_up(rows, largest) == rows;
}
