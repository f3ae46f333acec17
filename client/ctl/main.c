/* sluicectl: operates sluiced.  Options and the table of verbs. */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"

static const struct verb {
    const char *name;
    int (*run)(struct ctl *ctl);
    const char *usage;
    const char *help;
} verbs[] = {
    {"status", verb_status, "", "version, device, readiness, work in flight"},
    {"health", verb_health, "", "exit status 0 ready, 5 alive but not ready, 3 not there"},
    {"models", verb_models, "", "every model: state, batching, resident bytes, and why not"},
    {"load", verb_load, "MODEL [CONFIG-JSON]", "load or load again"},
    {"unload", verb_unload, "MODEL", "unload; says how many bytes were freed"},
    {"infer", verb_infer, "MODEL -i NAME=VALUE … [-o NAME=FILE.npy] [--timeout S]",
     "one request; VALUE: @file.npy, random:1x3x224x224, zeros:…, ones:…, text:…, 1,2,3"},
    {"bench", verb_bench, "MODEL [-i …] [-c N] [-t S] [-n N] [-b ROWS]",
     "closed loop of N connections; rate and percentiles"},
    {"memory", verb_memory, "[--stats | --summary | --why | --watch … | --snapshot FILE | …]",
     "who holds the device's memory, level, watermarks; statistics; a live chart"},
    {"empty-cache", verb_empty_cache, "[--force]", "give cached memory back"},
    {"sleep", verb_sleep, "MODEL|--all [--level activations|weights|all]",
     "let models leave the device; the next request wakes them"},
    {"wake", verb_wake, "MODEL|--all", "bring models back before somebody asks"},
    {"make-room", verb_make_room, "BYTES [--within TIME] [--hold TIME]",
     "give memory back for another program: 4G --within 500ms --hold 30s"},
    {"tune", verb_tune, "", "proposals for the configuration, out of what was counted"},
    {"plan", verb_plan, "MODEL [--batch N] [--shape INPUT=1x3x224x224] [--profile]",
     "steps, kernels, bytes, the peak; or what each step takes, measured"},
    {"stats", verb_stats, "[MODEL]", "counts and times"},
    {"config", verb_config, "show | check [FILE]", "values in force and where they come from"},
    {"reload", verb_reload, "[--wait]", "read the configuration again"},
    {"drain", verb_drain, "", "answer what is in flight, then stop"},
};

static void print_help(FILE *to)
{
    (void)fputs("usage: sluicectl [--server ADDR] [--json] [--timeout SECONDS] VERB …\n\n", to);
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        (void)fprintf(to, "  %-12s %s\n%15s%s\n", verbs[i].name, verbs[i].usage, "", verbs[i].help);
    (void)fputs("\nADDR is host:port or unix:/path; without it $SLUICE_SERVER or "
                "unix:/run/sluice/admin.sock.\n"
                "Exit status: 0 done, 1 refused by the server, 2 usage, 3 no server, 4 time is up, "
                "5 not ready, 78 bad configuration.\n",
                to);
}

int ctl_fail(const struct sluice_error *error)
{
    (void)fprintf(stderr, "sluicectl: %s: %s\n", sluice_status_name(error->status), error->message);
    switch (error->status) {
    case SLUICE_UNAVAILABLE:
        return EXIT_UNREACHABLE;
    case SLUICE_DEADLINE_EXCEEDED:
        return EXIT_TIMEOUT;
    default:
        return EXIT_REFUSED;
    }
}

int ctl_usage(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)fputs("sluicectl: usage: ", stderr);
    (void)vfprintf(stderr, format, args);
    (void)fputc('\n', stderr);
    va_end(args);
    return EXIT_USAGE;
}

bool ctl_number(const char *text, double most, double *out_value)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value >= 0 && value <= most))
        return false;
    *out_value = value;
    return true;
}

/* What was printed must have arrived: a full disk is no success. */
static int flushed(int exit_status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_status;
    (void)fprintf(stderr, "sluicectl: the answer could not be written: %s\n", strerror(errno));
    return exit_status == EXIT_DONE ? EXIT_REFUSED : exit_status;
}

/* "help" alone or with a verb. */
static int run_help(const struct ctl *ctl)
{
    if (ctl->argc == 1) {
        print_help(stdout);
        return EXIT_DONE;
    }
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].name, ctl->argv[1]) != 0)
            continue;
        (void)printf("sluicectl %s %s\n    %s\n", verbs[i].name, verbs[i].usage, verbs[i].help);
        return EXIT_DONE;
    }
    (void)fprintf(stderr, "sluicectl: unknown verb '%s'; sluicectl --help lists them\n",
                  ctl->argv[1]);
    return EXIT_USAGE;
}

static int run_verb(struct ctl *ctl, int64_t timeout_us)
{
    struct sluice_error error;
    int exit_status;

    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].name, ctl->argv[0]) != 0)
            continue;
        if (verbs[i].usage[0] == '\0' && ctl->argc > 1)
            return ctl_usage("%s", verbs[i].name);
        if (sluice_open(ctl->server, &ctl->client, &error) != SLUICE_OK) {
            (void)ctl_fail(&error);
            return EXIT_USAGE;
        }
        sluice_set_timeout(ctl->client, timeout_us);
        exit_status = verbs[i].run(ctl);
        sluice_close(ctl->client);
        return exit_status;
    }
    if (strcmp(ctl->argv[0], "help") == 0)
        return run_help(ctl);
    (void)fprintf(stderr, "sluicectl: unknown verb '%s'; sluicectl --help lists them\n",
                  ctl->argv[0]);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"server", required_argument, NULL, 's'},  {"json", no_argument, NULL, 'j'},
        {"timeout", required_argument, NULL, 't'}, {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},       {0},
    };
    const char *server = getenv("SLUICE_SERVER");
    struct ctl ctl = {.server = server != NULL ? server : "unix:/run/sluice/admin.sock"};
    double timeout_s = 120;
    int option;

    while ((option = getopt_long(argc, argv, "+s:jht:V", options, NULL)) != -1) {
        switch (option) {
        case 's':
            ctl.server = optarg;
            break;
        case 'j':
            ctl.as_json = true;
            break;
        case 't':
            if (!ctl_number(optarg, MOST_SECONDS, &timeout_s))
                return ctl_usage("--timeout '%s': seconds are allowed", optarg);
            break;
        case 'V':
            (void)puts("sluicectl " SLUICE_VERSION);
            return EXIT_DONE;
        case 'h':
            print_help(stdout);
            return EXIT_DONE;
        default:
            return EXIT_USAGE;
        }
    }
    /* --json is welcome behind the verb too. */
    for (int i = optind; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0) {
            ctl.as_json = true;
            memmove(&argv[i], &argv[i + 1], (size_t)(argc - i) * sizeof(*argv));
            argc--;
            i--;
        }
    if (optind == argc) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    ctl.argc = argc - optind;
    ctl.argv = argv + optind;
    return flushed(run_verb(&ctl, (int64_t)(timeout_s * 1e6)));
}
