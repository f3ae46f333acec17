#!/usr/bin/env python3
"""The memory governor in figures, measured from outside.

    memory.py --build DIR [--part sawtooth,empty_cache,hog,start,reload,history] [--quick]

`sawtooth` sends batches that rise over a mark and fall below it again to two daemons in turn, one with its
marks where they are by default, one with them at 100 %, so that what else the machine does hits both alike.
`empty_cache` times small requests while 1 GiB that a lane caches is given back.  `hog` serves beside a process
that takes memory and lets go of it, under a limit of 1.2 x the budget that the kernel enforces: RLIMIT_DATA,
and where one can be made a memory cgroup.  `start` is systemd: from a connection to the first
answer of a daemon that it starts.  `reload` is a model of 64 MiB that leaves and comes back, and small requests
for another one meanwhile.  `history` is what the history of memory events costs small requests.  The exit status says whether the figures hold; with --quick (some seconds
each, for tests) only those that a busy machine does not spoil.
"""
import argparse
import concurrent.futures
import contextlib
import json
import mmap
import multiprocessing
import os
import pathlib
import resource
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "e2e"))
import harness  # noqa: E402
import small_models  # noqa: E402

MiB = 2 ** 20
COLUMNS, WIDTH = 4, 65536  # of the hungry model: 1 MiB a row for each of its values
DWELL_S = 2.0


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def load():
    return f"load {os.getloadavg()[0]:.2f}"


class Client:
    """One kept connection that sends batches as binary tensors."""

    def __init__(self, path):
        self.connection = harness.UnixHTTPConnection(path)

    def infer(self, model, rows, columns=COLUMNS):
        """Milliseconds until the answer, or None when memory was refused."""
        raw = np.ones((rows, columns), np.float32).tobytes()
        head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, columns],
                                       "parameters": {"binary_data_size": len(raw)}}],
                           "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
        begin = time.perf_counter()
        self.connection.request("POST", f"/v2/models/{model}/infer", head + raw,
                                {"Inference-Header-Content-Length": str(len(head))})
        response = self.connection.getresponse()
        text = response.read()
        if response.status == 200:
            return (time.perf_counter() - begin) * 1e3
        if response.status not in (429, 503):
            sys.exit(f"memory.py: {model}: {response.status} {text[:200]!r}")
        return None


class Daemon:
    """sluiced with the models `hungry` and `double`."""

    def __init__(self, options, *settings, **more):
        self.models = tempfile.TemporaryDirectory(prefix="sluice-bench-")
        write_models(self.models.name)
        self.server = harness.Server(
            str(options.build / "daemon" / "sluiced"),
            [f"Models.Repository={self.models.name}", "Device.Device=cpu", *settings], as_daemon=True, **more)
        harness.wait_for("the models", lambda: all(
            self.server.request("GET", f"/v2/models/{name}/ready")[0] == 200 for name in ("hungry", "double")), 60)

    def client(self):
        return Client(self.server.path("http"))

    def memory(self, name):
        return self.server.metric("sluice_memory_" + name)

    def stop(self):
        self.server.stop()
        self.models.cleanup()


def write_models(folder):
    small_models.write(folder, "hungry", small_models.hungry(COLUMNS, WIDTH), "max_batch_size: 2048")
    small_models.write(folder, "double", small_models.times(2), "max_batch_size: 8")


# ---- sawtooth ----

def part_sawtooth(options):
    most, seconds = 12, options.seconds or (8 if options.quick else 60)
    probe = Daemon(options)
    probe.client().infer("hungry", most)
    peak = probe.memory('bytes{kind="cached"}') + probe.memory('bytes{kind="weights"}')
    probe.stop()
    held = True
    for mark, share, count in (("low", 0.78, 1), ("high", 0.91, 1)):
        limit = f"Memory.Limit={int(peak / share)}"
        governed = Daemon(options, limit, f"Memory.Dwell={DWELL_S:g}s")
        free = Daemon(options, limit, "Memory.LowWatermark=0.998", "Memory.HighWatermark=0.999",
                      "Memory.CriticalWatermark=1", "Memory.IdleAfter=0")
        times, clients = ([], []), (governed.client(), free.client())
        begin, turn = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            rows = 1 + turn % most
            for i in ((0, 1), (1, 0))[turn % 2]:
                spent = clients[i].infer("hungry", rows)
                if spent is None:
                    sys.exit("memory.py: sawtooth: a batch that fits was refused")
                times[i].append(spent)
            turn += 1
        changes = int(governed.memory("level_transitions_total"))
        freed = int(governed.server.metric("sluice_empty_cache_freed_bytes_total"))
        governed.stop()
        free.stop()
        ours, theirs = (percentile(values, 0.99) for values in times)
        allowed = int(seconds / DWELL_S) + count
        held &= changes <= allowed and (options.quick or ours / theirs <= 1.05)
        print(f"sawtooth at the {mark} mark, {seconds} s: {changes} level changes (figure {allowed}: one a dwell), "
              f"p99 {ours:.2f} ms governed, {theirs:.2f} ms with marks at 100 %, ratio {ours / theirs:.3f} "
              f"(figure 1.05), median ratio {percentile(times[0], .5) / percentile(times[1], .5):.3f}, "
              f"{freed / MiB:.0f} MiB given back, {turn} batches each, {load()}", flush=True)
    return held


# ---- empty_cache ----

def timed(client, stop):
    times = []
    while not stop.is_set():
        times.append(client.infer("double", 1))
    return times


def empty_cache_round(daemon, gib):
    """Worst of small requests without, and while 1 GiB is given back; how long that took."""
    big, small = daemon.client(), daemon.client()
    big.infer("hungry", int(1024 * gib))
    cached = daemon.memory('bytes{kind="cached"}')
    answer = {}

    def empty():
        done = subprocess.run([os.environ["SLUICECTL"], "--server", "unix:" + daemon.server.path("admin"), "--json",
                               "empty-cache"], capture_output=True, text=True, check=True)
        answer.update(json.loads(done.stdout))

    def watch(action):
        stop = threading.Event()
        worker = threading.Thread(target=lambda: (action(), stop.set()))
        worker.start()
        times = timed(small, stop)
        worker.join()
        return times

    # The same program, with nothing to do, is what the machine does without us.
    quiet = watch(lambda: [subprocess.run([os.environ["SLUICECTL"], "--server",
                                           "unix:" + daemon.server.path("admin"), "--json", "status"],
                                          capture_output=True, check=True), time.sleep(0.15)])
    busy = watch(empty)
    return cached, quiet, busy, answer


def part_empty_cache(options):
    rounds, gib = (3, 0.25) if options.quick else (9, 1)
    daemon = Daemon(options, "Memory.Limit=3G", "Device.Lanes=2", "Memory.IdleAfter=0", "Device.InlineLimit=0")
    added = []
    for _ in range(rounds):
        cached, quiet, busy, answer = empty_cache_round(daemon, gib)
        added.append(max(busy) - max(quiet))
        print(f"empty_cache of {cached / MiB:.0f} MiB in {answer['microseconds'] / 1e3:.0f} ms, {answer['freed_bytes'] / MiB:.0f} MiB "
              f"freed: small requests median {percentile(quiet, .5):.2f} -> {percentile(busy, .5):.2f} ms, p99 "
              f"{percentile(quiet, .99):.2f} -> {percentile(busy, .99):.2f}, worst {max(quiet):.2f} -> {max(busy):.2f} "
              f"({len(quiet)} and {len(busy)}), {load()}", flush=True)
    daemon.stop()
    middle = percentile(added, .5)
    print(f"empty_cache: {middle:+.2f} ms to the worst request, median of {rounds} (figure 2)")
    return options.quick or middle <= 2


# ---- hog ----

def hog_process(take, orders):
    """Holds `take` bytes of this machine's memory, and lets go of them, in turn, at every order."""
    held = None
    while orders.get():
        if held is None:
            held = mmap.mmap(-1, take)
            for at in range(0, take, 4096):
                held[at] = 1
        else:
            held.close()
            held = None


def available_bytes():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))


def resident_bytes(pid, what="VmHWM"):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(what + ":"))


class Cgroup:
    """A memory cgroup with a limit, of version 2 or 1, if this machine lets us make one; else `path` is None."""

    def __init__(self, limit):
        self.path = None
        for root, name, peak in (("/sys/fs/cgroup", "memory.max", "memory.peak"),
                                 ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes")):
            if not os.path.exists(root + "/cgroup.procs"):
                continue  # with version 1 the root is a file system of its own
            self.path, self.peak_name = f"{root}/sluice-bench-{os.getpid()}", peak
            with contextlib.suppress(OSError):
                os.mkdir(self.path)
                with open(f"{self.path}/{name}", "r+") as file:
                    file.write(str(limit))
                break
            self.close()

    def enter(self):
        if self.path is not None:
            with open(self.path + "/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))

    def text(self):
        if self.path is None:
            return "no memory cgroup can be made here"
        with contextlib.suppress(OSError):
            with open(f"{self.path}/{self.peak_name}") as file:
                peak = int(file.read())
            kills = "?"
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError), open(f"{self.path}/{name}") as file:
                    kills = next((line.split()[1] for line in file if line.startswith("oom_kill ")), "?")
            return f"memory cgroup of 1.2 x that: most charged {peak / MiB:.0f} MiB, {kills} killed"
        return "memory cgroup of 1.2 x that"

    def close(self):
        if self.path is not None:
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
        self.path = None


def part_hog(options):
    """First under RLIMIT_DATA alone, with a headroom that the hog eats into; then in a cgroup, whose limit is all
    that the daemon sees."""
    budget, take = 512 * MiB, 512 * MiB
    limit = int(1.2 * budget)
    held = run_hog(options, budget, take, f"{available_bytes() - take // 2}",
                   lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)), lambda: f"RLIMIT_DATA {limit / MiB:.0f} MiB")
    group = Cgroup(limit)
    if group.path is None:
        print(f"hog: {group.text()}", flush=True)
        return held
    held &= run_hog(options, budget, take, "32M", group.enter, group.text)
    group.close()
    return held


def run_hog(options, budget, take, headroom, limited, text):
    seconds = options.seconds or (8 if options.quick else 60)
    daemon = Daemon(options, f"Memory.Limit={budget}", f"Memory.Headroom={headroom}",
                    "Memory.HostLimit=32M", "Server.MaxMessageBytes=16M", "Device.Lanes=2", "Memory.Dwell=500ms", child=limited)
    pid = daemon.server.process.pid
    counts, levels, stop = {"answered": 0, "refused": 0}, set(), threading.Event()

    def ask(first):
        client, turn = daemon.client(), first
        while not stop.is_set():
            turn += 1
            key = "refused" if client.infer("hungry", 1 + turn * 37 % 240) is None else "answered"
            counts[key] += 1

    orders = multiprocessing.Queue()
    hog = multiprocessing.Process(target=hog_process, args=(take, orders), daemon=True)
    hog.start()
    workers = [threading.Thread(target=ask, args=(i,)) for i in range(3)]
    for worker in workers:
        worker.start()
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        orders.put(True)
        for _ in range(10):
            time.sleep(0.1)
            levels.add(int(daemon.memory("level")))
    stop.set()
    for worker in workers:
        worker.join()
    orders.put(False)
    hog.join()
    alive = daemon.server.process.poll() is None
    most = resident_bytes(pid)
    daemon.stop()  # fails when it does not leave by itself with 0
    print(f"hog of {take / MiB:.0f} MiB taking and giving back for {seconds} s, budget {budget / MiB:.0f} MiB, {text()}: "
          f"{'alive' if alive else 'DEAD'}, {counts['answered']} answered, {counts['refused']} refused for memory, levels "
          f"seen {sorted(levels)}, most resident {most / MiB:.0f} MiB, {load()}", flush=True)
    return alive and counts["answered"] > 0


# ---- start ----

def first_answer(path, model):
    """Seconds from here to the first answer of the kind; asks again while the model is not there yet."""
    begin, early = time.perf_counter(), None
    while True:
        client = Client(path)
        try:
            client.connection.request("GET", "/v2/health/live")
            client.connection.getresponse().read()
            early = early or time.perf_counter() - begin
            raw = np.ones((1, COLUMNS), np.float32).tolist()
            client.connection.request("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": [
                {"name": "x", "datatype": "FP32", "shape": [1, COLUMNS], "data": raw}]}))
            response = client.connection.getresponse()
            response.read()
            if response.status == 200:
                return early, time.perf_counter() - begin
        finally:
            client.connection.close()


def part_start(options):
    """What systemd does with sluiced-http.socket: it holds the socket, and starts the daemon on a connection."""
    lives, answers = [], []
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        write_models(folder + "/models")
        path = folder + "/http.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(64)
        for _ in range(2 if options.quick else 10):
            process = activate(options, folder, listener)
            live, answer = first_answer(path, "double")
            lives.append(live * 1e3)
            answers.append(answer * 1e3)
            if process.result().wait(60) != 0:
                sys.exit("memory.py: start: the daemon did not leave by itself with 0")
        listener.close()
    print(f"start on a connection: {percentile(lives, .5):.0f} ms to the first answer of /v2/health/live, "
          f"{percentile(answers, .5):.0f} ms to the first inference (worst {max(answers):.0f}), exit by ExitIdle=1s each "
          f"time, median of {len(lives)}, {load()}", flush=True)
    return True


def activate(options, folder, listener):
    """A thread that waits for a connection and starts the daemon with the socket; its result is the process."""
    command = [str(options.build / "daemon" / "sluiced"), "--model-repository", folder + "/models"]
    for item in ("Server.GrpcListen=", "Server.MetricsListen=", f"Server.AdminListen=unix:{folder}/admin.sock",
                 "Server.ExitIdle=1s", "Device.Device=cpu"):
        command += ["--set", item]

    def start():
        select.select([listener], [], [])
        script = f'exec 3<&{listener.fileno()}; export LISTEN_PID=$$; exec "$@"'
        with open(folder + "/log", "a") as log:
            return subprocess.Popen(["bash", "-c", script, "bash", *command], stderr=log,
                                    pass_fds=[listener.fileno()],
                                    env={**os.environ, "LISTEN_FDS": "1", "LISTEN_FDNAMES": "http"})

    return concurrent.futures.ThreadPoolExecutor(1).submit(start)


# ---- reload ----

def part_reload(options):
    """Leaving and coming back, from host memory and from the file; what small requests notice of it."""
    daemon = Daemon(options, "Models.ControlMode=explicit", "Models.Load=double hungry")
    small_models.write(daemon.models.name, "large", small_models.product(1, 512, 64), "max_batch_size: 8")

    def admin(method, path, body=None):
        answer = json.loads(daemon.server.request(method, "/sluice/v1/" + path,
                                                  body and json.dumps(body), role="admin")[2])
        return answer["models"] if path == "models" else answer
    loaded = admin("POST", "models/large/load")["load_us"] / 1e3
    small, stop = daemon.client(), threading.Event()
    alone = [small.infer("double", 1) for _ in range(200)]
    worker = concurrent.futures.ThreadPoolExecutor(1)
    beside = worker.submit(timed, small, stop)
    leaves, backs = [], {"weights": [], "all": []}
    for _ in range(2 if options.quick else 10):
        for level, times in backs.items():
            leaves.append(admin("POST", "models/large/sleep", {"level": level})["microseconds"] / 1e3)
            admin("POST", "models/large/wake")
            times.append(next(row for row in admin("GET", "models") if row["name"] == "large")["reload_us"] / 1e3)
    stop.set()
    print(f"reload of 64 MiB: {percentile(backs['weights'], .5):.0f} ms from host memory, "
          f"{percentile(backs['all'], .5):.0f} ms from the file, load {loaded:.0f} ms; leaving "
          f"{percentile(leaves, .5):.1f} ms (worst {max(leaves):.1f}); small requests meanwhile p99 "
          f"{percentile(beside.result(), .99):.2f} ms, alone {percentile(alone, .99):.2f} ms, {load()}", flush=True)
    daemon.stop()
    return True


# ---- history ----

def part_history(options):
    """What keeping the history of memory events costs: small requests, one daemon with it and one without, in turn."""
    rounds, count = (4, 300) if options.quick else (30, 1000)
    daemons = [Daemon(options, f"Memory.History={events}") for events in (4096, 0)]
    clients = [daemon.client() for daemon in daemons]
    rates = ([], [])
    for turn in range(rounds):
        for i in ((0, 1), (1, 0))[turn % 2]:
            begin = time.perf_counter()
            for _ in range(count):
                clients[i].infer("double", 1)
            rates[i].append(count / (time.perf_counter() - begin))
    for daemon in daemons:
        daemon.stop()
    with_it, without = (percentile(values, .5) for values in rates)
    print(f"history of 4096 events: {with_it:.0f} requests/s with it, {without:.0f} without, ratio "
          f"{with_it / without:.3f} (medians of {rounds}), best {max(rates[0]):.0f} and {max(rates[1]):.0f}, {load()}", flush=True)
    return True


PARTS = {"sawtooth": part_sawtooth, "empty_cache": part_empty_cache, "hog": part_hog, "start": part_start,
         "reload": part_reload, "history": part_history}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--part", default=",".join(PARTS))
    parser.add_argument("--seconds", type=int, default=0, help="of sawtooth and hog, instead of 60")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("SLUICECTL", str(options.build / "client" / "sluicectl"))
    held = True
    for part in options.part.split(","):
        if part not in PARTS:
            sys.exit(f"memory.py: no part '{part}'; known are {', '.join(PARTS)}")
        held &= PARTS[part](options)
    return 0 if held else 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
