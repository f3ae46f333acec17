/* Each type: how it is read, how it is written, what is allowed.  Writing then reading gives the
 * same value. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "config/internal.h"

struct unit {
    const char *name;
    uint64_t factor;
};

/* Largest first: writing takes the first that divides. */
static const struct unit size_units[] = {
    {"T", (uint64_t)1 << 40},
    {"G", 1 << 30},
    {"M", 1 << 20},
    {"K", 1 << 10},
    {"TiB", (uint64_t)1 << 40},
    {"GiB", 1 << 30},
    {"MiB", 1 << 20},
    {"KiB", 1 << 10},
    {"B", 1},
    {NULL, 0},
};
static const struct unit time_units[] = {
    {"d", 86400000000}, {"h", 3600000000}, {"min", 60000000}, {"s", 1000000},
    {"ms", 1000},       {"us", 1},         {NULL, 0},
};

enum { WRITTEN_TIMES = 3 }; /* "90s", not "1.5min": written from here on */

/* A decimal number, perhaps with a fraction, without sign or exponent; NULL when there is none. */
static const char *read_number(const char *text, double *out_number)
{
    char digits[64];
    size_t length = strspn(text, "0123456789");

    if (length == 0)
        return NULL;
    if (text[length] == '.' && isdigit((unsigned char)text[length + 1]))
        length += 1 + strspn(text + length + 1, "0123456789");
    if (length >= sizeof(digits))
        return NULL;
    memcpy(digits, text, length);
    digits[length] = '\0';
    *out_number = strtod(digits, NULL);
    return text + length;
}

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t");
}

/* "512M" into a product below `limit`.  Whole numbers are exact. */
static bool read_with_unit(const char **text, const struct unit *units, uint64_t bare,
                           uint64_t limit, uint64_t *out_value)
{
    double number;
    const char *at = read_number(*text, &number);
    uint64_t factor = bare;
    size_t length;

    if (at == NULL)
        return false;
    at = skip_blanks(at);
    length = 0;
    while (isalpha((unsigned char)at[length]))
        length++;
    if (length > 0) {
        while (units->name != NULL &&
               (strlen(units->name) != length || strncmp(units->name, at, length) != 0))
            units++;
        if (units->name == NULL)
            return false;
        factor = units->factor;
    }
    number *= (double)factor;
    if (number >= (double)limit)
        return false;
    *out_value = (uint64_t)llround(number);
    *text = skip_blanks(at + length);
    return true;
}

static bool read_bool(const char *text, bool *out_value)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};

    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *out_value = i % 2;
            return true;
        }
    }
    return false;
}

static bool read_int(const char *text, unsigned *out_value)
{
    uint64_t value = 0;

    if (*text == '\0' || strlen(text) > 10)
        return false;
    for (; *text != '\0'; text++) {
        if (!isdigit((unsigned char)*text))
            return false;
        value = value * 10 + (unsigned)(*text - '0');
    }
    *out_value = (unsigned)value;
    return value <= UINT32_MAX;
}

#define SIZE_LIMIT ((uint64_t)1 << 53) /* doubles are exact below */

static bool read_size(const char *text, uint64_t *out_bytes)
{
    return read_with_unit(&text, size_units, 1, SIZE_LIMIT, out_bytes) && *text == '\0';
}

static bool read_percent(const char *text, double *out_share)
{
    double number;
    const char *at = read_number(text, &number);

    if (at == NULL)
        return false;
    at = skip_blanks(at);
    *out_share = number / 100;
    return strcmp(at, "%") == 0 && number <= 100;
}

static bool read_amount(const char *text, struct amount *out_amount)
{
    struct amount amount = {0};

    if (read_percent(text, &amount.fraction)) {
        *out_amount = amount;
        return true;
    }
    amount.fraction = 0;
    if (!read_size(text, &amount.bytes))
        return false;
    *out_amount = amount;
    return true;
}

static bool read_fraction(const char *text, double *out_share)
{
    const char *at;

    if (read_percent(text, out_share))
        return true;
    at = read_number(text, out_share);
    return at != NULL && *at == '\0' && *out_share <= 1;
}

#define TIME_LIMIT ((uint64_t)1 << 53)

/* "200ms", "1min 30s"; a bare number means seconds, as in systemd. */
static bool read_time(const char *text, int64_t *out_us)
{
    uint64_t sum = 0, part;

    if (strcmp(text, "infinity") == 0) {
        *out_us = CLOCK_NEVER;
        return true;
    }
    do {
        if (!read_with_unit(&text, time_units, 1000000, TIME_LIMIT - sum, &part))
            return false;
        sum += part;
    } while (*text != '\0');
    *out_us = (int64_t)sum;
    return true;
}

static bool is_word_of(const char *words, const char *text)
{
    size_t length = strlen(text);

    for (words = skip_blanks(words); *words != '\0'; words = skip_blanks(words)) {
        size_t word = strcspn(words, " ");

        if (word == length && strncmp(words, text, length) == 0)
            return true;
        words += word;
    }
    return false;
}

static size_t count_items(const char *text)
{
    size_t count = 0;

    for (text = skip_blanks(text); *text != '\0'; text = skip_blanks(text)) {
        count++;
        text += strcspn(text, " \t");
    }
    return count;
}

/* Appends the words of `text`; an empty one clears the list. */
static enum status read_list(const char *text, bool append, struct arena *arena,
                             struct text_list *list)
{
    size_t more = count_items(text);
    size_t kept = append && more > 0 ? list->count : 0;
    const char **items = arena_take_array(arena, kept + more + 1, sizeof(*items));

    if (items == NULL)
        return STATUS_NO_MEMORY;
    if (kept > 0)
        memcpy(items, list->items, kept * sizeof(*items));
    for (size_t i = kept; i < kept + more; i++) {
        size_t length;

        text = skip_blanks(text);
        length = strcspn(text, " \t");
        items[i] = arena_copy_string(arena, text, length);
        if (items[i] == NULL)
            return STATUS_NO_MEMORY;
        text += length;
    }
    *list = (struct text_list){.count = kept + more, .items = items};
    return STATUS_OK;
}

static enum status read_text(const char *text, struct arena *arena, const char **out_text)
{
    char *copy = arena_copy_string(arena, text, strlen(text));

    if (copy == NULL)
        return STATUS_NO_MEMORY;
    *out_text = copy;
    return STATUS_OK;
}

static const char *allowed(const struct key *key)
{
    static const char *const words[] = {
        [TYPE_bool] = "true or false",
        [TYPE_int] = "a whole number without sign",
        [TYPE_size] = "bytes, with K, M, G or T for powers of 1024 (512M)",
        [TYPE_size_or_percent] = "bytes (512M, 4G) or a share (75%)",
        [TYPE_fraction] = "a share from 0 to 1 (0.75 or 75%)",
        [TYPE_time] = "a time with us, ms, s, min, h or d (200ms, 5s), 0 or infinity",
        [TYPE_text] = "any text",
        [TYPE_list] = "words separated by spaces",
    };

    return key->type == TYPE_choice ? key->standard : words[key->type];
}

enum status value_read(const struct key *key, const char *text, bool append, struct arena *arena,
                       void *field, struct error *err)
{
    enum status status = STATUS_OK;
    bool good = true;

    switch (key->type) {
    case TYPE_bool:
        good = read_bool(text, field);
        break;
    case TYPE_int:
        good = read_int(text, field);
        break;
    case TYPE_size:
        good = read_size(text, field);
        break;
    case TYPE_size_or_percent:
        good = read_amount(text, field);
        break;
    case TYPE_fraction:
        good = read_fraction(text, field);
        break;
    case TYPE_time:
        good = read_time(text, field);
        break;
    case TYPE_list:
        status = read_list(text, append, arena, field);
        break;
    case TYPE_choice:
        good = is_word_of(key->standard, text);
        if (!good)
            break;
        status = read_text(text, arena, field);
        break;
    case TYPE_text:
        status = read_text(text, arena, field);
        break;
    }
    if (status != STATUS_OK)
        return error_set(err, status, "no memory for the value of %s", key->name);
    if (!good)
        return error_set(err, STATUS_INVALID, "%s.%s: found '%.128s', allowed: %s", key->section,
                         key->name, text, allowed(key));
    return STATUS_OK;
}

static void write_with_unit(uint64_t value, const struct unit *units, FILE *to)
{
    if (value == 0) {
        fputs("0", to);
        return;
    }
    while (value % units->factor != 0)
        units++;
    fprintf(to, "%" PRIu64 "%s", value / units->factor, units->name);
}

/* The fewest decimals that read back as the same number. */
static void write_share(double share, const char *suffix, double scale, FILE *to)
{
    char text[64];
    double back;

    for (int decimals = 0; decimals <= 20; decimals++) {
        snprintf(text, sizeof(text), "%.*f", decimals, share * scale);
        if (read_number(text, &back) != NULL && back / scale == share)
            break;
    }
    fprintf(to, "%s%s", text, suffix);
}

static void write_time(int64_t us, FILE *to)
{
    if (us == CLOCK_NEVER)
        fputs("infinity", to);
    else
        write_with_unit((uint64_t)us, &time_units[WRITTEN_TIMES], to);
}

static void write_list(const struct text_list *list, FILE *to)
{
    for (size_t i = 0; i < list->count; i++)
        fprintf(to, "%s%s", i == 0 ? "" : " ", list->items[i]);
}

void value_write(const struct key *key, const void *field, FILE *to)
{
    const struct amount *amount = field;

    switch (key->type) {
    case TYPE_bool:
        fputs(*(const bool *)field ? "true" : "false", to);
        break;
    case TYPE_int:
        fprintf(to, "%u", *(const unsigned *)field);
        break;
    case TYPE_size:
        write_with_unit(*(const uint64_t *)field, size_units, to);
        break;
    case TYPE_size_or_percent:
        if (amount->fraction > 0)
            write_share(amount->fraction, "%", 100, to);
        else
            write_with_unit(amount->bytes, size_units, to);
        break;
    case TYPE_fraction:
        write_share(*(const double *)field, "", 1, to);
        break;
    case TYPE_time:
        write_time(*(const int64_t *)field, to);
        break;
    case TYPE_list:
        write_list(field, to);
        break;
    case TYPE_text:
    case TYPE_choice:
        fputs(*(const char *const *)field, to);
        break;
    }
}
