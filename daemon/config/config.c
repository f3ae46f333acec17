/* Sources in order, each over the former: defaults, the file, its drop-ins by name, what belongs to
 * the instance, the environment, --set.  A file and its drop-ins are one layer: their list lines
 * append to each other. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "config/internal.h"

#define STANDARD_FILE "/etc/sluice/sluice.conf"

enum { FILE_BYTES = 1 << 20, INSTANCE_NAME = 64, PIPE_PATIENCE_MS = 1000 };
enum { LAYER_DEFAULT, LAYER_FILES, LAYER_INSTANCE, LAYER_ENVIRONMENT, LAYER_SETS };

struct assigner { /* the argument of assign_line() */
    struct config_set *set;
    const char *file;
    int layer;
};

/* Gives key `index` its default; "" for a list that was cleared on purpose is not that. */
static enum status set_default(struct config_set *set, size_t index, struct error *err)
{
    const struct key *key = &config_keys[index];
    const char *text = key->standard;
    char word[64];

    if (key->type == TYPE_choice) {
        snprintf(word, sizeof(word), "%.*s", (int)strcspn(text, " "), text);
        text = word;
    }
    return value_read(key, text, false, &set->arena, key_field(key, &set->values), err);
}

static enum status assign(struct config_set *set, size_t index, const char *value, int layer,
                          const char *origin, struct error *err)
{
    const struct key *key = &config_keys[index];
    struct setting *setting = &set->settings[index];

    if (*value == '\0' && key->type != TYPE_list)
        TRY(set_default(set, index, err));
    else
        TRY(value_read(key, value, setting->layer == layer, &set->arena,
                       key_field(key, &set->values), err));
    *setting = (struct setting){.origin = origin, .layer = layer};
    return STATUS_OK;
}

static enum status create(struct config_set **out_set, struct error *err)
{
    struct config_set *set = calloc(1, sizeof(*set));

    if (set == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the configuration");
    arena_init(&set->arena);
    for (size_t i = 0; i < CONFIG_KEYS; i++) {
        enum status status = set_default(set, i, err);

        if (status != STATUS_OK) {
            config_destroy(set);
            return status;
        }
        set->settings[i].origin = "default";
    }
    *out_set = set;
    return STATUS_OK;
}

void config_destroy(struct config_set *set)
{
    if (set == NULL)
        return;
    arena_deinit(&set->arena);
    free(set);
}

/* ---- files ---- */

static enum status assign_line(void *arg, const char *section, const char *name, const char *value,
                               unsigned line, struct error *err)
{
    struct assigner *assigner = arg;
    struct config_set *set = assigner->set;
    const char *origin;
    size_t index;

    TRY(key_find(section, name, &index, err));
    origin = arena_format(&set->arena, "%s:%u", assigner->file, line);
    if (origin == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the configuration");
    return assign(set, index, value, assigner->layer, origin, err);
}

/* Nothing waits for ever for the other end of a pipe, which is a file as well. */
static enum status await_bytes(int fd, const char *file, struct error *err)
{
    struct pollfd waits = {.fd = fd, .events = POLLIN};

    if (poll(&waits, 1, PIPE_PATIENCE_MS) > 0)
        return STATUS_OK;
    return error_set(err, STATUS_IO, "%s: nothing came out of it for %d ms", file,
                     PIPE_PATIENCE_MS);
}

static enum status read_bytes(int fd, const char *file, char *text, size_t *out_bytes,
                              struct error *err)
{
    size_t bytes = 0;
    ssize_t got;

    do {
        TRY(await_bytes(fd, file, err));
        got = read(fd, text + bytes, FILE_BYTES + 1 - bytes);
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            return error_set(err, STATUS_IO, "%s: %s", file, strerror(errno));
        if (got > 0)
            bytes += (size_t)got;
    } while (got != 0 && bytes <= FILE_BYTES);
    if (bytes > FILE_BYTES)
        return error_set(err, STATUS_INVALID, "%s: more than %d bytes", file, FILE_BYTES);
    *out_bytes = bytes;
    return STATUS_OK;
}

/* The whole file, for free(). */
static enum status slurp(const char *file, char **out_text, size_t *out_bytes, struct error *err)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum status status;
    char *text;

    if (fd < 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s: %s", file,
                         strerror(errno));
    text = malloc(FILE_BYTES + 1);
    status = text == NULL ? error_set(err, STATUS_NO_MEMORY, "%s: no memory to read it", file)
                          : read_bytes(fd, file, text, out_bytes, err);
    (void)close(fd);
    if (status != STATUS_OK)
        free(text);
    else
        *out_text = text;
    return status;
}

static enum status read_file(struct config_set *set, const char *file, int layer, struct error *err)
{
    struct assigner assigner = {.set = set, .file = file, .layer = layer};
    enum status status;
    size_t bytes = 0;
    char *text = NULL;

    TRY(slurp(file, &text, &bytes, err));
    status = ini_read(file, text, bytes, assign_line, &assigner, err);
    free(text);
    return status;
}

static int is_drop_in(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return entry->d_name[0] != '.' && length > 5 &&
           strcmp(entry->d_name + length - 5, ".conf") == 0;
}

static enum status read_drop_in(struct config_set *set, const char *folder, const char *name,
                                int layer, struct error *err)
{
    char *path = arena_format(&set->arena, "%s/%s", folder, name);

    if (path == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the configuration");
    return read_file(set, path, layer, err);
}

static enum status read_drop_ins(struct config_set *set, const char *file, int layer,
                                 struct error *err)
{
    char *folder = arena_format(&set->arena, "%s.d", file);
    struct dirent **entries;
    enum status status = STATUS_OK;
    int count;

    if (folder == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the configuration");
    count = scandir(folder, &entries, is_drop_in, alphasort);
    if (count < 0) {
        if (errno == ENOENT)
            return STATUS_OK;
        return error_set(err, errno == ENOMEM ? STATUS_NO_MEMORY : STATUS_IO, "%s: %s", folder,
                         strerror(errno));
    }
    for (int i = 0; i < count; i++) {
        if (status == STATUS_OK)
            status = read_drop_in(set, folder, entries[i]->d_name, layer, err);
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* A file that need not exist, and its drop-ins. */
static enum status read_optional(struct config_set *set, const char *file, int layer,
                                 struct error *err)
{
    if (access(file, F_OK) == 0)
        TRY(read_file(set, file, layer, err));
    return read_drop_ins(set, file, layer, err);
}

static enum status read_files(struct config_set *set, const char *file, struct error *err)
{
    if (file == NULL)
        return read_optional(set, STANDARD_FILE, LAYER_FILES, err);
    TRY(read_file(set, file, LAYER_FILES, err));
    return read_drop_ins(set, file, LAYER_FILES, err);
}

/* ---- one of several daemons ---- */

/* What no two daemons can share; %s is the instance. */
static const struct instance_key {
    size_t index;
    const char *value;
} instance_keys[] = {
    {KEY_device_device, "cuda:%s"},
    {KEY_server_grpc_listen, "unix:/run/sluice/%s/grpc.sock"},
    {KEY_server_http_listen, "unix:/run/sluice/%s/http.sock"},
    {KEY_server_metrics_listen, "unix:/run/sluice/%s/metrics.sock"},
    {KEY_server_admin_listen, "unix:/run/sluice/%s/admin.sock"},
};

static enum status check_instance(const char *name, struct error *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t length = strlen(name);

    if (length < 1 || length > INSTANCE_NAME || strspn(name, allowed) != length)
        return error_set(err, STATUS_INVALID,
                         "--instance: found '%.128s', allowed are 1 to %d letters, digits, '-' "
                         "and '_'",
                         name, INSTANCE_NAME);
    return STATUS_OK;
}

/* "%s" of `value` is the instance; it has no other conversion. */
static const char *of_instance(struct config_set *set, const char *value, const char *instance)
{
    int before = (int)strcspn(value, "%");

    return arena_format(&set->arena, "%.*s%s%s", before, value, instance, value + before + 2);
}

/* /etc/sluice/sluice.conf and "1": /etc/sluice/sluice@1.conf */
static const char *instance_file(struct config_set *set, const char *file, const char *instance)
{
    size_t stem = strlen(file);

    if (stem > 5 && strcmp(file + stem - 5, ".conf") == 0)
        stem -= 5;
    return arena_format(&set->arena, "%.*s@%s%s", (int)stem, file, instance, file + stem);
}

static enum status read_instance(struct config_set *set, const struct config_source *source,
                                 struct error *err)
{
    const char *file = source->file != NULL ? source->file : STANDARD_FILE;

    if (source->instance == NULL)
        return STATUS_OK;
    TRY(check_instance(source->instance, err));
    for (size_t i = 0; i < sizeof(instance_keys) / sizeof(instance_keys[0]); i++) {
        const char *value = of_instance(set, instance_keys[i].value, source->instance);

        if (value == NULL)
            return error_set(err, STATUS_NO_MEMORY, "no memory for the configuration");
        TRY(assign(set, instance_keys[i].index, value, LAYER_INSTANCE, "--instance", err));
    }
    file = instance_file(set, file, source->instance);
    if (file == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the configuration");
    return read_optional(set, file, LAYER_INSTANCE, err);
}

/* ---- environment and --set ---- */

/* Whether NAME of SLUICE_NAME begins with the name of a section or what looks like one: then it
 * must be a key.  Everything else is somebody's own: SLUICE_LOG, or SLUICE_SERVICE_HOST, which
 * orchestrators set for a service of that name. */
static bool is_of_a_section(const char *name)
{
    size_t length = strcspn(name, "_");
    char word[32];

    if (name[length] != '_' || length >= sizeof(word))
        return false;
    snprintf(word, sizeof(word), "%.*s", (int)length, name);
    return key_is_near_section(word);
}

static enum status read_variable(struct config_set *set, const char *variable, struct error *err)
{
    const char *equals = strchr(variable, '=');
    char name[96];
    size_t index;
    enum status status;

    if (strncmp(variable, "SLUICE_", 7) != 0 || equals == NULL)
        return STATUS_OK;
    snprintf(name, sizeof(name), "%.*s", (int)(equals - variable), variable);
    index = key_by_environment(name + 7);
    if (index == CONFIG_KEYS && !is_of_a_section(name + 7))
        return STATUS_OK;
    if (index == CONFIG_KEYS)
        return error_set(err, STATUS_INVALID,
                         "environment variable %s stands for no key; a key is spelled like "
                         "SLUICE_MEMORY_LOW_WATERMARK",
                         name);
    status = assign(set, index, equals + 1, LAYER_ENVIRONMENT, "environment", err);
    return status == STATUS_OK ? status
                               : error_prefix(err, status, "environment variable %s", name);
}

static enum status read_environment(struct config_set *set, struct error *err)
{
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++)
        TRY(read_variable(set, *variable, err));
    return STATUS_OK;
}

static enum status read_set(struct config_set *set, const char *text, struct error *err)
{
    char section[64], name[64];
    enum status status;
    size_t index;
    int length = 0;

    if (sscanf(text, "%63[^.=].%63[^.=]=%n", section, name, &length) != 2 || length == 0)
        return error_set(err, STATUS_INVALID, "--set: found '%.128s', allowed is Section.Key=VALUE",
                         text);
    status = key_find(section, name, &index, err);
    if (status == STATUS_OK)
        status = assign(set, index, text + length, LAYER_SETS, "--set", err);
    return status == STATUS_OK ? status : error_prefix(err, status, "--set");
}

static enum status read_all(struct config_set *set, const struct config_source *source,
                            struct error *err)
{
    TRY(read_files(set, source->file, err));
    TRY(read_instance(set, source, err));
    TRY(read_environment(set, err));
    for (size_t i = 0; i < source->set_count; i++)
        TRY(read_set(set, source->sets[i], err));
    return config_check(set, err);
}

/* ---- the public face ---- */

static enum status finish(struct config_set *set, enum status status, struct config_set **out_set)
{
    if (status == STATUS_OK)
        *out_set = set;
    else
        config_destroy(set);
    return status;
}

enum status config_read(const struct config_source *source, struct config_set **out_set,
                        struct error *err)
{
    struct config_set *set;

    TRY(create(&set, err));
    return finish(set, read_all(set, source, err), out_set);
}

enum status config_read_text(const char *name, const char *text, size_t bytes,
                             struct config_set **out_set, struct error *err)
{
    struct assigner assigner = {.file = name, .layer = LAYER_FILES};
    enum status status;

    TRY(create(&assigner.set, err));
    status = ini_read(name, text, bytes, assign_line, &assigner, err);
    if (status == STATUS_OK)
        status = config_check(assigner.set, err);
    return finish(assigner.set, status, out_set);
}

const struct config *config_values(const struct config_set *set)
{
    return &set->values;
}

/* The value as text for free(); NULL when there is no memory for it. */
static char *value_text(const struct config_set *set, size_t index)
{
    const struct key *key = &config_keys[index];
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);

    if (to == NULL)
        return NULL;
    value_write(key, key_field(key, &set->values), to);
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

void config_for_each(const struct config_set *set, config_each_fn each, void *arg)
{
    for (size_t i = 0; i < CONFIG_KEYS; i++) {
        const struct key *key = &config_keys[i];
        char *text = value_text(set, i);

        each(arg, &(struct config_entry){.section = key->section,
                                         .key = key->name,
                                         .value = text != NULL ? text : "?",
                                         .origin = set->settings[i].origin,
                                         .waiting = set->settings[i].waiting,
                                         .live = key->is_live,
                                         .help = key->help});
        free(text);
    }
}

struct dump {
    FILE *to;
    const char *section;
};

static void dump_key(void *arg, const struct config_entry *entry)
{
    struct dump *dump = arg;

    if (dump->section == NULL || strcmp(dump->section, entry->section) != 0)
        fprintf(dump->to, "%s[%s]\n", dump->section == NULL ? "" : "\n", entry->section);
    dump->section = entry->section;
    fprintf(dump->to, "# %s%s\n# from: %s\n%s=%s\n", entry->help,
            entry->live ? "" : " (needs a restart)", entry->origin, entry->key, entry->value);
}

void config_dump(const struct config_set *set, FILE *to)
{
    struct dump dump = {.to = to};

    config_for_each(set, dump_key, &dump);
}

/* Puts the value of `started` in the place of one that differs. */
static bool keep_started(struct config_set *set, const struct config_set *started, size_t index)
{
    const struct key *key = &config_keys[index];
    char *found = value_text(set, index), *runs = value_text(started, index);
    bool differs = found == NULL || runs == NULL || strcmp(found, runs) != 0;
    const char *waiting = NULL;

    if (differs) {
        if (found != NULL)
            waiting = arena_format(&set->arena, "%s", found);
        memcpy(key_field(key, &set->values), key_field(key, &started->values), key->bytes);
        set->settings[index] = started->settings[index];
        set->settings[index].waiting = waiting != NULL ? waiting : "?";
    }
    free(found);
    free(runs);
    return differs;
}

void config_keep_started(struct config_set *set, const struct config_set *started, char *text,
                         size_t room)
{
    size_t used = 0;

    if (room > 0)
        text[0] = '\0';
    for (size_t i = 0; i < CONFIG_KEYS; i++) {
        const struct key *key = &config_keys[i];
        int written;

        if (key->is_live || !keep_started(set, started, i) || used >= room)
            continue;
        written = snprintf(text + used, room - used, "%s%s.%s", used == 0 ? "" : ", ", key->section,
                           key->name);
        used += written > 0 ? (size_t)written : 0;
    }
}
