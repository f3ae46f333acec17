/* Tokens of PTX text, and a module's table of contents. */
#ifndef SLUICE_TESTS_SIM_PTX_TEXT_H
#define SLUICE_TESTS_SIM_PTX_TEXT_H

#include "build.h"

struct cursor {
    const char *at;
    const char *end;
    unsigned line;
};

/* The next token: a word (opcode with modifiers, name, number, directive), a string without its
 * quotes, or one character; "" at the end. */
void token_next(struct cursor *cursor, char token[TOKEN_BYTES]);
/* The same without moving. */
void token_peek(const struct cursor *cursor, char token[TOKEN_BYTES]);
/* Takes the token if it is the next. */
bool token_take(struct cursor *cursor, const char *wanted);
void line_skip(struct cursor *cursor);
/* Behind the brace that closes the one just taken. */
void braces_skip(struct cursor *cursor);
/* A number as PTX writes it; `*out_is_float` for 0f and 0d, whose bits are returned. */
bool number_of(const char *token, uint64_t *out_value, bool *out_is_float);

/* A declaration in memory: [.align n] .type name[n][m], with the directive of its space read. */
struct declaration {
    char name[TOKEN_BYTES];
    enum type type;
    size_t align;
    size_t bytes; /* 0: name[] */
    bool is_vector;
};
/* False when the text is none that is known. */
bool declaration_read(struct cursor *cursor, struct declaration *out);
enum type type_of(const char *name); /* without its dot */

struct function {
    char name[TOKEN_BYTES];
    bool is_entry;
    bool has_body;
    struct cursor results; /* behind the ( of its list; at == NULL: no list */
    struct cursor parameters;
    struct cursor body; /* behind the { */
    unsigned max_threads;
};

struct ptx_module {
    char *text; /* without comments */
    struct function *functions;
    size_t function_count;
    struct ptx_variable *variables;
    size_t variable_count;
    struct symbol *shared; /* of the module */
    size_t shared_count;
    char **files; /* by number */
    size_t file_count;
    struct ptx_kernel *kernels; /* decoded so far */
};

void ptx_kernel_drop(struct ptx_kernel *kernel);
const struct function *function_find(const struct ptx_module *module, const char *name);

/* Decodes the body of a function where it is called or begins. */
void body_read(struct builder *builder, struct cursor cursor);
/* Inlines a call (call.c). */
void call_read(struct builder *builder, struct statement *statement, struct cursor *cursor);

#endif
