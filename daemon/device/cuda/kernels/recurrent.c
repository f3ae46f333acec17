/* LSTM, GRU and RNN.
 *
 * For each direction: the products of all inputs with W at once, then step by step the product of
 * the state with R and the gates.  A sequence that is over keeps its state and gives zeros.
 */
#include "device/cuda/kernels/recurrent.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/move_plan.h"
#include "device/cuda/kernels/pointwise_plan.h"
#include "device/cuda/kernels/product.h"
#include "device/cuda/kernels/rows.h"
#include "ops/recurrent.h"

enum kind { LSTM = 4, GRU = 3, RNN = 1 }; /* the value is the number of gates */
enum { DIRECTIONS = 2, GATES_MAX = 3 };

struct recurrent_state {
    enum kind kind;
    size_t directions;
    bool reverse; /* the first direction */
    bool splits;  /* a GRU that resets the state before its last gate */
    bool batch_first;
    int64_t times, batch, input, hidden;
    struct gate_function functions[DIRECTIONS][GATES_MAX];
    float clip;
    bool input_forget;
    struct move_plan take, give; /* rows of the state tensors to and from scratch */
};

/* ---- scratch: of one direction, the directions go one after the other ---- */

struct workspace {
    float *sums;           /* the input's products: times x batch x gates x hidden */
    float *step;           /* the state's: batch x gates x hidden */
    float *h, *c;          /* batch x hidden */
    float *update, *reset; /* GRU: batch x hidden */
};

static float *take(char *base, size_t *used, int64_t elements)
{
    float *piece = base != NULL ? (float *)(void *)(base + *used) : NULL;

    *used += ((size_t)elements * sizeof(float) + 255) / 256 * 256;
    return piece;
}

static size_t lay_out(const struct recurrent_state *state, char *base, struct workspace *work)
{
    int64_t rows = state->batch * state->hidden;
    size_t used = 0;

    work->sums = take(base, &used, state->times * rows * state->kind);
    work->step = take(base, &used, rows * state->kind);
    work->h = take(base, &used, rows);
    work->c = take(base, &used, state->kind == LSTM ? rows : 0);
    work->update = take(base, &used, state->kind == GRU ? rows : 0);
    work->reset = take(base, &used, state->kind == GRU ? rows : 0);
    return used;
}

/* ---- one direction ---- */

struct pass {
    const struct recurrent_state *state;
    const struct kernel_call *call;
    const struct kernel_run *run;
    size_t direction;
    bool reverse;
    struct workspace work;
};

/* out[rows, n] = a[rows, k] times columns first … of `weights` [gates * hidden, k], plus bias. */
static enum status multiply(const struct pass *pass, int64_t rows, int64_t k, int64_t first,
                            int64_t n, const float *a, const float *weights, const float *bias,
                            float *out)
{
    const int64_t all = pass->state->kind * pass->state->hidden;
    struct product product = {.kind = PRODUCT_MATRIX,
                              .m = rows,
                              .n = n,
                              .k = k,
                              .out_m = all,
                              .out_n = 1,
                              .a_m = k,
                              .a_k = 1,
                              .b_k = 1,
                              .b_n = k,
                              .bias_n = 1,
                              .type = PW_FLOAT,
                              .dtype = DTYPE_FLOAT,
                              .out_dtype = DTYPE_FLOAT,
                              .a = a,
                              .b = weights + first * k,
                              .bias = bias != NULL ? bias + first : NULL,
                              .out = out + first,
                              .scale = 1,
                              .beta = 1};
    struct walk_strides none;
    struct axes axes = {.operands = 1};

    axes_simplify(&axes, -1);
    (void)axes_finish(&axes, &product.batch, &none);
    return cuda_status(cuda_product(&product, cuda_stream(pass->run)));
}

/* Of W or R, and of its half of the bias ([directions, W's biases then R's]). */
static const float *weights_of(const struct pass *pass, enum recurrent_input input, int64_t k)
{
    int64_t all = pass->state->kind * pass->state->hidden;

    return (const float *)pass->run->in[input] + (int64_t)pass->direction * all * k;
}

static const float *bias_of(const struct pass *pass, int64_t half)
{
    const float *bias = run_input(pass->call, pass->run, RECURRENT_BIAS);
    int64_t all = pass->state->kind * pass->state->hidden;

    return bias != NULL ? bias + ((int64_t)pass->direction * 2 + half) * all : NULL;
}

static enum status project(const struct pass *pass)
{
    const struct recurrent_state *state = pass->state;

    return multiply(pass, state->times * state->batch, state->input, 0, state->kind * state->hidden,
                    pass->run->in[RECURRENT_X], weights_of(pass, RECURRENT_W, state->input),
                    bias_of(pass, 0), pass->work.sums);
}

/* Products of the state (or, for the last gate of a GRU, of what the reset gate left of it). */
static enum status multiply_state(const struct pass *pass, const float *a, int64_t first_gate,
                                  int64_t gates)
{
    const struct recurrent_state *state = pass->state;

    return multiply(pass, state->batch, state->hidden, first_gate * state->hidden,
                    gates * state->hidden, a, weights_of(pass, RECURRENT_R, state->hidden),
                    bias_of(pass, 1), pass->work.step);
}

static struct cell cell_of(const struct pass *pass, enum cell_kind kind, int64_t time)
{
    const struct recurrent_state *state = pass->state;
    const struct workspace *work = &pass->work;
    int64_t d = (int64_t)pass->direction, directions = (int64_t)state->directions;
    int64_t row = state->kind * state->hidden;
    float *out = call_output(pass->call, 0) != NULL ? pass->run->out[0] : NULL;
    const float *peephole =
        state->kind == LSTM ? run_input(pass->call, pass->run, RECURRENT_P) : NULL;
    struct cell cell = {.kind = kind,
                        .input_forget = state->input_forget,
                        .batch = state->batch,
                        .hidden = state->hidden,
                        .time = time,
                        .times = state->times,
                        .clip = state->clip,
                        .input =
                            work->sums + (state->batch_first ? time : time * state->batch) * row,
                        .input_step = state->batch_first ? state->times * row : row,
                        .state = work->step,
                        .update = work->update,
                        .reset = work->reset,
                        .h = work->h,
                        .c = work->c,
                        .lengths = run_input(pass->call, pass->run, RECURRENT_LENGTHS),
                        .fault = run_fault(pass->run)};

    for (size_t i = 0; i < GATES_MAX; i++)
        cell.functions[i] = state->functions[d][i];
    if (peephole != NULL)
        cell.peephole = peephole + d * 3 * state->hidden;
    if (out != NULL && state->batch_first) {
        cell.out = out + (time * directions + d) * state->hidden;
        cell.out_step = state->times * directions * state->hidden;
    } else if (out != NULL) {
        cell.out = out + (time * directions + d) * state->batch * state->hidden;
        cell.out_step = state->hidden;
    }
    return cell;
}

static enum status run_cell(const struct pass *pass, enum cell_kind kind, int64_t time)
{
    const struct cell cell = cell_of(pass, kind, time);

    return cuda_status(cuda_cell(&cell, cuda_stream(pass->run)));
}

static enum status run_step(const struct pass *pass, int64_t time)
{
    const struct recurrent_state *state = pass->state;

    if (state->splits) {
        TRY(multiply_state(pass, pass->work.h, 0, 2));
        TRY(run_cell(pass, CELL_GRU_GATES, time));
        TRY(multiply_state(pass, pass->work.reset, 2, 1));
        return run_cell(pass, CELL_GRU_FINISH, time);
    }
    TRY(multiply_state(pass, pass->work.h, 0, state->kind));
    return run_cell(pass,
                    state->kind == LSTM  ? CELL_LSTM
                    : state->kind == GRU ? CELL_GRU_LINEAR
                                         : CELL_RNN,
                    time);
}

/* Where the rows of this direction begin in a state tensor. */
static int64_t state_start(const struct pass *pass)
{
    const struct recurrent_state *state = pass->state;

    return (int64_t)pass->direction * (state->batch_first ? 1 : state->batch) * state->hidden;
}

static enum status load_state(const struct pass *pass, size_t input, float *to)
{
    const struct recurrent_state *state = pass->state;
    const float *from = run_input(pass->call, pass->run, input);

    if (from == NULL || state->times == 0)
        return cuda_status(cudaMemsetAsync(
            to, 0, (size_t)(state->batch * state->hidden) * sizeof(float), cuda_stream(pass->run)));
    return move_run(&state->take, to, from + state_start(pass), pass->run);
}

static enum status store_state(const struct pass *pass, size_t output, const float *from)
{
    if (call_output(pass->call, output) == NULL)
        return STATUS_OK;
    return move_run(&pass->state->give, (float *)pass->run->out[output] + state_start(pass), from,
                    pass->run);
}

static enum status run_pass(const struct pass *pass)
{
    const struct recurrent_state *state = pass->state;

    if (state->times > 0)
        TRY(project(pass));
    TRY(load_state(pass, RECURRENT_H, pass->work.h));
    if (state->kind == LSTM)
        TRY(load_state(pass, RECURRENT_C, pass->work.c));
    for (int64_t i = 0; i < state->times; i++)
        TRY(run_step(pass, pass->reverse ? state->times - 1 - i : i));
    TRY(store_state(pass, 1, pass->work.h));
    return state->kind == LSTM ? store_state(pass, 2, pass->work.c) : STATUS_OK;
}

static enum status run_recurrent(const void *arg, const struct kernel_call *call,
                                 const struct kernel_run *run)
{
    const struct recurrent_state *state = arg;

    if (state->batch * state->hidden == 0)
        return STATUS_OK;
    for (size_t d = 0; d < state->directions; d++) {
        struct pass pass = {.state = state,
                            .call = call,
                            .run = run,
                            .direction = d,
                            .reverse = state->reverse || d == 1};

        (void)lay_out(state, run->scratch, &pass.work);
        TRY(run_pass(&pass));
    }
    return STATUS_OK;
}

/* ---- preparing ---- */

static enum status fill_functions(struct recurrent_state *state,
                                  const struct recurrent_attrs *attrs, size_t each,
                                  const enum recurrent_activation *standard, struct error *err)
{
    struct recurrent_function functions[DIRECTIONS * GATES_MAX];

    TRY(recurrent_functions(attrs, each, standard, functions, err));
    for (size_t d = 0; d < state->directions; d++)
        for (size_t i = 0; i < each; i++) {
            const struct recurrent_function *from = &functions[d * each + i];

            state->functions[d][i] = (struct gate_function){
                .act = (uint32_t)from->activation, .alpha = from->alpha, .beta = from->beta};
        }
    return STATUS_OK;
}

static void read_shapes(struct recurrent_state *state, const struct kernel_call *call)
{
    const struct recurrent_attrs *attrs = call->attrs;
    const int64_t *x = call->in[RECURRENT_X]->shape.dims;

    state->directions = recurrent_directions(attrs);
    state->reverse = attrs->direction == RECURRENT_REVERSE;
    state->splits = state->kind == GRU && attrs->linear_before_reset == 0;
    state->batch_first = attrs->layout != 0;
    state->times = x[state->batch_first ? 1 : 0];
    state->batch = x[state->batch_first ? 0 : 1];
    state->input = x[2];
    state->hidden = call->in[RECURRENT_R]->shape.dims[2];
    state->clip = attrs->clip;
    state->input_forget = attrs->input_forget != 0;
}

/* Rows of a state tensor lie `step` apart. */
static void plan_rows(struct recurrent_state *state)
{
    int64_t step = state->batch_first ? (int64_t)state->directions * state->hidden : state->hidden;
    struct axes in = {.operands = 2}, out = {.operands = 2};

    axes_add(&in, state->batch, (const int64_t[]){state->hidden, step});
    axes_add(&in, state->hidden, (const int64_t[]){1, 1});
    move_plan(&state->take, &in, sizeof(float), 0, 0);
    axes_add(&out, state->batch, (const int64_t[]){step, state->hidden});
    axes_add(&out, state->hidden, (const int64_t[]){1, 1});
    move_plan(&state->give, &out, sizeof(float), 0, 0);
}

static enum status prepare_kind(struct kernel_prepare *prepare, enum kind kind, size_t each,
                                const enum recurrent_activation *standard, struct error *err)
{
    struct recurrent_state state = {.kind = kind};
    struct workspace work;

    read_shapes(&state, &prepare->call);
    plan_rows(&state);
    TRY(fill_functions(&state, prepare->call.attrs, each, standard, err));
    if (prepare_state(prepare, sizeof(state), err) == NULL)
        return STATUS_NO_MEMORY;
    memcpy(prepare->state, &state, sizeof(state));
    prepare->scratch_bytes = lay_out(&state, NULL, &work);
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

static const char *refuse_recurrent(const struct kernel_call *call)
{
    return call->in[RECURRENT_X]->dtype == DTYPE_FLOAT ? NULL : "float only";
}

#define RECURRENT(operator)                                                                        \
    const struct kernel kernel_##operator##_steps = {                                              \
        .name = "cuda:steps",                                                                      \
        .refuses = refuse_recurrent,                                                               \
        .prepare = prepare_##operator,                                                             \
        .enqueue = run_recurrent,                                                                  \
        .release = free,                                                                           \
    };
RECURRENT(lstm)
RECURRENT(gru)
RECURRENT(rnn)
