#include "lifecycle/options.h"

#include <stdlib.h>
#include <string.h>

enum option_id {
    OPTION_CONFIG,
    OPTION_INSTANCE,
    OPTION_SET,
    OPTION_REPOSITORY,
    OPTION_CHECK,
    OPTION_DUMP,
    OPTION_EXPLAIN,
    OPTION_BATCH,
    OPTION_JSON,
    OPTION_PROFILE,
    OPTION_OPS,
    OPTION_KERNELS,
    OPTION_VERSION,
    OPTION_HELP,
};

static const struct option {
    const char *name;
    const char *value; /* what it takes; NULL: nothing */
    const char *help;
} table[] = {
    [OPTION_CONFIG] = {"--config", "FILE",
                       "read FILE and FILE.d/*.conf instead of "
                       "/etc/sluice/sluice.conf"},
    [OPTION_INSTANCE] = {"--instance", "NAME",
                         "one of several daemons: cuda:NAME, sockets in /run/sluice/NAME/, and "
                         "sluice@NAME.conf after sluice.conf"},
    [OPTION_SET] = {"--set", "SECTION.KEY=VALUE", "set one key, after all files (repeatable)"},
    [OPTION_REPOSITORY] = {"--model-repository", "DIR", "the same as --set Models.Repository=DIR"},
    [OPTION_CHECK] = {"--check-config", NULL, "check the configuration and exit (78: it is bad)"},
    [OPTION_DUMP] = {"--dump-config", NULL, "print the configuration in force and exit"},
    [OPTION_EXPLAIN] = {"--explain-plan", "MODEL.onnx", "print how the model would run and exit"},
    [OPTION_BATCH] = {"--batch", "N", "rows for --explain-plan (1)"},
    [OPTION_JSON] = {"--json", NULL, "--explain-plan as JSON"},
    [OPTION_PROFILE] = {"--profile", NULL, "--explain-plan runs it and tells what each step takes"},
    [OPTION_OPS] = {"--list-ops", NULL, "print the operators and exit"},
    [OPTION_KERNELS] = {"--list-kernels", NULL,
                        "print each operator's kernels, best first, and "
                        "exit"},
    [OPTION_VERSION] = {"--version", NULL, "print the version and exit"},
    [OPTION_HELP] = {"--help", NULL, "print this and exit"},
};
enum { OPTIONS = sizeof(table) / sizeof(table[0]) };

static enum status find(const char *arg, enum option_id *out_id, const char **out_value,
                        struct error *err)
{
    size_t length = strcspn(arg, "=");

    for (int i = 0; i < OPTIONS; i++) {
        if (strlen(table[i].name) != length || strncmp(table[i].name, arg, length) != 0)
            continue;
        if (arg[length] == '=' && table[i].value == NULL)
            return error_set(err, STATUS_INVALID, "%s takes no value", table[i].name);
        *out_id = (enum option_id)i;
        *out_value = arg[length] == '=' ? arg + length + 1 : NULL;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "unknown option '%.128s'; see sluiced --help", arg);
}

static enum status add_set(struct options *options, const char *text, struct error *err)
{
    if (options->source.set_count == OPTION_SETS)
        return error_set(err, STATUS_INVALID, "more than %d --set", OPTION_SETS);
    options->sets[options->source.set_count++] = text;
    return STATUS_OK;
}

static enum status add_repository(struct options *options, const char *folder, struct error *err)
{
    size_t room = sizeof(options->repository_set);

    if (options->repository_set[0] != '\0')
        return error_set(err, STATUS_INVALID, "--model-repository twice: one folder is served");
    if ((size_t)snprintf(options->repository_set, room, "Models.Repository=%s", folder) >= room)
        return error_set(err, STATUS_INVALID, "--model-repository: the path is too long");
    return add_set(options, options->repository_set, err);
}

static enum status set_batch(struct options *options, const char *text, struct error *err)
{
    char *end;
    long long batch = strtoll(text, &end, 10);

    if (*end != '\0' || end == text || batch < 1 || batch > 1 << 20)
        return error_set(err, STATUS_INVALID, "--batch: found '%.64s', allowed is 1 to 1048576",
                         text);
    options->batch = batch;
    return STATUS_OK;
}

static enum status set_action(struct options *options, enum action action, enum option_id id,
                              struct error *err)
{
    if (options->action != ACTION_RUN && options->action != action)
        return error_set(err, STATUS_INVALID, "%s: only one thing can be asked for at a time",
                         table[id].name);
    options->action = action;
    return STATUS_OK;
}

static enum status apply(struct options *options, enum option_id id, const char *value,
                         struct error *err)
{
    switch (id) {
    case OPTION_CONFIG:
        options->source.file = value;
        return STATUS_OK;
    case OPTION_INSTANCE:
        options->source.instance = value;
        return STATUS_OK;
    case OPTION_SET:
        return add_set(options, value, err);
    case OPTION_REPOSITORY:
        return add_repository(options, value, err);
    case OPTION_BATCH:
        return set_batch(options, value, err);
    case OPTION_JSON:
        options->as_json = true;
        return STATUS_OK;
    case OPTION_PROFILE:
        options->profile = true;
        return STATUS_OK;
    case OPTION_EXPLAIN:
        options->model_file = value;
        return set_action(options, ACTION_EXPLAIN_PLAN, id, err);
    case OPTION_CHECK:
        return set_action(options, ACTION_CHECK_CONFIG, id, err);
    case OPTION_DUMP:
        return set_action(options, ACTION_DUMP_CONFIG, id, err);
    case OPTION_OPS:
        return set_action(options, ACTION_LIST_OPS, id, err);
    case OPTION_KERNELS:
        return set_action(options, ACTION_LIST_KERNELS, id, err);
    case OPTION_VERSION:
        return set_action(options, ACTION_VERSION, id, err);
    case OPTION_HELP:
        return set_action(options, ACTION_HELP, id, err);
    }
    return STATUS_INTERNAL;
}

enum status options_read(struct options *options, int argc, char **argv, struct error *err)
{
    *options = (struct options){.action = ACTION_RUN};
    options->source.sets = options->sets;
    for (int i = 1; i < argc; i++) {
        enum option_id id = OPTION_HELP;
        const char *value = NULL;

        TRY(find(argv[i], &id, &value, err));
        if (table[id].value != NULL && value == NULL) {
            if (i + 1 == argc)
                return error_set(err, STATUS_INVALID, "%s takes a value: %s", table[id].name,
                                 table[id].value);
            value = argv[++i];
        }
        TRY(apply(options, id, value, err));
    }
    if ((options->batch > 0 || options->as_json || options->profile) &&
        options->action != ACTION_EXPLAIN_PLAN)
        return error_set(err, STATUS_INVALID,
                         "--batch, --json and --profile belong to --explain-plan");
    return STATUS_OK;
}

void options_help(FILE *to)
{
    fprintf(to, "sluiced %s: serves ONNX models over gRPC and REST, with governed memory\n\n",
            SLUICE_VERSION);
    for (int i = 0; i < OPTIONS; i++) {
        char left[64];

        snprintf(left, sizeof(left), "%s%s%s", table[i].name, table[i].value != NULL ? " " : "",
                 table[i].value != NULL ? table[i].value : "");
        fprintf(to, "  %-28s %s\n", left, table[i].help);
    }
    fputs("\nEvery key of the configuration can also come from the environment, as\n"
          "SLUICE_MEMORY_LOW_WATERMARK=0.7; SLUICE_LOG=debug or SLUICE_LOG=batch:trace sets the "
          "log.\n"
          "SIGTERM drains, SIGHUP reads the configuration again.\n"
          "Exit status: 0 after a drain, 1 failed to start, 64 bad command line, 75 device lost,\n"
          "78 bad configuration.\n",
          to);
}
