#!/usr/bin/env python3
"""Engine times side by side: sluice, ONNX Runtime and OpenVINO take turns, best median of the rounds.

    engines.py --sluice-bench PROGRAM [--models DIR] [--rounds N] [--seconds S] [--threads 1,2]
               [--batches 1,8] [--json FILE] [--peers ort,ov] [--avx2] [NAME ...]

With --avx2 all of them believe that the processor has no AVX-512 (avx2_only.c).  Each measurement is a process of its own, so that no engine warms or fragments another's memory.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
FIGURE_MODELS = ["resnet50", "mobilenetv2", "squeezenet", "densenet121", "yolo_n320", "minilm_128", "vit_s", "unet_256",
                 "lstm_tagger", "mlp"]


def feeds(model_inputs, batch):
    import numpy

    random = numpy.random.default_rng(0)
    result = {}
    for name, shape, is_float in model_inputs:
        dims = [d if isinstance(d, int) and d > 0 else (batch if i == 0 else 16) for i, d in enumerate(shape)]
        result[name] = random.random(dims, dtype="f4") if is_float else random.integers(0, 2, dims, dtype="i8")
    return result


def measure(run, seconds):
    run()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) * 1e3)
    return {"median_ms": statistics.median(times), "min_ms": min(times)}


def worker_ort(path, threads, batch, seconds):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = feeds([(i.name, i.shape, "float" in i.type) for i in session.get_inputs()], batch)
    return measure(lambda: session.run(None, inputs), seconds)


def worker_ov(path, threads, batch, seconds):
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    inputs = feeds([(i.any_name, [d.get_length() if d.is_static else -1 for d in i.partial_shape],
                     "f" in i.element_type.to_string()) for i in model.inputs], batch)
    model.reshape({name: list(value.shape) for name, value in inputs.items()})
    compiled = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1,
                                                 "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()
    return measure(lambda: request.infer(inputs), seconds)


WORKERS = {"ort": worker_ort, "ov": worker_ov}


def run_process(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        print(f"  failed: {' '.join(command)}\n{done.stderr[-800:]}", file=sys.stderr)
        return None
    return json.loads(lines[-1])


def pretend_avx2(sluice_bench):
    """For all processes to come."""
    os.environ["LD_PRELOAD"] = str(pathlib.Path(sluice_bench).resolve().parent / "libavx2_only.so")


def command_of(engine, options, path, threads, batch):
    if engine == "sluice":
        return [options.sluice_bench, path, str(threads), str(batch), str(options.seconds)]
    return [sys.executable, __file__, "--worker", engine, path, str(threads), str(batch), str(options.seconds)]


def compare(options, path, threads, batch):
    best = {}
    for _ in range(options.rounds):
        for engine in ["sluice", *options.peers]:
            result = run_process(command_of(engine, options, path, threads, batch))
            if result and (engine not in best or result["median_ms"] < best[engine]["median_ms"]):
                best[engine] = result
    return best


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def report(options):
    rows, ratios = [], {peer: [] for peer in options.peers}
    peers = "".join(f"{p + ' ms':>11}{'ratio':>7}" for p in options.peers)
    print(f"{'model':<14}{'thr':>4}{'batch':>6}{'sluice ms':>11}{peers}{'peak MiB':>10}{'/ bound':>8}")
    for name in options.names or FIGURE_MODELS:
        for threads in options.threads:
            for batch in options.batches:
                best = compare(options, str(options.models / f"{name}.onnx"), threads, batch)
                rows.append({"model": name, "threads": threads, "batch": batch, **best})
                if "sluice" not in best:
                    print(f"{name:<14}{threads:>4}{batch:>6}  failed")
                    continue
                ours, line = best["sluice"], ""
                for peer in options.peers:
                    if peer in best:
                        ratio = ours["median_ms"] / best[peer]["median_ms"]
                        ratios[peer].append(ratio)
                        line += f"{best[peer]['median_ms']:>11.3f}{ratio:>7.2f}"
                    else:
                        line += f"{'-':>11}{'-':>7}"
                bound = ours["peak_bytes"] / max(1, ours.get("lower_bound_bytes", 0) or ours["peak_bytes"])
                print(f"{name:<14}{threads:>4}{batch:>6}{ours['median_ms']:>11.3f}{line}"
                      f"{ours['peak_bytes'] / 2**20:>10.1f}{bound:>8.3f}", flush=True)
    for peer, values in ratios.items():
        if values:
            print(f"geometric mean against {peer}: {geomean(values):.3f}, worst {max(values):.2f}, n={len(values)}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice-bench", default="sluice-bench")
    parser.add_argument("--models", type=pathlib.Path, default=HERE.parent / ".cache" / "bench-models")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--threads", type=lambda t: [int(x) for x in t.split(",")], default=[1, 2])
    parser.add_argument("--batches", type=lambda t: [int(x) for x in t.split(",")], default=[1, 8])
    parser.add_argument("--peers", type=lambda t: [x for x in t.split(",") if x], default=["ort", "ov"])
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--avx2", action="store_true")
    parser.add_argument("--worker", nargs=5, metavar=("ENGINE", "MODEL", "THREADS", "BATCH", "SECONDS"))
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.worker:
        engine, path, threads, batch, seconds = options.worker
        print(json.dumps(WORKERS[engine](path, int(threads), int(batch), float(seconds))))
        return
    if options.avx2:
        pretend_avx2(options.sluice_bench)
    rows = report(options)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
