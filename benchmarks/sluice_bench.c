/* sluice-bench MODEL.onnx THREADS BATCH SECONDS [--shape NAME:1x3x224x224] [--data NAME:FILE]
 *              [--profile] [--explain] [--device NAME] [--precision NAME] [--eager]
 *
 * The bare engine, no daemon: one JSON line with median_ms, min_ms, first_ms, peak_bytes,
 * lower_bound_bytes. An unknown first dimension is BATCH, other unknown ones are 1 unless --shape
 * says otherwise. Inputs are made up, or the bytes of a file. On a device with memory of its own a
 * round is copies in, the run, copies out;
 * --eager records nothing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "solo.h"

enum { MAX_SHAPES = 32, MAX_ROUNDS = 100000 };

struct given_shape {
    const char *name;
    size_t name_length;
    struct shape shape;
};

struct given_data {
    const char *name;
    size_t name_length;
    const char *path;
};

struct options {
    const char *model;
    const char *device;
    const char *precision;
    unsigned threads;
    bool eager;
    int64_t batch;
    double seconds;
    bool profile;
    bool explain;
    size_t shapes;
    struct given_shape shape[MAX_SHAPES];
    size_t files;
    struct given_data data[MAX_SHAPES];
};

static bool parse_shape(const char *text, struct given_shape *given)
{
    const char *colon = strrchr(text, ':');
    const char *at;

    if (colon == NULL)
        return false;
    given->name = text;
    given->name_length = (size_t)(colon - text);
    for (at = colon + 1; *at != '\0';) {
        char *end;
        long long dim = strtoll(at, &end, 10);

        if (end == at || dim < 0 || given->shape.rank == SHAPE_MAX_RANK)
            return false;
        given->shape.dims[given->shape.rank++] = dim;
        if (*end != '\0' && *end != 'x' && *end != ',')
            return false;
        at = *end == '\0' ? end : end + 1;
    }
    return true;
}

static bool parse_data(const char *text, struct given_data *given)
{
    const char *colon = strchr(text, ':');

    if (colon == NULL)
        return false;
    *given = (struct given_data){text, (size_t)(colon - text), colon + 1};
    return true;
}

static bool parse_options(int count, char **words, struct options *options)
{
    int place = 0;

    options->device = "cpu";
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--profile") == 0) {
            options->profile = true;
        } else if (strcmp(words[i], "--explain") == 0) {
            options->explain = true;
        } else if (strcmp(words[i], "--eager") == 0) {
            options->eager = true;
        } else if (strcmp(words[i], "--device") == 0 && i + 1 < count) {
            options->device = words[++i];
        } else if (strcmp(words[i], "--precision") == 0 && i + 1 < count) {
            options->precision = words[++i];
        } else if (strcmp(words[i], "--shape") == 0 && i + 1 < count) {
            if (options->shapes == MAX_SHAPES ||
                !parse_shape(words[++i], &options->shape[options->shapes++]))
                return false;
        } else if (strcmp(words[i], "--data") == 0 && i + 1 < count) {
            if (options->files == MAX_SHAPES ||
                !parse_data(words[++i], &options->data[options->files++]))
                return false;
        } else {
            switch (place++) {
            case 0:
                options->model = words[i];
                break;
            case 1:
                options->threads = (unsigned)strtoul(words[i], NULL, 10);
                break;
            case 2:
                options->batch = strtoll(words[i], NULL, 10);
                break;
            case 3:
                options->seconds = strtod(words[i], NULL);
                break;
            default:
                return false;
            }
        }
    }
    return place == 4 && options->threads > 0 && options->batch > 0;
}

static bool is_named(const char *name, size_t length, const struct network_port *port)
{
    return strlen(port->name) == length && strncmp(port->name, name, length) == 0;
}

static struct shape input_shape(const struct options *options, const struct network_port *port)
{
    struct shape shape = port->shape;

    for (size_t i = 0; i < options->shapes; i++)
        if (is_named(options->shape[i].name, options->shape[i].name_length, port))
            return options->shape[i].shape;
    for (size_t i = 0; i < shape.rank; i++)
        if (shape.dims[i] < 0)
            shape.dims[i] = i == 0 ? options->batch : 1;
    return shape;
}

/* Plausible elements: floats in [0, 1), integers below 100 for ids, masks of ones. */
static void fill(enum dtype dtype, size_t elements, void *data)
{
    uint32_t rng = 2463534242U;

    for (size_t i = 0; i < elements; i++) {
        float value;

        rng ^= rng << 13;
        rng ^= rng >> 17;
        rng ^= rng << 5;
        value = (float)(rng >> 8) / 16777216.0F;
        switch (dtype) {
        case DTYPE_FLOAT:
            ((float *)data)[i] = value;
            break;
        case DTYPE_DOUBLE:
            ((double *)data)[i] = value;
            break;
        case DTYPE_FLOAT16:
            ((uint16_t *)data)[i] = half_from_float(value);
            break;
        case DTYPE_BFLOAT16:
            ((uint16_t *)data)[i] = bfloat16_from_float(value);
            break;
        case DTYPE_INT64:
        case DTYPE_UINT64:
            ((int64_t *)data)[i] = rng % 2;
            break;
        case DTYPE_INT32:
        case DTYPE_UINT32:
            ((int32_t *)data)[i] = (int32_t)(rng % 2);
            break;
        case DTYPE_STRING:
            ((struct bytes *)data)[i] = (struct bytes){"a", 1};
            break;
        case DTYPE_BOOL:
            ((bool *)data)[i] = true;
            break;
        default:
            memset((char *)data + i * dtype_bytes(dtype), (int)(rng % 100), dtype_bytes(dtype));
            break;
        }
    }
}

/* The bytes of the file given for this input, or plausible ones. */
static enum status fill_input(const struct options *options, const struct network_port *port,
                              size_t elements, void *data, struct error *err)
{
    size_t bytes = elements * dtype_bytes(port->dtype), got;
    FILE *file;

    for (size_t i = 0; i < options->files; i++) {
        if (!is_named(options->data[i].name, options->data[i].name_length, port))
            continue;
        file = fopen(options->data[i].path, "rb");
        if (file == NULL)
            return error_set(err, STATUS_NOT_FOUND, "no file %s", options->data[i].path);
        got = fread(data, 1, bytes + 1, file); /* there is room for one more */
        (void)fclose(file);
        if (got != bytes)
            return error_set(err, STATUS_INVALID, "input '%s' takes %zu bytes, %s has %s",
                             port->name, bytes, options->data[i].path,
                             got < bytes ? "less" : "more");
        return STATUS_OK;
    }
    fill(port->dtype, elements, data);
    return STATUS_OK;
}

static enum status make_inputs(const struct options *options, const struct network_port *ports,
                               size_t count, struct tensor *tensors, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        int64_t elements;
        void *data;

        tensors[i].dtype = ports[i].dtype;
        tensors[i].shape = input_shape(options, &ports[i]);
        if (shape_elements(&tensors[i].shape, &elements) != STATUS_OK)
            return error_set(err, STATUS_INVALID, "input '%s': impossible shape", ports[i].name);
        data = malloc((size_t)elements * dtype_bytes(ports[i].dtype) + 1);
        if (data == NULL)
            return error_set(err, STATUS_NO_MEMORY, "no memory for input '%s'", ports[i].name);
        tensors[i].data = data;
        TRY(fill_input(options, &ports[i], (size_t)elements, data, err));
    }
    return STATUS_OK;
}

static int by_time(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

/* The block of an output whose size only a run can tell. */
struct placed {
    void *data;
    size_t bytes;
};

/* Kept from round to round, as the daemon's pool keeps what answers lie in: fresh memory would cost
 * a page fault for every 4 KiB of each round. */
static void *place(void *arg, size_t output, const struct shape *shape, size_t bytes)
{
    struct placed *placed = (struct placed *)arg + output;

    (void)shape;
    if (placed->data == NULL || placed->bytes < bytes) {
        free(placed->data);
        *placed = (struct placed){malloc(bytes > 0 ? bytes : 1), bytes};
    }
    return placed->data;
}

struct bench {
    const struct options *options;
    struct solo *solo;
    struct plan *plan;
    struct run run;
    struct run_buffer *bound; /* as bound first: place may change run.out */
    struct solo_room room;    /* of a device with memory of its own */
    struct tensor *in_host;
    void **out_host; /* what is copied out */
    int64_t *times_ns;
    int64_t first_ns; /* of the very first round */
    size_t rounds;
    int64_t cpu_ns; /* of all threads, over all rounds */
};

static enum status copy_in(struct bench *bench)
{
    struct device_lane *lane = bench->solo->lane;

    for (size_t i = 0; i < bench->run.inputs; i++)
        TRY(lane->device->ops->copy_in(lane, bench->run.in[i].data, bench->in_host[i].data,
                                       bench->run.in[i].bytes));
    return STATUS_OK;
}

static enum status copy_out(struct bench *bench)
{
    struct device_lane *lane = bench->solo->lane;

    for (size_t i = 0; i < bench->run.outputs; i++)
        TRY(lane->device->ops->copy_out(lane, bench->out_host[i], bench->run.out[i].data,
                                        bench->run.out[i].bytes));
    return lane->device->ops->lane_wait(lane);
}

static enum status round_once(struct bench *bench, int64_t *out_ns, struct error *err)
{
    bool copies = !solo_has_host_memory(bench->solo);
    int64_t start = clock_now_ns();

    if (copies)
        TRY(copy_in(bench));
    memcpy(bench->run.out, bench->bound, bench->run.outputs * sizeof(*bench->bound));
    TRY(plan_run(bench->plan, &bench->run, err));
    if (copies)
        TRY(copy_out(bench));
    *out_ns = clock_now_ns() - start;
    return STATUS_OK;
}

static int64_t cpu_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static enum status measure(struct bench *bench, struct error *err)
{
    int64_t end = clock_now_ns() + (int64_t)(bench->options->seconds * 1e9), ignored;

    bench->solo->lane->device->ops->lane_enter(bench->solo->lane);
    TRY(round_once(bench, &bench->first_ns, err));
    device_settle(bench->solo->lane->device);
    for (int i = 0; i < 2; i++)
        TRY(round_once(bench, &ignored, err)); /* warm: pages, threads, a recording */
    bench->cpu_ns = cpu_now_ns();
    while (bench->rounds < MAX_ROUNDS && (bench->rounds < 5 || clock_now_ns() < end)) {
        TRY(round_once(bench, &bench->times_ns[bench->rounds], err));
        bench->rounds++;
    }
    bench->cpu_ns = cpu_now_ns() - bench->cpu_ns;
    qsort(bench->times_ns, bench->rounds, sizeof(*bench->times_ns), by_time);
    return STATUS_OK;
}

static void report(const struct bench *bench)
{
    struct plan_facts facts;
    double median = (double)bench->times_ns[bench->rounds / 2] / 1e6;

    plan_read(bench->plan, &facts);
    if (bench->options->explain)
        plan_explain(bench->plan, stderr, false);
    if (bench->options->profile)
        profile_write(bench->run.profile, stderr, false);
    printf("{\"median_ms\": %.4f, \"min_ms\": %.4f, \"first_ms\": %.4f, \"cpu_ms\": %.4f, "
           "\"peak_bytes\": %" PRIu64 ", \"lower_bound_bytes\": %" PRIu64
           ", \"rounds\": %zu, \"steps\": %u, \"resident_bytes\": %zu}\n",
           median, (double)bench->times_ns[0] / 1e6, (double)bench->first_ns / 1e6,
           (double)bench->cpu_ns / 1e6 / (double)bench->rounds, facts.peak_bytes,
           facts.lower_bound_bytes, bench->rounds, facts.steps,
           network_resident_bytes(bench->solo->network));
}

/* Room on the device for what lies on the host. */
static enum status bind_inputs(struct bench *bench, struct run_buffer *in, size_t inputs,
                               struct error *err)
{
    for (size_t i = 0; i < inputs; i++) {
        const struct tensor *tensor = &bench->in_host[i];

        in[i] = (struct run_buffer){(void *)(uintptr_t)tensor->data, tensor_bytes(tensor)};
        if (solo_has_host_memory(bench->solo))
            continue;
        in[i].data = solo_take(&bench->room, in[i].bytes);
        if (in[i].data == NULL)
            return error_set(err, STATUS_NO_MEMORY, "no memory for input %zu", i);
    }
    return STATUS_OK;
}

static enum status bind_outputs(struct bench *bench, size_t outputs,
                                const struct network_port *ports, struct error *err)
{
    bool host = solo_has_host_memory(bench->solo);
    const bool *bound;
    const struct shape *shapes = plan_output_shapes(bench->plan, &bound);

    bench->out_host = calloc(outputs + 1, sizeof(*bench->out_host));
    if (bench->out_host == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory");
    for (size_t i = 0; i < outputs; i++) {
        struct run_buffer *buffer = &bench->bound[i];

        if (bound[i] && !host)
            return error_set(err, STATUS_UNSUPPORTED,
                             "output %zu has a shape that depends on data: not measured on a "
                             "device with memory of its own",
                             i);
        buffer->bytes =
            bound[i] ? RUN_PLACE : (size_t)shape_count(&shapes[i]) * dtype_bytes(ports[i].dtype);
        if (bound[i])
            continue;
        bench->out_host[i] = aligned_alloc(64, (buffer->bytes + 64) & ~(size_t)63);
        buffer->data = host ? bench->out_host[i] : solo_take(&bench->room, buffer->bytes);
        if (buffer->data == NULL || bench->out_host[i] == NULL)
            return error_set(err, STATUS_NO_MEMORY, "no memory for output %zu", i);
    }
    return STATUS_OK;
}

static enum status run_bench(struct bench *bench, struct error *err)
{
    const struct network_port *in_ports, *out_ports;
    struct solo *solo = bench->solo;
    size_t inputs = network_inputs(solo->network, &in_ports);
    size_t outputs = network_outputs(solo->network, &out_ports);
    struct tensor *tensors = calloc(inputs + 1, sizeof(*tensors));
    struct run_buffer *in = calloc(inputs + 1, sizeof(*in));
    struct run_buffer *out = calloc(outputs + 1, sizeof(*out));
    struct shape *shapes = calloc(inputs + outputs + 1, sizeof(*shapes));
    struct placed *placed = calloc(outputs + 1, sizeof(*placed));
    struct plan_facts facts;

    bench->bound = calloc(outputs + 1, sizeof(*bench->bound));
    bench->times_ns = calloc(MAX_ROUNDS, sizeof(*bench->times_ns));
    if (tensors == NULL || in == NULL || out == NULL || shapes == NULL || placed == NULL ||
        bench->bound == NULL || bench->times_ns == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory");
    bench->in_host = tensors;
    bench->room.solo = solo;
    TRY(make_inputs(bench->options, in_ports, inputs, tensors, err));
    TRY(bind_inputs(bench, in, inputs, err));
    for (size_t i = 0; i < inputs; i++)
        shapes[i] = tensors[i].shape;
    TRY(network_plan(solo->network, shapes, &bench->plan, err));
    TRY(bind_outputs(bench, outputs, out_ports, err));
    plan_read(bench->plan, &facts);
    bench->run = (struct run){.lane = solo->lane,
                              .arena = solo->arena,
                              .inputs = inputs,
                              .in = in,
                              .outputs = outputs,
                              .out = out,
                              .out_shapes = shapes + inputs,
                              .place = place,
                              .place_arg = placed,
                              .profile = bench->options->profile ? profile_create() : NULL};
    if (bench->options->profile && bench->run.profile == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory");
    return measure(bench, err);
}

int main(int count, char **words)
{
    struct options options = {0};
    struct solo solo = {0};
    struct bench bench = {.options = &options, .solo = &solo};
    struct error err = {0};
    enum status status;

    if (!parse_options(count, words, &options)) {
        fprintf(stderr, "usage: sluice-bench MODEL.onnx THREADS BATCH SECONDS "
                        "[--shape NAME:1x3x224x224]… [--data NAME:FILE]… [--profile] [--explain] "
                        "[--device NAME] [--precision NAME] [--eager]\n");
        return 2;
    }
    status = solo_open_as(&(struct solo_config){.device = options.device,
                                                .threads = options.threads,
                                                .precision = options.precision,
                                                .eager = options.eager},
                          &solo, &err);
    if (status == STATUS_OK)
        status = solo_load(&solo, options.model, &err);
    if (status == STATUS_OK)
        status = run_bench(&bench, &err);
    if (status != STATUS_OK) {
        fprintf(stderr, "sluice-bench: %s: %s\n", options.model,
                err.text[0] != '\0' ? err.text : status_words(status));
        return 1;
    }
    report(&bench); /* memory of one measurement goes with the process */
    return 0;
}
