/* The contents of a module: where its functions begin, and its variables. */
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A copy of the text in which comments are blanks; lines stay where they are. */
static char *without_comments(const char *text, size_t bytes)
{
    char *copy = malloc(bytes + 1);

    if (copy == NULL)
        return NULL;
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    for (char *c = copy; *c != '\0'; c++) {
        if (c[0] == '/' && c[1] == '/')
            while (*c != '\0' && *c != '\n')
                *c++ = ' ';
        else if (c[0] == '/' && c[1] == '*')
            for (char *end = strstr(c + 2, "*/"); end != NULL && c < end + 2; c++)
                *c = *c == '\n' ? '\n' : ' ';
        if (*c == '\0')
            break;
    }
    return copy;
}

static void file_read(struct ptx_module *module, struct cursor *cursor)
{
    char token[TOKEN_BYTES];

    token_next(cursor, token);
    size_t number = strtoul(token, NULL, 10);
    token_next(cursor, token);
    if (number >= module->file_count && number < 100000) {
        module->files = realloc(module->files, (number + 1) * sizeof(char *));
        while (module->file_count <= number)
            module->files[module->file_count++] = NULL;
    }
    if (number < module->file_count && module->files[number] == NULL)
        module->files[number] = strdup(token);
    line_skip(cursor);
}

/* ( ... ) behind a function's name or before it: the cursor of what is inside. */
static struct cursor list_skip(struct cursor *cursor)
{
    char token[TOKEN_BYTES];
    struct cursor inside = *cursor;

    do {
        inside.end = cursor->at;
        token_next(cursor, token);
    } while (strcmp(token, ")") != 0 && token[0] != '\0');
    return inside;
}

static struct function *function_slot(struct ptx_module *module, const char *name)
{
    for (size_t i = 0; i < module->function_count; i++)
        if (strcmp(module->functions[i].name, name) == 0)
            return &module->functions[i];
    module->functions =
        realloc(module->functions, (module->function_count + 1) * sizeof(struct function));
    struct function *slot = &module->functions[module->function_count++];
    memset(slot, 0, sizeof(*slot));
    return slot;
}

/* .maxntid x, y, z and the like, up to the body or the ;. */
static void directives_read(struct cursor *cursor, struct function *function)
{
    char token[TOKEN_BYTES];

    for (;;) {
        token_peek(cursor, token);
        if (strcmp(token, "{") == 0 || strcmp(token, ";") == 0 || token[0] == '\0')
            return;
        token_next(cursor, token);
        if (strcmp(token, ".maxntid") != 0 && strcmp(token, ".reqntid") != 0)
            continue;
        function->max_threads = 1;
        do {
            token_next(cursor, token);
            function->max_threads *= (unsigned)strtoul(token, NULL, 10);
        } while (token_take(cursor, ","));
    }
}

static void function_read(struct ptx_module *module, struct cursor *cursor, bool is_entry)
{
    struct function function = {.is_entry = is_entry};
    char token[TOKEN_BYTES];

    if (token_take(cursor, "("))
        function.results = list_skip(cursor);
    token_next(cursor, token);
    memcpy(function.name, token, sizeof(function.name));
    if (token_take(cursor, "("))
        function.parameters = list_skip(cursor);
    directives_read(cursor, &function);
    if (token_take(cursor, "{")) {
        function.has_body = true;
        function.body = *cursor;
        braces_skip(cursor);
    } else {
        token_take(cursor, ";");
    }
    struct function *slot = function_slot(module, function.name);
    if (!slot->has_body || function.has_body)
        *slot = function;
}

/* = {1, 2, ...}, = 1 or nothing.  What is not a number (an address) leaves the variable out, so
 * that a kernel that names it is refused. */
static bool initial_read(struct cursor *cursor, const struct declaration *declaration,
                         unsigned char **out)
{
    char token[TOKEN_BYTES];
    size_t size = type_bytes(declaration->type);
    size_t at = 0;

    *out = NULL;
    if (!token_take(cursor, "="))
        return true;
    *out = calloc(1, declaration->bytes + 8);
    for (bool negative = false;;) {
        uint64_t value;
        bool is_float;
        token_next(cursor, token);
        if (strcmp(token, ";") == 0 || token[0] == '\0')
            return true;
        if (strcmp(token, "-") == 0) {
            negative = true;
        } else if (number_of(token, &value, &is_float) && at + size <= declaration->bytes) {
            value = negative ? 0 - value : value;
            memcpy(*out + at, &value, size);
            at += size;
            negative = false;
        } else if (strchr("{},", token[0]) == NULL) {
            free(*out);
            return false;
        }
    }
}

static void statement_skip(struct cursor *cursor)
{
    char token[TOKEN_BYTES];

    do
        token_next(cursor, token);
    while (strcmp(token, ";") != 0 && token[0] != '\0');
}

static void variable_read(struct ptx_module *module, struct cursor *cursor)
{
    struct declaration declaration;
    unsigned char *initial;

    if (!declaration_read(cursor, &declaration) || declaration.bytes == 0 ||
        !initial_read(cursor, &declaration, &initial)) {
        statement_skip(cursor);
        return;
    }
    module->variables =
        realloc(module->variables, (module->variable_count + 1) * sizeof(struct ptx_variable));
    module->variables[module->variable_count++] = (struct ptx_variable){
        .name = strdup(declaration.name),
        .bytes = declaration.bytes,
        .align = declaration.align,
        .initial = initial,
    };
}

static void shared_read(struct ptx_module *module, struct cursor *cursor)
{
    struct declaration declaration;

    if (declaration_read(cursor, &declaration)) {
        module->shared =
            realloc(module->shared, (module->shared_count + 1) * sizeof(struct symbol));
        struct symbol *symbol = &module->shared[module->shared_count++];
        *symbol = (struct symbol){.space = SPACE_SHARED,
                                  .bytes = declaration.bytes,
                                  .address = declaration.align,
                                  .is_dynamic = declaration.bytes == 0};
        memcpy(symbol->name, declaration.name, sizeof(symbol->name));
    }
    statement_skip(cursor);
}

static bool contents_read(struct ptx_module *module, struct cursor *cursor, char *why,
                          size_t why_bytes)
{
    char token[TOKEN_BYTES];

    for (;;) {
        token_next(cursor, token);
        if (token[0] == '\0')
            return true;
        if (strcmp(token, ".version") == 0 || strcmp(token, ".target") == 0 ||
            strcmp(token, ".address_size") == 0)
            line_skip(cursor);
        else if (strcmp(token, ".file") == 0)
            file_read(module, cursor);
        else if (strcmp(token, ".section") == 0) {
            while (!token_take(cursor, "{"))
                token_next(cursor, token);
            braces_skip(cursor);
        } else if (strcmp(token, ".entry") == 0 || strcmp(token, ".func") == 0)
            function_read(module, cursor, token[1] == 'e');
        else if (strcmp(token, ".global") == 0 || strcmp(token, ".const") == 0)
            variable_read(module, cursor);
        else if (strcmp(token, ".shared") == 0)
            shared_read(module, cursor);
        else if (strcmp(token, ".visible") != 0 && strcmp(token, ".extern") != 0 &&
                 strcmp(token, ".weak") != 0 && strcmp(token, ".common") != 0 &&
                 strcmp(token, ";") != 0) {
            snprintf(why, why_bytes, "PTX line %u: '%s' begins nothing that is known", cursor->line,
                     token);
            return false;
        }
    }
}

struct ptx_module *ptx_load(const char *text, size_t bytes, char *out_why, size_t why_bytes)
{
    struct ptx_module *module = calloc(1, sizeof(*module));

    while (bytes > 0 && (text[bytes - 1] == '\0'))
        bytes--;
    if (module == NULL || (module->text = without_comments(text, bytes)) == NULL) {
        free(module);
        snprintf(out_why, why_bytes, "no memory");
        return NULL;
    }
    struct cursor cursor = {module->text, module->text + strlen(module->text), 1};
    if (strstr(module->text, ".version") == NULL) {
        snprintf(out_why, why_bytes, "the text has no .version: it is no PTX");
        ptx_unload(module);
        return NULL;
    }
    if (!contents_read(module, &cursor, out_why, why_bytes)) {
        ptx_unload(module);
        return NULL;
    }
    return module;
}

void ptx_kernel_drop(struct ptx_kernel *kernel)
{
    for (size_t i = 0; i < kernel->owned_count; i++)
        free(kernel->owned[i]);
    free(kernel->owned);
    free(kernel->ops);
    free(kernel->constants);
    free(kernel->parameters);
    free(kernel->name);
    free(kernel);
}

void ptx_unload(struct ptx_module *module)
{
    while (module->kernels != NULL) {
        struct ptx_kernel *next = module->kernels->next;
        ptx_kernel_drop(module->kernels);
        module->kernels = next;
    }
    for (size_t i = 0; i < module->variable_count; i++) {
        free((char *)(uintptr_t)module->variables[i].name);
        free((unsigned char *)(uintptr_t)module->variables[i].initial);
    }
    for (size_t i = 0; i < module->file_count; i++)
        free(module->files[i]);
    free(module->files);
    free(module->variables);
    free(module->functions);
    free(module->shared);
    free(module->text);
    free(module);
}

struct ptx_variable *ptx_variables(struct ptx_module *module, size_t *out_count)
{
    *out_count = module->variable_count;
    return module->variables;
}

const struct function *function_find(const struct ptx_module *module, const char *name)
{
    for (size_t i = 0; i < module->function_count; i++)
        if (strcmp(module->functions[i].name, name) == 0)
            return &module->functions[i];
    return NULL;
}

const char *ptx_kernel_name(const struct ptx_module *module, size_t index)
{
    for (size_t i = 0; i < module->function_count; i++)
        if (module->functions[i].is_entry && index-- == 0)
            return module->functions[i].name;
    return NULL;
}
