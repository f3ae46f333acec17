/* Where values come from: files, instances, the environment, the command line. */
#include "config/texts.h"

struct folder {
    char path[64];
    char file[96];
};

static void put(const char *path, const char *text)
{
    FILE *to = fopen(path, "w");

    assert_non_null(to);
    fputs(text, to);
    fclose(to);
}

static int make_folder(void **state)
{
    static struct folder f;
    char path[160];

    strcpy(f.path, "/tmp/sluice-config-XXXXXX");
    if (mkdtemp(f.path) == NULL)
        return -1;
    snprintf(f.file, sizeof(f.file), "%s/s.conf", f.path);
    snprintf(path, sizeof(path), "%s.d", f.file);
    if (mkdir(path, 0700) != 0)
        return -1;
    put(f.file, "[Memory]\nFloor=1M\nDwell=3s\n[Models]\nLoad=a\n");
    snprintf(path, sizeof(path), "%s.d/20.conf", f.file);
    put(path, "[Memory]\nFloor=3M\n[Models]\nLoad=c\n");
    snprintf(path, sizeof(path), "%s.d/10.conf", f.file);
    put(path, "[Memory]\nFloor=2M\n[Models]\nLoad=b\n");
    snprintf(path, sizeof(path), "%s.d/30.conf.bak", f.file);
    put(path, "nonsense");
    *state = &f;
    return 0;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {".d/10.conf", ".d/20.conf", ".d/30.conf.bak", "", ".d"};
    struct folder *f = *state;
    char path[160];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s%s", f->file, names[i]);
        if (remove(path) != 0)
            return -1;
    }
    unsetenv("SLUICE_MEMORY_LOW_WATERMARK");
    unsetenv("SLUICE_MODELS_LOAD");
    unsetenv("SLUICE_MEMORY_LOW");
    return rmdir(f->path);
}

static const char *origin_wanted;

static void find_origin(void *arg, const struct config_entry *entry)
{
    assert_true(strlen(entry->help) > 10);
    if (strcmp(entry->section, "Memory") == 0 && strcmp(entry->key, origin_wanted) == 0)
        snprintf(arg, 128, "%s", entry->origin);
}

static const char *origin_of(const struct config_set *set, const char *key)
{
    static char origin[128];

    origin_wanted = key;
    config_for_each(set, find_origin, origin);
    return origin;
}

static void later_sources_win_and_origins_tell(void **state)
{
    struct folder *f = *state;
    const char *const sets[] = {"Memory.HighWatermark=0.9"};
    struct config_source source = {.file = f->file, .set_count = 1, .sets = sets};
    struct config_set *set;
    char origin[160];

    setenv("SLUICE_MEMORY_LOW_WATERMARK", "0.5", 1);
    assert_ok(config_read(&source, &set, NULL));
    assert_int_equal(config_values(set)->memory.floor, 3 << 20);
    assert_int_equal(config_values(set)->memory.dwell, 3000000);
    assert_true(config_values(set)->memory.low_watermark == 0.5);
    assert_true(config_values(set)->memory.high_watermark == 0.9);
    assert_int_equal(config_values(set)->models.load.count, 3);
    assert_string_equal(config_values(set)->models.load.items[1], "b");
    snprintf(origin, sizeof(origin), "%s.d/20.conf:2", f->file);
    assert_string_equal(origin_of(set, "Floor"), origin);
    assert_string_equal(origin_of(set, "LowWatermark"), "environment");
    assert_string_equal(origin_of(set, "HighWatermark"), "--set");
    assert_string_equal(origin_of(set, "CriticalWatermark"), "default");
    config_destroy(set);
}

static void environment_and_sets_begin_lists_anew(void **state)
{
    struct folder *f = *state;
    const char *const sets[] = {"Models.Load=x", "Models.Load=y z"};
    struct config_source source = {.file = f->file};
    struct config_set *set;

    setenv("SLUICE_MODELS_LOAD", "e", 1);
    assert_ok(config_read(&source, &set, NULL));
    assert_int_equal(config_values(set)->models.load.count, 1);
    config_destroy(set);
    source.sets = sets;
    source.set_count = 2;
    assert_ok(config_read(&source, &set, NULL));
    assert_int_equal(config_values(set)->models.load.count, 3);
    assert_string_equal(config_values(set)->models.load.items[0], "x");
    config_destroy(set);
}

static struct config_set *read_instance(const struct folder *f, const char *instance)
{
    struct config_source source = {.file = f->file, .instance = instance};
    struct config_set *set = NULL;
    struct error err = {0};

    if (config_read(&source, &set, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return set;
}

static void an_instance_has_what_cannot_be_shared(void **state)
{
    struct folder *f = *state;
    struct config_set *set;
    const struct config *config;

    put(f->file, "[Server]\nGrpcListen=127.0.0.1:8001\n[Memory]\nFloor=5M\n");
    set = read_instance(f, "1");
    config = config_values(set);
    assert_string_equal(config->device.device, "cuda:1");
    assert_int_equal(config->server.grpc_listen.count, 1);
    assert_string_equal(config->server.grpc_listen.items[0], "unix:/run/sluice/1/grpc.sock");
    assert_string_equal(config->server.http_listen.items[0], "unix:/run/sluice/1/http.sock");
    assert_string_equal(config->server.metrics_listen.items[0], "unix:/run/sluice/1/metrics.sock");
    assert_string_equal(config->server.admin_listen.items[0], "unix:/run/sluice/1/admin.sock");
    assert_int_equal(config->memory.floor, 3 << 20); /* of the shared drop-ins */
    config_destroy(set);
}

static void files_of_an_instance_come_after_the_shared_ones(void **state)
{
    struct folder *f = *state;
    struct config_set *set;
    const struct config *config;
    char path[160], folder[170], drop_in[180], origin[190];

    snprintf(path, sizeof(path), "%s/s@a-1.conf", f->path);
    snprintf(folder, sizeof(folder), "%s/s@a-1.conf.d", f->path);
    snprintf(drop_in, sizeof(drop_in), "%s/10.conf", folder);
    put(path, "[Device]\nDevice=cpu\n[Server]\nGrpcListen=127.0.0.1:8101\n[Models]\nLoad=z\n");
    assert_int_equal(mkdir(folder, 0700), 0);
    put(drop_in, "[Memory]\nFloor=9M\n");
    set = read_instance(f, "a-1");
    config = config_values(set);
    assert_string_equal(config->device.device, "cpu");
    assert_int_equal(config->server.grpc_listen.count, 2);
    assert_string_equal(config->server.grpc_listen.items[1], "127.0.0.1:8101");
    assert_int_equal(config->models.load.count, 1);
    assert_int_equal(config->memory.floor, 9 << 20);
    snprintf(origin, sizeof(origin), "%s:2", drop_in);
    assert_string_equal(origin_of(set, "Floor"), origin);
    config_destroy(set);
    /* Another instance does not see them. */
    set = read_instance(f, "b");
    assert_int_equal(config_values(set)->memory.floor, 3 << 20);
    config_destroy(set);
    assert_int_equal(remove(drop_in) | remove(folder) | remove(path), 0);
}

static void an_instance_is_a_plain_name(void **state)
{
    static const char *const names[] = {"", "../1", "a b", "a%s"};
    struct folder *f = *state;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct config_source source = {.file = f->file, .instance = names[i]};
        struct config_set *set = NULL;
        struct error err;

        assert_int_equal(config_read(&source, &set, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "allowed are 1 to 64 letters, digits, '-' and '_'"));
    }
}

static void faults_outside_files_name_their_source(void **state)
{
    struct folder *f = *state;
    const char *sets[] = {"Memory.Limit"};
    struct config_source source = {.file = f->file, .set_count = 1, .sets = sets};
    struct config_set *set;
    struct error err;

    assert_int_equal(config_read(&source, &set, &err), STATUS_INVALID);
    assert_string_equal(err.text, "--set: found 'Memory.Limit', allowed is Section.Key=VALUE");
    sets[0] = "Memory.Limitt=1G";
    assert_int_equal(config_read(&source, &set, &err), STATUS_INVALID);
    assert_string_equal(err.text,
                        "--set: unknown key 'Limitt' in [Memory]; the nearest is Memory.Limit");
    source.set_count = 0;
    setenv("SLUICE_MEMORY_LOW", "1", 1);
    assert_int_equal(config_read(&source, &set, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "SLUICE_MEMORY_LOW stands for no key"));
    unsetenv("SLUICE_MEMORY_LOW");
    setenv("SLUICE_MEMROY_LIMIT", "1", 1);
    assert_int_equal(config_read(&source, &set, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "SLUICE_MEMROY_LIMIT stands for no key"));
    unsetenv("SLUICE_MEMROY_LIMIT");
}

static void variables_that_are_no_keys_are_let_be(void **state)
{
    static const char *const names[] = {"SLUICE_CPU",        "SLUICE_LOG",
                                        "SLUICE_FAULT",      "SLUICE_SERVER",
                                        "SLUICE_PLUGIN_DIR", "SLUICE_SERVICE_HOST"};
    struct folder *f = *state;
    struct config_source source = {.file = f->file};
    struct config_set *set;
    struct error err;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *was = getenv(names[i]);

        if (was == NULL)
            setenv(names[i], "x", 1);
        assert_int_equal(config_read(&source, &set, &err), STATUS_OK);
        if (was == NULL)
            unsetenv(names[i]);
        config_destroy(set);
    }
}

static void a_missing_file_is_not_found(void **state)
{
    struct config_source source = {.file = "/nonexistent/sluice.conf"};
    struct config_set *set = NULL;
    struct error err;

    (void)state;
    assert_int_equal(config_read(&source, &set, &err), STATUS_NOT_FOUND);
    assert_string_equal(err.text, "/nonexistent/sluice.conf: No such file or directory");
    source.file = "/tmp";
    assert_int_equal(config_read(&source, &set, &err), STATUS_IO);
    assert_null(set);
}

/* Its writer may never come. */
static void a_pipe_that_nobody_writes_to_is_refused(void **state)
{
    char folder[] = "/tmp/sluice-config-XXXXXX", pipe[64];
    struct config_source source = {.file = pipe};
    struct config_set *set = NULL;
    struct error err;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(pipe, sizeof(pipe), "%s/pipe", folder);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(config_read(&source, &set, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "nothing came out of it"));
    assert_null(set);
    assert_int_equal(unlink(pipe), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void expect_lanes_to_wait(void *arg, const struct config_entry *entry)
{
    if (strcmp(entry->key, "Lanes") == 0) {
        assert_string_equal(entry->value, "1");
        assert_string_equal(entry->waiting, "2");
        assert_string_equal(entry->origin, "default");
        ++*(int *)arg;
    } else if (strcmp(entry->key, "Load") != 0) {
        assert_null(entry->waiting);
    }
}

static void keys_that_need_a_restart_keep_what_was_started_with(void **state)
{
    struct config_set *started = read_text("[Models]\nLoad=b c\n");
    struct config_set *set = read_text("[Memory]\nLimit=1G\n[Device]\nLanes=2\n[Models]\nLoad=a\n");
    int seen = 0;
    char text[64];

    (void)state;
    config_keep_started(set, started, text, sizeof(text));
    assert_int_equal(config_values(set)->device.lanes, 1);
    assert_int_equal(config_values(set)->models.load.count, 2);
    assert_string_equal(config_values(set)->models.load.items[1], "c");
    assert_int_equal(config_values(set)->memory.limit.bytes, 1 << 30);
    config_for_each(set, expect_lanes_to_wait, &seen);
    assert_int_equal(seen, 1);
    config_destroy(set);
    config_destroy(started);
}

static void only_restart_keys_are_named_as_such(void **state)
{
    struct config_set *old = read_text(""), *other = read_text("[Device]\nLanes=2\n");
    struct config_set *new = read_text("[Memory]\nLimit=1G\n[Device]\nLanes=2\nThreads=00\n"
                                       "[Models]\nLoad=a\n");
    char text[64], little[8];

    (void)state;
    config_keep_started(new, old, text, sizeof(text));
    assert_string_equal(text, "Models.Load, Device.Lanes");
    config_keep_started(other, old, little, sizeof(little));
    assert_string_equal(little, "Device.");
    config_keep_started(old, old, text, sizeof(text));
    assert_string_equal(text, "");
    config_destroy(old);
    config_destroy(other);
    config_destroy(new);
}

static enum status read_everything(void *arg)
{
    struct folder *f = arg;
    const char *const sets[] = {"Models.Load=x", "Models.Repository=/y"};
    struct config_source source = {.file = f->file, .set_count = 2, .sets = sets};
    struct config_set *set = NULL;
    enum status status = config_read(&source, &set, NULL);

    if (status != STATUS_OK)
        assert_null(set);
    config_destroy(set);
    return status;
}

static void reading_survives_every_failed_allocation(void **state)
{
    assert_true(fail_each_alloc(read_everything, *state) >= 3);
}

int main(void)
{
#define FILES(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        FILES(later_sources_win_and_origins_tell),
        FILES(environment_and_sets_begin_lists_anew),
        FILES(an_instance_has_what_cannot_be_shared),
        FILES(files_of_an_instance_come_after_the_shared_ones),
        FILES(an_instance_is_a_plain_name),
        FILES(faults_outside_files_name_their_source),
        FILES(variables_that_are_no_keys_are_let_be),
        cmocka_unit_test(a_missing_file_is_not_found),
        cmocka_unit_test(a_pipe_that_nobody_writes_to_is_refused),
        cmocka_unit_test(only_restart_keys_are_named_as_such),
        cmocka_unit_test(keys_that_need_a_restart_keep_what_was_started_with),
        FILES(reading_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
