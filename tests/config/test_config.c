/* What a text may say, and the shipped file that says it all. */
#include "config/texts.h"

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
        {"[Foo]\n",
         "a.conf:1: unknown section [Foo]; there are [Server] [Models] [Device] [Memory]"},
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
    config_keep_started(back, set, second = (char[256]){0}, 256);
    assert_string_equal(second, "");
    free(first);
    config_destroy(back);
    config_destroy(set);
}

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
static void expect_key(void *arg, const struct config_entry *entry)
{
    struct document *document = arg;
    char line[256], want[512], found[2048] = "";

    if (strcmp(document->section, entry->section) != 0) {
        snprintf(want, sizeof(want), "[%s]", entry->section);
        do
            assert_non_null(next_line(document, line, sizeof(line)));
        while (line[0] == '#' || line[0] == '\0');
        assert_string_equal(line, want);
        snprintf(document->section, sizeof(document->section), "%s", entry->section);
    }
    while (next_line(document, line, sizeof(line)) != NULL) {
        if (strncmp(line, "# ", 2) == 0)
            snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%s",
                     found[0] == '\0' ? "" : " ", line + 2);
        else if (line[0] != '\0')
            break;
    }
    snprintf(want, sizeof(want), "%s%s", entry->help, entry->live ? "" : " (needs a restart)");
    assert_string_equal(found, want);
    snprintf(want, sizeof(want), "#%s=%s", entry->key, entry->value);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_text_is_all_defaults),
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(a_key_without_value_goes_back_to_its_default),
        cmocka_unit_test(a_list_replaces_its_default),
        cmocka_unit_test(faults_name_file_line_found_and_allowed),
        cmocka_unit_test(values_that_exclude_each_other_name_both_and_their_origins),
        cmocka_unit_test(addresses_of_every_kind_are_taken),
        cmocka_unit_test(a_dump_reads_back_as_itself),
        cmocka_unit_test(the_shipped_file_documents_every_key_and_its_default),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
