/* memory --snapshot: the daemon's document into a file, whole or not at all. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"
#include "pickle.h"
#include "proto/admin.pb-c.h"

static bool ends_in(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static bool write_document(const json_t *document, bool as_json, FILE *to)
{
    if (!as_json) /* PyTorch has a tuple there */
        return pickle_write(document, "segment_pool_id", to);
    return json_dumpf(document, to, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0;
}

static int write_file(const json_t *document, const char *path)
{
    FILE *to = fopen(path, "wbe");
    bool written;

    if (to == NULL) {
        (void)fprintf(stderr, "sluicectl: cannot write %s: %s\n", path, strerror(errno));
        return EXIT_REFUSED;
    }
    errno = 0;
    written = write_document(document, ends_in(path, ".json"), to);
    if (fclose(to) == 0 && written)
        return EXIT_DONE;
    (void)fprintf(stderr, "sluicectl: cannot write %s: %s\n", path, strerror(errno));
    (void)unlink(path);
    return EXIT_REFUSED;
}

int memory_snapshot(struct ctl *ctl, const char *file)
{
    static const Sluice__V1__AdminRequest request = SLUICE__V1__ADMIN_REQUEST__INIT;
    json_t *document;
    size_t segments, events;
    int exit_status = ctl_admin(ctl, "MemorySnapshot", &request, &document);

    if (exit_status != EXIT_DONE)
        return exit_status;
    exit_status = write_file(document, file);
    segments = json_array_size(json_object_get(document, "segments"));
    events = json_array_size(json_object_get(json_object_get(document, "sluice"), "history"));
    json_decref(document);
    if (exit_status != EXIT_DONE)
        return exit_status;
    if (ctl->as_json)
        (void)printf("{\"segments\": %zu, \"events\": %zu}\n", segments, events);
    else
        (void)printf("%s: %zu segments, %zu events of history\n", file, segments, events);
    return EXIT_DONE;
}
