/* sluiced: reads the command line, names the devices it was linked with, and does what was asked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include "device/cpu/cpu.h"
#include "device/null/null.h"
#include "lifecycle/advice.h"
#include "lifecycle/lifecycle.h"
#include "lifecycle/offline.h"
#include "lifecycle/options.h"

static int complain(const struct error *err, int exit_status)
{
    fprintf(stderr, "sluiced: %s\n", err->text);
    return exit_status;
}

/* What needs the configuration, but no server. */
static enum status act(const struct options *options, const struct config_set *set,
                       struct error *err)
{
    const struct config *config = config_values(set);

    switch (options->action) {
    case ACTION_DUMP_CONFIG:
        config_dump(set, stdout);
        return STATUS_OK;
    case ACTION_EXPLAIN_PLAN:
        return offline_explain_plan(config,
                                    &(struct offline_question){.file = options->model_file,
                                                               .batch = options->batch,
                                                               .as_json = options->as_json,
                                                               .profile = options->profile},
                                    stdout, err);
    case ACTION_LIST_KERNELS:
        return offline_list_kernels(config, stdout, err);
    default: /* --check-config: it was read, and what needs no device is added up */
        return advice_check(config, stderr, err);
    }
}

static int act_on_config(const struct options *options)
{
    struct config_set *set;
    struct error err;
    enum status status;

    if (config_read(&options->source, &set, &err) != STATUS_OK)
        return complain(&err, EX_CONFIG);
    status = act(options, set, &err);
    config_destroy(set);
    if (status != STATUS_OK)
        return complain(&err, options->action == ACTION_CHECK_CONFIG ? EX_CONFIG : EXIT_FAILURE);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static struct options options;
    struct error err;

    if (options_read(&options, argc, argv, &err) != STATUS_OK)
        return complain(&err, EX_USAGE);
    device_register(&device_cpu_ops);
    device_register(&device_null_ops);

    switch (options.action) {
    case ACTION_HELP:
        options_help(stdout);
        return EXIT_SUCCESS;
    case ACTION_VERSION:
        puts("sluiced " SLUICE_VERSION);
        return EXIT_SUCCESS;
    case ACTION_LIST_OPS:
        offline_list_ops(stdout);
        return EXIT_SUCCESS;
    case ACTION_RUN:
        return lifecycle_run(&options.source);
    default:
        return act_on_config(&options);
    }
}
