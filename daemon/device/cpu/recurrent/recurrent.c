/* LSTM, GRU and RNN.
 *
 * For each direction: the products of the inputs with W of many steps at once (steps are cut into
 * chunks, to bound the scratch), then step by step the product of the state with R, added into the
 * same sums, and the gates.  Sums are in the order of gemm.h, so no row depends on the others.
 * A sequence that is over keeps its state and gives zeros; one without a step ends in zeros, too.
 * The directions of a bidirectional operator run side by side when there are threads for it.
 */
#include "device/cpu/recurrent/recurrent_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/move.h"
#include "device/cpu/product/gemm.h"
#include "device/cpu/team.h"

enum { CHUNK_BYTES = 4 << 20 };

extern const struct recurrent_ops recurrent_ops_base, recurrent_ops_avx2, recurrent_ops_avx512;

const struct recurrent_ops *recurrent_ops_for(enum cpu_isa isa)
{
    static const struct recurrent_ops *const ops[CPU_ISA_COUNT] = {
        &recurrent_ops_base, &recurrent_ops_avx2, &recurrent_ops_avx512};

    return ops[isa];
}

/* ---- scratch ---- */

struct workspace {
    float *packed[MATRICES]; /* for those that are not known before */
    float *bias;             /* of the input's products */
    float *state_bias;       /* GRU with linear_before_reset: of the state's products */
    float *peephole;         /* aligned copy */
    float *sums;             /* the input's products: chunk x batch x gates x hidden */
    float *h, *c;            /* batch x hidden */
    float *step;             /* all sums of one step: batch x gates x hidden */
    float *reset;            /* GRU: the state times the reset gate, batch x hidden */
    void *gemm;
};

/* Of one product: all sequences, by all steps that are projected at once. */
static int64_t most_rows(const struct recurrent_state *state)
{
    return state->batch * (state->chunk > 1 ? state->chunk : 1);
}

/* Of the input's products and the state's. */
static size_t product_scratch(const struct recurrent_state *state, unsigned threads)
{
    const struct gemm_matrix x = {NULL, state->input, 1}, h = {NULL, state->hidden, 1};
    size_t of_x = gemm_scratch_bytes(state->isa, most_rows(state), &x, threads);
    size_t of_h = gemm_scratch_bytes(state->isa, state->batch, &h, threads);

    return of_x > of_h ? of_x : of_h;
}

static void lay_out(const struct recurrent_state *state, struct room *room, unsigned threads,
                    size_t direction, struct workspace *work)
{
    size_t row = (size_t)state->hidden * sizeof(float), batch = (size_t)state->batch;

    for (enum matrix i = MATRIX_W; i < MATRICES; i++)
        work->packed[i] = state->packed[direction][i] == NULL
                              ? room_take(room, recurrent_packed_bytes(state, i))
                              : NULL;
    work->bias = room_take(room, state->kind * row);
    work->state_bias = room_take(room, state->kind == GRU ? GRU * row : 0);
    work->peephole = room_take(room, state->kind == LSTM ? 3 * row : 0);
    work->sums = room_take(room, (size_t)state->chunk * batch * state->kind * row);
    work->h = room_take(room, batch * row);
    work->c = room_take(room, state->kind == LSTM ? batch * row : 0);
    work->step = room_take(room, batch * state->kind * row);
    work->reset = room_take(room, state->kind == GRU ? batch * row : 0);
    work->gemm = room_take(room, product_scratch(state, threads));
}

/* ---- one direction ---- */

struct pass {
    const struct recurrent_state *state;
    const struct kernel_call *call;
    const struct kernel_run *run;
    size_t direction;
    bool reverse;
    unsigned threads;
    struct recurrent_cell cell;
    struct workspace work;
    const float *packed[MATRICES];
};

static const void *input_at(const struct pass *pass, size_t index)
{
    return index < pass->call->inputs && pass->call->in[index] != NULL ? pass->run->in[index]
                                                                       : NULL;
}

static bool is_over(const struct pass *pass, int64_t row, int64_t time)
{
    const void *lengths = input_at(pass, RECURRENT_LENGTHS);

    return lengths != NULL && time >= read_index(DTYPE_INT32, lengths, row);
}

/* Elements of row (batch) `row` of a state tensor. */
static int64_t state_row(const struct recurrent_state *state, size_t direction, int64_t row)
{
    int64_t d = (int64_t)direction;

    return (state->batch_first ? row * (int64_t)state->directions + d : d * state->batch + row) *
           state->hidden;
}

/* A sequence without a step ends in zeros, as it does in ONNX Runtime and OpenVINO (ONNX itself
 * says nothing): so it begins with them. */
static void load_state(const struct pass *pass, size_t index, float *to)
{
    const struct recurrent_state *state = pass->state;
    const float *from = input_at(pass, index);
    size_t bytes = (size_t)state->hidden * sizeof(float);

    for (int64_t row = 0; row < state->batch; row++, to += state->hidden) {
        if (from != NULL && state->times > 0 && !is_over(pass, row, 0))
            memcpy(to, (const char *)from + state_row(state, pass->direction, row) * 4, bytes);
        else
            memset(to, 0, bytes);
    }
}

static void store_state(const struct pass *pass, size_t index, const float *from)
{
    const struct recurrent_state *state = pass->state;
    float *to = index < pass->call->outputs ? pass->run->out[index] : NULL;

    for (int64_t row = 0; row < state->batch && to != NULL; row++)
        memcpy(to + state_row(state, pass->direction, row), from + row * state->hidden,
               (size_t)state->hidden * sizeof(float));
}

/* B is [directions, W's biases then R's].  They are added once, but for the last gate of a GRU that
 * multiplies the state's share before adding. */
static void load_bias(const struct pass *pass)
{
    const struct recurrent_state *state = pass->state;
    int64_t count = state->kind * state->hidden;
    const char *from = input_at(pass, RECURRENT_BIAS);
    float *bias = pass->work.bias;
    bool apart = state->kind == GRU && state->linear_before_reset;

    memset(bias, 0, (size_t)count * sizeof(float));
    if (apart)
        memset(pass->work.state_bias, 0, (size_t)count * sizeof(float));
    if (from == NULL)
        return;
    from += (int64_t)pass->direction * 2 * count * 4;
    memcpy(bias, from, (size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        float other;

        memcpy(&other, from + (count + i) * 4, sizeof(other));
        if (apart && i >= 2 * state->hidden)
            pass->work.state_bias[i] = other;
        else
            bias[i] += other;
    }
}

static void load_peephole(struct pass *pass)
{
    const struct recurrent_state *state = pass->state;
    const char *from = input_at(pass, RECURRENT_P);
    size_t bytes = 3 * (size_t)state->hidden * sizeof(float);

    if (state->kind != LSTM || from == NULL)
        return;
    memcpy(pass->work.peephole, from + pass->direction * bytes, bytes);
    pass->cell.peephole = pass->work.peephole;
}

static void find_matrices(struct pass *pass)
{
    const struct recurrent_state *state = pass->state;

    for (enum matrix i = MATRIX_W; i < MATRICES; i++) {
        const float *weights = pass->run->in[i == MATRIX_W ? RECURRENT_W : RECURRENT_R];

        pass->packed[i] = state->packed[pass->direction][i];
        if (pass->packed[i] != NULL || recurrent_packed_bytes(state, i) == 0)
            continue;
        recurrent_pack(state, pass->direction, i, weights, pass->work.packed[i]);
        pass->packed[i] = pass->work.packed[i];
    }
}

/* c = a W (+ bias) (+ c) */
static void multiply(const struct pass *pass, const struct gemm *product)
{
    gemm_run(pass->state->isa, product, pass->threads, pass->work.gemm);
}

/* The input's products of steps [first, first + count), to the sums. */
static void project(const struct pass *pass, int64_t first, int64_t count)
{
    const struct recurrent_state *state = pass->state;
    const float *x = pass->run->in[RECURRENT_X];
    int64_t n = state->kind * state->hidden;
    struct gemm product = {.m = count * state->batch,
                           .k = state->input,
                           .n = n,
                           .a = {x + first * state->batch * state->input, state->input, 1},
                           .packed = pass->packed[MATRIX_W],
                           .bias = pass->work.bias,
                           .c = pass->work.sums,
                           .ldc = n};

    if (!state->batch_first) {
        multiply(pass, &product);
        return;
    }
    product.m = count;
    product.ldc = n * state->batch;
    for (int64_t row = 0; row < state->batch; row++) {
        product.a.data = x + (row * state->times + first) * state->input;
        product.c = pass->work.sums + row * n;
        multiply(pass, &product);
    }
}

/* Sums of the state's product and, unless that is kept apart, the input's. */
static void add_state(const struct pass *pass, enum matrix matrix, const float *a,
                      const float *sums)
{
    const struct recurrent_state *state = pass->state;
    int64_t first, n = recurrent_columns(state, matrix, &first);
    bool apart = state->kind == GRU && state->linear_before_reset;
    int64_t all = state->kind * state->hidden;
    struct gemm product = {.m = state->batch,
                           .k = state->hidden,
                           .n = n,
                           .a = {a, state->hidden, 1},
                           .packed = pass->packed[matrix],
                           .bias = apart ? pass->work.state_bias : NULL,
                           .residual = apart ? NULL : sums + first,
                           .ldr = all,
                           .c = pass->work.step + first,
                           .ldc = all,
                           .epilogue = {.has_residual = !apart}};

    multiply(pass, &product);
}

static void step_lstm(const struct pass *pass, int64_t time, const float *sums)
{
    const struct recurrent_state *state = pass->state;
    const struct workspace *work = &pass->work;
    int64_t hidden = state->hidden;

    add_state(pass, MATRIX_R, work->h, sums);
    for (int64_t row = 0; row < state->batch; row++)
        if (!is_over(pass, row, time))
            state->ops->lstm(&pass->cell, work->step + row * LSTM * hidden, work->c + row * hidden,
                             work->h + row * hidden);
}

static void step_gru_linear(const struct pass *pass, int64_t time, const float *sums)
{
    const struct recurrent_state *state = pass->state;
    const struct workspace *work = &pass->work;
    int64_t hidden = state->hidden;

    add_state(pass, MATRIX_R, work->h, sums);
    for (int64_t row = 0; row < state->batch; row++)
        if (!is_over(pass, row, time))
            state->ops->gru_linear(&pass->cell, sums + row * GRU * hidden,
                                   work->step + row * GRU * hidden, work->h + row * hidden);
}

static void step_gru(const struct pass *pass, int64_t time, const float *sums)
{
    const struct recurrent_state *state = pass->state;
    const struct workspace *work = &pass->work;
    int64_t hidden = state->hidden;

    if (state->linear_before_reset) {
        step_gru_linear(pass, time, sums);
        return;
    }
    add_state(pass, MATRIX_R, work->h, sums);
    for (int64_t row = 0; row < state->batch; row++)
        state->ops->gru_gates(&pass->cell, work->step + row * GRU * hidden, work->h + row * hidden,
                              work->reset + row * hidden);
    add_state(pass, MATRIX_R_LAST, work->reset, sums);
    for (int64_t row = 0; row < state->batch; row++)
        if (!is_over(pass, row, time))
            state->ops->gru_finish(&pass->cell, work->step + row * GRU * hidden,
                                   work->h + row * hidden);
}

static void step_rnn(const struct pass *pass, int64_t time, const float *sums)
{
    const struct recurrent_state *state = pass->state;
    int64_t hidden = state->hidden;

    add_state(pass, MATRIX_R, pass->work.h, sums);
    for (int64_t row = 0; row < state->batch; row++)
        if (!is_over(pass, row, time))
            state->ops->rnn(&pass->cell, pass->work.step + row * hidden,
                            pass->work.h + row * hidden);
}

static void store_step(const struct pass *pass, int64_t time)
{
    const struct recurrent_state *state = pass->state;
    float *out = pass->run->out[0];
    int64_t directions = (int64_t)state->directions;
    size_t bytes = (size_t)state->hidden * sizeof(float);

    for (int64_t row = 0; row < state->batch && out != NULL; row++) {
        int64_t d = (int64_t)pass->direction;
        int64_t place = state->batch_first ? (row * state->times + time) * directions + d
                                           : (time * directions + d) * state->batch + row;

        if (is_over(pass, row, time))
            memset(out + place * state->hidden, 0, bytes);
        else
            memcpy(out + place * state->hidden, pass->work.h + row * state->hidden, bytes);
    }
}

static void run_steps(const struct pass *pass)
{
    const struct recurrent_state *state = pass->state;
    int64_t row = state->batch * state->kind * state->hidden;

    for (int64_t done = 0; done < state->times; done += state->chunk) {
        int64_t left = state->times - done;
        int64_t count = left < state->chunk ? left : state->chunk;
        int64_t first = pass->reverse ? left - count : done;

        project(pass, first, count);
        for (int64_t i = 0; i < count; i++) {
            int64_t at = pass->reverse ? count - 1 - i : i;
            const float *sums = pass->work.sums + at * row;

            if (state->kind == LSTM)
                step_lstm(pass, first + at, sums);
            else if (state->kind == GRU)
                step_gru(pass, first + at, sums);
            else
                step_rnn(pass, first + at, sums);
            store_step(pass, first + at);
        }
    }
}

static void run_pass(struct pass *pass)
{
    pass->cell = pass->state->cells[pass->direction];
    load_bias(pass);
    load_peephole(pass);
    find_matrices(pass);
    load_state(pass, RECURRENT_H, pass->work.h);
    if (pass->state->kind == LSTM)
        load_state(pass, RECURRENT_C, pass->work.c);
    run_steps(pass);
    store_state(pass, 1, pass->work.h);
    if (pass->state->kind == LSTM)
        store_state(pass, 2, pass->work.c);
}

static void pass_share(void *arg, unsigned member, unsigned members)
{
    struct pass *passes = arg;
    size_t first, last;

    team_share(passes->state->directions, member, members, &first, &last);
    for (size_t i = first; i < last; i++)
        run_pass(&passes[i]);
}

/* ---- the kernel ---- */

static bool sides_at_once(const struct recurrent_state *state, unsigned threads)
{
    return state->directions > 1 && threads > 1;
}

/* Returns the bytes of all scratch; fills `passes` when it is there. */
static size_t place_passes(const struct recurrent_state *state, const struct kernel_call *call,
                           const struct kernel_run *run, struct pass passes[DIRECTIONS])
{
    bool at_once = sides_at_once(state, call->threads);
    struct room room = {run != NULL ? run->scratch : NULL, 0};
    size_t most = 0;

    for (size_t i = 0; i < state->directions; i++) {
        passes[i] = (struct pass){.state = state,
                                  .call = call,
                                  .run = run,
                                  .direction = i,
                                  .reverse = state->reverse || i == 1,
                                  .threads = at_once ? 1 : call->threads};
        if (!at_once)
            room.used = 0; /* one after the other in the same place */
        lay_out(state, &room, passes[i].threads, i, &passes[i].work);
        most = room.used > most ? room.used : most;
    }
    return most;
}

static bool lengths_are_valid(const struct recurrent_state *state, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    if (call->inputs <= RECURRENT_LENGTHS || call->in[RECURRENT_LENGTHS] == NULL)
        return true;
    for (int64_t row = 0; row < state->batch; row++) {
        int64_t length = read_index(DTYPE_INT32, run->in[RECURRENT_LENGTHS], row);

        if (length < 0 || length > state->times)
            return false;
    }
    return true;
}

static enum status run_recurrent(const void *opaque, const struct kernel_call *call,
                                 const struct kernel_run *run)
{
    const struct recurrent_state *state = opaque;
    struct pass passes[DIRECTIONS];

    if (!lengths_are_valid(state, call, run))
        return STATUS_INVALID;
    place_passes(state, call, run, passes);
    team_run(sides_at_once(state, call->threads) ? DIRECTIONS : 1, pass_share, passes);
    return STATUS_OK;
}

static enum status fill_cells(struct recurrent_state *state, const struct recurrent_attrs *attrs,
                              size_t each, const enum recurrent_activation *standard,
                              struct error *err)
{
    struct recurrent_function functions[DIRECTIONS * 3];

    TRY(recurrent_functions(attrs, each, standard, functions, err));
    for (size_t d = 0; d < state->directions; d++) {
        state->cells[d] = (struct recurrent_cell){
            .hidden = state->hidden, .clip = attrs->clip, .input_forget = attrs->input_forget != 0};
        memcpy(state->cells[d].functions, functions + d * each,
               each * sizeof(struct recurrent_function));
    }
    return STATUS_OK;
}

static void read_shapes(struct recurrent_state *state, const struct kernel_call *call)
{
    const struct recurrent_attrs *attrs = call->attrs;
    const int64_t *x = call->in[RECURRENT_X]->shape.dims;
    int64_t step_bytes;

    state->isa = cpu_isa_of(call->device);
    state->ops = recurrent_ops_for(state->isa);
    state->directions = recurrent_directions(attrs);
    state->reverse = attrs->direction == RECURRENT_REVERSE;
    state->linear_before_reset = attrs->linear_before_reset != 0;
    state->batch_first = attrs->layout != 0;
    state->times = x[state->batch_first ? 1 : 0];
    state->batch = x[state->batch_first ? 0 : 1];
    state->input = x[2];
    state->hidden = call->in[RECURRENT_R]->shape.dims[2];
    step_bytes = state->batch * state->kind * state->hidden * (int64_t)sizeof(float);
    state->chunk = step_bytes > 0 ? CHUNK_BYTES / step_bytes : 1;
    state->chunk = state->chunk < 1 ? 1 : state->chunk;
    state->chunk = state->chunk < state->times ? state->chunk : state->times;
}

static enum status prepare_kind(struct kernel_prepare *prepare, enum kind kind, size_t each,
                                const enum recurrent_activation *standard, struct error *err)
{
    struct recurrent_state *state = calloc(1, sizeof(*state));
    struct pass passes[DIRECTIONS];
    enum status status;

    if (state == NULL)
        return STATUS_NO_MEMORY;
    state->kind = kind;
    read_shapes(state, &prepare->call);
    status = fill_cells(state, prepare->call.attrs, each, standard, err);
    for (size_t d = 0; d < state->directions; d++)
        for (enum matrix i = MATRIX_W; i < MATRICES && status == STATUS_OK; i++)
            status = recurrent_share_matrix(prepare, state, d, i);
    if (status != STATUS_OK) {
        free(state);
        return status;
    }
    prepare->scratch_bytes = place_passes(state, &prepare->call, NULL, passes);
    prepare->constants_used = UINT32_MAX;
    if (state->packed[0][MATRIX_W] != NULL)
        prepare->constants_used &= ~(UINT32_C(1) << RECURRENT_W);
    if (state->packed[0][MATRIX_R] != NULL)
        prepare->constants_used &= ~(UINT32_C(1) << RECURRENT_R);
    snprintf(prepare->note, sizeof(prepare->note), "gemm:%s, %lld steps at once",
             cpu_isa_name(state->isa), (long long)state->chunk);
    prepare->state = state;
    return STATUS_OK;
}

static enum status prepare_lstm(struct kernel_prepare *prepare, struct error *err)
{
    return prepare_kind(prepare, LSTM, 3, recurrent_lstm_functions, err);
}

static enum status prepare_gru(struct kernel_prepare *prepare, struct error *err)
{
    return prepare_kind(prepare, GRU, 2, recurrent_gru_functions, err);
}

static enum status prepare_rnn(struct kernel_prepare *prepare, struct error *err)
{
    return prepare_kind(prepare, RNN, 1, recurrent_rnn_functions, err);
}

static const char *refuse(const struct kernel_call *call)
{
    if (call->in[0]->dtype != DTYPE_FLOAT)
        return "float only";
    return NULL;
}

const struct kernel kernel_lstm_gemm = {
    .name = "cpu:gemm",
    .refuses = refuse,
    .prepare = prepare_lstm,
    .enqueue = run_recurrent,
    .release = free,
};

const struct kernel kernel_gru_gemm = {
    .name = "cpu:gemm",
    .refuses = refuse,
    .prepare = prepare_gru,
    .enqueue = run_recurrent,
    .release = free,
};

const struct kernel kernel_rnn_gemm = {
    .name = "cpu:gemm",
    .refuses = refuse,
    .prepare = prepare_rnn,
    .enqueue = run_recurrent,
    .release = free,
};
