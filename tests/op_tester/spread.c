/* Operands whose rows lie apart, as parts of larger values do (operand.outer_stride). */
#include "op_tester/internal.h"

enum { GAP_BYTE = 0xA5, GAP_BLOCKS = 3, WAYS = 4 };

/* Which operands lie apart: bit 0: in[0]; bit 1: the other inputs; bit 2: the outputs. */
static const unsigned ways[WAYS] = {1, 3, 4, 7};

struct spread {
    size_t rows, row_bytes, pitch_bytes;
};

static bool spread_operand(struct operand *operand, size_t bytes, unsigned block,
                           struct spread *out_spread)
{
    const size_t size = dtype_bytes(operand->dtype);

    if (operand->shape.rank < 2 || operand->shape.dims[0] < 2 || bytes == 0 ||
        operand->layout == LAYOUT_NHWC || operand->dtype == DTYPE_STRING)
        return false;
    out_spread->rows = (size_t)operand->shape.dims[0];
    out_spread->row_bytes = bytes / out_spread->rows;
    out_spread->pitch_bytes = out_spread->row_bytes + GAP_BLOCKS * block * size;
    operand->outer_stride = (int64_t)(out_spread->pitch_bytes / size);
    return true;
}

/* Replaces dense data by the same rows with gaps between them. */
static void move_apart(void **data, size_t *bytes, const struct spread *spread)
{
    const size_t all = spread->rows * spread->pitch_bytes;
    char *apart = test_take(all);

    memset(apart, GAP_BYTE, all);
    for (size_t i = 0; i < spread->rows; i++)
        memcpy(apart + i * spread->pitch_bytes, (char *)*data + i * spread->row_bytes,
               spread->row_bytes);
    free(*data);
    *data = apart;
    *bytes = all;
}

static bool is_gap(const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((unsigned char)bytes[i] != GAP_BYTE)
            return false;
    return true;
}

static void check_rows(const struct trial *trial, const char *apart, const char *dense,
                       const struct spread *spread)
{
    for (size_t i = 0; i < spread->rows; i++) {
        const char *row = apart + i * spread->pitch_bytes;

        if (memcmp(row, dense + i * spread->row_bytes, spread->row_bytes) != 0)
            trial_failed(trial, "rows that lie apart give other bits than dense ones");
        if (!is_gap(row + spread->row_bytes, spread->pitch_bytes - spread->row_bytes))
            trial_failed(trial, "something was written between the rows of a result");
    }
}

static void run_way(const struct trial *trial, const struct stage *first, int team, unsigned way)
{
    const unsigned block = trial->tester->devices[team]->channel_block;
    struct spread in, out[OP_TEST_OPERANDS] = {{0}};
    struct error err = {.text = ""};
    struct stage stage;
    unsigned spreads = 0;

    stage_init(&stage, trial, team);
    for (size_t i = 0; i < trial->test->inputs; i++)
        if (stage.in[i] != NULL && stage.in[i]->constant == NULL &&
            (way >> (i > 0 ? 1 : 0) & 1) != 0 &&
            spread_operand(&stage.operands[i], stage.in_bytes[i], block, &in)) {
            move_apart(&stage.in_data[i], &stage.in_bytes[i], &in);
            spreads++;
        }
    for (size_t i = 0; i < trial->outputs; i++)
        if ((way >> 2 & 1) != 0 && spread_operand(&stage.operands[OP_TEST_OPERANDS + i],
                                                  stage.out_bytes[i], block, &out[i])) {
            move_apart(&stage.out_data[i], &stage.out_bytes[i], &out[i]);
            spreads++;
        }
    if (spreads > 0 &&
        (trial->kernel->refuses == NULL || trial->kernel->refuses(&stage.call) == NULL)) {
        if (stage_run(&stage, trial->tester, trial->kernel, team, APART, &err) != STATUS_OK)
            trial_failed(trial, err.text[0] != '\0' ? err.text : "rows that lie apart: it failed");
        for (size_t i = 0; i < trial->outputs; i++) {
            const struct spread dense = {
                .rows = 1, .row_bytes = first->out_bytes[i], .pitch_bytes = first->out_bytes[i]};

            check_rows(trial, stage.out_data[i], first->out_data[i],
                       out[i].rows > 0 ? &out[i] : &dense);
        }
    }
    stage_deinit(&stage);
}

void expect_same_apart(const struct trial *trial, const struct stage *first)
{
    const struct op_tester *tester = trial->tester;

    if ((trial->kernel->flags & KERNEL_STRIDED) == 0 || !tester->devices[0]->spreads_rows)
        return;
    for (unsigned i = 0; i < WAYS; i++)
        run_way(trial, first, i % tester->teams, ways[i]);
}
