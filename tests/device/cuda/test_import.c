/* Memory of another process on the simulated device: taken in, measured, given back. */
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "sim_device.h"

enum { FLOATS = 1000, BYTES = FLOATS * sizeof(float) };

struct exporter {
    pid_t process;
    int gate; /* closing it ends the process */
    unsigned char handle[sizeof(cudaIpcMemHandle_t)];
};

/* The other process: memory of FLOATS numbers, 0, 1, 2 … */
static void export_memory(int to, int gate)
{
    float numbers[FLOATS];
    cudaIpcMemHandle_t handle;
    void *memory;
    char byte;

    for (int i = 0; i < FLOATS; i++)
        numbers[i] = (float)i;
    if (cudaMalloc(&memory, BYTES) != cudaSuccess ||
        cudaMemcpy(memory, numbers, BYTES, cudaMemcpyHostToDevice) != cudaSuccess ||
        cudaIpcGetMemHandle(&handle, memory) != cudaSuccess ||
        write(to, &handle, sizeof(handle)) != sizeof(handle))
        _exit(1);
    (void)!read(gate, &byte, 1);
    _exit(0);
}

/* Before this process has used the device. */
static struct exporter start_exporter(void)
{
    struct exporter exporter;
    int handles[2], gate[2];

    assert_int_equal(0, pipe(handles) + pipe(gate));
    exporter.process = fork();
    if (exporter.process == 0) {
        (void)close(gate[1]);
        export_memory(handles[1], gate[0]);
    }
    (void)close(gate[0]);
    (void)close(handles[1]);
    assert_int_equal(sizeof(exporter.handle),
                     read(handles[0], exporter.handle, sizeof(exporter.handle)));
    (void)close(handles[0]);
    exporter.gate = gate[1];
    return exporter;
}

static void end_exporter(const struct exporter *exporter)
{
    (void)close(exporter->gate);
    assert_int_equal(exporter->process, waitpid(exporter->process, NULL, 0));
}

static void memory_of_another_process_is_read_and_written(void **state)
{
    struct exporter exporter = start_exporter();
    struct device *device = open_cuda();
    struct device_import import = {
        .handle = exporter.handle, .handle_bytes = sizeof(exporter.handle), .bytes = BYTES};
    struct device_lane *lane;
    struct error err = {.text = ""};
    float seen[FLOATS] = {0};
    void *address, *unused;

    (void)state;
    assert_ok(device->ops->lane_open(device, 0, &lane));
    device->ops->lane_enter(lane);
    assert_ok(device->ops->import_open(device, &import, &address, &err));
    assert_ok(device->ops->copy_out(lane, seen, address, BYTES));
    assert_ok(device->ops->lane_wait(lane));
    for (int i = 0; i < FLOATS; i++)
        assert_true(seen[i] == (float)i);
    seen[5] = -1;
    assert_ok(device->ops->copy_in(lane, address, seen, BYTES));
    assert_ok(device->ops->copy_out(lane, seen, address, BYTES));
    assert_ok(device->ops->lane_wait(lane));
    assert_true(seen[5] == -1);
    device->ops->import_close(device, address);

    import.bytes = BYTES + (1 << 22); /* more than there is */
    assert_int_equal(STATUS_INVALID, device->ops->import_open(device, &import, &unused, &err));
    assert_non_null(strstr(err.text, "the imported memory has"));
    import.bytes = BYTES;
    import.device_id = 1;
    assert_int_equal(STATUS_INVALID, device->ops->import_open(device, &import, &unused, &err));
    assert_non_null(strstr(err.text, "device_id 1 is not the daemon's, which is 0"));
    import.device_id = 0;
    exporter.handle[0] ^= 1;
    assert_int_equal(STATUS_INVALID, device->ops->import_open(device, &import, &unused, &err));
    assert_non_null(strstr(err.text, "cannot be opened"));
    assert_ok(device->ops->copy_out(lane, seen, seen, 0)); /* nothing stuck */
    assert_ok(device->ops->lane_wait(lane));

    device->ops->lane_close(lane);
    device_close(device);
    end_exporter(&exporter);
    assert_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(memory_of_another_process_is_read_and_written, clean_slate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
