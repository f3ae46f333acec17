#!/usr/bin/env python3
"""Runs public ONNX models here and in ONNX Runtime and compares the answers.

    check.py --sluice-run PROGRAM [--models DIR] [--threads N] [--json FILE] [NAME ...]

The rule of agreement: |got - want| <= atol + 1e-3 |want| with
atol = max(1e-6, 2e-5 max|want|, 8 x the spread between ONNX Runtime with and without its optimiser).
Models that make bytes of computed numbers, again and again, are allowed a share of max|want| (BYTES).
Needs numpy and onnxruntime.  Exit status 1 when an answer is wrong; a refused model is only reported.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnxruntime

RANDOM = numpy.random.default_rng(7)


def uniform(*shape, low=0.0, high=1.0):
    return RANDOM.uniform(low, high, shape).astype("f4")


def normal(*shape):
    return RANDOM.standard_normal(shape).astype("f4")


def ids(high, *shape):
    return RANDOM.integers(1, high, shape).astype("i8")


def lower(*shape):
    """Distances between atoms: small integers."""
    return RANDOM.integers(0, 6, shape).astype("i8")


# Inputs in the order of the model's; what is not here is made from the declared shapes.
INPUTS = {
    "arabic-encoder": lambda: [ids(30, 2, 12), numpy.ones((2, 12), bool)],
    "arabic-decoder": lambda: [ids(30, 2, 5), normal(2, 12, 256), numpy.ones((2, 12), bool), normal(2, 2, 256)],
    "atspm-decode": lambda: [RANDOM.uniform(0, 1, (5, 25))],
    "atspm-head": lambda: [normal(3, 8), normal(3, 8, 128), normal(3)],
    "basic-pitch": lambda: [uniform(1, 43844, 1, low=-0.3, high=0.3)],
    "dddd-ocr": lambda: [uniform(1, 1, 64, 160)],
    "eeg-seizure": lambda: [normal(2, 100, 32)],
    "lac": lambda: [ids(1000, 1, 14), numpy.array([0, 14], "i8")],
    "magika": lambda: [RANDOM.integers(0, 257, (3, 2048)).astype("i4")],
    "minilm-int8w": lambda: [ids(1000, 2, 16), numpy.ones((2, 16), "i8"), numpy.zeros((2, 16), "i8")],
    "mtcnn-onet": lambda: [uniform(2, 48, 48, 3, low=-1)],
    "mtcnn-pnet": lambda: [uniform(1, 60, 80, 3, low=-1)],
    "nsnet2-16k": lambda: [normal(1, 20, 161)],
    "open-nsfw": lambda: [uniform(1, 224, 224, 3, low=-100, high=100)],
    "oww-melspec": lambda: [uniform(1, 16000, low=-3000, high=3000)],
    "oww-embedding": lambda: [normal(2, 76, 32, 1)],
    "ppocr2-cls": lambda: [uniform(2, 3, 48, 192, low=-1)],
    "ppocr4-det": lambda: [normal(1, 3, 160, 160)],
    "ppocr4-rec": lambda: [uniform(1, 3, 48, 160, low=-1)],
    "ppocr6-small-det": lambda: [normal(1, 3, 160, 160)],
    "ppocr6-tiny-det": lambda: [normal(1, 3, 160, 160)],
    "ppocr6-tiny-rec": lambda: [uniform(2, 3, 48, 160, low=-1)],
    "rxnmap": lambda: [ids(20, 1, 11), ids(4, 1, 11), lower(1, 11, 11), ids(2, 1, 11)],
    "silero-v6-16k-seq": lambda: [uniform(3, 576, low=-0.2, high=0.2), normal(1, 1, 128) / 9, normal(1, 1, 128) / 9],
    "silero-v6-whisper": lambda: [uniform(3, 576, low=-0.2, high=0.2), normal(1, 1, 128) / 9, normal(1, 1, 128) / 9],
    "silero-v6": lambda: [uniform(1, 576, low=-0.2, high=0.2), numpy.zeros((2, 1, 128), "f4"), numpy.array(16000, "i8")],
    "surfaces-gbr": lambda: [uniform(4, 4)],
    "surfaces-validity": lambda: [uniform(4, 4)],
    "tashkeel-bilstm-int8": lambda: [ids(30, 1, 16)],
    "tashkeel-rawi-int8": lambda: [ids(30, 1, 16)],
}
# A state on the border of two bytes falls on either side for a rounding of 1e-7, and the next layers multiply that.
# One layer of these agrees to 3e-7 (and tests/device/cpu/test_recurrent_bytes.c with the formulas).  A sequence at a
# time: ONNX Runtime gives a sequence other numbers in a batch than alone.
BYTES = {"tashkeel-bilstm-int8": 0.03, "tashkeel-rawi-int8": 0.03}
TYPES = {"float": "f4", "double": "f8", "int64": "i8", "int32": "i4", "bool": "?", "float16": "f2", "uint8": "u1"}


def make_inputs(name, session):
    if name in INPUTS:
        return INPUTS[name]()
    made = []
    for port in session.get_inputs():
        dims = [d if isinstance(d, int) and d > 0 else 2 if i == 0 else 16 for i, d in enumerate(port.shape)]
        kind = TYPES[port.type[len("tensor("):-1]]
        made.append(uniform(*dims) if kind == "f4" else RANDOM.integers(0, 2, dims).astype(kind))
    return made


def open_session(path, optimised):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def reference(path, inputs, session):
    feeds = dict(zip([port.name for port in session.get_inputs()], inputs))
    return session.run(None, feeds), open_session(path, False).run(None, feeds)


def run_ours(program, path, threads, inputs, outputs):
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for i, array in enumerate(inputs):
            files.append(f"{folder}/in{i}.npy")
            numpy.save(files[-1], numpy.asarray(array, order="C"))
        done = subprocess.run([program, str(path), folder, str(threads), *files], capture_output=True, text=True,
                              check=False, timeout=300)
        if done.returncode != 0:
            return done.returncode, done.stderr.strip()[-300:]
        return 0, [numpy.load(f"{folder}/{i}.npy") for i in range(outputs)]


def compare(got, want, plain, share):
    """None, or what is wrong; and the largest error against what is allowed."""
    worst = 0.0
    for i, (ours, theirs, other) in enumerate(zip(got, want, plain)):
        theirs, other = numpy.asarray(theirs), numpy.asarray(other)
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"output {i} is {ours.dtype}{ours.shape}, should be {theirs.dtype}{theirs.shape}", worst
        if theirs.dtype.kind != "f":
            if not numpy.array_equal(ours, theirs):
                return f"output {i}: {numpy.count_nonzero(ours != theirs)} of {ours.size} differ", worst
            continue
        if theirs.size == 0:
            continue
        with numpy.errstate(invalid="ignore"):
            spread = numpy.nanmax(numpy.abs(theirs - other))
            atol = max(1e-6, share * numpy.nanmax(numpy.abs(theirs)), 8 * spread)
            error = numpy.abs(ours - theirs) / (atol + 1e-3 * numpy.abs(theirs))
        error[numpy.isnan(ours) & numpy.isnan(theirs)] = 0
        error[ours == theirs] = 0
        worst = max(worst, float(numpy.max(error))) if not numpy.isnan(error).any() else float("inf")
        if worst > 1:
            at = numpy.unravel_index(numpy.nanargmax(error), error.shape)
            return f"output {i}{list(map(int, at))} is {ours[at]}, should be {theirs[at]} (allowed {atol:.2g})", worst
    return None, worst


def check(options, path):
    name = path.stem
    session = open_session(path, True)
    inputs = make_inputs(name, session)
    want, plain = reference(path, inputs, session)
    code, got = run_ours(options.sluice_run, path, options.threads, inputs, len(want))
    if code == 3:
        return "refused", got
    if code != 0:
        return "failed", f"exit status {code}: {got}"
    wrong, worst = compare(got, want, plain, BYTES.get(name, 2e-5))
    return ("wrong", wrong) if wrong else ("right", f"largest error {worst:.3f} of what is allowed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice-run", required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    rows, count = [], {"right": 0, "wrong": 0, "failed": 0, "refused": 0}
    paths = [options.models / f"{name}.onnx" for name in options.names] or sorted(options.models.glob("*.onnx"))
    for path in paths:
        outcome, text = check(options, path)
        count[outcome] += 1
        rows.append({"model": path.stem, "outcome": outcome, "text": text})
        print(f"{path.stem:<24} {outcome:<8} {text}", flush=True)
    print(", ".join(f"{value} {key}" for key, value in count.items()))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return 1 if count["wrong"] or count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
