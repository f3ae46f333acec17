#include "advise.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ctl.h"

#define LEAST_LOW     0.1  /* as the configuration's check wants it */
#define MOST_LOW      0.9  /* high and critical must lie above */
#define LEAST_GAP     0.02 /* between two marks */
#define AMPLE         0.05 /* the low mark lies so far above what is needed */
#define COMFORT       0.7  /* a limit is proposed so that the need is this share of it */
#define MOST_LANES    32
#define SAME_SPEED    1.05 /* a row may take so much longer in a smaller batch */
#define LEAST_SAMPLES 20   /* requests below which waiting times say nothing */
#define MIB           (UINT64_C(1) << 20)

struct advising {
    const struct advise_facts *facts;
    struct advice *advice;
    double low, high, critical; /* as proposed so far */
    uint64_t budget, floor;
    uint64_t largest; /* the largest batch */
    const char *largest_model;
};

static void propose(struct advising *advising, const char *section, const char *key,
                    bool needs_restart, const char *reason)
{
    struct advise_proposal *proposal = &advising->advice->proposal[advising->advice->count++];

    *proposal =
        (struct advise_proposal){.section = section, .key = key, .needs_restart = needs_restart};
    (void)snprintf(proposal->reason, sizeof(proposal->reason), "%s", reason);
}

static struct advise_proposal *last_of(struct advising *advising)
{
    return &advising->advice->proposal[advising->advice->count - 1];
}

static void set_share(struct advising *advising, double now, double proposed)
{
    (void)snprintf(last_of(advising)->now, ADVISE_VALUE_BYTES, "%.3g", now);
    (void)snprintf(last_of(advising)->proposed, ADVISE_VALUE_BYTES, "%.2f", proposed);
}

/* Whole MiB: what the configuration reads. */
static void set_size(struct advising *advising, uint64_t now, uint64_t proposed)
{
    (void)snprintf(last_of(advising)->now, ADVISE_VALUE_BYTES, "%" PRIu64, now);
    (void)snprintf(last_of(advising)->proposed, ADVISE_VALUE_BYTES, "%" PRIu64 "M", proposed / MIB);
}

static uint64_t need_of(const struct advising *advising)
{
    return advising->facts->weights_bytes + advising->largest;
}

static uint64_t taken_again(const struct advise_facts *facts)
{
    return facts->taken_bytes > facts->peak_arena_bytes
               ? facts->taken_bytes - facts->peak_arena_bytes
               : 0;
}

/* ---- limit ---- */

static void advise_limit(struct advising *advising)
{
    const struct advise_facts *facts = advising->facts;
    uint64_t most =
        facts->total_bytes > facts->headroom_bytes ? facts->total_bytes - facts->headroom_bytes : 0;
    uint64_t wanted = (uint64_t)((double)need_of(advising) / COMFORT) / MIB * MIB + MIB;
    char need[TEXT_ROOM], text[ADVISE_REASON_BYTES];

    if ((double)need_of(advising) <= (MOST_LOW - AMPLE) * (double)facts->budget_bytes)
        return;
    if (wanted > most / MIB * MIB)
        wanted = most / MIB * MIB;
    if (wanted <= facts->budget_bytes)
        return; /* the device has no more */
    (void)snprintf(text, sizeof(text),
                   "weights and the largest batch (of %s) take %s: no marks fit above them in the "
                   "limit there is",
                   advising->largest_model, text_of_bytes(need_of(advising), need));
    propose(advising, "Memory", "Limit", false, text);
    set_size(advising, facts->budget_bytes, wanted);
    advising->budget = wanted;
}

/* ---- marks ---- */

static double round_up_share(double share)
{
    return ceil(share * 100 - 1e-9) / 100;
}

/* Puts high and critical above low, each with its distance where there is room. */
static void order_marks(struct advising *advising)
{
    const struct advise_facts *facts = advising->facts;

    if (advising->low > MOST_LOW)
        advising->low = MOST_LOW;
    if (advising->low < LEAST_LOW)
        advising->low = LEAST_LOW;
    if (facts->high >= advising->low + LEAST_GAP)
        return; /* as they are */
    advising->high = round_up_share(advising->low + (1 - advising->low) / 2);
    if (advising->high > 1 - LEAST_GAP)
        advising->high = 1 - LEAST_GAP;
    if (facts->critical < advising->high + LEAST_GAP)
        advising->critical = round_up_share(advising->high + (1 - advising->high) / 2);
    if (advising->critical > 1)
        advising->critical = 1;
}

static void propose_marks(struct advising *advising, const char *reason)
{
    const struct advise_facts *facts = advising->facts;
    const struct {
        const char *key;
        double now, proposed;
    } marks[] = {
        {"LowWatermark", facts->low, advising->low},
        {"HighWatermark", facts->high, advising->high},
        {"CriticalWatermark", facts->critical, advising->critical},
    };

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        if (fabs(marks[i].now - marks[i].proposed) < 0.005)
            continue;
        propose(advising, "Memory", marks[i].key, false,
                i == 0 ? reason : "must lie above the mark below it");
        set_share(advising, marks[i].now, marks[i].proposed);
    }
}

static void advise_marks(struct advising *advising)
{
    const struct advise_facts *facts = advising->facts;
    double need = advising->budget > 0 ? (double)need_of(advising) / (double)advising->budget : 0;
    double fits = round_up_share(need + AMPLE);
    char a[TEXT_ROOM], b[TEXT_ROOM], text[ADVISE_REASON_BYTES];

    if (advising->largest == 0 || fits <= facts->low)
        return;
    if (facts->low >= MOST_LOW || need >= MOST_LOW)
        return; /* no mark helps */
    advising->low = fits;
    order_marks(advising);
    if (advising->low <= facts->low)
        return;
    if (facts->trims > 0)
        (void)snprintf(text, sizeof(text),
                       "weights and the largest batch (of %s) take %s, above the mark: %" PRIu64
                       " trims gave back what was taken again (%s)",
                       advising->largest_model, text_of_bytes(need_of(advising), a), facts->trims,
                       text_of_bytes(taken_again(facts), b));
    else
        (void)snprintf(text, sizeof(text),
                       "weights and the largest batch (of %s) take %s, above the mark",
                       advising->largest_model, text_of_bytes(need_of(advising), a));
    propose_marks(advising, text);
}

/* ---- floor ---- */

static uint64_t floor_room(const struct advising *advising)
{
    uint64_t low = (uint64_t)(advising->low * (double)advising->budget);

    return low > advising->facts->weights_bytes ? low - advising->facts->weights_bytes : 0;
}

static void advise_floor(struct advising *advising)
{
    const struct advise_facts *facts = advising->facts;
    uint64_t room = floor_room(advising) / MIB * MIB;
    uint64_t wanted = (advising->largest + MIB - 1) / MIB * MIB, again = taken_again(facts);
    char a[TEXT_ROOM], b[TEXT_ROOM], text[ADVISE_REASON_BYTES];

    if (facts->floor_bytes > floor_room(advising)) {
        (void)snprintf(text, sizeof(text),
                       "with the weights it lies above the low mark: trims stop before they reach "
                       "it");
        propose(advising, "Memory", "Floor", false, text);
        set_size(advising, facts->floor_bytes, room);
        return;
    }
    wanted = wanted < room ? wanted : room;
    if (facts->decays < 3 || again < 3 * advising->largest || wanted <= facts->floor_bytes)
        return;
    (void)snprintf(text, sizeof(text),
                   "idle decay gave memory back %" PRIu64 " times and %s of it were taken again: "
                   "keeping what the largest batch needs (%s) spares that",
                   facts->decays, text_of_bytes(again, a), text_of_bytes(advising->largest, b));
    propose(advising, "Memory", "Floor", false, text);
    set_size(advising, facts->floor_bytes, wanted);
}

/* ---- lanes ---- */

static void sum_times(const struct advise_facts *facts, uint64_t *out_requests, double *out_queue,
                      double *out_compute)
{
    *out_requests = 0;
    *out_queue = *out_compute = 0;
    for (size_t i = 0; i < facts->models; i++) {
        *out_requests += facts->model[i].requests;
        *out_queue += (double)facts->model[i].queue_ns;
        *out_compute += (double)facts->model[i].compute_ns;
    }
}

static void propose_lanes(struct advising *advising, unsigned lanes, const char *reason)
{
    propose(advising, "Device", "Lanes", true, reason);
    (void)snprintf(last_of(advising)->now, ADVISE_VALUE_BYTES, "%u", advising->facts->lanes);
    (void)snprintf(last_of(advising)->proposed, ADVISE_VALUE_BYTES, "%u", lanes);
}

static void advise_lanes(struct advising *advising)
{
    const struct advise_facts *facts = advising->facts;
    uint64_t busy = facts->peak_allocated_bytes > facts->weights_bytes
                        ? facts->peak_allocated_bytes - facts->weights_bytes
                        : 0;
    uint64_t low = (uint64_t)(advising->low * (double)advising->budget), requests;
    char text[ADVISE_REASON_BYTES];
    double queue, compute;

    sum_times(facts, &requests, &queue, &compute);
    if (requests < LEAST_SAMPLES || facts->lanes == 0)
        return;
    if (queue > compute && facts->lanes < facts->cores && facts->lanes < MOST_LANES &&
        facts->weights_bytes + (facts->lanes + 1) * advising->largest <= low) {
        (void)snprintf(text, sizeof(text),
                       "requests wait %.1f ms in the queue for %.1f ms of computing, and another "
                       "largest batch fits below the low mark",
                       queue / (double)requests / 1e6, compute / (double)requests / 1e6);
        propose_lanes(advising, facts->lanes + 1, text);
    } else if (facts->lanes > 1 && busy <= advising->largest && queue < compute / 20) {
        (void)snprintf(text, sizeof(text),
                       "batches never needed more memory than one lane's, and requests wait %.2f "
                       "ms: one lane gives each batch all threads",
                       queue / (double)requests / 1e6);
        propose_lanes(advising, 1, text);
    }
}

void advise(const struct advise_facts *facts, struct advice *out_advice)
{
    struct advising advising = {
        .facts = facts,
        .advice = out_advice,
        .low = facts->low,
        .high = facts->high,
        .critical = facts->critical,
        .budget = facts->budget_bytes,
        .largest_model = "",
    };

    out_advice->count = 0;
    for (size_t i = 0; i < facts->models; i++)
        if (facts->model[i].use_bytes > advising.largest) {
            advising.largest = facts->model[i].use_bytes;
            advising.largest_model = facts->model[i].name;
        }
    advise_limit(&advising);
    advise_marks(&advising);
    advise_floor(&advising);
    advise_lanes(&advising);
}

/* ---- batches ---- */

static double row_ns(const struct advise_batch *batch)
{
    return (double)batch->ns / (double)batch->count / (double)batch->rows;
}

/* The smallest size that is as fast a row as the fastest; 0: sizes cannot be compared. */
static uint64_t smallest_fast(const struct advise_model *model)
{
    uint64_t smallest = 0;
    double best = INFINITY;
    size_t known = 0;

    for (size_t i = 0; i < model->sizes; i++) {
        if (model->size[i].rows == 0 || model->size[i].count < LEAST_SAMPLES)
            continue;
        known++;
        best = fmin(best, row_ns(&model->size[i]));
    }
    if (known < 2)
        return 0;
    for (size_t i = 0; i < model->sizes; i++) {
        const struct advise_batch *batch = &model->size[i];

        if (batch->rows == 0 || batch->count < LEAST_SAMPLES || row_ns(batch) > best * SAME_SPEED)
            continue;
        if (smallest == 0 || batch->rows < smallest)
            smallest = batch->rows;
    }
    return smallest;
}

static uint64_t largest_run(const struct advise_model *model)
{
    uint64_t rows = 0;

    for (size_t i = 0; i < model->sizes; i++)
        if (model->size[i].count > 0 && model->size[i].rows > rows)
            rows = model->size[i].rows;
    return rows;
}

uint64_t advise_batch_cap(const struct advise_facts *facts, const struct advise_model *model,
                          char reason[ADVISE_REASON_BYTES])
{
    uint64_t fast = smallest_fast(model), largest = largest_run(model), fits;
    uint64_t room =
        facts->budget_bytes > facts->weights_bytes ? facts->budget_bytes - facts->weights_bytes : 0;

    if (model->max_batch_size <= 1 || largest == 0)
        return 0;
    if (model->ooms > 0 && model->use_bytes > 0) {
        fits = (uint64_t)((double)room / (double)model->use_bytes * (double)largest);
        if (fits >= 1 && fits < model->max_batch_size) {
            (void)snprintf(reason, ADVISE_REASON_BYTES,
                           "%" PRIu64
                           " batches were refused for want of memory; beside the weights "
                           "%" PRIu64 " rows fit",
                           model->ooms, fits);
            return fits;
        }
    }
    if (fast == 0 || fast >= model->max_batch_size || largest <= fast)
        return 0;
    (void)snprintf(reason, ADVISE_REASON_BYTES,
                   "a row in a batch of %" PRIu64
                   " is as fast as in any larger one: more rows only "
                   "cost memory and waiting",
                   fast);
    return fast;
}
