/* Einsum.  Two float operands become a batch of matrix products:
 *
 *     batch: labels in both and in the result     m: in the first and the result
 *     k: in both, not in the result               n: in the second and the result
 *
 * Each operand is used where it lies when its groups of labels are evenly spaced, else it is first
 * copied in order (batch, m, k), (batch, k, n); so is the result.  Everything else (one operand,
 * three, diagonals, other types) goes through a plain loop over all labels.
 */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/move.h"
#include "device/cpu/product/gemm.h"
#include "ops/indexing.h"
#include "tensor/element.h"

enum { RESULT = EINSUM_MAX_INPUTS, OPERANDS = EINSUM_MAX_INPUTS + 1 };

/* Strides of every label in every operand, in elements; 0 where it is missing or of length 1. */
struct strides {
    struct einsum_plan plan;
    int64_t of[OPERANDS][EINSUM_MAX_LABELS];
    bool diagonal; /* some operand names a label twice */
};

static void add_strides(struct strides *strides, size_t operand, const struct shape *shape,
                        const unsigned char *labels)
{
    int64_t stride = 1;

    for (size_t i = shape->rank; i-- > 0; stride *= shape->dims[i]) {
        int64_t *to = &strides->of[operand][labels[i]];

        if (shape->dims[i] == 1)
            continue;
        strides->diagonal |= *to != 0;
        *to += stride;
    }
}

static enum status find_strides(const struct kernel_call *call, struct strides *strides,
                                struct error *err)
{
    const struct shape *shapes[EINSUM_MAX_INPUTS];

    memset(strides, 0, sizeof(*strides));
    for (size_t i = 0; i < call->inputs; i++)
        shapes[i] = &call->in[i]->shape;
    TRY(einsum_parse(call->attrs, call->inputs, shapes, &strides->plan, err));
    for (size_t i = 0; i < call->inputs; i++)
        add_strides(strides, i, shapes[i], strides->plan.in[i]);
    add_strides(strides, RESULT, &call->out[0]->shape, strides->plan.out);
    return STATUS_OK;
}

/* ---- as matrix products ---- */

struct group {
    size_t count;
    unsigned char labels[EINSUM_MAX_LABELS];
    int64_t elements;
};

enum { BATCH, M, N, K, GROUPS };
enum { A, B, C }; /* operands of the product */

struct product_state {
    int64_t m, n, k, batches;
    size_t source[2]; /* which input is A, which B */
    struct {
        int64_t row_stride, column_stride;
        int64_t batch_strides[EINSUM_MAX_LABELS];
        bool moved;
        struct move move;
        size_t scratch; /* offset of the ordered copy */
    } operands[3];
    size_t batch_labels;
    int64_t batch_lengths[EINSUM_MAX_LABELS];
    size_t gemm_scratch; /* offset */
};

static void add_label(struct group *group, const struct einsum_plan *plan, size_t label)
{
    group->labels[group->count++] = (unsigned char)label;
    group->elements *= plan->lengths[label];
}

/* Sorts labels longer than one into groups, those of the result in its order.  False when some
 * label belongs to none. */
static bool find_groups(const struct strides *strides, const size_t source[2],
                        struct group groups[GROUPS])
{
    const struct einsum_plan *plan = &strides->plan;
    bool done[EINSUM_MAX_LABELS] = {false};

    for (size_t i = 0; i < GROUPS; i++)
        groups[i] = (struct group){.elements = 1};
    for (size_t i = 0; i < plan->out_rank; i++) {
        size_t label = plan->out[i];
        bool in_a = strides->of[source[A]][label] != 0, in_b = strides->of[source[B]][label] != 0;

        done[label] = true;
        if (plan->lengths[label] == 1)
            continue;
        add_label(&groups[in_a && in_b ? BATCH : in_a ? M : N], plan, label);
    }
    for (size_t label = 0; label < plan->labels; label++) {
        if (done[label] || plan->lengths[label] == 1)
            continue;
        if (strides->of[source[A]][label] == 0 || strides->of[source[B]][label] == 0)
            return false;
        add_label(&groups[K], plan, label);
    }
    return true;
}

/* The one stride of a group of labels in an operand; false when they are not evenly spaced. */
static bool even_stride(const struct strides *strides, size_t operand, const struct group *group,
                        int64_t *out_stride)
{
    const int64_t *of = strides->of[operand];

    *out_stride = 1;
    if (group->count == 0)
        return true;
    for (size_t i = 0; i + 1 < group->count; i++)
        if (of[group->labels[i]] !=
            of[group->labels[i + 1]] * strides->plan.lengths[group->labels[i + 1]])
            return false;
    *out_stride = of[group->labels[group->count - 1]];
    return true;
}

/* A box between an operand's own order and (batch, rows, columns) in a row. */
static void plan_order(const struct strides *strides, size_t operand,
                       const struct group *const groups[3], bool into_order, struct move *move)
{
    struct move_box box = {.bytes = sizeof(float)};
    int64_t stride = groups[0]->elements * groups[1]->elements * groups[2]->elements;

    for (size_t g = 0; g < 3; g++)
        for (size_t i = 0; i < groups[g]->count; i++) {
            size_t label = groups[g]->labels[i];

            box.dims[box.rank] = strides->plan.lengths[label];
            stride /= strides->plan.lengths[label];
            box.from[box.rank] = into_order ? strides->of[operand][label] : stride;
            box.to[box.rank++] = into_order ? stride : strides->of[operand][label];
        }
    move_plan(move, &box);
}

static void place_operand(struct product_state *state, const struct strides *strides, int which,
                          const struct group *groups, int rows, int columns)
{
    size_t operand = which == C ? (size_t)RESULT : state->source[which];
    const struct group *const order[3] = {&groups[BATCH], &groups[rows], &groups[columns]};
    int64_t batch_stride = groups[rows].elements * groups[columns].elements;

    state->operands[which].moved =
        !even_stride(strides, operand, &groups[rows], &state->operands[which].row_stride) ||
        !even_stride(strides, operand, &groups[columns], &state->operands[which].column_stride) ||
        (which == C && state->operands[which].column_stride != 1);
    for (size_t i = groups[BATCH].count; i-- > 0;) {
        size_t label = groups[BATCH].labels[i];

        state->operands[which].batch_strides[i] =
            state->operands[which].moved ? batch_stride : strides->of[operand][label];
        batch_stride *= strides->plan.lengths[label];
    }
    if (!state->operands[which].moved) {
        if (which == C && groups[M].count == 0)
            state->operands[C].row_stride = groups[N].elements;
        return;
    }
    state->operands[which].row_stride = groups[columns].elements;
    state->operands[which].column_stride = 1;
    plan_order(strides, operand, order, which != C, &state->operands[which].move);
}

static const char *refuse_product(const struct kernel_call *call)
{
    struct strides strides;
    struct group groups[GROUPS];

    if (call->in[0]->dtype != DTYPE_FLOAT || call->inputs != 2)
        return "two float operands only";
    if (find_strides(call, &strides, NULL) != STATUS_OK)
        return "the equation is not valid";
    if (strides.diagonal)
        return "a diagonal";
    if (!find_groups(&strides, (const size_t[]){0, 1}, groups))
        return "a label of one operand only is summed over";
    return NULL;
}

static size_t round_up(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* The label that is innermost in the result decides which operand gives the columns. */
static void choose_sides(struct product_state *state, const struct strides *strides,
                         struct group groups[GROUPS])
{
    const struct group *m = &groups[M];

    state->source[A] = 0;
    state->source[B] = 1;
    (void)find_groups(strides, state->source, groups);
    if (m->count > 0 && strides->of[RESULT][m->labels[m->count - 1]] == 1) {
        state->source[A] = 1;
        state->source[B] = 0;
        (void)find_groups(strides, state->source, groups);
    }
}

static enum status prepare_product(struct kernel_prepare *prepare, struct error *err)
{
    struct product_state *state = calloc(1, sizeof(*state));
    const struct kernel_call *call = &prepare->call;
    struct strides strides;
    struct group groups[GROUPS];
    size_t used = 0;

    if (state == NULL)
        return STATUS_NO_MEMORY;
    if (find_strides(call, &strides, err) != STATUS_OK) {
        free(state);
        return STATUS_INVALID;
    }
    choose_sides(state, &strides, groups);
    state->batches = groups[BATCH].elements;
    state->m = groups[M].elements;
    state->n = groups[N].elements;
    state->k = groups[K].elements;
    state->batch_labels = groups[BATCH].count;
    for (size_t i = 0; i < state->batch_labels; i++)
        state->batch_lengths[i] = strides.plan.lengths[groups[BATCH].labels[i]];
    place_operand(state, &strides, A, groups, M, K);
    place_operand(state, &strides, B, groups, K, N);
    place_operand(state, &strides, C, groups, M, N);
    for (int i = A; i <= C; i++)
        if (state->operands[i].moved) {
            int64_t each = i == A   ? state->m * state->k
                           : i == B ? state->k * state->n
                                    : state->m * state->n;

            state->operands[i].scratch = used;
            used += round_up((size_t)(state->batches * each) * sizeof(float));
        }
    state->gemm_scratch = used;
    prepare->scratch_bytes = used + gemm_batch_scratch_bytes(cpu_isa_of(call->device), state->m,
                                                             state->k, state->n, call->threads);
    prepare->constants_used = 3;
    prepare->state = state;
    return STATUS_OK;
}

struct product_arg {
    const struct product_state *state;
    const float *a, *b;
    float *c;
};

static void find_product(const void *opaque, int64_t index, struct gemm_product *out)
{
    const struct product_arg *arg = opaque;
    const struct product_state *state = arg->state;
    int64_t offsets[3] = {0};

    for (size_t i = state->batch_labels; i-- > 0; index /= state->batch_lengths[i])
        for (int k = A; k <= C; k++)
            offsets[k] += index % state->batch_lengths[i] * state->operands[k].batch_strides[i];
    *out = (struct gemm_product){
        .a = {arg->a + offsets[A], state->operands[A].row_stride, state->operands[A].column_stride},
        .b = {arg->b + offsets[B], state->operands[B].row_stride, state->operands[B].column_stride},
        .c = arg->c + offsets[C],
    };
}

static enum status run_product(const void *opaque, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    const struct product_state *state = opaque;
    char *scratch = run->scratch;
    const float *in[2];
    struct product_arg arg = {.state = state, .c = run->out[0]};
    struct gemm_batch batch = {.count = state->batches,
                               .m = state->m,
                               .k = state->k,
                               .n = state->n,
                               .ldc = state->operands[C].row_stride,
                               .scale = 1,
                               .product = find_product,
                               .arg = &arg};

    if (shape_count(&call->out[0]->shape) == 0)
        return STATUS_OK;
    for (int i = A; i <= B; i++) {
        in[i] = run->in[state->source[i]];
        if (!state->operands[i].moved)
            continue;
        move_run(&state->operands[i].move, in[i], scratch + state->operands[i].scratch,
                 call->threads);
        in[i] = (const float *)(const void *)(scratch + state->operands[i].scratch);
    }
    arg.a = in[A];
    arg.b = in[B];
    if (state->operands[C].moved)
        arg.c = (float *)(void *)(scratch + state->operands[C].scratch);
    gemm_batch_run(cpu_isa_of(call->device), &batch, call->threads, scratch + state->gemm_scratch);
    if (state->operands[C].moved)
        move_run(&state->operands[C].move, arg.c, run->out[0], call->threads);
    return STATUS_OK;
}

const struct kernel kernel_einsum_gemm = {
    .name = "cpu:gemm",
    .refuses = refuse_product,
    .prepare = prepare_product,
    .enqueue = run_product,
    .release = free,
};

/* ---- as a loop over all labels ---- */

/* Labels of the result come first, those summed over behind them. */
struct loop_state {
    size_t inputs, labels;
    int64_t results, terms;
    int64_t lengths[EINSUM_MAX_LABELS];
    int64_t strides[EINSUM_MAX_INPUTS][EINSUM_MAX_LABELS];
    size_t outer; /* labels of the result */
};

static enum status prepare_loop(struct kernel_prepare *prepare, struct error *err)
{
    struct loop_state *state = calloc(1, sizeof(*state));
    bool done[EINSUM_MAX_LABELS] = {false};
    struct strides strides;

    if (state == NULL)
        return STATUS_NO_MEMORY;
    if (find_strides(&prepare->call, &strides, err) != STATUS_OK) {
        free(state);
        return STATUS_INVALID;
    }
    state->inputs = prepare->call.inputs;
    state->outer = strides.plan.out_rank;
    state->results = state->terms = 1;
    for (size_t i = 0; i < state->outer + strides.plan.labels; i++) {
        size_t label = i < state->outer ? strides.plan.out[i] : i - state->outer;

        if (done[label])
            continue;
        done[label] = true;
        state->lengths[state->labels] = strides.plan.lengths[label];
        for (size_t k = 0; k < state->inputs; k++)
            state->strides[k][state->labels] = strides.of[k][label];
        *(state->labels < state->outer ? &state->results : &state->terms) *=
            strides.plan.lengths[label];
        state->labels++;
    }
    prepare->constants_used = UINT32_MAX;
    prepare->state = state;
    return STATUS_OK;
}

/* Whole numbers modulo 2^64, sign extended: narrowing them wraps as their own arithmetic would. */
static uint64_t load_whole(enum dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case DTYPE_INT8:
        return (uint64_t)((const int8_t *)data)[i];
    case DTYPE_INT16:
        return (uint64_t)((const int16_t *)data)[i];
    case DTYPE_INT32:
        return (uint64_t)((const int32_t *)data)[i];
    case DTYPE_UINT8:
        return ((const uint8_t *)data)[i];
    case DTYPE_UINT16:
        return ((const uint16_t *)data)[i];
    case DTYPE_UINT32:
        return ((const uint32_t *)data)[i];
    default:
        return ((const uint64_t *)data)[i];
    }
}

static void advance(const struct loop_state *state, size_t from, size_t to, int64_t *at,
                    int64_t *offsets)
{
    for (size_t label = to; label-- > from;) {
        at[label]++;
        for (size_t i = 0; i < state->inputs; i++)
            offsets[i] += state->strides[i][label];
        if (at[label] < state->lengths[label])
            return;
        for (size_t i = 0; i < state->inputs; i++)
            offsets[i] -= state->strides[i][label] * state->lengths[label];
        at[label] = 0;
    }
}

static enum status run_loop(const void *opaque, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    const struct loop_state *state = opaque;
    enum dtype dtype = call->in[0]->dtype;
    int64_t at[EINSUM_MAX_LABELS] = {0}, offsets[EINSUM_MAX_INPUTS] = {0};
    bool real = dtype_is_float(dtype);

    for (int64_t i = 0; i < state->results; i++) {
        double sum = 0;
        uint64_t whole_sum = 0;

        for (int64_t k = 0; k < state->terms; k++) {
            double product = 1;
            uint64_t whole_product = 1;

            for (size_t j = 0; j < state->inputs; j++) {
                if (real)
                    product *= element_read(dtype, run->in[j], (size_t)offsets[j]);
                else
                    whole_product *= load_whole(dtype, run->in[j], offsets[j]);
            }
            sum += product;
            whole_sum += whole_product;
            advance(state, state->outer, state->labels, at, offsets);
        }
        if (real)
            element_write(dtype, run->out[0], (size_t)i, sum);
        else /* little endian: the low bytes come first */
            memcpy((char *)run->out[0] + (size_t)i * dtype_bytes(dtype), &whole_sum,
                   dtype_bytes(dtype));
        advance(state, 0, state->outer, at, offsets);
    }
    return STATUS_OK;
}

const struct kernel kernel_einsum_loop = {
    .name = "cpu:loop",
    .prepare = prepare_loop,
    .enqueue = run_loop,
    .release = free,
};
