#!/usr/bin/env python3
"""Ten thousand distinct input shapes into one model: does memory stay bounded, do requests stay fast?

    shapes.py --build DIR [--count N] [--limit-mib N] [--plan-cache-mib N]

Two convolutions over one row of open length; lengths come in random order, so that the first and the last
thousand compute the same on average.  Printed: the largest reserved, the largest plan cache, resident size,
the time of a request with a new shape (its plan is made) at the start and at the end, and of one with a known
shape before and after.  Ends with 1 when a bound is broken.
"""
import argparse
import http.client
import json
import os
import random
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/e2e"))
import small_models  # noqa: E402

MiB = 2 ** 20
MODEL = "waves"


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Daemon:
    def __init__(self, program, repository, folder, settings):
        self.folder = folder
        command = [program, "--model-repository", repository]
        for setting in (f"Server.HttpListen=unix:{folder}/http.sock", f"Server.AdminListen=unix:{folder}/admin.sock",
                        "Server.GrpcListen=", "Server.MetricsListen=", *settings):
            command += ["--set", setting]
        self.log = open(os.path.join(folder, "log"), "w+")
        self.process = subprocess.Popen(command, stderr=self.log)
        for _ in range(500):
            self.log.seek(0)
            if " is ready: " in self.log.read() or self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.http, self.admin = (Connection(f"{folder}/{name}.sock") for name in ("http", "admin"))

    def ask(self, path):
        self.admin.request("GET", "/sluice/v1/" + path)
        return json.loads(self.admin.getresponse().read())

    def infer(self, length):
        """Microseconds of one request."""
        raw = struct.pack("<%df" % length, *([0.5] * length))
        head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1, length],
                                       "parameters": {"binary_data_size": len(raw)}}],
                           "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
        start = time.perf_counter()
        self.http.request("POST", f"/v2/models/{MODEL}/infer", head + raw,
                          {"Inference-Header-Content-Length": str(len(head))})
        response = self.http.getresponse()
        body = response.read()
        spent = (time.perf_counter() - start) * 1e6
        if response.status != 200:
            raise SystemExit(f"length {length}: HTTP {response.status}: {body[:300]!r}")
        return spent

    def resident(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def measure(daemon, count):
    lengths = random.Random(7).sample(range(16, 16 + count), count)
    known = lengths[0]
    daemon.infer(known)
    before = statistics.median(daemon.infer(known) for _ in range(200))
    part = max(count // 10, 1)
    spent, reserved, plans, resident = [], 0, 0, []
    for i, length in enumerate(lengths[1:], 1):
        spent.append(daemon.infer(length))
        if i % max(part // 10, 1) == 0:
            memory, model = daemon.ask("memory"), daemon.ask("models")["models"][0]
            reserved = max(reserved, memory["peak_reserved_bytes"])
            plans = max(plans, model["plan_bytes"])
        if i % part == 0:
            resident.append(daemon.resident())
    daemon.infer(known)
    after = statistics.median(daemon.infer(known) for _ in range(200))
    return {"budget": daemon.ask("memory")["budget_bytes"], "reserved": reserved, "plans": plans,
            "resident": resident, "first": statistics.median(spent[:part]), "last": statistics.median(spent[-part:]),
            "known_before": before, "known_after": after, "part": part}


def report(found, plan_cache):
    print(f"  reserved at most      {found['reserved'] / MiB:8.1f} MiB  of a budget of {found['budget'] / MiB:.1f} MiB")
    print(f"  plan cache at most    {found['plans'] / MiB:8.1f} MiB  of {plan_cache:.1f} MiB")
    print(f"  resident size         {found['resident'][0] / MiB:8.1f} MiB  after a tenth, "
          f"{found['resident'][-1] / MiB:.1f} MiB at the end")
    print(f"  request, new shape    {found['first']:8.0f} us   median of the first {found['part']}, "
          f"{found['last']:.0f} us of the last ({found['last'] / found['first']:.2f} x)")
    print(f"  request, known shape  {found['known_before']:8.0f} us   before, {found['known_after']:.0f} us after "
          f"({found['known_after'] / found['known_before']:.2f} x)")
    broken = []
    if found["reserved"] > found["budget"]:
        broken.append("reserved bytes passed the budget")
    if found["plans"] > plan_cache * MiB:
        broken.append("the plan cache passed its limit")
    for text in broken:
        print("  BROKEN:", text)
    return not broken


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--build", required=True)
    options.add_argument("--count", type=int, default=10000)
    options.add_argument("--limit-mib", type=int, default=64)
    options.add_argument("--plan-cache-mib", type=int, default=4)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-shapes-") as folder:
        repository = os.path.join(folder, "models")
        small_models.write(repository, MODEL, small_models.waves())
        daemon = Daemon(os.path.join(arguments.build, "daemon/sluiced"), repository, folder,
                        ["Device.Device=cpu", f"Memory.Limit={arguments.limit_mib}M", "Memory.Headroom=0",
                         f"Models.PlanCache={arguments.plan_cache_mib}M"])
        try:
            print(f"{arguments.count} distinct input shapes into one model")
            good = report(measure(daemon, arguments.count), arguments.plan_cache_mib)
        finally:
            daemon.stop()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
