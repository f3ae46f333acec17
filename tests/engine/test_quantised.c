/* Precision=int8: quantised models are taken, others are refused when they are read. */
#include "engine/rig.h"

enum { WIDTH = 16 };

static struct value *zero(struct graph *graph, struct shape shape)
{
    struct constant *constant = constant_allocate(DTYPE_INT8, &shape);

    assert_non_null(constant);
    memset((void *)(uintptr_t)constant->tensor.data, 1, (size_t)shape_count(&shape));
    return graph_add_constant(graph, "", constant);
}

static struct value *through(struct graph *graph, struct value *x)
{
    struct value *q =
        APPLY(graph, "QuantizeLinear", x, make_floats(graph, SHAPE(), 1), zero(graph, SHAPE()));

    return APPLY(graph, "DequantizeLinear", q, make_floats(graph, SHAPE(), 1),
                 zero(graph, SHAPE()));
}

/* Two products with weights, `quantised` of them between bytes. */
static struct graph *quantised_model(int quantised)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, WIDTH)), *y = x;

    for (int i = 0; i < 2; i++) {
        struct value *w = make_floats(graph, SHAPE(WIDTH, WIDTH), 3);

        if (i < quantised) {
            w = APPLY(graph, "DequantizeLinear", zero(graph, SHAPE(WIDTH, WIDTH)),
                      make_floats(graph, SHAPE(), 1), zero(graph, SHAPE()));
            y = through(graph, APPLY(graph, "MatMul", through(graph, y), w));
        } else {
            y = APPLY(graph, "MatMul", y, w);
        }
    }
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static struct graph *make_without_products(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, WIDTH));
    struct value *y = APPLY(graph, "MatMul", APPLY(graph, "Relu", x),
                            APPLY(graph, "Transpose", APPLY(graph, "Abs", x)));

    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static enum status adopt(const char *precision, struct graph *graph, struct error *err)
{
    const struct device_config config = {
        .name = "cpu", .lanes = 1, .threads = 1, .precision = precision};
    const struct network_config options = {.name = "model", .plan_cache_count = 3};
    struct network *network = NULL;
    struct ledger *ledger;
    struct device *device;
    enum status status;

    device_register(&device_cpu_ops);
    assert_ok(device_open(&config, &device, NULL));
    assert_ok(ledger_create(UINT64_C(1) << 30, &ledger));
    status = network_create(graph, device, ledger, &options, &network, err);
    if (status == STATUS_OK)
        network_destroy(network);
    ledger_destroy(ledger);
    device_close(device);
    return status;
}

static void a_model_that_is_not_quantised_is_refused_with_one_sentence(void **state)
{
    struct error err = {.text = ""};

    (void)state;
    assert_int_equal(adopt("int8", quantised_model(0), &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.text,
                        "Precision=int8 takes models that are quantised (QDQ, QOperator): the 2 "
                        "products of this one have weights for floats");
    assert_ok(adopt("strict", quantised_model(0), &err));
}

static void a_model_that_is_quantised_is_taken_also_where_some_products_are_not(void **state)
{
    struct error err = {.text = ""};

    (void)state;
    assert_ok(adopt("int8", quantised_model(2), &err));
    assert_ok(adopt("int8", quantised_model(1), &err));
}

static void a_model_without_weights_has_nothing_to_quantise(void **state)
{
    struct error err = {.text = ""};

    (void)state;
    assert_ok(adopt("int8", make_without_products(), &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_is_not_quantised_is_refused_with_one_sentence),
        cmocka_unit_test(a_model_that_is_quantised_is_taken_also_where_some_products_are_not),
        cmocka_unit_test(a_model_without_weights_has_nothing_to_quantise),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
