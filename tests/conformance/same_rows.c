/* sluice-rows [--device NAME …] [--free N] MODEL.onnx…: same row, same bits.
 *
 * A row alone on one thread is the truth; the same row among others, in batches of 2, 3 and 8, in a
 * batch of 4 padded with zeros, on one thread and on two, and on each of the devices that are
 * named, must have the very same bits.  Unknown dimensions behind the first are N.  Models whose
 * inputs have no batch dimension are passed over.  Exit status 1: bits differ, or a model cannot be
 * run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "solo.h"

enum { ROWS = 8, TEAMS = 4 };

struct batch {
    int64_t rows, real; /* rows from `real` on are zeros */
    int64_t first;      /* row of the set that comes first */
};

struct team {
    const char *device;
    unsigned threads;
    struct solo solo;
};

struct model {
    const char *path;
    unsigned teams;
    struct team team[TEAMS];
    int64_t free_dim;
    struct solo_outputs alone[ROWS];
    size_t differing;
};

/* ---- inputs ---- */

static void fill_row(const struct tensor *tensor, size_t input, int64_t row, char *to, size_t count)
{
    uint32_t rng = 2463534242U + (uint32_t)row * 7919U + (uint32_t)input * 104729U;

    for (size_t i = 0; i < count; i++) {
        rng ^= rng << 13;
        rng ^= rng >> 17;
        rng ^= rng << 5;
        switch (tensor->dtype) {
        case DTYPE_FLOAT:
            ((float *)(void *)to)[i] = (float)(rng >> 8) / 8388608.0F - 1;
            break;
        case DTYPE_INT64:
            ((int64_t *)(void *)to)[i] = rng % 2;
            break;
        case DTYPE_INT32:
            ((int32_t *)(void *)to)[i] = (int32_t)(rng % 2);
            break;
        case DTYPE_UINT8:
        case DTYPE_INT8:
            to[i] = (char)(rng % 128);
            break;
        default:
            break; /* zeros */
        }
    }
}

static struct shape input_shape(const struct model *model, const struct network_port *port,
                                int64_t rows)
{
    struct shape shape = port->shape;

    shape.dims[0] = rows;
    for (size_t i = 1; i < shape.rank; i++)
        if (shape.dims[i] < 0)
            shape.dims[i] = model->free_dim;
    return shape;
}

static bool make_input(const struct model *model, const struct network_port *port, size_t index,
                       const struct batch *batch, struct tensor *tensor)
{
    size_t count, row_bytes;
    char *data;

    tensor->dtype = port->dtype;
    tensor->shape = input_shape(model, port, batch->rows);
    count = (size_t)(shape_count(&tensor->shape) / batch->rows);
    row_bytes = count * dtype_bytes(port->dtype);
    data = calloc((size_t)batch->rows, row_bytes + 1);
    tensor->data = data;
    for (int64_t row = 0; data != NULL && row < batch->real; row++)
        fill_row(tensor, index, batch->first + row, data + (size_t)row * row_bytes, count);
    return data != NULL;
}

static enum status run_batch(const struct model *model, struct solo *solo,
                             const struct batch *batch, struct solo_outputs *outputs,
                             struct error *err)
{
    const struct network_port *ports;
    size_t inputs = network_inputs(solo->network, &ports);
    struct tensor *in = calloc(inputs + 1, sizeof(*in));
    enum status status = in == NULL ? STATUS_NO_MEMORY : STATUS_OK;

    for (size_t i = 0; status == STATUS_OK && i < inputs; i++)
        if (!make_input(model, &ports[i], i, batch, &in[i]))
            status = STATUS_NO_MEMORY;
    if (status == STATUS_OK)
        status = solo_run(solo, in, outputs, err);
    for (size_t i = 0; in != NULL && i < inputs; i++)
        free((void *)(uintptr_t)in[i].data);
    free(in);
    return status;
}

/* ---- comparing ---- */

static void compare_row(struct model *model, const struct solo_outputs *outputs, size_t index,
                        const struct batch *batch, int64_t row, const struct team *team)
{
    const struct tensor *got = &outputs->tensors[index];
    const struct tensor *want = &model->alone[batch->first + row].tensors[index];
    size_t bytes = tensor_bytes(want), differing = 0, width = dtype_bytes(want->dtype);
    const char *from = (const char *)got->data + (size_t)row * bytes;

    if (got->dtype == DTYPE_STRING || memcmp(from, want->data, bytes) == 0)
        return;
    for (size_t i = 0; i < bytes; i += width)
        differing += memcmp(from + i, (const char *)want->data + i, width) != 0;
    if (model->differing++ == 0)
        printf("%s: output %zu: row %lld of %lld rows on %s with %u threads differs from the row "
               "alone in %zu of %zu elements\n",
               model->path, index, (long long)row, (long long)batch->rows, team->device,
               team->threads, differing, bytes / width);
}

static bool has_rows(const struct tensor *tensor, int64_t rows)
{
    return tensor->shape.rank > 0 && tensor->shape.dims[0] == rows;
}

static enum status check_batch(struct model *model, const struct batch *batch, unsigned team,
                               struct error *err)
{
    struct solo_outputs outputs = {0};

    TRY(run_batch(model, &model->team[team].solo, batch, &outputs, err));
    for (size_t i = 0; i < outputs.count; i++)
        for (int64_t row = 0; row < batch->real; row++)
            if (has_rows(&model->alone[0].tensors[i], 1) &&
                has_rows(&outputs.tensors[i], batch->rows))
                compare_row(model, &outputs, i, batch, row, &model->team[team]);
    solo_free(&outputs);
    return STATUS_OK;
}

static bool has_batch_dimension(const struct model *model)
{
    const struct network_port *ports;
    size_t inputs = network_inputs(model->team[0].solo.network, &ports);

    for (size_t i = 0; i < inputs; i++)
        if (ports[i].shape.rank == 0 || ports[i].shape.dims[0] >= 0)
            return false;
    return inputs > 0;
}

/* What a plan says of itself: a scale over all rows, say, cannot keep them apart. */
static enum status read_exactness(const struct model *model, bool *out_exact, struct error *err)
{
    const struct network_port *ports;
    size_t inputs = network_inputs(model->team[0].solo.network, &ports);
    struct shape *shapes = calloc(inputs + 1, sizeof(*shapes));
    struct plan *plan = NULL;
    struct plan_facts facts;
    enum status status = STATUS_NO_MEMORY;

    for (size_t i = 0; shapes != NULL && i < inputs; i++)
        shapes[i] = input_shape(model, &ports[i], 2);
    if (shapes != NULL)
        status = network_plan(model->team[0].solo.network, shapes, &plan, err);
    free(shapes);
    TRY(status);
    plan_read(plan, &facts);
    plan_unref(plan);
    *out_exact = facts.batch_exact;
    return STATUS_OK;
}

static enum status check_model(struct model *model, struct error *err)
{
    static const struct batch batches[] = {{1, 1, 3}, {2, 2, 0}, {2, 2, 5},
                                           {3, 3, 1}, {4, 3, 2}, {8, 8, 0}};
    bool exact;

    for (unsigned team = 0; team < model->teams; team++)
        TRY(solo_load(&model->team[team].solo, model->path, err));
    if (!has_batch_dimension(model)) {
        printf("%s: no batch dimension\n", model->path);
        return STATUS_OK;
    }
    TRY(read_exactness(model, &exact, err));
    if (!exact) {
        printf("%s: does not claim the same bits\n", model->path);
        return STATUS_OK;
    }
    for (int64_t row = 0; row < ROWS; row++)
        TRY(run_batch(model, &model->team[0].solo, &(struct batch){1, 1, row}, &model->alone[row],
                      err));
    for (unsigned team = 0; team < model->teams; team++)
        for (size_t i = 0; i < sizeof(batches) / sizeof(*batches); i++)
            TRY(check_batch(model, &batches[i], team, err));
    if (model->differing == 0)
        printf("%s: same bits\n", model->path);
    return STATUS_OK;
}

static bool check_path(struct model *model, const char *path)
{
    struct error err = {0};
    enum status status;

    model->path = path;
    model->differing = 0;
    status = check_model(model, &err);
    if (status != STATUS_OK)
        printf("%s: %s\n", path, err.text[0] != '\0' ? err.text : status_words(status));
    for (int64_t row = 0; row < ROWS; row++)
        solo_free(&model->alone[row]);
    fflush(stdout);
    return status == STATUS_OK && model->differing == 0;
}

static bool add_team(struct model *model, const char *device, unsigned threads)
{
    if (model->teams == TEAMS)
        return false;
    model->team[model->teams++] = (struct team){.device = device, .threads = threads};
    return true;
}

/* The CPU once more with two threads; other devices have none of their own. */
static bool add_device(struct model *model, const char *device)
{
    return add_team(model, device, 1) && (strcmp(device, "cpu") != 0 || add_team(model, device, 2));
}

static bool read_options(int count, char **words, struct model *model, int *out_from)
{
    int from = 1;

    for (; from + 1 < count && words[from][0] == '-'; from += 2) {
        if (strcmp(words[from], "--free") == 0)
            model->free_dim = strtoll(words[from + 1], NULL, 10);
        else if (strcmp(words[from], "--device") != 0 || !add_device(model, words[from + 1]))
            return false;
    }
    *out_from = from;
    return from < count && model->free_dim >= 1 && (model->teams > 0 || add_device(model, "cpu"));
}

int main(int count, char **words)
{
    struct model model = {.free_dim = 32};
    struct error err = {0};
    int bad = 0, from;

    if (!read_options(count, words, &model, &from)) {
        fprintf(stderr, "usage: sluice-rows [--device NAME …] [--free N] MODEL.onnx…\n");
        return 2;
    }
    for (unsigned i = 0; i < model.teams; i++)
        if (solo_open(model.team[i].device, model.team[i].threads, &model.team[i].solo, &err) !=
            STATUS_OK) {
            fprintf(stderr, "sluice-rows: %s: %s\n", model.team[i].device,
                    err.text[0] != '\0' ? err.text : "cannot be opened");
            return 1;
        }
    for (int i = from; i < count; i++)
        bad += !check_path(&model, words[i]);
    for (unsigned i = 0; i < model.teams; i++)
        solo_close(&model.team[i].solo);
    return bad > 0;
}
