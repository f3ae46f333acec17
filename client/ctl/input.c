/* Inputs as the command line gives them, checked against what the server declares. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "number.h"
#include "proto/grpc_service.pb-c.h"

int fetch_inputs(struct ctl *ctl, const char *model, const char *version,
                 struct port_info **out_ports, size_t *out_count)
{
    Inference__ModelMetadataRequest request = INFERENCE__MODEL_METADATA_REQUEST__INIT;
    Inference__ModelMetadataResponse *reply;
    struct port_info *ports;
    char *texts;
    size_t text_bytes = 0;
    int exit_status;

    request.name = (char *)model;
    if (version != NULL)
        request.version = (char *)version;
    exit_status =
        ctl_call(ctl, "inference.GRPCInferenceService/ModelMetadata", &request.base,
                 &inference__model_metadata_response__descriptor, (ProtobufCMessage **)&reply);
    if (exit_status != EXIT_DONE)
        return exit_status;
    for (size_t i = 0; i < reply->n_inputs; i++)
        text_bytes += strlen(reply->inputs[i]->name) + strlen(reply->inputs[i]->datatype) + 2;
    ports = calloc(1, reply->n_inputs * sizeof(*ports) + text_bytes + 1);
    if (ports == NULL)
        abort();
    texts = (char *)(ports + reply->n_inputs);
    for (size_t i = 0; i < reply->n_inputs; i++) {
        ports[i].name = strcpy(texts, reply->inputs[i]->name);
        texts += strlen(texts) + 1;
        ports[i].datatype = strcpy(texts, reply->inputs[i]->datatype);
        texts += strlen(texts) + 1;
        for (size_t d = 0; d < reply->inputs[i]->n_shape && d < SLUICE_MAX_RANK; d++)
            ports[i].shape[ports[i].rank++] = reply->inputs[i]->shape[d];
    }
    *out_count = reply->n_inputs;
    *out_ports = ports;
    protobuf_c_message_free_unpacked((ProtobufCMessage *)reply, NULL);
    return EXIT_DONE;
}

static bool complain(const char *argument, const char *what)
{
    (void)fprintf(stderr, "sluicectl: input '%s': %s\n", argument, what);
    return false;
}

/* "1x3x224x224", or nothing: the declared shape with open dimensions as 1. */
static bool parse_dims(const char *text, const struct port_info *port, struct sluice_tensor *tensor)
{
    if (*text == '\0') {
        tensor->rank = port->rank;
        for (size_t i = 0; i < port->rank; i++)
            tensor->shape[i] = port->shape[i] < 0 ? 1 : port->shape[i];
        return true;
    }
    if (strcmp(text, "scalar") == 0)
        return true;
    for (;;) {
        char *end;

        if (tensor->rank == SLUICE_MAX_RANK)
            return false;
        errno = 0;
        tensor->shape[tensor->rank++] = strtoll(text, &end, 10);
        if (end == text || errno != 0 || tensor->shape[tensor->rank - 1] < 0)
            return false;
        if (*end == '\0')
            return true;
        if (*end != 'x')
            return false;
        text = end + 1;
    }
}

static bool allocate(struct sluice_tensor *tensor, void **out_bytes)
{
    uint64_t bytes = datatype_bytes(tensor->datatype);

    for (size_t i = 0; i < tensor->rank; i++)
        if (__builtin_mul_overflow(bytes, (uint64_t)tensor->shape[i], &bytes) || bytes > UINT64_C(1)
                                                                                             << 40)
            return false;
    *out_bytes = calloc(1, bytes + 8);
    tensor->data = *out_bytes;
    tensor->bytes = bytes;
    return *out_bytes != NULL;
}

/* xorshift64*: the same values on every run, so that runs compare. */
static double next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (double)(*state * UINT64_C(2685821657736338717) >> 11) * 0x1p-53;
}

static void fill(const struct sluice_tensor *tensor, void *bytes, const char *how)
{
    size_t count = tensor->bytes / datatype_bytes(tensor->datatype);
    bool is_float =
        strchr("FB", tensor->datatype[0]) != NULL && strcmp(tensor->datatype, "BOOL") != 0;
    double limit =
        strcmp(tensor->datatype, "BOOL") == 0 ? 2 : 100; /* small ids fit most vocabularies */
    uint64_t state = UINT64_C(0x9E3779B97F4A7C15);

    for (size_t i = 0; i < count; i++) {
        double value = how[0] == 'o' ? 1 : how[0] == 'z' ? 0 : next_random(&state);

        number_put(how[0] != 'r' || is_float ? value : floor(value * limit), tensor->datatype,
                   (char *)bytes + i * datatype_bytes(tensor->datatype));
    }
}

static bool make_text(const char *text, struct sluice_tensor *tensor, void **out_bytes)
{
    uint32_t length = (uint32_t)strlen(text);
    char *bytes = malloc(sizeof(length) + length);

    if (bytes == NULL)
        return false;
    memcpy(bytes, &length, sizeof(length));
    memcpy(bytes + sizeof(length), text, length);
    *out_bytes = bytes;
    tensor->data = bytes;
    tensor->bytes = sizeof(length) + length;
    return true;
}

/* `word` ends at a comma. */
static bool complain_of_number(const char *argument, const char *word, const char *datatype)
{
    (void)fprintf(stderr, "sluicectl: input '%s': '%.*s' is no %s%s\n", argument,
                  (int)strcspn(word, ","), word, datatype,
                  strcmp(datatype, "BOOL") == 0 ? ": 0 and 1 are" : "");
    return false;
}

/* "1,2.5,3": a row of numbers; the shape is the declared one with one open dimension fitted. */
static bool make_list(const char *argument, const char *text, const struct port_info *port,
                      struct sluice_tensor *tensor, void **out_bytes)
{
    int64_t count = 1, known = 1;
    size_t open = SIZE_MAX;

    if (strchr("0123456789+-.ni", *text) == NULL || datatype_bytes(tensor->datatype) == 0)
        return complain(argument, "a value is @file.npy, random:, zeros:, ones:, text: or numbers");
    for (const char *at = text; *at != '\0'; at++)
        count += *at == ',';
    tensor->rank = port->rank;
    for (size_t i = 0; i < port->rank; i++) {
        tensor->shape[i] = port->shape[i] < 0 ? 1 : port->shape[i];
        if (port->shape[i] < 0)
            open = i;
        known *= tensor->shape[i];
    }
    if (open != SIZE_MAX && known > 0 && count % known == 0)
        tensor->shape[open] = count / known;
    else if (count != known)
        return complain(argument, "the count of numbers does not fit the declared shape");
    if (!allocate(tensor, out_bytes))
        return complain(argument, "there is no memory for it");
    for (int64_t i = 0; i < count; i++) {
        char *at = (char *)*out_bytes + (size_t)i * datatype_bytes(tensor->datatype);
        const char *end;

        if (!number_read(text, tensor->datatype, at, &end) || (*end != ',' && *end != '\0'))
            return complain_of_number(argument, text, tensor->datatype);
        text = end + 1;
    }
    return true;
}

static bool read_file(const char *argument, const char *path, struct sluice_tensor *tensor,
                      void **out_bytes)
{
    struct npy npy;
    char why[256];

    if (!npy_read(path, &npy, why)) {
        (void)fprintf(stderr, "sluicectl: input '%s': %s: %s\n", argument, path, why);
        return false;
    }
    tensor->datatype = npy.datatype;
    tensor->rank = npy.rank;
    memcpy(tensor->shape, npy.shape, sizeof(npy.shape));
    tensor->data = *out_bytes = npy.bytes;
    tensor->bytes = npy.byte_count;
    return true;
}

static bool make_value(const char *argument, const char *value, const struct port_info *port,
                       struct sluice_tensor *tensor, void **out_bytes)
{
    static const char *const generators[] = {"random", "zeros", "ones"};

    if (value[0] == '@')
        return read_file(argument, value + 1, tensor, out_bytes);
    if (strncmp(value, "text:", 5) == 0) {
        if (strcmp(tensor->datatype, "BYTES") != 0)
            return complain(argument, "text: is for BYTES");
        (void)parse_dims("", port, tensor);
        return make_text(value + 5, tensor, out_bytes) ||
               complain(argument, "there is no memory for it");
    }
    for (size_t i = 0; i < 3; i++) {
        size_t length = strlen(generators[i]);

        if (strncmp(value, generators[i], length) != 0 ||
            (value[length] != ':' && value[length] != '\0'))
            continue;
        length += value[length] == ':' ? 1 : 0;
        if (datatype_bytes(tensor->datatype) == 0)
            return complain(argument, "BYTES take text: or nothing else");
        if (!parse_dims(value + length, port, tensor))
            return complain(argument, "a shape looks like 1x3x224x224");
        if (!allocate(tensor, out_bytes))
            return complain(argument, "there is no memory for that shape");
        fill(tensor, *out_bytes, generators[i]);
        return true;
    }
    return make_list(argument, value, port, tensor, out_bytes);
}

const struct port_info *input_port(const char *argument, const struct port_info *ports,
                                   size_t count)
{
    const char *equals = strchr(argument, '=');

    if (equals == NULL) {
        (void)complain(argument, "NAME=VALUE is what it should be");
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        if (strlen(ports[i].name) == (size_t)(equals - argument) &&
            memcmp(ports[i].name, argument, (size_t)(equals - argument)) == 0)
            return &ports[i];
    (void)fprintf(stderr, "sluicectl: input '%s': the model has no such input; it has:", argument);
    for (size_t i = 0; i < count; i++)
        (void)fprintf(stderr, "%s '%s'", i == 0 ? "" : ",", ports[i].name);
    (void)fputc('\n', stderr);
    return NULL;
}

bool input_parse(const char *argument, const struct port_info *ports, size_t count,
                 struct sluice_tensor *out_tensor, void **out_bytes)
{
    const struct port_info *port = input_port(argument, ports, count);
    struct sluice_tensor tensor;

    if (port == NULL)
        return false;
    tensor = (struct sluice_tensor){.name = port->name, .datatype = port->datatype};
    if (!make_value(argument, strchr(argument, '=') + 1, port, &tensor, out_bytes))
        return false;
    *out_tensor = tensor;
    return true;
}
