/* DynamicQuantizeLSTM: W and R are bytes; the inputs and, before each step, the state become bytes
 * by a scale and a zero point of their own, and their products are exact.
 *
 * ONNX Runtime takes one scale for all sequences of a batch, so that there a sequence's result
 * depends on its neighbours (and on how they are shared among threads).  Here each sequence has its
 * own: what ONNX Runtime gives for a batch of one, whatever the batch.  So sequences and directions
 * are computed apart, and are what the threads share.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/bytes/dynamic.h"
#include "device/cpu/bytes/int_gemm.h"
#include "device/cpu/constant.h"
#include "device/cpu/move.h"
#include "device/cpu/recurrent/recurrent.h"
#include "device/cpu/team.h"

enum { DIRECTIONS = 2, GATES = 4, CHUNK_BYTES = 1 << 20, GROUP = 32 /* rows of a product */ };
enum { W, R, MATRICES };

struct matrix {
    struct int_shape shape;
    const void *packed;
    bool has_zeros;
    const float *scale; /* of its columns */
};

struct state {
    const struct int_gemm_ops *ops;
    const struct recurrent_ops *cells_ops;
    const struct loops *loops;
    size_t directions;
    bool reverse; /* the first direction */
    int64_t times, batch, input, hidden, columns;
    int64_t chunk; /* steps whose products with W are made at once */
    struct recurrent_cell cells[DIRECTIONS];
    struct matrix matrices[DIRECTIONS][MATRICES];
    float scales[]; /* [directions][MATRICES][columns] */
};

/* ---- what one sequence needs ---- */

struct workspace {
    float *sums;      /* chunk x columns: W's products and the biases */
    float *step;      /* columns */
    float *bias;      /* columns, padded */
    float *scale;     /* columns, padded: of a product */
    int32_t *start;   /* columns, padded */
    float *h, *c;     /* hidden */
    float *peephole;  /* 3 x hidden */
    uint8_t *bytes;   /* one row, quantised */
    char *rows;       /* GROUP rows as elements */
    size_t row_bytes; /* of each */
};

/* Returns the bytes; `base` NULL: only measures. */
static size_t lay_out(const struct state *state, char *base, struct workspace *work)
{
    const int64_t longest = state->input > state->hidden ? state->input : state->hidden;
    const size_t padded = (size_t)int_columns(state->ops, state->columns) * sizeof(float);
    const size_t hidden = (size_t)state->hidden * sizeof(float);
    struct room room = {base, 0};

    work->sums = room_take(&room, (size_t)(state->chunk * state->columns) * sizeof(float));
    work->step = room_take(&room, padded);
    work->bias = room_take(&room, padded);
    work->scale = room_take(&room, padded);
    work->start = room_take(&room, padded);
    work->h = room_take(&room, hidden);
    work->c = room_take(&room, hidden);
    work->peephole = room_take(&room, 3 * hidden);
    work->bytes = room_take(&room, (size_t)longest);
    work->row_bytes = (int_segment_bytes(state->ops, longest) + 63) / 64 * 64;
    work->rows = room_take(&room, GROUP * work->row_bytes);
    return room.used;
}

/* ---- products ---- */

struct sequence {
    const struct state *state;
    const struct kernel_call *call;
    const struct kernel_run *run;
    size_t direction;
    int64_t row, length;
    struct workspace work;
    struct recurrent_cell cell;
};

/* Parameters of a product of rows quantised by `by`. */
static void begin(const struct sequence *sequence, const struct matrix *matrix,
                  const struct dynamic *by)
{
    const struct state *state = sequence->state;

    int_begin(state->ops, &matrix->shape, matrix->packed, DTYPE_UINT8, by->zero, NULL,
              sequence->work.start);
    for (int64_t j = 0; j < state->columns; j++)
        sequence->work.scale[j] = by->scale * matrix->scale[j];
}

/* Row `index` of the group, from `count` numbers; its address. */
static const char *lay_row(const struct sequence *sequence, const float *from, int64_t count,
                           const struct dynamic *by, int64_t index)
{
    const struct state *state = sequence->state;
    char *row = sequence->work.rows + (size_t)index * sequence->work.row_bytes;
    const bool is_element = int_is_element(state->ops, DTYPE_UINT8);
    uint8_t *bytes = is_element ? (uint8_t *)row : sequence->work.bytes;

    if (by->scale > 0)
        state->loops->quantize_bytes(from, bytes, (size_t)count, by->scale,
                                     &(struct byte_range){(float)by->zero, 0, 255});
    else
        memset(bytes, 0, (size_t)count);
    if (!is_element)
        int_lay(state->ops, DTYPE_UINT8, bytes, count, by->zero, row);
    return row;
}

/* out[i] = row i by the matrix, scaled, plus `shift`: of rows that are laid out. */
static void multiply(const struct sequence *sequence, const struct matrix *matrix, int64_t rows,
                     const char *const *addresses, const float *shift, float *out)
{
    static const int64_t no_offset = 0;
    const struct state *state = sequence->state;
    int32_t sums[GROUP];
    struct int_product product = {.shape = matrix->shape,
                                  .packed = matrix->packed,
                                  .rows = rows,
                                  .row = addresses,
                                  .offsets = &no_offset,
                                  .to = state->columns,
                                  .start = sequence->work.start,
                                  .row_sums = matrix->has_zeros ? sums : NULL,
                                  .result = INT_FLOATS,
                                  .out = out,
                                  .ldo = state->columns,
                                  .scale = sequence->work.scale,
                                  .shift = shift};

    for (int64_t i = 0; i < rows && matrix->has_zeros; i++)
        sums[i] = int_row_sum(state->ops, &matrix->shape, addresses[i], &no_offset);
    state->ops->run(&product);
}

static struct dynamic range_of(const struct loops *loops, const float *x, int64_t count,
                               int64_t times, int64_t stride)
{
    float low = 0, high = 0;

    for (int64_t t = 0; t < times; t++, x += stride) {
        low = fminf(low, (float)loops->row[REDUCE_min](x, (size_t)count, 0));
        high = fmaxf(high, (float)loops->row[REDUCE_max](x, (size_t)count, 0));
    }
    return dynamic_of(low, high);
}

/* ---- one sequence ---- */

static const void *input_at(const struct sequence *sequence, size_t index)
{
    return kernel_input(sequence->call, index) != NULL ? sequence->run->in[index] : NULL;
}

static void load_state(const struct sequence *sequence, size_t index, float *to)
{
    const struct state *state = sequence->state;
    const size_t bytes = (size_t)state->hidden * sizeof(float);
    const char *from = input_at(sequence, index);

    if (from == NULL || sequence->length == 0) /* see recurrent.c */
        memset(to, 0, bytes);
    else
        memcpy(to,
               from +
                   ((int64_t)sequence->direction * state->batch + sequence->row) * (int64_t)bytes,
               bytes);
}

static void store_state(const struct sequence *sequence, size_t index, const float *from)
{
    const struct state *state = sequence->state;
    float *to = index < sequence->call->outputs ? sequence->run->out[index] : NULL;

    if (to != NULL)
        memcpy(to + ((int64_t)sequence->direction * state->batch + sequence->row) * state->hidden,
               from, (size_t)state->hidden * sizeof(float));
}

/* B is [directions, W's biases then R's], added once; P as it is, at an aligned place. */
static void load_biases(struct sequence *sequence)
{
    const struct state *state = sequence->state;
    const struct workspace *work = &sequence->work;
    const size_t bytes = (size_t)state->columns * sizeof(float);
    const size_t peephole_bytes = 3 * (size_t)state->hidden * sizeof(float);
    const char *bias = input_at(sequence, RECURRENT_BIAS), *peephole;

    memset(work->bias, 0, (size_t)int_columns(state->ops, state->columns) * sizeof(float));
    if (bias != NULL) {
        bias += sequence->direction * 2 * bytes;
        memcpy(work->bias, bias, bytes);
        for (int64_t j = 0; j < state->columns; j++) {
            float other;

            memcpy(&other, bias + bytes + (size_t)j * sizeof(other), sizeof(other));
            work->bias[j] += other;
        }
    }
    peephole = input_at(sequence, RECURRENT_P);
    if (peephole != NULL) {
        memcpy(work->peephole, peephole + sequence->direction * peephole_bytes, peephole_bytes);
        sequence->cell.peephole = work->peephole;
    }
}

/* W's products of steps [first, first + count) and the biases, to the sums. */
static void project(const struct sequence *sequence, const struct dynamic *by, int64_t first,
                    int64_t count)
{
    const struct state *state = sequence->state;
    const struct matrix *matrix = &state->matrices[sequence->direction][W];
    const float *x = sequence->run->in[RECURRENT_X];
    const char *addresses[GROUP];

    begin(sequence, matrix, by);
    for (int64_t done = 0; done < count; done += GROUP) {
        int64_t rows = count - done < GROUP ? count - done : GROUP;

        for (int64_t i = 0; i < rows; i++) {
            int64_t at = (first + done + i) * state->batch + sequence->row;

            addresses[i] = lay_row(sequence, x + at * state->input, state->input, by, i);
        }
        multiply(sequence, matrix, rows, addresses, sequence->work.bias,
                 sequence->work.sums + done * state->columns);
    }
}

static void store_step(const struct sequence *sequence, int64_t time, bool is_over)
{
    const struct state *state = sequence->state;
    float *out = sequence->run->out[0];
    int64_t place =
        (time * (int64_t)state->directions + (int64_t)sequence->direction) * state->batch +
        sequence->row;
    size_t bytes = (size_t)state->hidden * sizeof(float);

    if (out == NULL)
        return;
    if (is_over)
        memset(out + place * state->hidden, 0, bytes);
    else
        memcpy(out + place * state->hidden, sequence->work.h, bytes);
}

static void run_step(const struct sequence *sequence, const float *sums)
{
    const struct state *state = sequence->state;
    const struct workspace *work = &sequence->work;
    const struct matrix *matrix = &state->matrices[sequence->direction][R];
    struct dynamic by = range_of(state->loops, work->h, state->hidden, 1, 0);
    const char *row = lay_row(sequence, work->h, state->hidden, &by, 0);

    begin(sequence, matrix, &by);
    multiply(sequence, matrix, 1, &row, sums, work->step);
    state->cells_ops->lstm(&sequence->cell, work->step, work->c, work->h);
}

static void run_steps(const struct sequence *sequence)
{
    const struct state *state = sequence->state;
    const bool reverse = state->reverse || sequence->direction == 1;
    const float *x = (const float *)sequence->run->in[RECURRENT_X] + sequence->row * state->input;
    const struct dynamic by =
        range_of(state->loops, x, state->input, sequence->length, state->batch * state->input);

    for (int64_t done = 0; done < sequence->length; done += state->chunk) {
        int64_t left = sequence->length - done;
        int64_t count = left < state->chunk ? left : state->chunk;
        int64_t first = reverse ? left - count : done;

        project(sequence, &by, first, count);
        for (int64_t i = 0; i < count; i++) {
            int64_t at = reverse ? count - 1 - i : i;

            run_step(sequence, sequence->work.sums + at * state->columns);
            store_step(sequence, first + at, false);
        }
    }
    for (int64_t t = sequence->length; t < state->times; t++)
        store_step(sequence, t, true);
}

/* ---- the kernel ---- */

struct job {
    const struct state *state;
    const struct kernel_call *call;
    const struct kernel_run *run;
    size_t member_bytes;
};

static int64_t length_of(const struct job *job, int64_t row)
{
    return kernel_input(job->call, RECURRENT_LENGTHS) != NULL
               ? read_index(DTYPE_INT32, job->run->in[RECURRENT_LENGTHS], row)
               : job->state->times;
}

static void run_share(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const struct state *state = job->state;
    size_t from, to;

    team_share(state->directions * (size_t)state->batch, member, members, &from, &to);
    for (size_t i = from; i < to; i++) {
        struct sequence sequence = {.state = state,
                                    .call = job->call,
                                    .run = job->run,
                                    .direction = i / (size_t)state->batch,
                                    .row = (int64_t)i % state->batch};

        sequence.length = length_of(job, sequence.row);
        sequence.cell = state->cells[sequence.direction];
        lay_out(state, (char *)job->run->scratch + member * job->member_bytes, &sequence.work);
        load_biases(&sequence);
        load_state(&sequence, RECURRENT_H, sequence.work.h);
        load_state(&sequence, RECURRENT_C, sequence.work.c);
        run_steps(&sequence);
        store_state(&sequence, 1, sequence.work.h);
        store_state(&sequence, 2, sequence.work.c);
    }
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct state *state = arg;
    struct workspace work;
    struct job job = {state, call, run, lay_out(state, NULL, &work)};
    double products = (double)(state->times * state->batch * (int64_t)state->directions);

    for (int64_t row = 0; row < state->batch; row++) {
        int64_t length = length_of(&job, row);

        if (length < 0 || length > state->times)
            return STATUS_INVALID;
    }
    products *= (double)state->columns * (double)(state->input + state->hidden);
    team_run(team_size(call->threads, products / 100), run_share, &job);
    return STATUS_OK;
}

/* The one zero point of a direction; false: there are several. */
static bool find_zero(const struct operand *zeros, size_t direction, int64_t columns,
                      const uint8_t **out_zero)
{
    const bool per_column = zeros->shape.rank == 2;
    const uint8_t *first =
        (const uint8_t *)zeros->constant + (per_column ? columns : 1) * (int64_t)direction;

    *out_zero = first;
    for (int64_t j = 1; per_column && j < columns; j++)
        if (first[j] != first[0])
            return false;
    return true;
}

static enum status share_matrix(struct kernel_prepare *prepare, struct state *state,
                                size_t direction, int which, struct error *err)
{
    const size_t input = which == W ? RECURRENT_W : RECURRENT_R;
    const size_t scale = which == W ? RECURRENT_W_SCALE : RECURRENT_R_SCALE;
    const struct operand *weights = prepare->call.in[input], *scales = prepare->call.in[scale];
    struct matrix *matrix = &state->matrices[direction][which];
    const int64_t k = which == W ? state->input : state->hidden, n = state->columns;
    float *of_columns = &state->scales[((int64_t)direction * MATRICES + which) * n];
    struct int_matrix from = {.dtype = weights->dtype, .row_stride = n, .column_stride = 1};
    const uint8_t *zero;
    char format[64];
    void *packed;
    bool is_new;

    if (!find_zero(prepare->call.in[scale + 1], direction, n, &zero))
        return error_set(err, STATUS_UNSUPPORTED, "zero points that differ from column to column");
    matrix->shape = (struct int_shape){.segments = 1, .length = k, .n = n};
    matrix->scale = of_columns;
    for (int64_t j = 0; j < n; j++)
        memcpy(&of_columns[j],
               (const float *)scales->constant +
                   (scales->shape.rank == 2 ? (int64_t)direction * n + j : (int64_t)direction),
               sizeof(float));
    snprintf(format, sizeof(format), "%s of direction %zu minus %d", state->ops->form, direction,
             (int)*zero);
    TRY(weights_share(prepare->weights, weights->constant_key, format,
                      int_packed_bytes(state->ops, &matrix->shape), &packed, &is_new));
    if (is_new) {
        from.data = (const char *)weights->constant + (int64_t)direction * k * n;
        from.zero = zero;
        int_pack(state->ops, &matrix->shape, &from, packed);
    }
    matrix->packed = packed;
    matrix->has_zeros = int_has_zeros(state->ops, &matrix->shape, packed);
    return STATUS_OK;
}

static void read_shapes(struct state *state, const struct kernel_call *call)
{
    const struct recurrent_attrs *attrs = call->attrs;
    const int64_t *x = call->in[RECURRENT_X]->shape.dims;
    int64_t step_bytes;

    state->ops = int_gemm_ops_for(cpu_isa_of(call->device));
    state->cells_ops = recurrent_ops_for(cpu_isa_of(call->device));
    state->loops = loops_for(call->device);
    state->directions = recurrent_directions(attrs);
    state->reverse = attrs->direction == RECURRENT_REVERSE;
    state->times = x[0];
    state->batch = x[1];
    state->input = x[2];
    state->hidden = call->in[RECURRENT_R]->shape.dims[1];
    state->columns = GATES * state->hidden;
    step_bytes = state->columns * (int64_t)sizeof(float);
    state->chunk = CHUNK_BYTES / step_bytes > GROUP ? CHUNK_BYTES / step_bytes : GROUP;
    state->chunk = state->chunk < state->times ? state->chunk : state->times;
}

static enum status fill(struct kernel_prepare *prepare, struct state *state, struct error *err)
{
    const struct recurrent_attrs *attrs = prepare->call.attrs;
    struct recurrent_function functions[DIRECTIONS * 3];

    read_shapes(state, &prepare->call);
    TRY(recurrent_functions(attrs, 3, recurrent_lstm_functions, functions, err));
    for (size_t d = 0; d < state->directions; d++) {
        state->cells[d] = (struct recurrent_cell){
            .hidden = state->hidden, .clip = attrs->clip, .input_forget = attrs->input_forget != 0};
        memcpy(state->cells[d].functions, functions + d * 3, 3 * sizeof(*functions));
        for (int which = W; which < MATRICES; which++)
            TRY(share_matrix(prepare, state, d, which, err));
    }
    return STATUS_OK;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const size_t columns = GATES * (size_t)call->in[RECURRENT_R]->shape.dims[1];
    struct state *state =
        calloc(1, sizeof(*state) + DIRECTIONS * MATRICES * columns * sizeof(float));
    struct workspace work;
    enum status status;

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a kernel's state");
    status = fill(prepare, state, err);
    if (status != STATUS_OK) {
        free(state);
        return status;
    }
    prepare->scratch_bytes = lay_out(state, NULL, &work) * call->threads;
    prepare->constants_used =
        UINT32_MAX & ~(UINT32_C(1) << RECURRENT_W) & ~(UINT32_C(1) << RECURRENT_R);
    snprintf(prepare->note, sizeof(prepare->note), "%s, %lld steps at once", state->ops->form,
             (long long)state->chunk);
    prepare->state = state;
    return STATUS_OK;
}

static const char *refuse(const struct kernel_call *call)
{
    static const size_t known[] = {RECURRENT_W,      RECURRENT_R,       RECURRENT_W_SCALE,
                                   RECURRENT_W_ZERO, RECURRENT_R_SCALE, RECURRENT_R_ZERO};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (call->in[known[i]]->constant == NULL)
            return "the weights are not constant";
    return NULL;
}

const struct kernel kernel_dynamic_quantize_lstm_bytes = {
    .name = "cpu:bytes",
    .refuses = refuse,
    .prepare = prepare,
    .enqueue = enqueue,
    .release = free,
};
