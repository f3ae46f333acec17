/* One operator, on every kernel that a device lists for it, against a naive reference.
 *
 * The reference works on doubles and knows nothing of layouts or types.  A test is one struct:
 *
 *     op_test_run(tester, &(struct op_test){.op = "Softmax", .inputs = 1,
 *         .in = {{DTYPE_FLOAT, SHAPE(2, 5, 7)}}, .reference = softmax});
 *
 * For each kernel and each layout that it takes, the operands are packed (padding zero), the kernel
 * runs, the padding of the results must be zero, and they are unpacked and compared.  One thread
 * and several must give the same bits, in place and apart likewise, and operands whose rows lie
 * apart where the kernel takes strides.  On a device with memory of its
 * own operands are copied there and back, and what every kernel refuses is left to the host.  A
 * failure prints the state of the random generator; OP_TEST_SEED=0x… replays it.
 */
#ifndef OP_TESTER_OP_TESTER_H
#define OP_TESTER_OP_TESTER_H

#include "device/kernel.h"
#include "op_tester/values.h"

/* What the tests of kernels run on; they are compiled for other devices, too. */
#ifndef OP_TEST_DEVICE
#define OP_TEST_DEVICE "cpu"
#endif

struct op_tester;

/* Opens the device (its row must be registered) with one thread and with several. */
struct op_tester *op_tester_create(const char *device);
void op_tester_destroy(struct op_tester *tester);

/* A tensor seen through doubles, row-major. */
struct test_array {
    enum dtype dtype;
    struct shape shape;
    double *values;
};

enum { OP_TEST_OPERANDS = 12 };

struct op_input {
    enum dtype dtype; /* DTYPE_NONE: this optional input is left out */
    struct shape shape;
    const double *values; /* these; NULL: random ones in low … high */
    double low, high;     /* both 0: a range that suits the type */
    bool constant;        /* known when the plan is made */
};

struct op_test;
/* Fills out[i].values, whose dtypes and shapes are those that the operator's rule gave. */
typedef void (*op_reference_fn)(const struct op_test *test, const struct test_array *in,
                                struct test_array *out);

struct op_test {
    const char *op;     /* ONNX name */
    const char *domain; /* NULL: ai.onnx */
    const void *attrs;  /* of the operator's struct; NULL: its defaults */
    size_t inputs;
    struct op_input in[OP_TEST_OPERANDS];
    size_t outputs; /* 0: one */
    op_reference_fn reference;
    double (*scalar)(double);  /* instead of `reference`: out[0] element by element of in[0] */
    double relative, absolute; /* allowed error; both 0: what suits the type */
    const void *arg;           /* for the reference */
    bool rows;                 /* dimension 0 is the batch: a row alone must have the same bits */
    bool any_kernel;           /* it is fine when every kernel refuses */
};

/* Fails the running cmocka test with operator, kernel, layout, index, and both values. */
void op_test_run(struct op_tester *tester, const struct op_test *test);
/* The operator's rule, or every kernel, must say no; returns the sentence (until the next call). */
const char *op_test_refused(struct op_tester *tester, const struct op_test *test);

/* Runs on the first kernel that does not refuse, in PLAIN.  `out` gets fresh data:
 * op_tester_free(). Any status of rule, prepare and enqueue comes back. */
enum status op_tester_eval(struct op_tester *tester, const char *domain, const char *op,
                           const void *attrs, size_t inputs, const struct tensor *const *in,
                           bool constants, size_t outputs, struct tensor *out, struct error *err);

void op_tester_free(struct tensor *tensor); /* the data that op_tester_eval() gave */

/* Shapes by value: SHAPE(2, 3). */
#define SHAPE(...)                                                                                 \
    {                                                                                              \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                                        \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define SHAPE_SCALAR                                                                               \
    {                                                                                              \
        0                                                                                          \
    }

#endif
