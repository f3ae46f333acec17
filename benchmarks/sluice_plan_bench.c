/* sluice-plan-bench [--thorough] [--budget-s S] FILE.csv…
 *
 * Packs the buffers of each file (see plan_file.h) and prints a line for it: name, buffers, lower
 * bound, peak, their ratio, milliseconds of processor time, and how the planner ended.  A limit
 * that the file's name states is what a thorough search stops at.  Every packing is checked.
 *
 * Ends with 0; 1 when a file could not be read or a packing is not sound; 2 for wrong usage.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plan_file.h"

static const double DEFAULT_BUDGET_S = 60, MAX_BUDGET_S = 1e6;

static const char *const ENDS[] = {[PLANNER_AT_BOUND] = "at-bound",
                                   [PLANNER_EXHAUSTED] = "exhausted",
                                   [PLANNER_TIMED_OUT] = "timed-out",
                                   [PLANNER_CANCELLED] = "cancelled"};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* Of this thread alone: what others run does not count. */
static int64_t cpu_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static enum status pack_file(const char *path, const struct planner_options *asked,
                             struct error *err)
{
    struct planner_options options = *asked;
    struct planner_result result = {0};
    struct plan_buffer *buffers;
    enum status status;
    int64_t start, end;
    size_t count;

    TRY(plan_file_read(path, &buffers, &count, err));
    options.limit_bytes = plan_file_limit(path);
    start = cpu_now_ns();
    status = planner_plan(buffers, count, &options, &result);
    end = cpu_now_ns();
    if (status != STATUS_OK)
        status = error_set(err, status, "%s: cannot be packed: %s", path, status_words(status));
    else if (planner_check(buffers, count, result.peak_bytes, err) != STATUS_OK)
        status = error_prefix(err, STATUS_INTERNAL, "%s: the packing is wrong", path);
    free(buffers);
    if (status != STATUS_OK)
        return status;
    printf(
        "%-22s %6zu buffers  bound %13" PRIu64 "  peak %13" PRIu64 "  ratio %6.4f  %10.2f ms  %s\n",
        base_name(path), count, result.lower_bound_bytes, result.peak_bytes,
        result.lower_bound_bytes > 0 ? (double)result.peak_bytes / (double)result.lower_bound_bytes
                                     : 1.0,
        (double)(end - start) / 1e6, ENDS[result.end]);
    fflush(stdout);
    return STATUS_OK;
}

static bool read_budget(const char *text, int64_t *out_us)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(seconds) || seconds <= 0 || seconds > MAX_BUDGET_S)
        return false;
    *out_us = (int64_t)(seconds * 1e6) + 1;
    return true;
}

static int usage(void)
{
    fprintf(stderr, "usage: sluice-plan-bench [--thorough] [--budget-s S] FILE.csv…\n"
                    "S: seconds that a thorough search may take, above 0 to 1000000 (60)\n");
    return 2;
}

int main(int count, char **words)
{
    struct planner_options options = {.mode = PLANNER_QUICK,
                                      .budget_us = (int64_t)(DEFAULT_BUDGET_S * 1e6)};
    int at = 1, exit_status = 0;

    for (; at < count && strncmp(words[at], "--", 2) == 0; at++) {
        if (strcmp(words[at], "--thorough") == 0)
            options.mode = PLANNER_THOROUGH;
        else if (strcmp(words[at], "--budget-s") != 0 || at + 1 == count ||
                 !read_budget(words[++at], &options.budget_us))
            return usage();
    }
    if (at == count)
        return usage();
    for (; at < count; at++) {
        struct error err = {0};

        if (pack_file(words[at], &options, &err) == STATUS_OK)
            continue;
        fprintf(stderr, "sluice-plan-bench: %s\n", err.text);
        exit_status = 1;
    }
    return exit_status;
}
