/* sluice-conformance [OPTION …] DIR…: --device cpu|null|cuda, --precision NAME, --part I/N, --json,
 * --together N, --verbose.
 *
 * Runs ONNX's own backend tests and prints what passed, failed or was refused, by operator.  A DIR
 * is one test (it holds model.onnx), a set of tests, or the `light` set.  Each test runs in a
 * process of its own (or up to N of them in one, where a process is dear: a GPU's context), so that
 * a crash is one failure, and so is a refusal where the CPU device computes.  Exit status 1 when
 * any answer was wrong, 2 when nothing could be run.  With the null device nothing is compared: it
 * only plans.  Of N parts, part I (from 0) runs every Nth test, so that parts may run side by side.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "compare.h"
#include "operators.h"
#include "solo.h"
#include "worker.h"

enum { TEXT = 400, MAX_TENSORS = 256, SECONDS_A_TEST = 120, SLOWEST = 3 };

enum outcome { PASSED, FAILED, REFUSED, SKIPPED, OUTCOMES };
static const char *const outcome_names[OUTCOMES] = {"passed", "failed", "refused", "skipped"};

struct result {
    enum outcome outcome;
    char operators[OPERATORS_TEXT]; /* the one operator of the model, or "(several)" */
    char reason[TEXT];
};

struct row { /* of the table */
    char operator_name[OPERATORS_TEXT];
    unsigned count[OUTCOMES];
};

struct slow {
    char folder[1024];
    double seconds;
};

/* How the tests are run, and how far off an answer may be. */
struct rules {
    const char *device;
    const char *precision; /* as Precision=; NULL: the device's own */
    double slack;          /* see tensor_agrees() */
    unsigned together;     /* tests that one process runs at most */
};

struct session {
    struct rules rules;
    struct worker worker;
    bool json, verbose;
    struct row *rows;
    size_t row_count;
    unsigned total[OUTCOMES];
    unsigned tests;
    unsigned part, parts; /* of all tests that are found, which are run */
    unsigned found;
    struct slow slowest[SLOWEST]; /* slowest first */
};

/* ---- reading files ---- */

static char *read_file(const char *path, size_t *out_size)
{
    FILE *file = fopen(path, "re");
    char *bytes = NULL;
    long size;

    if (file == NULL)
        return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 &&
        fseek(file, 0, SEEK_SET) == 0 && (bytes = malloc((size_t)size + 1)) != NULL) {
        *out_size = fread(bytes, 1, (size_t)size, file);
    }
    fclose(file);
    return bytes;
}

static enum status read_tensor(const char *path, struct constant **out_tensor, struct error *err)
{
    size_t size = 0;
    char *bytes = read_file(path, &size);
    enum status status;

    if (bytes == NULL)
        return STATUS_NOT_FOUND;
    status = onnx_read_tensor(bytes, size, out_tensor, err);
    free(bytes);
    return status;
}

static void find_operators(const char *model, char *name)
{
    size_t size = 0;
    char *bytes = read_file(model, &size);

    if (bytes != NULL)
        operators_of_model((const unsigned char *)bytes, size, name);
    free(bytes);
}

/* Their answers are theirs to choose. */
static bool is_random(const char *operator_name)
{
    return strncmp(operator_name, "Random", 6) == 0 || strcmp(operator_name, "Bernoulli") == 0 ||
           strcmp(operator_name, "Multinomial") == 0;
}

/* ---- one test ---- */

struct test {
    char model[1024];
    char light_output[1024]; /* of the light set: its one expected output */
    char folder[1024];
};

static void set_result(struct result *result, enum outcome outcome, const char *reason)
{
    result->outcome = outcome;
    snprintf(result->reason, sizeof(result->reason), "%.*s", TEXT - 1, reason);
}

static void refuse_or_fail(struct result *result, enum status status, const struct error *err,
                           bool loading)
{
    bool refusal = status == STATUS_UNSUPPORTED || (loading && status == STATUS_INVALID);

    set_result(result, refusal ? REFUSED : FAILED,
               err->text[0] != '\0' ? err->text : status_words(status));
}

/* Tensors input_0.pb … or output_0.pb … of a data set. */
static size_t read_set(const char *folder, const char *kind, struct constant **tensors,
                       struct result *result)
{
    size_t count = 0;

    for (; count < MAX_TENSORS; count++) {
        char path[1200];
        struct error err = {0};
        enum status status;

        snprintf(path, sizeof(path), "%s/%s_%zu.pb", folder, kind, count);
        status = read_tensor(path, &tensors[count], &err);
        if (status == STATUS_NOT_FOUND)
            break;
        if (status != STATUS_OK) {
            char text[TEXT];

            snprintf(text, sizeof(text), "%s_%zu.pb is no tensor we know: %.300s", kind, count,
                     err.text);
            set_result(result, SKIPPED, text);
            return SIZE_MAX;
        }
    }
    return count;
}

static void free_set(struct constant **tensors, size_t count)
{
    for (size_t i = 0; count != SIZE_MAX && i < count; i++)
        constant_unref(tensors[i]);
}

static void compare_outputs(const struct solo_outputs *outputs, struct constant *const *want,
                            size_t wanted, double slack, struct result *result)
{
    for (size_t i = 0; i < wanted && i < outputs->count; i++) {
        char why[TEXT], text[TEXT + 32];

        if (tensor_agrees(&outputs->tensors[i], &want[i]->tensor, slack, why, sizeof(why)))
            continue;
        snprintf(text, sizeof(text), "output %zu: %s", i, why);
        set_result(result, FAILED, text);
        return;
    }
}

static void run_with(struct solo *solo, struct constant *const *in, size_t given,
                     struct constant *const *want, size_t wanted, const struct rules *rules,
                     struct result *result)
{
    const struct network_port *ports;
    size_t inputs = network_inputs(solo->network, &ports);
    struct tensor tensors[MAX_TENSORS];
    struct solo_outputs outputs = {0};
    struct error err = {0};
    enum status status;

    if (given < inputs || inputs > MAX_TENSORS) {
        set_result(result, SKIPPED, "the data set has fewer inputs than the model");
        return;
    }
    for (size_t i = 0; i < inputs; i++)
        tensors[i] = in[i]->tensor;
    status = solo_run(solo, tensors, &outputs, &err);
    if (status != STATUS_OK) {
        refuse_or_fail(result, status, &err, false);
        return;
    }
    if (strcmp(rules->device, "null") != 0)
        compare_outputs(&outputs, want, wanted, rules->slack, result);
    solo_free(&outputs);
}

static void run_data_sets(struct solo *solo, const struct test *test, const struct rules *rules,
                          struct result *result)
{
    for (unsigned set = 0; result->outcome == PASSED; set++) {
        struct constant *in[MAX_TENSORS], *want[MAX_TENSORS];
        char folder[1100];
        struct stat facts;
        size_t given, wanted = 0;

        snprintf(folder, sizeof(folder), "%s/test_data_set_%u", test->folder, set);
        if (stat(folder, &facts) < 0) {
            if (set == 0)
                set_result(result, SKIPPED, "it has no data set");
            return;
        }
        given = read_set(folder, "input", in, result);
        if (given != SIZE_MAX)
            wanted = read_set(folder, "output", want, result);
        if (given != SIZE_MAX && wanted != SIZE_MAX)
            run_with(solo, in, given, want, wanted, rules, result);
        free_set(in, given);
        free_set(want, wanted);
    }
}

/* The light set stores no input: it is a ramp, element i of n being i / n. */
static void run_light(struct solo *solo, const struct test *test, const struct rules *rules,
                      struct result *result)
{
    const struct network_port *ports;
    struct constant *in, *want = NULL;
    struct error err = {0};
    size_t count;
    float *data;

    (void)network_inputs(solo->network, &ports);
    in = constant_allocate(DTYPE_FLOAT, &ports[0].shape);
    if (in == NULL || read_tensor(test->light_output, &want, &err) != STATUS_OK) {
        set_result(result, SKIPPED, "its output cannot be read");
        constant_unref(in);
        return;
    }
    count = (size_t)shape_count(&in->tensor.shape);
    data = (float *)(uintptr_t)in->tensor.data;
    for (size_t i = 0; i < count; i++)
        data[i] = (float)i / (float)count;
    run_with(solo, &in, 1, &want, 1, rules, result);
    constant_unref(in);
    constant_unref(want);
}

static void run_test(const struct rules *rules, const struct test *test, struct result *result)
{
    const struct solo_config config = {
        .device = rules->device, .threads = 2, .precision = rules->precision};
    struct solo solo = {0};
    struct error err = {0};
    enum status status = solo_open_as(&config, &solo, &err);

    result->outcome = PASSED;
    if (status == STATUS_OK)
        status = solo_load(&solo, test->model, &err);
    if (status != STATUS_OK)
        refuse_or_fail(result, status, &err, true);
    else if (is_random(result->operators))
        set_result(result, SKIPPED, "random numbers");
    else if (test->light_output[0] != '\0')
        run_light(&solo, test, rules, result);
    else
        run_data_sets(&solo, test, rules, result);
    solo_close(&solo);
}

static void run_question(const void *rules, const void *test, void *result)
{
    run_test(rules, test, result);
}

/* The test in another process; one that did not end well has no further tests. */
static void run_in(struct worker *worker, const struct rules *rules, const struct test *test,
                   struct result *result)
{
    const struct worker_task task = {.run = run_question,
                                     .rules = rules,
                                     .question_bytes = sizeof(*test),
                                     .answer_bytes = sizeof(*result),
                                     .seconds = SECONDS_A_TEST};
    char text[64];
    int signal;

    if (worker_ask(worker, &task, test, result, &signal)) {
        if (worker->asked >= rules->together || result->outcome == FAILED)
            worker_end(worker);
        return;
    }
    if (signal == SIGALRM)
        snprintf(text, sizeof(text), "it took more than %d seconds", SECONDS_A_TEST);
    else
        snprintf(text, sizeof(text), "the process ended by signal %d", signal);
    set_result(result, FAILED, text);
}

/* What the CPU device computes no other may refuse: its operators are there too. */
static void check_refusal(const struct rules *rules, const struct test *test, struct result *result)
{
    const struct rules cpu = {.device = "cpu", .slack = rules->slack};
    struct worker worker = {0};
    struct result found = *result;
    char text[TEXT];

    if (result->outcome != REFUSED || strcmp(rules->device, "cpu") == 0 ||
        strcmp(rules->device, "null") == 0)
        return;
    run_in(&worker, &cpu, test, &found);
    if (found.outcome == REFUSED)
        return;
    snprintf(text, sizeof(text), "refused, and not by the CPU device: %.340s", result->reason);
    set_result(result, FAILED, text);
}

/* ---- the table ---- */

static struct row *find_row(struct session *session, const char *name)
{
    for (size_t i = 0; i < session->row_count; i++)
        if (strcmp(session->rows[i].operator_name, name) == 0)
            return &session->rows[i];
    if (session->row_count % 64 == 0) {
        struct row *grown =
            realloc(session->rows, (session->row_count + 64) * sizeof(*session->rows));

        if (grown == NULL)
            abort();
        session->rows = grown;
    }
    session->rows[session->row_count] = (struct row){0};
    snprintf(session->rows[session->row_count].operator_name, OPERATORS_TEXT, "%s", name);
    return &session->rows[session->row_count++];
}

static void print_json_text(const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else
            putchar(c < 0x20 ? ' ' : c);
    }
}

static void count_result(struct session *session, const struct test *test,
                         const struct result *result)
{
    session->tests++;
    session->total[result->outcome]++;
    find_row(session, result->operators)->count[result->outcome]++;
    if (session->json) {
        printf("{\"test\":\"%s\",\"operator\":\"%s\",\"outcome\":\"%s\",\"reason\":\"",
               test->folder, result->operators, outcome_names[result->outcome]);
        print_json_text(result->reason);
        printf("\"}\n");
    } else if (result->outcome == FAILED || (session->verbose && result->outcome != PASSED)) {
        printf("%-8s %s (%s): %s\n", outcome_names[result->outcome], test->folder,
               result->operators, result->reason);
    }
    fflush(stdout);
}

static void note_time(struct session *session, const struct test *test, double seconds)
{
    struct slow *slowest = session->slowest;
    size_t at = SLOWEST;

    while (at > 0 && slowest[at - 1].seconds < seconds)
        at--;
    if (at == SLOWEST)
        return;
    memmove(&slowest[at + 1], &slowest[at], (SLOWEST - at - 1) * sizeof(*slowest));
    slowest[at].seconds = seconds;
    memcpy(slowest[at].folder, test->folder, sizeof(slowest[at].folder));
}

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void do_test(struct session *session, const struct test *test)
{
    struct result result = {0};
    double began = seconds_now();

    if (session->found++ % session->parts != session->part)
        return;
    find_operators(test->model, result.operators);
    run_in(&session->worker, &session->rules, test, &result);
    check_refusal(&session->rules, test, &result);
    note_time(session, test, seconds_now() - began);
    count_result(session, test, &result);
}

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct row *)left)->operator_name,
                  ((const struct row *)right)->operator_name);
}

static void print_table(struct session *session)
{
    qsort(session->rows, session->row_count, sizeof(*session->rows), by_name);
    printf("%-28s %8s %8s %8s %8s\n", "operator", "passed", "failed", "refused", "skipped");
    for (size_t i = 0; i < session->row_count; i++) {
        const struct row *row = &session->rows[i];

        printf("%-28s %8u %8u %8u %8u\n", row->operator_name, row->count[PASSED],
               row->count[FAILED], row->count[REFUSED], row->count[SKIPPED]);
    }
    printf("%-28s %8u %8u %8u %8u\n", "all", session->total[PASSED], session->total[FAILED],
           session->total[REFUSED], session->total[SKIPPED]);
    for (size_t i = 0; i < SLOWEST && session->slowest[i].seconds > 0; i++)
        printf("%6.1f s %s\n", session->slowest[i].seconds, session->slowest[i].folder);
}

/* ---- what a precision may cost ---- */

static double slack_of(const char *precision)
{
    if (strcmp(precision, "bf16") == 0)
        return BFLOAT16_SLACK;
    return strcmp(precision, "fp16") == 0 || strcmp(precision, "tf32") == 0 ? HALF_SLACK
                                                                            : BLOCKED_SUM_SLACK;
}

/* ---- finding tests ---- */

static int any_entry(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static bool exists(const char *path)
{
    struct stat facts;

    return stat(path, &facts) == 0;
}

static void do_light(struct session *session, const char *dir, const char *name)
{
    struct test test = {{0}};
    size_t stem = strlen(name) - strlen(".onnx");

    snprintf(test.model, sizeof(test.model), "%s/%s", dir, name);
    snprintf(test.folder, sizeof(test.folder), "%s/%.*s", dir, (int)stem, name);
    snprintf(test.light_output, sizeof(test.light_output), "%s/%.*s_output_0.pb", dir, (int)stem,
             name);
    if (exists(test.light_output))
        do_test(session, &test);
}

static void do_folder(struct session *session, const char *dir, unsigned depth)
{
    struct dirent **entries;
    struct test test = {{0}};
    int count;

    snprintf(test.folder, sizeof(test.folder), "%s", dir);
    snprintf(test.model, sizeof(test.model), "%s/model.onnx", dir);
    if (exists(test.model)) {
        do_test(session, &test);
        return;
    }
    count = depth > 2 ? -1 : scandir(dir, &entries, any_entry, alphasort);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        size_t length = strlen(name);
        char path[1024];

        if (length > 5 && strcmp(name + length - 5, ".onnx") == 0)
            do_light(session, dir, name);
        else if (snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path))
            do_folder(session, path, depth + 1);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

/* "0/4" to "3/4". */
static bool read_part(const char *text, struct session *session)
{
    char behind;

    return sscanf(text, "%u/%u%c", &session->part, &session->parts, &behind) == 2 &&
           session->part < session->parts;
}

int main(int count, char **words)
{
    struct session session = {.rules = {.device = "cpu", .slack = BLOCKED_SUM_SLACK}, .parts = 1};
    int at = 1;

    for (; at < count && words[at][0] == '-'; at++) {
        if (strcmp(words[at], "--json") == 0)
            session.json = true;
        else if (strcmp(words[at], "--verbose") == 0)
            session.verbose = true;
        else if (strcmp(words[at], "--device") == 0 && at + 1 < count)
            session.rules.device = words[++at];
        else if (strcmp(words[at], "--precision") == 0 && at + 1 < count)
            session.rules.precision = words[++at];
        else if (strcmp(words[at], "--part") == 0 && at + 1 < count &&
                 read_part(words[at + 1], &session))
            at++;
        else if (strcmp(words[at], "--together") == 0 && at + 1 < count)
            session.rules.together = (unsigned)strtoul(words[++at], NULL, 10);
        else
            break;
    }
    if (at >= count || words[at][0] == '-') {
        fprintf(stderr, "usage: sluice-conformance [--device NAME] [--precision NAME] [--part I/N] "
                        "[--together N] [--json] [--verbose] DIR…\n");
        return 2;
    }
    if (session.rules.precision != NULL)
        session.rules.slack = slack_of(session.rules.precision);
    for (; at < count; at++)
        do_folder(&session, words[at], 0);
    worker_end(&session.worker);
    if (session.tests == 0) {
        fprintf(stderr, "sluice-conformance: no tests found\n");
        return 2;
    }
    if (!session.json)
        print_table(&session);
    free(session.rows);
    return session.total[FAILED] > 0 ? 1 : 0;
}
