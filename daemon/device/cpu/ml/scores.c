#include "device/cpu/ml/scores.h"

#include <math.h>
#include <string.h>

#include "device/kernel.h"

static double largest(const double *scores, size_t count)
{
    double top = -INFINITY;

    for (size_t i = 0; i < count; i++)
        top = scores[i] > top ? scores[i] : top;
    return top;
}

/* With `keep_zeros` a score of zero stays zero and does not count. */
static void softmax(double *scores, size_t count, bool keep_zeros)
{
    double top = largest(scores, count), sum = 0;

    for (size_t i = 0; i < count; i++) {
        if (keep_zeros && fabs(scores[i]) <= 1e-7)
            scores[i] *= exp(-top);
        else
            sum += scores[i] = exp(scores[i] - top);
    }
    for (size_t i = 0; i < count && sum > 0; i++)
        scores[i] /= sum;
}

void scores_transform(enum post_transform post, double *scores, size_t count)
{
    switch (post) {
    case POST_SOFTMAX:
    case POST_SOFTMAX_ZERO:
        softmax(scores, count, post == POST_SOFTMAX_ZERO);
        break;
    case POST_LOGISTIC:
        for (size_t i = 0; i < count; i++)
            scores[i] = 1 / (1 + exp(-scores[i]));
        break;
    case POST_NONE:
    case POST_PROBIT:
    case POST_COUNT:
        break;
    }
}

enum status scores_put_label(const struct ints *numbers, const struct strings *texts, size_t index,
                             void *labels, size_t at, struct string_heap *strings)
{
    const struct bytes *text;
    char *copy;

    if (texts->count == 0) {
        ((int64_t *)labels)[at] = numbers->values[index];
        return STATUS_OK;
    }
    text = &texts->values[index];
    copy = string_heap_take(strings, text->size);
    if (copy == NULL)
        return STATUS_NO_MEMORY;
    if (text->size > 0)
        memcpy(copy, text->data, text->size);
    ((struct bytes *)labels)[at] = (struct bytes){copy, text->size};
    return STATUS_OK;
}
