#include "device/cpu/conv/conv_step.h"

#include <stdlib.h>

#include "device/cpu/constant.h"
#include "device/cpu/epilogue.h"
#include "device/cpu/team.h"

static enum status pack_weights(const struct operand *operand, conv_pack_fn pack, const void *state,
                                float *packed)
{
    void *copy;
    const float *weights = constant_floats(operand, &copy);
    enum status status = weights != NULL ? pack(state, weights, packed) : STATUS_NO_MEMORY;

    free(copy);
    return status;
}

enum status conv_step_share(struct kernel_prepare *prepare, const char *format, size_t packed_bytes,
                            conv_pack_fn pack, const void *state, size_t bias_count,
                            struct conv_step *step)
{
    const struct operand *w = prepare->call.in[CONV_W];
    enum status status = STATUS_OK;
    void *packed;
    bool is_new;

    TRY(weights_share(prepare->weights, w->constant_key, format, packed_bytes, &packed, &is_new));
    if (is_new)
        status = pack_weights(w, pack, state, packed);
    if (status != STATUS_OK) {
        weights_drop(prepare->weights, w->constant_key, format);
        return status;
    }
    step->weights = packed;
    return constant_share_bias(prepare, bias_count, &step->bias);
}

struct team_arg {
    conv_member_fn run;
    struct conv_run operands;
};

static void run_member(void *opaque, unsigned member, unsigned members)
{
    const struct team_arg *arg = opaque;

    arg->run(&arg->operands, member, members);
}

enum status conv_step_run(const struct conv_step *step, const struct kernel_call *call,
                          const struct kernel_run *run)
{
    struct team_arg arg = {
        .run = step->run,
        .operands = {.plan = step->plan,
                     .x = run->in[CONV_X],
                     .weights = step->weights,
                     .bias = step->bias,
                     .residual = step->epilogue->has_residual ? run->in[CONV_RESIDUAL] : NULL,
                     .y = run->out[0],
                     .scratch = run->scratch}};

    team_run(step->members, run_member, &arg);
    epilogue_clear_padding(step->epilogue, run->out[0], call->out[0], call->device->channel_block);
    return STATUS_OK;
}
