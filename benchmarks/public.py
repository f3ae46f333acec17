#!/usr/bin/env python3
"""Public models side by side: sluice and ONNX Runtime take turns on the same inputs, best median of the rounds.

    public.py --sluice-bench PROGRAM [--models DIR] [--rounds N] [--seconds S] [--threads 1,2] [--keep FILE] [--avx2]
              [NAME ...]

Inputs are those of tests/models/check.py: shapes and values that make sense for the model.  Each measurement is a
process of its own.  ONNX Runtime is asked with bound inputs, which spares it the Python binding's
copies.  With --keep what was measured is kept in a file: a later run takes over what it does not measure itself, so
that a machine shared with others can be asked in slices.  Printed last: the models, slowest against ONNX Runtime
first, and the geometric mean.  "paired" is the median of the rounds' own ratios: where a host changes its speed between
rounds, the best rounds of both need not have been alike.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import engines

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "models"))


def worker(path, folder, threads, seconds):
    """ONNX Runtime's turn, in a process of its own."""
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = {port.name: numpy.load(f"{folder}/{i}.npy") for i, port in enumerate(session.get_inputs())}
    bound = session.io_binding()
    for name, array in feeds.items():
        bound.bind_cpu_input(name, array)
    for port in session.get_outputs():
        bound.bind_output(port.name)
    try:
        for _ in range(2):  # an output kept from the first run is checked in the second
            session.run_with_iobinding(bound)
    except RuntimeError:  # the model declares another rank than it gives
        return engines.measure(lambda: session.run(None, feeds), seconds)
    return engines.measure(lambda: session.run_with_iobinding(bound), seconds)


def write_inputs(path, folder):
    """The inputs as ONNX Runtime's worker and as sluice-bench read them.  The words for the latter's command line."""
    import check
    import numpy

    session = check.open_session(path, True)
    words = []
    for i, (port, array) in enumerate(zip(session.get_inputs(), check.make_inputs(path.stem, session))):
        array = numpy.asarray(array, order="C")
        numpy.save(f"{folder}/{i}.npy", array)
        array.tofile(f"{folder}/{i}.raw")
        words += ["--shape", f"{port.name}:{'x'.join(map(str, array.shape))}", "--data", f"{port.name}:{folder}/{i}.raw"]
    return words


def compare(options, path, threads):
    best, pairs = {}, []
    with tempfile.TemporaryDirectory() as folder:
        words = write_inputs(path, folder)
        commands = {
            "sluice": [options.sluice_bench, str(path), str(threads), "1", str(options.seconds), *words],
            "ort": [sys.executable, __file__, "--worker", str(path), folder, str(threads), str(options.seconds)]}
        for _ in range(options.rounds):
            found = {engine: engines.run_process(command) for engine, command in commands.items()}
            for engine, result in found.items():
                if result and (engine not in best or result["median_ms"] < best[engine]["median_ms"]):
                    best[engine] = result
            if all(found.values()):
                pairs.append(found["sluice"]["median_ms"] / found["ort"]["median_ms"])
    return {**best, "paired": statistics.median(pairs)} if pairs else best


def line_of(row):
    if "sluice" not in row or "ort" not in row:
        return f"{row['model']:<24}{row['threads']:>4}  failed: {' '.join({'sluice', 'ort'} - row.keys())}"
    return (f"{row['model']:<24}{row['threads']:>4}{row['sluice']['median_ms']:>11.4f}{row['ort']['median_ms']:>11.4f}"
            f"{ratio_of(row):>7.2f}{row.get('paired', float('nan')):>8.2f}")


def ratio_of(row):
    return row["sluice"]["median_ms"] / row["ort"]["median_ms"] if "sluice" in row and "ort" in row else float("inf")


def measure_all(options, kept):
    paths = [options.models / f"{name}.onnx" for name in options.names] or sorted(options.models.glob("*.onnx"))
    if not paths:
        sys.exit(f"public: no models in {options.models}")
    for path in paths:
        for threads in options.threads:
            row = {"model": path.stem, "threads": threads, **compare(options, path, threads)}
            kept[path.stem, threads] = row
            print(line_of(row), flush=True)


def report(rows):
    print(f"\nslowest first\n{'model':<24}{'thr':>4}{'sluice ms':>11}{'ort ms':>11}{'ratio':>7}{'paired':>8}")
    for row in sorted(rows, key=ratio_of, reverse=True):
        print(line_of(row))
    ratios = [ratio_of(row) for row in rows if ratio_of(row) != float("inf")]
    over = sum(ratio > 1.1 for ratio in ratios)
    print(f"geometric mean against ort: {engines.geomean(ratios):.3f}, worst {max(ratios, default=float('nan')):.2f}, "
          f"{over} over 1.1, n={len(ratios)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice-bench", default="sluice-bench")
    parser.add_argument("--models", type=pathlib.Path, default=HERE.parent / ".cache" / "open-models")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--threads", type=lambda t: [int(x) for x in t.split(",")], default=[1, 2])
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--avx2", action="store_true", help="as a processor without AVX-512 (avx2_only.c)")
    parser.add_argument("--worker", nargs=4, metavar=("MODEL", "FOLDER", "THREADS", "SECONDS"))
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.worker:
        path, folder, threads, seconds = options.worker
        print(json.dumps(worker(path, folder, int(threads), float(seconds))))
        return
    if options.avx2:
        engines.pretend_avx2(options.sluice_bench)
    kept = {}
    if options.keep and options.keep.exists():
        kept = {(row["model"], row["threads"]): row for row in json.loads(options.keep.read_text())}
    measure_all(options, kept)
    report(list(kept.values()))
    if options.keep:
        options.keep.write_text(json.dumps(list(kept.values()), indent=1))


if __name__ == "__main__":
    main()
