/* Einsum by products and by plain sums: both must say what the equation says. */
#include "ops/indexing.h"

#include "support/cpu_cases.h"

/* The element of an operand at the places that the labels have now. */
static int64_t offset(const struct shape *shape, const unsigned char *labels, const int64_t *place)
{
    int64_t at = 0;

    for (size_t i = 0; i < shape->rank; i++)
        at = at * shape->dims[i] + (shape->dims[i] == 1 ? 0 : place[labels[i]]);
    return at;
}

/* Every combination of all labels. */
static void einsum_reference(const struct op_test *test, const struct test_array *in,
                             struct test_array *out)
{
    const struct shape *shapes[EINSUM_MAX_INPUTS];
    int64_t place[EINSUM_MAX_LABELS] = {0}, count = 1;
    struct einsum_plan plan;

    for (size_t k = 0; k < test->inputs; k++)
        shapes[k] = &in[k].shape;
    assert_int_equal(einsum_parse(test->attrs, test->inputs, shapes, &plan, NULL), STATUS_OK);
    for (size_t i = 0; i < plan.labels; i++)
        count *= plan.lengths[i];
    for (int64_t i = 0; i < shape_count(&out->shape); i++)
        out->values[i] = 0;
    for (int64_t c = 0; c < count; c++) {
        int64_t rest = c;
        double product = 1;

        for (size_t i = 0; i < plan.labels; rest /= plan.lengths[i++])
            place[i] = rest % plan.lengths[i];
        for (size_t k = 0; k < test->inputs; k++)
            product *= in[k].values[offset(shapes[k], plan.in[k], place)];
        out->values[offset(&out->shape, plan.out, place)] += product;
    }
}

static void every_equation_has_its_sums(void **state)
{
    static const struct {
        const char *equation;
        struct shape a, b;
    } cases[] = {
        {"ij,jk->ik", SHAPE(70, 33), SHAPE(33, 5)},
        {"ij,jk->ki", SHAPE(7, 3), SHAPE(3, 66)},
        {"bhqd,bhkd->bhqk", SHAPE(2, 3, 5, 8), SHAPE(2, 3, 7, 8)},
        {"bqhd,bkhd->bhqk", SHAPE(2, 5, 3, 8), SHAPE(2, 7, 3, 8)},
        {"bhqk,bkhd->bqhd", SHAPE(2, 3, 5, 7), SHAPE(2, 7, 3, 4)},
        {"ab,cd->dacb", SHAPE(2, 3), SHAPE(4, 5)},
        {"abc,dc->bda", SHAPE(3, 4, 6), SHAPE(5, 6)},
        {"aij,ajk->ik", SHAPE(3, 4, 5), SHAPE(3, 5, 2)},
        {"ii,ij->j", SHAPE(4, 4), SHAPE(4, 3)},
        {"i,i->", SHAPE(17), SHAPE(17)},
        {"ij,k->ik", SHAPE(3, 4), SHAPE(5)},
        {"...i,...i->...", SHAPE(2, 1, 4), SHAPE(3, 4)},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct einsum_attrs attrs = {cases[i].equation};

        op_test_run(tester,
                    &(struct op_test){.op = "Einsum",
                                      .attrs = &attrs,
                                      .inputs = 2,
                                      .in = {{DTYPE_FLOAT, cases[i].a, .low = -1, .high = 1},
                                             {DTYPE_FLOAT, cases[i].b, .low = -1, .high = 1}},
                                      .reference = einsum_reference,
                                      .relative = 1e-5,
                                      .absolute = 1e-5});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_equation_has_its_sums)};

    return run_cases(tests);
}
