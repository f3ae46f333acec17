/* A recursive-descent reader over one token of lookahead.
 *
 *   message := { field [ ',' | ';' ] }
 *   field   := NAME [ ':' ] ( value | '[' [ value { ',' value } ] ']' )      ':' may go before { <
 * [ value   := '{' message '}' | '<' message '>' | STRING { STRING } | [ '-' ] ( NUMBER | NAME )
 */
#include "models/text_format.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "models/message.h"

enum { MAX_DEPTH = 64, MAX_WORD = 256 };

enum token_kind { TOKEN_END, TOKEN_WORD, TOKEN_NUMBER, TOKEN_STRING, TOKEN_SIGN };

struct token {
    enum token_kind kind;
    const char *start;
    size_t length;
    unsigned line, column;
};

struct reader {
    const char *at, *end;
    const char *line_start;
    unsigned line;
    const char *file;
    struct token token; /* the next one */
    unsigned depth;
    struct error *err;
};

static enum status fail_at(struct reader *reader, const struct token *token, const char *format,
                           ...) __attribute__((format(printf, 3, 4)));

static enum status fail_at(struct reader *reader, const struct token *token, const char *format,
                           ...)
{
    char text[ERROR_TEXT_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return error_set(reader->err, STATUS_INVALID, "%s:%u:%u: %s", reader->file, token->line,
                     token->column, text);
}

/* ---- tokens ---- */

static void skip_blank(struct reader *reader)
{
    while (reader->at < reader->end) {
        if (*reader->at == '\n') {
            reader->line++;
            reader->line_start = ++reader->at;
        } else if (isspace((unsigned char)*reader->at)) {
            reader->at++;
        } else if (*reader->at == '#') {
            while (reader->at < reader->end && *reader->at != '\n')
                reader->at++;
        } else {
            return;
        }
    }
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static void scan_word(struct reader *reader)
{
    while (reader->at < reader->end && is_word(*reader->at))
        reader->at++;
}

/* Digits, letters (hex, exponent, suffix), points, and signs behind a decimal exponent. */
static void scan_number(struct reader *reader)
{
    bool hex = reader->end - reader->at > 1 && reader->at[0] == '0' &&
               (reader->at[1] == 'x' || reader->at[1] == 'X');

    while (reader->at < reader->end) {
        char c = *reader->at;
        bool sign =
            (c == '+' || c == '-') && !hex && (reader->at[-1] == 'e' || reader->at[-1] == 'E');

        if (!is_word(c) && c != '.' && !sign)
            return;
        reader->at++;
    }
}

/* Over a quoted string, both quotes included. */
static enum status scan_string(struct reader *reader)
{
    char quote = *reader->at++;

    while (reader->at < reader->end && *reader->at != quote && *reader->at != '\n')
        reader->at += *reader->at == '\\' && reader->end - reader->at > 1 ? 2 : 1;
    if (reader->at >= reader->end || *reader->at != quote)
        return fail_at(reader, &reader->token, "the string does not end on its line");
    reader->at++;
    return STATUS_OK;
}

static enum status next_token(struct reader *reader)
{
    struct token *token = &reader->token;
    char c;

    skip_blank(reader);
    *token = (struct token){.kind = TOKEN_END,
                            .start = reader->at,
                            .line = reader->line,
                            .column = (unsigned)(reader->at - reader->line_start) + 1};
    if (reader->at == reader->end)
        return STATUS_OK;
    c = *reader->at;
    if (isalpha((unsigned char)c) || c == '_') {
        token->kind = TOKEN_WORD;
        scan_word(reader);
    } else if (isdigit((unsigned char)c) || (c == '.' && reader->end - reader->at > 1 &&
                                             isdigit((unsigned char)reader->at[1]))) {
        token->kind = TOKEN_NUMBER;
        reader->at++;
        if (c == '0')
            reader->at--; /* scan_number looks for 0x */
        scan_number(reader);
    } else if (c == '"' || c == '\'') {
        token->kind = TOKEN_STRING;
        TRY(scan_string(reader));
    } else {
        token->kind = TOKEN_SIGN;
        reader->at++;
    }
    token->length = (size_t)(reader->at - token->start);
    return STATUS_OK;
}

static bool is_sign(const struct reader *reader, char sign)
{
    return reader->token.kind == TOKEN_SIGN && *reader->token.start == sign;
}

/* What stands there, for a message. */
static const char *describe(const struct token *token, char text[48])
{
    bool printable = true;

    if (token->kind == TOKEN_END)
        return "the end of the file";
    for (size_t i = 0; i < token->length && i < 32; i++)
        printable = printable && isprint((unsigned char)token->start[i]);
    if (printable)
        (void)snprintf(text, 48, "'%.*s'", token->length < 32 ? (int)token->length : 32,
                       token->start);
    else
        (void)snprintf(text, 48, "byte 0x%02x", (unsigned char)*token->start);
    return text;
}

static enum status expect(struct reader *reader, char sign)
{
    char text[48];

    if (!is_sign(reader, sign))
        return fail_at(reader, &reader->token, "found %s where '%c' belongs",
                       describe(&reader->token, text), sign);
    return next_token(reader);
}

/* ---- strings ---- */

static bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

static unsigned hex_value(char c)
{
    return isdigit((unsigned char)c) ? (unsigned)(c - '0')
                                     : (unsigned)(tolower((unsigned char)c) - 'a') + 10;
}

/* Writes a code point as UTF-8; returns the bytes written, 0 for none that exists. */
static size_t put_utf8(char *to, unsigned long code)
{
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return 0;
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xC0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xE0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3F));
        to[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    to[0] = (char)(0xF0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3F));
    to[2] = (char)(0x80 | (code >> 6 & 0x3F));
    to[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

/* \x41, \u00e9, \U0001F600 and octal \101: `at` stands behind the backslash.  Returns what was
 * read. */
static size_t read_code(const char *at, const char *end, char *to, size_t *written)
{
    size_t most = *at == 'u' ? 4 : *at == 'U' ? 8 : 2, digits = 0;
    unsigned long code = 0;

    if (is_octal(*at)) {
        for (; digits < 3 && at + digits < end && is_octal(at[digits]); digits++)
            code = code * 8 + (unsigned long)(at[digits] - '0');
        *to = (char)code;
        *written = code > 255 ? 0 : 1;
        return digits;
    }
    for (; digits < most && at + 1 + digits < end && isxdigit((unsigned char)at[1 + digits]);
         digits++)
        code = code * 16 + hex_value(at[1 + digits]);
    if (tolower((unsigned char)*at) == 'x') {
        *to = (char)code;
        *written = digits > 0 ? 1 : 0;
    } else {
        *written = digits == most ? put_utf8(to, code) : 0;
    }
    return digits + 1;
}

/* One escape; returns bytes read behind the backslash, 0 for none that exists. */
static size_t read_escape(const char *at, const char *end, char *to, size_t *written)
{
    static const char letters[] = "abfnrtv\\'\"?", meanings[] = "\a\b\f\n\r\t\v\\'\"?";
    const char *letter = strchr(letters, *at);
    size_t read;

    if (*at != '\0' && letter != NULL) {
        *to = meanings[letter - letters];
        *written = 1;
        return 1;
    }
    if (!is_octal(*at) && strchr("xXuU", *at) == NULL)
        return 0;
    if (*at == '\0')
        return 0;
    read = read_code(at, end, to, written);
    return *written == 0 ? 0 : read;
}

/* Appends the text of the string token to `text`, which has room for it. */
static enum status unescape(struct reader *reader, char *text, size_t *length)
{
    const char *at = reader->token.start + 1, *end = reader->token.start + reader->token.length - 1;

    while (at < end) {
        size_t written = 0, read;

        if (*at != '\\') {
            text[(*length)++] = *at++;
            continue;
        }
        read = at + 1 < end ? read_escape(at + 1, end, text + *length, &written) : 0;
        if (read == 0)
            return fail_at(reader, &reader->token, "the string has an escape that means nothing");
        *length += written;
        at += 1 + read;
    }
    if (memchr(text, '\0', *length) != NULL)
        return fail_at(reader, &reader->token, "the string holds a zero byte");
    return STATUS_OK;
}

/* STRING { STRING }: one text, malloc's. */
static enum status read_string(struct reader *reader, char **out_text)
{
    const struct token first = reader->token;
    size_t length = 0, room = 1;
    char *text = NULL;

    while (reader->token.kind == TOKEN_STRING) {
        char *grown = realloc(text, room += reader->token.length);
        enum status status = STATUS_NO_MEMORY;

        if (grown != NULL) {
            text = grown;
            status = unescape(reader, text, &length);
        }
        if (status == STATUS_OK)
            status = next_token(reader);
        if (status != STATUS_OK) {
            free(text);
            return status;
        }
    }
    text[length] = '\0';
    if (!utf8_is_text(text, length)) {
        free(text);
        return fail_at(reader, &first, "the string is not UTF-8 text");
    }
    *out_text = text;
    return STATUS_OK;
}

/* ---- scalars ---- */

static bool copy_word(const struct token *token, char word[MAX_WORD])
{
    if (token->length >= MAX_WORD)
        return false;
    memcpy(word, token->start, token->length);
    word[token->length] = '\0';
    return true;
}

static enum status read_float(struct reader *reader, const char *word, bool negative,
                              union message_value *out_value)
{
    char *end;
    double number;

    if (strcasecmp(word, "inf") == 0 || strcasecmp(word, "infinity") == 0) {
        number = HUGE_VAL;
    } else if (strcasecmp(word, "nan") == 0) {
        number = NAN;
    } else {
        number = strtod(word, &end);
        if (reader->token.kind != TOKEN_NUMBER ||
            !(*end == '\0' || (tolower((unsigned char)*end) == 'f' && end[1] == '\0')))
            return fail_at(reader, &reader->token, "'%s' is no number", word);
    }
    out_value->number = negative ? -number : number;
    return STATUS_OK;
}

static enum status read_integer(struct reader *reader, const ProtobufCFieldDescriptor *field,
                                const char *word, bool negative, union message_value *out_value)
{
    struct error inner = {.status = STATUS_OK};
    uint64_t magnitude;
    char *end;

    errno = 0;
    magnitude = strtoull(word, &end, 0); /* decimal, 0x hexadecimal, 0 octal */
    if (reader->token.kind != TOKEN_NUMBER || *end != '\0')
        return fail_at(reader, &reader->token, "'%s' is no integer, as field '%s' wants", word,
                       field->name);
    if (errno == ERANGE)
        return fail_at(reader, &reader->token, "'%s' is more than 64 bits hold", word);
    if (message_check_integer(field, negative, magnitude, out_value, &inner) != STATUS_OK)
        return fail_at(reader, &reader->token, "%s", inner.text);
    return STATUS_OK;
}

static enum status read_bool(struct reader *reader, const ProtobufCFieldDescriptor *field,
                             const char *word, union message_value *out_value)
{
    static const char *const words[] = {"false", "true", "False", "True", "f", "t", "0", "1"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(word, words[i]) == 0) {
            out_value->natural = i % 2;
            return STATUS_OK;
        }
    return fail_at(reader, &reader->token, "'%s' is neither true nor false, as field '%s' wants",
                   word, field->name);
}

static enum status read_enum(struct reader *reader, const ProtobufCFieldDescriptor *field,
                             const char *word, bool negative, union message_value *out_value)
{
    const ProtobufCEnumDescriptor *type = field->descriptor;
    const ProtobufCEnumValue *value;

    if (reader->token.kind == TOKEN_NUMBER) {
        TRY(read_integer(reader, field, word, negative, out_value));
        value = protobuf_c_enum_descriptor_get_value(type, (int)out_value->integer);
    } else {
        value = protobuf_c_enum_descriptor_get_value_by_name(type, word);
    }
    if (value == NULL)
        return fail_at(reader, &reader->token, "'%s' is no value of %s, as field '%s' wants", word,
                       type->short_name, field->name);
    out_value->integer = value->value;
    return STATUS_OK;
}

static enum status read_plain(struct reader *reader, const ProtobufCFieldDescriptor *field,
                              union message_value *out_value)
{
    bool negative = is_sign(reader, '-');
    char word[MAX_WORD], text[48];
    enum status status;

    if (negative)
        TRY(next_token(reader));
    if ((reader->token.kind != TOKEN_WORD && reader->token.kind != TOKEN_NUMBER) ||
        !copy_word(&reader->token, word))
        return fail_at(reader, &reader->token, "found %s where a value of field '%s' belongs",
                       describe(&reader->token, text), field->name);
    switch (field->type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        status = read_float(reader, word, negative, out_value);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        status = read_bool(reader, field, word, out_value);
        break;
    case PROTOBUF_C_TYPE_ENUM:
        status = read_enum(reader, field, word, negative, out_value);
        break;
    default:
        status = read_integer(reader, field, word, negative, out_value);
        break;
    }
    return status == STATUS_OK ? next_token(reader) : status;
}

/* ---- messages ---- */

static enum status read_fields(struct reader *reader, ProtobufCMessage *message, char close);

static enum status read_message(struct reader *reader, const ProtobufCFieldDescriptor *field,
                                ProtobufCMessage **out_message)
{
    char open = is_sign(reader, '<') ? '<' : '{', close = open == '<' ? '>' : '}';
    ProtobufCMessage *message;
    enum status status;

    TRY(expect(reader, open));
    if (++reader->depth > MAX_DEPTH)
        return fail_at(reader, &reader->token, "messages are nested more than %d deep", MAX_DEPTH);
    message = message_create(field->descriptor);
    if (message == NULL)
        return error_set(reader->err, STATUS_NO_MEMORY, "%s: no memory", reader->file);
    status = read_fields(reader, message, close);
    if (status == STATUS_OK)
        status = expect(reader, close);
    if (status != STATUS_OK) {
        message_destroy(message);
        return status;
    }
    reader->depth--;
    *out_message = message;
    return STATUS_OK;
}

static enum status read_value(struct reader *reader, const ProtobufCFieldDescriptor *field,
                              ProtobufCMessage *into)
{
    union message_value value = {.natural = 0};
    char text[48];

    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        TRY(read_message(reader, field, &value.message));
    } else if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_BYTES) {
        if (reader->token.kind != TOKEN_STRING)
            return fail_at(reader, &reader->token, "found %s where a string for field '%s' belongs",
                           describe(&reader->token, text), field->name);
        TRY(read_string(reader, &value.text));
    } else {
        TRY(read_plain(reader, field, &value));
    }
    if (message_put(into, field, value) != STATUS_OK)
        return error_set(reader->err, STATUS_NO_MEMORY, "%s: no memory", reader->file);
    return STATUS_OK;
}

static enum status read_list(struct reader *reader, const ProtobufCFieldDescriptor *field,
                             ProtobufCMessage *into)
{
    TRY(expect(reader, '['));
    if (is_sign(reader, ']'))
        return next_token(reader);
    for (;;) {
        TRY(read_value(reader, field, into));
        if (!is_sign(reader, ','))
            return expect(reader, ']');
        TRY(next_token(reader));
    }
}

/* Finds the field that the token names, which must not be set yet unless it is repeated. */
static enum status read_name(struct reader *reader, const ProtobufCMessage *message, uint64_t *seen,
                             const ProtobufCFieldDescriptor **out_field)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    const ProtobufCFieldDescriptor *field;
    char name[MAX_WORD], text[48];
    const char *nearest;
    uint64_t bit;

    if (reader->token.kind != TOKEN_WORD || !copy_word(&reader->token, name))
        return fail_at(reader, &reader->token, "found %s where the name of a field of %s belongs",
                       describe(&reader->token, text), type->short_name);
    field = message_field(type, name, &nearest);
    if (field == NULL)
        return fail_at(reader, &reader->token, "%s has no field '%s'%s%s%s", type->short_name, name,
                       nearest == NULL ? "" : "; did you mean '", nearest == NULL ? "" : nearest,
                       nearest == NULL ? "" : "'?");
    bit = UINT64_C(1) << ((unsigned)(field - type->fields) % 64);
    if (!message_field_is_repeated(field) && (*seen & bit) != 0)
        return fail_at(reader, &reader->token, "field '%s' is given twice", name);
    if (message_field_is_oneof(field) &&
        *(const uint32_t *)((const char *)message + field->quantifier_offset) != 0)
        return fail_at(reader, &reader->token, "field '%s' excludes another one given before",
                       name);
    *seen |= bit;
    *out_field = field;
    return STATUS_OK;
}

static enum status read_field(struct reader *reader, ProtobufCMessage *message, uint64_t *seen)
{
    const ProtobufCFieldDescriptor *field = NULL;
    struct token name = reader->token;
    bool colon;

    TRY(read_name(reader, message, seen, &field));
    TRY(next_token(reader));
    colon = is_sign(reader, ':');
    if (colon)
        TRY(next_token(reader));
    if (!colon && field->type != PROTOBUF_C_TYPE_MESSAGE)
        return fail_at(reader, &reader->token, "a ':' is missing behind '%s'", field->name);
    if (!is_sign(reader, '['))
        return read_value(reader, field, message);
    if (!message_field_is_repeated(field))
        return fail_at(reader, &name, "field '%s' takes one value, not a list", field->name);
    return read_list(reader, field, message);
}

/* Up to `close` (which stays), or to the end of the file for '\0'. */
static enum status read_fields(struct reader *reader, ProtobufCMessage *message, char close)
{
    uint64_t seen = 0;

    for (;;) {
        if (close == '\0' ? reader->token.kind == TOKEN_END : is_sign(reader, close))
            return STATUS_OK;
        if (reader->token.kind == TOKEN_END)
            return fail_at(reader, &reader->token, "the file ends where '%c' is missing", close);
        TRY(read_field(reader, message, &seen));
        if (is_sign(reader, ',') || is_sign(reader, ';'))
            TRY(next_token(reader));
    }
}

enum status text_format_fill(ProtobufCMessage *message, const char *text, size_t size,
                             const char *file, struct error *err)
{
    struct reader reader = {
        .at = text, .end = text + size, .line_start = text, .line = 1, .file = file, .err = err};

    TRY(next_token(&reader));
    return read_fields(&reader, message, '\0');
}

enum status text_format_read(const ProtobufCMessageDescriptor *type, const char *text, size_t size,
                             const char *file, ProtobufCMessage **out_message, struct error *err)
{
    ProtobufCMessage *message = message_create(type);
    enum status status;

    if (message == NULL)
        return error_set(err, STATUS_NO_MEMORY, "%s: no memory", file);
    status = text_format_fill(message, text, size, file, err);
    if (status != STATUS_OK) {
        message_destroy(message);
        return status;
    }
    *out_message = message;
    return STATUS_OK;
}
