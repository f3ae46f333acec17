#include "support/op_tester.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "device/weights.h"

enum { TEAMS = 2, SEVERAL_THREADS = 3, ATTRS_MAX_BYTES = 1024 };

/* Memory of a device whose addresses are not the host's: blocks of one run, one after the other.
 * Behind each lies a zone that nobody may write. */
enum { ROOM_APART = 64 };
struct device_room {
    char *base;
    size_t committed_bytes;
    size_t used_bytes;
    /* Ranges that cannot grow (mem_source.moves): one a block, of its very size, so that whoever
     * watches over the device's memory (tests/sim/bodies) knows where it ends. */
    struct {
        void *base;
        size_t bytes;
    } apart[ROOM_APART];
    size_t apart_count;
};
enum { ROOM_BYTES = 1 << 28, ROOM_ALIGNMENT = 256, ROOM_ZONE = 256, ZONE_BYTE = 0xA5 };

struct op_tester {
    struct device *devices[TEAMS]; /* with one thread, with several */
    struct device_lane *lanes[TEAMS];
    struct string_heap *strings;
    struct weights_cache *weights;
    struct error error;
    unsigned teams;          /* a device that computes elsewhere has one */
    struct device_room room; /* of such a device */
    unsigned kernel_runs, left_to_host;
    unsigned every; /* of so many tests one is run: OP_TEST_EVERY, where all would take too long */
    unsigned asked, passed_over;
};

/* One test being run: operands of the plan, their PLAIN data, and what must come out. */
struct trial {
    struct op_tester *tester;
    const struct op_test *test;
    const struct op_def *op;
    const void *attrs;
    size_t outputs;
    struct tensor in[OP_TEST_OPERANDS]; /* owned data, NULL when left out */
    struct tensor out[OP_TEST_OPERANDS];
    struct tensor expected[OP_TEST_OPERANDS];
    uint64_t seed;
    const struct kernel *kernel;
    enum layout layout;
    enum layout in_layout;  /* of in[0] */
    enum layout out_layout; /* of out[0] */
};

static uint64_t random_state;

static uint64_t next_random(void)
{
    if (random_state == 0) {
        const char *seed = getenv("OP_TEST_SEED");
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        random_state = seed != NULL ? strtoull(seed, NULL, 0)
                                    : (uint64_t)now.tv_sec * 1000003 + (uint64_t)now.tv_nsec;
        random_state |= random_state == 0;
    }
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

double test_random(double low, double high)
{
    return low + (high - low) * ((double)(next_random() >> 11) * 0x1p-53);
}

int64_t test_random_int(int64_t low, int64_t high)
{
    return low + (int64_t)(next_random() % (uint64_t)(high - low + 1));
}

struct shape test_random_shape(size_t rank, int64_t low, int64_t high)
{
    struct shape shape = {.rank = rank};

    for (size_t i = 0; i < rank; i++)
        shape.dims[i] = test_random_int(low, high);
    return shape;
}

double test_get(enum dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case DTYPE_FLOAT:
        return (double)((const float *)data)[i];
    case DTYPE_DOUBLE:
        return ((const double *)data)[i];
    case DTYPE_FLOAT16:
        return (double)float_from_half(((const uint16_t *)data)[i]);
    case DTYPE_BFLOAT16:
        return (double)float_from_bfloat16(((const uint16_t *)data)[i]);
    case DTYPE_INT8:
        return ((const int8_t *)data)[i];
    case DTYPE_UINT8:
    case DTYPE_BOOL:
        return ((const uint8_t *)data)[i];
    case DTYPE_INT16:
        return ((const int16_t *)data)[i];
    case DTYPE_UINT16:
        return ((const uint16_t *)data)[i];
    case DTYPE_INT32:
        return ((const int32_t *)data)[i];
    case DTYPE_UINT32:
        return ((const uint32_t *)data)[i];
    case DTYPE_INT64:
        return (double)((const int64_t *)data)[i];
    case DTYPE_UINT64:
        return (double)((const uint64_t *)data)[i];
    case DTYPE_NONE:
    case DTYPE_STRING:
    case DTYPE_COUNT:
        break;
    }
    fail_msg("no number in an element of type %s", dtype_name(dtype));
    return 0;
}

static double clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

void test_put(enum dtype dtype, void *data, int64_t i, double value)
{
    switch (dtype) {
    case DTYPE_FLOAT:
        ((float *)data)[i] = (float)value;
        break;
    case DTYPE_DOUBLE:
        ((double *)data)[i] = value;
        break;
    case DTYPE_FLOAT16:
        ((uint16_t *)data)[i] = half_from_float((float)value);
        break;
    case DTYPE_BFLOAT16:
        ((uint16_t *)data)[i] = bfloat16_from_float((float)value);
        break;
    case DTYPE_INT8:
        ((int8_t *)data)[i] = (int8_t)clamp(value, -128, 127);
        break;
    case DTYPE_UINT8:
        ((uint8_t *)data)[i] = (uint8_t)clamp(value, 0, 255);
        break;
    case DTYPE_BOOL:
        ((uint8_t *)data)[i] = value != 0;
        break;
    case DTYPE_INT16:
        ((int16_t *)data)[i] = (int16_t)clamp(value, -32768, 32767);
        break;
    case DTYPE_UINT16:
        ((uint16_t *)data)[i] = (uint16_t)clamp(value, 0, 65535);
        break;
    case DTYPE_INT32:
        ((int32_t *)data)[i] = (int32_t)clamp(value, INT32_MIN, INT32_MAX);
        break;
    case DTYPE_UINT32:
        ((uint32_t *)data)[i] = (uint32_t)clamp(value, 0, UINT32_MAX);
        break;
    case DTYPE_INT64:
        ((int64_t *)data)[i] = (int64_t)clamp(value, -0x1p62, 0x1p62);
        break;
    case DTYPE_UINT64:
        ((uint64_t *)data)[i] = (uint64_t)clamp(value, 0, 0x1p63);
        break;
    case DTYPE_NONE:
    case DTYPE_STRING:
    case DTYPE_COUNT:
        fail_msg("no number fits an element of type %s", dtype_name(dtype));
    }
}

static void *take(size_t bytes)
{
    size_t whole = (bytes + 63) / 64 * 64;
    void *data = aligned_alloc(64, whole > 0 ? whole : 64);

    assert_non_null(data);
    memset(data, 0, whole > 0 ? whole : 64);
    return data;
}

/* ---- memory of the device ---- */

static void room_open(struct op_tester *tester)
{
    struct mem_source *source = tester->devices[0]->memory;
    void *base = NULL;

    if (!source->moves && source->ops->reserve(source, ROOM_BYTES, &base) != STATUS_OK)
        fail_msg("no addresses on the device");
    tester->room = (struct device_room){.base = base};
}

static void room_close(struct op_tester *tester)
{
    struct mem_source *source = tester->devices[0]->memory;

    if (!source->moves)
        source->ops->release(source, tester->room.base, ROOM_BYTES);
}

/* Everything of a run goes: the next one finds memory that nobody has written. */
static void room_clear(struct op_tester *tester)
{
    struct mem_source *source = tester->devices[0]->memory;
    struct device_room *room = &tester->room;

    if (room->committed_bytes > 0)
        source->ops->decommit(source, room->base, room->committed_bytes);
    for (size_t i = 0; i < room->apart_count; i++)
        source->ops->release(source, room->apart[i].base, room->apart[i].bytes);
    room->committed_bytes = room->used_bytes = room->apart_count = 0;
}

static void *take_apart(struct op_tester *tester, size_t bytes, const void *from)
{
    struct mem_source *source = tester->devices[0]->memory;
    struct device_room *room = &tester->room;
    void *block = NULL;

    bytes = bytes > 0 ? bytes : 1;
    if (room->apart_count == ROOM_APART || source->ops->reserve(source, bytes, &block) != STATUS_OK)
        fail_msg("no memory on the device");
    room->apart[room->apart_count].base = block;
    room->apart[room->apart_count++].bytes = bytes;
    if (from != NULL)
        assert_int_equal(tester->devices[0]->ops->copy_in(tester->lanes[0], block, from, bytes),
                         STATUS_OK);
    return block;
}

/* A block of the device, filled from `from` unless that is NULL. */
static void *room_take(struct op_tester *tester, size_t bytes, const void *from)
{
    struct mem_source *source = tester->devices[0]->memory;
    struct device_room *room = &tester->room;
    char zone[ROOM_ZONE], *block = room->base + room->used_bytes;
    size_t after = room->used_bytes + bytes + ROOM_ZONE;
    size_t wanted = (after + source->page_bytes - 1) / source->page_bytes * source->page_bytes;

    if (source->moves)
        return take_apart(tester, bytes, from);
    memset(zone, ZONE_BYTE, sizeof(zone));
    if (wanted > ROOM_BYTES || (wanted > room->committed_bytes &&
                                source->ops->commit(source, room->base + room->committed_bytes,
                                                    wanted - room->committed_bytes) != STATUS_OK))
        fail_msg("no memory on the device");
    room->committed_bytes = wanted > room->committed_bytes ? wanted : room->committed_bytes;
    room->used_bytes = (after + ROOM_ALIGNMENT - 1) / ROOM_ALIGNMENT * ROOM_ALIGNMENT;
    if (from != NULL && bytes > 0)
        assert_int_equal(tester->devices[0]->ops->copy_in(tester->lanes[0], block, from, bytes),
                         STATUS_OK);
    assert_int_equal(
        tester->devices[0]->ops->copy_in(tester->lanes[0], block + bytes, zone, sizeof(zone)),
        STATUS_OK);
    return block;
}

/* Copies a block back; whether the zone behind it is as it was. */
static bool room_fetch(struct op_tester *tester, const void *block, size_t bytes, void *to)
{
    const struct device_ops *ops = tester->devices[0]->ops;
    unsigned char zone[ROOM_ZONE];

    if (bytes > 0)
        assert_int_equal(ops->copy_out(tester->lanes[0], to, block, bytes), STATUS_OK);
    if (tester->devices[0]->memory->moves)
        return ops->lane_wait(tester->lanes[0]) == STATUS_OK;
    assert_int_equal(
        ops->copy_out(tester->lanes[0], zone, (const char *)block + bytes, sizeof(zone)),
        STATUS_OK);
    assert_int_equal(ops->lane_wait(tester->lanes[0]), STATUS_OK);
    for (size_t i = 0; i < sizeof(zone); i++)
        if (zone[i] != ZONE_BYTE)
            return false;
    return true;
}

/* ---- the tester ---- */

struct op_tester *op_tester_create(const char *device)
{
    struct op_tester *tester = calloc(1, sizeof(*tester));
    const char *every = getenv("OP_TEST_EVERY");

    assert_non_null(tester);
    tester->every = every != NULL && atoi(every) > 0 ? (unsigned)atoi(every) : 1;
    tester->strings = string_heap_create();
    tester->teams = 1;
    for (unsigned i = 0; i < tester->teams; i++) {
        struct device_config config = {.name = device, .lanes = 1, .precision = "default"};

        config.threads = i == 0 ? 1 : SEVERAL_THREADS;
        if (device_open(&config, &tester->devices[i], &tester->error) != STATUS_OK ||
            tester->devices[i]->ops->lane_open(tester->devices[i], 0, &tester->lanes[i]) !=
                STATUS_OK)
            fail_msg("device %s: %s", device, tester->error.text);
        if (tester->devices[0]->ops->host_memory)
            tester->teams = TEAMS;
    }
    if (tester->teams == 1)
        room_open(tester);
    return tester;
}

void op_tester_destroy(struct op_tester *tester)
{
    if (tester->every > 1)
        print_message("%u of %u tests passed over\n", tester->passed_over, tester->asked);
    if (tester->teams == 1) {
        print_message("%u runs of kernels, %u operators left to the host\n", tester->kernel_runs,
                      tester->left_to_host);
        room_close(tester);
    }
    for (unsigned i = 0; i < tester->teams; i++) {
        tester->devices[i]->ops->lane_close(tester->lanes[i]);
        device_close(tester->devices[i]);
    }
    string_heap_destroy(tester->strings);
    free(tester);
}

/* ---- layouts ---- */

static bool is_activation(const struct shape *shape, bool constant)
{
    return !constant && shape->rank >= 3 && shape->rank <= 5;
}

static size_t packed_elements(enum layout layout, unsigned block, const struct shape *shape)
{
    if (layout != LAYOUT_BLOCKED)
        return (size_t)shape_count(shape);
    return (size_t)(shape->dims[0] * ((shape->dims[1] + block - 1) / block * block) *
                    shape_product(shape, 2, shape->rank));
}

/* Where element (n, c, s) of a tensor lies, s counting the spatial positions row-major. */
static int64_t packed_index(enum layout layout, unsigned block, const struct shape *shape,
                            int64_t n, int64_t c, int64_t s)
{
    int64_t channels = shape->dims[1], places = shape_product(shape, 2, shape->rank);

    if (layout == LAYOUT_NHWC)
        return (n * places + s) * channels + c;
    if (layout == LAYOUT_BLOCKED)
        return ((n * ((channels + block - 1) / block) + c / block) * places + s) * block +
               c % block;
    return (n * channels + c) * places + s;
}

static void repack(enum layout layout, unsigned block, const struct tensor *tensor, void *packed,
                   bool unpack)
{
    const struct shape *shape = &tensor->shape;
    size_t size = dtype_bytes(tensor->dtype);
    int64_t places = shape_product(shape, 2, shape->rank);
    char *plain = (char *)(uintptr_t)tensor->data, *other = packed;

    for (int64_t n = 0; n < shape->dims[0]; n++)
        for (int64_t c = 0; c < shape->dims[1]; c++)
            for (int64_t s = 0; s < places; s++) {
                char *a = plain + (size_t)((n * shape->dims[1] + c) * places + s) * size;
                char *b = other + (size_t)packed_index(layout, block, shape, n, c, s) * size;

                memcpy(unpack ? a : b, unpack ? b : a, size);
            }
}

static bool padding_is_zero(unsigned block, const struct tensor *tensor, const void *packed)
{
    const struct shape *shape = &tensor->shape;
    size_t size = dtype_bytes(tensor->dtype);
    int64_t places = shape_product(shape, 2, shape->rank);
    int64_t whole = (shape->dims[1] + block - 1) / block * block;

    for (int64_t n = 0; n < shape->dims[0]; n++)
        for (int64_t c = shape->dims[1]; c < whole; c++)
            for (int64_t s = 0; s < places; s++) {
                int64_t at = packed_index(LAYOUT_BLOCKED, block, shape, n, c, s);
                const char *element = (const char *)packed + (size_t)at * size;

                for (size_t i = 0; i < size; i++)
                    if (element[i] != 0)
                        return false;
            }
    return true;
}

/* ---- one run of one kernel ---- */

enum way { APART, IN_PLACE };

/* Operands as the kernel sees them; packed copies of activations, plain data of the others. */
struct stage {
    struct operand operands[2 * OP_TEST_OPERANDS];
    const struct operand *in[OP_TEST_OPERANDS];
    const struct operand *out[OP_TEST_OPERANDS];
    void *in_data[OP_TEST_OPERANDS]; /* owned */
    void *out_data[OP_TEST_OPERANDS];
    size_t in_bytes[OP_TEST_OPERANDS];
    size_t out_bytes[OP_TEST_OPERANDS];
    struct shape out_shapes[OP_TEST_OPERANDS];
    struct kernel_call call;
};

static enum layout layout_of(enum layout layout, const struct shape *shape, bool constant)
{
    return is_activation(shape, constant) ? layout : LAYOUT_PLAIN;
}

static void stage_init(struct stage *stage, const struct trial *trial, int team)
{
    unsigned block = trial->tester->devices[team]->channel_block;

    memset(stage, 0, sizeof(*stage));
    for (size_t i = 0; i < trial->test->inputs; i++) {
        const struct tensor *tensor = &trial->in[i];
        struct operand *operand = &stage->operands[i];
        bool constant = trial->test->in[i].constant;

        if (tensor->dtype == DTYPE_NONE)
            continue;
        stage->in[i] = operand;
        *operand = (struct operand){.dtype = tensor->dtype,
                                    .shape = tensor->shape,
                                    .layout = layout_of(i == 0 ? trial->in_layout : trial->layout,
                                                        &tensor->shape, constant),
                                    .constant = constant ? tensor->data : NULL,
                                    .constant_key = constant ? (void *)(uintptr_t)tensor : NULL};
        stage->in_bytes[i] =
            packed_elements(operand->layout, block, &tensor->shape) * dtype_bytes(tensor->dtype);
        stage->in_data[i] = take(stage->in_bytes[i]);
        if (operand->layout == LAYOUT_PLAIN)
            memcpy(stage->in_data[i], tensor->data, tensor_bytes(tensor));
        else
            repack(operand->layout, block, tensor, stage->in_data[i], false);
    }
    for (size_t i = 0; i < trial->outputs; i++) {
        const struct tensor *tensor = &trial->out[i];
        struct operand *operand = &stage->operands[OP_TEST_OPERANDS + i];

        stage->out[i] = operand;
        *operand = (struct operand){
            .dtype = tensor->dtype,
            .shape = tensor->shape,
            .layout = layout_of(i == 0 ? trial->out_layout : trial->layout, &tensor->shape, false)};
        stage->out_bytes[i] =
            packed_elements(operand->layout, block, &tensor->shape) * dtype_bytes(tensor->dtype);
        stage->out_data[i] = take(stage->out_bytes[i]);
        memset(stage->out_data[i], 0x5A, stage->out_bytes[i]);
        stage->out_shapes[i] = tensor->shape;
    }
    stage->call = (struct kernel_call){.op = trial->op,
                                       .attrs = trial->attrs,
                                       .inputs = trial->test->inputs,
                                       .in = stage->in,
                                       .outputs = trial->outputs,
                                       .out = stage->out,
                                       .device = trial->tester->devices[team],
                                       .threads = team == 0 ? 1 : SEVERAL_THREADS};
}

static void stage_deinit(struct stage *stage)
{
    for (size_t i = 0; i < OP_TEST_OPERANDS; i++) {
        free(stage->in_data[i]);
        free(stage->out_data[i]);
    }
}

static const void *run_input(const struct stage *stage, const struct kernel_prepare *prepare,
                             size_t i)
{
    if (stage->in[i] == NULL)
        return NULL;
    if (stage->in[i]->constant != NULL && (prepare->constants_used >> i & 1) == 0)
        return NULL;
    return stage->in_data[i];
}

static enum status enqueue_on_host(const struct stage *stage, struct op_tester *tester,
                                   const struct kernel *kernel,
                                   const struct kernel_prepare *prepare, struct kernel_run *run)
{
    struct device *device = stage->call.device;
    void *scratch = take(prepare->scratch_bytes);
    enum status status;

    (void)tester;
    run->scratch = scratch;
    device->ops->lane_enter(run->lane);
    status = kernel->enqueue(prepare->state, &stage->call, run);
    if (status == STATUS_OK)
        status = device->ops->lane_wait(run->lane);
    free(scratch);
    return status;
}

/* Operands go to the device and results come back. */
static enum status enqueue_on_device(const struct stage *stage, struct op_tester *tester,
                                     const struct kernel *kernel,
                                     const struct kernel_prepare *prepare, struct kernel_run *run)
{
    const struct device_ops *ops = stage->call.device->ops;
    const void *in[OP_TEST_OPERANDS] = {NULL}, *const *host_in = run->in;
    void *out[OP_TEST_OPERANDS] = {NULL};
    bool intact = true;
    enum status status;

    ops->lane_enter(run->lane);
    for (size_t i = 0; i < stage->call.outputs; i++)
        if (stage->out[i] != NULL)
            out[i] = room_take(tester, stage->out_bytes[i], stage->out_data[i]);
    for (size_t i = 0; i < stage->call.inputs; i++)
        if (host_in[i] != NULL && host_in[i] == stage->out_data[0])
            in[i] = out[0];
        else if (host_in[i] != NULL)
            in[i] = room_take(tester, stage->in_bytes[i], host_in[i]);
    run->in = in;
    run->out = out;
    run->scratch = room_take(tester, prepare->scratch_bytes, NULL);
    status = kernel->enqueue(prepare->state, &stage->call, run);
    if (status == STATUS_OK)
        status = ops->lane_wait(run->lane);
    for (size_t i = 0; status == STATUS_OK && i < stage->call.outputs; i++)
        if (out[i] != NULL)
            intact = room_fetch(tester, out[i], stage->out_bytes[i], stage->out_data[i]) && intact;
    room_clear(tester);
    if (!intact)
        fail_msg("%s of %s wrote behind its output", kernel->name, stage->call.op->name);
    return status;
}

/* Prepares and runs; outputs are left in stage->out_data.  A library's reference code is refused.
 */
static enum status stage_run(struct stage *stage, struct op_tester *tester,
                             const struct kernel *kernel, int team, enum way way, struct error *err)
{
    struct kernel_prepare prepare = {.call = stage->call, .weights = tester->weights};
    const void *in[OP_TEST_OPERANDS];
    struct kernel_run run = {.in = in,
                             .out = stage->out_data,
                             .lane = tester->lanes[team],
                             .out_shapes = stage->out_shapes,
                             .strings = tester->strings};
    enum status status = STATUS_OK;

    if (kernel->prepare != NULL)
        status = kernel->prepare(&prepare, err);
    else
        prepare.constants_used = UINT32_MAX;
    if (status != STATUS_OK)
        return status;
    if (strstr(prepare.note, "ref") != NULL)
        fail_msg("%s: '%s' is reference code, far too slow", kernel->name, prepare.note);
    for (size_t i = 0; i < stage->call.inputs; i++)
        in[i] = run_input(stage, &prepare, i);
    if (way == IN_PLACE) {
        memcpy(stage->out_data[0], stage->in_data[0], stage->out_bytes[0]);
        in[0] = stage->out_data[0];
    }
    if (tester->devices[team]->ops->host_memory)
        status = enqueue_on_host(stage, tester, kernel, &prepare, &run);
    else
        status = enqueue_on_device(stage, tester, kernel, &prepare, &run);
    if (kernel->release != NULL)
        kernel->release(prepare.state);
    return status;
}

/* ---- making a trial ---- */

static bool any_outputs_missing(const struct trial *trial)
{
    for (size_t i = 0; i < trial->outputs; i++)
        if (trial->out[i].dtype == DTYPE_NONE)
            return true;
    return false;
}

/* The operator's rule on the trial's inputs; fills dtype and shape of the outputs. */
static enum status infer(struct trial *trial, bool all_known, struct error *err)
{
    struct tensor known[OP_TEST_OPERANDS];
    const struct tensor *in[OP_TEST_OPERANDS] = {NULL};
    struct tensor *out[OP_TEST_OPERANDS];
    bool bound[OP_TEST_OPERANDS] = {false};
    struct op_call call = {.attrs = trial->attrs, .inputs = trial->test->inputs, .in = in};

    for (size_t i = 0; i < call.inputs; i++) {
        known[i] = trial->in[i];
        if (!all_known && !trial->test->in[i].constant && (trial->op->value_inputs >> i & 1) == 0)
            known[i].data = NULL;
        in[i] = known[i].dtype == DTYPE_NONE ? NULL : &known[i];
    }
    for (size_t i = 0; i < trial->outputs; i++)
        out[i] = &trial->out[i];
    call.outputs = trial->outputs;
    call.out = out;
    call.out_bound = bound;
    if (in[0] != NULL && trial->op->dtypes != 0 && (trial->op->dtypes >> in[0]->dtype & 1) == 0)
        return error_set(err, STATUS_UNSUPPORTED, "input 0 of type %s is not supported",
                         dtype_name(in[0]->dtype));
    TRY(trial->op->infer(&call, err));
    if (any_outputs_missing(trial))
        return error_set(err, STATUS_INTERNAL, "the rule left an output open");
    return STATUS_OK;
}

static void fill_input(struct tensor *tensor, const struct op_input *input)
{
    bool is_unsigned = (DTYPE_UNSIGNED >> input->dtype & 1) != 0;
    double low = input->low, high = input->high;
    int64_t count = shape_count(&input->shape);

    if (low == 0 && high == 0) {
        low = dtype_is_float(input->dtype) ? -3 : is_unsigned ? 0 : -20;
        high = input->dtype == DTYPE_BOOL ? 2 : dtype_is_float(input->dtype) ? 3 : 21;
        low = input->dtype == DTYPE_BOOL ? 0 : low;
    }
    tensor->dtype = input->dtype;
    tensor->shape = input->shape;
    tensor->data = take((size_t)count * dtype_bytes(input->dtype));
    for (int64_t i = 0; i < count; i++) {
        double value = input->values != NULL ? input->values[i] : test_random(low, high);

        if (input->values == NULL && !dtype_is_float(input->dtype))
            value = floor(value);
        test_put(input->dtype, (void *)(uintptr_t)tensor->data, i, value);
    }
}

static void view(const struct tensor *tensor, struct test_array *array)
{
    int64_t count = tensor->dtype == DTYPE_NONE ? 0 : shape_count(&tensor->shape);

    array->dtype = tensor->dtype;
    array->shape = tensor->shape;
    array->values = take((size_t)count * sizeof(double));
    if (tensor->data != NULL)
        for (int64_t i = 0; i < count; i++)
            array->values[i] = test_get(tensor->dtype, tensor->data, i);
}

/* Runs the reference and rounds what it says to the types of the outputs. */
static void expect(struct trial *trial)
{
    struct test_array in[OP_TEST_OPERANDS], out[OP_TEST_OPERANDS];

    for (size_t i = 0; i < trial->test->inputs; i++)
        view(&trial->in[i], &in[i]);
    for (size_t i = 0; i < trial->outputs; i++)
        view(&trial->out[i], &out[i]);
    if (trial->test->reference != NULL)
        trial->test->reference(trial->test, in, out);
    else
        for (int64_t i = 0; i < shape_count(&in[0].shape); i++)
            out[0].values[i] = trial->test->scalar(in[0].values[i]);
    for (size_t i = 0; i < trial->outputs; i++) {
        struct tensor *expected = &trial->expected[i];

        *expected = trial->out[i];
        expected->data = take(tensor_bytes(expected));
        for (int64_t k = 0; k < shape_count(&expected->shape); k++)
            test_put(expected->dtype, (void *)(uintptr_t)expected->data, k, out[i].values[k]);
        free(out[i].values);
    }
    for (size_t i = 0; i < trial->test->inputs; i++)
        free(in[i].values);
}

/* Constants are known by the address of the trial's tensor, so packed forms go with the trial. */
static enum status trial_init(struct trial *trial, struct op_tester *tester,
                              const struct op_test *test, void *default_attrs, struct error *err)
{
    memset(trial, 0, sizeof(*trial));
    trial->tester = tester;
    trial->test = test;
    trial->outputs = test->outputs > 0 ? test->outputs : 1;
    trial->op = op_find(test->domain, test->op);
    if (trial->op == NULL)
        fail_msg("there is no operator %s", test->op);
    if (test->attrs == NULL)
        op_attrs_default(trial->op, default_attrs);
    trial->attrs = test->attrs != NULL ? test->attrs : default_attrs;
    if (weights_cache_create(tester->devices[0]->memory, NULL, &tester->weights) != STATUS_OK)
        fail_msg("no memory for packed weights");
    (void)next_random();
    trial->seed = random_state;
    for (size_t i = 0; i < test->inputs; i++)
        if (test->in[i].dtype != DTYPE_NONE)
            fill_input(&trial->in[i], &test->in[i]);
    return infer(trial, false, err);
}

static void trial_deinit(struct trial *trial)
{
    weights_cache_destroy(trial->tester->weights);
    trial->tester->weights = NULL;
    for (size_t i = 0; i < OP_TEST_OPERANDS; i++) {
        free((void *)(uintptr_t)trial->in[i].data);
        free((void *)(uintptr_t)trial->out[i].data);
        free((void *)(uintptr_t)trial->expected[i].data);
    }
}

/* ---- comparing ---- */

static double standard_relative(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_FLOAT:
        return 4e-6;
    case DTYPE_DOUBLE:
        return 1e-12;
    case DTYPE_FLOAT16:
        return 2e-3;
    case DTYPE_BFLOAT16:
        return 1.6e-2;
    default:
        return 0;
    }
}

static bool is_close(const struct op_test *test, enum dtype dtype, double found, double expected)
{
    bool standard = test->relative == 0 && test->absolute == 0;
    double relative = standard ? standard_relative(dtype) : test->relative;
    double absolute = standard ? relative / 4 : test->absolute;

    if (isnan(expected) || isinf(expected))
        return isnan(expected) ? isnan(found) != 0 : found == expected;
    return fabs(found - expected) <= absolute + relative * fabs(expected);
}

static void failed(const struct trial *trial, const char *what)
{
    char shapes[OP_TEST_OPERANDS * SHAPE_TEXT_BYTES] = "", one[SHAPE_TEXT_BYTES];

    for (size_t i = 0; i < trial->test->inputs; i++)
        if (trial->in[i].dtype != DTYPE_NONE) {
            strcat(shapes, " ");
            strcat(shapes, dtype_name(trial->in[i].dtype));
            strcat(shapes, shape_format(&trial->in[i].shape, one));
        }
    fail_msg("%s%s, kernel %s, layout %d, OP_TEST_SEED=0x%" PRIx64 ": %s", trial->test->op, shapes,
             trial->kernel->name, (int)trial->layout, trial->seed, what);
}

static void compare(const struct trial *trial, size_t index, const struct tensor *found)
{
    const struct tensor *expected = &trial->expected[index];

    for (int64_t i = 0; i < shape_count(&expected->shape); i++) {
        double a = test_get(found->dtype, found->data, i);
        double b = test_get(expected->dtype, expected->data, i);
        char what[160];

        if (is_close(trial->test, found->dtype, a, b))
            continue;
        snprintf(what, sizeof(what), "output %zu, element %" PRId64 ": found %.9g, expected %.9g",
                 index, i, a, b);
        failed(trial, what);
    }
}

static void check_outputs(const struct trial *trial, const struct stage *stage, unsigned block)
{
    for (size_t i = 0; i < trial->outputs; i++) {
        struct tensor plain = trial->out[i];
        enum layout layout = stage->out[i]->layout;

        if (!shape_is_equal(&stage->out_shapes[i], &trial->out[i].shape))
            plain.shape = stage->out_shapes[i];
        plain.data = take(tensor_bytes(&plain));
        if (layout == LAYOUT_PLAIN)
            memcpy((void *)(uintptr_t)plain.data, stage->out_data[i], tensor_bytes(&plain));
        else
            repack(layout, block, &plain, stage->out_data[i], true);
        compare(trial, i, &plain);
        if (layout == LAYOUT_BLOCKED && !padding_is_zero(block, &plain, stage->out_data[i]))
            failed(trial, "the padding is not zero");
        free((void *)(uintptr_t)plain.data);
    }
}

static void expect_same_bits(const struct trial *trial, const struct stage *first, int team,
                             enum way way, const char *what)
{
    struct stage other;

    stage_init(&other, trial, team);
    if (stage_run(&other, trial->tester, trial->kernel, team, way, NULL) != STATUS_OK)
        failed(trial, what);
    for (size_t i = 0; i < trial->outputs; i++)
        if (memcmp(first->out_data[i], other.out_data[i], first->out_bytes[i]) != 0)
            failed(trial, what);
    stage_deinit(&other);
}

static size_t row_bytes(const struct operand *operand, unsigned block)
{
    struct shape shape = operand->shape;

    shape.dims[0] = 1;
    return packed_elements(operand->layout, block, &shape) * dtype_bytes(operand->dtype);
}

/* Whether an operand has a row for each row of the output; constants and vectors have not. */
static bool has_rows(const struct operand *operand, int64_t rows)
{
    return operand != NULL && operand->constant == NULL && operand->shape.rank >= 2 &&
           operand->shape.dims[0] == rows;
}

/* The last row computed alone must have the bits that it has among the others. */
static void expect_same_row(const struct trial *trial, const struct stage *first)
{
    const int64_t rows = trial->out[0].shape.dims[0];
    unsigned block = trial->tester->devices[0]->channel_block;
    struct stage alone;

    stage_init(&alone, trial, 0);
    for (size_t i = 0; i < trial->test->inputs; i++)
        if (has_rows(alone.in[i], rows)) {
            size_t bytes = row_bytes(alone.in[i], block);

            memmove(alone.in_data[i], (char *)alone.in_data[i] + (size_t)(rows - 1) * bytes, bytes);
            alone.operands[i].shape.dims[0] = 1;
        }
    for (size_t i = 0; i < trial->outputs; i++)
        alone.operands[OP_TEST_OPERANDS + i].shape.dims[0] = 1;
    if (trial->kernel->refuses != NULL && trial->kernel->refuses(&alone.call) != NULL)
        failed(trial, "it refuses one row of what it takes");
    if (stage_run(&alone, trial->tester, trial->kernel, 0, APART, NULL) != STATUS_OK)
        failed(trial, "one row alone fails");
    for (size_t i = 0; i < trial->outputs; i++) {
        size_t bytes = row_bytes(first->out[i], block);

        if (memcmp((char *)first->out_data[i] + (size_t)(rows - 1) * bytes, alone.out_data[i],
                   bytes) != 0)
            failed(trial, "one row alone gives other bits than among others");
    }
    stage_deinit(&alone);
}

/* False when the kernel refuses. */
static bool try_kernel(struct trial *trial)
{
    struct stage stage;
    struct error err = {.text = ""};
    const char *refusal;
    enum status status;
    bool in_place;

    stage_init(&stage, trial, 0);
    refusal = trial->kernel->refuses != NULL ? trial->kernel->refuses(&stage.call) : NULL;
    if (refusal != NULL) {
        (void)error_set(&trial->tester->error, STATUS_UNSUPPORTED, "%s", refusal);
        stage_deinit(&stage);
        return false;
    }
    status = stage_run(&stage, trial->tester, trial->kernel, 0, APART, &err);
    if (status == STATUS_UNSUPPORTED) { /* prepare() may refuse, too: the next kernel is asked */
        (void)error_set(&trial->tester->error, STATUS_UNSUPPORTED, "%s", err.text);
        stage_deinit(&stage);
        return false;
    }
    if (status != STATUS_OK)
        failed(trial, err.text[0] != '\0' ? err.text : "enqueue failed");
    check_outputs(trial, &stage, trial->tester->devices[0]->channel_block);
    if (trial->tester->teams > 1)
        expect_same_bits(trial, &stage, 1, APART, "several threads give other bits than one");
    if (trial->test->rows && trial->out[0].shape.rank > 0 && trial->out[0].shape.dims[0] > 1)
        expect_same_row(trial, &stage);
    in_place = (trial->kernel->flags & KERNEL_IN_PLACE) != 0 && stage.in[0] != NULL &&
               stage.in[0]->constant == NULL && stage.in[0]->layout == stage.out[0]->layout &&
               tensor_bytes(&trial->in[0]) == tensor_bytes(&trial->out[0]) &&
               shape_is_equal(&trial->in[0].shape, &trial->out[0].shape);
    if (in_place)
        expect_same_bits(trial, &stage, 0, IN_PLACE, "in place gives other bits than apart");
    stage_deinit(&stage);
    return true;
}

/* Whether the kernel says that it takes in[0], the others and out[0] in the trial's layouts. */
static bool takes_layouts(const struct trial *trial)
{
    const struct kernel *kernel = trial->kernel;
    uint32_t layouts = kernel->layouts != 0 ? kernel->layouts : 1u << LAYOUT_PLAIN;
    uint32_t same = 1u << trial->layout;

    if ((kernel->flags & KERNEL_LAYOUT_CHANGE) != 0)
        return trial->layout == LAYOUT_PLAIN && (layouts >> trial->in_layout & 1) != 0 &&
               (layouts >> trial->out_layout & 1) != 0;
    return (layouts & same) != 0 && ((same | kernel->in_layouts) >> trial->in_layout & 1) != 0 &&
           ((kernel->out_layouts != 0 ? kernel->out_layouts : same) >> trial->out_layout & 1) != 0;
}

/* The number of kernel and layout pairs that did not refuse. */
static unsigned try_all(struct trial *trial)
{
    struct device *device = trial->tester->devices[0];
    const struct kernel *const *kernels = device->ops->kernels(device, trial->op);
    unsigned ran = 0;

    if (kernels == NULL) {
        (void)error_set(&trial->tester->error, STATUS_UNSUPPORTED, "the device lists no kernel");
        return 0;
    }
    for (; *kernels != NULL; kernels++) {
        trial->kernel = *kernels;
        for (int code = 0; code < LAYOUT_COUNT * LAYOUT_COUNT * LAYOUT_COUNT; code++) {
            trial->layout = (enum layout)(code % LAYOUT_COUNT);
            trial->in_layout = (enum layout)(code / LAYOUT_COUNT % LAYOUT_COUNT);
            trial->out_layout = (enum layout)(code / LAYOUT_COUNT / LAYOUT_COUNT);
            if (takes_layouts(trial))
                ran += try_kernel(trial) ? 1 : 0;
        }
    }
    return ran;
}

/* Said, so that it is seen what a device does not compute. */
static void leave_to_host(const struct trial *trial)
{
    trial->tester->left_to_host++;
    print_message("left to the host: %s of %s: %s\n", trial->test->op,
                  dtype_name(trial->test->in[0].dtype), trial->tester->error.text);
}

void op_test_run(struct op_tester *tester, const struct op_test *test)
{
    _Alignas(16) char attrs[ATTRS_MAX_BYTES];
    struct trial trial;
    unsigned ran;

    if (tester->asked++ % tester->every != 0) {
        tester->passed_over++;
        return;
    }
    if (trial_init(&trial, tester, test, attrs, &tester->error) != STATUS_OK)
        fail_msg("%s: %s", test->op, tester->error.text);
    expect(&trial);
    ran = try_all(&trial);
    tester->kernel_runs += ran;
    if (ran == 0 && tester->devices[0]->host != NULL)
        leave_to_host(&trial);
    else if (ran == 0 && !test->any_kernel)
        fail_msg("%s of %s: every kernel refuses: %s", test->op, dtype_name(test->in[0].dtype),
                 tester->error.text);
    trial_deinit(&trial);
}

const char *op_test_refused(struct op_tester *tester, const struct op_test *test)
{
    _Alignas(16) char attrs[ATTRS_MAX_BYTES];
    struct trial trial;
    enum status status;

    tester->error.text[0] = '\0';
    status = trial_init(&trial, tester, test, attrs, &tester->error);
    if (status == STATUS_OK) {
        expect(&trial);
        if (try_all(&trial) > 0)
            fail_msg("%s was not refused", test->op);
    }
    trial_deinit(&trial);
    if (tester->error.text[0] == '\0')
        fail_msg("%s was refused without a sentence", test->op);
    return tester->error.text;
}

void op_tester_free(struct tensor *tensor)
{
    free((void *)(uintptr_t)tensor->data);
    tensor->data = NULL;
}

/* The device for an operator: the host's where its own kernels all refuse. */
static void choose_device(struct op_tester *tester, const struct trial *trial)
{
    struct device *device = tester->devices[0];
    const struct kernel *const *kernels = device->ops->kernels(device, trial->op);
    struct stage stage;
    bool refused = true;

    if (device->host == NULL)
        return;
    stage_init(&stage, trial, 0);
    for (; kernels != NULL && *kernels != NULL; kernels++)
        refused =
            refused && (*kernels)->refuses != NULL && (*kernels)->refuses(&stage.call) != NULL;
    stage_deinit(&stage);
    if (refused) {
        tester->left_to_host++;
        tester->devices[0] = device->host;
        tester->lanes[0] = tester->lanes[0]->host;
    }
}

static enum status eval_on_device(struct op_tester *tester, struct trial *trial, struct tensor *out,
                                  struct error *err)
{
    const struct kernel *const *kernels;
    struct stage stage;
    enum status status;

    TRY(weights_cache_create(tester->devices[0]->memory, NULL, &tester->weights));
    kernels = tester->devices[0]->ops->kernels(tester->devices[0], trial->op);
    stage_init(&stage, trial, 0);
    status = error_set(err, STATUS_UNSUPPORTED, "no kernel");
    for (; kernels != NULL && *kernels != NULL; kernels++) {
        const char *refusal = (*kernels)->refuses != NULL ? (*kernels)->refuses(&stage.call) : NULL;

        if (refusal == NULL) {
            status = stage_run(&stage, tester, *kernels, 0, APART, err);
            break;
        }
        status = error_set(err, STATUS_UNSUPPORTED, "%s", refusal);
    }
    for (size_t i = 0; i < trial->outputs && status == STATUS_OK; i++) {
        out[i] = trial->out[i];
        out[i].shape = stage.out_shapes[i];
        out[i].data = stage.out_data[i];
        stage.out_data[i] = NULL;
    }
    stage_deinit(&stage);
    weights_cache_destroy(tester->weights);
    tester->weights = NULL;
    return status;
}

enum status op_tester_eval(struct op_tester *tester, const char *domain, const char *op,
                           const void *attrs, size_t inputs, const struct tensor *const *in,
                           bool constants, size_t outputs, struct tensor *out, struct error *err)
{
    _Alignas(16) char default_attrs[ATTRS_MAX_BYTES];
    struct op_test test = {.op = op, .domain = domain, .inputs = inputs, .outputs = outputs};
    struct trial trial = {.tester = tester, .test = &test, .outputs = outputs};
    struct device *const device = tester->devices[0];
    struct device_lane *const lane = tester->lanes[0];
    enum status status;

    trial.op = op_find(domain, op);
    if (trial.op == NULL)
        return error_set(err, STATUS_NOT_FOUND, "there is no operator %s", op);
    if (attrs == NULL)
        op_attrs_default(trial.op, default_attrs);
    trial.attrs = attrs != NULL ? attrs : default_attrs;
    for (size_t i = 0; i < inputs; i++) {
        test.in[i].constant = constants;
        if (in[i] != NULL)
            trial.in[i] = *in[i];
    }
    TRY(infer(&trial, true, err));
    choose_device(tester, &trial);
    status = eval_on_device(tester, &trial, out, err);
    tester->devices[0] = device;
    tester->lanes[0] = lane;
    return status;
}
