/* Between the files of the tester of operators. */
#ifndef OP_TESTER_INTERNAL_H
#define OP_TESTER_INTERNAL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/weights.h"
#include "op_tester/op_tester.h"

enum { TEAMS = 2, SEVERAL_THREADS = 3, ATTRS_MAX_BYTES = 1024 };

/* Memory of a device whose addresses are not the host's: blocks of one run, one after the other.
 * Behind each lies a zone that nobody may write. */
enum { ROOM_APART = 64 };
struct device_room {
    char *base;
    size_t committed_bytes;
    size_t used_bytes;
    /* Ranges that cannot grow (mem_source.moves): one a block, of its very size, so that whoever
     * watches over the device's memory (tests/sim/bodies) knows where it ends. */
    struct {
        void *base;
        size_t bytes;
    } apart[ROOM_APART];
    size_t apart_count;
};

struct op_tester {
    struct device *devices[TEAMS]; /* with one thread, with several */
    struct device_lane *lanes[TEAMS];
    struct string_heap *strings;
    struct weights_cache *weights;
    struct error error;
    unsigned teams;          /* a device that computes elsewhere has one */
    struct device_room room; /* of such a device */
    unsigned kernel_runs, left_to_host;
    unsigned every; /* of so many tests one is run: OP_TEST_EVERY, where all would take too long */
    unsigned asked, passed_over;
};

/* One test being run: operands of the plan, their PLAIN data, and what must come out. */
struct trial {
    struct op_tester *tester;
    const struct op_test *test;
    const struct op_def *op;
    const void *attrs;
    size_t outputs;
    struct tensor in[OP_TEST_OPERANDS]; /* owned data, NULL when left out */
    struct tensor out[OP_TEST_OPERANDS];
    struct tensor expected[OP_TEST_OPERANDS];
    uint64_t seed;
    const struct kernel *kernel;
    enum layout layout;
    enum layout in_layout;  /* of in[0] */
    enum layout out_layout; /* of out[0] */
};

/* Output 0 lies apart, over input 0, or over a fused residual. */
enum way { APART, IN_PLACE, IN_PLACE_RESIDUAL };

/* Operands as the kernel sees them; packed copies of activations, plain data of the others. */
struct stage {
    struct operand operands[2 * OP_TEST_OPERANDS];
    const struct operand *in[OP_TEST_OPERANDS];
    const struct operand *out[OP_TEST_OPERANDS];
    void *in_data[OP_TEST_OPERANDS]; /* owned */
    void *out_data[OP_TEST_OPERANDS];
    size_t in_bytes[OP_TEST_OPERANDS];
    size_t out_bytes[OP_TEST_OPERANDS];
    struct shape out_shapes[OP_TEST_OPERANDS];
    struct kernel_call call;
};

/* Zeros, aligned for any kernel; free(). */
void *test_take(size_t bytes);

/* ---- room.c ---- */

void room_open(struct op_tester *tester);
void room_close(struct op_tester *tester);
/* A block of the device, filled from `from` unless that is NULL. */
void *room_take(struct op_tester *tester, size_t bytes, const void *from);
/* Copies a block back; whether the zone behind it is as it was. */
bool room_fetch(struct op_tester *tester, const void *block, size_t bytes, void *to);
/* Everything of a run goes: the next one finds memory that nobody has written. */
void room_clear(struct op_tester *tester);

/* ---- layouts.c ---- */

/* The layout that an operand has when activations have `layout`. */
enum layout layout_of(enum layout layout, const struct shape *shape, bool constant);
size_t packed_elements(enum layout layout, unsigned block, const struct shape *shape);
void repack(enum layout layout, unsigned block, const struct tensor *tensor, void *packed,
            bool unpack);
bool padding_is_zero(unsigned block, const struct tensor *tensor, const void *packed);

/* ---- stage.c ---- */

void stage_init(struct stage *stage, const struct trial *trial, int team);
void stage_deinit(struct stage *stage);
/* The input that a fused residual is, or SIZE_MAX. */
size_t stage_residual(const struct stage *stage);
/* Prepares and runs; outputs are left in stage->out_data.  A library's reference code is refused.
 */
enum status stage_run(struct stage *stage, struct op_tester *tester, const struct kernel *kernel,
                      int team, enum way way, struct error *err);

/* ---- trial.c ---- */

/* Constants are known by the address of the trial's tensor, so packed forms go with the trial. */
enum status trial_init(struct trial *trial, struct op_tester *tester, const struct op_test *test,
                       void *default_attrs, struct error *err);
void trial_deinit(struct trial *trial);
/* The operator's rule on the trial's inputs; fills dtype and shape of the outputs. */
enum status trial_infer(struct trial *trial, bool all_known, struct error *err);
/* Runs the reference and rounds what it says to the types of the outputs. */
void trial_expect(struct trial *trial);

/* ---- compare.c ---- */

/* Fails the running test, saying what was run. */
void trial_failed(const struct trial *trial, const char *what);
void check_outputs(const struct trial *trial, const struct stage *stage, unsigned block);
void expect_same_bits(const struct trial *trial, const struct stage *first, int team, enum way way,
                      const char *what);
/* spread.c: where the kernel takes strides, rows that lie apart give the same bits. */
void expect_same_apart(const struct trial *trial, const struct stage *first);
/* The last row computed alone must have the bits that it has among the others. */
void expect_same_row(const struct trial *trial, const struct stage *first);

#endif
