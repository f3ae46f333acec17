/* Data for probes.  Integers are 0 or 1, which are indices of nearly everything; texts are digits,
 * which parse as numbers where a model wants them to. */
#include <string.h>

#include "models/probe.h"
#include "tensor/element.h"

/* Between the seeds of rows and of inputs. */
#define ROW_STEP   UINT64_C(0x9E3779B97F4A7C15)
#define INPUT_STEP UINT64_C(0xD1B54A32D192ED03)

/* xorshift64*: small, and the same on every machine. */
static uint64_t next_random(uint64_t *random)
{
    *random ^= *random >> 12;
    *random ^= *random << 25;
    *random ^= *random >> 27;
    return *random * UINT64_C(0x2545F4914F6CDD1D);
}

static double next_number(uint64_t *random, double scale)
{
    return ((double)(next_random(random) >> 11) * 0x1p-53 * 2.0 - 1.0) * scale;
}

static enum status fill_text(struct arena *arena, struct bytes *to, size_t count,
                             enum sample_kind kind, uint64_t *random)
{
    for (size_t i = 0; i < count; i++) {
        char *text = arena_take(arena, 1);

        if (text == NULL)
            return STATUS_NO_MEMORY;
        *text = (char)('0' + next_random(random) % 10);
        to[i] = (struct bytes){.data = text, .size = kind == SAMPLE_ZERO ? 0 : 1};
    }
    return STATUS_OK;
}

static void put_integer(void *to, size_t index, size_t bytes, uint64_t value)
{
    /* Little-endian, and 0 or 1: the low bytes are the value. */
    memcpy((char *)to + index * bytes, &value, bytes);
}

static void fill_floats(float *to, size_t count, double scale, uint64_t *random)
{
    uint64_t state = *random;

    for (size_t i = 0; i < count; i++)
        to[i] = (float)next_number(&state, scale);
    *random = state;
}

enum status sample_fill(struct arena *arena, enum dtype dtype, void *to, size_t count,
                        enum sample_kind kind, double scale, uint64_t *random)
{
    size_t bytes = dtype_bytes(dtype);

    if (dtype == DTYPE_STRING)
        return fill_text(arena, to, count, kind, random);
    if (kind == SAMPLE_ZERO) {
        memset(to, 0, count * bytes);
        return STATUS_OK;
    }
    if (dtype == DTYPE_FLOAT) { /* images: a load would wait for element_write() */
        fill_floats(to, count, scale, random);
        return STATUS_OK;
    }
    for (size_t i = 0; i < count; i++) {
        double number = next_number(random, scale);

        if (dtype_is_float(dtype))
            element_write(dtype, to, i, number);
        else
            put_integer(to, i, bytes, next_random(random) >> 63);
    }
    return STATUS_OK;
}

static enum status fill_input(struct probe_data *data, struct request_input *in, enum dtype dtype,
                              const struct shape *shape, enum sample_kind kind, uint64_t seed)
{
    struct tensor tensor = {.dtype = dtype, .shape = *shape};
    size_t rows = shape->rank > 0 && shape->dims[0] > 0 ? (size_t)shape->dims[0] : 1;
    size_t count, row_count;
    void *block;
    char *to;
    int64_t elements;

    TRY(shape_elements(shape, &elements));
    count = (size_t)elements;
    row_count = count / rows;
    TRY(host_pool_take(data->pool, tensor_bytes(&tensor), &block));
    to = block;
    *in = (struct request_input){.shape = *shape, .data = to, .bytes = tensor_bytes(&tensor)};
    for (size_t row = 0; row < rows; row++) {
        uint64_t random = seed + row * ROW_STEP;

        TRY(sample_fill(&data->arena, dtype, to + row * row_count * dtype_bytes(dtype), row_count,
                        kind, row % 2 == 0 ? 1.0 : 3.0, &random));
    }
    return STATUS_OK;
}

enum status probe_data_make(struct probe_data *data, const struct probe *probe,
                            const struct shape *shapes, enum sample_kind kind, uint64_t seed)
{
    const struct network_port *ports;
    enum status status = STATUS_OK;

    *data = (struct probe_data){.pool = batcher_host_pool(probe->batcher),
                                .inputs = network_inputs(probe->network, &ports)};
    arena_init(&data->arena);
    data->in = arena_take_array(&data->arena, data->inputs, sizeof(*data->in));
    if (data->in == NULL)
        status = STATUS_NO_MEMORY;
    for (size_t i = 0; i < data->inputs && status == STATUS_OK; i++)
        status = fill_input(data, &data->in[i], ports[i].dtype, &shapes[i], kind,
                            (seed + i * INPUT_STEP) | 1);
    if (status != STATUS_OK)
        probe_data_deinit(data);
    return status;
}

enum status probe_data_row(struct probe_data *out_row, const struct probe_data *data, int64_t row)
{
    *out_row = (struct probe_data){.inputs = data->inputs};
    arena_init(&out_row->arena);
    out_row->in = arena_take_array(&out_row->arena, data->inputs, sizeof(*out_row->in));
    if (out_row->in == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < data->inputs; i++) {
        struct request_input *in = &out_row->in[i];

        *in = data->in[i];
        in->bytes /= (size_t)in->shape.dims[0];
        in->data = (const char *)data->in[i].data + in->bytes * (size_t)row;
        in->shape.dims[0] = 1;
    }
    return STATUS_OK;
}

void probe_data_deinit(struct probe_data *data)
{
    for (size_t i = 0; data->pool != NULL && data->in != NULL && i < data->inputs; i++)
        host_pool_give(data->pool, (void *)(uintptr_t)data->in[i].data, data->in[i].bytes);
    arena_deinit(&data->arena);
}
