/* Admission: the largest part of a batch whose peak fits.
 *
 *   rows ──> plan (exact if cached, else the next bucket) ──> reserve(peak + io) ──> response ──>
 * run │ does not fit drop requests from the end <───────────────┘ … until one is left: wait, or
 * never
 *
 * A plan's peak is affine in its rows, so peak(b) ≥ peak(rows) · b / rows: buckets that this bound
 * rules out are not even compiled.
 */
#include <inttypes.h>
#include <string.h>

#include "batch/bucket.h"
#include "batch/internal.h"
#include "device/host_room.h"

enum {
    IO_ALIGNMENT = 64,
    MAX_RESTARTS = 4, /* for a later segment's sake, of one request */
    MAX_GROWTH = 64,  /* times what the first segment takes: more is asked for when it comes */
    GROWTH_FADE = 16,
};

static uint64_t align_io(uint64_t bytes)
{
    return (bytes + IO_ALIGNMENT - 1) & ~(uint64_t)(IO_ALIGNMENT - 1);
}

/* Each arena commits whole pages. */
uint64_t whole_pages(uint64_t bytes, uint64_t page)
{
    return (bytes + page - 1) / page * page;
}

void memory_error(struct error *err, const struct model_queue *queue, int64_t rows,
                  const struct memory_lack *lack)
{
    (void)error_set(err, STATUS_NO_MEMORY,
                    "model '%s': a batch of %" PRId64 " needs %" PRIu64 " bytes, %" PRIu64
                    " are available%s",
                    queue->name, rows, lack->needed_bytes, lack->available_bytes,
                    lack->of_host ? " of the host's memory (HostLimit=)" : "");
}

struct memory_lack batch_lack(const struct batch *batch)
{
    return (struct memory_lack){.needed_bytes = batch->needed_bytes,
                                .available_bytes = batch->available_bytes,
                                .of_host = batch->lacks_host};
}

void batch_lacks_host(struct batch *batch, struct host_pool *pool, uint64_t bytes,
                      uint64_t charged_bytes)
{
    struct host_pool_stats host;

    host_pool_read(pool, &host);
    batch->available_bytes =
        host.limit_bytes > host.in_use_bytes ? host.limit_bytes - host.in_use_bytes : 0;
    /* One that looks as if it had room lacks what its class is rounded up by. */
    batch->needed_bytes = bytes > batch->available_bytes ? bytes : charged_bytes;
    batch->lacks_host = true;
}

struct shape *batch_shapes(struct arena *scratch, const struct model_queue *queue,
                           const struct request *first, int64_t rows)
{
    struct shape *shapes = arena_take_array(scratch, queue->inputs, sizeof(*shapes));

    for (size_t i = 0; shapes != NULL && i < queue->inputs; i++) {
        shapes[i] = first->in[i].shape;
        if (queue->max_batch_size > 0)
            shapes[i].dims[0] = rows;
    }
    return shapes;
}

static const struct request *first_of(const struct batch *batch)
{
    return LIST_FIRST(&batch->requests, struct request, link);
}

/* Rows the plan is made for.  Padding is only for models proven to batch. */
static int64_t padded_rows(const struct batch *batch)
{
    const struct model_queue *queue = batch->queue;

    return queue->batching ? bucket_up(batch->rows, queue->max_batch_size) : batch->rows;
}

static enum status find_plan(struct lane *lane, struct batch *batch, struct error *err)
{
    struct model_queue *queue = batch->queue;
    struct shape *shapes = batch_shapes(&lane->scratch, queue, first_of(batch), batch->rows);

    if (shapes == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no host memory for a batch",
                         queue->name);
    batch->plan_rows = batch->rows;
    batch->plan = network_find_plan(queue->network, shapes);
    if (batch->plan != NULL)
        return STATUS_OK;
    batch->plan_rows = padded_rows(batch);
    for (size_t i = 0; i < queue->inputs && queue->max_batch_size > 0; i++)
        shapes[i].dims[0] = batch->plan_rows;
    return network_plan(queue->network, shapes, &batch->plan, err);
}

static bool is_wanted(const struct batch *batch, size_t output)
{
    struct request *request;

    LIST_FOR_EACH (request, &batch->requests, struct request, link)
        if (request->out[output].wanted)
            return true;
    return false;
}

/* Neither shape nor bound is known before the run. */
static bool is_placed(const struct batch *batch, size_t output)
{
    const struct shape *shape = &batch->out_shapes[output];
    bool bound = batch->out_bound != NULL && batch->out_bound[output];

    return !shape_is_known(shape) || (bound && shape->rank == 0);
}

/* Whether the answer's bytes are those of an input where it lies. */
static bool is_passed(const struct batch *batch, size_t output)
{
    const struct model_queue *queue = batch->queue;
    const struct request *request = first_of(batch);
    size_t input;

    if (!request->keeps_inputs || queue->out_port[output].dtype == DTYPE_STRING)
        return false;
    input = plan_passed_input(batch->plan, output);
    return input != SIZE_MAX && batch->binds[input] && request->in[input].memory == MEMORY_OWN &&
           request->out[output].room.data == NULL &&
           request->in[input].bytes >= batch->out[output].bytes;
}

/* Whether the run may write the output where the client wants it at once. */
static bool goes_to_room(const struct batch *batch, size_t output, bool is_host)
{
    const struct request_room *room = &first_of(batch)->out[output].room;
    bool is_reachable = room->memory == (is_host ? MEMORY_SHARED : MEMORY_DEVICE);

    return room->data != NULL && batch->is_whole && is_reachable && room->apart &&
           (uintptr_t)room->data % IO_ALIGNMENT == 0 && batch->out[output].bytes > 0 &&
           batch->out[output].bytes <= room->bytes &&
           plan_takes_foreign_output(batch->plan, output);
}

/* Lays the wanted outputs out in the response; returns their bytes.  On the host each has room for
 * its guard. */
static uint64_t lay_out_response(struct batch *batch, bool is_host)
{
    const struct model_queue *queue = batch->queue;
    uint64_t bytes = 0;

    for (size_t i = 0; i < queue->outputs; i++) {
        struct tensor tensor = {.dtype = queue->out_port[i].dtype, .shape = batch->out_shapes[i]};

        batch->out[i] = (struct run_buffer){.data = NULL};
        batch->out_offset[i] = OUTPUT_UNWANTED;
        if (!is_wanted(batch, i))
            continue;
        if (is_placed(batch, i)) {
            batch->out[i].bytes = RUN_PLACE;
            batch->out_offset[i] = OUTPUT_PLACED;
            continue;
        }
        batch->out[i].bytes = tensor_bytes(&tensor);
        if (is_passed(batch, i)) {
            batch->out_offset[i] = OUTPUT_PASSED;
            continue;
        }
        if (goes_to_room(batch, i, is_host)) {
            batch->out_offset[i] = OUTPUT_ROOM;
            continue;
        }
        batch->out_offset[i] = bytes;
        if (is_host)
            batch->out[i].bytes = align_io(batch->out[i].bytes) + RUN_GUARD_BYTES;
        bytes += align_io(batch->out[i].bytes);
    }
    return bytes;
}

/* Whether the run may read the input where it lies.  Kernels read elements: a body that put a
 * tensor at an odd address is copied. */
static bool is_bindable(const struct batch *batch, size_t input, bool is_host)
{
    const struct request_input *in = &first_of(batch)->in[input];
    enum dtype dtype = batch->queue->in_port[input].dtype;
    size_t element = is_host ? dtype_bytes(dtype) : IO_ALIGNMENT;
    size_t alignment = dtype == DTYPE_STRING ? _Alignof(struct bytes) : element;

    if (!batch->is_whole || is_host != (in->memory != MEMORY_DEVICE))
        return false;
    if (alignment > 0 && (uintptr_t)in->data % alignment != 0)
        return false;
    return in->memory == MEMORY_OWN || plan_takes_foreign_input(batch->plan, input);
}

/* Bytes of each input in the plan's shape, and of the io memory that those take together which are
 * not bound where they lie. */
static uint64_t lay_out_inputs(struct batch *batch, bool is_host)
{
    const struct model_queue *queue = batch->queue;
    const struct request *first = first_of(batch);
    uint64_t bytes = 0;

    for (size_t i = 0; i < queue->inputs; i++) {
        struct tensor tensor = {.dtype = queue->in_port[i].dtype, .shape = first->in[i].shape};

        if (queue->max_batch_size > 0)
            tensor.shape.dims[0] = batch->plan_rows;
        batch->in[i] = (struct run_buffer){.bytes = tensor_bytes(&tensor)};
        batch->binds[i] = is_bindable(batch, i, is_host);
        if (!batch->binds[i])
            bytes += align_io(batch->in[i].bytes);
    }
    return bytes;
}

static bool take_tables(struct lane *lane, struct batch *batch)
{
    const struct model_queue *queue = batch->queue;

    batch->in = arena_take_array(&lane->scratch, queue->inputs, sizeof(*batch->in));
    batch->binds = arena_take_array(&lane->scratch, queue->inputs, sizeof(*batch->binds));
    batch->out = arena_take_array(&lane->scratch, queue->outputs, sizeof(*batch->out));
    batch->out_offset =
        arena_take_array(&lane->scratch, queue->outputs, sizeof(*batch->out_offset));
    batch->out_base = arena_take_array(&lane->scratch, queue->outputs, sizeof(*batch->out_base));
    batch->true_shapes =
        arena_take_array(&lane->scratch, queue->outputs, sizeof(*batch->true_shapes));
    return batch->in != NULL && batch->binds != NULL && batch->out != NULL &&
           batch->out_offset != NULL && batch->out_base != NULL && batch->true_shapes != NULL;
}

/* Whom statistics and history name. */
static struct ledger_account *account_of(const struct batch *batch)
{
    return network_account(batch->queue->network);
}

/* Whether so many bytes could ever be reserved for the queue: when others' holds are over, or when
 * models have left for them, which are asked to. */
static bool may_ever_fit(struct batcher *batcher, const struct model_queue *queue, uint64_t bytes)
{
    uint64_t ceiling = ledger_ceiling(batcher->ledger);

    return bytes <= ceiling || batcher_make_way(batcher, queue, bytes - ceiling) ||
           bytes <= ledger_ceiling_later(batcher->ledger);
}

/* Activations to reserve: what the plan says, what a run of these requests once ended for want of,
 * and, where the plan only knows its first segment, what runs took lately. */
static uint64_t expected_bytes(const struct batch *batch, uint64_t page)
{
    const struct request *request;
    uint64_t bytes = batch->run_bytes, grown, ceiling, io;
    struct plan_facts facts;

    LIST_FOR_EACH (request, &batch->requests, struct request, link)
        if (request->wait.least_bytes > bytes)
            bytes = request->wait.least_bytes;
    plan_read(batch->plan, &facts);
    if (facts.exact)
        return bytes;
    grown = batch->run_bytes * atomic_load_explicit(&batch->queue->growth, memory_order_relaxed) /
            GROWTH_NONE;
    /* A guess alone must not make the possible impossible: at most it runs alone. */
    ceiling = ledger_ceiling(batch->queue->batcher->ledger);
    io = whole_pages(batch->io_bytes, page);
    ceiling = ceiling > io ? (ceiling - io) / page * page : 0;
    if (grown > ceiling)
        grown = ceiling;
    return grown > bytes ? grown : bytes;
}

/* The answers' memory, and what steps on the host beside a device need: both until batch_release(),
 * or neither. */
static enum status take_host(struct lane *lane, struct batch *batch, uint64_t response_bytes)
{
    struct host_pool *pool = lane->batcher->host_pool;
    struct plan_facts facts;
    uint64_t steps;
    void *base;

    plan_read(batch->plan, &facts);
    steps = device_host_room(facts.host_bytes);
    if ((steps == 0 ||
         device_lane_host_memory(lane->device_lane, facts.host_bytes, &base) == STATUS_OK) &&
        response_create(pool, response_bytes, &batch->response) == STATUS_OK)
        return STATUS_OK;
    device_lane_give_host_memory(lane->device_lane);
    batch_lacks_host(batch, pool, response_bytes + steps,
                     response_charge(response_bytes) + (steps > 0 ? host_pool_charge(steps) : 0));
    return STATUS_NO_MEMORY;
}

/* One attempt with the plan that is held.  STATUS_NO_MEMORY: needed and available are set;
 * everything but the plan is given back. */
static enum status try_reserve(struct lane *lane, struct batch *batch)
{
    struct batcher *batcher = lane->batcher;
    bool is_host = batcher->device->ops->host_memory;
    uint64_t page = batcher->device->memory->page_bytes;
    uint64_t response_bytes, peak, needed;

    batch->out_shapes = plan_output_shapes(batch->plan, &batch->out_bound);
    batch->is_whole = batch->count == 1 && batch->plan_rows == batch->rows;
    batch->io_bytes = lay_out_inputs(batch, is_host);
    response_bytes = lay_out_response(batch, is_host);
    if (!is_host)
        batch->io_bytes += response_bytes;
    batch->lacks_host = batch->fits_never = false;
    batch->segment_bytes = batch->restart_bytes = 0;
    batch->run_bytes = plan_run_bytes(batch->plan, batch->out);
    peak = whole_pages(expected_bytes(batch, page), page);
    needed = peak + whole_pages(batch->io_bytes, page);
    batch->needed_bytes = needed;
    if (ledger_reserve_for(batcher->ledger, account_of(batch), needed, &batch->available_bytes) !=
        STATUS_OK)
        return STATUS_NO_MEMORY;
    batch->reserved_bytes = needed;
    batch->peak_bytes = peak;
    if (take_host(lane, batch, response_bytes) == STATUS_OK)
        return STATUS_OK;
    ledger_unreserve_for(batcher->ledger, account_of(batch), batch->reserved_bytes);
    batch->reserved_bytes = 0;
    return STATUS_NO_MEMORY;
}

/* What try_reserve() did not get, alone: whether waiting is no use. */
static bool fits_never(struct batcher *batcher, const struct batch *batch)
{
    struct host_pool_stats host;

    if (!batch->lacks_host)
        return !may_ever_fit(batcher, batch->queue, batch->needed_bytes);
    host_pool_read(batcher->host_pool, &host);
    return batch->needed_bytes > host.limit_bytes;
}

/* Drops requests from the end until the rest has at most `rows` rows; one always stays. */
static void shrink(struct batch *batch, int64_t rows)
{
    while (batch->count > 1 && batch->rows > rows) {
        struct request *last = CONTAINER_OF(batch->requests.prev, struct request, link);

        list_remove(&last->link);
        list_prepend(&batch->surplus, &last->link);
        batch->rows -= last->rows;
        batch->count--;
    }
}

/* The next size worth trying after one that did not fit. */
static int64_t smaller_rows(const struct batch *batch)
{
    int64_t largest = batch->queue->max_batch_size;
    int64_t next = bucket_down(batch->rows - 1, largest);
    double share =
        batch->needed_bytes == 0 ? 0 : (double)batch->available_bytes / (double)batch->needed_bytes;
    int64_t bound = (int64_t)(share * (double)batch->plan_rows);

    if (bound < next)
        next = bucket_down(bound, largest);
    return next < 1 ? 1 : next;
}

void batch_release(struct lane *lane, struct batch *batch)
{
    if (batch->plan != NULL)
        plan_unref(batch->plan);
    batch->plan = NULL;
    if (batch->reserved_bytes > 0)
        ledger_unreserve_for(lane->batcher->ledger, account_of(batch), batch->reserved_bytes);
    batch->reserved_bytes = 0;
    response_unref(batch->response);
    batch->response = NULL;
    device_lane_give_host_memory(lane->device_lane);
}

/* A plan that could not be made for want of room for its packed weights can be when others' have
 * left.  How much it lacks nobody knows: more than is there. */
static bool lacks_weights(struct batcher *batcher, struct batch *batch, struct error *err)
{
    if (err->status != STATUS_NO_MEMORY ||
        !batcher_make_way(batcher, batch->queue, batcher->device->memory->page_bytes))
        return false;
    batch->available_bytes = batcher_device_free(batcher, ledger_ceiling(batcher->ledger));
    batch->needed_bytes = batch->available_bytes + batcher->device->memory->page_bytes;
    batch->lacks_host = false;
    return true;
}

static enum admission admit(struct lane *lane, struct batch *batch, bool may_shrink,
                            struct error *err)
{
    for (;;) {
        struct memory_lack lack;
        bool never;

        if (batch->plan == NULL && find_plan(lane, batch, err) != STATUS_OK)
            return lacks_weights(lane->batcher, batch, err) ? ADMIT_WAIT : ADMIT_FAIL;
        if (!take_tables(lane, batch)) {
            (void)error_set(err, STATUS_NO_MEMORY, "model '%s': no host memory for a batch",
                            batch->queue->name);
            break;
        }
        if (try_reserve(lane, batch) == STATUS_OK)
            return ADMIT_RUN;
        if (may_shrink && batch->count > 1) {
            plan_unref(batch->plan);
            batch->plan = NULL;
            shrink(batch, smaller_rows(batch));
            continue;
        }
        lack = batch_lack(batch);
        memory_error(err, batch->queue, batch->rows, &lack);
        never = fits_never(lane->batcher, batch);
        atomic_fetch_add(never ? &lane->batcher->never : &lane->batcher->waits, 1);
        if (never && !batch->lacks_host)
            ledger_count_oom(lane->batcher->ledger, account_of(batch), batch->needed_bytes,
                             batch->available_bytes, "no batch as large ever fits");
        batch_release(lane, batch);
        return never ? ADMIT_FAIL : ADMIT_WAIT;
    }
    batch_release(lane, batch);
    return ADMIT_FAIL;
}

enum status batch_reserve_more(struct lane *lane, struct batch *batch, uint64_t more)
{
    struct batcher *batcher = lane->batcher;
    uint64_t whole =
        more < UINT64_MAX - batch->reserved_bytes ? batch->reserved_bytes + more : UINT64_MAX;

    if (ledger_reserve_for(batcher->ledger, account_of(batch), more, &batch->available_bytes) !=
        STATUS_OK) {
        batch->needed_bytes = more;
        batch->lacks_host = false;
        batch->fits_never = !may_ever_fit(batcher, batch->queue, whole);
        return STATUS_NO_MEMORY;
    }
    batch->reserved_bytes += more;
    return STATUS_OK;
}

enum status batch_admit_segment(struct lane *lane, struct batch *batch, uint64_t total_bytes)
{
    struct batcher *batcher = lane->batcher;
    uint64_t total = whole_pages(total_bytes, batcher->device->memory->page_bytes);
    uint64_t more = total > batch->peak_bytes ? total - batch->peak_bytes : 0;
    const struct request *first = first_of(batch);

    if (total_bytes > batch->segment_bytes)
        batch->segment_bytes = total_bytes;
    if (more == 0)
        return STATUS_OK;
    if (batch_reserve_more(lane, batch, more) != STATUS_OK) {
        if (batch->may_restart && first->wait.restarts < MAX_RESTARTS && !batch->fits_never)
            batch->restart_bytes = total_bytes;
        return STATUS_NO_MEMORY;
    }
    batch->peak_bytes = total;
    return STATUS_OK;
}

void batch_learn_growth(struct batch *batch)
{
    atomic_uint *growth = &batch->queue->growth;
    unsigned old = atomic_load_explicit(growth, memory_order_relaxed), seen;

    if (batch->segment_bytes == 0 || batch->run_bytes == 0)
        return; /* one segment: its plan says all */
    seen = batch->segment_bytes / batch->run_bytes < MAX_GROWTH
               ? (unsigned)(batch->segment_bytes * GROWTH_NONE / batch->run_bytes)
               : MAX_GROWTH * GROWTH_NONE;
    if (seen < old)
        seen = old - (old - seen + GROWTH_FADE - 1) / GROWTH_FADE;
    atomic_store_explicit(growth, seen, memory_order_relaxed);
}

enum admission batch_admit(struct lane *lane, struct batch *batch, struct error *err)
{
    return admit(lane, batch, true, err);
}

enum admission batch_admit_plan(struct lane *lane, struct batch *batch, struct plan *plan,
                                struct error *err)
{
    batch->plan = plan;
    batch->plan_rows = batch->rows;
    return admit(lane, batch, false, err);
}
