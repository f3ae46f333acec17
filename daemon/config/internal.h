/* What the files of this folder share. */
#ifndef CONFIG_INTERNAL_H
#define CONFIG_INTERNAL_H

#include "config/config.h"

enum key_type {
    TYPE_bool,
    TYPE_int,
    TYPE_size,
    TYPE_size_or_percent,
    TYPE_fraction,
    TYPE_time,
    TYPE_text,
    TYPE_list,
    TYPE_choice,
};

enum {
#define SECTION(id, name)
#define KEY(section, field, name, type, standard, reload, help) KEY_##section##_##field,
#define END_SECTION(id)
#include "config/keys.def"
#undef SECTION
#undef KEY
#undef END_SECTION
    CONFIG_KEYS
};

struct key {
    const char *section;
    const char *name;
    const char *standard; /* TYPE_choice: all its words, the first is the default */
    const char *help;
    enum key_type type;
    bool is_live;
    size_t offset, bytes; /* in struct config */
};

struct setting {
    const char *origin; /* "FILE:LINE" …; in the set's arena, that of what ran first, or static */
    int layer;          /* of the last assignment: lists append within one layer only */
    const char *waiting; /* what a restart would bring; NULL: the same */
};

struct config_set {
    struct arena arena;
    struct config values;
    struct setting settings[CONFIG_KEYS];
};

/* keys.c */
extern const struct key config_keys[CONFIG_KEYS];
/* The row of "Memory", "Limit" (case counts); STATUS_INVALID says which section or key is near. */
MUST_CHECK enum status key_find(const char *section, const char *name, size_t *out_index,
                                struct error *err);
bool key_has_section(const char *section);
/* Whether it is the name of a section, or a misspelling of one; case aside. */
bool key_is_near_section(const char *word);
/* The row that SLUICE_<tail> means, underscores and case aside; CONFIG_KEYS: none. */
size_t key_by_environment(const char *tail);
/* STATUS_INVALID names the nearest section. */
enum status key_unknown_section(const char *section, struct error *err);

/* value.c */
/* Reads `text` into `field`.  `append`: a list keeps what it has. */
MUST_CHECK enum status value_read(const struct key *key, const char *text, bool append,
                                  struct arena *arena, void *field, struct error *err);
/* The one way to write the value, readable by value_read(). */
void value_write(const struct key *key, const void *field, FILE *to);

/* ini.c */
/* One assignment; `line` from 1. */
typedef enum status (*ini_each_fn)(void *arg, const char *section, const char *name,
                                   const char *value, unsigned line, struct error *err);
/* Calls `each` for every "Key=Value" line.  Errors begin with "FILE:LINE: ". */
MUST_CHECK enum status ini_read(const char *file, const char *text, size_t bytes, ini_each_fn each,
                                void *arg, struct error *err);

/* check.c */
/* The values against each other. */
MUST_CHECK enum status config_check(const struct config_set *set, struct error *err);

static inline void *key_field(const struct key *key, const struct config *values)
{
    return (char *)values + key->offset;
}

#endif
