#!/usr/bin/env python3
"""The parts of benchmarks/gpu.sh that are more than running a program.

    gpu.py device|simulator|speed|peers --out FOLDER --release BUILD --dev BUILD

Each writes FOLDER/PART.json as it goes, so that what was measured stays when its time is up.
SLUICE_GPU_QUICK=1: tiny networks and one batch, for a rehearsal on the simulated device.
"""
import argparse
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
QUICK = os.environ.get("SLUICE_GPU_QUICK") == "1"
MODELS = ["mlp"] if QUICK else ["resnet50", "bert_base_128", "yolo_n320"]
BATCHES = [1] if QUICK else [1, 64, 16, 4]  # the ends first: time may be up before all is measured
PRECISIONS = ["strict", "tf32", "fp16"]
SECONDS = 0.1 if QUICK else 0.6


class Results:
    """One part's rows, on disk after each of them."""

    def __init__(self, options):
        self.path = options.out / f"{options.part}.json"
        self.rows = []

    def add(self, **row):
        self.rows.append(row)
        self.path.write_text(json.dumps(self.rows, indent=1))
        print("  ".join(f"{key}={value}" for key, value in row.items()), flush=True)


def output_of(*command):
    """What a program says, or why it says nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=15)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"none ({error})"
    return done.stdout.strip() if done.returncode == 0 else f"none ({done.stderr.strip()[:200]})"


# Names of cuDNN's descriptions of devices (tests/sim/devices), numbers of cudaDeviceAttr.
ATTRIBUTES = {"maxGridSize": (5, 6, 7), "maxBlockSize": (2, 3, 4), "regsPerBlock": 12, "multiProcessorCount": 16,
              "warpSize": 10, "maxSharedMemoryPerBlock": 8, "maxSharedMemoryPerBlockOptin": 97,
              "reservedSharedMemoryPerBlock": 111, "maxRegistersPerSM": 82, "maxCtasPerSM": 106,
              "maxThreadsPerBlock": 1, "maxThreadsPerSM": 39, "pciDeviceId": 34, "isTccDriver": 35,
              "supportCoopLaunch": 95, "smClockRateKHz": 13, "memClockRateKHz": 36, "l2CacheSize": 38}


def description_of_device(name):
    """As those in tests/sim/devices; a sentence where the runtime does not say."""
    try:
        runtime = ctypes.CDLL("libcudart.so.13")
    except OSError as error:
        return f"none ({error})"

    def attribute(number):
        value = ctypes.c_int()
        error = runtime.cudaDeviceGetAttribute(ctypes.byref(value), number, 0)
        return value.value if error == 0 else None

    version, free, total = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
    runtime.cudaDriverGetVersion(ctypes.byref(version))
    runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    capability = [attribute(75), attribute(76)]
    return {"deviceVer": capability[0] * 100 + capability[1] * 10 if None not in capability else None,
            "driverVer": version.value, "cudaDeviceId": 0, "totalGlobalMem": total.value,
            **{key: [attribute(one) for one in number] if isinstance(number, tuple) else attribute(number)
               for key, number in ATTRIBUTES.items()}, "deviceName": name}


def part_device(options):
    query = "name,uuid,compute_cap,driver_version,memory.total,memory.used,clocks.max.sm,clocks.max.memory," \
            "power.limit,ecc.mode.current,persistence_mode,mig.mode.current,compute_mode"
    row = dict(zip(query.split(","), output_of("nvidia-smi", "-i", "0", f"--query-gpu={query}",
                                               "--format=csv,noheader").split(", ")))
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    Results(options).add(gpu=row, description=description_of_device(row.get("name")), cpu=cpu, cores=os.cpu_count(), kernel=os.uname().release,
                         nvcc=output_of("nvcc", "--version").split("\n")[-1], python=sys.version.split()[0],
                         commit=output_of("git", "-C", str(HERE), "rev-parse", "HEAD"),
                         date=time.strftime("%Y-%m-%dT%H:%M:%S%z"))


# ---- the same networks on the device and on the simulator ----

def part_simulator(options):
    import numpy

    sys.path.insert(0, str(HERE.parent / "tests" / "conformance"))
    import rows

    results = Results(options)
    libraries = options.dev / "tests" / "sim" / "lib"
    random = numpy.random.default_rng(5)
    cases = {"convolutions": (rows.convolutions, [random.standard_normal((2, 3, 80, 80), dtype="f4")]),
             "encoder": (rows.encoder, [random.integers(0, 100, (2, 19)), numpy.ones((2, 19), "i8")]),
             "audio": (rows.audio, [random.standard_normal((2, 1, 70), dtype="f4")]),
             "quantized": (rows.quantized, [random.standard_normal((2, 3, 15, 15), dtype="f4")]),
             "mlp": (rows.mlp, [random.standard_normal((2, 77), dtype="f4")])}
    bad = []
    for name, (make, inputs) in cases.items():
        folder = options.out / "simulator" / name
        folder.mkdir(parents=True, exist_ok=True)
        make(folder / "model.onnx")
        files = []
        for i, value in enumerate(inputs):
            files.append(str(folder / f"input{i}.npy"))
            numpy.save(files[-1], value)
        answers = []
        simulated = {"LD_LIBRARY_PATH": f"{libraries.resolve()}:{os.environ.get('LD_LIBRARY_PATH', '')}",
                     "SLUICE_PLUGIN_DIR": str(options.dev.resolve() / "daemon")}
        for where, environment in (("device", {}), ("simulated", simulated)):
            into = folder / where
            into.mkdir(exist_ok=True)
            subprocess.run([options.dev / "tests/conformance/sluice-run", "--device", "cuda", folder / "model.onnx",
                            into, "1", *files], check=True, env={**os.environ, **environment})
            answers.append([numpy.load(path) for path in sorted(into.glob("*.npy"))])
        worst = max(float(numpy.max(numpy.abs(a - b) / (1e-3 + numpy.abs(b)))) for a, b in zip(*answers))
        results.add(network=name, outputs=len(answers[0]), worst_relative_difference=worst, agrees=worst < 2e-3)
        bad += [name] if worst >= 2e-3 else []
    if bad:
        sys.exit("the device and the simulator disagree: " + ", ".join(bad))


# ---- speed ----

def make_models(options):
    """Each network as it is, and as NAME_fp16.onnx."""
    import make_models as makers

    folder = options.out / "models"
    subprocess.run([sys.executable, HERE / "make_models.py", folder, *MODELS], check=True)
    for name in MODELS:
        if not (folder / f"{name}_fp16.onnx").exists():
            makers.to_half(folder / f"{name}.onnx", folder / f"{name}_fp16.onnx")


def model_path(options, model, precision):
    return options.out / "models" / (f"{model}_fp16.onnx" if precision == "fp16" else f"{model}.onnx")


def measured(command, row, results, plugin=None):
    """Adds a row with the last line of what the command says, or with why it said nothing."""
    environment = {**os.environ, "SLUICE_PLUGIN_DIR": str(plugin)} if plugin else None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    except subprocess.TimeoutExpired:
        results.add(**row, error="took more than 60 s")
        return
    if done.returncode != 0:
        results.add(**row, error=(done.stderr.strip().split("\n") or ["?"])[-1][:200])
        return
    found = json.loads(done.stdout.strip().split("\n")[-1])
    results.add(**row, median_ms=found["median_ms"], min_ms=found["min_ms"], first_ms=found.get("first_ms"),
                rows_per_second=round(row["batch"] * 1e3 / found["median_ms"], 1))


def part_speed(options):
    make_models(options)
    results = Results(options)
    bench = options.release / "benchmarks" / "sluice-bench"
    # What is compared first comes first: the time may be up before all is measured.
    for batch in BATCHES:
        for precision in PRECISIONS:
            for graphs in (True, False):
                for model in MODELS:
                    # The network is float32; the peers' is written in half precision.
                    measured([bench, model_path(options, model, "strict"), "1", str(batch), str(SECONDS),
                              "--device", "cuda", "--precision", precision, *([] if graphs else ["--eager"])],
                             {"engine": "sluice", "model": model, "batch": batch, "precision": precision,
                              "graphs": graphs}, results, options.release.resolve() / "daemon")


def median_of(run):
    """Milliseconds: the median of SECONDS of rounds, the fastest, and the very first."""
    times, begin = [], time.perf_counter()
    run()
    first = time.perf_counter() - begin
    run()
    end = time.perf_counter() + SECONDS
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    times.sort()
    return {"median_ms": times[len(times) // 2] * 1e3, "min_ms": times[0] * 1e3, "first_ms": first * 1e3}


def worker_onnxruntime(path, batch, precision):
    import onnxruntime

    from engines import feeds

    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()
    # Neither may quietly run elsewhere.
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        sys.exit("this ONNX Runtime has no CUDA")
    session = onnxruntime.InferenceSession(
        path, providers=[("CUDAExecutionProvider", {"use_tf32": "1" if precision == "tf32" else "0"})])
    if "CUDAExecutionProvider" not in session.get_providers():
        sys.exit("ONNX Runtime fell back to the CPU")
    ports = session.get_inputs()
    inputs = feeds([(port.name, port.shape, "float" in port.type) for port in ports], batch)
    inputs.update({port.name: inputs[port.name].astype("f2") for port in ports if "float16" in port.type})
    return median_of(lambda: session.run(None, inputs))


def worker_torch(path, batch, precision):
    import torch
    import torchvision

    if not "resnet50" in path:
        sys.exit("PyTorch reads no ONNX: only torchvision's own ResNet-50 is measured")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    kind = torch.float16 if precision == "fp16" else torch.float32
    network = torchvision.models.resnet50().eval().to("cuda", kind)
    host = torch.rand(batch, 3, 224, 224).to(kind)
    with torch.inference_mode():
        return median_of(lambda: network(host.cuda()).cpu())


WORKERS = {"onnxruntime": worker_onnxruntime, "torch": worker_torch}


def part_peers(options):
    make_models(options)
    results = Results(options)
    for batch in BATCHES:
        for precision in PRECISIONS:
            for engine in WORKERS:
                for model in MODELS:
                    if engine == "torch" and model != "resnet50":
                        continue
                    measured([sys.executable, __file__, "--worker", engine,
                              str(model_path(options, model, precision)), str(batch), precision],
                             {"engine": engine, "model": model, "batch": batch, "precision": precision}, results)


PARTS = {"device": part_device, "simulator": part_simulator, "speed": part_speed, "peers": part_peers}


def main():
    if sys.argv[1:2] == ["--worker"]:
        engine, path, batch, precision = sys.argv[2:]
        print(json.dumps(WORKERS[engine](path, int(batch), precision)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--release", type=pathlib.Path, required=True)
    parser.add_argument("--dev", type=pathlib.Path, required=True)
    options = parser.parse_args()
    PARTS[options.part](options)


if __name__ == "__main__":
    main()
