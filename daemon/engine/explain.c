/* What a plan does, for people and for programs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/internal.h"

static uint64_t step_bytes(const struct step *step)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < step->call.outputs; i++) {
        const struct operand *out = step->call.out[i];

        if (out != NULL)
            bytes += layout_bytes(out->layout, step->call.device->channel_block, out->dtype,
                                  &out->shape);
    }
    return bytes;
}

/* What estimated shares of time are shares of. */
static double sum_work(const struct plan *plan)
{
    double work = 0;

    for (size_t i = 0; i < plan->step_count; i++)
        work += (double)plan->steps[i].work;
    return work;
}

static double work_share(const struct step *step, double sum)
{
    return sum > 0 ? (double)step->work / sum : 0;
}

const struct operand *step_result(const struct step *step)
{
    for (size_t i = 0; i < step->call.outputs; i++)
        if (step->call.out[i] != NULL)
            return step->call.out[i];
    return NULL;
}

const char *step_note(const struct step *step, char text[STEP_NOTE_BYTES])
{
    size_t used = (size_t)snprintf(text, STEP_NOTE_BYTES, "%s", step->note);

    if (step->kernel->describe == NULL || used + 2 >= STEP_NOTE_BYTES)
        return text;
    if (used > 0)
        used += (size_t)snprintf(text + used, STEP_NOTE_BYTES - used, "; ");
    step->kernel->describe(step->state, text + used, STEP_NOTE_BYTES - used);
    if (used > 0 && text[used] == '\0')
        text[used - 2] = '\0';
    return text;
}

static const char *where_name(const struct plan *plan, const struct slot *slot)
{
    switch (slot->base) {
    case BASE_NONE:
        return "none";
    case BASE_ABSOLUTE:
        return "constant";
    case BASE_ARENA:
        return "arena";
    default:
        return slot->base < BASE_FIRST_BOUND + plan->inputs ? "input" : "output";
    }
}

/* ---- JSON ---- */

static void put_string(FILE *to, const char *text)
{
    fputc('"', to);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            fprintf(to, "\\%c", c);
        else if (c < 0x20)
            fprintf(to, "\\u%04x", c);
        else
            fputc(c, to);
    }
    fputc('"', to);
}

static void put_shape(FILE *to, const struct shape *shape)
{
    char text[SHAPE_TEXT_BYTES];

    fputs(shape_format(shape, text), to);
}

static void put_operands(FILE *to, const char *name, size_t count,
                         const struct operand *const *operands)
{
    fprintf(to, ",\"%s\":[", name);
    for (size_t i = 0; i < count; i++) {
        fputs(i == 0 ? "" : ",", to);
        if (operands[i] == NULL)
            fputs("null", to);
        else
            put_shape(to, &operands[i]->shape);
    }
    fputc(']', to);
}

void explain_json_step(const struct plan *plan, size_t index, double time_share, FILE *to)
{
    const struct step *step = &plan->steps[index];
    const struct operand *out = step_result(step);
    char note[STEP_NOTE_BYTES];

    fprintf(to, "%s\n{\"index\":%zu,\"name\":", index == 0 ? "" : ",", index);
    put_string(to, step->name);
    fputs(",\"op\":", to);
    put_string(to, step->call.op->onnx.name);
    fputs(",\"kernel\":", to);
    put_string(to, step->kernel->name);
    fputs(",\"note\":", to);
    put_string(to, step_note(step, note));
    put_operands(to, "in_shapes", step->call.inputs, step->call.in);
    put_operands(to, "out_shapes", step->call.outputs, step->call.out);
    fprintf(to,
            ",\"dtype\":\"%s\",\"layout\":\"%s\",\"bytes\":%" PRIu64 ",\"scratch_bytes\":%" PRIu64
            ",\"place\":\"%s\",\"offset\":%" PRId64
            ",\"time_share\":%.5f,\"peak\":%s,\"refused\":[",
            out == NULL ? "none" : dtype_name(out->dtype),
            out == NULL ? "none" : layout_name(out->layout), step_bytes(step), step->scratch_bytes,
            step->call.outputs == 0 ? "none" : where_name(plan, &step->out[0]),
            step->call.outputs == 0 || step->out[0].base == BASE_ABSOLUTE ? 0 : step->out[0].offset,
            time_share, index == plan->peak_step ? "true" : "false");
    for (size_t i = 0; i < step->refusals; i++) {
        fprintf(to, "%s{\"kernel\":", i == 0 ? "" : ",");
        put_string(to, step->refused[i].kernel);
        fputs(",\"why\":", to);
        put_string(to, step->refused[i].why);
        fputc('}', to);
    }
    fputc(']', to);
}

void explain_json_head(const struct plan *plan, FILE *to)
{
    fprintf(to,
            "{\"peak_bytes\":%" PRIu64 ",\"lower_bound_bytes\":%" PRIu64
            ",\"peak_step\":%u,\"exact\":%s,\"batch_exact\":%s,\"predicted_us\":%" PRId64
            ",\"inputs\":[",
            plan->peak_bytes, plan->lower_bound_bytes, plan->peak_step,
            plan->rest == NULL ? "true" : "false", plan->batch_exact ? "true" : "false",
            atomic_load(&plan->predicted_us));
    for (size_t i = 0; i < plan->inputs; i++) {
        fprintf(to, "%s{\"name\":", i == 0 ? "" : ",");
        put_string(to, plan->program->graph->in[i]->name);
        fputs(",\"shape\":", to);
        put_shape(to, &plan->in_shapes[i]);
        fputc('}', to);
    }
    fputs("],\"steps\":[", to);
}

void explain_json_tail(const struct plan *plan, FILE *to)
{
    fprintf(to, "\n],\"continues\":");
    if (plan->rest == NULL || list_is_empty(&plan->rest->graph->nodes))
        fputs("null", to);
    else
        put_string(to, LIST_FIRST(&plan->rest->graph->nodes, struct node, link)->name);
}

static void explain_json(const struct plan *plan, FILE *to)
{
    double work = sum_work(plan);

    explain_json_head(plan, to);
    for (size_t i = 0; i < plan->step_count; i++) {
        explain_json_step(plan, i, work_share(&plan->steps[i], work), to);
        fputc('}', to);
    }
    explain_json_tail(plan, to);
    fputs("}\n", to);
}

/* ---- the table ---- */

static void print_step(const struct plan *plan, size_t index, double work, FILE *to)
{
    const struct step *step = &plan->steps[index];
    const struct operand *out = step_result(step);
    char shape[SHAPE_TEXT_BYTES] = "-", share[16], note[STEP_NOTE_BYTES];

    if (out != NULL)
        shape_format(&out->shape, shape);
    (void)step_note(step, note);
    snprintf(share, sizeof(share), "~%.1f%%", 100 * work_share(step, work));
    fprintf(to, "%c%4zu %6s %-18s %-22s %-20s %-8s %-8s %12" PRIu64 " %12" PRId64 "  %s%s%s\n",
            index == plan->peak_step ? '*' : ' ', index, share, step->call.op->onnx.name,
            step->kernel->name, shape, out == NULL ? "-" : dtype_name(out->dtype),
            out == NULL ? "-" : layout_name(out->layout), step_bytes(step),
            step->call.outputs > 0 && step->out[0].base == BASE_ARENA ? step->out[0].offset : -1,
            step->name, note[0] != '\0' ? "  " : "", note);
    for (size_t i = 0; i < step->refusals; i++)
        fprintf(to, "             not %s: %s\n", step->refused[i].kernel, step->refused[i].why);
}

static void explain_table(const struct plan *plan, FILE *to)
{
    double work = sum_work(plan);
    char text[SHAPE_TEXT_BYTES];

    for (size_t i = 0; i < plan->inputs; i++)
        fprintf(to, "input %s %s\n", plan->program->graph->in[i]->name,
                shape_format(&plan->in_shapes[i], text));
    fprintf(
        to,
        "%zu steps, peak %" PRIu64 " bytes at step %u, lower bound %" PRIu64 " bytes (%.3f x)%s\n",
        plan->step_count, plan->peak_bytes, plan->peak_step, plan->lower_bound_bytes,
        plan->lower_bound_bytes == 0 ? 1.0
                                     : (double)plan->peak_bytes / (double)plan->lower_bound_bytes,
        plan->batch_exact ? "" : "; a row's answer depends on its batch");
    fprintf(to, " step   time %-18s %-22s %-20s %-8s %-8s %12s %12s  %s\n", "operator", "kernel",
            "shape", "type", "layout", "bytes", "offset", "node");
    for (size_t i = 0; i < plan->step_count; i++)
        print_step(plan, i, work, to);
    if (plan->rest != NULL && !list_is_empty(&plan->rest->graph->nodes))
        fprintf(to, "… goes on with '%s' once its shapes are known\n",
                LIST_FIRST(&plan->rest->graph->nodes, struct node, link)->name);
}

void plan_explain(const struct plan *plan, FILE *to, bool as_json)
{
    if (as_json)
        explain_json(plan, to);
    else
        explain_table(plan, to);
}
