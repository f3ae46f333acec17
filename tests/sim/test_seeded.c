/* Mistakes sown into kernels, and into the calls round them, are all found; what is right next to
 * them is never reported. */
#include "kernels/seeded.h"
#include "sim.h"
#include "support.h"

#include <string.h>

#define N 256

struct fixture {
    cudaStream_t stream;
    float *in;
    float *out;
    float host[4 * N];
};

static int setup(void **state)
{
    static struct fixture fixture;

    sim_reset();
    sim_set_mode(SIM_EAGER);
    for (int i = 0; i < 4 * N; i++)
        fixture.host[i] = (float)(i % 17);
    must(cudaStreamCreateWithFlags(&fixture.stream, cudaStreamNonBlocking));
    must(cudaMalloc((void **)&fixture.in, 4 * N * sizeof(float)));
    must(cudaMalloc((void **)&fixture.out, N * sizeof(float)));
    must(cudaMemcpy(fixture.in, fixture.host, 4 * N * sizeof(float), cudaMemcpyHostToDevice));
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    sim_set_mode(SIM_EAGER);
    sim_reset();
    must(cudaFree(fixture->in));
    must(cudaFree(fixture->out));
    must(cudaStreamDestroy(fixture->stream));
    assert_int_equal(sim_open(NULL), 0);
    return 0;
}

/* The launch, and then the wait, must end like this; a finding must speak of `words`. */
static void found(struct fixture *fixture, int launched, int end, const char *words)
{
    if (launched != cudaSuccess) /* the eager mode is as early as can be */
        assert_int_equal(launched, end);
    assert_int_equal(cudaStreamSynchronize(fixture->stream), end);
    assert_int_equal(sim_findings(), 1);
    assert_contains(sim_last_finding(), words);
    /* From now on everything fails the same way. */
    assert_int_equal(cudaMemsetAsync(fixture->out, 0, 4, fixture->stream), end);
    assert_int_equal(cudaGetLastError(), end);
}

static void clean(struct fixture *fixture, int launched)
{
    assert_int_equal(launched, cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(fixture->stream), cudaSuccess);
    assert_string_equal(sim_last_finding(), "");
}

static void a_missing_barrier_is_found(void **state)
{
    struct fixture *f = *state;
    float sums[4];

    clean(f, seeded_block_sum(f->out, f->in, 4, 0, f->stream));
    must(cudaMemcpy(sums, f->out, sizeof(sums), cudaMemcpyDeviceToHost));
    for (int b = 0; b < 4; b++) {
        float sum = 0;
        for (int i = 0; i < N; i++)
            sum += f->host[b * N + i];
        assert_true(sums[b] == sum);
    }
    found(f, seeded_block_sum(f->out, f->in, 4, 1, f->stream), cudaErrorLaunchFailure,
          "race in shared memory");
    assert_contains(sim_last_finding(), "seeded.cu:");
}

static void a_missing_barrier_of_the_warp_is_found(void **state)
{
    struct fixture *f = *state;

    clean(f, seeded_warp_sum(f->out, f->in, 0, f->stream));
    found(f, seeded_warp_sum(f->out, f->in, 1, f->stream), cudaErrorLaunchFailure,
          "race in shared memory");
}

static void a_write_behind_the_end_is_found(void **state)
{
    struct fixture *f = *state;

    clean(f, seeded_double(f->out, f->in, N, 0, f->stream));
    found(f, seeded_double(f->out, f->in, N, 1, f->stream), cudaErrorIllegalAddress,
          "invalid global write of 4 bytes");
}

static void a_read_behind_the_end_is_found(void **state)
{
    struct fixture *f = *state;

    found(f, seeded_double(f->out, f->in + 3 * N, N, 2, f->stream), cudaErrorIllegalAddress,
          "invalid global read of 4 bytes");
}

static void a_divergent_barrier_is_found(void **state)
{
    struct fixture *f = *state;

    clean(f, seeded_divergent(f->out, f->in, 100, 0, f->stream));
    found(f, seeded_divergent(f->out, f->in, 100, 1, f->stream), cudaErrorLaunchFailure,
          "different barriers");
}

static void a_wrong_stride_is_found(void **state)
{
    struct fixture *f = *state;
    float back[N];

    clean(f, seeded_transpose(f->out, f->in, 8, 32, 0, f->stream));
    must(cudaMemcpy(back, f->out, sizeof(back), cudaMemcpyDeviceToHost));
    assert_string_equal(sim_last_finding(), "");
    assert_true(back[3 * 8 + 5] == f->host[5 * 32 + 3]);
    /* Wider than high: rows are written far behind the end. */
    found(f, seeded_transpose(f->out, f->in, 8, 32, 1, f->stream), cudaErrorIllegalAddress,
          "invalid global write");
}

static void a_wrong_stride_within_bounds_leaves_bytes_unwritten(void **state)
{
    struct fixture *f = *state;
    float *fresh;
    float back[N];

    /* Higher than wide: rows overwrite each other, the tail is never written. */
    must(cudaMalloc((void **)&fresh, sizeof(back)));
    assert_int_equal(seeded_transpose(fresh, f->in, 32, 8, 1, f->stream), cudaSuccess);
    must(cudaMemcpy(back, fresh, sizeof(back), cudaMemcpyDeviceToHost));
    assert_contains(sim_last_finding(), "was never written");
    must(cudaFree(fresh));
}

static void a_misaligned_vector_is_found(void **state)
{
    struct fixture *f = *state;

    clean(f, seeded_vector(f->out, f->in, N, 0, f->stream));
    found(f, seeded_vector(f->out, f->in, N, 1, f->stream), cudaErrorMisalignedAddress,
          "misaligned read of 16 bytes");
}

static void shared_memory_that_nobody_wrote_is_found(void **state)
{
    struct fixture *f = *state;

    float back[64];

    clean(f, seeded_uninitialised((int *)f->out, (int *)f->in, 0, f->stream));
    must(cudaMemcpy(back, f->out, sizeof(back), cudaMemcpyDeviceToHost));
    assert_int_equal(sim_findings(), 0);
    /* The value goes where it goes: it is found out when the host gets it. */
    clean(f, seeded_uninitialised((int *)f->out, (int *)f->in, 1, f->stream));
    must(cudaMemcpy(back, f->out, sizeof(back), cudaMemcpyDeviceToHost));
    assert_contains(sim_last_finding(), "the byte at +224 was never written");
}

static void an_index_that_nobody_wrote_is_found(void **state)
{
    struct fixture *f = *state;
    int *index;

    must(cudaMalloc((void **)&index, N * sizeof(int)));
    must(cudaMemset(index, 0, N * sizeof(int)));
    clean(f, seeded_scatter((int *)f->out, index, N, f->stream));
    must(cudaFree(index));
    must(cudaMalloc((void **)&index, N * sizeof(int)));
    found(f, seeded_scatter((int *)f->out, index, N, f->stream), cudaErrorLaunchFailure,
          "an address comes from a register or memory that was never written");
    sim_reset();
    must(cudaFree(index));
}

static void a_missing_wait_for_async_copies_is_found(void **state)
{
    struct fixture *f = *state;
    float back[64];

    clean(f, seeded_async(f->out, f->in, 0, f->stream));
    must(cudaMemcpy(back, f->out, sizeof(back), cudaMemcpyDeviceToHost));
    assert_true(back[1] == f->host[62 * 4] || back[1] == f->host[62 * 4 + 1]);
    assert_int_equal(sim_findings(), 0);
    found(f, seeded_async(f->out, f->in, 1, f->stream), cudaErrorLaunchFailure,
          "with a copy that has not been waited for");
}

static void a_wait_for_the_group_before_an_async_copy_is_found(void **state)
{
    struct fixture *f = *state;

    found(f, seeded_async(f->out, f->in, 4, f->stream), cudaErrorLaunchFailure,
          "with a copy that has not been waited for");
}

static void a_missing_barrier_behind_an_async_copy_is_found(void **state)
{
    struct fixture *f = *state;

    found(f, seeded_async(f->out, f->in, 2, f->stream), cudaErrorLaunchFailure,
          "race in shared memory");
}

static void an_async_copy_over_what_others_still_read_is_found(void **state)
{
    struct fixture *f = *state;

    found(f, seeded_async(f->out, f->in, 3, f->stream), cudaErrorLaunchFailure,
          "race in shared memory");
}

static void a_shuffle_that_lanes_never_come_to_is_found(void **state)
{
    struct fixture *f = *state;

    clean(f, seeded_shuffle((int *)f->out, 0, f->stream));
    found(f, seeded_shuffle((int *)f->out, 1, f->stream), cudaErrorLaunchTimeout, "never come");
}

static void a_lane_outside_its_own_mask_is_found(void **state)
{
    struct fixture *f = *state;

    found(f, seeded_shuffle((int *)f->out, 2, f->stream), cudaErrorLaunchFailure,
          "does not name the thread itself");
}

static void counting_without_atomics_is_found(void **state)
{
    struct fixture *f = *state;
    int counts[4];

    clean(f, seeded_count((int *)f->out, (int *)f->in, 0, f->stream));
    must(cudaMemcpy(counts, f->out, sizeof(counts), cudaMemcpyDeviceToHost));
    assert_int_equal(counts[0] + counts[1] + counts[2] + counts[3], 128);
    found(f, seeded_count((int *)f->out, (int *)f->in, 1, f->stream), cudaErrorLaunchFailure,
          "race in shared memory");
}

static void shared_memory_behind_its_end_is_found(void **state)
{
    struct fixture *f = *state;

    clean(f, seeded_dynamic(f->out, 64, 0, f->stream));
    found(f, seeded_dynamic(f->out, 64, 1, f->stream), cudaErrorIllegalAddress,
          "invalid shared write");
}

static void a_kernel_without_end_is_found(void **state)
{
    struct fixture *f = *state;

    must(cudaMemset(f->out, 0, 4));
    sim_set_endless(100000);
    found(f, seeded_endless((int *)f->out, f->stream), cudaErrorLaunchTimeout, "still running");
}

static void a_failed_assertion_and_a_trap_end_the_kernel(void **state)
{
    struct fixture *f = *state;
    int *flag = (int *)f->out;

    must(cudaMemset(flag, 0, 4));
    clean(f, plain_assert(flag, f->stream));
    clean(f, plain_trap(flag, f->stream));
    must(cudaMemset(flag, 1, 4));
    found(f, plain_assert(flag, f->stream), cudaErrorAssert, "assertion");
    sim_reset();
    found(f, plain_trap(flag, f->stream), cudaErrorIllegalInstruction, "trap");
}

static void a_missing_wait_between_streams_is_found(void **state)
{
    struct fixture *f = *state;
    cudaStream_t copies;
    cudaEvent_t copied;
    float *fresh;

    sim_set_mode(SIM_LAZY);
    must(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
    must(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
    for (int bug = 0; bug < 2; bug++) {
        must(cudaMalloc((void **)&fresh, N * sizeof(int)));
        must(cudaMemsetAsync(fresh, 0, N * sizeof(int), copies));
        must(cudaEventRecord(copied, copies));
        if (!bug)
            must(cudaStreamWaitEvent(f->stream, copied, 0));
        if (bug)
            found(f, seeded_scatter((int *)f->out, (int *)fresh, N, f->stream),
                  cudaErrorLaunchFailure, "never written");
        else
            clean(f, seeded_scatter((int *)f->out, (int *)fresh, N, f->stream));
        sim_reset();
        must(cudaFree(fresh));
    }
    must(cudaEventDestroy(copied));
    must(cudaStreamDestroy(copies));
}

static void a_buffer_that_is_reused_too_early_changes_the_result(void **state)
{
    struct fixture *f = *state;
    float *pinned;
    float back;

    sim_set_mode(SIM_LAZY);
    must(cudaMallocHost((void **)&pinned, sizeof(float)));
    for (int bug = 0; bug < 2; bug++) {
        *pinned = 1;
        must(cudaMemcpyAsync(f->in, pinned, sizeof(float), cudaMemcpyHostToDevice, f->stream));
        if (!bug)
            must(cudaStreamSynchronize(f->stream));
        *pinned = 2;
        must(cudaStreamSynchronize(f->stream));
        must(cudaMemcpy(&back, f->in, sizeof(back), cudaMemcpyDeviceToHost));
        assert_true(back == (bug ? 2 : 1));
    }
    must(cudaFreeHost(pinned));
}

static void memory_freed_before_its_kernel_ran_is_found(void **state)
{
    struct fixture *f = *state;
    int *buffer;
    cudaStream_t other;

    sim_set_mode(SIM_LAZY);
    must(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (int bug = 0; bug < 2; bug++) {
        must(cudaMallocAsync((void **)&buffer, N * sizeof(int), f->stream));
        assert_int_equal(plain_increment(buffer, (int *)f->in, N, f->stream), cudaSuccess);
        must(cudaFreeAsync(buffer, bug ? other : f->stream));
        must(cudaStreamSynchronize(other)); /* with the bug: the memory goes before the kernel */
        assert_int_equal(cudaStreamSynchronize(f->stream),
                         bug ? cudaErrorIllegalAddress : cudaSuccess);
    }
    assert_contains(sim_last_finding(), "nothing is mapped there");
    sim_reset();
    must(cudaStreamDestroy(other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_missing_barrier_is_found),
        TEST(a_missing_barrier_of_the_warp_is_found),
        TEST(a_write_behind_the_end_is_found),
        TEST(a_read_behind_the_end_is_found),
        TEST(a_divergent_barrier_is_found),
        TEST(a_wrong_stride_is_found),
        TEST(a_wrong_stride_within_bounds_leaves_bytes_unwritten),
        TEST(a_misaligned_vector_is_found),
        TEST(shared_memory_that_nobody_wrote_is_found),
        TEST(an_index_that_nobody_wrote_is_found),
        TEST(a_missing_wait_for_async_copies_is_found),
        TEST(a_wait_for_the_group_before_an_async_copy_is_found),
        TEST(a_missing_barrier_behind_an_async_copy_is_found),
        TEST(an_async_copy_over_what_others_still_read_is_found),
        TEST(a_shuffle_that_lanes_never_come_to_is_found),
        TEST(a_lane_outside_its_own_mask_is_found),
        TEST(counting_without_atomics_is_found),
        TEST(shared_memory_behind_its_end_is_found),
        TEST(a_kernel_without_end_is_found),
        TEST(a_failed_assertion_and_a_trap_end_the_kernel),
        TEST(a_missing_wait_between_streams_is_found),
        TEST(a_buffer_that_is_reused_too_early_changes_the_result),
        TEST(memory_freed_before_its_kernel_ran_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
