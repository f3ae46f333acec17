/* What the steps of a plan take, measured, and how that compares with what the lane could do.
 *
 * A section for each plan that ran (a model with cuts has several), a row of times for each run.
 * All that is told are medians over the runs, so that a neighbour's time slice does not show.
 * Operations are counted by the textbook (op_def.flops): Winograd's products need fewer, so a step
 * may pass the peak.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/internal.h"

/* Read to find out how fast memory is: more than a core's own caches hold. */
enum { STREAM_BYTES = 32 << 20 };

struct section {
    struct list link;
    struct plan *plan;
    size_t runs;
    bool is_open; /* the run that is going on writes row `runs` */
    int64_t ns[]; /* PROFILE_RUNS rows of a time a step */
};

struct profile {
    struct list sections;
    size_t runs;
    int64_t run_ns[PROFILE_RUNS];   /* whole runs */
    int64_t steps_ns[PROFILE_RUNS]; /* of these, in steps */
    bool has_looked;
    bool has_peaks;
    struct device_peaks peaks;
};

struct profile *profile_create(void)
{
    struct profile *profile = calloc(1, sizeof(*profile));

    if (profile != NULL)
        list_init(&profile->sections);
    return profile;
}

void profile_destroy(struct profile *profile)
{
    struct section *section;

    if (profile == NULL)
        return;
    while ((section = LIST_FIRST(&profile->sections, struct section, link)) != NULL) {
        list_remove(&section->link);
        plan_unref(section->plan);
        free(section);
    }
    free(profile);
}

size_t profile_runs(const struct profile *profile)
{
    return profile->runs;
}

/* ---- measuring ---- */

/* Where memory is short the peaks stay unknown. */
static void measure_peaks(struct profile *profile, struct run *run, const struct plan *plan)
{
    const struct device_ops *ops = run->lane->device->ops;
    struct ledger *ledger = plan->network->ledger;
    uint64_t available;
    char *room;

    profile->has_looked = true;
    if (ops->measure_peaks == NULL || ledger_reserve(ledger, STREAM_BYTES, &available) != STATUS_OK)
        return;
    room = malloc(STREAM_BYTES);
    if (room != NULL) {
        memset(room, 1, STREAM_BYTES); /* of zeros there might be but one page */
        ops->measure_peaks(run->lane, room, STREAM_BYTES, &profile->peaks);
        profile->has_peaks = true;
    }
    free(room);
    ledger_unreserve(ledger, STREAM_BYTES);
}

void profile_enter(struct profile *profile, struct run *run, const struct plan *plan)
{
    if (!profile->has_looked)
        measure_peaks(profile, run, plan);
}

static struct section *find_section(struct profile *profile, struct plan *plan)
{
    struct section *section;

    LIST_FOR_EACH (section, &profile->sections, struct section, link)
        if (section->plan == plan)
            return section;
    section =
        calloc(1, sizeof(*section) + PROFILE_RUNS * plan->step_count * sizeof(section->ns[0]));
    if (section == NULL)
        return NULL;
    section->plan = plan;
    atomic_fetch_add(&plan->references, 1);
    list_append(&profile->sections, &section->link);
    return section;
}

int64_t *profile_times(struct profile *profile, struct plan *plan)
{
    struct section *section = profile->runs < PROFILE_RUNS ? find_section(profile, plan) : NULL;

    if (section == NULL || section->is_open)
        return NULL;
    section->is_open = true;
    return section->ns + section->runs * plan->step_count;
}

void profile_leave(struct profile *profile, int64_t run_ns, bool well)
{
    struct section *section;
    int64_t steps_ns = 0;

    LIST_FOR_EACH (section, &profile->sections, struct section, link) {
        const int64_t *row = section->ns + section->runs * section->plan->step_count;

        if (!section->is_open)
            continue;
        section->is_open = false;
        if (!well)
            continue;
        for (size_t i = 0; i < section->plan->step_count; i++)
            steps_ns += row[i];
        section->runs++;
    }
    if (!well || profile->runs == PROFILE_RUNS)
        return;
    profile->run_ns[profile->runs] = run_ns;
    profile->steps_ns[profile->runs++] = steps_ns;
}

/* ---- figures ---- */

static int by_size(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

/* Of `count` numbers that lie `stride` apart; 0 of none. */
static double median_of(const int64_t *numbers, size_t count, size_t stride)
{
    int64_t sorted[PROFILE_RUNS];

    if (count == 0)
        return 0;
    for (size_t i = 0; i < count; i++)
        sorted[i] = numbers[i * stride];
    qsort(sorted, count, sizeof(sorted[0]), by_size);
    return (double)(sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

struct figures { /* of a step, or of all */
    double ns;
    double share; /* of the time in steps */
    double flops, bytes;
    double flop_rate, byte_rate; /* a second */
    double peak_share;           /* the larger of both; 0: no peak is known */
};

/* What the bytes may be compared with: where so many of them can lie. */
static double byte_peak(const struct device_peaks *peaks, double bytes)
{
    return bytes < (double)peaks->cache_size ? peaks->cached_bytes : peaks->bytes;
}

static void rate(const struct profile *profile, struct figures *figures)
{
    double share;

    if (figures->ns <= 0)
        return;
    figures->flop_rate = figures->flops / figures->ns * 1e9;
    figures->byte_rate = figures->bytes / figures->ns * 1e9;
    if (!profile->has_peaks)
        return;
    figures->peak_share = figures->flop_rate / profile->peaks.flops;
    share = figures->byte_rate / byte_peak(&profile->peaks, figures->bytes);
    if (share > figures->peak_share)
        figures->peak_share = share;
}

static struct figures step_figures(const struct profile *profile, const struct section *section,
                                   size_t index, double all_ns)
{
    const struct step *step = &section->plan->steps[index];
    struct figures figures = {
        .ns = median_of(section->ns + index, section->runs, section->plan->step_count),
        .flops = (double)step->flops,
        .bytes = (double)(step->read_bytes + step->written_bytes)};

    figures.share = all_ns > 0 ? figures.ns / all_ns : 0;
    rate(profile, &figures);
    return figures;
}

static struct figures all_figures(const struct profile *profile, size_t *out_steps)
{
    struct figures figures = {.share = 1};
    const struct section *section;

    *out_steps = 0;
    LIST_FOR_EACH (section, &profile->sections, const struct section, link)
        for (size_t i = 0; i < section->plan->step_count; i++) {
            const struct step *step = &section->plan->steps[i];

            figures.flops += (double)step->flops;
            figures.bytes += (double)(step->read_bytes + step->written_bytes);
            ++*out_steps;
        }
    figures.ns = median_of(profile->steps_ns, profile->runs, 1);
    rate(profile, &figures);
    return figures;
}

static double between_ns(const struct profile *profile)
{
    int64_t between[PROFILE_RUNS];

    for (size_t i = 0; i < profile->runs; i++)
        between[i] = profile->run_ns[i] - profile->steps_ns[i];
    return median_of(between, profile->runs, 1);
}

/* ---- JSON ---- */

static void write_figures(const struct figures *figures, FILE *to)
{
    fprintf(to,
            "\"us\":%.3f,\"flops\":%.0f,\"flops_per_second\":%.0f,\"bytes_per_second\":%.0f,"
            "\"peak_share\":%.4f",
            figures->ns / 1e3, figures->flops, figures->flop_rate, figures->byte_rate,
            figures->peak_share);
}

static void write_section(const struct profile *profile, const struct section *section,
                          double all_ns, FILE *to)
{
    const struct plan *plan = section->plan;

    explain_json_head(plan, to);
    for (size_t i = 0; i < plan->step_count; i++) {
        struct figures figures = step_figures(profile, section, i, all_ns);

        explain_json_step(plan, i, figures.share, to);
        fprintf(to, ",\"read_bytes\":%" PRIu64 ",\"written_bytes\":%" PRIu64 ",",
                plan->steps[i].read_bytes, plan->steps[i].written_bytes);
        write_figures(&figures, to);
        fputc('}', to);
    }
    explain_json_tail(plan, to);
    fprintf(to, ",\"runs\":%zu}", section->runs);
}

static void write_json(const struct profile *profile, FILE *to)
{
    size_t steps;
    struct figures all = all_figures(profile, &steps);
    const struct section *section;
    bool first = true;

    fprintf(to,
            "{\"runs\":%zu,\"run_us\":%.3f,\"between_us\":%.3f,\"peak_flops_per_second\":%.0f,"
            "\"peak_bytes_per_second\":%.0f,\"peak_cached_bytes_per_second\":%.0f,\"steps\":{"
            "\"count\":%zu,",
            profile->runs, median_of(profile->run_ns, profile->runs, 1) / 1e3,
            between_ns(profile) / 1e3, profile->peaks.flops, profile->peaks.bytes,
            profile->peaks.cached_bytes, steps);
    write_figures(&all, to);
    fputs("},\"plans\":[", to);
    LIST_FOR_EACH (section, &profile->sections, const struct section, link) {
        fputs(first ? "" : ",\n", to);
        write_section(profile, section, all.ns, to);
        first = false;
    }
    fputs("]}\n", to);
}

/* ---- the table ---- */

static void print_figures(const struct figures *figures, bool has_peaks, FILE *to)
{
    char peak[16] = "-";

    if (has_peaks)
        snprintf(peak, sizeof(peak), "%.0f%%", 100 * figures->peak_share);
    fprintf(to, "%10.1f %6.1f%% %9.4f %8.2f %9.3f %8.2f %5s", figures->ns / 1e3,
            100 * figures->share, figures->flops / 1e9, figures->flop_rate / 1e9,
            figures->bytes / 1e6, figures->byte_rate / 1e9, peak);
}

static void print_section(const struct profile *profile, const struct section *section,
                          double all_ns, FILE *to)
{
    const struct plan *plan = section->plan;
    char text[SHAPE_TEXT_BYTES], note[STEP_NOTE_BYTES];

    for (size_t i = 0; i < plan->inputs; i++)
        fprintf(to, "input %s %s\n", plan->program->graph->in[i]->name,
                shape_format(&plan->in_shapes[i], text));
    fprintf(to, " step %10s %7s %9s %8s %9s %8s %5s  %-18s %-18s %-20s %-8s node\n", "us", "time",
            "GFLOP", "GF/s", "MB", "GB/s", "peak", "operator", "kernel", "shape", "layout");
    for (size_t i = 0; i < plan->step_count; i++) {
        struct figures figures = step_figures(profile, section, i, all_ns);
        const struct step *step = &plan->steps[i];
        const struct operand *out = step_result(step);

        (void)step_note(step, note);
        fprintf(to, "%5zu ", i);
        print_figures(&figures, profile->has_peaks, to);
        fprintf(to, "  %-18s %-18s %-20s %-8s %s%s%s\n", step->call.op->onnx.name,
                step->kernel->name, out == NULL ? "-" : shape_format(&out->shape, text),
                out == NULL ? "-" : layout_name(out->layout), step->name,
                note[0] != '\0' ? "  " : "", note);
    }
}

static void print_table(const struct profile *profile, FILE *to)
{
    size_t steps;
    struct figures all = all_figures(profile, &steps);
    double run_ns = median_of(profile->run_ns, profile->runs, 1), between = between_ns(profile);
    const struct section *section;

    LIST_FOR_EACH (section, &profile->sections, const struct section, link)
        print_section(profile, section, all.ns, to);
    fputs("  all ", to);
    print_figures(&all, profile->has_peaks, to);
    fprintf(to, "\n%zu runs, median %.3f ms: %.3f ms in %zu steps, %.3f ms (%.1f%%) between them\n",
            profile->runs, run_ns / 1e6, all.ns / 1e6, steps, between / 1e6,
            run_ns > 0 ? 100 * between / run_ns : 0);
    if (profile->has_peaks)
        fprintf(to,
                "the lane's peaks, measured: %.1f GF/s (float32), %.1f GB/s from memory, %.1f GB/s "
                "within %.1f MB\n",
                profile->peaks.flops / 1e9, profile->peaks.bytes / 1e9,
                profile->peaks.cached_bytes / 1e9, (double)profile->peaks.cache_size / 1e6);
}

void profile_write(const struct profile *profile, FILE *to, bool as_json)
{
    if (as_json)
        write_json(profile, to);
    else
        print_table(profile, to);
}
