/* From text to decoded instructions: one statement at a time, and what decoders need to know.
 *
 * A decoder takes a statement apart, chooses the function that runs it, and emits it.  It must use
 * every modifier of the statement: one that nobody asked for is refused, because an instruction
 * that is half understood computes a wrong number.
 */
#ifndef SLUICE_TESTS_SIM_PTX_BUILD_H
#define SLUICE_TESTS_SIM_PTX_BUILD_H

#include "warp.h"

#include <setjmp.h>

enum type {
    TYPE_NONE,
    TYPE_PRED,
    TYPE_B8,
    TYPE_B16,
    TYPE_B32,
    TYPE_B64,
    TYPE_B128,
    TYPE_U8,
    TYPE_U16,
    TYPE_U32,
    TYPE_U64,
    TYPE_S8,
    TYPE_S16,
    TYPE_S32,
    TYPE_S64,
    TYPE_F16,
    TYPE_F32,
    TYPE_F64,
    TYPE_BF16,
    TYPE_TF32,
    TYPE_F16X2,
    TYPE_BF16X2,
    TYPE_U16X2,
    TYPE_S16X2,
    TYPE_E4M3X2,
    TYPE_E5M2X2,
    TYPES
};

unsigned type_bytes(enum type type); /* of one value; 0 for predicates */
bool type_is_signed(enum type type);
bool type_is_float(enum type type);
const char *type_name(enum type type);

enum { TOKEN_BYTES = 1024 }; /* mangled names are long */

enum argument_kind {
    ARGUMENT_NONE,
    ARGUMENT_REGISTER, /* `variable`, perhaps negated; `second` behind a | */
    ARGUMENT_NUMBER,
    ARGUMENT_SPECIAL,
    ARGUMENT_SYMBOL, /* of a variable in memory, + offset */
    ARGUMENT_LABEL,
    ARGUMENT_VECTOR,
    ARGUMENT_SINK, /* _ */
};

struct variable {
    char name[96];
    enum type type;
    unsigned bytes; /* of a lane; 0: a predicate */
    struct operand operand;
};

/* A name in memory. */
struct symbol {
    char name[TOKEN_BYTES];
    enum space space;
    uint64_t address; /* offset in its space; global: the address */
    size_t bytes;
    bool is_dynamic; /* extern .shared: begins behind the static */
};

struct argument {
    enum argument_kind kind;
    bool negated;
    bool is_address; /* in [ ] */
    bool is_float;   /* the number was written 0f or 0d: its bits */
    const struct variable *variable;
    const struct variable *second;
    const struct symbol *symbol;
    enum special special;
    uint64_t number;
    int64_t offset;
    const char *text;       /* a label's name: the statement's */
    struct argument *items; /* of a vector: the statement's */
    unsigned count;
};

enum { MODIFIERS = 20, ARGUMENTS = 12, MODIFIER_BYTES = 32, ITEMS = 96 };

struct statement {
    char name[32];
    char modifiers[MODIFIERS][MODIFIER_BYTES];
    bool used[MODIFIERS];
    unsigned modifier_count;
    struct argument arguments[ARGUMENTS];
    unsigned argument_count;
    struct argument items[ITEMS]; /* of all vectors */
    unsigned item_count;
    char text[TOKEN_BYTES];
    const struct variable *guard;
    bool guard_not;
    struct place place;
};

struct builder {
    jmp_buf refused; /* a refusal leaves everything here */
    char *why;
    size_t why_bytes;
    struct ptx_module *module;
    struct ptx_kernel *kernel;
    struct scope *scope;
    struct label *labels;
    size_t label_count;
    size_t label_room;
    size_t op_room;
    size_t constant_room;
    size_t owned_room;
    size_t parameter_bytes;
    unsigned depth;    /* of calls */
    unsigned instance; /* of the function whose text is read: labels are its own */
    unsigned instances;
    struct place place;
    struct statement statement; /* the one that is being read */
    struct operand carry;       /* mark 0: none yet */
    bool has_dynamic;
    uint64_t dynamic_base; /* where extern shared memory begins: behind the static */
};

/* Leaves the builder with a sentence. */
_Noreturn void refuse(struct builder *builder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Whether the statement has the modifier, which then counts as used. */
bool modifier(struct statement *statement, const char *name);
/* The first of a NULL-ended list that it has: its index, or -1. */
int modifier_of(struct statement *statement, const char *const *names);
/* The next modifier that is a type; TYPE_NONE: no more. */
enum type type_next(struct statement *statement);
enum type type_needed(struct builder *builder, struct statement *statement);

/* Operands.  A source of `bytes` a lane: a register of that size, a number or a special register;
 * anything else is refused. */
struct operand source(struct builder *builder, const struct argument *argument, unsigned bytes);
/* The same where the register may be larger; its size goes to out_bytes. */
struct operand source_wide(struct builder *builder, const struct argument *argument, unsigned bytes,
                           unsigned *out_bytes);
struct operand source_predicate(struct builder *builder, const struct argument *argument,
                                bool *out_negated);
struct operand destination(struct builder *builder, const struct argument *argument,
                           unsigned bytes);
struct operand destination_wide(struct builder *builder, const struct argument *argument,
                                unsigned bytes, unsigned *out_bytes);
struct operand destination_predicate(struct builder *builder, const struct argument *argument);
/* An operand that holds a number in every lane. */
struct operand constant(struct builder *builder, uint64_t value, unsigned bytes);
/* A register of the builder's own. */
struct operand scratch(struct builder *builder, unsigned bytes);

/* The carry flag of the thread: a predicate. */
struct operand carry_register(struct builder *builder);

void need_arguments(struct builder *builder, const struct statement *statement, unsigned least,
                    unsigned most);

/* A new instruction at the end, with guard and place set. */
struct op *emit(struct builder *builder, const struct statement *statement, op_fn *fn);
/* Memory that lives as long as the kernel. */
void *own(struct builder *builder, size_t bytes);
/* A copy of a list of operands. */
const struct operand *own_list(struct builder *builder, const struct operand *list, size_t count);

/* Fills in address, space and slot of a memory instruction from `[a + n]`. */
void address_of(struct builder *builder, struct op *op, const struct argument *argument,
                enum space space);
enum space space_of(struct builder *builder, struct statement *statement);

/* The branch target of a label, known now or later. */
void branch_to(struct builder *builder, size_t op, const char *label);

typedef void decode_fn(struct builder *builder, struct statement *statement);
struct decoder {
    const char *name;
    decode_fn *decode;
};
/* Each file of operations has such a list, ended by NULL. */
extern const struct decoder decode_arithmetic[];
extern const struct decoder decode_float[];
extern const struct decoder decode_half[];
extern const struct decoder decode_bits[];
extern const struct decoder decode_compare[];
extern const struct decoder decode_convert[];
extern const struct decoder decode_move[];
extern const struct decoder decode_memory[];
extern const struct decoder decode_atomic[];
extern const struct decoder decode_async[];
extern const struct decoder decode_flow[];
extern const struct decoder decode_warp[];
extern const struct decoder decode_matrix[];
extern const struct decoder decode_fragment[];
extern const struct decoder decode_wmma[];

#endif
