"""Models made on the spot, as files of a repository: small ones, slow ones, hungry ones, broken ones."""
import os

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def _graph(nodes, columns, constants):
    ports = [helper.make_tensor_value_info(name, FLOAT, ["n", columns]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def times(factor, columns=4):
    """y = factor * x"""
    return _graph([helper.make_node("Mul", ["x", "k"], ["y"])], columns,
                  {"k": np.array(factor, np.float32)})


def sum_of(inputs, columns=4):
    """y = x0 + x1 + …"""
    names = [f"x{i}" for i in range(inputs)]
    ports = [helper.make_tensor_value_info(name, FLOAT, ["n", columns]) for name in [*names, "y"]]
    graph = helper.make_graph([helper.make_node("Sum", names, ["y"])], "g", ports[:-1], ports[-1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def slow(layers=48, width=512):
    """A chain of products with one weight: 2 * width * width * layers operations a row."""
    nodes, value = [], "x"
    for i in range(layers):
        nodes.append(helper.make_node("MatMul", [value, "w"], [f"p{i}"]))
        value = "y" if i == layers - 1 else f"r{i}"
        nodes.append(helper.make_node("Relu", [f"p{i}"], [value]))
    weight = np.random.default_rng(1).standard_normal((width, width)).astype(np.float32) / width ** 0.5
    return _graph(nodes, width, {"w": weight})


def hungry(columns, width):
    """An outer product and its maximum: columns * width * 4 bytes a row that neither input nor output shows."""
    nodes = [helper.make_node("Unsqueeze", ["x", "last"], ["column"]),
             helper.make_node("Mul", ["column", "row"], ["wide"]),
             helper.make_node("Sin", ["wide"], ["waves"]),
             helper.make_node("ReduceMax", ["waves"], ["y"], axes=[2], keepdims=0)]
    return _graph(nodes, columns, {"last": np.array([2], np.int64),
                                   "row": np.linspace(0, 1, width, dtype=np.float32).reshape(1, 1, width)})


def neighbour(distance, columns=4):
    """y[i] = x[i] + x[i + distance]: rows of a batch that see each other, though the first two do not."""
    nodes = [helper.make_node("Pad", ["x", "pads"], ["longer"]),
             helper.make_node("Slice", ["longer", "start", "end", "axis"], ["moved"]),
             helper.make_node("Add", ["x", "moved"], ["y"])]
    return _graph(nodes, columns, {"pads": np.array([0, 0, distance, 0], np.int64),
                                   "start": np.array([distance], np.int64),
                                   "end": np.array([2 ** 31], np.int64), "axis": np.array([0], np.int64)})


def branches(most_rows, columns=4):
    """y = x for batches of up to so many rows, 2x for larger ones."""
    def branch(name, factor):
        return helper.make_graph([helper.make_node("Mul", ["x", "k" + name], ["y" + name])], name, [],
                                 [helper.make_tensor_value_info("y" + name, FLOAT, ["n", columns])],
                                 [numpy_helper.from_array(np.array(factor, np.float32), "k" + name)])
    nodes = [helper.make_node("Shape", ["x"], ["shape"]),
             helper.make_node("Gather", ["shape", "first"], ["count"]),
             helper.make_node("Greater", ["count", "most"], ["many"]),
             helper.make_node("If", ["many"], ["y"], then_branch=branch("t", 2), else_branch=branch("e", 1))]
    return _graph(nodes, columns, {"first": np.array(0, np.int64), "most": np.array(most_rows, np.int64)})


def product(seed, width=256, layers=1):
    """y = x W1 W2 …: weights of its own, width * width * layers * 4 bytes of them."""
    nodes, constants, value = [], {}, "x"
    for i, weight in enumerate(product_weights(seed, width, layers)):
        constants[f"w{i}"] = weight
        out = "y" if i == layers - 1 else f"p{i}"
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [out]))
        value = out
    return _graph(nodes, width, constants)


def product_weights(seed, width=256, layers=1):
    random = np.random.default_rng(seed)
    return [(random.standard_normal((width, width)) / width ** 0.5).astype(np.float32) for _ in range(layers)]


def waves(channels=8):
    """Two convolutions over rows of open length: x[1, 1, m] to y[1, 1, m], channels * m * 4 bytes between."""
    nodes = [helper.make_node("Conv", ["x", "a"], ["wide"], pads=[1, 1]), helper.make_node("Relu", ["wide"], ["bent"]),
             helper.make_node("Conv", ["bent", "b"], ["y"], pads=[1, 1])]
    ports = [helper.make_tensor_value_info(name, FLOAT, [1, 1, "m"]) for name in ("x", "y")]
    weights = {"a": np.full((channels, 1, 3), 0.25, np.float32), "b": np.full((1, channels, 3), 0.125, np.float32)}
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:],
                              [numpy_helper.from_array(value, name) for name, value in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def truths():
    """y = 1.0 where x holds, over rows of four BOOL."""
    ports = [helper.make_tensor_value_info(name, kind, ["n", 4]) for name, kind in (("x", TensorProto.BOOL), ("y", FLOAT))]
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=FLOAT)], "g", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def spread():
    """y = x of one element, spread over the shape that the request gives."""
    ports = [helper.make_tensor_value_info("x", FLOAT, [1]),
             helper.make_tensor_value_info("shape", TensorProto.INT64, ["k"]),
             helper.make_tensor_value_info("y", FLOAT, None)]
    graph = helper.make_graph([helper.make_node("Expand", ["x", "shape"], ["y"])], "g", ports[:2], ports[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def softmax(axis, columns=4):
    return _graph([helper.make_node("Softmax", ["x"], ["y"], axis=axis)], columns, {})


def conv(**attributes):
    """A convolution over fixed shapes, with attributes that may be nonsense."""
    ports = [helper.make_tensor_value_info("x", FLOAT, [1, 1, 4, 4]), helper.make_tensor_value_info("y", FLOAT, None)]
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], **attributes)], "g", ports[:1], ports[1:],
                              [numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write(repository, name, model, config="", version=1):
    """Puts a model there whole: the version appears by a rename."""
    folder = os.path.join(repository, name)
    os.makedirs(folder, exist_ok=True)
    if config:
        with open(os.path.join(folder, "config.pbtxt"), "w") as file:
            file.write(config)
    partial = os.path.join(folder, ".partial")
    os.makedirs(partial)
    with open(os.path.join(partial, "model.onnx"), "wb") as file:
        file.write(model if isinstance(model, bytes) else model.SerializeToString())
    os.rename(partial, os.path.join(folder, str(version)))
