#!/usr/bin/env python3
"""The daemon measured from outside: cost on the wire, start, memory, batching, long runs.

    serve.py --build DIR [--models DIR] [--part wire,shared,latency,throughput,start,memory,cycles] [--rounds N]

`wire` alternates sluiced and wire_echo (the floor) under h2load and prints the medians of CPU time a
request (/proc/PID/schedstat) and of page faults a request; runs that the loopback's timers drove (tail-loss
probes) are repeated; `shared` compares tensors in the message with tensors in shared memory; `throughput` compares served ResNet-50 with the bare engine; `memory` follows the
resident size; `cycles` fits the slope of the resident size over loads and requests.
"""
import argparse
import collections
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

MiB = 2 ** 20
PROBES_MOST, PROBE_TRIES = 0.3, 4  # tail-loss probes a request in a run that counts; runs at most
READY_S, LOAD_S = 60, 120  # a daemon that takes longer to be ready, a load that takes longer, is a fault
Cost = collections.namedtuple("Cost", "us faults")


def varint(value):
    out = bytearray()
    while True:
        byte = value & 127
        value >>= 7
        out.append(byte | (128 if value else 0))
        if not value:
            return bytes(out)


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def grpc_infer(model, name, shape, raw):
    tensor = field(1, name) + field(2, b"FP32") + field(3, b"".join(map(varint, shape)))
    message = field(1, model) + field(5, tensor) + field(7, raw)
    return b"\0" + struct.pack(">I", len(message)) + message


def grpc_parameter(key, kind, value):
    return field(4 if kind == "input" else 2, field(1, key) + field(2, value))


def grpc_infer_shared(model, name, output, shape, size):
    """The same request, its tensors in the regions `in` and `out`."""
    def place(kind, region):
        return (grpc_parameter(b"shared_memory_region", kind, field(3, region))
                + grpc_parameter(b"shared_memory_byte_size", kind, b"\x10" + varint(size)))
    tensor = field(1, name) + field(2, b"FP32") + field(3, b"".join(map(varint, shape))) + place("input", b"in")
    message = field(1, model) + field(5, tensor) + field(6, field(1, output) + place("output", b"out"))
    return b"\0" + struct.pack(">I", len(message)) + message


def http_infer(name, shape, raw):
    head = json.dumps({"inputs": [{"name": name, "datatype": "FP32", "shape": shape,
                                   "parameters": {"binary_data_size": len(raw)}}],
                       "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
    return head + raw, len(head)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cpu_us(pid):
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e3


def faults(pid):
    """Minor page faults of the process so far."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def loss_probes():
    """Tail-loss probes of this network namespace so far: segments that only a timer moved on."""
    names, values = [line.split() for line in pathlib.Path("/proc/net/netstat").read_text().splitlines()
                     if line.startswith("TcpExt:")]
    return int(values[names.index("TCPLossProbes")])


def load_average():
    return pathlib.Path("/proc/loadavg").read_text().split()[0]


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


class Daemon:
    """A sluiced of its own, on free ports and sockets in a folder of its own."""

    def __init__(self, options, models, *sets, control="explicit", repository=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-bench-"))
        self.repository = repository or self.folder / "models"
        self.repository.mkdir(exist_ok=True)
        for name in models:
            self.add(options, name)
        self.grpc, self.http, self.metrics = free_port(), free_port(), free_port()
        self.admin = f"unix:{self.folder}/admin.sock"
        self.ctl_program = str(options.build / "client" / "sluicectl")
        command = [str(options.build / "daemon" / "sluiced"), "--model-repository", str(self.repository)]
        for item in (f"Server.GrpcListen=127.0.0.1:{self.grpc} unix:{self.folder}/grpc.sock",
                     f"Server.HttpListen=127.0.0.1:{self.http}", f"Server.MetricsListen=127.0.0.1:{self.metrics}",
                     f"Server.AdminListen={self.admin}", f"Models.ControlMode={control}", "Device.Device=cpu", *sets):
            command += ["--set", item]
        self.begin = time.perf_counter()
        self.log = self.folder / "log"  # a file: a pipe that nobody reads would stop the daemon
        self.process = self.spawn(command, options)
        self.pid = self.process.pid
        self.wait_ready()

    def spawn(self, command, options):
        with self.log.open("w") as log:
            return subprocess.Popen(command, stderr=None if options.verbose else log)

    def add(self, options, name):
        file = (options.models / f"{name}.onnx").resolve()
        if not file.exists():
            sys.exit(f"no {file}: make the models with benchmarks/make_models.py {options.models}")
        folder = self.repository / name / "1"
        folder.mkdir(parents=True)
        os.symlink(file, folder / "model.onnx")
        extra = "" if name == "identity" else "dynamic_batching { }"
        (folder.parent / "config.pbtxt").write_text(f'name: "{name}" max_batch_size: 64 {extra}\n')

    def wait_ready(self):
        while time.perf_counter() < self.begin + READY_S:
            with contextlib.suppress(OSError):
                with socket.create_connection(("127.0.0.1", self.http), timeout=5) as s:
                    s.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    if b" 200 " in s.recv(4096):
                        self.ready_ms = (time.perf_counter() - self.begin) * 1e3
                        return
            if self.process.poll() is not None:
                sys.exit(f"sluiced ended: {self.log.read_text()}")
            time.sleep(0.001)
        log = self.log.read_text()
        self.stop()
        sys.exit(f"sluiced did not become ready within {READY_S} s: {log}")

    def ctl(self, *arguments, check=True):
        done = subprocess.run([self.ctl_program, "--server", self.admin, "--json", *arguments],
                              capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            sys.exit(f"sluicectl {' '.join(arguments)}: {done.stderr}")
        return json.loads(done.stdout) if done.stdout.strip() else {}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        if self.process.poll() is None:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def h2load(port, path, body, headers, clients, requests, http1):
    with tempfile.NamedTemporaryFile() as file:
        file.write(body)
        file.flush()
        command = ["h2load", "-t1", f"-c{clients}", "-m1", f"-n{requests}", "-d", file.name]
        for header in headers:
            command += ["-H", header]
        command += (["--h1"] if http1 else []) + [f"http://127.0.0.1:{port}{path}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LOAD_S)
        except subprocess.TimeoutExpired as late:
            sys.exit(f"h2load did not end within {LOAD_S} s on port {port}: {late.stdout}{late.stderr}")
    if f"{requests} succeeded" not in done.stdout:
        sys.exit(f"h2load failed: {done.stdout}{done.stderr}")


def wire_cost(pid, port, protocol, model, size, clients, requests):
    raw, shape = bytes(size), [1, size // 4]
    if protocol == "grpc":
        arguments = ("/inference.GRPCInferenceService/ModelInfer", grpc_infer(model, b"x", shape, raw),
                     ["content-type: application/grpc", "te: trailers"])
    else:
        body, head = http_infer("x", shape, raw)
        arguments = (f"/v2/models/{model.decode()}/infer", body,
                     ["content-type: application/octet-stream", f"inference-header-content-length: {head}"])
    h2load(port, *arguments, clients, max(clients, requests // 10), protocol == "http")
    for _ in range(PROBE_TRIES):
        cpu, fault, probes = cpu_us(pid), faults(pid), loss_probes()
        h2load(port, *arguments, clients, requests, protocol == "http")
        cost = Cost((cpu_us(pid) - cpu) / requests, (faults(pid) - fault) / requests)
        if (loss_probes() - probes) / requests <= PROBES_MOST:
            break
    return cost


def median_cost(costs):
    return Cost(statistics.median(c.us for c in costs), statistics.median(c.faults for c in costs))


@contextlib.contextmanager
def wire_echo(options):
    """The bare echo server of the same library, the floor: (pid, port)."""
    port = free_port()
    process = subprocess.Popen([str(options.build / "benchmarks" / "wire_echo"), f"127.0.0.1:{port}"])
    try:
        time.sleep(0.2)
        yield process.pid, port
    finally:
        process.kill()
        process.wait()


def part_wire(options):
    daemon = Daemon(options, ["identity"], "Models.Load=identity")
    print(f"{'identity, 16 clients':<24}{'sluiced us':>12}{'floor us':>10}{'ratio':>7}{'figure':>8}"
          f"{'faults':>8}{'floor':>8}{'load':>7}", flush=True)
    try:
        with wire_echo(options) as (pid, port):
            for protocol, size, requests, figure in (("grpc", 64, 20000, 2.0), ("http", 64, 20000, 2.0),
                                                     ("grpc", 600 << 10, 1500, 1.0), ("http", 600 << 10, 1500, 1.0)):
                ours, floor = [], []
                for _ in range(options.rounds):
                    ours.append(wire_cost(daemon.pid, daemon.grpc if protocol == "grpc" else daemon.http, protocol,
                                          b"identity", size, 16, requests))
                    floor.append(wire_cost(pid, port, protocol, b"identity", size, 16, requests))
                a, b = median_cost(ours), median_cost(floor)
                print(f"{protocol + ' ' + str(size) + ' B':<24}{a.us:>12.1f}{b.us:>10.1f}{a.us / b.us:>7.2f}"
                      f"{figure:>8.1f}{a.faults:>8.2f}{b.faults:>8.2f}{load_average():>7}", flush=True)
    finally:
        daemon.stop()


def post(port, path, document):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", path, json.dumps(document))
    answer = connection.getresponse()
    if answer.status != 200:
        sys.exit(f"{path}: {answer.read()}")
    connection.close()


def part_shared(options):
    """An identity of 600 KiB over gRPC: tensors in the message, and in shared memory."""
    size, requests, clients = 600 << 10, 1500, 1
    daemon = Daemon(options, ["identity"], "Models.Load=identity")
    paths = {name: pathlib.Path(f"/dev/shm/sluice-bench-{os.getpid()}-{name}") for name in ("in", "out")}
    headers = ["content-type: application/grpc", "te: trailers"]
    bodies = {"in the message": grpc_infer(b"identity", b"x", [1, size // 4], bytes(size)),
              "in shared memory": grpc_infer_shared(b"identity", b"x", b"y", [1, size // 4], size)}
    costs = {name: [] for name in bodies}
    try:
        for name, path in paths.items():
            path.write_bytes(os.urandom(size) if name == "in" else bytes(size))
            post(daemon.http, f"/v2/systemsharedmemory/region/{name}/register",
                 {"key": path.name, "offset": 0, "byte_size": size})
        for _ in range(options.rounds):
            for name, body in bodies.items():
                h2load(daemon.grpc, "/inference.GRPCInferenceService/ModelInfer", body, headers, clients, 100, False)
                before = cpu_us(daemon.pid)
                h2load(daemon.grpc, "/inference.GRPCInferenceService/ModelInfer", body, headers, clients, requests, False)
                costs[name].append((cpu_us(daemon.pid) - before) / requests)
        if paths["in"].read_bytes() != paths["out"].read_bytes():
            sys.exit("the identity's output is not its input")
        for name, found in costs.items():
            print(f"gRPC identity of {size} B, tensors {name}: {statistics.median(found):.1f} us of CPU a request "
                  f"(least {min(found):.1f}), load {load_average()}", flush=True)
    finally:
        for path in paths.values():
            path.unlink(missing_ok=True)
        daemon.stop()


@contextlib.contextmanager
def on_one_processor(*pids):
    """These processes and what we start, on one processor: what remains is the programs' own cost, without the
    interrupts between processors and the ways out of a halt (tens of microseconds on a virtual machine)."""
    before = os.sched_getaffinity(0)

    def place(processors):
        for task in (int(task.name) for pid in pids for task in pathlib.Path(f"/proc/{pid}/task").iterdir()):
            os.sched_setaffinity(task, processors)
        os.sched_setaffinity(0, processors)

    place({min(before)})
    try:
        yield
    finally:
        place(before)


def part_latency(options):
    daemon = Daemon(options, ["mlp_16"], "Models.Load=mlp_16")

    def measure(pid, port, model):
        costs = [wire_cost(pid, port, "grpc", model, 64, 1, 10000) for _ in range(options.rounds)]
        return median_cost(costs).us

    try:
        with wire_echo(options) as echo:
            for name, state in (("client and server where the kernel puts them", contextlib.nullcontext()),
                                ("both on one processor", on_one_processor(daemon.pid, echo[0]))):
                with state:
                    ours, floor = measure(daemon.pid, daemon.grpc, b"mlp_16"), measure(*echo, b"mlp_16")
                print(f"MLP 16-64-10 over gRPC, one client, {name}: {ours:.1f} us of CPU a request, the bare echo "
                      f"{floor:.1f} (figure 60, Triton 341)", flush=True)
    finally:
        daemon.stop()


Rate = collections.namedtuple("Rate", "per_second cpu_ms")  # images a second, CPU time an image


def engine_rate(options, batch, seconds):
    done = subprocess.run([str(options.build / "benchmarks" / "sluice-bench"), str(options.models / "resnet50.onnx"),
                           "2", str(batch), str(seconds)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return Rate(batch / found["median_ms"] * 1e3, found["cpu_ms"] / batch)


def served_rate(daemon, seconds):
    before = cpu_us(daemon.pid)
    done = subprocess.run([daemon.ctl_program, "--json", "--server", f"unix:{daemon.folder}/grpc.sock", "bench",
                           "resnet50", "-c", "32", "-t", str(seconds)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return Rate(found["requests_per_second"], (cpu_us(daemon.pid) - before) / 1e3 / found["requests"])


def batch_sizes(daemon):
    sizes = daemon.ctl("stats", "resnet50")["model_stats"][0]["batch_stats"]
    return ", ".join(f"{s['batch_size']} ({s['compute_infer']['count']}x)" for s in sizes)


def part_throughput(options):
    daemon = Daemon(options, ["resnet50"], "Models.Load=resnet50")
    try:
        served_rate(daemon, 3)  # makes the plans
        scan = {batch: engine_rate(options, batch, 2).per_second for batch in (1, 4, 8, 16, 32)}
        best = max(scan, key=scan.get)
        pairs = [(served_rate(daemon, 5), engine_rate(options, best, 5)) for _ in range(options.rounds)]
        share = statistics.median(s.per_second / e.per_second for s, e in pairs)
        by_cpu = statistics.median(e.cpu_ms / s.cpu_ms for s, e in pairs)
        print(f"ResNet-50, 32 clients over a Unix socket: {statistics.median(s.per_second for s, _ in pairs):.1f}/s served, "
              f"bare engine at batch {best} {statistics.median(e.per_second for _, e in pairs):.1f}/s: {100 * share:.0f} % "
              f"(figure 90 %), {100 * by_cpu:.0f} % by CPU time an image; load {load_average()}\n"
              f"    batches: {batch_sizes(daemon)}")
    finally:
        daemon.stop()


def part_start(options):
    demo = pathlib.Path(__file__).resolve().parent.parent / "models"
    for name, figure, repository in (("empty", 20, None), ("demo", 100, demo)):
        times = []
        for _ in range(max(5, options.rounds)):
            daemon = Daemon(options, [], control="none", repository=repository)
            times.append(daemon.ready_ms)
            daemon.stop()
        print(f"start to ready, {name} repository: {statistics.median(times):.1f} ms (figure {figure}), "
              f"best {min(times):.1f}; load {load_average()}")


def part_memory(options):
    daemon = Daemon(options, ["resnet50"], "Memory.Dwell=1s", "Memory.IdleAfter=0", "Memory.Limit=700M",
                    "Memory.LowWatermark=0.2", "Memory.HighWatermark=0.3", "Memory.CriticalWatermark=0.95")
    try:
        time.sleep(0.5)
        empty = resident(daemon.pid)
        daemon.ctl("load", "resnet50")
        time.sleep(0.5)
        loaded = resident(daemon.pid)
        subprocess.run([daemon.ctl_program, "--server", daemon.admin, "bench", "resnet50", "-b", "32", "-n", "1", "-t", "60"],
                       capture_output=True, check=True)
        peak = resident(daemon.pid)
        time.sleep(2.5)
        after = resident(daemon.pid)
        freed = daemon.ctl("unload", "resnet50")["freed_bytes"]
        time.sleep(0.5)
        unloaded = resident(daemon.pid)
        print(f"resident, ResNet-50 (97 MiB of weights): empty {empty / MiB:.1f} MiB; loaded +{(loaded - empty) / MiB:.1f} "
              f"(figure +130); right after batch 32 +{(peak - empty) / MiB:.1f}; one dwell later loaded "
              f"{(after - loaded) / MiB:+.1f} (figure within 10); unloaded {(unloaded - empty) / MiB:+.1f} over empty "
              f"(figure within 5), {freed / MiB:.1f} MiB said to be freed")
    finally:
        daemon.stop()


def slope(points):
    """Least squares over the second half: bytes a step."""
    half = points[len(points) // 2:]
    mx, my = statistics.fmean(p[0] for p in half), statistics.fmean(p[1] for p in half)
    return sum((x - mx) * (y - my) for x, y in half) / max(1e-9, sum((x - mx) ** 2 for x, _ in half))


def part_cycles(options):
    daemon = Daemon(options, ["mlp_16"], "Models.Load=mlp_16")
    try:
        points = []
        for i in range(options.cycles):
            daemon.ctl("load", "mlp_16")
            daemon.ctl("unload", "mlp_16")
            if i % max(1, options.cycles // 100) == 0:
                points.append((i, resident(daemon.pid)))
        print(f"{options.cycles} load/unload cycles: {slope(points):+.1f} bytes a cycle, "
              f"{points[0][1] / MiB:.1f} -> {points[-1][1] / MiB:.1f} MiB")
        daemon.ctl("load", "mlp_16")
        points = []
        for i in range(50):
            wire_cost(daemon.pid, daemon.grpc, "grpc", b"mlp_16", 64, 16, options.requests // 55)
            points.append((i * options.requests // 50, resident(daemon.pid)))
        print(f"{options.requests} requests of an MLP: {slope(points):+.4f} bytes a request, "
              f"{points[0][1] / MiB:.1f} -> {points[-1][1] / MiB:.1f} MiB")
    finally:
        daemon.stop()


PARTS = {"wire": part_wire, "shared": part_shared, "latency": part_latency, "throughput": part_throughput,
         "start": part_start, "memory": part_memory, "cycles": part_cycles}


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=here / "build" / "release")
    parser.add_argument("--models", type=pathlib.Path, default=here / ".cache" / "bench-models")
    parser.add_argument("--part", default="wire,latency,throughput,start,memory")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cycles", type=int, default=10000)
    parser.add_argument("--requests", type=int, default=1000000)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.build = options.build.resolve()
    for part in options.part.split(","):
        PARTS[part](options)


if __name__ == "__main__":
    main()
