/* The best of a few short tries: what disturbs a try only makes it slower. */
#include "device/cpu/peak.h"

#include <unistd.h>

#include "base/clock.h"
#include "device/cpu/cpu.h"
#include "device/cpu/team.h"

enum {
    MULTIPLY_ROUNDS = 100000, /* half a millisecond or so */
    MULTIPLY_TRIES = 12,
    READ_TRIES = 8,
    CACHED_PASSES = 16, /* over what the caches hold, in a try */
    CACHE_GUESS = 256 << 10
};

struct measured {
    const struct peak_ops *ops;
    const float *room;
    size_t floats;
    unsigned passes;
    volatile float result;
};

static void multiply(void *arg, unsigned member, unsigned members)
{
    struct measured *measured = arg;

    (void)members;
    if (measured->ops->multiply(MULTIPLY_ROUNDS) < 0 && member == 0)
        measured->result = 0;
}

static void read_share(void *arg, unsigned member, unsigned members)
{
    struct measured *measured = arg;
    size_t from, to;

    team_share(measured->floats, member, members, &from, &to);
    for (unsigned i = 0; i < measured->passes; i++)
        if (measured->ops->read_all(measured->room + from, to - from) < 0 && member == 0)
            measured->result = 0;
}

static double best_seconds(const struct device_lane *lane, team_fn fn, struct measured *measured,
                           int tries)
{
    int64_t best = INT64_MAX;

    for (int i = 0; i < tries; i++) {
        int64_t start = clock_now_ns(), spent;

        team_run(lane->threads, fn, measured);
        spent = clock_now_ns() - start;
        if (spent < best)
            best = spent;
    }
    return best > 0 ? (double)best / 1e9 : 1e-9;
}

/* Bytes a second, of the first `bytes` read again and again. */
static double read_rate(const struct device_lane *lane, struct measured *measured, size_t bytes,
                        unsigned passes)
{
    measured->floats = bytes / sizeof(float);
    measured->passes = passes;
    return (double)bytes * passes / best_seconds(lane, read_share, measured, READ_TRIES);
}

/* Of one core, behind its first. */
static size_t second_cache(void)
{
    long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);

    return bytes > 0 ? (size_t)bytes : CACHE_GUESS;
}

void peak_measure(struct device_lane *lane, const void *room, size_t bytes,
                  struct device_peaks *out_peaks)
{
    static const struct peak_ops *const by_isa[CPU_ISA_COUNT] = {
        [CPU_BASELINE] = &peak_ops_base,
        [CPU_AVX2] = &peak_ops_avx2,
        [CPU_AVX512] = &peak_ops_avx512,
    };
    struct measured measured = {.ops = by_isa[cpu_isa_of(lane->device)], .room = room};
    size_t cache = second_cache() * lane->threads;
    double flops = (double)measured.ops->round_flops * MULTIPLY_ROUNDS * lane->threads;

    out_peaks->flops = flops / best_seconds(lane, multiply, &measured, MULTIPLY_TRIES);
    out_peaks->bytes = read_rate(lane, &measured, bytes, 1);
    out_peaks->cached_bytes =
        read_rate(lane, &measured, cache / 2 < bytes ? cache / 2 : bytes, CACHED_PASSES);
    out_peaks->cache_size = cache;
}
