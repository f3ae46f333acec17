/* filetype: asks a running sluiced what files are, by the model `magika`.
 *
 *     filetype [--server ADDR] [--labels FILE] [--connections N] [--expected FILE] [--quiet] FILE…
 *
 * Each file is one request; N connections work through the list side by side, and the daemon forms
 * batches of what is there at the same time.  With --expected (columns: file name, true kind, a
 * reference's answer and score) the answers are compared and the exit status tells.
 */
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sluice/sluice.h>

enum {
    HALF = 1024,   /* bytes of the beginning and of the end that the model sees */
    BLOCK = 4096,  /* … taken from so much of the file, white space cut off */
    PADDING = 256, /* stands where the file has no byte */
    MOST_LABELS = 1024,
    MOST_CONNECTIONS = 256
};
static const double SCORE_TOLERANCE = 1e-5;

struct answer {
    const char *path;
    int label; /* -1: no answer */
    float score;
    char problem[256];
};

struct expectation {
    char name[128];
    char kind[64];
    char reference[64];
    double score;
};

struct work {
    const char *server;
    struct answer *answers;
    size_t count;
    size_t repeat; /* times through the list */
    atomic_size_t next;
    atomic_size_t failed;
};

static char *labels[MOST_LABELS];
static size_t label_count;

static int is_space(unsigned char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* The first HALF bytes after leading white space, padded behind. */
static void take_beginning(const unsigned char *block, size_t bytes, int32_t out[HALF])
{
    size_t skip = 0;

    while (skip < bytes && is_space(block[skip]))
        skip++;
    for (size_t i = 0; i < HALF; i++)
        out[i] = skip + i < bytes ? block[skip + i] : PADDING;
}

/* The last HALF bytes before trailing white space, padded in front. */
static void take_end(const unsigned char *block, size_t bytes, int32_t out[HALF])
{
    while (bytes > 0 && is_space(block[bytes - 1]))
        bytes--;
    for (size_t i = 0; i < HALF; i++)
        out[HALF - 1 - i] = i < bytes ? block[bytes - 1 - i] : PADDING;
}

static int read_features(const char *path, int32_t out[2 * HALF])
{
    unsigned char block[BLOCK];
    FILE *file = fopen(path, "rb");
    size_t bytes;

    if (file == NULL)
        return 0;
    take_beginning(block, fread(block, 1, BLOCK, file), out);
    if (fseek(file, -BLOCK, SEEK_END) != 0)
        rewind(file);
    bytes = fread(block, 1, BLOCK, file);
    take_end(block, bytes, out + HALF);
    bytes = (size_t)ferror(file);
    (void)fclose(file);
    return bytes == 0;
}

static void pick_best(const struct sluice_tensor *scores, struct answer *answer)
{
    const float *score = scores->data;
    size_t count = scores->bytes / sizeof(*score), best = 0;

    for (size_t i = 1; i < count; i++)
        if (score[i] > score[best])
            best = i;
    answer->label = count > 0 ? (int)best : -1;
    answer->score = count > 0 ? score[best] : 0;
}

static int ask(struct sluice_client *client, struct answer *answer)
{
    int32_t features[2 * HALF];
    const struct sluice_tensor input = {.name = "bytes",
                                        .datatype = "INT32",
                                        .rank = 2,
                                        .shape = {1, 2 * HALF},
                                        .data = features,
                                        .bytes = sizeof(features)};
    const struct sluice_infer_request request = {.model = "magika", .inputs = 1, .input = &input};
    const struct sluice_tensor *outputs;
    struct sluice_response *response;
    struct sluice_error error;

    if (!read_features(answer->path, features)) {
        (void)snprintf(answer->problem, sizeof(answer->problem), "cannot be read");
        return 0;
    }
    if (sluice_infer(client, &request, &response, &error) != SLUICE_OK) {
        (void)snprintf(answer->problem, sizeof(answer->problem), "%.250s", error.message);
        return 0;
    }
    if (sluice_response_outputs(response, &outputs) > 0)
        pick_best(&outputs[0], answer);
    sluice_response_free(response);
    return 1;
}

static void *work_through(void *arg)
{
    struct work *work = arg;
    struct sluice_client *client;
    struct sluice_error error;

    if (sluice_open(work->server, &client, &error) != SLUICE_OK)
        return NULL;
    for (;;) {
        size_t i = atomic_fetch_add(&work->next, 1);
        struct answer scratch = {.label = -1};

        if (i >= work->count * work->repeat)
            break;
        /* Only the first pass writes the answers down; the others are load. */
        scratch.path = work->answers[i % work->count].path;
        if (!ask(client, i < work->count ? &work->answers[i] : &scratch))
            atomic_fetch_add(&work->failed, 1);
    }
    sluice_close(client);
    return NULL;
}

static double run(struct work *work, size_t connections)
{
    pthread_t threads[MOST_CONNECTIONS];
    struct timespec begin, end;
    size_t started = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    while (started < connections &&
           pthread_create(&threads[started], NULL, work_through, work) == 0)
        started++;
    for (size_t i = 0; i < started; i++)
        (void)pthread_join(threads[i], NULL);
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
}

static int read_labels(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[128];

    if (file == NULL)
        return 0;
    while (label_count < MOST_LABELS && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        labels[label_count++] = strdup(line);
    }
    (void)fclose(file);
    return label_count > 0;
}

static const char *label_of(const struct answer *answer)
{
    return answer->label >= 0 && (size_t)answer->label < label_count ? labels[answer->label] : "?";
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* The line of the expectations for this file; 0 when there is none. */
static int find_expectation(FILE *file, const char *path, struct expectation *expectation)
{
    char line[512];

    rewind(file);
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "%127[^\t]\t%63[^\t]\t%63[^\t]\t%lf", expectation->name, expectation->kind,
                   expectation->reference, &expectation->score) == 4 &&
            strcmp(expectation->name, base_name(path)) == 0)
            return 1;
    return 0;
}

/* Prints each answer beside what is expected; true when all scores agree and 95 % are right. */
static int compare(const struct work *work, const char *expected_path, int quiet)
{
    FILE *file = fopen(expected_path, "r");
    size_t right = 0, off = 0;
    double worst = 0;

    if (file == NULL) {
        (void)fprintf(stderr, "filetype: %s cannot be read\n", expected_path);
        return 0;
    }
    for (size_t i = 0; i < work->count; i++) {
        const struct answer *answer = &work->answers[i];
        struct expectation expectation = {.kind = "?", .reference = "?"};
        int is_known = find_expectation(file, answer->path, &expectation);
        double difference = fabs((double)answer->score - expectation.score);
        int agrees = is_known && answer->label >= 0 && difference <= SCORE_TOLERANCE &&
                     strcmp(label_of(answer), expectation.reference) == 0;

        right += strcmp(label_of(answer), expectation.kind) == 0;
        off += !agrees;
        worst = fmax(worst, difference);
        if (!quiet || !agrees)
            (void)printf("  %-16s %-12s %.6f  %s%s\n", base_name(answer->path), label_of(answer),
                         (double)answer->score,
                         strcmp(label_of(answer), expectation.kind) == 0 ? "right" : "WRONG",
                         agrees ? "" : "  (score differs from the reference)");
    }
    (void)fclose(file);
    (void)printf("%zu of %zu right (%.0f %%); largest difference to ONNX Runtime's scores %.1e, "
                 "%zu beyond %.0e\n",
                 right, work->count, 100.0 * (double)right / (double)work->count, worst, off,
                 SCORE_TOLERANCE);
    return off == 0 && right * 100 >= work->count * 95;
}

static void print_answers(const struct work *work)
{
    for (size_t i = 0; i < work->count; i++) {
        const struct answer *answer = &work->answers[i];

        if (answer->label < 0)
            (void)printf("  %s: %s\n", answer->path, answer->problem);
        else
            (void)printf("  %-12s %.4f  %s\n", label_of(answer), (double)answer->score,
                         answer->path);
    }
}

static int usage(void)
{
    (void)fputs("usage: filetype [--server ADDR] [--labels FILE] [--connections N] [--repeat N] "
                "[--expected FILE]\n"
                "                [--quiet] FILE...\n",
                stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"server", required_argument, NULL, 's'},
        {"labels", required_argument, NULL, 'l'},
        {"connections", required_argument, NULL, 'c'},
        {"expected", required_argument, NULL, 'e'},
        {"repeat", required_argument, NULL, 'r'},
        {"quiet", no_argument, NULL, 'q'},
        {0},
    };
    struct work work = {.server = "127.0.0.1:8001", .repeat = 1};
    const char *labels_path = "models/magika/labels.txt", *expected = NULL;
    size_t connections = 16;
    int option, quiet = 0, is_good = 1;
    double seconds;

    while ((option = getopt_long(argc, argv, "s:l:c:e:r:q", options, NULL)) != -1) {
        switch (option) {
        case 's':
            work.server = optarg;
            break;
        case 'l':
            labels_path = optarg;
            break;
        case 'c':
            connections = strtoul(optarg, NULL, 10);
            break;
        case 'e':
            expected = optarg;
            break;
        case 'r':
            work.repeat = strtoul(optarg, NULL, 10);
            break;
        case 'q':
            quiet = 1;
            break;
        default:
            return usage();
        }
    }
    if (optind == argc || connections < 1 || connections > MOST_CONNECTIONS || work.repeat < 1)
        return usage();
    if (!read_labels(labels_path)) {
        (void)fprintf(stderr, "filetype: %s cannot be read: it has the label of each score\n",
                      labels_path);
        return 1;
    }
    work.count = (size_t)(argc - optind);
    work.answers = calloc(work.count, sizeof(*work.answers));
    if (work.answers == NULL)
        return 1;
    for (size_t i = 0; i < work.count; i++)
        work.answers[i] = (struct answer){.path = argv[optind + (int)i], .label = -1};
    seconds = run(&work, connections);
    if (expected != NULL)
        is_good = compare(&work, expected, quiet);
    else if (!quiet)
        print_answers(&work);
    (void)printf("%zu files in %.2f s: %.0f a second from %zu connections, %zu failed\n",
                 work.count * work.repeat, seconds, (double)(work.count * work.repeat) / seconds,
                 connections, atomic_load(&work.failed));
    for (size_t i = 0; i < work.count && work.answers[i].label < 0 && quiet; i++)
        (void)printf("  %s: %s\n", work.answers[i].path, work.answers[i].problem);
    is_good = is_good && atomic_load(&work.failed) == 0;
    free(work.answers);
    for (size_t i = 0; i < label_count; i++)
        free(labels[i]);
    return is_good ? 0 : 1;
}
