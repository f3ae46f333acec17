#include "support/far_device.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/list.h"
#include "device/host_source.h"
#include "device/kernel.h"

enum { PAGE_BYTES = 65536 };

struct far_counts far_counts;

/* ---- memory ---- */

struct range {
    struct range *next;
    char *far, *near;
    size_t bytes;
};

static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;

static struct range *find_range(const void *at)
{
    struct range *range;

    pthread_mutex_lock(&ranges_lock);
    range = ranges;
    while (range != NULL &&
           ((const char *)at < range->far || (const char *)at >= range->far + range->bytes))
        range = range->next;
    pthread_mutex_unlock(&ranges_lock);
    return range;
}

/* Where the bytes of a far address are for kernels and copies. */
static void *near(const void *far)
{
    const struct range *range = find_range(far);

    assert(range != NULL); /* a host address where the device's was wanted */
    return range->near + ((const char *)far - range->far);
}

static enum status reserve(struct mem_source *source, size_t bytes, void **out_base)
{
    struct range *range = calloc(1, sizeof(*range));
    int file = memfd_create("far", MFD_CLOEXEC);

    (void)source;
    if (range == NULL || file < 0 || ftruncate(file, (off_t)bytes) != 0) {
        free(range);
        if (file >= 0)
            close(file);
        return STATUS_NO_MEMORY;
    }
    range->bytes = bytes;
    range->far = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    range->near = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    assert(range->far != MAP_FAILED && range->near != MAP_FAILED);
    pthread_mutex_lock(&ranges_lock);
    range->next = ranges;
    ranges = range;
    pthread_mutex_unlock(&ranges_lock);
    *out_base = range->far;
    return STATUS_OK;
}

static void release(struct mem_source *source, void *base, size_t bytes)
{
    struct range **link = &ranges, *range;

    (void)source;
    pthread_mutex_lock(&ranges_lock);
    while ((*link)->far != base)
        link = &(*link)->next;
    range = *link;
    *link = range->next;
    pthread_mutex_unlock(&ranges_lock);
    munmap(range->far, bytes);
    munmap(range->near, bytes);
    free(range);
}

static enum status commit(struct mem_source *source, void *base, size_t bytes)
{
    (void)source, (void)base, (void)bytes;
    return STATUS_OK;
}

static void decommit(struct mem_source *source, void *base, size_t bytes)
{
    (void)source;
    (void)madvise(near(base), bytes, MADV_REMOVE);
}

static enum status query(struct mem_source *source, uint64_t *out_free, uint64_t *out_total)
{
    (void)source;
    *out_free = *out_total = UINT64_C(1) << 32;
    return STATUS_OK;
}

static enum status write_bytes(struct mem_source *source, void *to, const void *from, size_t bytes)
{
    (void)source;
    memcpy(near(to), from, bytes);
    return STATUS_OK;
}

static enum status read_bytes(struct mem_source *source, void *to, const void *from, size_t bytes)
{
    (void)source;
    far_counts.reads++;
    memcpy(to, near(from), bytes);
    return STATUS_OK;
}

static const struct mem_source_ops memory_ops = {.reserve = reserve,
                                                 .release = release,
                                                 .commit = commit,
                                                 .decommit = decommit,
                                                 .query = query,
                                                 .write = write_bytes,
                                                 .read = read_bytes};
static struct mem_source memory = {.ops = &memory_ops, .page_bytes = PAGE_BYTES};

/* ---- work ---- */

enum { MAX_OPERANDS = 8 };

struct far_state {
    const struct kernel *inner;
    void *inner_state;
    struct kernel_call call; /* of the CPU device */
};

struct work {
    struct list link;
    const struct far_state *state; /* NULL: a copy */
    const void *in[MAX_OPERANDS];
    void *out[MAX_OPERANDS];
    void *scratch;
    struct device_lane *host;
    size_t bytes;
};

struct device_recording {
    struct list work;
};

struct far_lane {
    struct device_lane lane;
    struct list queue;
    struct device_recording *recording; /* NULL: none is made */
};

static struct far_lane *lane_of(struct device_lane *lane)
{
    return CONTAINER_OF(lane, struct far_lane, lane);
}

static enum status put(struct far_lane *lane, const struct work *work)
{
    struct work *copy = malloc(sizeof(*copy));

    if (copy == NULL)
        return STATUS_NO_MEMORY;
    *copy = *work;
    list_init(&copy->link);
    list_append(lane->recording != NULL ? &lane->recording->work : &lane->queue, &copy->link);
    return STATUS_OK;
}

static enum status run_kernel(const struct work *work)
{
    const struct far_state *state = work->state;
    const struct kernel_run run = {
        .in = work->in, .out = work->out, .scratch = work->scratch, .lane = work->host};

    far_counts.kernels++;
    return state->inner->enqueue(state->inner_state, &state->call, &run);
}

static enum status lane_wait(struct device_lane *device_lane)
{
    struct far_lane *lane = lane_of(device_lane);
    enum status status = STATUS_OK;

    assert(lane->recording == NULL);
    far_counts.waits++;
    while (!list_is_empty(&lane->queue)) {
        struct work *work = CONTAINER_OF(lane->queue.next, struct work, link);

        list_remove(&work->link);
        if (work->state == NULL)
            memcpy(work->out[0], work->in[0], work->bytes);
        else if (status == STATUS_OK)
            status = run_kernel(work);
        free(work);
    }
    return status;
}

static enum status put_copy(struct device_lane *lane, void *to, const void *from, size_t bytes)
{
    far_counts.copies++;
    return bytes == 0
               ? STATUS_OK
               : put(lane_of(lane), &(struct work){.in = {from}, .out = {to}, .bytes = bytes});
}

static enum status copy_in(struct device_lane *lane, void *to, const void *from, size_t bytes)
{
    assert(bytes == 0 || find_range(from) == NULL);
    return put_copy(lane, bytes > 0 ? near(to) : to, from, bytes);
}

static enum status copy_out(struct device_lane *lane, void *to, const void *from, size_t bytes)
{
    assert(bytes == 0 || find_range(to) == NULL);
    return put_copy(lane, to, bytes > 0 ? near(from) : from, bytes);
}

static enum status copy(struct device_lane *lane, void *to, const void *from, size_t bytes)
{
    return put_copy(lane, bytes > 0 ? near(to) : to, bytes > 0 ? near(from) : from, bytes);
}

/* ---- recordings ---- */

static enum status record_begin(struct device_lane *lane)
{
    struct device_recording *recording = malloc(sizeof(*recording));

    if (recording == NULL)
        return STATUS_NO_MEMORY;
    list_init(&recording->work);
    lane_of(lane)->recording = recording;
    return STATUS_OK;
}

static enum status record_end(struct device_lane *lane, struct device_recording **out_recording)
{
    *out_recording = lane_of(lane)->recording;
    lane_of(lane)->recording = NULL;
    far_counts.recorded++;
    return STATUS_OK;
}

static enum status replay(struct device_lane *lane, struct device_recording *recording)
{
    const struct work *work;

    far_counts.replayed++;
    LIST_FOR_EACH (work, &recording->work, const struct work, link)
        if (put(lane_of(lane), work) != STATUS_OK)
            return STATUS_NO_MEMORY;
    return STATUS_OK;
}

static void recording_destroy(struct device_recording *recording)
{
    while (recording != NULL && !list_is_empty(&recording->work)) {
        struct work *work = CONTAINER_OF(recording->work.next, struct work, link);

        list_remove(&work->link);
        free(work);
    }
    free(recording);
}

/* ---- kernels ---- */

/* The CPU's first kernel for the call that has everything plain. */
static const struct kernel *find_inner(const struct kernel_call *call, struct kernel_call *out_call)
{
    struct device *cpu = call->device->host;
    const struct kernel *const *list = cpu->ops->kernels(cpu, call->op);

    *out_call = *call;
    out_call->device = cpu;
    out_call->threads = 1;
    for (; list != NULL && *list != NULL; list++)
        if (((*list)->layouts == 0 || ((*list)->layouts & 1U << LAYOUT_PLAIN) != 0) &&
            ((*list)->refuses == NULL || (*list)->refuses(out_call) == NULL))
            return *list;
    return NULL;
}

static const char *refuses(const struct kernel_call *call)
{
    struct kernel_call inner;

    return find_inner(call, &inner) == NULL ? "nor has the CPU one" : NULL;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    struct far_state *state;
    enum status status = STATUS_OK;

    /* Shows only now: the plan is made again. */
    if (strcmp(prepare->call.op->name, "sub") == 0 ||
        strcmp(prepare->call.op->name, "identity") == 0)
        return error_set(err, STATUS_UNSUPPORTED, "not today");
    state = calloc(1, sizeof(*state));
    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory");
    state->inner = find_inner(&prepare->call, &state->call);
    if (state->inner->prepare != NULL) {
        struct kernel_prepare inner = {.call = state->call, .weights = prepare->weights};

        status = state->inner->prepare(&inner, err);
        state->inner_state = inner.state;
        prepare->scratch_bytes = inner.scratch_bytes;
    }
    if (status != STATUS_OK) {
        free(state);
        return status;
    }
    prepare->constants_used = UINT32_MAX;
    prepare->state = state;
    return STATUS_OK;
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    struct work work = {.state = state, .host = run->lane->host};

    assert(call->inputs <= MAX_OPERANDS && call->outputs <= MAX_OPERANDS);
    for (size_t i = 0; i < call->inputs; i++)
        work.in[i] = run->in[i] == NULL ? NULL : near(run->in[i]);
    for (size_t i = 0; i < call->outputs; i++)
        work.out[i] = run->out[i] == NULL ? NULL : near(run->out[i]);
    work.scratch = run->scratch == NULL ? NULL : near(run->scratch);
    return put(lane_of(run->lane), &work);
}

static void release_state(void *arg)
{
    struct far_state *state = arg;

    if (state->inner->release != NULL)
        state->inner->release(state->inner_state);
    free(state);
}

static const struct kernel kernel_far = {.name = "far:borrowed",
                                         .refuses = refuses,
                                         .prepare = prepare,
                                         .enqueue = enqueue,
                                         .release = release_state};

/* None of these packs weights: the CPU's kernels would write to them. */
static const struct kernel *const *kernels(struct device *device, const struct op_def *op)
{
    static const char *const names[] = {"identity", "add", "sub",       "mul",     "relu",
                                        "sigmoid",  "neg", "transpose", "softmax", "abs"};
    static const struct kernel *const list[] = {&kernel_far, NULL};

    (void)device;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(op->name, names[i]) == 0)
            return list;
    return NULL;
}

/* ---- the device ---- */

static enum status open_far(const struct device_config *config, struct device **out_device,
                            struct error *err)
{
    struct device *device = calloc(1, sizeof(*device));

    if (device == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory");
    *device = (struct device){.ops = &far_device_ops,
                              .memory = &memory,
                              .lanes = config->lanes > 0 ? config->lanes : 1,
                              .threads_per_lane = 1};
    *out_device = device;
    return STATUS_OK;
}

static void close_far(struct device *device)
{
    free(device);
}

static enum status lane_open(struct device *device, unsigned index, struct device_lane **out_lane)
{
    struct far_lane *lane = calloc(1, sizeof(*lane));

    if (lane == NULL)
        return STATUS_NO_MEMORY;
    lane->lane = (struct device_lane){.device = device, .index = index, .threads = 1};
    list_init(&lane->queue);
    if (device_lane_open_host(&lane->lane) != STATUS_OK) {
        free(lane);
        return STATUS_NO_MEMORY;
    }
    *out_lane = &lane->lane;
    return STATUS_OK;
}

static void lane_close(struct device_lane *lane)
{
    assert(list_is_empty(&lane_of(lane)->queue));
    device_lane_close_host(lane);
    free(lane_of(lane));
}

static void lane_enter(struct device_lane *lane)
{
    if (lane->host != NULL)
        lane->host->device->ops->lane_enter(lane->host);
}

static enum status pin(struct device *device, void *base, size_t bytes)
{
    (void)device, (void)base, (void)bytes;
    far_counts.pins++;
    return STATUS_OK;
}

static void unpin(struct device *device, void *base)
{
    (void)device, (void)base;
    far_counts.unpins++;
}

static void describe(struct device *device, char *text, size_t room)
{
    (void)device;
    if (room > 0)
        text[0] = '\0';
}

const struct device_ops far_device_ops = {.name = "far",
                                          .open = open_far,
                                          .close = close_far,
                                          .lane_open = lane_open,
                                          .lane_close = lane_close,
                                          .lane_enter = lane_enter,
                                          .lane_wait = lane_wait,
                                          .copy_in = copy_in,
                                          .copy_out = copy_out,
                                          .copy = copy,
                                          .record_begin = record_begin,
                                          .record_end = record_end,
                                          .replay = replay,
                                          .recording_destroy = recording_destroy,
                                          .pin = pin,
                                          .unpin = unpin,
                                          .kernels = kernels,
                                          .describe = describe};
