/* Lines: "[Section]", "Key=Value", "# comment", "; comment", empty.  Blanks around any part do not
 * count.  A '#' behind a value belongs to the value. */
#include <string.h>

#include "config/internal.h"

enum { LINE_BYTES = 8192, SECTION_BYTES = 64 };

struct reader {
    const char *file;
    unsigned line;
    char section[SECTION_BYTES];
    ini_each_fn each;
    void *arg;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts blanks off both ends, in place. */
static char *strip(char *text)
{
    size_t length;

    while (is_blank(*text))
        text++;
    length = strlen(text);
    while (length > 0 && is_blank(text[length - 1]))
        length--;
    text[length] = '\0';
    return text;
}

static enum status read_section(struct reader *reader, char *text, struct error *err)
{
    size_t length = strlen(text);

    if (text[length - 1] != ']')
        return error_set(err, STATUS_INVALID, "found '%.64s', a section ends with ']'", text);
    text[length - 1] = '\0';
    text = strip(text + 1);
    if (!key_has_section(text))
        return key_unknown_section(text, err);
    strcpy(reader->section, text); /* a known one: short */
    return STATUS_OK;
}

static enum status read_line(struct reader *reader, char *line, struct error *err)
{
    char *text = strip(line), *equals;

    for (const char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' && *c != '\t')
            return error_set(err, STATUS_INVALID, "control character 0x%02x in the line",
                             (unsigned char)*c);
    }
    if (*text == '\0' || *text == '#' || *text == ';')
        return STATUS_OK;
    if (*text == '[')
        return read_section(reader, text, err);
    equals = strchr(text, '=');
    if (equals == NULL || equals == text)
        return error_set(err, STATUS_INVALID,
                         "found '%.64s', allowed are [Section], Key=Value and # comments", text);
    if (reader->section[0] == '\0')
        return error_set(err, STATUS_INVALID, "'%.64s' stands before the first [Section]", text);
    *equals = '\0';
    return reader->each(reader->arg, reader->section, strip(text), strip(equals + 1), reader->line,
                        err);
}

enum status ini_read(const char *file, const char *text, size_t bytes, ini_each_fn each, void *arg,
                     struct error *err)
{
    struct reader reader = {.file = file, .each = each, .arg = arg};
    const char *end = text + bytes;
    char line[LINE_BYTES];

    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((stop != NULL ? stop : end) - text);
        enum status status;

        reader.line++;
        if (length >= sizeof(line))
            return error_set(err, STATUS_INVALID,
                             "%s:%u: a line of %zu bytes, at most %zu are allowed", file,
                             reader.line, length, sizeof(line) - 1);
        if (memchr(text, '\0', length) != NULL)
            return error_set(err, STATUS_INVALID, "%s:%u: a zero byte in the line", file,
                             reader.line);
        memcpy(line, text, length);
        line[length] = '\0';
        status = read_line(&reader, line, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "%s:%u", file, reader.line);
        text += length + (stop != NULL);
    }
    return STATUS_OK;
}
