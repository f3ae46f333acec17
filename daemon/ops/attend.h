/* Attention and RotaryEmbedding as ONNX has them.  No device has kernels for them: each plan spells
 * them out (graph/pass_spell_attention.c, pass_spell_rotary.c), and what devices know in one step
 * is found in that again (ops/attention.h).
 */
#ifndef OPS_ATTEND_H
#define OPS_ATTEND_H

#include "ops/op.h"

/* Whether it is one of these. */
bool op_is_spelled_out(const struct op_def *op);

enum {
    ATTEND_Q,
    ATTEND_K,
    ATTEND_V,
    ATTEND_MASK,
    ATTEND_PAST_K,
    ATTEND_PAST_V,
    ATTEND_KEYS_THERE, /* of each sequence */
    ATTEND_INPUTS
};
enum { ATTEND_OUT, ATTEND_PRESENT_K, ATTEND_PRESENT_V, ATTEND_SCORES, ATTEND_OUTPUTS };
/* What ATTEND_SCORES is: from the product to the softmax. */
enum { ATTEND_RAW, ATTEND_CAPPED, ATTEND_MASKED, ATTEND_SOFTENED };

struct attend_attrs {
    int64_t is_causal;
    int64_t q_num_heads, kv_num_heads; /* 0: not given */
    int64_t qk_matmul_output_mode;
    int64_t softmax_precision; /* enum dtype; 0: that of Q */
    float scale;               /* NaN: one by the root of the depth */
    float softcap;             /* 0: none */
};

struct attend_geometry {
    bool by_rows; /* operands are [batch, row, head and column]; else [batch, head, row, column] */
    int64_t batch, q_heads, kv_heads; /* so many of the first share one of the second */
    int64_t queries, past, keys;      /* keys: with those of the past */
    int64_t depth, width;
};
/* Of the operands' shapes, inputs that are left out NULL. */
MUST_CHECK enum status attend_resolve(const struct attend_attrs *attrs,
                                      const struct shape *const in[ATTEND_INPUTS],
                                      struct attend_geometry *out_geometry, struct error *err);

enum { ROTARY_X, ROTARY_COS, ROTARY_SIN, ROTARY_POSITIONS, ROTARY_INPUTS };
struct rotary_attrs {
    int64_t interleaved;
    int64_t num_heads;            /* of inputs of three dimensions */
    int64_t rotary_embedding_dim; /* 0: all columns */
};
struct rotary_geometry {
    bool by_rows; /* X is [batch, row, head and column]; else [batch, head, row, column] */
    int64_t batch, heads, rows, columns;
    int64_t turned; /* columns that are turned, the first ones; even */
};
MUST_CHECK enum status rotary_resolve(const struct rotary_attrs *attrs,
                                      const struct shape *const in[ROTARY_INPUTS],
                                      struct rotary_geometry *out_geometry, struct error *err);

#endif
