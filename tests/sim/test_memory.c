/* Memory of the device: what it shows, what it costs, and what each mistake with it leads to. */
#include "kernels/seeded.h"
#include "sim.h"
#include "support.h"

#include <cuda.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRANULE ((size_t)2 << 20)

static CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
static CUresult (*unreserve)(CUdeviceptr, size_t);
static CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                          unsigned long long);
static CUresult (*release)(CUmemGenericAllocationHandle);
static CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                       unsigned long long);
static CUresult (*unmap)(CUdeviceptr, size_t);
static CUresult (*allow)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);

static const CUmemAllocationProp properties = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};
static const CUmemAccessDesc access_all = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

static void entry(const char *name, void *out)
{
    enum cudaDriverEntryPointQueryResult found;
    must(cudaGetDriverEntryPointByVersion(name, out, 12000, cudaEnableDefault, &found));
    assert_int_equal(found, cudaDriverEntryPointSuccess);
}

static int setup(void **state)
{
    (void)state;
    sim_reset();
    sim_set_memory((size_t)1 << 30, 0);
    entry("cuMemAddressReserve", &reserve);
    entry("cuMemAddressFree", &unreserve);
    entry("cuMemCreate", &create);
    entry("cuMemRelease", &release);
    entry("cuMemMap", &map);
    entry("cuMemUnmap", &unmap);
    entry("cuMemSetAccess", &allow);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sim_reset();
    sim_set_memory((size_t)4 << 30, 0);
    assert_int_equal(sim_report_open(), 0);
    assert_int_equal(sim_used_bytes(), 0);
    return 0;
}

static size_t free_now(void)
{
    size_t bytes;
    size_t total;
    must(cudaMemGetInfo(&bytes, &total));
    return bytes;
}

static void new_memory_is_poisoned_and_counts_as_never_written(void **state)
{
    unsigned char back[100];
    void *memory;
    (void)state;
    must(cudaMalloc(&memory, sizeof(back)));
    must(cudaMemcpy(back, memory, sizeof(back), cudaMemcpyDeviceToHost));
    assert_int_equal(back[0], 0xFF);
    assert_int_equal(back[99], 0xFF);
    assert_contains(sim_last_finding(), "never written");
    must(cudaFree(memory));
}

static void every_byte_is_charged_and_given_back(void **state)
{
    size_t before = free_now();
    void *memory;
    void *more;
    (void)state;
    must(cudaMalloc(&memory, 10 << 20));
    assert_int_equal(free_now(), before - (10 << 20));
    assert_int_equal(cudaMalloc(&more, (size_t)1 << 30), cudaErrorMemoryAllocation);
    assert_int_equal(sim_used_bytes(), 10 << 20);
    assert_int_equal(sim_open("allocation"), 1); /* what is forgotten shows */
    must(cudaFree(memory));
    assert_int_equal(free_now(), before);
    assert_int_equal(sim_peak_bytes(), 10 << 20);
}

static void others_and_limits_leave_less(void **state)
{
    size_t bytes;
    size_t total;
    void *memory;
    (void)state;
    sim_set_memory((size_t)1 << 30, (size_t)700 << 20);
    assert_int_equal(free_now(), (size_t)(1024 - 700 - 256) << 20);
    assert_int_equal(cudaMalloc(&memory, 100 << 20), cudaErrorMemoryAllocation);
    sim_set_memory((size_t)1 << 30, 0);
    sim_set_process_limit((size_t)400 << 20);
    must(cudaMemGetInfo(&bytes, &total));
    assert_int_equal(total, (size_t)400 << 20);
    assert_int_equal(bytes, (size_t)(400 - 256) << 20);
    assert_int_equal(cudaMalloc(&memory, 200 << 20), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void what_others_hold_can_change_while_the_program_runs(void **state)
{
    char path[] = "/tmp/sim-others-XXXXXX";
    int file = mkstemp(path);
    size_t before = free_now();
    (void)state;
    assert_int_equal(write(file, "104857600", 9), 9);
    setenv("SLUICE_SIM_OTHERS_FILE", path, 1);
    assert_int_equal(free_now(), before - 104857600);
    unsetenv("SLUICE_SIM_OTHERS_FILE");
    assert_int_equal(free_now(), before);
    close(file);
    unlink(path);
}

static sigjmp_buf jump;

static void on_fault(int number)
{
    siglongjmp(jump, number);
}

static void a_host_that_touches_device_memory_dies(void **state)
{
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    struct sigaction before;
    volatile int caught;
    int *memory;
    (void)state;
    must(cudaMalloc((void **)&memory, 64));
    must(cudaMemset(memory, 0, 64));
    sigaction(SIGSEGV, &action, &before);
    caught = sigsetjmp(jump, 1);
    if (caught == 0)
        *(volatile int *)memory = 1;
    sigaction(SIGSEGV, &before, NULL);
    assert_int_equal(caught, SIGSEGV);
    must(cudaFree(memory));
}

static void a_second_free_is_found(void **state)
{
    void *memory;
    (void)state;
    must(cudaMalloc(&memory, 64));
    must(cudaFree(memory));
    assert_int_equal(cudaFree(memory), cudaErrorInvalidValue);
    assert_contains(sim_last_finding(), "free already");
}

static void a_handle_shows_the_same_bytes_wherever_it_is_mapped(void **state)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range;
    int value = 7;
    int back = 0;
    (void)state;
    assert_int_equal(reserve(&range, 4 * GRANULE, 0, 0, 0), CUDA_SUCCESS);
    assert_int_equal(create(&handle, GRANULE, &properties, 0), CUDA_SUCCESS);
    assert_int_equal(map(range, GRANULE, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(map(range + 2 * GRANULE, GRANULE, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(allow(range, GRANULE, &access_all, 1), CUDA_SUCCESS);
    assert_int_equal(allow(range + 2 * GRANULE, GRANULE, &access_all, 1), CUDA_SUCCESS);
    must(cudaMemcpy((void *)(range + 8), &value, 4, cudaMemcpyHostToDevice));
    must(cudaMemcpy(&back, (void *)(range + 2 * GRANULE + 8), 4, cudaMemcpyDeviceToHost));
    assert_int_equal(back, 7);
    /* Moved elsewhere it keeps what it held. */
    assert_int_equal(unmap(range, GRANULE), CUDA_SUCCESS);
    assert_int_equal(unmap(range + 2 * GRANULE, GRANULE), CUDA_SUCCESS);
    assert_int_equal(map(range + 3 * GRANULE, GRANULE, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(allow(range + 3 * GRANULE, GRANULE, &access_all, 1), CUDA_SUCCESS);
    must(cudaMemcpy(&back, (void *)(range + 3 * GRANULE + 8), 4, cudaMemcpyDeviceToHost));
    assert_int_equal(back, 7);
    assert_int_equal(sim_findings(), 0);
    /* Released, it lives until it is unmapped. */
    assert_int_equal(release(handle), CUDA_SUCCESS);
    assert_int_equal(sim_used_bytes(), GRANULE);
    assert_int_equal(unmap(range + 3 * GRANULE, GRANULE), CUDA_SUCCESS);
    assert_int_equal(sim_used_bytes(), 0);
    assert_int_equal(unreserve(range, 4 * GRANULE), CUDA_SUCCESS);
}

static void kernels_run_across_handles_and_fault_behind_them(void **state)
{
    CUmemGenericAllocationHandle handles[2];
    CUdeviceptr range;
    int n = (int)(2 * GRANULE / sizeof(int));
    int back;
    (void)state;
    assert_int_equal(reserve(&range, 4 * GRANULE, 0, 0, 0), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(create(&handles[i], GRANULE, &properties, 0), CUDA_SUCCESS);
        assert_int_equal(map(range + i * GRANULE, GRANULE, 0, handles[i], 0), CUDA_SUCCESS);
    }
    assert_int_equal(allow(range, 2 * GRANULE, &access_all, 1), CUDA_SUCCESS);
    must(cudaMemset((void *)range, 0, 2 * GRANULE));
    must(plain_increment((int *)range, (int *)range, n, NULL));
    must(cudaDeviceSynchronize());
    must(cudaMemcpy(&back, (void *)(range + GRANULE), 4, cudaMemcpyDeviceToHost));
    assert_int_equal(back, 1);
    /* A page that went: the kernel that still uses it kills the context. */
    assert_int_equal(unmap(range + GRANULE, GRANULE), CUDA_SUCCESS);
    must(plain_increment((int *)range, (int *)range, n, NULL)); /* it is only put into the queue */
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    assert_contains(sim_last_finding(), "seeded.cu");
    sim_reset();
    assert_int_equal(unmap(range, GRANULE), CUDA_SUCCESS);
    assert_int_equal(unreserve(range, 4 * GRANULE), CUDA_SUCCESS);
    assert_int_equal(release(handles[0]), CUDA_SUCCESS);
    /* A handle that is forgotten shows. */
    assert_int_equal(sim_open("handle"), 1);
    assert_int_equal(release(handles[1]), CUDA_SUCCESS);
}

static void broken_rules_of_mapping_are_refused_in_words(void **state)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range;
    (void)state;
    assert_int_equal(reserve(&range, GRANULE + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(reserve(&range, 2 * GRANULE, 0, 0, 0), CUDA_SUCCESS);
    assert_int_equal(create(&handle, GRANULE, &properties, 0), CUDA_SUCCESS);
    assert_int_equal(map(range + 2 * GRANULE, GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_contains(sim_last_finding(), "lies in no reservation");
    assert_int_equal(map(range, GRANULE, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(map(range, GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_contains(sim_last_finding(), "mapped there already");
    /* Mapped, but access was never set. */
    assert_int_equal(cudaMemsetAsync((void *)range, 0, 4, NULL), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(NULL), cudaErrorIllegalAddress);
    sim_reset();
    assert_int_equal(unreserve(range, 2 * GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_contains(sim_last_finding(), "still mapped");
    assert_int_equal(unmap(range, 2 * GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(unmap(range, GRANULE), CUDA_SUCCESS);
    assert_int_equal(release(handle), CUDA_SUCCESS);
    assert_int_equal(release(handle), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(unreserve(range, 2 * GRANULE), CUDA_SUCCESS);
    assert_int_equal(create(&handle, (size_t)1 << 30, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

static void a_pool_keeps_what_its_threshold_lets_it(void **state)
{
    cudaMemPool_t pool;
    void *memory;
    uint64_t threshold = (uint64_t)64 << 20;
    uint64_t reserved;
    uint64_t zero = 0;
    (void)state;
    must(cudaDeviceGetDefaultMemPool(&pool, 0));
    must(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    must(cudaMallocAsync(&memory, 10 << 20, NULL));
    must(cudaFreeAsync(memory, NULL));
    must(cudaDeviceSynchronize());
    must(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    assert_int_equal(reserved, 32 << 20);
    assert_int_equal(cudaFreeAsync(memory, NULL), cudaErrorInvalidValue);
    must(cudaMemPoolTrimTo(pool, 0));
    must(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    assert_int_equal(reserved, 0);
    must(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &zero));
}

static void copies_in_wrong_directions_are_refused(void **state)
{
    char host[64] = {0};
    void *memory;
    (void)state;
    must(cudaMalloc(&memory, 64));
    assert_int_equal(cudaMemcpy(host, host, 64, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(memory, host, 64, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(memory, host, 65, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    must(cudaMemcpy(memory, host, 64, cudaMemcpyDefault));
    must(cudaFree(memory));
}

/* What the other process does: gives its memory's name away, and looks whether it has changed. */
static int other_process(int to, int from)
{
    cudaIpcMemHandle_t name;
    void *memory;
    int value = 41;
    char byte;

    if (cudaMalloc(&memory, 1000) != cudaSuccess ||
        cudaMemcpy(memory, &value, sizeof(value), cudaMemcpyHostToDevice) != cudaSuccess ||
        cudaIpcGetMemHandle(&name, memory) != cudaSuccess ||
        write(to, &name, sizeof(name)) != sizeof(name) || read(from, &byte, 1) != 1)
        return 1;
    cudaMemcpy(&value, memory, sizeof(value), cudaMemcpyDeviceToHost);
    return value == 42 ? 0 : 1;
}

static void memory_of_another_process_is_the_same_memory(void **state)
{
    cudaIpcMemHandle_t name;
    int ready[2];
    int done[2];
    char to[16];
    char from[16];
    int status;
    void *memory;
    (void)state;
    assert_int_equal(pipe(ready) | pipe(done), 0);
    snprintf(to, sizeof(to), "%d", ready[1]);
    snprintf(from, sizeof(from), "%d", done[0]);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "other", to, from, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(read(ready[0], &name, sizeof(name)), sizeof(name));
    must(cudaIpcOpenMemHandle(&memory, name, cudaIpcMemLazyEnablePeerAccess));
    must(plain_increment(memory, memory, 1, NULL));
    must(cudaDeviceSynchronize());
    assert_int_equal(sim_findings(), 0);
    assert_int_equal(write(done[1], "x", 1), 1);
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    must(cudaIpcCloseMemHandle(memory));
    must(cudaMalloc(&memory, 16));
    must(cudaIpcGetMemHandle(&name, memory));
    assert_int_not_equal(cudaIpcOpenMemHandle(&memory, name, cudaIpcMemLazyEnablePeerAccess),
                         cudaSuccess); /* never in the process that made it */
    must(cudaFree(memory));
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return other_process(atoi(argv[1]), atoi(argv[2]));
    const struct CMUnitTest tests[] = {
        TEST(memory_of_another_process_is_the_same_memory),
        TEST(new_memory_is_poisoned_and_counts_as_never_written),
        TEST(every_byte_is_charged_and_given_back),
        TEST(others_and_limits_leave_less),
        TEST(what_others_hold_can_change_while_the_program_runs),
        TEST(a_host_that_touches_device_memory_dies),
        TEST(a_second_free_is_found),
        TEST(a_handle_shows_the_same_bytes_wherever_it_is_mapped),
        TEST(kernels_run_across_handles_and_fault_behind_them),
        TEST(broken_rules_of_mapping_are_refused_in_words),
        TEST(a_pool_keeps_what_its_threshold_lets_it),
        TEST(copies_in_wrong_directions_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
