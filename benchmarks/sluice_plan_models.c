/* sluice-plan-models [--thorough] FILE.onnx…
 *
 * Plans each model for one row on the CPU device and prints a line for it: steps, the lower bound
 * (the largest sum of bytes alive at one step), what another order of the steps saves of it, the
 * plan's peak, the ratio of peak and bound, and milliseconds to make the plan, kernels included.
 * Open dimensions are 1, or the first of 64, 224 and 512 with which the model can be planned.
 *
 * Ends with 0, also when a model cannot be planned (its line says why); 2 for wrong usage.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "solo.h"

static const int64_t OPEN_SIZES[] = {1, 64, 224, 512};

static enum status plan_at(struct solo *solo, int64_t size, struct plan **out_plan,
                           struct error *err)
{
    const struct network_port *ports;
    size_t inputs = network_inputs(solo->network, &ports);
    struct shape *shapes = calloc(inputs + 1, sizeof(*shapes));
    enum status status;

    if (shapes == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory");
    for (size_t i = 0; i < inputs; i++) {
        shapes[i] = ports[i].shape;
        for (size_t axis = 0; axis < shapes[i].rank; axis++)
            if (shapes[i].dims[axis] == SHAPE_UNKNOWN)
                shapes[i].dims[axis] = axis == 0 ? 1 : size;
    }
    status = network_plan(solo->network, shapes, out_plan, err);
    free(shapes);
    return status;
}

static enum status plan_model(struct solo *solo, const char *path, struct error *err)
{
    const char *slash = strrchr(path, '/');
    struct plan *plan = NULL;
    struct plan_facts facts;
    int64_t start = 0;
    enum status status;

    TRY(solo_load(solo, path, err));
    status = STATUS_INVALID;
    for (size_t i = 0; i < sizeof(OPEN_SIZES) / sizeof(OPEN_SIZES[0]) && status != STATUS_OK; i++) {
        start = clock_now_us();
        status = plan_at(solo, OPEN_SIZES[i], &plan, err);
    }
    TRY(status);
    start = clock_now_us() - start;
    plan_read(plan, &facts);
    plan_unref(plan);
    printf("%-28s %5" PRIu32 " steps  bound %11" PRIu64 "  order saves %10" PRIu64
           "  peak %11" PRIu64 "  ratio %6.4f  %8.2f ms\n",
           slash != NULL ? slash + 1 : path, facts.steps, facts.lower_bound_bytes,
           facts.order_saves_bytes, facts.peak_bytes,
           facts.lower_bound_bytes > 0 ? (double)facts.peak_bytes / (double)facts.lower_bound_bytes
                                       : 1.0,
           (double)start / 1e3);
    fflush(stdout);
    return STATUS_OK;
}

int main(int count, char **words)
{
    bool is_thorough = count > 1 && strcmp(words[1], "--thorough") == 0;
    struct solo solo = {0};
    struct error err = {0};

    if (count < 2 + is_thorough) {
        fprintf(stderr, "usage: sluice-plan-models [--thorough] FILE.onnx…\n");
        return 2;
    }
    if (solo_open("cpu", 1, &solo, &err) != STATUS_OK) {
        fprintf(stderr, "sluice-plan-models: %s\n", err.text);
        return 1;
    }
    solo.planning.mode = is_thorough ? PLANNING_THOROUGH : PLANNING_QUICK;
    for (int i = 1 + is_thorough; i < count; i++)
        if (plan_model(&solo, words[i], &err) != STATUS_OK)
            printf("%-28s %s\n", words[i], err.text);
    solo_close(&solo);
    return 0;
}
