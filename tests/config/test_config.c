#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/fail_alloc.h"
#include "support/unit.h"

/* ---- one text ---- */

static struct config_set *read_text(const char *text)
{
    struct config_set *set = NULL;
    struct error err = {0};

    if (config_read_text("a.conf", text, strlen(text), &set, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return set;
}

static void expect_refusal(const char *text, const char *message)
{
    struct config_set *set = NULL;
    struct error err = {0};

    assert_int_equal(config_read_text("a.conf", text, strlen(text), &set, &err), STATUS_INVALID);
    assert_null(set);
    assert_string_equal(err.text, message);
}

static void an_empty_text_is_all_defaults(void **state)
{
    struct config_set *set = read_text("");
    const struct config *config = config_values(set);

    (void)state;
    assert_int_equal(config->server.grpc_listen.count, 2);
    assert_string_equal(config->server.grpc_listen.items[0], "127.0.0.1:8001");
    assert_int_equal(config->server.max_message_bytes, 256 << 20);
    assert_int_equal(config->server.request_timeout, 60000000);
    assert_string_equal(config->models.control_mode, "none");
    assert_true(config->models.strict_readiness);
    assert_int_equal(config->models.load.count, 0);
    assert_true(config->memory.limit.fraction == 0.8);
    assert_true(config->memory.low_watermark == 0.75);
    assert_int_equal(config->device.inline_limit, 100);
    config_destroy(set);
}

static void every_type_is_read(void **state)
{
    struct config_set *set = read_text("# comment\n"
                                       "; comment\r\n"
                                       "\n"
                                       "  [Memory]  \n"
                                       " LowWatermark = 50% \n"
                                       "Limit=1.5G\n"
                                       "Dwell=1min 30s\n"
                                       "IdleDecay=infinity\n"
                                       "IdleAfter=7\n"
                                       "Floor=3KiB\n"
                                       "[Device]\n"
                                       "Lanes=4\n"
                                       "Device=cuda:0\n"
                                       "[Models]\n"
                                       "StrictReadiness=no\n"
                                       "ControlMode=poll\n"
                                       "Load=a b\t c\n"
                                       "Load=d");
    const struct config *config = config_values(set);

    (void)state;
    assert_true(config->memory.low_watermark == 0.5);
    assert_int_equal(config->memory.limit.bytes, 3 << 29);
    assert_true(config->memory.limit.fraction == 0);
    assert_int_equal(config->memory.dwell, 90000000);
    assert_true(config->memory.idle_decay == CLOCK_NEVER);
    assert_int_equal(config->memory.idle_after, 7000000);
    assert_int_equal(config->memory.floor, 3072);
    assert_int_equal(config->device.lanes, 4);
    assert_string_equal(config->device.device, "cuda:0");
    assert_false(config->models.strict_readiness);
    assert_string_equal(config->models.control_mode, "poll");
    assert_int_equal(config->models.load.count, 4);
    assert_string_equal(config->models.load.items[2], "c");
    assert_string_equal(config->models.load.items[3], "d");
    config_destroy(set);
}

static void a_key_without_value_goes_back_to_its_default(void **state)
{
    struct config_set *set = read_text("[Memory]\nLimit=2G\nLimit=\n"
                                       "[Server]\nMetricsListen=unix:/m\nMetricsListen=\n");

    (void)state;
    assert_true(config_values(set)->memory.limit.fraction == 0.8);
    assert_int_equal(config_values(set)->server.metrics_listen.count, 0);
    config_destroy(set);
}

static void a_list_replaces_its_default(void **state)
{
    struct config_set *set = read_text("[Server]\nGrpcListen=unix:/g\n");

    (void)state;
    assert_int_equal(config_values(set)->server.grpc_listen.count, 1);
    config_destroy(set);
}

static void faults_name_file_line_found_and_allowed(void **state)
{
    static const struct {
        const char *text, *message;
    } faults[] = {
        {"[Memory]\nLowWatermrk=0.7\n",
         "a.conf:2: unknown key 'LowWatermrk' in [Memory]; the nearest is Memory.LowWatermark"},
        {"[Memory]\nlanes=2\n",
         "a.conf:2: unknown key 'lanes' in [Memory]; the nearest is Device.Lanes"},
        {"\n[Sevrer]\n", "a.conf:2: unknown section [Sevrer]; the nearest is [Server]"},
        {"[Memory\n", "a.conf:1: found '[Memory', a section ends with ']'"},
        {"Limit=1G\n", "a.conf:1: 'Limit=1G' stands before the first [Section]"},
        {"[Memory]\nLimit\n",
         "a.conf:2: found 'Limit', allowed are [Section], Key=Value and # comments"},
        {"[Memory]\n=1\n", "a.conf:2: found '=1', allowed are [Section], Key=Value and # comments"},
        {"[Memory]\nLimit=-1\n",
         "a.conf:2: Memory.Limit: found '-1', allowed: bytes (512M, 4G) or a share (75%)"},
        {"[Memory]\nLimit=101%\n",
         "a.conf:2: Memory.Limit: found '101%', allowed: bytes (512M, 4G) or a share (75%)"},
        {"[Memory]\nLowWatermark=1.5\n",
         "a.conf:2: Memory.LowWatermark: found '1.5', allowed: a share from 0 to 1 (0.75 or 75%)"},
        {"[Memory]\nDwell=2 parsecs\n",
         "a.conf:2: Memory.Dwell: found '2 parsecs', allowed: a time with us, ms, s, min, h or d "
         "(200ms, 5s), 0 or infinity"},
        {"[Memory]\nFloor=99999999999999999999T\n",
         "a.conf:2: Memory.Floor: found '99999999999999999999T', allowed: bytes, with K, M, G or T "
         "for powers of 1024 (512M)"},
        {"[Device]\nLanes=4294967296\n",
         "a.conf:2: Device.Lanes: found '4294967296', allowed: a whole number without sign"},
        {"[Models]\nStrictReadiness=maybe\n",
         "a.conf:2: Models.StrictReadiness: found 'maybe', allowed: true or false"},
        {"[Models]\nControlMode=expl\n",
         "a.conf:2: Models.ControlMode: found 'expl', allowed: none explicit poll"},
        {"[Device]\nDevice=tpu\n",
         "Device.Device=tpu (a.conf:2): allowed are auto, cpu, null, cuda:N and cuda:UUID"},
        {"[Models]\nRepository=a\x01z\n", "a.conf:2: control character 0x01 in the line"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        expect_refusal(faults[i].text, faults[i].message);
}

static void values_that_exclude_each_other_name_both_and_their_origins(void **state)
{
    static const struct {
        const char *text, *message;
    } faults[] = {
        {"[Memory]\nHighWatermark=0.7\n", "Memory.HighWatermark=0.7 (a.conf:2) must lie above "
                                          "Memory.LowWatermark=0.75 (default)"},
        {"[Memory]\nHighWatermark=95%\n", "Memory.CriticalWatermark=0.95 (default) must lie above "
                                          "Memory.HighWatermark=0.95 (a.conf:2)"},
        {"[Memory]\nLowWatermark=0.05\n",
         "Memory.LowWatermark=0.05 (a.conf:2): allowed are 0.1 to 1"},
        {"[Memory]\nLimit=0\n", "Memory.Limit=0 (a.conf:2): must be more than nothing"},
        {"[Memory]\nLimit=98%\n",
         "Memory.Limit=98% (a.conf:2) must leave room for Memory.Headroom=3% (default)"},
        {"[Memory]\nHostLimit=100M\n", "Server.MaxMessageBytes=256M (default) must be at most "
                                       "Memory.HostLimit=100M (a.conf:2)"},
        {"[Memory]\nLimit=1G\nFloor=2G\n",
         "Memory.Floor=2G (a.conf:3) must be at most Memory.Limit=1G (a.conf:2)"},
        {"[Device]\nLanes=0\n", "Device.Lanes=0 (a.conf:2): allowed are 1 to 32"},
        {"[Server]\nHttpListen=8000\n",
         "Server.HttpListen (a.conf:2): found '8000', allowed are host:port, [v6]:port and "
         "unix:/path (below 108 bytes)"},
        {"[Server]\nHttpListen=127.0.0.1:8001\n",
         "Server.HttpListen (a.conf:2): found '127.0.0.1:8001', which Server.GrpcListen (default) "
         "has already"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        expect_refusal(faults[i].text, faults[i].message);
}

static void addresses_of_every_kind_are_taken(void **state)
{
    struct config_set *set =
        read_text("[Server]\nGrpcListen=127.0.0.1:0 [::1]:0 localhost:65535 unix:/run/x.sock\n"
                  "HttpListen=127.0.0.1:0\n");

    (void)state;
    assert_int_equal(config_values(set)->server.grpc_listen.count, 4);
    config_destroy(set);
}

/* ---- files, environment, sets ---- */

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

static void find_origin(void *arg, const char *section, const char *key, const char *value,
                        const char *origin, bool live, const char *help)
{
    (void)value;
    (void)live;
    assert_true(strlen(help) > 10);
    if (strcmp(section, "Memory") == 0 && strcmp(key, origin_wanted) == 0)
        snprintf(arg, 128, "%s", origin);
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

static void only_restart_keys_are_named_as_such(void **state)
{
    struct config_set *old = read_text("");
    struct config_set *new = read_text("[Memory]\nLimit=1G\n[Device]\nLanes=2\nThreads=00\n"
                                       "[Models]\nLoad=a\n");
    char text[64], little[8];

    (void)state;
    config_restart_changes(old, new, text, sizeof(text));
    assert_string_equal(text, "Models.Load, Device.Lanes");
    config_restart_changes(old, new, little, sizeof(little));
    assert_string_equal(little, "Models.");
    config_restart_changes(old, old, text, sizeof(text));
    assert_string_equal(text, "");
    config_destroy(old);
    config_destroy(new);
}

static void a_dump_reads_back_as_itself(void **state)
{
    struct config_set *set = read_text("[Memory]\nLimit=33.3%\nFloor=1000\nLowWatermark=0.123456789"
                                       "\nIdleDecay=infinity\nDwell=1234567us\nHostLimit=3T\n"
                                       "[Server]\nMetricsListen=\n");
    struct config_set *back;
    char *first = NULL, *second = NULL;
    size_t bytes;
    FILE *to;

    (void)state;
    to = open_memstream(&first, &bytes);
    config_dump(set, to);
    fclose(to);
    back = read_text(first);
    assert_true(config_values(back)->memory.limit.fraction ==
                config_values(set)->memory.limit.fraction);
    assert_int_equal(config_values(back)->memory.floor, 1000);
    assert_true(config_values(back)->memory.low_watermark == 0.123456789);
    assert_true(config_values(back)->memory.idle_decay == CLOCK_NEVER);
    assert_int_equal(config_values(back)->server.metrics_listen.count, 0);
    config_restart_changes(set, back, second = (char[256]){0}, 256);
    assert_string_equal(second, "");
    free(first);
    config_destroy(back);
    config_destroy(set);
}

/* ---- config/sluice.conf ---- */

struct document {
    char *text;
    const char *at;
    char section[32];
};

/* Cuts the next line off; NULL at the end. */
static const char *next_line(struct document *document, char *line, size_t room)
{
    size_t length = strcspn(document->at, "\n");

    if (*document->at == '\0')
        return NULL;
    assert_true(length < room);
    memcpy(line, document->at, length);
    line[length] = '\0';
    document->at += length + (document->at[length] == '\n');
    return line;
}

/* The file must go on with this key: its section if it is new, its help, "#Key=default". */
static void expect_key(void *arg, const char *section, const char *key, const char *value,
                       const char *origin, bool live, const char *help)
{
    struct document *document = arg;
    char line[256], want[512], found[2048] = "";

    (void)origin;
    if (strcmp(document->section, section) != 0) {
        snprintf(want, sizeof(want), "[%s]", section);
        do
            assert_non_null(next_line(document, line, sizeof(line)));
        while (line[0] == '#' || line[0] == '\0');
        assert_string_equal(line, want);
        snprintf(document->section, sizeof(document->section), "%s", section);
    }
    while (next_line(document, line, sizeof(line)) != NULL) {
        if (strncmp(line, "# ", 2) == 0)
            snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%s",
                     found[0] == '\0' ? "" : " ", line + 2);
        else if (line[0] != '\0')
            break;
    }
    snprintf(want, sizeof(want), "%s%s", help, live ? "" : " (needs a restart)");
    assert_string_equal(found, want);
    snprintf(want, sizeof(want), "#%s=%s", key, value);
    assert_string_equal(line, want);
}

static void the_shipped_file_documents_every_key_and_its_default(void **state)
{
    struct config_set *set = read_text("");
    struct document document = {0};
    size_t bytes = 0;
    FILE *from = fopen(SOURCE_DIR "/config/sluice.conf", "r");
    char line[256];

    (void)state;
    assert_non_null(from);
    document.text = calloc(1, 65536);
    bytes = fread(document.text, 1, 65535, from);
    fclose(from);
    config_destroy(set);
    set = NULL;
    assert_ok(config_read_text("sluice.conf", document.text, bytes, &set, NULL));
    document.at = document.text;
    config_for_each(set, expect_key, &document);
    assert_null(next_line(&document, line, sizeof(line)));
    free(document.text);
    config_destroy(set);
}

/* ---- memory ---- */

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
        cmocka_unit_test(an_empty_text_is_all_defaults),
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(a_key_without_value_goes_back_to_its_default),
        cmocka_unit_test(a_list_replaces_its_default),
        cmocka_unit_test(faults_name_file_line_found_and_allowed),
        cmocka_unit_test(values_that_exclude_each_other_name_both_and_their_origins),
        cmocka_unit_test(addresses_of_every_kind_are_taken),
        FILES(later_sources_win_and_origins_tell),
        FILES(environment_and_sets_begin_lists_anew),
        FILES(an_instance_has_what_cannot_be_shared),
        FILES(files_of_an_instance_come_after_the_shared_ones),
        FILES(an_instance_is_a_plain_name),
        FILES(faults_outside_files_name_their_source),
        cmocka_unit_test(a_missing_file_is_not_found),
        cmocka_unit_test(a_pipe_that_nobody_writes_to_is_refused),
        cmocka_unit_test(only_restart_keys_are_named_as_such),
        cmocka_unit_test(a_dump_reads_back_as_itself),
        cmocka_unit_test(the_shipped_file_documents_every_key_and_its_default),
        FILES(reading_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
