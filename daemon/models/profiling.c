#include "models/profiling.h"

#include "base/clock.h"

#define PROFILING_US INT64_C(1000000)
#define SEED         UINT64_C(0x5EEDF00D)

enum { WARM_RUNS = 2, LEAST_RUNS = 3 };

static enum status run_once(struct probe *probe, const struct probe_data *data, struct error *err)
{
    struct probe_answer answer;

    TRY(probe_run(probe, data, &answer, err));
    probe_answer_deinit(&answer);
    return STATUS_OK;
}

static enum status run_all(struct probe *probe, const struct probe_data *data,
                           struct profile *profile, struct error *err)
{
    int64_t until_us;
    size_t runs = 0;

    for (int i = 0; i < WARM_RUNS; i++)
        TRY(run_once(probe, data, err));
    probe->profile = profile;
    until_us = clock_now_us() + PROFILING_US;
    while (runs < LEAST_RUNS || (runs < PROFILE_RUNS && clock_now_us() < until_us)) {
        TRY(run_once(probe, data, err));
        runs++;
    }
    return STATUS_OK;
}

enum status profiling_run(struct batcher *batcher, struct network *network, const char *name,
                          const struct shape *shapes, struct profile **out_profile,
                          struct error *err)
{
    struct profile *profile = NULL;
    struct probe_data data;
    struct probe probe;
    enum status status;

    TRY(probe_init(&probe, batcher, network, name, false, err));
    status = probe_data_make(&data, &probe, shapes, SAMPLE_RANDOM, SEED);
    if (status == STATUS_OK) {
        profile = profile_create();
        status = profile == NULL ? STATUS_NO_MEMORY : run_all(&probe, &data, profile, err);
        probe_data_deinit(&data);
    }
    probe_deinit(&probe);
    if (status != STATUS_OK) {
        if (profile == NULL)
            (void)error_set(err, status, "model '%s': no host memory to profile it", name);
        profile_destroy(profile);
        return status;
    }
    *out_profile = profile;
    return STATUS_OK;
}
