/* Streams, events and graphs: what runs when, what a capture forbids, what a dead or hung device
 * answers, and failures that tests ask for. */
#include "kernels/seeded.h"
#include "sim.h"
#include "support.h"

#include <pthread.h>

enum { N = 64 };

struct fixture {
    cudaStream_t stream;
    cudaStream_t other;
    cudaEvent_t event;
    int *numbers; /* of the device: N zeros */
};

static int setup(void **state)
{
    static struct fixture fixture;
    struct fixture *f = &fixture;

    sim_reset();
    sim_set_mode(SIM_EAGER);
    must(cudaStreamCreateWithFlags(&f->stream, cudaStreamNonBlocking));
    must(cudaStreamCreateWithFlags(&f->other, cudaStreamNonBlocking));
    must(cudaEventCreateWithFlags(&f->event, cudaEventDisableTiming));
    must(cudaMalloc((void **)&f->numbers, N * sizeof(int)));
    must(cudaMemset(f->numbers, 0, N * sizeof(int)));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    sim_reset();
    sim_set_mode(SIM_EAGER);
    sim_set_order(0);
    must(cudaEventDestroy(f->event));
    must(cudaStreamDestroy(f->stream));
    must(cudaStreamDestroy(f->other));
    must(cudaFree(f->numbers));
    assert_int_equal(sim_report_open(), 0);
    return 0;
}

static int first(const struct fixture *f)
{
    int value;

    must(cudaMemcpy(&value, f->numbers, sizeof(value), cudaMemcpyDeviceToHost));
    return value;
}

static int increment(const struct fixture *f, cudaStream_t stream)
{
    return plain_increment(f->numbers, f->numbers, N, stream);
}

static void each_mode_does_the_work_when_it_says(void **state)
{
    struct fixture *f = *state;

    must(increment(f, f->stream));
    must(cudaStreamQuery(f->stream)); /* eager: done already */
    sim_set_mode(SIM_LAZY);
    must(increment(f, f->stream));
    must(cudaEventRecord(f->event, f->stream));
    assert_int_equal(cudaEventQuery(f->event), cudaErrorNotReady);
    must(cudaEventSynchronize(f->event));
    must(cudaEventQuery(f->event));
    sim_set_mode(SIM_ASYNC);
    must(increment(f, f->stream));
    must(cudaStreamSynchronize(f->stream));
    assert_int_equal(first(f), 3);
}

static void who_polls_gets_on_in_the_lazy_mode(void **state)
{
    struct fixture *f = *state;
    int polls = 0;

    sim_set_mode(SIM_LAZY);
    must(increment(f, f->stream));
    must(cudaEventRecord(f->event, f->stream));
    while (cudaEventQuery(f->event) == cudaErrorNotReady)
        polls++;
    assert_int_equal(polls, 1);
}

static void a_wait_for_an_event_orders_streams(void **state)
{
    struct fixture *f = *state;
    int *host;

    sim_set_mode(SIM_LAZY);
    must(cudaMallocHost((void **)&host, N * sizeof(int)));
    must(increment(f, f->stream));
    must(cudaEventRecord(f->event, f->stream));
    must(cudaStreamWaitEvent(f->other, f->event, 0));
    must(cudaMemcpyAsync(host, f->numbers, N * sizeof(int), cudaMemcpyDeviceToHost, f->other));
    /* A later record of the event is none of the wait's business. */
    must(increment(f, f->stream));
    must(cudaEventRecord(f->event, f->stream));
    must(cudaStreamSynchronize(f->other));
    assert_int_equal(host[5], 1);
    must(cudaStreamSynchronize(f->stream));
    must(cudaFreeHost(host));
}

static void pageable_memory_is_read_and_written_before_the_call_returns(void **state)
{
    struct fixture *f = *state;
    int host[N];
    int back[N];

    sim_set_mode(SIM_LAZY);
    for (int i = 0; i < N; i++)
        host[i] = i;
    must(cudaMemcpyAsync(f->numbers, host, sizeof(host), cudaMemcpyHostToDevice, f->stream));
    memset(host, 0xFF, sizeof(host));
    must(cudaMemcpyAsync(back, f->numbers, sizeof(back), cudaMemcpyDeviceToHost, f->stream));
    assert_int_equal(back[5], 5);
    assert_int_equal(cudaStreamQuery(f->stream), cudaSuccess);
}

static pthread_mutex_t called_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called_change = PTHREAD_COND_INITIALIZER;
static int called;

static void count_call(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&called_lock);
    called++;
    pthread_cond_broadcast(&called_change);
    pthread_mutex_unlock(&called_lock);
}

static void a_host_function_comes_although_nobody_waits(void **state)
{
    struct fixture *f = *state;
    const enum sim_mode modes[] = {SIM_EAGER, SIM_LAZY, SIM_ASYNC};

    called = 0;
    for (int i = 0; i < 3; i++) {
        sim_set_mode(modes[i]);
        must(increment(f, f->stream));
        must(cudaLaunchHostFunc(f->stream, count_call, NULL));
        pthread_mutex_lock(&called_lock);
        while (called <= i)
            pthread_cond_wait(&called_change, &called_lock);
        pthread_mutex_unlock(&called_lock);
    }
    must(cudaStreamSynchronize(f->stream));
    assert_int_equal(first(f), 3);
}

static void handles_that_are_gone_are_found_out(void **state)
{
    cudaStream_t stream;
    cudaEvent_t event;
    (void)state;

    must(cudaStreamCreate(&stream));
    must(cudaEventCreate(&event));
    must(cudaStreamDestroy(stream));
    must(cudaEventDestroy(event));
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
    assert_contains(sim_last_finding(), "was destroyed");
}

static cudaGraphExec_t captured(const struct fixture *f, int times)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    must(cudaStreamBeginCapture(f->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < times; i++)
        must(increment(f, f->stream));
    must(cudaStreamEndCapture(f->stream, &graph));
    must(cudaGraphInstantiate(&exec, graph, 0));
    must(cudaGraphDestroy(graph));
    return exec;
}

static void a_graph_runs_what_was_captured_as_often_as_it_is_launched(void **state)
{
    struct fixture *f = *state;
    cudaGraphExec_t exec = captured(f, 2);

    assert_int_equal(first(f), 0);
    must(cudaGraphLaunch(exec, f->stream));
    must(cudaGraphLaunch(exec, f->other));
    must(cudaDeviceSynchronize());
    assert_int_equal(first(f), 4);
    /* Destroyed while a launch is on its way: the launch still runs. */
    sim_set_mode(SIM_LAZY);
    must(cudaGraphLaunch(exec, f->stream));
    must(cudaGraphExecDestroy(exec));
    must(cudaStreamSynchronize(f->stream));
    assert_int_equal(first(f), 6);
}

static void a_graph_takes_other_streams_in_through_events(void **state)
{
    struct fixture *f = *state;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t joined;
    int host[N] = {0};

    must(cudaEventCreate(&joined));
    must(cudaStreamBeginCapture(f->stream, cudaStreamCaptureModeThreadLocal));
    must(increment(f, f->stream));
    must(cudaEventRecord(f->event, f->stream));
    must(cudaStreamWaitEvent(f->other, f->event, 0));
    must(cudaMemcpyAsync(host, f->numbers, sizeof(host), cudaMemcpyDeviceToHost, f->other));
    must(cudaEventRecord(joined, f->other));
    must(cudaStreamWaitEvent(f->stream, joined, 0));
    must(increment(f, f->stream));
    must(cudaStreamEndCapture(f->stream, &graph));
    must(cudaGraphInstantiate(&exec, graph, 0));
    for (uint64_t order = 0; order < 4; order++) {
        sim_set_order(order);
        must(cudaMemset(f->numbers, 0, N * sizeof(int)));
        must(cudaGraphLaunch(exec, f->stream));
        must(cudaStreamSynchronize(f->stream));
        assert_int_equal(host[3], 1);
        assert_int_equal(first(f), 2);
    }
    must(cudaGraphExecDestroy(exec));
    must(cudaGraphDestroy(graph));
    must(cudaEventDestroy(joined));
}

static void an_edge_that_is_missing_shows_in_another_order(void **state)
{
    struct fixture *f = *state;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t joined;
    int host[N] = {0};
    int right = 0;

    /* The copy should follow the second increment, and follows the first only. */
    must(cudaEventCreate(&joined));
    must(cudaStreamBeginCapture(f->stream, cudaStreamCaptureModeThreadLocal));
    must(increment(f, f->stream));
    must(cudaEventRecord(f->event, f->stream));
    must(increment(f, f->stream));
    must(cudaStreamWaitEvent(f->other, f->event, 0));
    must(cudaMemcpyAsync(host, f->numbers, sizeof(host), cudaMemcpyDeviceToHost, f->other));
    must(cudaEventRecord(joined, f->other));
    must(cudaStreamWaitEvent(f->stream, joined, 0));
    must(cudaStreamEndCapture(f->stream, &graph));
    must(cudaGraphInstantiate(&exec, graph, 0));
    for (uint64_t order = 0; order < 2; order++) {
        sim_set_order(order);
        must(cudaMemset(f->numbers, 0, N * sizeof(int)));
        must(cudaGraphLaunch(exec, f->stream));
        must(cudaStreamSynchronize(f->stream));
        right += host[3] == 2;
    }
    assert_int_equal(right, 1);
    must(cudaGraphExecDestroy(exec));
    must(cudaGraphDestroy(graph));
    must(cudaEventDestroy(joined));
}

/* Begins a capture, makes the call, and expects the capture to be worth nothing. */
static void breaks(const struct fixture *f, cudaError_t got, cudaError_t want)
{
    cudaGraph_t graph;

    assert_int_equal(got, want);
    assert_int_equal(cudaStreamEndCapture(f->stream, &graph), cudaErrorStreamCaptureInvalidated);
    assert_null(graph);
    cudaGetLastError();
}

static void begin(const struct fixture *f, enum cudaStreamCaptureMode mode)
{
    must(cudaStreamBeginCapture(f->stream, mode));
}

static void what_a_capture_forbids_breaks_it(void **state)
{
    struct fixture *f = *state;
    const enum cudaStreamCaptureMode local = cudaStreamCaptureModeThreadLocal;
    void *memory;
    int host[N];

    begin(f, local);
    breaks(f, cudaStreamSynchronize(f->stream), cudaErrorStreamCaptureUnsupported);
    begin(f, local);
    breaks(f, cudaStreamQuery(f->stream), cudaErrorStreamCaptureUnsupported);
    begin(f, local);
    breaks(f, cudaMalloc(&memory, 64), cudaErrorStreamCaptureUnsupported);
    begin(f, local);
    breaks(f, cudaMemcpy(host, f->numbers, 4, cudaMemcpyDeviceToHost),
           cudaErrorStreamCaptureUnsupported);
    begin(f, local);
    breaks(f, cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    begin(f, local);
    must(cudaEventRecord(f->event, f->stream));
    breaks(f, cudaEventQuery(f->event), cudaErrorCapturedEvent);
    /* What comes after the break is refused too. */
    begin(f, local);
    assert_int_equal(cudaStreamSynchronize(f->stream), cudaErrorStreamCaptureUnsupported);
    breaks(f, increment(f, f->stream), cudaErrorStreamCaptureInvalidated);
}

static void *allocates(void *argument)
{
    int *error = argument;
    void *memory = NULL;

    *error = cudaMalloc(&memory, 64);
    if (*error == cudaSuccess)
        must(cudaFree(memory));
    return NULL;
}

static void other_threads_are_free_unless_the_capture_is_global(void **state)
{
    struct fixture *f = *state;
    pthread_t thread;
    cudaGraph_t graph;
    int error;

    begin(f, cudaStreamCaptureModeThreadLocal);
    pthread_create(&thread, NULL, allocates, &error);
    pthread_join(thread, NULL);
    assert_int_equal(error, cudaSuccess);
    must(cudaStreamEndCapture(f->stream, &graph));
    must(cudaGraphDestroy(graph));
    begin(f, cudaStreamCaptureModeGlobal);
    pthread_create(&thread, NULL, allocates, &error);
    pthread_join(thread, NULL);
    breaks(f, error, cudaErrorStreamCaptureUnsupported);
    /* The relaxed mode lets this thread do what it wants. */
    begin(f, cudaStreamCaptureModeRelaxed);
    allocates(&error);
    assert_int_equal(error, cudaSuccess);
    must(cudaStreamEndCapture(f->stream, &graph));
    must(cudaGraphDestroy(graph));
}

static void streams_that_are_not_joined_or_not_captured_are_refused(void **state)
{
    struct fixture *f = *state;
    cudaGraph_t graph;
    cudaStream_t blocking;

    begin(f, cudaStreamCaptureModeThreadLocal);
    must(increment(f, f->stream));
    must(cudaEventRecord(f->event, f->stream));
    must(cudaStreamWaitEvent(f->other, f->event, 0));
    must(increment(f, f->other));
    assert_int_equal(cudaStreamEndCapture(f->stream, &graph), cudaErrorStreamCaptureUnjoined);
    assert_int_equal(cudaStreamEndCapture(f->stream, &graph), cudaErrorIllegalState);
    assert_int_equal(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeThreadLocal),
                     cudaErrorStreamCaptureUnsupported);
    /* Work on the default stream would wait for the stream that is captured. */
    must(cudaStreamCreate(&blocking));
    must(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(cudaMemsetAsync(f->numbers, 0, 4, NULL), cudaErrorStreamCaptureImplicit);
    assert_int_equal(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
    must(cudaStreamDestroy(blocking));
}

static void an_update_changes_values_and_refuses_another_shape(void **state)
{
    struct fixture *f = *state;
    cudaGraphExec_t exec = captured(f, 1);
    cudaGraphExecUpdateResultInfo info;
    cudaGraph_t graph;

    must(cudaStreamBeginCapture(f->stream, cudaStreamCaptureModeThreadLocal));
    must(plain_increment(f->numbers, f->numbers + 1, 1, f->stream));
    must(cudaStreamEndCapture(f->stream, &graph));
    must(cudaGraphExecUpdate(exec, graph, &info));
    must(cudaGraphDestroy(graph));
    must(cudaGraphLaunch(exec, f->stream));
    must(cudaGraphLaunch(exec, f->stream));
    must(cudaStreamSynchronize(f->stream));
    assert_int_equal(first(f), 1);
    must(cudaStreamBeginCapture(f->stream, cudaStreamCaptureModeThreadLocal));
    must(increment(f, f->stream));
    must(increment(f, f->stream));
    must(cudaStreamEndCapture(f->stream, &graph));
    assert_int_equal(cudaGraphExecUpdate(exec, graph, &info), cudaErrorGraphExecUpdateFailure);
    assert_int_equal(info.result, cudaGraphExecUpdateErrorTopologyChanged);
    must(cudaGraphDestroy(graph));
    must(cudaGraphExecDestroy(exec));
}

static void a_failure_comes_at_the_call_that_was_named(void **state)
{
    struct fixture *f = *state;
    cudaEvent_t events[3];

    sim_fail_nth("cudaEventCreate", 2, 0);
    must(cudaEventCreate(&events[0]));
    assert_int_equal(cudaEventCreate(&events[1]), cudaErrorMemoryAllocation);
    must(cudaEventCreate(&events[1]));
    sim_fail_nth("cudaLaunchKernel", 1, cudaErrorInvalidConfiguration);
    assert_int_equal(increment(f, f->stream), cudaErrorInvalidConfiguration);
    must(increment(f, f->stream));
    sim_fail_every("cudaEventQuery", 2, cudaErrorUnknown);
    for (int i = 0; i < 6; i++)
        assert_int_equal(cudaEventQuery(events[0]), i % 2 ? cudaErrorUnknown : cudaSuccess);
    assert_int_equal(sim_count("cudaEventQuery"), 6);
    must(cudaEventDestroy(events[0]));
    must(cudaEventDestroy(events[1]));
}

static void a_hung_kernel_is_never_ready(void **state)
{
    struct fixture *f = *state;

    sim_hang_nth_kernel(1);
    must(increment(f, f->stream));
    must(cudaEventRecord(f->event, f->stream));
    for (int i = 0; i < 10; i++)
        assert_int_equal(cudaEventQuery(f->event), cudaErrorNotReady);
    must(increment(f, f->other)); /* other streams go on */
    must(cudaStreamSynchronize(f->other));
    sim_release_hung();
    must(cudaEventSynchronize(f->event));
    assert_int_equal(first(f), 2);
}

static void a_broken_kernel_makes_every_later_call_fail(void **state)
{
    struct fixture *f = *state;
    void *memory;

    sim_break_nth_kernel(2, cudaErrorIllegalAddress);
    must(increment(f, f->stream));
    (void)increment(f, f->stream);
    assert_int_equal(cudaStreamSynchronize(f->stream), cudaErrorIllegalAddress);
    assert_int_equal(cudaMalloc(&memory, 64), cudaErrorIllegalAddress);
    assert_int_equal(increment(f, f->other), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
}

static void launches_beyond_the_device_are_refused(void **state)
{
    struct fixture *f = *state;
    int static_shared;
    int max_threads;

    must(plain_shape(f->numbers, 1, 512, 0, f->stream));
    assert_int_equal(plain_shape(f->numbers, 1, 1025, 0, f->stream), cudaErrorInvalidConfiguration);
    assert_int_equal(plain_shape(f->numbers, 1, 513, 0, f->stream), cudaErrorInvalidValue);
    assert_int_equal(plain_shape(f->numbers, 65536, 1, 0, f->stream),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(plain_shape(f->numbers, 1, 32, 49153, f->stream), cudaErrorInvalidValue);
    must(plain_allow_shared(100000));
    must(plain_shape(f->numbers, 1, 32, 100000, f->stream));
    assert_int_equal(plain_allow_shared(300000), cudaErrorInvalidValue);
    must(plain_attributes(&static_shared, &max_threads));
    assert_int_equal(static_shared, 1024);
    assert_int_equal(max_threads, 1024);
}

static void the_device_says_what_it_is(void **state)
{
    struct cudaDeviceProp properties;
    int value;
    char bus[32];
    (void)state;

    must(cudaGetDeviceProperties(&properties, 0));
    assert_int_equal(properties.major, 9);
    must(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    assert_int_equal(value, properties.multiProcessorCount);
    must(cudaDeviceGetPCIBusId(bus, sizeof(bus), 0));
    must(cudaDeviceGetByPCIBusId(&value, bus));
    assert_int_equal(value, 0);
    assert_int_equal(cudaSetDevice(1), cudaErrorInvalidDevice);
    assert_string_equal(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
    assert_string_equal(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
}

static void what_belongs_to_another_device_is_found(void **state)
{
    struct fixture *f = *state;
    cudaEvent_t event;

    assert_int_equal(cudaSetDevice(1), cudaErrorInvalidDevice);
    sim_set_devices(2);
    must(cudaSetDevice(1));
    must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    assert_int_equal(increment(f, f->stream), cudaErrorInvalidResourceHandle);
    assert_contains(sim_last_finding(), "it belongs to device 0, and device 1 is current");
    assert_int_equal(cudaEventRecord(event, f->stream), cudaErrorInvalidResourceHandle);
    assert_contains(sim_last_finding(), "an event of device 1 in a stream of device 0");
    must(cudaEventDestroy(event));
    must(cudaSetDevice(0));
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    assert_int_equal(increment(f, f->stream), cudaSuccess);
    sim_set_devices(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_mode_does_the_work_when_it_says),
        TEST(who_polls_gets_on_in_the_lazy_mode),
        TEST(a_wait_for_an_event_orders_streams),
        TEST(pageable_memory_is_read_and_written_before_the_call_returns),
        TEST(a_host_function_comes_although_nobody_waits),
        TEST(handles_that_are_gone_are_found_out),
        TEST(a_graph_runs_what_was_captured_as_often_as_it_is_launched),
        TEST(a_graph_takes_other_streams_in_through_events),
        TEST(an_edge_that_is_missing_shows_in_another_order),
        TEST(what_a_capture_forbids_breaks_it),
        TEST(other_threads_are_free_unless_the_capture_is_global),
        TEST(streams_that_are_not_joined_or_not_captured_are_refused),
        TEST(an_update_changes_values_and_refuses_another_shape),
        TEST(a_failure_comes_at_the_call_that_was_named),
        TEST(a_hung_kernel_is_never_ready),
        TEST(a_broken_kernel_makes_every_later_call_fail),
        TEST(launches_beyond_the_device_are_refused),
        TEST(the_device_says_what_it_is),
        TEST(what_belongs_to_another_device_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
