#include "plan_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char HEADING[] = "id,lower,upper,size";

struct reader {
    const char *path;
    size_t line; /* from 1 */
    size_t count, room;
    struct plan_buffer *buffers;
    struct error *err;
};

static enum status bad_line(struct reader *reader, const char *why, const char *found)
{
    return error_set(reader->err, STATUS_INVALID, "%s:%zu: %s: '%.60s'", reader->path, reader->line,
                     why, found);
}

/* A decimal number up to `end` of at most `limit`: digits only, no sign, no blank. */
static bool read_number(const char *text, const char *end, uint64_t limit, uint64_t *out_number)
{
    uint64_t number = 0;

    if (text == end)
        return false;
    for (; text < end; text++) {
        uint64_t digit = (uint64_t)(*text - '0');

        if (*text < '0' || *text > '9' || number > (limit - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *out_number = number;
    return true;
}

static enum status read_fields(struct reader *reader, const char *line, struct plan_buffer *buffer)
{
    static const char *const NAMES[] = {"lower", "upper", "size"};
    static const uint64_t LIMITS[] = {UINT32_MAX, UINT32_MAX, INT64_MAX};
    const char *at = strchr(line, ',');
    uint64_t numbers[3];

    if (at == NULL || at == line)
        return bad_line(reader, "a line is id,lower,upper,size", line);
    for (size_t i = 0; i < 3; i++) {
        const char *text = at + 1, *end = strchr(text, ',');
        char why[96];

        if ((end == NULL) != (i == 2))
            return bad_line(reader, "a line is id,lower,upper,size", line);
        at = end != NULL ? end : text + strlen(text);
        if (!read_number(text, at, LIMITS[i], &numbers[i])) {
            snprintf(why, sizeof(why), "%s is a whole number from 0 to %" PRIu64, NAMES[i],
                     LIMITS[i]);
            return bad_line(reader, why, text);
        }
    }
    if (numbers[0] >= numbers[1])
        return bad_line(reader, "upper must be above lower", line);
    *buffer = (struct plan_buffer){
        .bytes = numbers[2], .first = (uint32_t)numbers[0], .last = (uint32_t)(numbers[1] - 1)};
    return STATUS_OK;
}

static enum status read_line(struct reader *reader, const char *line)
{
    reader->line++;
    if (reader->line == 1)
        return strcmp(line, HEADING) == 0
                   ? STATUS_OK
                   : bad_line(reader, "the first line must be id,lower,upper,size", line);
    if (reader->count == reader->room) {
        size_t room = reader->room > 0 ? reader->room * 2 : 256;
        struct plan_buffer *more = reallocarray(reader->buffers, room, sizeof(*more));

        if (more == NULL)
            return error_set(reader->err, STATUS_NO_MEMORY, "%s: no memory", reader->path);
        reader->buffers = more;
        reader->room = room;
    }
    TRY(read_fields(reader, line, &reader->buffers[reader->count]));
    reader->count++;
    return STATUS_OK;
}

static enum status read_lines(struct reader *reader, FILE *file)
{
    enum status status = STATUS_OK;
    char *line = NULL;
    size_t room = 0;
    ssize_t length;

    while (status == STATUS_OK && (length = getline(&line, &room, file)) >= 0) {
        if ((size_t)length != strlen(line)) {
            status = error_set(reader->err, STATUS_INVALID, "%s:%zu: a zero byte", reader->path,
                               reader->line + 1);
            break;
        }
        line[strcspn(line, "\r\n")] = '\0';
        status = read_line(reader, line);
    }
    free(line);
    if (status == STATUS_OK && ferror(file))
        return error_set(reader->err, STATUS_IO, "%s: cannot be read", reader->path);
    if (status == STATUS_OK && reader->line == 0)
        return error_set(reader->err, STATUS_INVALID, "%s: empty; the first line must be %s",
                         reader->path, HEADING);
    return status;
}

enum status plan_file_read(const char *path, struct plan_buffer **out_buffers, size_t *out_count,
                           struct error *err)
{
    struct reader reader = {.path = path, .err = err};
    FILE *file = fopen(path, "re");
    enum status status;

    if (file == NULL)
        return error_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
    status = read_lines(&reader, file);
    fclose(file);
    if (status != STATUS_OK) {
        free(reader.buffers);
        return status;
    }
    *out_buffers = reader.buffers;
    *out_count = reader.count;
    return STATUS_OK;
}

uint64_t plan_file_limit(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    const char *end = strrchr(name, '.'), *dot = end;
    uint64_t limit = 0;

    if (end == NULL || strcmp(end, ".csv") != 0)
        return 0;
    while (dot > name && *--dot != '.')
        ;
    if (*dot++ != '.')
        return 0;
    if (strncmp(dot, "cap", 3) == 0)
        dot += 3;
    return read_number(dot, end, INT64_MAX, &limit) ? limit : 0;
}
