/* A model as its users see it: names, ports, what a request must look like. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/internal.h"
#include "models/trial.h"

struct model *model_ref(struct model *model)
{
    atomic_fetch_add_explicit(&model->references, 1, memory_order_relaxed);
    return model;
}

void model_unref(struct model *model)
{
    if (model == NULL ||
        atomic_fetch_sub_explicit(&model->references, 1, memory_order_acq_rel) != 1)
        return;
    mailbox_put(model->loader, &model->message.mail);
}

uint64_t model_destroy(struct model *model)
{
    uint64_t bytes = 0;

    if (model == NULL)
        return 0;
    trial_close(model->trial);
    queue_destroy(model->queue);
    if (model->network != NULL)
        bytes = network_resident_bytes(model->network);
    network_destroy(model->network);
    model_config_destroy(model->config);
    arena_deinit(&model->arena);
    model_unref(model->heir);
    free(model);
    return bytes;
}

const char *model_name(const struct model *model)
{
    return model->name;
}

const char *model_version(const struct model *model)
{
    return model->version_text;
}

const char *model_platform(const struct model *model)
{
    return model->config->platform;
}

size_t model_inputs(const struct model *model, const struct model_port **out_ports)
{
    *out_ports = model->in;
    return model->inputs;
}

size_t model_outputs(const struct model *model, const struct model_port **out_ports)
{
    *out_ports = model->out;
    return model->outputs;
}

int64_t model_max_batch_size(const struct model *model)
{
    return model->config->max_batch_size;
}

struct model_queue *model_queue(const struct model *model)
{
    return model->queue;
}

struct network *model_network(const struct model *model)
{
    return model->network;
}

const Inference__ModelConfig *model_config(const struct model *model)
{
    return model->config;
}

/* ---- ports ---- */

static struct shape port_shape(bool batched, const int64_t *dims, size_t count)
{
    struct shape shape = {.rank = 0};

    if (batched)
        shape.dims[shape.rank++] = SHAPE_UNKNOWN;
    for (size_t i = 0; i < count && shape.rank < SHAPE_MAX_RANK; i++)
        shape.dims[shape.rank++] = dims[i];
    return shape;
}

static enum status make_input(struct model *model, const struct network_port *real,
                              struct model_port *port)
{
    const Inference__ModelConfig *config = model->config;

    *port = (struct model_port){.name = real->name, .dtype = real->dtype, .shape = real->shape};
    for (size_t i = 0; i < config->n_input; i++)
        if (strcmp(config->input[i]->name, real->name) == 0)
            port->shape = port_shape(config->max_batch_size > 0, config->input[i]->dims,
                                     config->input[i]->n_dims);
    return STATUS_OK;
}

static enum status make_output(struct model *model, const char *folder,
                               const struct network_port *real, struct model_port *port,
                               struct error *err)
{
    const Inference__ModelConfig *config = model->config;
    const Inference__ModelOutput *output = NULL;
    char path[4096];

    *port = (struct model_port){.name = real->name, .dtype = real->dtype, .shape = real->shape};
    for (size_t i = 0; i < config->n_output; i++)
        if (strcmp(config->output[i]->name, real->name) == 0)
            output = config->output[i];
    if (output == NULL)
        return STATUS_OK;
    port->shape = port_shape(config->max_batch_size > 0, output->dims, output->n_dims);
    if (output->label_filename[0] == '\0')
        return STATUS_OK;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, output->label_filename) >=
        sizeof(path))
        return error_set(err, STATUS_INVALID, "model '%s': the path of '%s' is too long",
                         model->name, output->label_filename);
    port->label_file = output->label_filename;
    return labels_read(&model->arena, path, &port->labels, &port->label, err);
}

enum status model_make_ports(struct model *model, const char *folder, struct error *err)
{
    const struct network_port *real;

    model->inputs = network_inputs(model->network, &real);
    model->in = arena_take_array(&model->arena, model->inputs, sizeof(*model->in));
    if (model->in == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", model->name);
    for (size_t i = 0; i < model->inputs; i++)
        TRY(make_input(model, &real[i], &model->in[i]));
    model->outputs = network_outputs(model->network, &real);
    model->out = arena_take_array(&model->arena, model->outputs, sizeof(*model->out));
    if (model->out == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", model->name);
    for (size_t i = 0; i < model->outputs; i++)
        TRY(make_output(model, folder, &real[i], &model->out[i], err));
    return STATUS_OK;
}

/* ---- replaced ---- */

static bool ports_agree(const struct model_port *left, const struct model_port *right, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(left[i].name, right[i].name) != 0 || left[i].dtype != right[i].dtype ||
            left[i].optional != right[i].optional ||
            !shape_is_equal(&left[i].shape, &right[i].shape))
            return false;
    return true;
}

void model_bequeath(struct model *model, struct model *heir)
{
    if (heir == model || model->inputs != heir->inputs || model->outputs != heir->outputs ||
        (model->config->max_batch_size > 0) != (heir->config->max_batch_size > 0) ||
        !ports_agree(model->in, heir->in, model->inputs) ||
        !ports_agree(model->out, heir->out, model->outputs))
        return;
    model->heir = model_ref(heir);
    queue_set_heir(model->queue, heir->queue, model->version != heir->version);
}

struct model *model_that_answered(struct model *model, const struct request *request,
                                  int64_t keep_us)
{
    struct model *by = model;

    while (by->queue != request_queue(request) && by->heir != NULL)
        by = by->heir;
    if (by != model) {
        model_keep_alive(by, keep_us);
        keeper_nudge(by->resident.repository); /* it has been idle since before it heard */
    }
    (void)model_ref(by);
    model_unref(model);
    return by;
}

/* ---- requests ---- */

static bool is_missing(const struct model *model, const struct request *request, size_t input)
{
    return input >= request->inputs ||
           (request->in[input].data == NULL &&
            request->in[input].shape.rank != model->in[input].shape.rank) ||
           (request->in[input].data == NULL && model->in[input].shape.rank == 0);
}

/* Appends "'name'," to a list that may be cut when it is long. */
static void append_name(char *list, size_t room, const char *name)
{
    size_t used = strlen(list);

    (void)snprintf(list + used, room - used, "%s'%s'", used == 0 ? "" : ",", name);
}

static enum status check_complete(const struct model *model, const struct request *request,
                                  struct error *err)
{
    char got[256] = "", missing[256] = "";
    size_t given = 0;

    for (size_t i = 0; i < model->inputs; i++) {
        bool absent = is_missing(model, request, i);

        given += absent ? 0 : 1;
        append_name(absent ? missing : got, absent ? sizeof(missing) : sizeof(got),
                    model->in[i].name);
    }
    if (given == model->inputs)
        return STATUS_OK;
    return error_set(
        err, STATUS_INVALID,
        "expected %zu inputs but got %zu inputs for model '%s'. Got input(s) [%s], but "
        "missing required input(s) [%s]. Please provide all required input(s).",
        model->inputs, given, model->name, got, missing);
}

static bool shape_fits(const struct shape *wanted, const struct shape *got)
{
    if (wanted->rank != got->rank)
        return false;
    for (size_t i = 0; i < got->rank; i++)
        if (got->dims[i] < 0 ||
            (wanted->dims[i] != SHAPE_UNKNOWN && wanted->dims[i] != got->dims[i]))
            return false;
    return true;
}

static enum status check_shape(const struct model *model, const struct request_input *in,
                               const struct model_port *port, struct error *err)
{
    char wanted[SHAPE_TEXT_BYTES], got[SHAPE_TEXT_BYTES];
    struct tensor tensor = {.dtype = port->dtype, .shape = in->shape};
    int64_t count;

    if (!shape_fits(&port->shape, &in->shape))
        return error_set(
            err, STATUS_INVALID,
            "unexpected shape for input '%s' for model '%s'. Expected %s, got %s.%s", port->name,
            model->name, shape_format(&port->shape, wanted), shape_format(&in->shape, got),
            model->config->max_batch_size == 0
                ? ""
                : " NOTE: Setting a non-zero max_batch_size in the model config requires "
                  "a batch dimension to be prepended to each input shape.");
    if (shape_elements(&in->shape, &count) != STATUS_OK)
        return error_set(err, STATUS_INVALID, "input '%s' for model '%s' has too many elements: %s",
                         port->name, model->name, shape_format(&in->shape, got));
    if (in->bytes != tensor_bytes(&tensor))
        return error_set(
            err, STATUS_INVALID,
            "input byte size mismatch for input '%s' for model '%s'. Expected %zu, got %zu",
            port->name, model->name, tensor_bytes(&tensor), in->bytes);
    return STATUS_OK;
}

/* Kernels may count on it: 2 would be true for one and 2.0 for the next. */
static enum status check_truths(const struct model *model, const struct request_input *in,
                                const struct model_port *port, struct error *err)
{
    const uint8_t *truths = in->data;

    for (size_t i = 0; port->dtype == DTYPE_BOOL && i < in->bytes; i++)
        if (truths[i] > 1)
            return error_set(err, STATUS_INVALID,
                             "input '%s' for model '%s' holds a BOOL of %u, allowed are 0 and 1",
                             port->name, model->name, truths[i]);
    return STATUS_OK;
}

static enum status check_rows(const struct model *model, const struct request *request,
                              struct error *err)
{
    int64_t rows = request->in[0].shape.dims[0], most = model->config->max_batch_size;

    for (size_t i = 1; i < model->inputs; i++)
        if (request->in[i].shape.dims[0] != rows)
            return error_set(err, STATUS_INVALID,
                             "input '%s' batch size does not match other inputs for '%s'",
                             model->in[i].name, model->name);
    if (rows < 1)
        return error_set(err, STATUS_INVALID, "inference request batch-size must be >= 1 for '%s'",
                         model->name);
    if (rows > most)
        return error_set(err, STATUS_INVALID,
                         "inference request batch-size must be <= %" PRId64 " for '%s'", most,
                         model->name);
    return STATUS_OK;
}

enum status model_check_request(const struct model *model, struct request *request,
                                struct error *err)
{
    TRY(check_complete(model, request, err));
    for (size_t i = 0; i < model->inputs; i++) {
        TRY(check_shape(model, &request->in[i], &model->in[i], err));
        TRY(check_truths(model, &request->in[i], &model->in[i], err));
    }
    request->rows = 1;
    if (model->config->max_batch_size == 0 || model->inputs == 0)
        return STATUS_OK;
    TRY(check_rows(model, request, err));
    request->rows = request->in[0].shape.dims[0];
    return STATUS_OK;
}
