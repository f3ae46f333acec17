/* A configuration meets its model: what it leaves out is filled in, what it says is compared.
 *
 * Without a max_batch_size a model may batch if every input and output has an unknown first
 * dimension; whether it really does is proven at load (proof.c).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/message.h"
#include "models/model_config.h"

/* ---- types ---- */

static const struct pair {
    Inference__DataType config;
    enum dtype dtype;
} types[] = {
    {INFERENCE__DATA_TYPE__TYPE_BOOL, DTYPE_BOOL},
    {INFERENCE__DATA_TYPE__TYPE_UINT8, DTYPE_UINT8},
    {INFERENCE__DATA_TYPE__TYPE_UINT16, DTYPE_UINT16},
    {INFERENCE__DATA_TYPE__TYPE_UINT32, DTYPE_UINT32},
    {INFERENCE__DATA_TYPE__TYPE_UINT64, DTYPE_UINT64},
    {INFERENCE__DATA_TYPE__TYPE_INT8, DTYPE_INT8},
    {INFERENCE__DATA_TYPE__TYPE_INT16, DTYPE_INT16},
    {INFERENCE__DATA_TYPE__TYPE_INT32, DTYPE_INT32},
    {INFERENCE__DATA_TYPE__TYPE_INT64, DTYPE_INT64},
    {INFERENCE__DATA_TYPE__TYPE_FP16, DTYPE_FLOAT16},
    {INFERENCE__DATA_TYPE__TYPE_FP32, DTYPE_FLOAT},
    {INFERENCE__DATA_TYPE__TYPE_FP64, DTYPE_DOUBLE},
    {INFERENCE__DATA_TYPE__TYPE_STRING, DTYPE_STRING},
    {INFERENCE__DATA_TYPE__TYPE_BF16, DTYPE_BFLOAT16},
};

enum dtype dtype_from_config(Inference__DataType type)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (types[i].config == type)
            return types[i].dtype;
    return DTYPE_NONE;
}

static Inference__DataType dtype_to_config(enum dtype dtype)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (types[i].dtype == dtype)
            return types[i].config;
    return INFERENCE__DATA_TYPE__TYPE_INVALID;
}

/* ---- the ports of both sides alike ---- */

/* ModelInput and ModelOutput, as far as they are the same. */
struct port {
    const char *kind; /* "input" */
    char **name;
    Inference__DataType *type;
    size_t *dims_count;
    int64_t **dims;
};

static struct port input_port(Inference__ModelConfig *config, size_t index)
{
    Inference__ModelInput *input = config->input[index];

    return (struct port){"input", &input->name, &input->data_type, &input->n_dims, &input->dims};
}

static struct port output_port(Inference__ModelConfig *config, size_t index)
{
    Inference__ModelOutput *output = config->output[index];

    return (struct port){"output", &output->name, &output->data_type, &output->n_dims,
                         &output->dims};
}

static const struct network_port *find_port(const struct network_port *ports, size_t count,
                                            const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(ports[i].name, name) == 0)
            return &ports[i];
    return NULL;
}

static bool knows_shape(const struct network_port *port)
{
    return port->shape.rank > 0;
}

/* ---- comparing ---- */

static struct shape configured_shape(const struct port *port, bool batched)
{
    struct shape shape = {.rank = 0};

    if (batched)
        shape.dims[shape.rank++] = SHAPE_UNKNOWN;
    for (size_t i = 0; i < *port->dims_count && shape.rank < SHAPE_MAX_RANK; i++)
        shape.dims[shape.rank++] = (*port->dims)[i];
    return shape;
}

static bool dims_agree(const struct shape *configured, const struct shape *real)
{
    if (configured->rank != real->rank)
        return false;
    for (size_t i = 0; i < real->rank; i++)
        if (configured->dims[i] != SHAPE_UNKNOWN && real->dims[i] != SHAPE_UNKNOWN &&
            configured->dims[i] != real->dims[i])
            return false;
    return true;
}

static enum status check_batch_dim(const char *model, const struct port *port,
                                   const struct network_port *real, int32_t max_batch_size,
                                   struct error *err)
{
    char text[SHAPE_TEXT_BYTES];

    if (real->shape.rank >= 1 && real->shape.dims[0] == SHAPE_UNKNOWN)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "model '%s': %s '%s' has the shape %s, but with max_batch_size %" PRId32
                     " its first dimension must be open (-1)",
                     model, port->kind, real->name, shape_format(&real->shape, text),
                     max_batch_size);
}

static enum status check_dims(const char *model, const struct port *port,
                              const struct network_port *real, int32_t max_batch_size,
                              struct error *err)
{
    struct shape configured = configured_shape(port, max_batch_size > 0);
    char want[SHAPE_TEXT_BYTES], got[SHAPE_TEXT_BYTES];

    if (*port->dims_count + (max_batch_size > 0 ? 1 : 0) > SHAPE_MAX_RANK)
        return error_set(err, STATUS_UNSUPPORTED, "model '%s': %s '%s' has more than %d dimensions",
                         model, port->kind, *port->name, SHAPE_MAX_RANK);
    for (size_t i = 0; i < *port->dims_count; i++)
        if ((*port->dims)[i] < -1)
            return error_set(err, STATUS_INVALID,
                             "model '%s': %s '%s' has a dimension of %" PRId64
                             ", allowed are -1 and what is not negative",
                             model, port->kind, *port->name, (*port->dims)[i]);
    if (knows_shape(real) && !dims_agree(&configured, &real->shape))
        return error_set(
            err, STATUS_INVALID, "model '%s': %s '%s' is configured as %s%s, but the model has %s",
            model, port->kind, *port->name, shape_format(&configured, want),
            max_batch_size > 0 ? " (batch included)" : "", shape_format(&real->shape, got));
    return STATUS_OK;
}

static enum status check_port(const char *model, const struct port *port,
                              const struct network_port *real, int32_t max_batch_size,
                              struct error *err)
{
    if (dtype_from_config(*port->type) != real->dtype)
        return error_set(err, STATUS_INVALID,
                         "model '%s': %s '%s' is configured as %s, but the model has %s", model,
                         port->kind, *port->name,
                         protobuf_c_enum_descriptor_get_value(&inference__data_type__descriptor,
                                                              (int)*port->type)
                             ->name,
                         dtype_triton_name(real->dtype));
    /* What the file says of outputs can be wrong for a batch; the proof sees the real shapes. */
    if (max_batch_size > 0 && strcmp(port->kind, "input") == 0)
        TRY(check_batch_dim(model, port, real, max_batch_size, err));
    if (max_batch_size > 0 && strcmp(port->kind, "output") == 0 && knows_shape(real) &&
        real->shape.dims[0] != SHAPE_UNKNOWN)
        return STATUS_OK;
    return check_dims(model, port, real, max_batch_size, err);
}

/* ---- filling in ---- */

static enum status set_dims(const struct port *port, const struct network_port *real, bool batched)
{
    size_t skip = batched && real->shape.rank > 0 ? 1 : 0, count = real->shape.rank - skip;
    int64_t *dims = malloc((count == 0 ? 1 : count) * sizeof(*dims));

    if (dims == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        dims[i] = real->shape.dims[skip + i];
    free(*port->dims);
    *port->dims = dims;
    *port->dims_count = count;
    return STATUS_OK;
}

static enum status set_name(char **name, const char *text)
{
    char *copy = strdup(text);

    if (copy == NULL)
        return STATUS_NO_MEMORY;
    if (*name != protobuf_c_empty_string)
        free(*name);
    *name = copy;
    return STATUS_OK;
}

static enum status fill_port(const struct port *port, const struct network_port *real, bool batched)
{
    if (*port->name == NULL || (*port->name)[0] == '\0')
        TRY(set_name(port->name, real->name));
    if (*port->type == INFERENCE__DATA_TYPE__TYPE_INVALID)
        *port->type = dtype_to_config(real->dtype);
    if (*port->dims_count == 0)
        return set_dims(port, real, batched);
    /* Where the model is more precise than the configuration, say what holds. */
    for (size_t i = 0, skip = batched ? 1 : 0; i < *port->dims_count; i++)
        if ((*port->dims)[i] == -1 && *port->dims_count + skip == real->shape.rank)
            (*port->dims)[i] = real->shape.dims[skip + i];
    return STATUS_OK;
}

/* Adds an empty message to the repeated field of that name. */
static enum status add_port(Inference__ModelConfig *config, const char *field_name)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(
        &inference__model_config__descriptor, field_name);
    ProtobufCMessage *port = message_create(field->descriptor);

    if (port == NULL)
        return STATUS_NO_MEMORY;
    return message_put(&config->base, field, (union message_value){.message = port});
}

typedef struct port (*port_fn)(Inference__ModelConfig *config, size_t index);

struct side { /* inputs or outputs */
    const char *field;
    port_fn port;
    size_t *count;
    const struct network_port *real;
    size_t real_count;
};

/* Every configured port is in the model, and once; each of the model is configured. */
static enum status match_side(Inference__ModelConfig *config, const struct side *side,
                              const char *model, struct error *err)
{
    bool batched = config->max_batch_size > 0;
    bool added = *side->count == 0;

    for (size_t i = 0; added && i < side->real_count; i++) {
        TRY(add_port(config, side->field));
        struct port port = side->port(config, i);

        TRY(set_name(port.name, side->real[i].name));
    }
    for (size_t i = 0; i < *side->count; i++) {
        struct port port = side->port(config, i);
        const struct network_port *real = find_port(side->real, side->real_count, *port.name);

        if (real == NULL)
            return error_set(err, STATUS_INVALID, "model '%s': the model has no %s '%s'", model,
                             port.kind, *port.name);
        for (size_t j = 0; j < i; j++)
            if (strcmp(*side->port(config, j).name, *port.name) == 0)
                return error_set(err, STATUS_INVALID, "model '%s': %s '%s' is configured twice",
                                 model, port.kind, *port.name);
        TRY(fill_port(&port, real, batched));
        TRY(check_port(model, &port, real, config->max_batch_size, err));
    }
    return STATUS_OK;
}

static enum status check_inputs_complete(const Inference__ModelConfig *config,
                                         const struct side *inputs, const char *model,
                                         struct error *err)
{
    for (size_t i = 0; i < inputs->real_count; i++) {
        bool found = false;

        for (size_t j = 0; j < config->n_input && !found; j++)
            found = strcmp(config->input[j]->name, inputs->real[i].name) == 0;
        if (!found)
            return error_set(err, STATUS_INVALID,
                             "model '%s': input '%s' of the model is missing in the configuration",
                             model, inputs->real[i].name);
    }
    return STATUS_OK;
}

/* ---- deriving ---- */

/* The first port without an open dimension in front; NULL: there is none. */
static const struct network_port *find_closed(const struct network_port *ports, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ports[i].shape.rank == 0 || ports[i].shape.dims[0] != SHAPE_UNKNOWN)
            return &ports[i];
    return NULL;
}

/* Whether the configuration spells out the shape of a port, the batch in it. */
static bool spells_batch(Inference__ModelConfig *config, const struct side *side)
{
    for (size_t i = 0; i < *side->count; i++) {
        struct port port = side->port(config, i);
        const struct network_port *real = find_port(side->real, side->real_count, *port.name);

        if (real != NULL && *port.dims_count > 0 && *port.dims_count == real->shape.rank)
            return true;
    }
    return false;
}

static bool warm_up_spells_batch(const Inference__ModelConfig *config, const struct side *inputs)
{
    for (size_t i = 0; i < config->n_model_warmup; i++)
        for (size_t k = 0; k < config->model_warmup[i]->n_inputs; k++) {
            const Inference__ModelWarmup__InputsEntry *entry = config->model_warmup[i]->inputs[k];
            const struct network_port *real =
                find_port(inputs->real, inputs->real_count, entry->key);

            if (real != NULL && entry->value != NULL && entry->value->n_dims == real->shape.rank)
                return true;
        }
    return false;
}

/* Those that are preferred must be possible. */
static int32_t derived_rows(const Inference__ModelConfig *config)
{
    int32_t rows = DERIVED_MAX_BATCH_SIZE;

    for (size_t i = 0; model_config_asks_for_batching(config) &&
                       i < config->dynamic_batching->n_preferred_batch_size;
         i++)
        if (config->dynamic_batching->preferred_batch_size[i] > rows)
            rows = config->dynamic_batching->preferred_batch_size[i];
    return rows < MAX_BATCH_SIZE ? rows : MAX_BATCH_SIZE;
}

static enum status derive_batching(Inference__ModelConfig *config, const struct side *inputs,
                                   const struct side *outputs)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(
        &inference__model_config__descriptor, "dynamic_batching");
    ProtobufCMessage *batching;

    if (inputs->real_count == 0 || outputs->real_count == 0 ||
        find_closed(inputs->real, inputs->real_count) != NULL ||
        find_closed(outputs->real, outputs->real_count) != NULL || spells_batch(config, inputs) ||
        spells_batch(config, outputs) || warm_up_spells_batch(config, inputs))
        return STATUS_OK;
    config->max_batch_size = derived_rows(config);
    if (model_config_asks_for_batching(config))
        return STATUS_OK;
    batching = message_create(field->descriptor);
    if (batching == NULL)
        return STATUS_NO_MEMORY;
    return message_put(&config->base, field, (union message_value){.message = batching});
}

void model_config_explain_no_batch(const Inference__ModelConfig *config, bool batch_given,
                                   const struct network *network, char *text, size_t room)
{
    const struct network_port *in, *out, *closed;
    size_t inputs = network_inputs(network, &in), outputs = network_outputs(network, &out);

    if (batch_given) {
        (void)snprintf(text, room, "its configuration says max_batch_size: %" PRId32,
                       config->max_batch_size);
        return;
    }
    closed = find_closed(out, outputs);
    if (inputs == 0 || outputs == 0 || find_closed(in, inputs) != NULL)
        (void)snprintf(text, room, "the model has no batch dimension");
    else if (closed != NULL)
        (void)snprintf(text, room, "the first dimension of output '%.60s' is not open",
                       closed->name);
    else
        (void)snprintf(text, room,
                       "its configuration gives shapes with the batch in them, and no "
                       "max_batch_size");
}

static struct side side_of(Inference__ModelConfig *config, const struct network *network,
                           bool inputs)
{
    struct side side = {.field = inputs ? "input" : "output",
                        .port = inputs ? input_port : output_port,
                        .count = inputs ? &config->n_input : &config->n_output};

    side.real_count =
        inputs ? network_inputs(network, &side.real) : network_outputs(network, &side.real);
    return side;
}

static enum status complete(Inference__ModelConfig *config, bool batch_given, const char *model,
                            const struct network *network, struct error *err)
{
    struct side inputs = side_of(config, network, true);
    struct side outputs = side_of(config, network, false);

    if (config->name[0] == '\0')
        TRY(set_name(&config->name, model));
    if (config->platform[0] == '\0')
        TRY(set_name(&config->platform, "onnx_onnxv1"));
    if (config->backend[0] == '\0')
        TRY(set_name(&config->backend, "sluice"));
    if (!batch_given)
        TRY(derive_batching(config, &inputs, &outputs));
    TRY(match_side(config, &inputs, model, err));
    TRY(match_side(config, &outputs, model, err));
    return check_inputs_complete(config, &inputs, model, err);
}

enum status model_config_complete(Inference__ModelConfig *config, bool batch_given,
                                  const char *model, const struct network *network,
                                  struct error *err)
{
    enum status status = complete(config, batch_given, model, network, err);

    if (status == STATUS_NO_MEMORY)
        return error_set(err, status, "model '%s': no memory for its configuration", model);
    return status;
}

static enum status reset_dims(const struct side *side, Inference__ModelConfig *config)
{
    for (size_t i = 0; i < *side->count; i++) {
        struct port port = side->port(config, i);
        const struct network_port *real = find_port(side->real, side->real_count, *port.name);

        TRY(set_dims(&port, real, false));
    }
    return STATUS_OK;
}

enum status model_config_drop_batch(Inference__ModelConfig *config, const struct network *network,
                                    struct error *err)
{
    struct side inputs = side_of(config, network, true);
    struct side outputs = side_of(config, network, false);

    config->max_batch_size = 0;
    if (model_config_asks_for_batching(config) &&
        protobuf_c_message_get_packed_size(&config->dynamic_batching->base) == 0) {
        message_destroy(&config->dynamic_batching->base);
        config->dynamic_batching = NULL;
        config->scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE__NOT_SET;
    }
    if (reset_dims(&inputs, config) != STATUS_OK || reset_dims(&outputs, config) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory for its configuration",
                         config->name);
    return STATUS_OK;
}
