/* infer: one request; the answer as a summary, as .npy files, or as JSON. */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "number.h"

enum { MOST = 1024, SHOWN = 8 };

struct job {
    const char *model;
    const char *version;
    const char *input[MOST];
    size_t inputs;
    const char *save[MOST]; /* NAME=FILE */
    size_t saves;
};

static bool parse_job(struct ctl *ctl, struct job *job)
{
    int option;

    optind = 0;
    while ((option = getopt(ctl->argc, ctl->argv, "i:o:v:")) != -1) {
        if (option == 'i' && job->inputs < MOST)
            job->input[job->inputs++] = optarg;
        else if (option == 'o' && job->saves < MOST)
            job->save[job->saves++] = optarg;
        else if (option == 'v')
            job->version = optarg;
        else
            return false;
    }
    if (optind + 1 != ctl->argc)
        return false;
    job->model = ctl->argv[optind];
    return true;
}

/* With quotes and escapes, as JSON has them: a terminal obeys control characters. */
static void print_text(const char *text, size_t length)
{
    json_t *string = json_stringn(text, length);

    if (string == NULL || json_dumpf(string, stdout, JSON_ENCODE_ANY) != 0)
        (void)fputs("null", stdout); /* no UTF-8; -o NAME=FILE.npy has the bytes */
    json_decref(string);
}

static void print_shape(const struct sluice_tensor *tensor)
{
    (void)putchar('[');
    for (size_t i = 0; i < tensor->rank; i++)
        (void)printf("%s%" PRId64, i == 0 ? "" : ",", tensor->shape[i]);
    (void)putchar(']');
}

static void print_elements(const struct sluice_tensor *tensor, size_t most)
{
    size_t size = datatype_bytes(tensor->datatype);
    const char *separator = "";

    if (size == 0) { /* BYTES: a length and the bytes, again and again */
        const char *at = tensor->data, *end = at + tensor->bytes;

        for (size_t i = 0; i < most && end - at >= 4; i++, separator = ", ") {
            uint32_t length;

            memcpy(&length, at, 4);
            if (length > (size_t)(end - at) - 4)
                return;
            (void)fputs(separator, stdout);
            print_text(at + 4, length);
            at += 4 + length;
        }
        return;
    }
    for (size_t i = 0; i < tensor->bytes / size && i < most; i++, separator = ", ") {
        (void)fputs(separator, stdout);
        number_print(stdout, tensor->datatype, (const char *)tensor->data + i * size);
    }
}

static void print_summary(const struct sluice_tensor *tensor)
{
    size_t size = datatype_bytes(tensor->datatype);

    (void)printf("%s  %s ", tensor->name, tensor->datatype);
    print_shape(tensor);
    (void)fputs("  ", stdout);
    print_elements(tensor, SHOWN);
    (void)puts(size > 0 && tensor->bytes / size > SHOWN ? ", ..." : "");
}

static void print_json(const struct sluice_response *response)
{
    const struct sluice_tensor *outputs;
    size_t count = sluice_response_outputs(response, &outputs);

    (void)printf("{\"model_version\": \"%s\", \"outputs\": [", sluice_response_version(response));
    for (size_t i = 0; i < count; i++) {
        (void)fputs(i == 0 ? "{\"name\": " : ", {\"name\": ", stdout);
        print_text(outputs[i].name, strlen(outputs[i].name));
        (void)printf(", \"datatype\": \"%s\", \"shape\": ", outputs[i].datatype);
        print_shape(&outputs[i]);
        (void)fputs(", \"data\": [", stdout);
        print_elements(&outputs[i], SIZE_MAX);
        (void)fputs("]}", stdout);
    }
    (void)puts("]}");
}

static bool save(const struct sluice_response *response, const char *argument)
{
    const char *equals = strchr(argument, '=');
    const struct sluice_tensor *output;
    char name[512], why[256];

    if (equals == NULL || (size_t)(equals - argument) >= sizeof(name)) {
        (void)fprintf(stderr, "sluicectl: output '%s': NAME=FILE.npy is what it should be\n",
                      argument);
        return false;
    }
    memcpy(name, argument, (size_t)(equals - argument));
    name[equals - argument] = '\0';
    output = sluice_response_output(response, name);
    if (output == NULL) {
        (void)fprintf(stderr, "sluicectl: the answer has no output '%s'\n", name);
        return false;
    }
    if (npy_write(equals + 1, output, why))
        return true;
    (void)fprintf(stderr, "sluicectl: %s: %s\n", equals + 1, why);
    return false;
}

/* For one who did not name them all. */
static void list_inputs(const char *model, const struct port_info *ports, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        (void)fprintf(stderr, "sluicectl: '%s' has the input '%s', %s [", model, ports[i].name,
                      ports[i].datatype);
        for (size_t d = 0; d < ports[i].rank; d++)
            (void)fprintf(stderr, "%s%" PRId64, d == 0 ? "" : ",", ports[i].shape[d]);
        (void)fputs("]\n", stderr);
    }
}

static int show(const struct ctl *ctl, const struct job *job,
                const struct sluice_response *response)
{
    const struct sluice_tensor *outputs;
    size_t count = sluice_response_outputs(response, &outputs);

    for (size_t i = 0; i < job->saves; i++)
        if (!save(response, job->save[i]))
            return EXIT_REFUSED;
    if (ctl->as_json)
        print_json(response);
    else
        for (size_t i = 0; i < count; i++)
            print_summary(&outputs[i]);
    return EXIT_DONE;
}

int verb_infer(struct ctl *ctl)
{
    struct job job = {0};
    struct port_info *ports = NULL;
    struct sluice_tensor inputs[MOST];
    void *bytes[MOST] = {0};
    struct sluice_infer_request request = {.input = inputs};
    struct sluice_response *response;
    struct sluice_error error;
    size_t count = 0;
    int exit_status;

    if (!parse_job(ctl, &job))
        return ctl_usage("infer MODEL [-v VERSION] -i NAME=VALUE ... [-o NAME=FILE.npy]");
    exit_status = fetch_inputs(ctl, job.model, job.version, &ports, &count);
    for (size_t i = 0; exit_status == EXIT_DONE && i < job.inputs; i++)
        if (!input_parse(job.input[i], ports, count, &inputs[request.inputs++], &bytes[i]))
            exit_status = EXIT_USAGE;
    if (exit_status == EXIT_DONE) {
        request.model = job.model;
        request.version = job.version;
        if (sluice_infer(ctl->client, &request, &response, &error) == SLUICE_OK) {
            exit_status = show(ctl, &job, response);
            sluice_response_free(response);
        } else {
            exit_status = ctl_fail(&error);
            if (error.status == SLUICE_INVALID_ARGUMENT && request.inputs < count)
                list_inputs(job.model, ports, count);
        }
    }
    for (size_t i = 0; i < MOST; i++)
        free(bytes[i]);
    free(ports);
    return exit_status;
}
