#include "batch/size.h"

#include <stddef.h>

enum {
    TRIES = 3,          /* before a size counts as measured */
    SMALLEST_TRIED = 2, /* class: what is smaller is only judged by chance */
    SLOWER_SHARE = 16,  /* a slower run counts for so little: others may have taken the core */
    FADE = 2048,        /* a size that does not run seems better by one part of so many a batch */
};

/* Sizes whose cost a row differs by less are alike: the smaller one answers sooner. */
static const double alike = 1.02;

static size_t class_of(int64_t rows)
{
    size_t class = 63 - (size_t)__builtin_clzll((uint64_t)rows);

    return class < SIZE_CLASSES ? class : SIZE_CLASSES - 1;
}

void size_learn(struct size_choice *choice, int64_t rows, int64_t busy_us)
{
    size_t own = class_of(rows);
    struct size_class *class = &choice->class[own];
    double row_us = (double)busy_us / (double)rows;

    for (size_t i = 0; i < SIZE_CLASSES; i++)
        if (i != own)
            choice->class[i].row_us -= choice->class[i].row_us / FADE;
    /* The first run of a size touches its memory for the first time. */
    if (class->tries <= 1 || row_us < class->row_us)
        class->row_us = row_us;
    else
        class->row_us += (row_us - class->row_us) / SLOWER_SHARE;
    class->tries += class->tries < TRIES;
}

int64_t size_limit(const struct size_choice *choice, int64_t waiting)
{
    size_t top = SIZE_CLASSES, best;

    for (size_t i = 0; i < SIZE_CLASSES; i++)
        if (choice->class[i].tries == TRIES)
            top = i;
    if (top == SIZE_CLASSES)
        return INT64_MAX;
    best = top;
    for (size_t i = top; i-- > 0;) {
        const struct size_class *class = &choice->class[i];

        if (class->tries == TRIES) {
            if (class->row_us < choice->class[best].row_us * alike)
                best = i;
        } else if (i >= SMALLEST_TRIED && waiting >= INT64_C(2) << i) {
            return INT64_C(1) << i;
        }
    }
    return best == top ? INT64_MAX : INT64_C(1) << best;
}
