#include "models/warmup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "models/plain_file.h"

typedef Inference__ModelWarmup__Input warmup_input;

enum { MAX_RUNS = 1000 };
#define SEED UINT64_C(0x77A27C0FFEE)

static const warmup_input *find_input(const Inference__ModelWarmup *warmup, const char *name)
{
    for (size_t i = 0; i < warmup->n_inputs; i++)
        if (strcmp(warmup->inputs[i]->key, name) == 0)
            return warmup->inputs[i]->value;
    return NULL;
}

static enum status input_shape(const Inference__ModelConfig *config,
                               const Inference__ModelWarmup *warmup,
                               const struct network_port *port, struct shape *out_shape,
                               struct error *err)
{
    const warmup_input *input = find_input(warmup, port->name);
    struct shape shape = {.rank = 0};
    int64_t count;

    if (input == NULL)
        return error_set(err, STATUS_INVALID, "model '%s': model_warmup '%s' has no input '%s'",
                         config->name, warmup->name, port->name);
    if (dtype_from_config(input->data_type) != port->dtype)
        return error_set(err, STATUS_INVALID,
                         "model '%s': model_warmup '%s': input '%s' is not of the model's type %s",
                         config->name, warmup->name, port->name, dtype_triton_name(port->dtype));
    if (config->max_batch_size > 0)
        shape.dims[shape.rank++] = warmup->batch_size == 0 ? 1 : (int64_t)warmup->batch_size;
    for (size_t i = 0; i < input->n_dims && shape.rank < SHAPE_MAX_RANK; i++)
        shape.dims[shape.rank++] = input->dims[i];
    if (shape_elements(&shape, &count) != STATUS_OK)
        return error_set(err, STATUS_INVALID,
                         "model '%s': model_warmup '%s': the dims of input '%s' are no shape",
                         config->name, warmup->name, port->name);
    *out_shape = shape;
    return STATUS_OK;
}

static enum status read_exactly(const char *path, void *to, size_t bytes, struct error *err)
{
    FILE *from = NULL;
    size_t got;

    TRY(plain_file_open(path, SIZE_MAX, &from, err));
    got = fread(to, 1, bytes, from);
    if (got == bytes && fgetc(from) != EOF)
        got++;
    (void)fclose(from);
    if (got != bytes)
        return error_set(err, STATUS_INVALID, "%s: %s than the %zu bytes that its input has", path,
                         got < bytes ? "less" : "more", bytes);
    return STATUS_OK;
}

/* One row out of the file, repeated for the others. */
static enum status load_file(const Inference__ModelConfig *config, const char *folder,
                             const struct network_port *port, const char *file,
                             struct request_input *in, struct error *err)
{
    size_t rows = config->max_batch_size > 0 ? (size_t)in->shape.dims[0] : 1;
    size_t row_bytes = in->bytes / rows;
    char *to = (char *)(uintptr_t)in->data;
    char path[4096];

    if (port->dtype == DTYPE_STRING)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "model '%s': model_warmup from a file is not supported for texts (input '%s')",
            config->name, port->name);
    if (strchr(file, '/') != NULL ||
        (size_t)snprintf(path, sizeof(path), "%s/warmup/%s", folder, file) >= sizeof(path))
        return error_set(err, STATUS_DENIED,
                         "model '%s': input_data_file '%s' is no plain file name", config->name,
                         file);
    TRY(read_exactly(path, to, row_bytes, err));
    for (size_t row = 1; row < rows; row++)
        memcpy(to + row * row_bytes, to, row_bytes);
    return STATUS_OK;
}

static enum status fill_inputs(const struct probe *probe, const Inference__ModelConfig *config,
                               const Inference__ModelWarmup *warmup, const char *folder,
                               struct probe_data *data, struct error *err)
{
    const struct network_port *ports;
    size_t count = network_inputs(probe->network, &ports);
    uint64_t random = SEED;

    for (size_t i = 0; i < count; i++) {
        const warmup_input *input = find_input(warmup, ports[i].name);
        struct request_input *in = &data->in[i];

        if (input->input_data_type_case ==
            INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE_INPUT_DATA_FILE)
            TRY(load_file(config, folder, &ports[i], input->input_data_file, in, err));
        else if (input->input_data_type_case ==
                 INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE_ZERO_DATA)
            TRY(sample_fill(&data->arena, ports[i].dtype, (void *)(uintptr_t)in->data,
                            in->bytes / dtype_bytes(ports[i].dtype), SAMPLE_ZERO, 1.0, &random));
    }
    return STATUS_OK;
}

static enum status run_filled(struct probe *probe, const Inference__ModelWarmup *warmup,
                              const struct probe_data *data, struct error *err)
{
    uint32_t runs = warmup->count == 0 ? 1 : warmup->count < MAX_RUNS ? warmup->count : MAX_RUNS;

    for (uint32_t i = 0; i < runs; i++) {
        struct probe_answer answer;

        TRY(probe_run(probe, data, &answer, err));
        probe_answer_deinit(&answer);
    }
    return STATUS_OK;
}

static enum status run_entry(struct probe *probe, const Inference__ModelConfig *config,
                             const Inference__ModelWarmup *warmup, const char *folder,
                             struct shape *shapes, struct error *err)
{
    const struct network_port *ports;
    size_t count = network_inputs(probe->network, &ports);
    struct probe_data data;
    enum status status;

    if (warmup->batch_size > (uint32_t)(config->max_batch_size > 0 ? config->max_batch_size : 1))
        return error_set(err, STATUS_INVALID,
                         "model '%s': model_warmup '%s': batch_size %" PRIu32
                         " is more than %" PRId32,
                         config->name, warmup->name, warmup->batch_size,
                         config->max_batch_size > 0 ? config->max_batch_size : 1);
    for (size_t i = 0; i < count; i++)
        TRY(input_shape(config, warmup, &ports[i], &shapes[i], err));
    if (probe_data_make(&data, probe, shapes, SAMPLE_RANDOM, SEED) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory for model_warmup",
                         config->name);
    status = fill_inputs(probe, config, warmup, folder, &data, err);
    if (status == STATUS_OK)
        status = run_filled(probe, warmup, &data, err);
    probe_data_deinit(&data);
    return status;
}

enum status warmup_run(struct probe *probe, const Inference__ModelConfig *config,
                       const char *folder, struct error *err)
{
    const struct network_port *ports;
    size_t count = network_inputs(probe->network, &ports);
    enum status status = STATUS_OK;
    struct arena arena;
    struct shape *shapes;

    arena_init(&arena);
    shapes = arena_take_array(&arena, count, sizeof(*shapes));
    if (shapes == NULL)
        status = error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", config->name);
    for (size_t i = 0; i < config->n_model_warmup && status == STATUS_OK; i++)
        status = run_entry(probe, config, config->model_warmup[i], folder, shapes, err);
    arena_deinit(&arena);
    return status;
}
