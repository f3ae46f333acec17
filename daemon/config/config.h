/* The configuration: rows in keys.def, an INI reader, merge of files and --set, origin of each
 * value.
 *
 *   SECTION(memory, "Memory")
 *   KEY(memory, low_watermark, LowWatermark, fraction, "0.75", LIVE, "help …")
 *   END_SECTION(memory)
 *
 * expands to `struct config_memory { double low_watermark; … }`, to `struct config`, and to the
 * table. Types: bool, int (unsigned), size (uint64_t bytes: 512M, 4G), size_or_percent (struct
 * amount), fraction (double 0 to 1: 0.75 or 75%), time (int64_t µs: 200ms, 5s, 0; "infinity" =
 * CLOCK_NEVER), text (const char *), list (struct text_list, separated by spaces; later lines
 * append, empty clears), choice (one of the words in its row). A list's lines append to each other,
 * but the environment and --set each begin anew.  "Key=" alone goes back to the default (a list: to
 * nothing). Threads: none; a struct config is immutable once read.
 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/error.h"

struct text_list {
    size_t count;
    const char *const *items;
};

/* An absolute number of bytes, or a share of a whole that is known later. */
struct amount {
    uint64_t bytes;
    double fraction; /* > 0: this share instead */
};

#define SECTION(id, name)                                       struct config_##id {
#define KEY(section, field, name, type, standard, reload, help) config_type_##type field;
#define END_SECTION(id)                                                                            \
    }                                                                                              \
    ;
typedef bool config_type_bool;
typedef unsigned config_type_int;
typedef uint64_t config_type_size;
typedef struct amount config_type_size_or_percent;
typedef double config_type_fraction;
typedef int64_t config_type_time;
typedef const char *config_type_text;
typedef const char *config_type_choice;
typedef struct text_list config_type_list;
#include "config/keys.def"
#undef SECTION
#undef KEY
#undef END_SECTION

struct config {
#define SECTION(id, name) struct config_##id id;
#define KEY(section, field, name, type, standard, reload, help)
#define END_SECTION(id)
#include "config/keys.def"
#undef SECTION
#undef KEY
#undef END_SECTION
};

struct config_source {
    const char *file; /* NULL: /etc/sluice/sluice.conf when there is one; its .d beside it */
    /* NULL, or which of several daemons that share the file: see config_read() */
    const char *instance;
    size_t set_count;
    const char *const *sets; /* "Section.Key=VALUE", after the files */
};

struct config_set; /* a whole configuration with origins */

/* Reads defaults, file, drop-ins (FILE.d/ *.conf in order of name), SLUICE_<SECTION>_<KEY>
 * environment, sets; checks every value and the values against each other.  STATUS_INVALID: file,
 * line, what was found, what is allowed, the nearest known key.  STATUS_NOT_FOUND, STATUS_IO: the
 * file.
 *
 * Of instance "1" come between the drop-ins of sluice.conf and the environment, as one more layer:
 * what no two daemons can share (Device=cuda:1, listeners on Unix sockets in /run/sluice/1/), then
 * sluice@1.conf beside the file and sluice@1.conf.d/ *.conf, neither of which must exist.  So lists
 * begin anew there: a line GrpcListen= in sluice@1.conf is listened on besides the socket.
 * STATUS_INVALID: the instance's name is none (1 to 64 letters, digits, '-', '_'). */
MUST_CHECK enum status config_read(const struct config_source *source, struct config_set **out_set,
                                   struct error *err);
/* The same of one text in memory, with neither drop-ins nor environment nor sets; `name` stands for
 * the file in messages. */
MUST_CHECK enum status config_read_text(const char *name, const char *text, size_t bytes,
                                        struct config_set **out_set, struct error *err);
void config_destroy(struct config_set *set);                      /* NULL is fine */
const struct config *config_values(const struct config_set *set); /* borrowed */

struct config_entry {
    const char *section, *key, *value;
    const char *origin;  /* "default", "FILE:LINE", "--set", "environment" */
    const char *waiting; /* the value that a restart would bring; NULL: the same */
    bool live;           /* a reload applies it */
    const char *help;
};

/* Calls `each` for every key; the entry lasts as long as the call. */
typedef void (*config_each_fn)(void *arg, const struct config_entry *entry);
void config_for_each(const struct config_set *set, config_each_fn each, void *arg);
/* The whole configuration as a file: each key below its help and its origin. */
void config_dump(const struct config_set *set, FILE *to);
/* Keys that need a restart keep in `set` what the process was started with; `started` must outlive
 * it.  Those that differ are told as "Section.Key, …", "" when none do, and as waiting from then
 * on. */
void config_keep_started(struct config_set *set, const struct config_set *started, char *text,
                         size_t room);

#endif
