#!/usr/bin/env python3
"""From the start of the process to the first answer, and what the weights hold then.

    start.py --build DIR [--models DIR] [--rounds N] [--threads N] [NAME ...]

For each model: a daemon with nothing but that model in its repository; a client asks by REST on a Unix socket
whether it is ready, every millisecond, then for one inference.  Best and median of the rounds, the daemon's own time of the
load, bytes resident on the device against the bytes of the file, packed forms for Winograd apart.
"""
import argparse
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
MODELS = ["squeezenet", "mobilenetv2", "yolo_n320", "unet_256", "densenet121", "resnet50", "vit_s", "minilm_128",
          "lstm_tagger", "mlp"]
DTYPES = {1: ("FP32", "f4"), 6: ("INT32", "i4"), 7: ("INT64", "i8")}


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def make_request(path):
    """One row of zeros for every input, in binary."""
    import numpy
    import onnx

    inputs, parts = [], []
    for port in onnx.load(str(path), load_external_data=False).graph.input:
        kind, numpy_kind = DTYPES[port.type.tensor_type.elem_type]
        shape = [dim.dim_value or 1 for dim in port.type.tensor_type.shape.dim]
        parts.append(numpy.zeros(shape, numpy_kind).tobytes())
        inputs.append({"name": port.name, "datatype": kind, "shape": shape,
                       "parameters": {"binary_data_size": len(parts[-1])}})
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return head + b"".join(parts), {"Inference-Header-Content-Length": str(len(head))}


def call(connection, method, path, body=None, headers=None):
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def first_answer(path, model, body, headers, until):
    """Seconds on the clock when the answer was there."""
    while time.perf_counter() < until:
        try:
            connection = Connection(path)
            while call(connection, "GET", f"/v2/models/{model}/ready") != 200:
                time.sleep(0.001)
            if call(connection, "POST", f"/v2/models/{model}/infer", body, headers) == 200:
                return time.perf_counter()
        except (FileNotFoundError, ConnectionError):
            pass
        time.sleep(0.001)
    sys.exit(f"start: no answer of {model}")


def ask(path, what):
    connection = Connection(path)
    connection.request("GET", "/sluice/v1/" + what)
    return json.loads(connection.getresponse().read())


def start_once(options, path):
    """Milliseconds to the first answer, and what `models` says of the model then."""
    body, headers = make_request(path)
    with tempfile.TemporaryDirectory(prefix="sluice-start-") as folder:
        version = pathlib.Path(folder, "models", path.stem, "1")
        version.mkdir(parents=True)
        os.link(path, version / "model.onnx") if os.stat(path).st_dev == os.stat(folder).st_dev else \
            shutil.copy(path, version / "model.onnx")
        settings = [f"Server.HttpListen=unix:{folder}/http", f"Server.AdminListen=unix:{folder}/admin",
                    "Server.GrpcListen=", "Server.MetricsListen=", "Device.Device=cpu", f"Models.PlanCacheDir={folder}",
                    f"Device.Threads={options.threads}"]
        command = [str(options.build / "daemon" / "sluiced"), "--model-repository", f"{folder}/models"]
        for setting in settings:
            command += ["--set", setting]
        begin = time.perf_counter()
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            spent = first_answer(f"{folder}/http", path.stem, body, headers, begin + 60) - begin
            model, = ask(f"{folder}/admin", "models")["models"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    return spent * 1e3, model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, default=HERE.parent / ".cache" / "bench-models")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    print(f"{'model':<14}{'file MB':>9}{'best ms':>9}{'median':>9}{'load ms':>9}{'weights':>9}{'/ file':>8}{'winograd':>10}")
    for name in options.names or MODELS:
        path = options.models / f"{name}.onnx"
        times, models = zip(*(start_once(options, path) for _ in range(options.rounds)))
        size, model = path.stat().st_size, models[0]
        winograd = model.get("winograd_bytes", 0)
        print(f"{name:<14}{size / 1e6:>9.1f}{min(times):>9.1f}{statistics.median(times):>9.1f}"
              f"{min(m['load_us'] for m in models) / 1e3:>9.1f}{(model['resident_bytes'] - winograd) / 1e6:>9.1f}"
              f"{(model['resident_bytes'] - winograd) / size:>8.3f}{winograd / 1e6:>10.1f}", flush=True)


if __name__ == "__main__":
    main()
