#!/usr/bin/env python3
"""Makes small networks of the kinds that are served most and runs sluice-rows over them.

    rows.py SLUICE_ROWS [OPTION ...]

Layers like those of the measured networks (benchmarks/make_models.py), a few of each.  Needs numpy and onnx.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy
from onnx import TensorProto

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
from make_models import Net, encoder_layer, image, layer_norm  # noqa: E402


def convolutions(path):
    """Every kernel for Conv: first layer, Winograd of both sizes, depthwise, groups across blocks, wide, strided."""
    n = Net()
    x = n.relu6(n.norm(n.conv("x", 3, 24, 3, 2), 24))
    x = n.silu(n.conv(x, 24, 40, 3))
    y = n.conv(n.conv(x, 40, 40, 3, groups=40), 40, 40, 1)
    x = n.node("Relu", n.node("Add", x, y))
    x = n.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = n.node("Concat", n.conv(x, 40, 24, 3, groups=4), n.conv(x, 40, 17, 5, pad=2), x, axis=1)
    x = n.node("Add", x, n.conv(n.node("Relu", n.norm(x, 81)), 81, 81, 1))  # normalized as it is loaded
    wide = n.weight(n.normal(16, 81, 3, 31))
    x = n.node("Relu", n.node("Conv", x, wide, kernel_shape=[3, 31], pads=[1, 15, 1, 15]))
    up = n.node("ConvTranspose", x, n.weight(n.normal(16, 20, 2, 2)), kernel_shape=[2, 2], strides=[2, 2])
    few = n.node("ConvTranspose", n.conv(x, 16, 6, 3), n.weight(n.normal(6, 2, 3, 3)), kernel_shape=[3, 3],
                 strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])  # in plain layout, phase by phase
    x = n.node("Concat", up, n.node("MaxPool", few, kernel_shape=[3, 3], pads=[1] * 4), axis=1)
    x = n.node("Resize", x, "", n.weight(numpy.array([1, 1, 2, 2], "f4")), mode="linear")
    x = n.node("AveragePool", n.conv(x, 22, 64, 3, 2), kernel_shape=[2, 2], strides=[2, 2])
    x = n.norm(n.conv(x, 64, 320, 3, 2), 320)
    x = n.node("Relu", n.conv(x, 320, 320, 3))
    n.node("Softmax", n.dense(n.node("Flatten", n.node("GlobalAveragePool", x), axis=1), 320, 10), axis=-1)
    n.save(path, image(80), "y", ["N", 10])


def pools(path):
    """Pools behind convolutions, as one step with them and by themselves."""
    n = Net()
    x = n.node("Relu", n.norm(n.conv("x", 3, 40, 7, 2), 40))
    x = n.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = n.node("AveragePool", n.silu(n.conv(x, 40, 24, 5, pad=2)), kernel_shape=[2, 2], strides=[2, 2])
    y = n.node("Relu", n.conv(x, 24, 24, 3))
    x = n.node("Concat", y, n.node("MaxPool", y, kernel_shape=[3, 3], pads=[1] * 4), axis=1)
    n.node("Flatten", n.node("GlobalAveragePool", x), axis=1)
    n.save(path, image(160), "y", ["N", 48])


def shuffles(path):
    """Shuffles of channels: folded into the convolutions around them (ShuffleNet), and a step with Concat and Split."""
    n = Net()

    def shuffle(x, channels, groups):
        x = n.node("Reshape", x, n.ints(0, groups, channels // groups, 15, 15))
        return n.node("Reshape", n.node("Transpose", x, perm=[0, 2, 1, 3, 4]), n.ints(0, channels, 15, 15))

    x = n.node("Relu", n.conv("x", 3, 68, 3))
    y = shuffle(n.node("Relu", n.conv(x, 68, 36, 1, groups=2)), 36, 2)
    y = n.conv(n.conv(y, 36, 36, 3, groups=36), 36, 68, 1, groups=2)
    x = n.node("Relu", n.node("Add", x, y))
    x = n.conv(shuffle(n.conv(x, 68, 42, 1), 42, 3), 42, 42, 3, groups=42)
    for _ in range(2):
        kept, x = n.node("Split", x, n.ints(21, 21), outputs=2, axis=1)
        x = shuffle(n.node("Concat", kept, n.node("Relu", n.conv(x, 21, 21, 1)), axis=1), 42, 2)
    n.node("Flatten", n.node("GlobalAveragePool", x), axis=1)
    n.save(path, image(15), "y", ["N", 42])


def encoder(path):
    n = Net()
    words = n.node("Gather", n.weight(n.normal(100, 96, scale=0.5)), "ids")
    x = layer_norm(n, n.node("Add", words, n.weight(n.normal(1, 19, 96))), 96)
    mask = n.node("Unsqueeze", n.node("Cast", "mask", to=TensorProto.FLOAT), n.ints(1, 2))
    mask = n.node("Mul", n.node("Sub", n.scalar(1), mask), n.scalar(-10000))
    for _ in range(2):
        x = encoder_layer(n, x, 96, 3, 200, mask)
    n.node("ReduceMean", x, axes=[1], keepdims=0)
    n.save(path, [(name, TensorProto.INT64, ["N", 19]) for name in ("ids", "mask")], "y", ["N", 96])


def audio(path):
    """One dimension: depthwise and dilated convolutions, a recurrence, products of integers."""
    n = Net()

    def conv(x, cin, cout, k, groups=1, dilation=1):
        pad = k // 2 * dilation
        return n.node("Conv", x, n.weight(n.normal(cout, cin // groups, k)), kernel_shape=[k], pads=[pad] * 2,
                      dilations=[dilation], group=groups)

    x = n.node("Relu", conv("x", 1, 32, 9))
    x = n.node("Add", x, conv(n.node("Tanh", conv(x, 32, 32, 9, groups=32)), 32, 32, 3, dilation=17))
    x = n.node("Transpose", x, perm=[2, 0, 1])
    w, r = n.weight(n.normal(2, 4 * 24, 32)), n.weight(n.normal(2, 4 * 24, 24))
    x = n.node("LSTM", x, w, r, outputs=3, hidden_size=24, direction="bidirectional")[0]
    x = n.node("Transpose", x, perm=[2, 0, 1, 3])
    x = n.node("Reshape", x, n.ints(0, 70, 48))
    q = n.node("QuantizeLinear", x, n.scalar(0.01), n.weight(numpy.uint8(7)))
    b = n.weight(n.random.integers(-127, 128, (48, 37)).astype("i1"))
    x = n.node("MatMulInteger", q, b, n.weight(numpy.uint8(7)))
    n.node("Mul", n.node("Cast", x, to=TensorProto.FLOAT), n.scalar(0.001))
    n.save(path, [("x", TensorProto.FLOAT, ["N", 1, 70])], "y", ["N", 70, 37])


def quantized(path):
    """Convolutions of integers, with one scale for all and one for each channel."""
    n = Net()
    u8, i8 = (lambda v: n.weight(numpy.uint8(v))), (lambda v: n.weight(numpy.int8(v)))

    def weight(*shape):
        return n.weight(n.random.integers(-127, 128, shape).astype("i1"))

    x = n.node("QuantizeLinear", "x", n.scalar(0.01), u8(128))
    x = n.node("QLinearConv", x, n.scalar(0.01), u8(128), weight(20, 3, 3, 3), n.scalar(0.02), i8(0), n.scalar(0.05),
               u8(110), n.weight(n.random.integers(-500, 500, 20).astype("i4")), kernel_shape=[3, 3], pads=[1] * 4)
    scales = n.weight(n.random.uniform(0.01, 0.03, 20).astype("f4"))
    x = n.node("QLinearConv", x, n.scalar(0.05), u8(110), weight(20, 1, 5, 5), scales, i8(0), n.scalar(0.1), u8(100),
               kernel_shape=[5, 5], strides=[2, 2], pads=[2] * 4, group=20)
    x = n.node("ConvInteger", x, weight(33, 20, 1, 1), u8(100), kernel_shape=[1, 1])
    n.node("Mul", n.node("Cast", x, to=TensorProto.FLOAT), n.scalar(0.001))
    n.save(path, image(15), "y", ["N", 33, 8, 8])


def mlp(path):
    n = Net()
    n.dense(n.node("Relu", n.dense(n.node("Relu", n.dense("x", 77, 300)), 300, 65)), 65, 10)
    n.save(path, [("x", TensorProto.FLOAT, ["N", 77])], "y", ["N", 10])


def main():
    with tempfile.TemporaryDirectory(prefix="sluice-rows-") as folder:
        paths = []
        for make in (convolutions, pools, shuffles, encoder, audio, quantized, mlp):
            paths.append(pathlib.Path(folder) / f"{make.__name__}.onnx")
            make(paths[-1])
        return subprocess.run([*sys.argv[1:], *map(str, paths)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
