/* Statistics of a model version in Triton's terms.  Durations count requests; batch_stats count
 * batches by their rows.  As Triton's: what ended ill, cancelled requests among it, is in `fail`
 * alone, so that counts agree with each other. */
#include "base/clock.h"
#include "batch/internal.h"

/* Upper bound of the first bucket: 50 µs for times, one row for batch sizes. */
#define FIRST_SECONDS 50e-6

void stats_init(struct model_stats *stats)
{
    histogram_init(&stats->request_seconds, FIRST_SECONDS);
    histogram_init(&stats->queue_seconds, FIRST_SECONDS);
    histogram_init(&stats->compute_seconds, FIRST_SECONDS);
    histogram_init(&stats->batch_size, 1.0);
}

static void add(struct duration_stat *stat, uint64_t count, int64_t ns)
{
    atomic_fetch_add_explicit(&stat->count, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&stat->ns, ns > 0 ? (uint64_t)ns * count : 0, memory_order_relaxed);
}

/* The row of this batch size, taken if it is new.  When all are taken the last one counts the rest.
 */
static struct batch_stat *batch_row(struct model_stats *stats, int64_t rows)
{
    for (size_t i = 0; i < BATCH_STATS; i++) {
        int64_t size = atomic_load_explicit(&stats->batches[i].size, memory_order_relaxed);

        if (size == 0 && atomic_compare_exchange_strong(&stats->batches[i].size, &size, rows))
            size = rows;
        if (size == rows)
            return &stats->batches[i];
    }
    return &stats->batches[BATCH_STATS - 1];
}

void stats_batch(struct model_stats *stats, const struct batch *batch, bool is_well)
{
    int64_t input_ns = batch->gathered_ns - batch->started_ns;
    int64_t infer_ns = batch->computed_ns - batch->gathered_ns;
    int64_t output_ns = batch->sliced_ns - batch->computed_ns;
    struct batch_stat *row;

    histogram_add(&stats->compute_seconds, (double)(batch->sliced_ns - batch->started_ns) * 1e-9);
    histogram_add(&stats->batch_size, (double)batch->rows);
    if (!is_well)
        return;
    row = batch_row(stats, batch->rows);
    add(&stats->compute_input, batch->count, input_ns);
    add(&stats->compute_infer, batch->count, infer_ns);
    add(&stats->compute_output, batch->count, output_ns);
    add(&row->input, 1, input_ns);
    add(&row->infer, 1, infer_ns);
    add(&row->output, 1, output_ns);
    atomic_fetch_add_explicit(&stats->execution_count, 1, memory_order_relaxed);
}

static struct duration_stat *outcome_of(struct model_stats *stats, const struct request *request)
{
    switch (request->status) {
    case STATUS_OK:
        return &stats->success;
    case STATUS_CANCELLED:
        return &stats->cancel;
    case STATUS_UNAVAILABLE:
        return &stats->rejected;
    default:
        return &stats->fail;
    }
}

void stats_request(struct model_stats *stats, const struct request *request)
{
    int64_t total_us = request->finished_us - request->arrived_us;

    add(outcome_of(stats, request), 1, total_us * 1000);
    if (request->status == STATUS_CANCELLED || request->status == STATUS_UNAVAILABLE)
        add(&stats->fail, 1, total_us * 1000); /* Triton's `fail` has them too */
    histogram_add(&stats->request_seconds, (double)total_us * 1e-6);
    if (request->started_us == 0)
        return;
    histogram_add(&stats->queue_seconds, (double)(request->started_us - request->queued_us) * 1e-6);
    if (request->status != STATUS_OK)
        return;
    add(&stats->queue, 1, (request->started_us - request->queued_us) * 1000);
    atomic_fetch_add_explicit(&stats->inference_count, (uint64_t)request->rows,
                              memory_order_relaxed);
    atomic_store_explicit(&stats->last_inference_ms, clock_wall_ms(), memory_order_relaxed);
}
