/* cudnn-plans LIBRARY GRAPHS DEVICES-FOLDER EVERY
 *
 * Asks the real cuDNN for a plan of every EVERY-th graph in GRAPHS (lines of dnn_graph_format())
 * for every device that is described in DEVICES-FOLDER: no GPU is needed, nothing is executed.  The
 * graph as it is, and what is not compiled twice more in float16, plain and with channels last.
 * Writes the table
 *
 *     graph | device engine/offered/workspace …
 *
 * with "-" where no engine will do.  Exit status 77: the library cannot be opened.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/dnn/plan.h"

enum { DEVICES = 16, LINE = 1024 };

struct described {
    char name[64];
    cudnnBackendDescriptor_t properties;
};

static const char *const kinds[] = {"conv", "transposed", "average", "average_padded"};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* ---- graphs ---- */

static size_t read_list(const char *line, const char *name, int64_t *values)
{
    const char *at = strstr(line, name);
    size_t count = 0;

    if (at == NULL)
        return 0;
    at += strlen(name);
    for (char *end; count < DNN_RANK; at = end + 1) {
        values[count++] = strtoll(at, &end, 10);
        if (*end != 'x')
            break;
    }
    return count;
}

static enum activation read_activation(const char *line)
{
    static const struct {
        const char *name;
        enum activation act;
    } names[] = {{" silu ", ACT_SILU},
                 {" sigmoid ", ACT_SIGMOID},
                 {" tanh ", ACT_TANH},
                 {" gelu_erf ", ACT_GELU_ERF},
                 {" gelu_tanh ", ACT_GELU_TANH}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strstr(line, names[i].name) != NULL)
            return names[i].act;
    return ACT_NONE;
}

static bool read_attention(const char *line, struct dnn_graph *graph)
{
    static const char *const names[DNN_MATRICES] = {" q=", " k=", " v=", " out="};
    int64_t numbers[DNN_RANK];

    *graph = (struct dnn_graph){.kind = DNN_ATTENTION,
                                .compiled = true,
                                .dtype = strstr(line, " bfloat16 ") != NULL ? DTYPE_BFLOAT16
                                                                            : DTYPE_FLOAT16,
                                .alignment = DNN_ALIGNMENT};
    for (size_t i = 0; i < DNN_MATRICES; i++) {
        const char *at = strstr(line, names[i]);

        if (at == NULL || read_list(at, names[i], numbers) != 4)
            return false;
        memcpy(graph->matrix[i].sizes, numbers, sizeof(graph->matrix[i].sizes));
        if (read_list(at, " by=", numbers) != 4)
            return false;
        memcpy(graph->matrix[i].strides, numbers, sizeof(graph->matrix[i].strides));
    }
    return true;
}

static bool read_graph(const char *line, struct dnn_graph *graph)
{
    size_t length = strcspn(line, " "), kind = 0;

    if (strncmp(line, "attention ", strlen("attention ")) == 0)
        return read_attention(line, graph);

    while (kind < KINDS &&
           (strlen(kinds[kind]) != length || strncmp(line, kinds[kind], length) != 0))
        kind++;
    if (kind == KINDS)
        return false;
    *graph = (struct dnn_graph){
        .kind = (enum dnn_kind)kind,
        .channels_last = strstr(line, " nhwc") != NULL,
        .has_z = strstr(line, " z ") != NULL || strstr(line, " z_behind ") != NULL,
        .z_behind = strstr(line, " z_behind ") != NULL,
        .relu = strstr(line, " relu ") != NULL,
        .compiled = strstr(line, " compiled ") != NULL,
        .act = read_activation(line),
        .dtype = strstr(line, " float16 ") != NULL ? DTYPE_FLOAT16 : DTYPE_FLOAT,
        .alignment = DNN_ALIGNMENT};
    graph->spatial = read_list(line, " x=", graph->x) - 2;
    (void)read_list(line, " w=", graph->w);
    (void)read_list(line, " y=", graph->y);
    (void)read_list(line, " window=", graph->window);
    (void)read_list(line, " stride=", graph->stride);
    (void)read_list(line, " dilation=", graph->dilation);
    (void)read_list(line, " begin=", graph->pad_begin);
    return read_list(line, " end=", graph->pad_end) == graph->spatial;
}

/* ---- devices ---- */

static void describe(struct dnn *dnn, const char *folder, const char *file,
                     struct described *device)
{
    static char text[1 << 16];
    char path[4096];
    size_t bytes;
    FILE *from;

    snprintf(path, sizeof(path), "%s/%s", folder, file);
    from = fopen(path, "r");
    bytes = from == NULL ? 0 : fread(text, 1, sizeof(text), from);
    if (from != NULL)
        fclose(from);
    snprintf(device->name, sizeof(device->name), "%.*s", (int)strcspn(file, "."), file);
    if (dnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR,
                                          &device->properties) != CUDNN_STATUS_SUCCESS ||
        dnn->cudnnBackendSetAttribute(device->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                      CUDNN_TYPE_CHAR, (int64_t)bytes,
                                      text) != CUDNN_STATUS_SUCCESS ||
        dnn->cudnnBackendFinalize(device->properties) != CUDNN_STATUS_SUCCESS) {
        fprintf(stderr, "cudnn-plans: cuDNN does not take %s\n", path);
        exit(1);
    }
}

static size_t describe_all(struct dnn *dnn, const char *folder, struct described *devices)
{
    struct dirent **files;
    int count = scandir(folder, &files, NULL, alphasort);
    size_t used = 0;

    for (int i = 0; i < count; i++) {
        if (strstr(files[i]->d_name, ".json") != NULL && used < DEVICES)
            describe(dnn, folder, files[i]->d_name, &devices[used++]);
        free(files[i]);
    }
    free(files);
    return used;
}

/* ---- the table ---- */

static void plan(struct dnn *dnn, const struct dnn_graph *graph, const struct described *devices,
                 size_t count)
{
    char text[LINE];

    dnn_graph_format(graph, text, sizeof(text));
    printf("%s |", text);
    for (size_t i = 0; i < count; i++) {
        struct dnn_plan made;

        dnn->properties = devices[i].properties;
        if (dnn_plan_make(dnn, graph, &made, NULL) == STATUS_OK) {
            printf(" %s %lld/%lld/%lld%s", devices[i].name, (long long)made.engine,
                   (long long)made.engines, (long long)made.workspace_bytes,
                   made.inexact ? "!" : "");
            dnn_plan_free(&made);
        } else {
            printf(" %s -", devices[i].name);
        }
    }
    printf("\n");
}

int main(int count, char **words)
{
    struct described devices[DEVICES];
    struct dnn dnn = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct dnn_graph graph;
    char line[LINE];
    size_t found;
    FILE *graphs;

    if (count != 5)
        return 2;
    if (dnn_open_library(&dnn, words[1]) != NULL) {
        fprintf(stderr, "cudnn-plans: no %s: left out\n", words[1]);
        return 77;
    }
    graphs = fopen(words[2], "r");
    if (graphs == NULL)
        return 1;
    found = describe_all(&dnn, words[3], devices);
    printf("# cuDNN %zu: engine/offered/workspace bytes\n", dnn.cudnnGetVersion());
    for (long i = 0; fgets(line, sizeof(line), graphs) != NULL; i++) {
        if (i % strtol(words[4], NULL, 10) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        if (!read_graph(line, &graph)) {
            fprintf(stderr, "cudnn-plans: what is '%s'?\n", line);
            return 1;
        }
        plan(&dnn, &graph, devices, found);
        if (graph.kind > DNN_TRANSPOSED || graph.compiled)
            continue;
        graph.dtype = DTYPE_FLOAT16;
        graph.channels_last = false;
        plan(&dnn, &graph, devices, found);
        graph.channels_last = true;
        plan(&dnn, &graph, devices, found);
    }
    fclose(graphs);
    return 0;
}
