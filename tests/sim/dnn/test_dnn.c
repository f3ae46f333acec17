/* The simulated cuDNN: a finding for each kind of mistake.  That it computes what is right the
 * plug-in's tests of operators show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <cudnn.h>

#include "sim.h"

typedef cudnnBackendDescriptor_t part;

static part make(cudnnBackendDescriptorType_t type)
{
    part made = NULL;

    assert_int_equal(cudnnBackendCreateDescriptor(type, &made), CUDNN_STATUS_SUCCESS);
    return made;
}

static void expect_finding(cudnnStatus_t status, const char *words)
{
    assert_int_not_equal(status, CUDNN_STATUS_SUCCESS);
    assert_non_null(strstr(sim_last_finding(), words));
}

static cudnnStatus_t set(part to, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    return cudnnBackendSetAttribute(to, name, type, count, values);
}

/* 1 x 2 x h x 4 floats. */
static part tensor(int64_t id, int64_t height, bool inner)
{
    part made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    int64_t sizes[] = {1, 2, height, 4}, strides[] = {8 * height, 4 * height, 4, 1}, alignment = 16;

    set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes);
    set(made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner);
    assert_int_equal(cudnnBackendFinalize(made), CUDNN_STATUS_SUCCESS);
    return made;
}

static part relu(part x, part y)
{
    part how = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    part made = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    cudnnPointwiseMode_t mode = CUDNN_POINTWISE_RELU_FWD;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;

    set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    assert_int_equal(cudnnBackendFinalize(how), CUDNN_STATUS_SUCCESS);
    set(made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set(made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
    set(made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
    assert_int_equal(cudnnBackendFinalize(made), CUDNN_STATUS_SUCCESS);
    cudnnBackendDestroyDescriptor(how);
    return made;
}

static void attributes_are_held_against_the_rules(void **state)
{
    part made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t numbers[] = {1, 2, 3, 4, 5, 6};

    (void)state;
    expect_finding(set(made, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, numbers),
                   "does not have");
    expect_finding(set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_FLOAT, 4, numbers),
                   "another type");
    expect_finding(set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 6, numbers),
                   "not allowed");
    expect_finding(cudnnBackendFinalize(made), "missing");
    cudnnBackendDestroyDescriptor(made);
    made = tensor(1, 3, false);
    expect_finding(set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, numbers), "final");
    expect_finding(cudnnBackendFinalize(made), "twice");
    cudnnBackendDestroyDescriptor(made);
}

static void graphs_are_read_before_they_are_final(void **state)
{
    part x = tensor(1, 3, false), y = tensor(2, 5, false), inner = tensor(3, 3, true);
    part wrong = relu(x, y), open = relu(x, inner), graph;
    cudnnHandle_t handle;

    (void)state;
    assert_int_equal(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    for (int i = 0; i < 2; i++) {
        graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
        set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
        set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            i == 0 ? &wrong : &open);
        expect_finding(cudnnBackendFinalize(graph),
                       i == 0 ? "changes sizes" : "inner tensor that nothing uses");
        cudnnBackendDestroyDescriptor(graph);
    }
    for (size_t i = 0; i < 5; i++)
        cudnnBackendDestroyDescriptor((part[]){wrong, open, x, y, inner}[i]);
    assert_int_equal(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attributes_are_held_against_the_rules),
        cmocka_unit_test(graphs_are_read_before_they_are_final),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
