/* tune: the daemon's statistics into facts, advise.c's proposals into text, JSON and a snippet of
 * configuration. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advise.h"
#include "ctl.h"
#include "proto/admin.pb-c.h"

struct tuning {
    json_t *memory, *statistics, *models, *stats, *config; /* the answers */
    struct advise_facts facts;
    struct advise_model *model;
    struct advise_batch **sizes; /* per model */
};

/* ---- asking ---- */

static int ask_all(struct ctl *ctl, struct tuning *tuning)
{
    static const Sluice__V1__AdminRequest request = SLUICE__V1__ADMIN_REQUEST__INIT;
    const struct {
        const char *verb;
        json_t **answer;
    } questions[] = {
        {"Memory", &tuning->memory}, {"MemoryStats", &tuning->statistics},
        {"Models", &tuning->models}, {"Stats", &tuning->stats},
        {"Config", &tuning->config},
    };

    for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
        int exit_status = ctl_admin(ctl, questions[i].verb, &request, questions[i].answer);

        if (exit_status != EXIT_DONE)
            return exit_status;
    }
    return EXIT_DONE;
}

static void release(struct tuning *tuning)
{
    for (size_t i = 0; tuning->sizes != NULL && i < tuning->facts.models; i++)
        free(tuning->sizes[i]);
    free(tuning->sizes);
    free(tuning->model);
    json_decref(tuning->memory);
    json_decref(tuning->statistics);
    json_decref(tuning->models);
    json_decref(tuning->stats);
    json_decref(tuning->config);
}

/* ---- facts ---- */

static const char *config_text(const struct tuning *tuning, const char *section, const char *key)
{
    const json_t *entry;
    size_t i;

    json_array_foreach(json_object_get(tuning->config, "entries"), i, entry)
    {
        if (strcmp(json_text(entry, "section"), section) == 0 &&
            strcmp(json_text(entry, "key"), key) == 0)
            return json_text(entry, "value");
    }
    return "";
}

static double config_number(const struct tuning *tuning, const char *section, const char *key)
{
    return strtod(config_text(tuning, section, key), NULL);
}

static const json_t *stat_of(const json_t *stats, const char *measure, const char *pool)
{
    return json_object_get(json_object_get(stats, measure), pool);
}

/* The row of the list whose `name` and version together are "name/version". */
static const json_t *find_version(const json_t *list, const char *owner)
{
    const json_t *row;
    size_t i;

    json_array_foreach(list, i, row)
    {
        const char *name = json_text(row, "name"), *version = json_text(row, "version");
        size_t length = strlen(name);

        if (strncmp(owner, name, length) == 0 && owner[length] == '/' &&
            strcmp(owner + length + 1, version) == 0)
            return row;
    }
    return NULL;
}

static struct advise_batch *read_sizes(const json_t *list, size_t *out_count)
{
    size_t count = json_array_size(list), i;
    struct advise_batch *sizes = calloc(count + 1, sizeof(*sizes));
    const json_t *row;

    if (sizes == NULL)
        abort();
    json_array_foreach(list, i, row)
    {
        const json_t *infer = json_object_get(row, "compute_infer");

        sizes[i] = (struct advise_batch){.rows = json_number(row, "batch_size"),
                                         .count = json_number(infer, "count"),
                                         .ns = json_number(infer, "ns")};
    }
    *out_count = count;
    return sizes;
}

static void read_model(struct tuning *tuning, size_t at, const json_t *pool)
{
    const char *owner = json_text(pool, "name");
    const json_t *known = find_version(json_object_get(tuning->models, "models"), owner);
    const json_t *counted = find_version(json_object_get(tuning->stats, "model_stats"), owner);
    const json_t *times = json_object_get(counted, "inference_stats");
    struct advise_model *model = &tuning->model[at];

    *model = (struct advise_model){
        .name = owner,
        .use_bytes = json_number(pool, "largest_use_bytes"),
        .ooms = json_number(pool, "num_ooms"),
        .requests = json_number(json_object_get(times, "queue"), "count"),
        .queue_ns = json_number(json_object_get(times, "queue"), "ns"),
        .compute_ns = json_number(json_object_get(times, "compute_infer"), "ns"),
        .max_batch_size = json_number(known, "max_batch_size"),
    };
    tuning->sizes[at] = read_sizes(json_object_get(counted, "batch_stats"), &model->sizes);
    model->size = tuning->sizes[at];
}

static void read_facts(struct tuning *tuning)
{
    const json_t *memory = tuning->memory, *kinds = json_object_get(memory, "kinds");
    const json_t *by = json_object_get(memory, "empty_cache_by");
    const json_t *stats = json_object_get(tuning->statistics, "stats");
    const json_t *pools = json_object_get(tuning->statistics, "models"), *pool;
    const json_t *arena = stat_of(stats, "reserved_bytes", "activation");
    size_t i;

    tuning->facts = (struct advise_facts){
        .budget_bytes = json_number(memory, "budget_bytes"),
        .total_bytes = json_number(memory, "device_total_bytes"),
        .headroom_bytes = json_number(memory, "headroom_bytes"),
        .floor_bytes = json_number(memory, "floor_bytes"),
        .weights_bytes = json_number(kinds, "weights") + json_number(kinds, "workspace") +
                         json_number(kinds, "fixed"),
        .peak_allocated_bytes = json_number(memory, "peak_allocated_bytes"),
        .taken_bytes = json_number(arena, "allocated"),
        .peak_arena_bytes = json_number(arena, "peak"),
        .transitions = json_number(memory, "transitions_total"),
        .trims = json_number(by, "governor"),
        .decays = json_number(by, "decay"),
        .low = config_number(tuning, "Memory", "LowWatermark"),
        .high = config_number(tuning, "Memory", "HighWatermark"),
        .critical = config_number(tuning, "Memory", "CriticalWatermark"),
        .lanes = (unsigned)config_number(tuning, "Device", "Lanes"),
        .cores = (unsigned)json_number(memory, "cores"),
        .models = json_array_size(pools),
    };
    tuning->model = calloc(tuning->facts.models + 1, sizeof(*tuning->model));
    tuning->sizes = calloc(tuning->facts.models + 1, sizeof(*tuning->sizes));
    if (tuning->model == NULL || tuning->sizes == NULL)
        abort();
    json_array_foreach(pools, i, pool)
    {
        read_model(tuning, i, pool);
    }
    tuning->facts.model = tuning->model;
}

/* ---- telling ---- */

/* The snippet, to be freed. */
static char *write_snippet(const struct advice *advice)
{
    const char *section = "";
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    if (to == NULL)
        abort();
    for (size_t i = 0; i < advice->count; i++) {
        const struct advise_proposal *proposal = &advice->proposal[i];

        if (strcmp(section, proposal->section) != 0)
            (void)fprintf(to, "%s[%s]\n", i > 0 ? "\n" : "", proposal->section);
        section = proposal->section;
        (void)fprintf(to, "%s=%s\n", proposal->key, proposal->proposed);
    }
    if (fclose(to) != 0)
        abort();
    return text;
}

static json_t *list_proposals(const struct advice *advice)
{
    json_t *list = json_array();

    for (size_t i = 0; i < advice->count; i++) {
        const struct advise_proposal *proposal = &advice->proposal[i];

        (void)json_array_append_new(
            list, json_pack("{s:s,s:s,s:s,s:s,s:s,s:b}", "section", proposal->section, "key",
                            proposal->key, "now", proposal->now, "proposed", proposal->proposed,
                            "reason", proposal->reason, "needs_restart", proposal->needs_restart));
    }
    return list;
}

static json_t *list_caps(const struct tuning *tuning)
{
    json_t *list = json_array();

    for (size_t i = 0; i < tuning->facts.models; i++) {
        const struct advise_model *model = &tuning->model[i];
        char reason[ADVISE_REASON_BYTES];
        uint64_t cap = advise_batch_cap(&tuning->facts, model, reason);

        if (cap == 0)
            continue;
        (void)json_array_append_new(list,
                                    json_pack("{s:s,s:I,s:I,s:s}", "model", model->name,
                                              "max_batch_size", (json_int_t)model->max_batch_size,
                                              "proposed", (json_int_t)cap, "reason", reason));
    }
    return list;
}

static void print_text(const json_t *document)
{
    const json_t *row;
    size_t i;

    json_array_foreach(json_object_get(document, "proposals"), i, row)(void)
        printf("%s.%s: %s, now %s%s\n    %s\n", json_text(row, "section"), json_text(row, "key"),
               json_text(row, "proposed"), json_text(row, "now"),
               json_is_true(json_object_get(row, "needs_restart")) ? " (needs a restart)" : "",
               json_text(row, "reason"));
    json_array_foreach(json_object_get(document, "models"), i, row)(void) printf(
        "model %s: max_batch_size %" PRIu64 " in its config.pbtxt, now %" PRIu64 "\n    %s\n",
        json_text(row, "model"), json_number(row, "proposed"), json_number(row, "max_batch_size"),
        json_text(row, "reason"));
    if (json_text(document, "snippet")[0] != '\0')
        (void)printf("\n%s", json_text(document, "snippet"));
    else if (json_array_size(json_object_get(document, "models")) == 0)
        (void)puts("nothing to propose");
}

int verb_tune(struct ctl *ctl)
{
    struct tuning tuning = {.memory = NULL};
    struct advice advice;
    json_t *document;
    char *snippet;
    int exit_status;

    if (ctl->argc > 1)
        return ctl_usage("tune");
    exit_status = ask_all(ctl, &tuning);
    if (exit_status == EXIT_DONE) {
        read_facts(&tuning);
        advise(&tuning.facts, &advice);
        snippet = write_snippet(&advice);
        document = json_pack("{s:o,s:o,s:s}", "proposals", list_proposals(&advice), "models",
                             list_caps(&tuning), "snippet", snippet);
        free(snippet);
        if (!ctl_printed_json(ctl, document))
            print_text(document);
        json_decref(document);
    }
    release(&tuning);
    return exit_status;
}
