#include "text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static void blanks_skip(struct cursor *cursor)
{
    while (cursor->at < cursor->end && isspace((unsigned char)*cursor->at)) {
        if (*cursor->at == '\n')
            cursor->line++;
        cursor->at++;
    }
}

static void string_next(struct cursor *cursor, char token[TOKEN_BYTES])
{
    size_t n = 0;

    for (cursor->at++; cursor->at < cursor->end && *cursor->at != '"'; cursor->at++)
        if (n + 1 < TOKEN_BYTES)
            token[n++] = *cursor->at;
    cursor->at++;
    token[n] = '\0';
}

void token_next(struct cursor *cursor, char token[TOKEN_BYTES])
{
    size_t n = 0;

    blanks_skip(cursor);
    token[0] = '\0';
    if (cursor->at >= cursor->end)
        return;
    if (*cursor->at == '"') {
        string_next(cursor, token);
        return;
    }
    if (!is_word(*cursor->at)) {
        token[0] = *cursor->at++;
        token[1] = '\0';
        return;
    }
    while (cursor->at < cursor->end) {
        bool colons = cursor->at + 1 < cursor->end && cursor->at[0] == ':' && cursor->at[1] == ':';
        if (!is_word(*cursor->at) && !colons)
            break;
        for (int taken = colons ? 2 : 1; taken > 0; taken--, cursor->at++)
            if (n + 1 < TOKEN_BYTES)
                token[n++] = *cursor->at;
    }
    token[n] = '\0';
}

void token_peek(const struct cursor *cursor, char token[TOKEN_BYTES])
{
    struct cursor copy = *cursor;

    token_next(&copy, token);
}

bool token_take(struct cursor *cursor, const char *wanted)
{
    char token[TOKEN_BYTES];
    struct cursor copy = *cursor;

    token_next(&copy, token);
    if (strcmp(token, wanted) != 0)
        return false;
    *cursor = copy;
    return true;
}

void line_skip(struct cursor *cursor)
{
    while (cursor->at < cursor->end && *cursor->at != '\n')
        cursor->at++;
}

/* Without tokens: bodies are most of a text, and only what a kernel needs is read again. */
void braces_skip(struct cursor *cursor)
{
    int depth = 1;

    while (depth > 0 && cursor->at < cursor->end) {
        char c = *cursor->at++;

        if (c == '\n') {
            cursor->line++;
        } else if (c == '"') {
            while (cursor->at < cursor->end && *cursor->at++ != '"')
                ;
        } else {
            depth += c == '{' ? 1 : c == '}' ? -1 : 0;
        }
    }
}

bool number_of(const char *token, uint64_t *out_value, bool *out_is_float)
{
    char *end;

    if (!isdigit((unsigned char)token[0]))
        return false;
    *out_is_float = false;
    if (token[0] == '0' &&
        (token[1] == 'f' || token[1] == 'F' || token[1] == 'd' || token[1] == 'D')) {
        *out_is_float = true;
        *out_value = strtoull(token + 2, &end, 16);
        return *end == '\0';
    }
    if (token[0] == '0' && (token[1] == 'b' || token[1] == 'B'))
        *out_value = strtoull(token + 2, &end, 2);
    else
        *out_value = strtoull(token, &end, 0);
    if (*end == 'U')
        end++;
    return *end == '\0';
}

static const struct {
    const char *name;
    unsigned bytes;
    bool is_signed;
    bool is_float;
} types[TYPES] = {
    [TYPE_PRED] = {"pred", 0, false, false},   [TYPE_B8] = {"b8", 1, false, false},
    [TYPE_B16] = {"b16", 2, false, false},     [TYPE_B32] = {"b32", 4, false, false},
    [TYPE_B64] = {"b64", 8, false, false},     [TYPE_B128] = {"b128", 16, false, false},
    [TYPE_U8] = {"u8", 1, false, false},       [TYPE_U16] = {"u16", 2, false, false},
    [TYPE_U32] = {"u32", 4, false, false},     [TYPE_U64] = {"u64", 8, false, false},
    [TYPE_S8] = {"s8", 1, true, false},        [TYPE_S16] = {"s16", 2, true, false},
    [TYPE_S32] = {"s32", 4, true, false},      [TYPE_S64] = {"s64", 8, true, false},
    [TYPE_F16] = {"f16", 2, true, true},       [TYPE_F32] = {"f32", 4, true, true},
    [TYPE_F64] = {"f64", 8, true, true},       [TYPE_BF16] = {"bf16", 2, true, true},
    [TYPE_TF32] = {"tf32", 4, true, true},     [TYPE_F16X2] = {"f16x2", 4, true, true},
    [TYPE_BF16X2] = {"bf16x2", 4, true, true}, [TYPE_U16X2] = {"u16x2", 4, false, false},
    [TYPE_S16X2] = {"s16x2", 4, true, false},  [TYPE_E4M3X2] = {"e4m3x2", 2, true, true},
    [TYPE_E5M2X2] = {"e5m2x2", 2, true, true},
};

enum type type_of(const char *name)
{
    for (int t = TYPE_PRED; t < TYPES; t++)
        if (strcmp(types[t].name, name) == 0)
            return (enum type)t;
    return TYPE_NONE;
}

unsigned type_bytes(enum type type)
{
    return types[type].bytes;
}

bool type_is_signed(enum type type)
{
    return types[type].is_signed;
}

bool type_is_float(enum type type)
{
    return types[type].is_float;
}

const char *type_name(enum type type)
{
    return types[type].name != NULL ? types[type].name : "no type";
}

/* [n][m] behind a name: elements; 0 for []. */
static bool extents_read(struct cursor *cursor, size_t *out)
{
    char token[TOKEN_BYTES];
    uint64_t value;
    bool is_float;

    *out = 1;
    while (token_take(cursor, "[")) {
        token_next(cursor, token);
        if (strcmp(token, "]") == 0) {
            *out = 0;
            continue;
        }
        if (!number_of(token, &value, &is_float) || !token_take(cursor, "]"))
            return false;
        *out *= value;
    }
    return true;
}

bool declaration_read(struct cursor *cursor, struct declaration *out)
{
    char token[TOKEN_BYTES];
    uint64_t value;
    bool is_float;
    size_t elements;

    *out = (struct declaration){0};
    for (;;) {
        token_next(cursor, token);
        if (token[0] != '.')
            break;
        if (strcmp(token, ".align") == 0) {
            token_next(cursor, token);
            if (!number_of(token, &value, &is_float))
                return false;
            out->align = out->align > value ? out->align : value;
        } else if (type_of(token + 1) != TYPE_NONE) {
            out->type = type_of(token + 1);
        } else if (strcmp(token, ".ptr") != 0 && strcmp(token, ".global") != 0 &&
                   strcmp(token, ".const") != 0 && strcmp(token, ".shared") != 0) {
            return false; /* .ptr says what a parameter points to: nothing to do */
        }
    }
    memcpy(out->name, token, sizeof(out->name));
    if (out->type == TYPE_NONE || !extents_read(cursor, &elements))
        return false;
    size_t own = type_bytes(out->type);
    out->bytes = elements * own;
    out->align = out->align > own ? out->align : own;
    return true;
}
