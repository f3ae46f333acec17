/* Cast and CastLike: numbers by convert.h, strings by the C library, written as NumPy writes them.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/convert.h"
#include "device/cpu/cpu.h"
#include "device/cpu/flat.h"

enum { NUMBER_TEXT_BYTES = 64 };

struct cast_job {
    const struct loops *loops;
    enum dtype from;
    enum dtype to;
};

/* ---- number to text ---- */

static bool reads_back(const char *text, double value, enum dtype dtype)
{
    return dtype == DTYPE_DOUBLE ? strtod(text, NULL) == value : strtof(text, NULL) == (float)value;
}

/* The fewest digits that read back the same; positional between 1e-4 and 1e16. */
static int format_float(char *text, double value, enum dtype dtype)
{
    int digits = 1, exponent;
    char *mark;

    if (isnan(value))
        return snprintf(text, NUMBER_TEXT_BYTES, "NaN");
    if (isinf(value))
        return snprintf(text, NUMBER_TEXT_BYTES, value < 0 ? "-INF" : "INF");
    do
        snprintf(text, NUMBER_TEXT_BYTES, "%.*e", digits - 1, value);
    while (digits++ < 17 && !reads_back(text, value, dtype));
    mark = strchr(text, 'e');
    exponent = atoi(mark + 1);
    digits--;
    if (value != 0 && (exponent < -4 || exponent >= 16))
        return (int)strlen(text);
    if (digits - 1 <= exponent)
        return snprintf(text, NUMBER_TEXT_BYTES, "%.1f", value);
    return snprintf(text, NUMBER_TEXT_BYTES, "%.*f", digits - 1 - exponent, value);
}

static int format_number(char *text, const struct cast_job *job, const void *element)
{
    double value;
    int64_t number;

    if (job->from == DTYPE_BOOL)
        return snprintf(text, NUMBER_TEXT_BYTES, *(const uint8_t *)element != 0 ? "True" : "False");
    if (job->from == DTYPE_UINT64)
        return snprintf(text, NUMBER_TEXT_BYTES, "%" PRIu64, *(const uint64_t *)element);
    if (!dtype_is_float(job->from)) {
        convert(job->loops, job->from, element, DTYPE_INT64, &number, 1);
        return snprintf(text, NUMBER_TEXT_BYTES, "%" PRId64, number);
    }
    convert(job->loops, job->from, element, DTYPE_DOUBLE, &value, 1);
    return format_float(text, value, job->from);
}

static enum status numbers_to_text(const struct cast_job *job, const char *in, struct bytes *out,
                                   size_t count, struct string_heap *heap)
{
    for (size_t i = 0; i < count; i++) {
        char text[NUMBER_TEXT_BYTES];
        size_t length = (size_t)format_number(text, job, in + i * dtype_bytes(job->from));
        char *copy = string_heap_take(heap, length);

        if (copy == NULL)
            return STATUS_NO_MEMORY;
        memcpy(copy, text, length);
        out[i] = (struct bytes){copy, length};
    }
    return STATUS_OK;
}

/* ---- text to number ---- */

static enum status parse(const struct cast_job *job, const char *text, void *element)
{
    char *end;

    if (dtype_is_float(job->to)) {
        double value = job->to == DTYPE_DOUBLE ? strtod(text, &end) : (double)strtof(text, &end);

        convert(job->loops, DTYPE_DOUBLE, &value, job->to, element, 1);
    } else if (job->to == DTYPE_UINT64) {
        *(uint64_t *)element = strtoull(text, &end, 10);
    } else {
        int64_t value = strtoll(text, &end, 10);

        if (*end == '.' || *end == 'e' || *end == 'E') { /* "3.0" counts as 3 */
            double real = strtod(text, &end);

            convert(job->loops, DTYPE_DOUBLE, &real, DTYPE_INT64, &value, 1);
        }
        convert(job->loops, DTYPE_INT64, &value, job->to, element, 1);
    }
    return end != text && *end == '\0' ? STATUS_OK : STATUS_INVALID;
}

static enum status text_to_numbers(const struct cast_job *job, const struct bytes *in, char *out,
                                   size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char text[NUMBER_TEXT_BYTES * 8];

        if (in[i].size >= sizeof(text))
            return STATUS_INVALID;
        if (in[i].size > 0)
            memcpy(text, in[i].data, in[i].size);
        text[in[i].size] = '\0';
        TRY(parse(job, text, out + i * dtype_bytes(job->to)));
    }
    return STATUS_OK;
}

/* ---- the kernel ---- */

static const char *refuses(const struct kernel_call *call)
{
    bool text = call->in[0]->dtype == DTYPE_STRING || call->out[0]->dtype == DTYPE_STRING;

    if (text && (call->in[0]->layout != LAYOUT_PLAIN || call->in[0]->outer_stride > 0 ||
                 call->out[0]->outer_stride > 0))
        return "strings only in the plain layout";
    return NULL;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->constants_used = 1;
    return STATUS_OK;
}

static void cast_piece(void *arg, const void *in, void *out, size_t count)
{
    const struct cast_job *job = arg;

    convert(job->loops, job->from, in, job->to, out, count);
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    struct cast_job job = {loops_for(call->device), call->in[0]->dtype, call->out[0]->dtype};
    size_t count = (size_t)shape_count(&call->in[0]->shape);
    struct flat flat;

    (void)state;
    if (job.from != job.to && job.to == DTYPE_STRING)
        return numbers_to_text(&job, run->in[0], run->out[0], count, run->strings);
    if (job.from != job.to && job.from == DTYPE_STRING)
        return text_to_numbers(&job, run->in[0], run->out[0], count);
    flat = flat_make(call->in[0], call->out[0], call->device);
    flat_run(&flat, run->in[0], dtype_bytes(job.from), run->out[0], dtype_bytes(job.to),
             run->lane->threads, 0.5, cast_piece, &job);
    return STATUS_OK;
}

const struct kernel kernel_cast_convert = {
    .name = "cpu:convert",
    .flags = KERNEL_STRIDED,
    .layouts = FLAT_LAYOUTS,
    .refuses = refuses,
    .prepare = prepare,
    .enqueue = enqueue,
};

const struct kernel kernel_cast_like_convert = {
    .name = "cpu:convert",
    .flags = KERNEL_STRIDED,
    .layouts = FLAT_LAYOUTS,
    .refuses = refuses,
    .prepare = prepare,
    .enqueue = enqueue,
};
