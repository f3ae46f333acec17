/* What a convolution of the library takes of the host's memory, measured: plans are counted by an
 * estimate, and a cache of plans whose estimate is too low grows past its limit unseen. */
#include "support/unit.h"

#include <stdio.h>
#include <unistd.h>

#include "device/cpu/onednn/onednn.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLACK = 4 }; /* a sanitizer's shadow and redzones are not the library's */
#else
enum { SLACK = 1 };
#endif

/* More than the library keeps for their next user, so that none is shared. */
enum { CONVOLUTIONS = 100, WARM = 8, BLOCK = 16, LEAST_SHARE = 16 };

struct kind {
    const char *name;
    int64_t kernel, stride;
    bool depthwise;
};

static const struct kind kinds[] = {
    {"3x3", 3, 1, false}, {"1x1", 1, 1, false}, {"3x3 stride 2", 3, 2, false},
    {"5x5", 5, 1, false}, {"7x7", 7, 1, false}, {"depthwise 3x3", 3, 1, true},
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static size_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*u %lu", &pages), 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* The nth of a kind: no two have the same image. */
static struct onednn_conv_spec spec_of(const struct kind *kind, enum cpu_isa isa, int64_t nth)
{
    int64_t size = 20 + nth, channels = 64, pad = kind->kernel / 2;
    int64_t out = (size + 2 * pad - kind->kernel) / kind->stride + 1;
    struct onednn_conv_spec spec = {
        .geometry = {.batch = 1,
                     .in_channels = channels,
                     .out_channels = channels,
                     .groups = kind->depthwise ? channels : 1,
                     .window = {.spatial = 2}},
        .x_layout = LAYOUT_BLOCKED,
        .y_layout = LAYOUT_BLOCKED,
        .block = isa == CPU_AVX512 ? BLOCK : BLOCK / 2,
        .isa = isa,
        .has_bias = true,
        .lanes = 2,
        .threads = 1,
    };

    for (size_t i = 0; i < 2; i++) {
        spec.geometry.window.in[i] = size;
        spec.geometry.window.out[i] = out;
        spec.geometry.window.kernel[i] = kind->kernel;
        spec.geometry.window.stride[i] = kind->stride;
        spec.geometry.window.dilation[i] = 1;
        spec.geometry.window.pad_begin[i] = spec.geometry.window.pad_end[i] = pad;
    }
    return spec;
}

static enum cpu_isa best_isa(void)
{
    const struct device_config config = {
        .name = "cpu", .lanes = 1, .threads = 1, .precision = "strict"};
    struct device *device;
    struct error err;
    enum cpu_isa isa;

    device_register(&device_cpu_ops);
    assert_ok(device_open(&config, &device, &err));
    isa = cpu_isa_of(device);
    device_close(device);
    return isa;
}

static void make(const struct kind *kind, enum cpu_isa isa, int64_t from, size_t count,
                 struct onednn_conv **out)
{
    struct error err;

    for (size_t i = 0; i < count; i++) {
        const struct onednn_conv_spec spec = spec_of(kind, isa, from + (int64_t)i);

        if (onednn_conv_create(&spec, &out[i], &err) != STATUS_OK)
            fail_msg("%s: %s", kind->name, err.text);
    }
}

static void the_estimate_of_a_convolution_is_an_upper_bound_within_reason(void **state)
{
    static struct onednn_conv
        *conv[KINDS][WARM + CONVOLUTIONS]; /* all alive: none has used memory */
    enum cpu_isa isa = best_isa();
    size_t most = 0;

    (void)state;
    if (isa == CPU_BASELINE) { /* there it is never used: no code is generated */
        const struct onednn_conv_spec spec = spec_of(&kinds[0], isa, 0);

        assert_false(onednn_conv_is_possible(&spec));
        return;
    }
    for (size_t k = 0; k < KINDS; k++) {
        size_t before, each;

        make(&kinds[k], isa, 1000, WARM, conv[k]); /* the library, and what it needs once */
        before = resident_bytes();
        make(&kinds[k], isa, 0, CONVOLUTIONS, conv[k] + WARM);
        each = (resident_bytes() - before) / CONVOLUTIONS;
        printf("%s: %zu bytes each\n", kinds[k].name, each);
        most = each > most ? each : most;
    }
    for (size_t k = 0; k < KINDS; k++)
        for (size_t i = 0; i < WARM + CONVOLUTIONS; i++)
            onednn_conv_destroy(conv[k][i]);
    assert_true(most <= SLACK * onednn_conv_host_bytes());
    assert_true(most >= onednn_conv_host_bytes() / LEAST_SHARE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_estimate_of_a_convolution_is_an_upper_bound_within_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
