/* TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble: each row walks every tree, the
 * leaves vote, the votes are gathered, transformed and (for a classifier) named.
 *
 * Two classes of which only one is voted for are one score: the other class gets what is left of
 * it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/convert.h"
#include "device/cpu/cpu.h"
#include "device/cpu/ml/scores.h"
#include "device/cpu/ml/trees.h"
#include "device/cpu/team.h"

enum one_score { NO_ONE_SCORE, SHARE, SIGN }; /* see finish_one_score() */

struct ensemble_state {
    struct trees trees;
    enum aggregate aggregate;
    enum post_transform post;
    size_t targets; /* columns of the scores */
    int64_t rows, features;
    double *base; /* one a target, or NULL; owned */
    enum one_score one_score;
    size_t one_target;               /* the only class that is voted for */
    const struct tree_attrs *labels; /* classifier only */
    size_t member_bytes;             /* of scratch */
};

struct gathered {
    double value;
    bool any; /* some leaf voted for it */
};

struct ensemble_job {
    const struct ensemble_state *state;
    const struct kernel_call *call;
    const struct kernel_run *run;
    enum status status; /* written by the only member there is when labels are text */
};

/* ---- making the state ---- */

static enum status read_base(struct ensemble_state *state, const struct tree_attrs *attrs,
                             struct error *err)
{
    const struct tensor *tensor = &attrs->base_values_as_tensor;
    size_t count = attrs->base_values.count;

    if (count == 0 && tensor->dtype != DTYPE_NONE)
        count = (size_t)shape_count(&tensor->shape);
    if (count == 0)
        return STATUS_OK;
    if (count != state->targets || (attrs->base_values.count == 0 && tensor->dtype != DTYPE_FLOAT &&
                                    tensor->dtype != DTYPE_DOUBLE))
        return error_set(err, STATUS_UNSUPPORTED, "%zu base_values for %zu scores", count,
                         state->targets);
    state->base = calloc(count, sizeof(*state->base));
    if (state->base == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for base values");
    for (size_t i = 0; i < count; i++)
        state->base[i] = attrs->base_values.count > 0    ? (double)attrs->base_values.values[i]
                         : tensor->dtype == DTYPE_DOUBLE ? ((const double *)tensor->data)[i]
                                                         : (double)((const float *)tensor->data)[i];
    return STATUS_OK;
}

/* Two labels and votes for one class only: for the first, by custom. */
static enum status find_one_score(struct ensemble_state *state, struct error *err)
{
    const struct trees *trees = &state->trees;
    bool positive = true;

    if (state->targets != 2 || trees->vote_count == 0)
        return STATUS_OK;
    for (size_t i = 0; i < trees->vote_count; i++) {
        positive = positive && trees->votes[i].weight >= 0;
        if (trees->votes[i].target != trees->votes[0].target)
            return STATUS_OK;
    }
    if (trees->votes[0].target != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "votes for the second of two classes only are not supported");
    if (state->base != NULL)
        return error_set(err, STATUS_UNSUPPORTED,
                         "base_values with votes for one of two classes are not supported");
    state->one_score = positive ? SHARE : SIGN;
    return STATUS_OK;
}

static enum status fill_state(struct ensemble_state *state, const struct kernel_call *call,
                              struct error *err)
{
    const struct tree_attrs *old = call->attrs;
    const struct tree_ensemble_attrs *new = call->attrs;

    state->aggregate = AGGREGATE_SUM;
    if (call->op == &op_tree_ensemble) {
        state->aggregate = (enum aggregate) new->aggregate_function;
        state->post = (enum post_transform) new->post_transform;
        state->targets = (size_t) new->n_targets;
        return trees_init_new(&state->trees, new, state->features, err);
    }
    state->post = (enum post_transform)old->post_transform;
    if (call->op == &op_tree_ensemble_classifier) {
        state->labels = old;
        state->targets = old->classlabels_strings.count > 0 ? old->classlabels_strings.count
                                                            : old->classlabels_int64s.count;
    } else {
        state->aggregate = (enum aggregate)old->aggregate_function;
        state->targets = (size_t)old->n_targets;
    }
    TRY(trees_init_old(&state->trees, old, state->targets, state->features, err));
    TRY(read_base(state, old, err));
    return state->labels != NULL ? find_one_score(state, err) : STATUS_OK;
}

static void release(void *arg)
{
    struct ensemble_state *state = arg;

    trees_deinit(&state->trees);
    free(state->base);
    free(state);
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct ensemble_state *state = calloc(1, sizeof(*state));
    enum status status;

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a kernel's state");
    ml_rows(&call->in[0]->shape, &state->rows, &state->features);
    status = fill_state(state, call, err);
    if (status != STATUS_OK) {
        release(state);
        return status;
    }
    state->member_bytes = ((size_t)state->features + state->targets) * sizeof(double) +
                          state->targets * sizeof(struct gathered);
    prepare->scratch_bytes = state->member_bytes * (call->threads > 0 ? call->threads : 1);
    prepare->constants_used = 1;
    prepare->state = state;
    return STATUS_OK;
}

/* ---- one row ---- */

static void gather(const struct ensemble_state *state, const struct tree_vote *vote,
                   struct gathered *to)
{
    if (!to->any)
        to->value = vote->weight;
    else if (state->aggregate == AGGREGATE_MIN)
        to->value = vote->weight < to->value ? vote->weight : to->value;
    else if (state->aggregate == AGGREGATE_MAX)
        to->value = vote->weight > to->value ? vote->weight : to->value;
    else
        to->value += vote->weight;
    to->any = true;
}

/* All votes for the only target: the sum stays in a register. */
static inline __attribute__((always_inline)) struct gathered
sum_votes(const struct trees *trees, const double *x, const bool leq)
{
    struct gathered sum = {0};

    for (size_t i = 0; i < trees->root_count; i++) {
        size_t leaf =
            leq ? trees_walk_leq(trees, trees->roots[i], x) : trees_walk(trees, trees->roots[i], x);

        for (int32_t v = trees->leaf_votes[leaf]; v < trees->leaf_votes[leaf + 1]; v++) {
            sum.value += trees->votes[v].weight;
            sum.any = true;
        }
    }
    return sum;
}

static void gather_votes(const struct ensemble_state *state, const double *x, bool leq,
                         struct gathered *scores)
{
    const struct trees *trees = &state->trees;

    memset(scores, 0, state->targets * sizeof(*scores));
    for (size_t i = 0; i < trees->root_count; i++) {
        size_t leaf =
            leq ? trees_walk_leq(trees, trees->roots[i], x) : trees_walk(trees, trees->roots[i], x);

        for (int32_t v = trees->leaf_votes[leaf]; v < trees->leaf_votes[leaf + 1]; v++)
            gather(state, &trees->votes[v], &scores[trees->votes[v].target]);
    }
}

static bool has_nan(const double *x, int64_t count)
{
    bool found = false;

    for (int64_t i = 0; i < count; i++)
        found = found || isnan(x[i]);
    return found;
}

static void vote_row(const struct ensemble_state *state, const double *x, struct gathered *scores)
{
    const struct trees *trees = &state->trees;
    const bool leq = trees->all_leq && !has_nan(x, state->features);

    if (state->targets != 1 || state->aggregate == AGGREGATE_MIN ||
        state->aggregate == AGGREGATE_MAX)
        gather_votes(state, x, leq, scores);
    else if (leq)
        scores[0] = sum_votes(trees, x, true);
    else
        scores[0] = sum_votes(trees, x, false);
    for (size_t t = 0; t < state->targets; t++) {
        if (state->aggregate == AGGREGATE_AVERAGE)
            scores[t].value /= (double)trees->root_count;
        if (state->base != NULL) {
            scores[t].value += state->base[t];
            scores[t].any = true;
        }
    }
}

static size_t best_of(const struct gathered *scores, size_t count)
{
    size_t best = 0;

    for (size_t i = 1; i < count; i++)
        if (scores[i].any && (!scores[best].any || scores[i].value > scores[best].value))
            best = i;
    return best;
}

/* One score for two classes: the second's, the first gets the rest.  Weights that are never
 * negative are shares of one, and the second class wins from one half on.  Else the sign tells.
 * Returns the class. */
static size_t finish_one_score(const struct ensemble_state *state, double score, double *out)
{
    bool share = state->one_score == SHARE;

    out[0] = share && state->post != POST_LOGISTIC ? 1 - score : -score;
    out[1] = score;
    if (state->post == POST_LOGISTIC)
        scores_transform(POST_LOGISTIC, out, 2);
    return score > (share ? 0.5 : 0) ? 1 : 0;
}

static void store_scores(const struct kernel_call *call, const struct kernel_run *run, size_t index,
                         size_t row, const double *scores, size_t count)
{
    enum dtype dtype;

    if (index >= call->outputs || call->out[index] == NULL)
        return;
    dtype = call->out[index]->dtype;
    convert(loops_for(call->device), DTYPE_DOUBLE, scores, dtype,
            (char *)run->out[index] + row * count * dtype_bytes(dtype), count);
}

static enum status run_row(const struct ensemble_job *job, size_t row, double *scratch)
{
    const struct ensemble_state *state = job->state;
    const struct kernel_call *call = job->call;
    enum dtype dtype = call->in[0]->dtype;
    size_t features = (size_t)state->features, label = 0;
    double *x = scratch, *out = x + features;
    struct gathered *scores = (struct gathered *)(void *)(out + state->targets);

    convert(loops_for(call->device), dtype,
            (const char *)job->run->in[0] + row * features * dtype_bytes(dtype), DTYPE_DOUBLE, x,
            features);
    vote_row(state, x, scores);
    if (state->one_score != NO_ONE_SCORE) {
        label = finish_one_score(state, scores[0].value, out);
    } else {
        label = best_of(scores, state->targets);
        for (size_t t = 0; t < state->targets; t++)
            out[t] = scores[t].value;
        scores_transform(state->post, out, state->targets);
    }
    store_scores(call, job->run, state->labels != NULL ? 1 : 0, row, out, state->targets);
    if (state->labels == NULL)
        return STATUS_OK;
    return scores_put_label(&state->labels->classlabels_int64s, &state->labels->classlabels_strings,
                            label, job->run->out[0], row, job->run->strings);
}

static void run_rows(void *arg, unsigned member, unsigned members)
{
    struct ensemble_job *job = arg;
    double *scratch =
        (double *)(void *)((char *)job->run->scratch + member * job->state->member_bytes);
    size_t from, to;

    team_share((size_t)job->state->rows, member, members, &from, &to);
    for (size_t i = from; i < to; i++) {
        enum status status = run_row(job, i, scratch);

        if (status != STATUS_OK)
            job->status = status;
    }
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct ensemble_state *state = arg;
    struct ensemble_job job = {.state = state, .call = call, .run = run, .status = STATUS_OK};
    bool text = state->labels != NULL && state->labels->classlabels_strings.count > 0;
    double work = (double)state->rows * (double)state->trees.root_count * 15;
    unsigned threads = call->threads > 0 ? call->threads : 1;

    team_run(text ? 1 : team_size(threads, work), run_rows, &job);
    return job.status;
}

#define ENSEMBLE(operator)                                                                         \
    const struct kernel kernel_##operator##_walk = {                                               \
        .name = "cpu:walk",                                                                        \
        .prepare = prepare,                                                                        \
        .enqueue = enqueue,                                                                        \
        .release = release,                                                                        \
    };
ENSEMBLE(tree_ensemble)
ENSEMBLE(tree_ensemble_classifier)
ENSEMBLE(tree_ensemble_regressor)
