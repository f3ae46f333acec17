/* bench: a closed loop of N connections, each with one request at a time; rate and percentiles. */
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl.h"

enum { MOST_INPUTS = 1024, MOST_CONNECTIONS = 4096 };

struct load {
    const char *server;
    struct sluice_infer_request request;
    struct sluice_tensor inputs[MOST_INPUTS];
    void *bytes[MOST_INPUTS];
    unsigned connections;
    double seconds;
    uint64_t most; /* requests in all; 0: as many as fit the time */
    int64_t rows;  /* of open first dimensions */
    _Atomic uint64_t started;
    int64_t until_us;
};

struct worker {
    struct load *load;
    pthread_t thread;
    uint32_t *latency_us;
    size_t done, room;
    uint64_t failed;
    struct sluice_error first_error;
};

static int64_t now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void note_latency(struct worker *worker, int64_t us)
{
    if (worker->done == worker->room) {
        worker->room = worker->room * 2 + 1024;
        worker->latency_us =
            realloc(worker->latency_us, worker->room * sizeof(*worker->latency_us));
        if (worker->latency_us == NULL)
            abort();
    }
    worker->latency_us[worker->done++] = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

static bool may_start(struct load *load)
{
    return now_us() < load->until_us &&
           (load->most == 0 || atomic_fetch_add(&load->started, 1) < load->most);
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct load *load = worker->load;
    struct sluice_client *client;
    struct sluice_response *response;
    struct sluice_error error;

    if (sluice_open(load->server, &client, &worker->first_error) != SLUICE_OK) {
        worker->failed++;
        return NULL;
    }
    while (may_start(load)) {
        int64_t begin_us = now_us();

        if (sluice_infer(client, &load->request, &response, &error) == SLUICE_OK) {
            sluice_response_free(response);
            note_latency(worker, now_us() - begin_us);
            continue;
        }
        if (worker->failed++ == 0)
            worker->first_error = error;
        if (error.status == SLUICE_UNAVAILABLE)
            break;
    }
    sluice_close(client);
    return NULL;
}

static int compare_latency(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static uint32_t percentile(const uint32_t *sorted, size_t count, double share)
{
    return count == 0 ? 0 : sorted[(size_t)(share * (double)(count - 1) + 0.5)];
}

static int report(const struct ctl *ctl, const struct worker *workers, unsigned count,
                  double seconds)
{
    size_t done = 0, at = 0;
    uint64_t failed = 0;
    uint32_t *all;
    const struct sluice_error *error = NULL;

    for (unsigned i = 0; i < count; i++) {
        done += workers[i].done;
        failed += workers[i].failed;
        if (workers[i].failed > 0 && error == NULL)
            error = &workers[i].first_error;
    }
    all = malloc((done + 1) * sizeof(*all));
    if (all == NULL)
        abort();
    for (unsigned i = 0; i < count; i++) {
        if (workers[i].done > 0)
            memcpy(all + at, workers[i].latency_us, workers[i].done * sizeof(*all));
        at += workers[i].done;
    }
    qsort(all, done, sizeof(*all), compare_latency);
    (void)printf(ctl->as_json ? "{\"requests\": %zu, \"failed\": %" PRIu64 ", \"seconds\": %.3f, "
                                "\"requests_per_second\": %.1f, \"p50_us\": %u, \"p90_us\": %u, "
                                "\"p99_us\": %u, \"max_us\": %u}\n"
                              : "%zu requests, %" PRIu64 " failed, in %.1f s: %.1f a second\n"
                                "latency in us: median %u, 90 %% %u, 99 %% %u, longest %u\n",
                 done, failed, seconds, (double)done / seconds, percentile(all, done, 0.5),
                 percentile(all, done, 0.9), percentile(all, done, 0.99), percentile(all, done, 1));
    free(all);
    return error == NULL ? EXIT_DONE : ctl_fail(error);
}

static int run_load(const struct ctl *ctl, struct load *load)
{
    struct worker *workers = calloc(load->connections, sizeof(*workers));
    int64_t begin_us = now_us();
    unsigned started = 0;
    int exit_status;

    if (workers == NULL)
        abort();
    load->until_us = begin_us + (int64_t)(load->seconds * 1e6);
    for (; started < load->connections; started++) {
        workers[started].load = load;
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started]) != 0)
            break;
    }
    for (unsigned i = 0; i < started; i++)
        (void)pthread_join(workers[i].thread, NULL);
    exit_status = report(ctl, workers, started, (double)(now_us() - begin_us) / 1e6);
    for (unsigned i = 0; i < started; i++)
        free(workers[i].latency_us);
    free(workers);
    return exit_status;
}

static bool parse_load(struct ctl *ctl, struct load *load, const char **inputs)
{
    double number;
    int option;

    optind = 0;
    while ((option = getopt(ctl->argc, ctl->argv, "i:c:t:n:b:v:")) != -1) {
        switch (option) {
        case 'i':
            if (load->request.inputs == MOST_INPUTS)
                return false;
            inputs[load->request.inputs++] = optarg;
            break;
        case 'c':
            if (!ctl_number(optarg, MOST_CONNECTIONS, &number))
                return false;
            load->connections = (unsigned)number;
            break;
        case 't':
            if (!ctl_number(optarg, MOST_SECONDS, &load->seconds))
                return false;
            break;
        case 'n':
            if (!ctl_number(optarg, MOST_COUNT, &number))
                return false;
            load->most = (uint64_t)number;
            break;
        case 'b':
            if (!ctl_number(optarg, MOST_COUNT, &number))
                return false;
            load->rows = (int64_t)number;
            break;
        case 'v':
            load->request.version = optarg;
            break;
        default:
            return false;
        }
    }
    if (optind + 1 != ctl->argc || load->connections < 1 || load->connections > MOST_CONNECTIONS ||
        load->seconds <= 0 || load->rows < 1)
        return false;
    load->request.model = ctl->argv[optind];
    return true;
}

/* Inputs not given are random, in the declared shape with `rows` rows. */
static int fill_inputs(struct ctl *ctl, struct load *load, const char **given)
{
    struct port_info *ports;
    size_t count, given_count = load->request.inputs;
    int exit_status = fetch_inputs(ctl, load->request.model, load->request.version, &ports, &count);

    if (exit_status != EXIT_DONE)
        return exit_status;
    if (count > MOST_INPUTS) {
        (void)fprintf(stderr, "sluicectl: the model has %zu inputs, at most %d can be given\n",
                      count, MOST_INPUTS);
        exit_status = EXIT_USAGE;
        count = 0;
    }
    for (size_t g = 0; g < given_count; g++)
        if (input_port(given[g], ports, count) == NULL)
            exit_status = EXIT_USAGE;
    for (size_t i = 0; exit_status == EXIT_DONE && i < count; i++) {
        char random[512];
        const char *argument = random;

        if (ports[i].rank > 0 && ports[i].shape[0] < 0)
            ports[i].shape[0] = load->rows;
        (void)snprintf(random, sizeof(random), "%s=random:", ports[i].name);
        for (size_t g = 0; g < given_count; g++)
            if (strncmp(given[g], random, strlen(ports[i].name) + 1) == 0)
                argument = given[g];
        if (!input_parse(argument, ports, count, &load->inputs[i], &load->bytes[i]))
            exit_status = EXIT_USAGE;
        /* The ports go; the names live on in the request. */
        load->inputs[i].name = strdup(ports[i].name);
        load->inputs[i].datatype =
            strdup(load->inputs[i].datatype != NULL ? load->inputs[i].datatype : "");
    }
    load->request.inputs = count;
    load->request.input = load->inputs;
    free(ports);
    return exit_status;
}

int verb_bench(struct ctl *ctl)
{
    struct load load = {.server = ctl->server, .connections = 1, .seconds = 5, .rows = 1};
    const char *given[MOST_INPUTS];
    int exit_status;

    if (!parse_load(ctl, &load, given))
        return ctl_usage(
            "bench MODEL [-i NAME=VALUE] [-c CONNECTIONS] [-t SECONDS] [-n REQUESTS] [-b ROWS]");
    exit_status = fill_inputs(ctl, &load, given);
    if (exit_status == EXIT_DONE)
        exit_status = run_load(ctl, &load);
    for (size_t i = 0; i < load.request.inputs; i++) {
        free(load.bytes[i]);
        free((void *)load.inputs[i].name);
        free((void *)load.inputs[i].datatype);
    }
    return exit_status;
}
