/* The table of all keys, and finding a row by what somebody wrote. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "config/internal.h"

#define SECTION(id, name) static const char section_##id[] = name;
#define KEY(section, field, name, type, standard, reload, help)
#define END_SECTION(id)
#include "config/keys.def"
#undef SECTION
#undef KEY
#undef END_SECTION

#define LIVE    true
#define RESTART false

const struct key config_keys[CONFIG_KEYS] = {
#define SECTION(id, name)
#define KEY(id, field, key_name, kind, text, reload, words)                                        \
    [KEY_##id##_##field] = {                                                                       \
        .section = section_##id,                                                                   \
        .name = #key_name,                                                                         \
        .standard = text,                                                                          \
        .help = words,                                                                             \
        .type = TYPE_##kind,                                                                       \
        .is_live = reload,                                                                         \
        .offset = offsetof(struct config, id.field),                                               \
        .bytes = sizeof(config_type_##kind),                                                       \
    },
#define END_SECTION(id)
#include "config/keys.def"
#undef SECTION
#undef KEY
#undef END_SECTION
};

enum {
    LONGEST_WORD = 63, /* of what is compared for nearness */
    NEAR = 2,          /* edits up to which a word is taken for a misspelling of another */
};

/* Edits (insert, delete, change a letter, case aside) from one word to the other. */
static unsigned edit_distance(const char *a, const char *b)
{
    size_t columns = strnlen(b, LONGEST_WORD);
    unsigned row[LONGEST_WORD + 1];

    for (size_t j = 0; j <= columns; j++)
        row[j] = (unsigned)j;
    for (size_t i = 0; i < LONGEST_WORD && a[i] != '\0'; i++) {
        unsigned diagonal = row[0];

        row[0] = (unsigned)i + 1;
        for (size_t j = 0; j < columns; j++) {
            unsigned change =
                diagonal + (tolower((unsigned char)a[i]) != tolower((unsigned char)b[j]));
            unsigned shift = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;

            diagonal = row[j + 1];
            row[j + 1] = change < shift ? change : shift;
        }
    }
    return row[columns];
}

bool key_has_section(const char *section)
{
    for (size_t i = 0; i < CONFIG_KEYS; i++) {
        if (strcmp(config_keys[i].section, section) == 0)
            return true;
    }
    return false;
}

/* Edits to the section that is nearest. */
static unsigned nearest_section(const char *section, const char **out_nearest)
{
    unsigned best = UINT32_MAX;

    for (size_t i = 0; i < CONFIG_KEYS; i++) {
        unsigned distance = edit_distance(section, config_keys[i].section);

        if (distance < best) {
            best = distance;
            *out_nearest = config_keys[i].section;
        }
    }
    return best;
}

/* " [Server] [Models] …" */
static const char *list_sections(char *text, size_t room)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < CONFIG_KEYS && used < room; i++)
        if (i == 0 || config_keys[i].section != config_keys[i - 1].section)
            used += (size_t)snprintf(text + used, room - used, " [%s]", config_keys[i].section);
    return text;
}

bool key_is_near_section(const char *word)
{
    const char *nearest = "";
    unsigned distance = nearest_section(word, &nearest);

    /* Two edits are two letters exchanged, or two words: Service is not Device. */
    return distance <= (strlen(word) == strlen(nearest) ? NEAR : NEAR - 1);
}

enum status key_unknown_section(const char *section, struct error *err)
{
    const char *nearest = "";
    unsigned best = nearest_section(section, &nearest);
    char all[128];

    if (best > NEAR)
        return error_set(err, STATUS_INVALID, "unknown section [%.64s]; there are%s", section,
                         list_sections(all, sizeof(all)));
    return error_set(err, STATUS_INVALID, "unknown section [%.64s]; the nearest is [%s]", section,
                     nearest);
}

/* A key of the right name in another section is nearer than any misspelling. */
static size_t nearest_key(const char *section, const char *name)
{
    unsigned best = UINT32_MAX;
    size_t nearest = 0;

    for (size_t i = 0; i < CONFIG_KEYS; i++) {
        unsigned elsewhere = strcmp(config_keys[i].section, section) != 0;
        unsigned distance = 2 * edit_distance(name, config_keys[i].name) + elsewhere;

        if (distance < best) {
            best = distance;
            nearest = i;
        }
    }
    return nearest;
}

enum status key_find(const char *section, const char *name, size_t *out_index, struct error *err)
{
    const struct key *near;

    if (!key_has_section(section))
        return key_unknown_section(section, err);
    for (size_t i = 0; i < CONFIG_KEYS; i++) {
        if (strcmp(config_keys[i].section, section) == 0 &&
            strcmp(config_keys[i].name, name) == 0) {
            *out_index = i;
            return STATUS_OK;
        }
    }
    near = &config_keys[nearest_key(section, name)];
    return error_set(err, STATUS_INVALID, "unknown key '%.64s' in [%s]; the nearest is %s.%s", name,
                     section, near->section, near->name);
}

/* Compares without underscores and case; returns what is left of `tail`, NULL when it differs. */
static const char *skip_word(const char *tail, const char *word)
{
    for (; *word != '\0'; word++, tail++) {
        while (*tail == '_')
            tail++;
        if (tolower((unsigned char)*tail) != tolower((unsigned char)*word))
            return NULL;
    }
    return tail;
}

size_t key_by_environment(const char *tail)
{
    for (size_t i = 0; i < CONFIG_KEYS; i++) {
        const char *rest = skip_word(tail, config_keys[i].section);

        if (rest == NULL || *rest != '_')
            continue;
        rest = skip_word(rest, config_keys[i].name);
        if (rest != NULL && *rest == '\0')
            return i;
    }
    return CONFIG_KEYS;
}
