/* Bodies of functions: declarations, labels, instructions; and kernels as a whole. */
#include "scope.h"
#include "statement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct label {
    char name[128];
    unsigned instance;
    size_t at;     /* SIZE_MAX: not met yet */
    size_t *users; /* branches that wait for it */
    size_t user_count;
};

static struct label *label_of(struct builder *builder, const char *name)
{
    for (size_t i = builder->label_count; i > 0; i--) {
        struct label *label = &builder->labels[i - 1];
        if (label->instance == builder->instance && strcmp(label->name, name) == 0)
            return label;
    }
    if (builder->label_count == builder->label_room) {
        builder->label_room = builder->label_room * 2 + 64;
        builder->labels = realloc(builder->labels, builder->label_room * sizeof(struct label));
    }
    struct label *label = &builder->labels[builder->label_count++];
    *label = (struct label){.instance = builder->instance, .at = SIZE_MAX};
    strncpy(label->name, name, sizeof(label->name) - 1);
    return label;
}

void branch_to(struct builder *builder, size_t op, const char *name)
{
    struct label *label = label_of(builder, name);

    if (label->at != SIZE_MAX) {
        builder->kernel->ops[op].target = (uint32_t)label->at;
        return;
    }
    label->users = realloc(label->users, (label->user_count + 1) * sizeof(*label->users));
    label->users[label->user_count++] = op;
}

static void label_here(struct builder *builder, const char *name)
{
    struct label *label = label_of(builder, name);

    label->at = builder->kernel->op_count;
    for (size_t i = 0; i < label->user_count; i++)
        builder->kernel->ops[label->users[i]].target = (uint32_t)label->at;
}

static void labels_check(struct builder *builder)
{
    for (size_t i = 0; i < builder->label_count; i++)
        if (builder->labels[i].at == SIZE_MAX)
            refuse(builder, "label '%s' is nowhere", builder->labels[i].name);
}

static void labels_free(struct builder *builder)
{
    for (size_t i = 0; i < builder->label_count; i++)
        free(builder->labels[i].users);
    free(builder->labels);
    builder->labels = NULL;
    builder->label_count = builder->label_room = 0;
}

/* .reg .b32 %r<100>, x, y; */
static void registers_read(struct builder *builder, struct cursor *cursor, const char *directive)
{
    char token[TOKEN_BYTES];
    char name[TOKEN_BYTES];
    enum type type;

    if (directive[4] == '.') /* .reg.b32 in one word */
        memcpy(token, directive + 4, strlen(directive + 4) + 1);
    else
        token_next(cursor, token);
    type = type_of(token[0] == '.' ? token + 1 : token);
    if (type == TYPE_NONE || type_bytes(type) > 8)
        refuse(builder, "registers of type '%s'", token);
    do {
        uint64_t count = 0;
        bool is_float;
        token_next(cursor, name);
        if (token_take(cursor, "<")) {
            token_next(cursor, token);
            if (!number_of(token, &count, &is_float) || !token_take(cursor, ">"))
                refuse(builder, "a range of registers of unknown size");
        }
        scope_add_registers(builder, type, name, (unsigned)count);
    } while (token_take(cursor, ","));
    token_take(cursor, ";");
}

/* .local, .shared and .param inside a body; parameters of calls lie in local memory. */
static void memory_read(struct builder *builder, struct cursor *cursor, const char *directive)
{
    struct declaration declaration;
    struct symbol symbol = {0};

    if (!declaration_read(cursor, &declaration))
        refuse(builder, "a %s declaration of a form that is not known", directive);
    memcpy(symbol.name, declaration.name, sizeof(symbol.name));
    symbol.bytes = declaration.bytes;
    if (strcmp(directive, ".shared") == 0) {
        symbol.space = SPACE_SHARED;
        symbol.is_dynamic = declaration.bytes == 0;
        symbol.address = symbol.is_dynamic
                             ? builder->dynamic_base
                             : shared_room(builder, declaration.bytes, declaration.align);
    } else {
        symbol.space = SPACE_LOCAL;
        symbol.address = local_room(builder, declaration.bytes, declaration.align);
    }
    scope_add_symbol(builder, &symbol);
    if (!token_take(cursor, ";"))
        refuse(builder, "a %s declaration with more than a name", directive);
}

/* .loc file line column [, function_name ..., inlined_at file line column] */
static void location_read(struct builder *builder, struct cursor *cursor)
{
    char token[TOKEN_BYTES];

    token_next(cursor, token);
    builder->place.file = (uint32_t)strtoul(token, NULL, 10);
    token_next(cursor, token);
    builder->place.line = (uint32_t)strtoul(token, NULL, 10);
    line_skip(cursor);
}

static void directive_read(struct builder *builder, struct cursor *cursor, const char *token)
{
    if (strcmp(token, ".loc") == 0)
        location_read(builder, cursor);
    else if (strcmp(token, ".reg") == 0 || strncmp(token, ".reg.", 5) == 0)
        registers_read(builder, cursor, token);
    else if (strcmp(token, ".local") == 0 || strcmp(token, ".shared") == 0 ||
             strcmp(token, ".param") == 0)
        memory_read(builder, cursor, token);
    else if (strcmp(token, ".pragma") == 0)
        while (!token_take(cursor, ";"))
            cursor->at++;
    else
        refuse(builder, "directive %s", token);
}

static const struct decoder *const decoders[] = {
    decode_arithmetic, decode_float, decode_half,   decode_bits,     decode_compare,
    decode_convert,    decode_move,  decode_memory, decode_atomic,   decode_async,
    decode_flow,       decode_warp,  decode_matrix, decode_fragment, decode_wmma,
};

/* A name may be in several lists: half precision has its own add.  The first list whose decoder
 * knows the types takes it; a decoder that does not returns without using a modifier. */
static void statement_decode(struct builder *builder, struct statement *statement)
{
    size_t before = builder->kernel->op_count;

    for (size_t list = 0; list < sizeof(decoders) / sizeof(decoders[0]); list++)
        for (const struct decoder *decoder = decoders[list]; decoder->name != NULL; decoder++) {
            if (strcmp(decoder->name, statement->name) != 0)
                continue;
            memset(statement->used, 0, sizeof(statement->used));
            decoder->decode(builder, statement);
            if (builder->kernel->op_count == before)
                continue;
            for (unsigned i = 0; i < statement->modifier_count; i++)
                if (!statement->used[i])
                    refuse(builder, "%s with the modifier .%s", statement->name,
                           statement->modifiers[i]);
            return;
        }
    char all[256] = "";
    for (unsigned i = 0; i < statement->modifier_count; i++) {
        strncat(all, ".", sizeof(all) - strlen(all) - 1);
        strncat(all, statement->modifiers[i], sizeof(all) - strlen(all) - 1);
    }
    refuse(builder, "instruction %s%s is not known", statement->name, all);
}

static void instruction_read(struct builder *builder, struct cursor *cursor)
{
    struct statement *statement = &builder->statement;
    char token[TOKEN_BYTES];

    statement->modifier_count = statement->argument_count = statement->item_count = 0;
    statement->guard = NULL;
    memset(statement->name, 0, sizeof(statement->name));
    memset(statement->modifiers, 0, sizeof(statement->modifiers));
    memset(statement->used, 0, sizeof(statement->used));

    guard_read(builder, cursor, statement);
    token_next(cursor, token);
    opcode_split(builder, token, statement);
    if (strcmp(statement->name, "call") == 0) {
        call_read(builder, statement, cursor);
        return;
    }
    arguments_read(builder, cursor, statement);
    statement_decode(builder, statement);
}

void body_read(struct builder *builder, struct cursor cursor)
{
    char token[TOKEN_BYTES];
    unsigned depth = 1;

    scope_push(builder);
    for (;;) {
        struct cursor before = cursor;
        token_next(&cursor, token);
        builder->place.ptx_line = cursor.line;
        if (token[0] == '\0')
            refuse(builder, "the text ends inside a function");
        if (strcmp(token, "{") == 0) {
            scope_push(builder);
            depth++;
        } else if (strcmp(token, "}") == 0) {
            scope_pop(builder);
            if (--depth == 0)
                break;
        } else if (token[0] == '.') {
            directive_read(builder, &cursor, token);
        } else if (strcmp(token, ";") != 0) {
            if (token[0] != '@' && token_take(&cursor, ":")) {
                label_here(builder, token);
                continue;
            }
            cursor = before;
            instruction_read(builder, &cursor);
        }
    }
    label_here(builder, "end of function");
}

static void parameters_read(struct builder *builder, const struct function *function)
{
    struct ptx_kernel *kernel = builder->kernel;
    struct cursor cursor = function->parameters;
    char token[TOKEN_BYTES];
    size_t total = 0;

    while (cursor.at != NULL && cursor.at < cursor.end) {
        struct declaration declaration;
        token_next(&cursor, token);
        if (token[0] == '\0')
            break;
        if (strcmp(token, ",") == 0)
            continue;
        if (strcmp(token, ".param") != 0 || !declaration_read(&cursor, &declaration))
            refuse(builder, "a parameter of %s of a form that is not known", function->name);
        total = (total + declaration.align - 1) / declaration.align * declaration.align;
        struct symbol symbol = {.space = SPACE_PARAM, .address = total, .bytes = declaration.bytes};
        memcpy(symbol.name, declaration.name, sizeof(symbol.name));
        scope_add_symbol(builder, &symbol);
        kernel->parameters = realloc(kernel->parameters, (kernel->info.parameter_count + 1) *
                                                             sizeof(struct ptx_parameter));
        kernel->parameters[kernel->info.parameter_count++] =
            (struct ptx_parameter){total, declaration.bytes};
        total += declaration.bytes;
    }
    kernel->info.parameter_bytes = total;
}

static void kernel_decode(struct builder *builder, const struct function *function)
{
    struct ptx_kernel *kernel = builder->kernel;

    kernel->module = builder->module;
    kernel->name = strdup(function->name);
    kernel->file_bytes = 256; /* at 0 lies the operand that is none */
    kernel->marks = 1;        /* the first is the constants' */
    scope_push(builder);
    parameters_read(builder, function);
    body_read(builder, function->body);
    emit(builder, NULL, NULL); /* nothing runs behind the last instruction */
    labels_check(builder);
    kernel->static_shared_bytes = (kernel->static_shared_bytes + 15) / 16 * 16;
    kernel->info.name = kernel->name;
    kernel->info.parameters = kernel->parameters;
    kernel->info.shared_bytes = kernel->static_shared_bytes;
    kernel->info.local_bytes = kernel->local_bytes;
    kernel->info.max_threads = function->max_threads;
    kernel->info.registers = kernel->marks;
}

static struct ptx_kernel *attempt(struct ptx_module *module, const struct function *function,
                                  uint64_t dynamic_base, bool *out_again, char *why,
                                  size_t why_bytes)
{
    struct builder builder = {.why = why,
                              .why_bytes = why_bytes,
                              .module = module,
                              .kernel = calloc(1, sizeof(struct ptx_kernel)),
                              .dynamic_base = dynamic_base};

    if (setjmp(builder.refused) != 0) {
        labels_free(&builder);
        ptx_kernel_drop(builder.kernel);
        return NULL;
    }
    kernel_decode(&builder, function);
    labels_free(&builder);
    *out_again = builder.has_dynamic && builder.kernel->static_shared_bytes != dynamic_base;
    return builder.kernel;
}

struct ptx_kernel *ptx_find(struct ptx_module *module, const char *name, char *out_why,
                            size_t why_bytes)
{
    const struct function *function = function_find(module, name);
    bool again = false;

    for (struct ptx_kernel *kernel = module->kernels; kernel != NULL; kernel = kernel->next)
        if (strcmp(kernel->name, name) == 0)
            return kernel;
    if (function == NULL || !function->is_entry || !function->has_body) {
        snprintf(out_why, why_bytes, "the module has no kernel of this name");
        return NULL;
    }
    struct ptx_kernel *kernel = attempt(module, function, 0, &again, out_why, why_bytes);
    if (kernel != NULL && again) {
        /* Now that the size of the static memory is known, so is where the dynamic begins. */
        uint64_t dynamic_base = kernel->static_shared_bytes;
        ptx_kernel_drop(kernel);
        kernel = attempt(module, function, dynamic_base, &again, out_why, why_bytes);
    }
    if (kernel == NULL)
        return NULL;
    kernel->next = module->kernels;
    module->kernels = kernel;
    return kernel;
}

const struct ptx_info *ptx_info(const struct ptx_kernel *kernel)
{
    return &kernel->info;
}
