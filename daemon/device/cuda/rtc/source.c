/* A program as text: facts that hold for all its runs, then its steps one behind the other. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/rtc/fused.h"

static const char *const real_names[] = {
#define REAL(name, where, expression) #name,
#define WHOLE(name, where, expression)
#include "device/cuda/kernels/pointwise.def"
#undef REAL
#undef WHOLE
};
static const char *const whole_names[] = {
#define REAL(name, where, expression)
#define WHOLE(name, where, expression) #name,
#include "device/cuda/kernels/pointwise.def"
#undef REAL
#undef WHOLE
};
static const char *const types[] = {[PW_FLOAT] = "float",
                                    [PW_DOUBLE] = "double",
                                    [PW_SIGNED] = "int64_t",
                                    [PW_UNSIGNED] = "uint64_t"};

/* Exactly, whatever it is. */
static void put_number(FILE *to, const char *type, double number)
{
    uint64_t bits;

    memcpy(&bits, &number, sizeof(bits));
    fprintf(to, ", (%s)__longlong_as_double(0x%016" PRIx64 "LL)", type, bits);
}

static void put_step(FILE *to, const struct pointwise *program, const struct pointwise_step *step)
{
    const char *type = types[program->type];
    bool whole = program->type == PW_SIGNED || program->type == PW_UNSIGNED;

    if (step->from < POINTWISE_INPUTS)
        fprintf(to, "        load_group<facts>(p, %u, g);\n", step->from);
    else if (step->from == PW_FROM_SAVED)
        fputs("        g.take_saved();\n", to);
    fprintf(to, "        apply_step<%s<PW_%s%s>>(g", whole ? "whole_step" : "real_step",
            whole ? "WHOLE_" : "", (whole ? whole_names : real_names)[step->op]);
    put_number(to, whole ? "double" : type, step->a);
    put_number(to, whole ? "double" : type, step->b);
    fputs(");\n", to);
    if (step->saves)
        fputs("        g.save();\n", to);
}

/* name(p): `value`. */
static void put_fact(FILE *to, const char *name, uint32_t value)
{
    fprintf(to,
            "    __device__ static inline uint32_t %s(const struct pointwise &)\n"
            "    {\n        return %u;\n    }\n",
            name, value);
}

/* name(p, input): one of `values`. */
static void put_facts(FILE *to, const char *name, uint32_t count, const uint32_t *values)
{
    fprintf(to,
            "    __device__ static inline uint32_t %s(const struct pointwise &, uint32_t input)\n"
            "    {\n        constexpr uint32_t of[] = {",
            name);
    for (uint32_t i = 0; i < count; i++)
        fprintf(to, "%s%u", i == 0 ? "" : ", ", values[i]);
    fputs("};\n\n        return of[input];\n    }\n", to);
}

static void put_all_facts(FILE *to, const struct pointwise *program)
{
    uint32_t dtypes[POINTWISE_INPUTS], vectors[POINTWISE_INPUTS];

    for (uint32_t i = 0; i < program->inputs; i++) {
        dtypes[i] = program->in[i].dtype;
        vectors[i] = program->in[i].vector;
    }
    fputs("struct facts {\n", to);
    put_fact(to, "rank", program->walk.rank);
    put_fact(to, "wide", program->walk.wide);
    put_fact(to, "grouped", program->grouped);
    put_fact(to, "out_dtype", program->out.dtype);
    put_fact(to, "out_vector", program->out.vector);
    put_facts(to, "in_dtype", program->inputs, dtypes);
    put_facts(to, "in_vector", program->inputs, vectors);
    fputs("};\n\n", to);
}

char *fused_source(const struct pointwise *program)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    if (to == NULL)
        return NULL;
    fputs("#include \"device/cuda/kernels/pointwise.cuh\"\n\n", to);
    put_all_facts(to, program);
    fprintf(to,
            "extern \"C\" __global__ void __launch_bounds__(BLOCK_THREADS)\n"
            "    fused(const __grid_constant__ struct pointwise p)\n{\n"
            "    pointwise_fused<facts, %s>(p, [&p](auto &g) {\n",
            types[program->type]);
    for (uint32_t i = 0; i < program->steps; i++)
        put_step(to, program, &program->step[i]);
    fputs("    });\n}\n", to);
    if (fclose(to) == 0)
        return text;
    free(text);
    return NULL;
}
