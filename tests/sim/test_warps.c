/* Lanes together: matrices, shuffles, atomics, divergence, calls; and where parameters and
 * variables lie.  Each against a plain loop of the host. */
#include "kernels/warps.h"
#include "sim.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>

static uint16_t half_bits(float value) /* of numbers that half precision has, no tiny ones */
{
    int exponent;
    float fraction = frexpf(fabsf(value), &exponent);

    if (value == 0)
        return 0;
    return (uint16_t)((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 |
                      (int)((fraction * 2 - 1) * 1024));
}

static uint16_t brain_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (uint16_t)(bits >> 16);
}

static void *device_of(const void *host, size_t bytes)
{
    void *device;
    must(cudaMalloc(&device, bytes));
    if (host != NULL)
        must(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
    else
        must(cudaMemset(device, 0, bytes));
    return device;
}

static void to_host(void *host, void *device, size_t bytes)
{
    must(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
    must(cudaFree(device));
}

static int number(int row, int column, int salt)
{
    return (row * 7 + column * 13 + salt * 5) % 11 - 5;
}

static const struct {
    int k;
    int bytes; /* of an element of a and b */
    int low;   /* added to each element, so that unsigned ones are */
} kinds[] = {{16, 2, 0}, {16, 2, 0}, {8, 2, 0}, {8, 4, 0}, {32, 1, 0}, {16, 1, 5}};

static void element_put(void *to, int at, int kind, int value)
{
    float number_of = (float)value / (kind <= 3 ? 4 : 1);

    if (kind == 0 || kind == 2)
        ((uint16_t *)to)[at] = half_bits(number_of);
    else if (kind == 1)
        ((uint16_t *)to)[at] = brain_bits(number_of);
    else if (kind == 3)
        ((float *)to)[at] = number_of;
    else
        ((int8_t *)to)[at] = (int8_t)value;
}

static void products_of_matrices_are_right(void **state)
{
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        char a[16 * 32 * 4];
        char b[8 * 32 * 4];
        float c[128];
        int ci[128];
        float d[128];
        int k_count = kinds[kind].k;
        for (int row = 0; row < 16; row++)
            for (int k = 0; k < k_count; k++)
                element_put(a, row * k_count + k, kind, number(row, k, 1) + kinds[kind].low);
        for (int column = 0; column < 8; column++)
            for (int k = 0; k < k_count; k++)
                element_put(b, column * k_count + k, kind, number(column, k, 2) + kinds[kind].low);
        for (int i = 0; i < 128; i++)
            c[i] = (float)(ci[i] = i % 9);
        void *device_a = device_of(a, (size_t)(16 * k_count * kinds[kind].bytes));
        void *device_b = device_of(b, (size_t)(8 * k_count * kinds[kind].bytes));
        void *device_c = device_of(kind <= 3 ? (void *)c : (void *)ci, sizeof(c));
        void *device_d = device_of(NULL, sizeof(d));
        must(warps_mma(device_d, device_a, device_b, device_c, kind));
        to_host(d, device_d, sizeof(d));
        must(cudaFree(device_a));
        must(cudaFree(device_b));
        must(cudaFree(device_c));
        for (int row = 0; row < 16; row++)
            for (int column = 0; column < 8; column++) {
                double sum = 0;
                for (int k = 0; k < k_count; k++)
                    sum += (number(row, k, 1) + kinds[kind].low) *
                           (double)(number(column, k, 2) + kinds[kind].low);
                sum = sum / (kind <= 3 ? 16 : 1) + ci[row * 8 + column];
                int as_int;
                memcpy(&as_int, &d[row * 8 + column], 4);
                double got = kind <= 3 ? d[row * 8 + column] : as_int;
                if (got != sum)
                    fail_msg("kind %d: d[%d][%d] is %g, not %g", kind, row, column, got, sum);
            }
    }
}

static void ldmatrix_brings_each_lane_its_elements(void **state)
{
    uint16_t in[256];
    float out[256];
    (void)state;
    for (int i = 0; i < 256; i++)
        in[i] = half_bits((float)i);
    for (int transposed = 0; transposed < 2; transposed++) {
        void *device_in = device_of(in, sizeof(in));
        void *device_out = device_of(NULL, sizeof(out));
        must(warps_ldmatrix(device_out, device_in, transposed));
        to_host(out, device_out, sizeof(out));
        must(cudaFree(device_in));
        for (int row = 0; row < 16; row++)
            for (int column = 0; column < 16; column++) {
                int from = transposed ? (row / 8 * 8 + column % 8) * 16 + column / 8 * 8 + row % 8
                                      : row * 16 + column;
                assert_true(out[row * 16 + column] == (float)from);
            }
    }
}

static void wmma_multiplies(void **state)
{
    uint16_t a[256];
    uint16_t b[256];
    float d[256];
    (void)state;
    for (int i = 0; i < 256; i++) {
        a[i] = half_bits((float)number(i / 16, i % 16, 3));
        b[i] = half_bits((float)number(i / 16, i % 16, 4));
    }
    void *device_a = device_of(a, sizeof(a));
    void *device_b = device_of(b, sizeof(b));
    void *device_d = device_of(NULL, sizeof(d));
    must(warps_wmma(device_d, device_a, device_b));
    to_host(d, device_d, sizeof(d));
    must(cudaFree(device_a));
    must(cudaFree(device_b));
    for (int i = 0; i < 256; i++) {
        int sum = 0;
        for (int k = 0; k < 16; k++)
            sum += number(i / 16, k, 3) * number(k, i % 16, 4);
        assert_true(d[i] == (float)(2 * sum));
    }
}

static void lanes_exchange_what_they_should(void **state)
{
    unsigned in[32];
    unsigned out[10][32];
    unsigned ballot = 0;
    unsigned sum = 0;
    unsigned above = 0;
    (void)state;
    for (unsigned i = 0; i < 32; i++) {
        in[i] = i * i % 23 + i;
        ballot |= (in[i] & 1) << i;
        sum += in[i];
        above += in[i] > 5;
    }
    void *device_in = device_of(in, sizeof(in));
    void *device_out = device_of(NULL, sizeof(out));
    must(warps_exchange(device_out, device_in));
    to_host(out, device_out, sizeof(out));
    must(cudaFree(device_in));
    for (unsigned t = 0; t < 32; t++) {
        unsigned same = 0;
        for (unsigned i = 0; i < 32; i++)
            same |= (unsigned)((in[i] & 3) == (in[t] & 3)) << i;
        assert_int_equal(out[0][t], in[t < 3 ? t : t - 3]);
        assert_int_equal(out[1][t], in[t % 16 + 5 < 16 ? t + 5 : t]);
        assert_int_equal(out[2][t], in[9]);
        assert_int_equal(out[3][t], in[t ^ 6]);
        assert_int_equal(out[4][t], ballot);
        assert_int_equal(out[5][t], same);
        assert_int_equal(out[6][t], sum);
        assert_int_equal(out[7][t], above);
        assert_int_equal(out[8][t], (1u << t) - 1);
    }
}

static void atomics_of_all_blocks_add_up(void **state)
{
    enum { N = 1000 };
    struct {
        int i;
        float f;
        double d;
        uint16_t h[2];
        uint16_t b[2];
        int least;
        int most;
        int looped;
    } sums = {.least = 1 << 30};
    int in[N];
    int sum = 0;
    (void)state;
    for (int i = 0; i < N; i++)
        sum += in[i] = i * 37 % 101;
    void *device_in = device_of(in, sizeof(in));
    void *device_out = device_of(&sums, sizeof(sums));
    must(warps_atomics(device_out, device_in, N));
    to_host(&sums, device_out, sizeof(sums));
    must(cudaFree(device_in));
    assert_int_equal(sums.i, sum);
    assert_true(sums.f == (float)sum);
    assert_true(sums.d == sum);
    assert_int_equal(sums.h[0], half_bits(1000));
    assert_int_equal(sums.h[1], half_bits(2000));
    assert_int_equal(sums.b[0], brain_bits(256)); /* 257 is no bfloat16 */
    assert_int_equal(sums.least, 0);
    assert_int_equal(sums.most, 100);
    assert_int_equal(sums.looped, sum);
}

static float series(float x, int n)
{
    float sum = 0;
    for (int i = 1; i <= n && i < 7; i++)
        sum += x / (float)i;
    return sum;
}

static void functions_that_are_called_return(void **state)
{
    enum { N = 64 };
    float in[N];
    float out[N];
    (void)state;
    for (int i = 0; i < N; i++)
        in[i] = (float)i / 3;
    void *device_in = device_of(in, sizeof(in));
    void *device_out = device_of(NULL, sizeof(out));
    must(warps_calls(device_out, device_in, N));
    to_host(out, device_out, sizeof(out));
    must(cudaFree(device_in));
    for (int i = 0; i < N; i++)
        assert_true(fabsf(out[i] - (series(in[i], i % 10) + series(in[i] + 1, 3))) <= 1e-4f);
}

static int diverged(int t)
{
    int sum = 0;
    for (int i = 0; i < t; i++) {
        if (i % 7 == 5)
            continue;
        if (i > 20 && t % 3 == 0)
            break;
        switch (i % 5) {
        case 0:
            sum += 1;
            break;
        case 1:
            sum *= 2;
            break;
        case 2:
            sum -= t;
            break;
        default:
            sum ^= i;
        }
        sum &= 0xFFFF;
    }
    return sum;
}

static void lanes_that_part_come_together_again(void **state)
{
    enum { N = 50 };
    int out[N];
    (void)state;
    void *device_out = device_of(NULL, sizeof(out));
    must(warps_diverge(device_out, N));
    to_host(out, device_out, sizeof(out));
    for (int t = 0; t < N; t++)
        assert_int_equal(out[t], diverged(t));
}

static void variables_and_parameters_are_where_they_should_be(void **state)
{
    enum { N = 40 };
    float table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    float out[N];
    long long wide[N];
    const long long big = 123456789012345LL;
    const int three[] = {10, 20, 30};
    (void)state;
    void *device_out = device_of(NULL, sizeof(out));
    must(warps_variables(device_out, table, N));
    to_host(out, device_out, sizeof(out));
    void *device_wide = device_of(NULL, sizeof(wide));
    must(warps_parameters(device_wide, N));
    to_host(wide, device_wide, sizeof(wide));
    for (int i = 0; i < N; i++) {
        assert_true(out[i] == table[i % 8] + 5);
        assert_true(wide[i] == big / (i + 1 + (i & 3)) + big % (i + 3) + three[i % 3] + 3 + 7);
    }
}

static void every_kernel_of_this_program_can_be_run(void **state)
{
    (void)state;
    assert_int_equal(sim_refused_kernels(), 0);
}

static int no_findings(void **state)
{
    (void)state;
    assert_string_equal(sim_last_finding(), "");
    assert_int_equal(sim_open(NULL), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(products_of_matrices_are_right, no_findings),
        cmocka_unit_test_teardown(ldmatrix_brings_each_lane_its_elements, no_findings),
        cmocka_unit_test_teardown(wmma_multiplies, no_findings),
        cmocka_unit_test_teardown(lanes_exchange_what_they_should, no_findings),
        cmocka_unit_test_teardown(atomics_of_all_blocks_add_up, no_findings),
        cmocka_unit_test_teardown(functions_that_are_called_return, no_findings),
        cmocka_unit_test_teardown(lanes_that_part_come_together_again, no_findings),
        cmocka_unit_test_teardown(every_kernel_of_this_program_can_be_run, no_findings),
        cmocka_unit_test_teardown(variables_and_parameters_are_where_they_should_be, no_findings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
