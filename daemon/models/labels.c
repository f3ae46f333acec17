#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "models/plain_file.h"

enum { MAX_LABELS = 1 << 20, MAX_LABEL_BYTES = 64 << 20 };

static void cut_line_end(char *line)
{
    size_t length = strlen(line);

    while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
        line[--length] = '\0';
}

/* Room doubles; what the old list took stays in the arena until the model goes. */
static enum status add_label(struct arena *arena, const char **labels[], size_t *count,
                             size_t *room, const char *label)
{
    if (*count == *room) {
        size_t more = *room == 0 ? 64 : *room * 2;
        const char **grown = arena_take_array(arena, more, sizeof(*grown));

        if (grown == NULL)
            return STATUS_NO_MEMORY;
        if (*count > 0)
            memcpy(grown, *labels, *count * sizeof(*grown));
        *labels = grown;
        *room = more;
    }
    (*labels)[*count] = arena_copy_string(arena, label, strlen(label));
    return (*labels)[(*count)++] == NULL ? STATUS_NO_MEMORY : STATUS_OK;
}

enum status labels_read(struct arena *arena, const char *path, size_t *out_count,
                        const char *const **out_labels, struct error *err)
{
    enum status status = STATUS_OK;
    FILE *from = NULL;
    const char **labels = NULL;
    size_t count = 0, room = 0, line_room = 0;
    char *line = NULL;

    TRY(plain_file_open(path, MAX_LABEL_BYTES, &from, err));
    while (status == STATUS_OK && getline(&line, &line_room, from) >= 0) {
        cut_line_end(line);
        status =
            count < MAX_LABELS ? add_label(arena, &labels, &count, &room, line) : STATUS_INVALID;
    }
    free(line);
    (void)fclose(from);
    if (status == STATUS_INVALID)
        return error_set(err, status, "%s: more than %d labels", path, MAX_LABELS);
    if (status != STATUS_OK)
        return error_set(err, status, "%s: no memory", path);
    *out_count = count;
    *out_labels = labels;
    return STATUS_OK;
}
