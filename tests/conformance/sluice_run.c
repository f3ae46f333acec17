/* sluice-run [--device NAME] [--precision NAME] MODEL.onnx OUT-FOLDER THREADS INPUT.npy…
 *
 * Runs a model once on .npy inputs, in the order of the model's inputs, and writes
 * OUT-FOLDER/K.npy. tests/models/check.py compares them with ONNX Runtime's.  Exit status 3: the
 * model was refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npy.h"
#include "solo.h"

static enum status read_inputs(const struct solo *solo, int count, char **paths,
                               struct tensor **out_tensors, struct error *err)
{
    const struct network_port *ports;
    size_t inputs = network_inputs(solo->network, &ports);
    struct tensor *tensors;

    if (inputs != (size_t)count)
        return error_set(err, STATUS_INVALID, "the model has %zu inputs, %d were given", inputs,
                         count);
    tensors = calloc(inputs + 1, sizeof(*tensors));
    if (tensors == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory");
    for (size_t i = 0; i < inputs; i++) {
        TRY(npy_read(paths[i], &tensors[i], err));
        if (tensors[i].dtype != ports[i].dtype)
            return error_set(err, STATUS_INVALID, "input '%s' is %s, '%s' holds %s", ports[i].name,
                             dtype_name(ports[i].dtype), paths[i], dtype_name(tensors[i].dtype));
    }
    *out_tensors = tensors;
    return STATUS_OK;
}

static enum status write_outputs(const struct solo_outputs *outputs, const char *folder,
                                 struct error *err)
{
    for (size_t i = 0; i < outputs->count; i++) {
        char path[1024];

        snprintf(path, sizeof(path), "%s/%zu.npy", folder, i);
        TRY(npy_write(path, &outputs->tensors[i], err));
    }
    return STATUS_OK;
}

int main(int count, char **words)
{
    struct solo solo = {0};
    struct solo_outputs outputs = {0};
    struct tensor *inputs = NULL;
    struct error err = {0};
    enum status status;
    struct solo_config config = {.device = "cpu"};
    bool loaded = false;

    for (; count > 2 && strncmp(words[1], "--", 2) == 0; words += 2, count -= 2) {
        if (strcmp(words[1], "--device") == 0)
            config.device = words[2];
        else if (strcmp(words[1], "--precision") == 0)
            config.precision = words[2];
        else
            count = 0;
    }
    if (count < 4) {
        fprintf(stderr, "usage: sluice-run [--device NAME] [--precision NAME] MODEL.onnx "
                        "OUT-FOLDER THREADS INPUT.npy…\n");
        return 2;
    }
    config.threads = (unsigned)strtoul(words[3], NULL, 10);
    status = solo_open_as(&config, &solo, &err);
    if (status == STATUS_OK)
        status = solo_load(&solo, words[1], &err);
    if (status == STATUS_OK) {
        loaded = true;
        status = read_inputs(&solo, count - 4, words + 4, &inputs, &err);
    }
    if (status == STATUS_OK)
        status = solo_run(&solo, inputs, &outputs, &err);
    if (status == STATUS_OK)
        status = write_outputs(&outputs, words[2], &err);
    if (status == STATUS_OK)
        return 0; /* memory goes with the process */
    fprintf(stderr, "sluice-run: %s\n", err.text[0] != '\0' ? err.text : status_words(status));
    return !loaded || status == STATUS_UNSUPPORTED ? 3 : 1;
}
