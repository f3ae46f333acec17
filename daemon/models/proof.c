/* The proof.
 *
 *   row a ──> A        rows a, b ──> C, D        proven when A = C and B = D, and every output
 *   row b ──> B                                  has two rows
 *
 * Where the graph leaves doubt (graph/rows.h) the same with as many rows as a batch may have, a few
 * of them asked alone.  The rows differ in scale: a model that scales over the whole batch (dynamic
 * quantisation) gives itself away.  "Same" is the rule by which two right executors agree: |x − y|
 * ≤ atol + 1e-3 |y|, atol = the larger of 1e-6 and 2e-5 of the largest value; what is no float must
 * be equal.
 */
#include "models/proof.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SEED UINT64_C(0x5EED5EED5EED5EED)
/* What a proof of more than two rows may take, but for LEAST_ROWS that always are tried. */
#define PROOF_US INT64_C(500000)
enum { LEAST_ROWS = 8 };
/* What a row may take whose size is ours to choose; no more than HOST_SHARE of HostLimit=. */
#define OPEN_ROW_BYTES (UINT64_C(32) << 20)
enum { HOST_SHARE = 8 };

/* Sizes tried for open dimensions, all of them alike: lengths of texts and sounds, then of images.
 */
static const int64_t sizes[] = {32, 64, 16, 128, 1, 8, 224, 320, 512, 2, 4, 1024};

static bool has_open(const struct shape *ports, size_t count, bool has_rows)
{
    for (size_t i = 0; i < count; i++)
        for (size_t axis = has_rows ? 1 : 0; axis < ports[i].rank; axis++)
            if (ports[i].dims[axis] == SHAPE_UNKNOWN)
                return true;
    return false;
}

void proof_shapes(const struct probe *probe, const struct shape *ports, int64_t rows, int64_t size,
                  struct shape *shapes)
{
    const struct network_port *real;
    size_t count = network_inputs(probe->network, &real);

    for (size_t i = 0; i < count; i++) {
        shapes[i] = ports[i];
        if (probe->has_rows)
            shapes[i].dims[0] = rows;
        for (size_t axis = 0; axis < shapes[i].rank; axis++)
            if (shapes[i].dims[axis] == SHAPE_UNKNOWN)
                shapes[i].dims[axis] = size > 0 ? size : sizes[0];
    }
}

static uint64_t row_bytes(const struct probe *probe, const struct shape *shapes)
{
    const struct network_port *real;
    size_t count = network_inputs(probe->network, &real);
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        int64_t elements;

        if (shape_elements(&shapes[i], &elements) != STATUS_OK)
            return UINT64_MAX;
        bytes += (uint64_t)elements * dtype_bytes(real[i].dtype); /* at most 2^48 each */
    }
    return bytes;
}

static uint64_t most_row_bytes(const struct probe *probe)
{
    struct host_pool_stats host;

    host_pool_read(batcher_host_pool(probe->batcher), &host);
    return host.limit_bytes / HOST_SHARE < OPEN_ROW_BYTES ? host.limit_bytes / HOST_SHARE
                                                          : OPEN_ROW_BYTES;
}

/* Shapes of the inputs, from `arena`; NULL: no memory. */
static struct shape *take_shapes(const struct probe *probe, const struct shape *ports, int64_t rows,
                                 int64_t size, struct arena *arena)
{
    const struct network_port *real;
    size_t count = network_inputs(probe->network, &real);
    struct shape *shapes = arena_take_array(arena, count, sizeof(*shapes));

    if (shapes != NULL)
        proof_shapes(probe, ports, rows, size, shapes);
    return shapes;
}

static enum status make_data(const struct probe *probe, const struct shape *ports, int64_t rows,
                             int64_t size, struct probe_data *data)
{
    enum status status = STATUS_NO_MEMORY;
    struct shape *shapes;
    struct arena arena;

    arena_init(&arena);
    shapes = take_shapes(probe, ports, rows, size, &arena);
    if (shapes != NULL)
        status = probe_data_make(data, probe, shapes, SAMPLE_RANDOM, SEED);
    arena_deinit(&arena);
    return status;
}

static bool is_about_shape(enum status status)
{
    return status == STATUS_INVALID || status == STATUS_UNSUPPORTED || status == STATUS_INTERNAL;
}

/* Before there is data of such shapes: what the network says of them.  Room for its plan is the
 * batcher's to make. */
static enum status ask_network(const struct probe *probe, const struct shape *shapes,
                               struct error *err)
{
    struct plan *plan = NULL;
    enum status status = network_plan(probe->network, shapes, &plan, err);

    plan_unref(plan);
    return is_about_shape(status) ? status : STATUS_OK;
}

/* Whether it is worth while to make data of that size.  The error is the network's rather than that
 * of a size that is too large. */
static enum status check_size(const struct probe *probe, const struct shape *ports, int64_t size,
                              struct error *err)
{
    uint64_t bytes, most = most_row_bytes(probe);
    enum status status = STATUS_NO_MEMORY;
    struct shape *shapes;
    struct arena arena;

    arena_init(&arena);
    shapes = take_shapes(probe, ports, 1, size, &arena);
    bytes = shapes == NULL ? 0 : row_bytes(probe, shapes);
    if (shapes == NULL)
        (void)error_set(err, status, "no host memory for a row of its inputs");
    else if (bytes <= most)
        status = ask_network(probe, shapes, err);
    else
        status = STATUS_INVALID;
    if (bytes > most && err->status == STATUS_OK)
        (void)error_set(err, status,
                        "with its open dimensions %" PRId64 " a row takes %" PRIu64
                        " bytes of input, more than the %" PRIu64 " that are tried",
                        size, bytes, most);
    arena_deinit(&arena);
    return status;
}

static enum status try_size(struct probe *probe, const struct shape *ports, int64_t size,
                            struct proof_first *out_first, struct error *err)
{
    enum status status = make_data(probe, ports, 1, size, &out_first->data);

    if (status != STATUS_OK)
        return error_set(err, status, "no host memory for a row of its inputs");
    status = probe_run(probe, &out_first->data, &out_first->answer, err);
    if (status != STATUS_OK)
        probe_data_deinit(&out_first->data);
    return status;
}

void proof_first_deinit(struct proof_first *first)
{
    probe_answer_deinit(&first->answer);
    probe_data_deinit(&first->data);
}

enum status proof_find_size(struct probe *probe, const struct shape *ports, int64_t *out_size,
                            struct proof_first *out_first, struct error *err)
{
    const struct network_port *real;
    size_t count = network_inputs(probe->network, &real);
    enum status status = STATUS_INVALID;

    *out_size = 0;
    *err = (struct error){.status = STATUS_OK};
    if (!has_open(ports, count, probe->has_rows))
        return try_size(probe, ports, 1, out_first, err);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        status = check_size(probe, ports, sizes[i], err);
        if (status == STATUS_OK)
            status = try_size(probe, ports, sizes[i], out_first, err);
        if (status == STATUS_OK) {
            *out_size = sizes[i];
            return status;
        }
        if (!is_about_shape(status))
            return status;
    }
    return status;
}

/* ---- comparing ---- */

static double element(enum dtype dtype, const void *data, size_t index)
{
    switch (dtype) {
    case DTYPE_FLOAT:
        return (double)((const float *)data)[index];
    case DTYPE_DOUBLE:
        return ((const double *)data)[index];
    case DTYPE_FLOAT16:
        return (double)float_from_half(((const uint16_t *)data)[index]);
    default:
        return (double)float_from_bfloat16(((const uint16_t *)data)[index]);
    }
}

static double largest(enum dtype dtype, const void *data, size_t count)
{
    double most = 0;

    for (size_t i = 0; i < count; i++) {
        double size = fabs(element(dtype, data, i));

        if (isfinite(size) && size > most)
            most = size;
    }
    return most;
}

static bool floats_agree(enum dtype dtype, const void *a, const void *b, size_t count)
{
    /* The 16-bit types round each step to 3 and 2 digits. */
    double share = dtype == DTYPE_FLOAT || dtype == DTYPE_DOUBLE ? 2e-5 : 1e-2;
    double atol = fmax(1e-6, share * largest(dtype, b, count));

    for (size_t i = 0; i < count; i++) {
        double x = element(dtype, a, i), y = element(dtype, b, i);

        if (x == y || (isnan(x) && isnan(y)))
            continue;
        if (!(fabs(x - y) <= atol + 1e-3 * fabs(y)))
            return false;
    }
    return true;
}

static bool texts_agree(const struct bytes *a, const struct bytes *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (a[i].size != b[i].size ||
            (a[i].size > 0 && memcmp(a[i].data, b[i].data, a[i].size) != 0))
            return false;
    return true;
}

static bool outputs_agree(enum dtype dtype, const void *a, const void *b, size_t bytes)
{
    if (dtype == DTYPE_STRING)
        return texts_agree(a, b, bytes / sizeof(struct bytes));
    if (dtype_is_float(dtype))
        return floats_agree(dtype, a, b, bytes / dtype_bytes(dtype));
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

/* Row `row` of the batch's outputs against the answer to that row alone. */
static bool row_agrees(const struct probe *probe, const struct request *batch,
                       const struct request *alone, int64_t row, char *reason, size_t room)
{
    const struct network_port *ports;
    size_t count = network_outputs(probe->network, &ports);

    for (size_t i = 0; i < count; i++) {
        const struct request_output *both = &batch->out[i], *one = &alone->out[i];
        char batch_text[SHAPE_TEXT_BYTES], one_text[SHAPE_TEXT_BYTES];
        struct shape wanted = one->shape;

        if (wanted.rank > 0)
            wanted.dims[0] *= batch->rows;
        if (one->shape.rank == 0 || one->shape.dims[0] != 1 ||
            !shape_is_equal(&both->shape, &wanted)) {
            (void)snprintf(reason, room,
                           "output '%.60s' has the shape %s for one row and %s for %" PRId64
                           ", its first dimension is not the batch",
                           ports[i].name, shape_format(&one->shape, one_text),
                           shape_format(&both->shape, batch_text), batch->rows);
            return false;
        }
        if (!outputs_agree(ports[i].dtype, (const char *)both->data + one->bytes * (size_t)row,
                           one->data, one->bytes)) {
            (void)snprintf(reason, room, "rows together differ from rows apart in output '%.60s'",
                           ports[i].name);
            return false;
        }
    }
    return true;
}

/* Row `row` of the data alone against that row of the batch. */
static bool row_alone_agrees(struct probe *probe, const struct probe_data *data,
                             const struct request *batch, int64_t row, char *reason, size_t room)
{
    struct error err = {.status = STATUS_OK};
    struct probe_answer alone;
    struct probe_data single;
    bool agrees;

    if (probe_data_row(&single, data, row) != STATUS_OK ||
        probe_run(probe, &single, &alone, &err) != STATUS_OK) {
        (void)snprintf(reason, room, "a row alone fails: %.160s",
                       err.text[0] != '\0' ? err.text : "no host memory for it");
        probe_data_deinit(&single);
        return false;
    }
    agrees = row_agrees(probe, batch, &alone.request, row, reason, room);
    probe_answer_deinit(&alone);
    probe_data_deinit(&single);
    return agrees;
}

/* Some rows of the batch against what they are answered alone: those at its ends and in between. */
static bool rows_agree(struct probe *probe, const struct probe_data *data,
                       const struct request *batch, const struct proof_first *first, int64_t rows,
                       char *reason, size_t room)
{
    const int64_t asked[] = {1, 2, rows / 2, rows - 1};
    int64_t before = 0;

    if (!row_agrees(probe, batch, &first->answer.request, 0, reason, room))
        return false;
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        if (asked[i] <= before || asked[i] >= rows)
            continue;
        if (!row_alone_agrees(probe, data, batch, asked[i], reason, room))
            return false;
        before = asked[i];
    }
    return true;
}

/* Runs `rows` rows together and compares.  *out_status is STATUS_OK unless they could not be run.
 */
static bool prove_rows(struct probe *probe, const struct shape *ports, int64_t size, int64_t rows,
                       const struct proof_first *first, enum status *out_status,
                       int64_t *out_run_us, char *reason, size_t room)
{
    struct error err = {.status = STATUS_OK};
    struct probe_answer batch;
    struct probe_data data;
    bool proven;

    *out_status = make_data(probe, ports, rows, size, &data);
    if (*out_status != STATUS_OK) {
        (void)snprintf(reason, room, "no host memory to prove it");
        return false;
    }
    *out_status = probe_run(probe, &data, &batch, &err);
    if (*out_status != STATUS_OK) {
        (void)snprintf(reason, room, "%" PRId64 " rows together fail: %.160s", rows, err.text);
        probe_data_deinit(&data);
        return false;
    }
    *out_run_us = batch.request.computed_us - batch.request.started_us;
    proven = rows_agree(probe, &data, &batch.request, first, rows, reason, room);
    probe_answer_deinit(&batch);
    probe_data_deinit(&data);
    return proven;
}

/* As many rows as run in about PROOF_US, by how long two take; LEAST_ROWS at least. */
static int64_t affordable_rows(int64_t most_rows, int64_t pair_us)
{
    int64_t rows = pair_us > 0 ? 2 * PROOF_US / pair_us : most_rows;

    rows = rows < LEAST_ROWS ? LEAST_ROWS : rows;
    return rows < most_rows ? rows : most_rows;
}

bool proof_of_batching(struct probe *probe, const struct shape *ports, int64_t size,
                       int64_t most_rows, const struct proof_first *first, char *reason,
                       size_t room)
{
    enum status status;
    int64_t run_us;
    bool proven = prove_rows(probe, ports, size, 2, first, &status, &run_us, reason, room);

    if (!proven || most_rows <= 2)
        return proven;
    for (int64_t rows = affordable_rows(most_rows, run_us); rows > 2; rows /= 2) {
        proven = prove_rows(probe, ports, size, rows, first, &status, &run_us, reason, room);
        if (status != STATUS_NO_MEMORY)
            break;
        proven = true; /* batches of this size will not run either: fewer */
    }
    return proven;
}
