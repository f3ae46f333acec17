/* What no key can tell alone: ranges, marks in order, addresses, and budgets that exclude each
 * other. Each message names both keys, their values and where those came from. */
#include <stdlib.h>
#include <string.h>

#include "config/internal.h"

/* "Memory.LowWatermark=0.75 (FILE:LINE)" */
struct quote {
    char text[256];
};

static const char *quote(const struct config_set *set, size_t index, struct quote *quote)
{
    const struct key *key = &config_keys[index];
    FILE *to = fmemopen(quote->text, sizeof(quote->text), "w");

    quote->text[0] = '\0';
    if (to == NULL)
        return key->name;
    fprintf(to, "%s.%s=", key->section, key->name);
    value_write(key, key_field(key, &set->values), to);
    fprintf(to, " (%s)", set->settings[index].origin);
    fclose(to);
    quote->text[sizeof(quote->text) - 1] = '\0';
    return quote->text;
}

static enum status refuse(const struct config_set *set, size_t index, const char *allowed,
                          struct error *err)
{
    struct quote what;

    return error_set(err, STATUS_INVALID, "%s: %s", quote(set, index, &what), allowed);
}

static enum status refuse_pair(const struct config_set *set, size_t index, const char *relation,
                               size_t other, struct error *err)
{
    struct quote what, with;

    return error_set(err, STATUS_INVALID, "%s must %s %s", quote(set, index, &what), relation,
                     quote(set, other, &with));
}

static enum status check_ranges(const struct config_set *set, struct error *err)
{
    static const struct {
        size_t key;
        unsigned least, most;
        const char *allowed;
    } ranges[] = {
        {KEY_server_io_threads, 1, 1, "allowed is 1 in this version"},
        {KEY_server_max_connections, 1, 1000000, "allowed are 1 to 1000000"},
        {KEY_server_max_streams, 1, 65536, "allowed are 1 to 65536"},
        {KEY_device_lanes, 1, 32, "allowed are 1 to 32"},
        {KEY_device_threads, 0, 1024, "allowed are 0 to 1024"},
        {KEY_memory_history, 0, 65536, "allowed are 0 to 65536"},
        {KEY_memory_shared_memory_regions, 0, 1024, "allowed are 0 to 1024"},
    };

    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        const struct key *key = &config_keys[ranges[i].key];
        unsigned value = *(const unsigned *)key_field(key, &set->values);

        if (value < ranges[i].least || value > ranges[i].most)
            return refuse(set, ranges[i].key, ranges[i].allowed, err);
    }
    return STATUS_OK;
}

/* What a device may be called; the device itself says later whether it is there. */
static enum status check_device(const struct config_set *set, struct error *err)
{
    static const char *const words[] = {"auto", "cpu", "null", "cuda"};
    const char *name = set->values.device.device;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t length = strlen(words[i]);

        if (strncmp(name, words[i], length) == 0 && (name[length] == '\0' || name[length] == ':'))
            return STATUS_OK;
    }
    return refuse(set, KEY_device_device, "allowed are auto, cpu, null, cuda:N and cuda:UUID", err);
}

/* Exit marks lie up to 0.07 below the entry marks, and the lowest must lie above nothing. */
#define LEAST_MARK 0.1

static enum status check_marks(const struct config_set *set, struct error *err)
{
    const struct config_memory *memory = &set->values.memory;

    if (memory->low_watermark < LEAST_MARK)
        return refuse(set, KEY_memory_low_watermark, "allowed are 0.1 to 1", err);
    if (memory->high_watermark <= memory->low_watermark)
        return refuse_pair(set, KEY_memory_high_watermark, "lie above", KEY_memory_low_watermark,
                           err);
    if (memory->critical_watermark <= memory->high_watermark)
        return refuse_pair(set, KEY_memory_critical_watermark, "lie above",
                           KEY_memory_high_watermark, err);
    return STATUS_OK;
}

static bool is_nothing(const struct amount *amount)
{
    return amount->bytes == 0 && amount->fraction <= 0;
}

static enum status check_budgets(const struct config_set *set, struct error *err)
{
    const struct config_memory *memory = &set->values.memory;
    const struct amount *host = &memory->host_limit;
    uint64_t message = set->values.server.max_message_bytes;

    if (is_nothing(&memory->limit))
        return refuse(set, KEY_memory_limit, "must be more than nothing", err);
    if (is_nothing(host))
        return refuse(set, KEY_memory_host_limit, "must be more than nothing", err);
    if (message == 0)
        return refuse(set, KEY_server_max_message_bytes, "must be more than nothing", err);
    if (memory->limit.fraction + memory->headroom.fraction > 1 + 1e-9)
        return refuse_pair(set, KEY_memory_limit, "leave room for", KEY_memory_headroom, err);
    if (host->fraction <= 0 && message > host->bytes)
        return refuse_pair(set, KEY_server_max_message_bytes, "be at most", KEY_memory_host_limit,
                           err);
    if (memory->limit.fraction <= 0 && memory->floor > memory->limit.bytes)
        return refuse_pair(set, KEY_memory_floor, "be at most", KEY_memory_limit, err);
    return STATUS_OK;
}

static bool is_port(const char *text)
{
    char *end;
    unsigned long port;

    if (*text < '0' || *text > '9' || strlen(text) > 5)
        return false;
    port = strtoul(text, &end, 10);
    return *end == '\0' && port <= 65535;
}

/* "host:port", "[v6]:port", "unix:/path" as a sockaddr_un holds it. */
static bool is_address(const char *text)
{
    const char *colon;

    if (strncmp(text, "unix:", 5) == 0)
        return text[5] == '/' && strlen(text + 5) < 108;
    colon = strrchr(text, ':');
    if (colon == NULL || colon == text || !is_port(colon + 1))
        return false;
    if (text[0] == '[')
        return colon[-1] == ']' && colon - text > 2;
    return memchr(text, ':', (size_t)(colon - text)) == NULL;
}

/* Port 0 means any free one, so two of those are two addresses. */
static bool is_same_address(const char *a, const char *b)
{
    size_t length = strlen(a);

    return strcmp(a, b) == 0 && !(length > 2 && strcmp(a + length - 2, ":0") == 0);
}

static const size_t listens[] = {KEY_server_grpc_listen, KEY_server_http_listen,
                                 KEY_server_metrics_listen, KEY_server_admin_listen};
enum { LISTENS = sizeof(listens) / sizeof(listens[0]) };

static const struct text_list *listen_list(const struct config_set *set, size_t i)
{
    return key_field(&config_keys[listens[i]], &set->values);
}

/* Whether address `at` of listener `i` was named before, by itself or an earlier listener. */
static bool is_taken(const struct config_set *set, size_t i, size_t at, size_t *out_by)
{
    const char *address = listen_list(set, i)->items[at];

    for (size_t j = 0; j <= i; j++) {
        const struct text_list *list = listen_list(set, j);

        for (size_t k = 0; k < (j < i ? list->count : at); k++) {
            if (is_same_address(list->items[k], address)) {
                *out_by = listens[j];
                return true;
            }
        }
    }
    return false;
}

static enum status check_addresses(const struct config_set *set, struct error *err)
{
    for (size_t i = 0; i < LISTENS; i++) {
        const struct key *key = &config_keys[listens[i]];
        const struct text_list *list = listen_list(set, i);
        const char *origin = set->settings[listens[i]].origin;
        size_t by;

        for (size_t k = 0; k < list->count; k++) {
            if (!is_address(list->items[k]))
                return error_set(err, STATUS_INVALID,
                                 "%s.%s (%s): found '%.128s', allowed are host:port, [v6]:port and "
                                 "unix:/path (below 108 bytes)",
                                 key->section, key->name, origin, list->items[k]);
            if (is_taken(set, i, k, &by))
                return error_set(
                    err, STATUS_INVALID, "%s.%s (%s): found '%.128s', which %s.%s (%s) has already",
                    key->section, key->name, origin, list->items[k], config_keys[by].section,
                    config_keys[by].name, set->settings[by].origin);
        }
    }
    return STATUS_OK;
}

enum status config_check(const struct config_set *set, struct error *err)
{
    TRY(check_ranges(set, err));
    TRY(check_device(set, err));
    TRY(check_marks(set, err));
    TRY(check_budgets(set, err));
    return check_addresses(set, err);
}
