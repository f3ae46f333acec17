/* See recurrent.h; included by recurrent_base.c, recurrent_avx2.c and recurrent_avx512.c. */
#include "device/cpu/recurrent/recurrent.h"
#include "device/cpu/vmath.h"

extern const struct recurrent_ops SIMD_NAME(recurrent_ops);

/* The first `count` (≤ VW) floats; zero behind them. */
INLINE vf load_part(const float *from, int64_t count)
{
    float part[VW] = {0};

    if (count >= VW)
        return vload(from);
    memcpy(part, from, (size_t)count * sizeof(float));
    return vload(part);
}

INLINE void store_part(float *to, vf x, int64_t count)
{
    float part[VW];

    if (count >= VW) {
        vstore(to, x);
        return;
    }
    vstore(part, x);
    memcpy(to, part, (size_t)count * sizeof(float));
}

static vf apply_rare(const struct recurrent_function *function, vf x)
{
    vf alpha = vset1(function->alpha), beta = vset1(function->beta);

    switch (function->activation) {
    case RECURRENT_AFFINE:
        return vfma(alpha, x, beta);
    case RECURRENT_LEAKY_RELU:
        return vselect_lt(x, vzero(), vmul(alpha, x), x);
    case RECURRENT_THRESHOLDED_RELU:
        return vselect_lt(x, alpha, vzero(), x);
    case RECURRENT_SCALED_TANH:
        return vmul(alpha, vtanh(vmul(beta, x)));
    case RECURRENT_HARD_SIGMOID:
        return vmin(vset1(1), vmax(vzero(), vfma(alpha, x, beta)));
    case RECURRENT_ELU:
        return vselect_lt(x, vzero(), vmul(alpha, vsub(vexp_fast(x), vset1(1))), x);
    case RECURRENT_SOFTSIGN:
        return vdiv(x, vadd(vset1(1), vabs(x)));
    case RECURRENT_SOFTPLUS:
        return vsoftplus(x);
    default:
        return vmax(vzero(), x);
    }
}

INLINE vf apply(const struct recurrent_function *function, vf x)
{
    if (function->activation == RECURRENT_SIGMOID)
        return vsigmoid(x);
    if (function->activation == RECURRENT_TANH)
        return vtanh(x);
    return apply_rare(function, x);
}

INLINE vf clip(const struct recurrent_cell *cell, vf x)
{
    if (cell->clip > 0)
        return vmin(vset1(cell->clip), vmax(vset1(-cell->clip), x));
    return x;
}

/* Adds `weight` times `state` where the cell has peepholes. */
INLINE vf peep(const struct recurrent_cell *cell, int64_t gate, int64_t at, int64_t count, vf state,
               vf x)
{
    if (cell->peephole == NULL)
        return x;
    return vfma(load_part(cell->peephole + gate * cell->hidden + at, count), state, x);
}

static void lstm(const struct recurrent_cell *cell, const float *gates, float *c, float *h)
{
    int64_t hidden = cell->hidden;

    for (int64_t at = 0; at < hidden; at += VW) {
        int64_t count = hidden - at;
        const float *gate = gates + at;
        vf state = load_part(c + at, count);
        vf i = peep(cell, 0, at, count, state, load_part(gate, count));
        vf f = peep(cell, 2, at, count, state, load_part(gate + 2 * hidden, count));
        vf g = apply(&cell->functions[1], clip(cell, load_part(gate + 3 * hidden, count)));
        vf o;

        i = apply(&cell->functions[0], clip(cell, i));
        f = cell->input_forget ? vsub(vset1(1), i) : apply(&cell->functions[0], clip(cell, f));
        state = vfma(f, state, vmul(i, g));
        o = peep(cell, 1, at, count, state, load_part(gate + hidden, count));
        o = apply(&cell->functions[0], clip(cell, o));
        store_part(c + at, state, count);
        store_part(h + at, vmul(o, apply(&cell->functions[2], state)), count);
    }
}

static void gru_gates(const struct recurrent_cell *cell, float *x, const float *h, float *reset)
{
    int64_t hidden = cell->hidden;

    for (int64_t at = 0; at < hidden; at += VW) {
        int64_t count = hidden - at;
        vf z = apply(&cell->functions[0], clip(cell, load_part(x + at, count)));
        vf r = apply(&cell->functions[0], clip(cell, load_part(x + hidden + at, count)));

        store_part(x + at, z, count);
        store_part(reset + at, vmul(r, load_part(h + at, count)), count);
    }
}

/* h = (1 - z) candidate + z h */
INLINE vf blend(vf z, vf candidate, vf h)
{
    return vfma(z, h, vmul(vsub(vset1(1), z), candidate));
}

static void gru_finish(const struct recurrent_cell *cell, const float *x, float *h)
{
    int64_t hidden = cell->hidden;

    for (int64_t at = 0; at < hidden; at += VW) {
        int64_t count = hidden - at;
        vf candidate =
            apply(&cell->functions[1], clip(cell, load_part(x + 2 * hidden + at, count)));

        store_part(h + at, blend(load_part(x + at, count), candidate, load_part(h + at, count)),
                   count);
    }
}

static void gru_linear(const struct recurrent_cell *cell, const float *x, const float *state,
                       float *h)
{
    int64_t hidden = cell->hidden;

    for (int64_t at = 0; at < hidden; at += VW) {
        int64_t count = hidden - at, r_at = hidden + at, h_at = 2 * hidden + at;
        vf z = vadd(load_part(x + at, count), load_part(state + at, count));
        vf r = vadd(load_part(x + r_at, count), load_part(state + r_at, count));
        vf candidate;

        z = apply(&cell->functions[0], clip(cell, z));
        r = apply(&cell->functions[0], clip(cell, r));
        candidate = vfma(r, load_part(state + h_at, count), load_part(x + h_at, count));
        candidate = apply(&cell->functions[1], clip(cell, candidate));
        store_part(h + at, blend(z, candidate, load_part(h + at, count)), count);
    }
}

static void rnn(const struct recurrent_cell *cell, const float *sums, float *h)
{
    for (int64_t at = 0; at < cell->hidden; at += VW) {
        int64_t count = cell->hidden - at;

        store_part(h + at, apply(&cell->functions[0], clip(cell, load_part(sums + at, count))),
                   count);
    }
}

const struct recurrent_ops SIMD_NAME(recurrent_ops) = {
    .lstm = lstm,
    .gru_gates = gru_gates,
    .gru_finish = gru_finish,
    .gru_linear = gru_linear,
    .rnn = rnn,
};
