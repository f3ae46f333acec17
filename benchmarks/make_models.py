#!/usr/bin/env python3
"""Makes the networks that `./dev bench` measures: real shapes, random weights.

    make_models.py DIR [NAME ...]

Random weights, not constant ones: an engine that folds constant weights would look faster than it is.
Needs numpy and onnx.
"""
import pathlib
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Net:
    """A graph under construction.  Methods take and give value names."""

    def __init__(self, seed=1):
        self.random = numpy.random.default_rng(seed)
        self.nodes, self.weights, self.count = [], [], 0

    def weight(self, array, name=None):
        self.count += 1
        name = name or f"w{self.count}"
        self.weights.append(numpy_helper.from_array(numpy.ascontiguousarray(array), name))
        return name

    def ints(self, *values):
        return self.weight(numpy.array(values, dtype=numpy.int64))

    def scalar(self, value):
        return self.weight(numpy.float32(value))

    def node(self, op, *inputs, outputs=1, **attributes):
        self.count += 1
        names = [f"v{self.count}_{i}" if outputs > 1 else f"v{self.count}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=f"{op}_{self.count}", **attributes))
        return names if outputs > 1 else names[0]

    def normal(self, *shape, scale=None):
        fan_in = int(numpy.prod(shape[1:])) if len(shape) > 1 else shape[0]
        scale = scale if scale is not None else (2.0 / fan_in) ** 0.5
        return self.random.standard_normal(shape, dtype=numpy.float32) * numpy.float32(scale)

    def conv(self, x, cin, cout, k, stride=1, groups=1, pad=None, bias=True):
        pad = k // 2 if pad is None else pad
        inputs = [x, self.weight(self.normal(cout, cin // groups, k, k))]
        if bias:
            inputs.append(self.weight(self.normal(cout, scale=0.05)))
        return self.node("Conv", *inputs, kernel_shape=[k, k], strides=[stride] * 2, pads=[pad] * 4, group=groups)

    def norm(self, x, channels):
        r = self.random
        return self.node("BatchNormalization", x, self.weight(r.uniform(0.8, 1.2, channels).astype("f4")),
                         self.weight(self.normal(channels, scale=0.05)), self.weight(self.normal(channels, scale=0.05)),
                         self.weight(r.uniform(0.8, 1.2, channels).astype("f4")))

    def dense(self, x, cin, cout):
        return self.node("Gemm", x, self.weight(self.normal(cout, cin)), self.weight(self.normal(cout, scale=0.05)), transB=1)

    def linear(self, x, cin, cout):
        product = self.node("MatMul", x, self.weight(self.normal(cout, cin, scale=cin ** -0.5).T))
        return self.node("Add", product, self.weight(self.normal(cout, scale=0.05)))

    def silu(self, x):
        return self.node("Mul", x, self.node("Sigmoid", x))

    def relu6(self, x):
        return self.node("Clip", x, self.scalar(0), self.scalar(6))

    def save(self, path, inputs, output, output_shape):
        self.nodes[-1].output[0] = output
        graph = helper.make_graph(
            self.nodes, path.stem,
            [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, output_shape)], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        onnx.save(model, str(path))


def image(size=224):
    return [("x", TensorProto.FLOAT, ["N", 3, size, size])]


def resnet50(path):
    n = Net()
    x = n.node("Relu", n.norm(n.conv("x", 3, 64, 7, 2, bias=False), 64))
    x = n.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    cin = 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            y = n.node("Relu", n.norm(n.conv(x, cin, width, 1, bias=False), width))
            y = n.node("Relu", n.norm(n.conv(y, width, width, 3, stride, bias=False), width))
            y = n.norm(n.conv(y, width, width * 4, 1, bias=False), width * 4)
            if block == 0:
                x = n.norm(n.conv(x, cin, width * 4, 1, stride, bias=False), width * 4)
            x = n.node("Relu", n.node("Add", y, x))
            cin = width * 4
    n.dense(n.node("Flatten", n.node("GlobalAveragePool", x), axis=1), 2048, 1000)
    n.save(path, image(), "y", ["N", 1000])


def mobilenetv2(path):
    n = Net()
    x = n.relu6(n.norm(n.conv("x", 3, 32, 3, 2, bias=False), 32))
    cin = 32
    for t, c, repeats, s in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(repeats):
            stride, hidden, y = (s if i == 0 else 1), cin * t, x
            if t != 1:
                y = n.relu6(n.norm(n.conv(y, cin, hidden, 1, bias=False), hidden))
            y = n.relu6(n.norm(n.conv(y, hidden, hidden, 3, stride, groups=hidden, bias=False), hidden))
            y = n.norm(n.conv(y, hidden, c, 1, bias=False), c)
            x = n.node("Add", x, y) if stride == 1 and cin == c else y
            cin = c
    x = n.relu6(n.norm(n.conv(x, 320, 1280, 1, bias=False), 1280))
    n.dense(n.node("Flatten", n.node("GlobalAveragePool", x), axis=1), 1280, 1000)
    n.save(path, image(), "y", ["N", 1000])


def squeezenet(path):
    n = Net()

    def fire(x, cin, squeeze, expand):
        s = n.node("Relu", n.conv(x, cin, squeeze, 1))
        return n.node("Concat", n.node("Relu", n.conv(s, squeeze, expand, 1)), n.node("Relu", n.conv(s, squeeze, expand, 3)), axis=1)

    def pool(x):
        return n.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)

    x = pool(n.node("Relu", n.conv("x", 3, 64, 3, 2, pad=0)))
    x = pool(fire(fire(x, 64, 16, 64), 128, 16, 64))
    x = pool(fire(fire(x, 128, 32, 128), 256, 32, 128))
    x = fire(fire(fire(fire(x, 256, 48, 192), 384, 48, 192), 384, 64, 256), 512, 64, 256)
    x = n.node("GlobalAveragePool", n.node("Relu", n.conv(x, 512, 1000, 1)))
    n.node("Flatten", x, axis=1)
    n.save(path, image(), "y", ["N", 1000])


def densenet121(path):
    n = Net()
    x = n.node("Relu", n.norm(n.conv("x", 3, 64, 7, 2, bias=False), 64))
    x = n.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, layers in enumerate((6, 12, 24, 16)):
        for _ in range(layers):
            y = n.conv(n.node("Relu", n.norm(x, channels)), channels, 128, 1, bias=False)
            y = n.conv(n.node("Relu", n.norm(y, 128)), 128, 32, 3, bias=False)
            x = n.node("Concat", x, y, axis=1)
            channels += 32
        x = n.node("Relu", n.norm(x, channels))
        if stage < 3:
            x = n.conv(x, channels, channels // 2, 1, bias=False)
            x = n.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
            channels //= 2
    n.dense(n.node("Flatten", n.node("GlobalAveragePool", x), axis=1), channels, 1000)
    n.save(path, image(), "y", ["N", 1000])


def yolo_n320(path):
    """The body and heads of a YOLOv8-n-like detector at 320 x 320."""
    n = Net()

    def cbs(x, cin, cout, k=1, stride=1):
        return n.silu(n.conv(x, cin, cout, k, stride))

    def c2f(x, cin, cout, repeats, shortcut):
        half = cout // 2
        parts = n.node("Split", cbs(x, cin, cout), n.ints(half, half), outputs=2, axis=1)
        for _ in range(repeats):
            y = cbs(cbs(parts[-1], half, half, 3), half, half, 3)
            parts.append(n.node("Add", parts[-1], y) if shortcut else y)
        return cbs(n.node("Concat", *parts, axis=1), half * (2 + repeats), cout)

    def up(x):
        return n.node("Resize", x, "", n.weight(numpy.array([1, 1, 2, 2], "f4")), mode="nearest",
                      coordinate_transformation_mode="asymmetric", nearest_mode="floor")

    def pool5(x):
        return n.node("MaxPool", x, kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4)

    x = cbs(cbs("x", 3, 16, 3, 2), 16, 32, 3, 2)
    x = cbs(c2f(x, 32, 32, 1, True), 32, 64, 3, 2)
    p3 = c2f(x, 64, 64, 2, True)
    p4 = c2f(cbs(p3, 64, 128, 3, 2), 128, 128, 2, True)
    x = c2f(cbs(p4, 128, 256, 3, 2), 256, 256, 1, True)
    s = cbs(x, 256, 128)
    a = pool5(s)
    b = pool5(a)
    p5 = cbs(n.node("Concat", s, a, b, pool5(b), axis=1), 512, 256)
    t4 = c2f(n.node("Concat", up(p5), p4, axis=1), 384, 128, 1, False)
    t3 = c2f(n.node("Concat", up(t4), p3, axis=1), 192, 64, 1, False)
    u4 = c2f(n.node("Concat", cbs(t3, 64, 64, 3, 2), t4, axis=1), 192, 128, 1, False)
    u5 = c2f(n.node("Concat", cbs(u4, 128, 128, 3, 2), p5, axis=1), 384, 256, 1, False)
    heads = []
    for x, c, size in ((t3, 64, 40), (u4, 128, 20), (u5, 256, 10)):
        box = n.conv(cbs(cbs(x, c, 64, 3), 64, 64, 3), 64, 64, 1)
        kind = n.conv(cbs(cbs(x, c, 80, 3), 80, 80, 3), 80, 80, 1)
        heads.append(n.node("Reshape", n.node("Concat", box, kind, axis=1), n.ints(0, 144, size * size)))
    x = n.node("Concat", *heads, axis=2)
    box, kind = n.node("Split", x, n.ints(64, 80), outputs=2, axis=1)
    box = n.node("Transpose", n.node("Reshape", box, n.ints(0, 4, 16, 2100)), perm=[0, 2, 1, 3])
    box = n.conv(n.node("Softmax", box, axis=1), 16, 1, 1, bias=False)
    box = n.node("Reshape", box, n.ints(0, 4, 2100))
    n.node("Concat", box, n.node("Sigmoid", kind), axis=1)
    n.save(path, image(320), "y", ["N", 84, 2100])


def encoder_layer(n, x, width, heads, hidden, mask):
    """One layer after the fashion of BERT, spelled out as exporters do: attention in small operators, GELU by Erf."""
    size = width // heads

    def split(y, perm):
        return n.node("Transpose", n.node("Reshape", y, n.ints(0, 0, heads, size)), perm=perm)

    q = split(n.linear(x, width, width), [0, 2, 1, 3])
    k = split(n.linear(x, width, width), [0, 2, 3, 1])
    v = split(n.linear(x, width, width), [0, 2, 1, 3])
    scores = n.node("Div", n.node("MatMul", q, k), n.scalar(size ** 0.5))
    if mask:
        scores = n.node("Add", scores, mask)
    y = n.node("MatMul", n.node("Softmax", scores, axis=-1), v)
    y = n.node("Reshape", n.node("Transpose", y, perm=[0, 2, 1, 3]), n.ints(0, 0, width))
    x = layer_norm(n, n.node("Add", n.linear(y, width, width), x), width)
    y = n.linear(x, width, hidden)
    erf = n.node("Add", n.node("Erf", n.node("Div", y, n.scalar(2 ** 0.5))), n.scalar(1))
    y = n.node("Mul", n.node("Mul", y, erf), n.scalar(0.5))
    return layer_norm(n, n.node("Add", n.linear(y, hidden, width), x), width)


def layer_norm(n, x, width):
    return n.node("LayerNormalization", x, n.weight(n.random.uniform(0.8, 1.2, width).astype("f4")),
                  n.weight(n.normal(width, scale=0.05)), axis=-1, epsilon=1e-12)


def bert(path, width, heads, hidden, layers):
    n = Net()
    vocabulary = 30522
    words = n.node("Gather", n.weight(n.normal(vocabulary, width, scale=0.05)), "input_ids")
    kinds = n.node("Gather", n.weight(n.normal(2, width, scale=0.05)), "token_type_ids")
    x = n.node("Add", n.node("Add", words, kinds), n.weight(n.normal(1, 128, width, scale=0.05)))
    x = layer_norm(n, x, width)
    mask = n.node("Unsqueeze", n.node("Cast", "attention_mask", to=TensorProto.FLOAT), n.ints(1, 2))
    mask = n.node("Mul", n.node("Sub", n.scalar(1), mask), n.scalar(-10000))
    for _ in range(layers):
        x = encoder_layer(n, x, width, heads, hidden, mask)
    ids = [(name, TensorProto.INT64, ["N", 128]) for name in ("input_ids", "attention_mask", "token_type_ids")]
    n.save(path, ids, "y", ["N", 128, width])


def minilm_128(path):
    bert(path, 384, 12, 1536, 6)


def bert_base_128(path):
    bert(path, 768, 12, 3072, 12)


def vit_s(path):
    """A small vision transformer: 196 patches, 6 layers of width 384."""
    n = Net()
    x = n.conv("x", 3, 384, 16, 16, pad=0)
    x = n.node("Transpose", n.node("Reshape", x, n.ints(0, 384, 196)), perm=[0, 2, 1])
    x = n.node("Add", x, n.weight(n.normal(1, 196, 384, scale=0.05)))
    for _ in range(6):
        x = encoder_layer(n, x, 384, 6, 1536, None)
    n.dense(n.node("ReduceMean", x, axes=[1], keepdims=0), 384, 1000)
    n.save(path, image(), "y", ["N", 1000])


def unet_256(path, widths=(16, 32, 64, 128, 256)):
    """After U-Net, 256 x 256: two convolutions a level, up by ConvTranspose, joined with what came down."""
    n = Net()

    def level(x, cin, cout):
        for channels in (cin, cout):
            x = n.node("Relu", n.norm(n.conv(x, channels, cout, 3, bias=False), cout))
        return x

    x, cin, kept = "x", 3, []
    for width in widths[:-1]:
        kept.append(level(x, cin, width))
        x = n.node("MaxPool", kept[-1], kernel_shape=[2, 2], strides=[2, 2])
        cin = width
    x = level(x, cin, widths[-1])
    for width, skip in zip(reversed(widths[:-1]), reversed(kept)):
        weights = n.weight(n.normal(2 * width, width, 2, 2, scale=width ** -0.5))
        x = n.node("ConvTranspose", x, weights, n.weight(n.normal(width, scale=0.05)), kernel_shape=[2, 2], strides=[2, 2])
        x = level(n.node("Concat", skip, x, axis=1), 2 * width, width)
    n.node("Sigmoid", n.conv(x, widths[0], 2, 1))
    n.save(path, image(256), "y", ["N", 2, 256, 256])


def lstm_tagger(path, vocabulary=10000, embedding=128, hidden=128, tags=20, tokens=64):
    """Two bidirectional LSTMs over a sentence, a tag for each of its tokens."""
    n = Net()
    x = n.node("Gather", n.weight(n.normal(vocabulary, embedding, scale=1)), "ids")
    x, width = n.node("Transpose", x, perm=[1, 0, 2]), embedding
    for _ in range(2):
        x = n.node("LSTM", x, *(n.weight(n.normal(2, *shape, scale=hidden ** -0.5))
                                for shape in ((4 * hidden, width), (4 * hidden, hidden), (8 * hidden,))),
                   direction="bidirectional", hidden_size=hidden)
        x, width = n.node("Reshape", n.node("Transpose", x, perm=[0, 2, 1, 3]), n.ints(0, 0, 2 * hidden)), 2 * hidden
    n.linear(n.node("Transpose", x, perm=[1, 0, 2]), width, tags)
    n.save(path, [("ids", TensorProto.INT64, ["N", tokens])], "y", ["N", tokens, tags])


def mlp(path, sizes=(784, 256, 256, 10)):
    n = Net()
    x = "x"
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        x = n.dense(x, a, b)
        if i + 2 < len(sizes):
            x = n.node("Relu", x)
    n.save(path, [("x", TensorProto.FLOAT, ["N", sizes[0]])], "y", ["N", sizes[-1]])


def mlp_16(path):
    mlp(path, (16, 64, 10))


def identity(path):
    """Any number of floats there and back: for the cost of the wire."""
    n = Net()
    n.node("Identity", "x")
    n.save(path, [("x", TensorProto.FLOAT, ["N", "W"])], "y", ["N", "W"])


MODELS = {f.__name__: f for f in (resnet50, mobilenetv2, squeezenet, densenet121, yolo_n320, minilm_128, vit_s, unet_256,
                                   lstm_tagger, mlp, mlp_16, identity)}
ON_DEMAND = {"bert_base_128": bert_base_128}  # 440 MB: made only by name


def to_half(source, path):
    """The same network in half precision, inputs and outputs too."""
    model = onnx.load(source)
    graph = model.graph
    # These stay what they are, whatever the network computes in.
    kept = {name for node in graph.node if node.op_type == "Resize" for name in node.input[1:3]}
    for weight in graph.initializer:
        if weight.data_type == TensorProto.FLOAT and weight.name not in kept:
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).astype("f2"), weight.name))
    for port in [*graph.input, *graph.output, *graph.value_info]:
        if port.type.tensor_type.elem_type == TensorProto.FLOAT:
            port.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    onnx.save(model, path)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or MODELS:
        path = folder / f"{name}.onnx"
        if not path.exists():
            {**MODELS, **ON_DEMAND}[name](path)


if __name__ == "__main__":
    main()
