"""Random events under a budget of 60 % of the models' sum: infer, load, unload, evict, wake, cancel,
clients that are killed, room for others.  Every answer is compared with the right one, every refusal is
one of the rules', and the ledger is exact before, meanwhile and afterwards.  The same beside a hog that takes
the device's memory and gives it back.

    test_chaos.py PROGRAM        CHAOS_EVENTS=1000 CHAOS_SEED=1 in the environment choose how many and which

The events of a seed are the same every time; how they meet is up to the machine."""
import collections
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness

try:
    import numpy as np
    import tritonclient.grpc as grpcclient
    from tritonclient.utils import InferenceServerException

    import small_models
except ImportError as error:
    harness.need_packages(error)

PROGRAM = None
EVENTS = int(os.environ.get("CHAOS_EVENTS", "200"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
WORKERS = 6
SHARE = 0.6
HOST_CACHE = 6 << 20
# name: (width, layers); the sum of their weights is about 15 MiB
MODELS = {"a": (256, 1), "b": (256, 4), "c": (384, 2), "d": (512, 1), "e": (512, 2), "f": (512, 3),
          "g": (768, 1), "h": (640, 2)}
WEIGHTS_OF_EVENTS = {"infer": 50, "rest": 12, "sleep": 10, "wake": 5, "load": 5, "unload": 3, "cancel": 6,
                     "hang_up": 5, "kill": 2, "room": 2}
# What a request may be told instead of an answer: status and text.
RULES = [re.compile(rule) for rule in (
    r"UNAVAILABLE.*is not at ready state",                  # unloaded by another event
    r"NOT_FOUND.*has no available versions",                # the same, without a version in the request
    r"UNAVAILABLE.*is being loaded, it is not ready yet",   # loaded again by another event
    r"UNAVAILABLE.*was unloaded before it was back",
)]
# Beside a hog besides: nobody has to wait for ever for memory that it holds.
HOG_RULES = [re.compile(r"RESOURCE_EXHAUSTED|DEADLINE_EXCEEDED|^429 |^400 .*(memory|available)")]
DEVICE = 64 << 20
VICTIM = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
client.sendall(sys.stdin.buffer.read())
print("sent", flush=True)
client.recv(1)
client.recv(1 << 20)
"""


def inputs(array):
    tensor = grpcclient.InferInput("x", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    return [tensor]


def rest_request(name, array):
    raw = array.tobytes()
    head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": list(array.shape),
                                   "parameters": {"binary_data_size": len(raw)}}],
                       "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
    return (f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {len(head)}"
            f"\r\nContent-Length: {len(head) + len(raw)}\r\n\r\n").encode() + head + raw


class Chaos(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-e2e-")
        self.addCleanup(self.folder.cleanup)
        self.weights = {}
        for seed, (name, (width, layers)) in enumerate(MODELS.items(), 1):
            self.weights[name] = small_models.product_weights(seed, width, layers)
            small_models.write(self.folder.name, name, small_models.product(seed, width, layers),
                               "max_batch_size: 16 dynamic_batching { }")
        self.lock = threading.Lock()
        self.outcomes = collections.Counter()
        self.wrong, self.refused, self.overdrawn = [], [], []
        self.hog, self.rules = None, RULES

    def start(self, limit, idle="500ms", more=()):
        environment = {"SLUICE_FAULT": f"size={DEVICE} hog={self.hog}"} if self.hog else {}
        self.server = harness.Server(PROGRAM, ["Models.ControlMode=explicit", f"Memory.Limit={limit}",
                                               f"Memory.HostCache={HOST_CACHE}", f"Models.ModelIdle={idle}",
                                               "Models.ModelDrop=2s", "Memory.Dwell=500ms", *more],
                                     as_daemon=True, more=["--model-repository", self.folder.name],
                                     environment=environment)

    def admin(self, method, path, body=None):
        status, _, answer = self.server.request(method, "/sluice/v1/" + path,
                                                None if body is None else json.dumps(body), role="admin")
        return status, json.loads(answer)

    def memory(self):
        return self.admin("GET", "memory")[1]

    def sum_of_models(self):
        """What all of them hold when there is room for all."""
        self.start("1G", idle="0")
        for name in MODELS:
            self.assertEqual(self.admin("POST", f"models/{name}/load")[0], 200)
        total = self.memory()["kinds"]["weights"]
        self.server.stop()
        return total

    # ---- events ----

    def right_answer(self, name, x):
        y = x.astype(np.float64)
        for weight in self.weights[name]:
            y = y @ weight
        return y

    def compare(self, event, name, x, y):
        good = y is not None and y.shape == x.shape and np.allclose(y, self.right_answer(name, x), rtol=1e-3,
                                                                    atol=1e-3)
        with self.lock:
            self.outcomes["right" if good else "wrong"] += 1
            if not good:
                self.wrong.append(event)

    def refuse(self, event, text):
        with self.lock:
            by_rule = any(rule.search(text) for rule in self.rules)
            self.outcomes["refused by rule" if by_rule else "failed"] += 1
            if not by_rule:
                self.refused.append((event, text))

    def run_event(self, event, client):
        kind, name, rows, number = event
        x = np.random.default_rng(number).standard_normal((rows, MODELS[name][0])).astype(np.float32)
        getattr(self, "run_" + kind)(event, name, x, number, client)

    def run_infer(self, event, name, x, number, client):
        keep = {"keep_alive": ("0", "50ms", "10m", -1)[number % 4]} if number % 3 == 0 else None
        try:
            answer = client.infer(name, inputs(x), client_timeout=60, parameters=keep)
        except InferenceServerException as refusal:
            self.refuse(event, f"{refusal.status()} {refusal.message()}")
            return
        self.compare(event, name, x, answer.as_numpy("y"))

    def run_rest(self, event, name, x, number, client):
        connection = self.server.connect()
        connection.settimeout(60)
        connection.sendall(rest_request(name, x))
        with connection, connection.makefile("rb") as answer:
            status = int(answer.readline().split()[1])
            headers = dict(line.decode().strip().lower().split(": ", 1)
                           for line in iter(answer.readline, b"\r\n"))
            body = answer.read(int(headers["content-length"]))
        if status == 200:
            head = int(headers["inference-header-content-length"])
            self.compare(event, name, x, np.frombuffer(body[head:], np.float32).reshape(x.shape))
        else:
            self.refuse(event, {503: "UNAVAILABLE ", 404: "NOT_FOUND "}.get(status, f"{status} ") + body.decode())

    def run_sleep(self, event, name, x, number, client):
        self.command(event, f"models/{name}/sleep", {"level": ("weights", "all", "activations")[number % 3]})

    def run_wake(self, event, name, x, number, client):
        # A wake does not wait: what is in use then is in its way, by rule.
        self.command(event, f"models/{name}/wake", also=r"needs \d+ bytes of the device.*in the way: |at level evict")

    def run_load(self, event, name, x, number, client):
        # A load does not wait for models in use either.
        self.command(event, f"models/{name}/load", also=r"on the device: .*(in use|moving|run|held)|at level evict")

    def run_unload(self, event, name, x, number, client):
        self.command(event, f"models/{name}/unload")
        self.command(event, f"models/{name}/load", also=r"on the device: .*(in use|moving|run|held)|at level evict")

    def run_hog(self, event, name, x, number, client):
        """Somebody takes up to all of the device, and gives it back after a moment."""
        with open(self.hog, "w") as file:
            file.write(str(DEVICE - ((number % 4) << 20)))
        time.sleep((number % 6) / 10)
        with open(self.hog, "w") as file:
            file.write("0")
        with self.lock:
            self.outcomes["hogged"] += 1

    def run_room(self, event, name, x, number, client):
        self.command(event, "make-room", {"bytes": 1 << (16 + number % 8), "within_us": 500000,
                                          "hold_us": 20000 * (number % 2)})

    def command(self, event, path, body=None, also=None):
        status, answer = self.admin("POST", path, body or {})
        if status == 200:
            with self.lock:
                self.outcomes["done"] += 1
        elif also and re.search(also, answer["error"]):
            with self.lock:
                self.outcomes["refused by rule"] += 1
        else:
            self.refuse(event, {503: "UNAVAILABLE ", 404: "NOT_FOUND "}.get(status, f"{status} ") +
                        answer["error"])

    def run_cancel(self, event, name, x, number, client):
        done = threading.Event()
        answers = []

        def on_answer(result, error):
            answers.append((result, error))
            done.set()
        call = client.async_infer(name, inputs(x), on_answer)
        time.sleep((number % 7) / 2000)
        call.cancel()
        self.assertTrue(done.wait(60))
        result, refusal = answers[0]
        if refusal is None:
            self.compare(event, name, x, result.as_numpy("y"))
        elif "CANCELLED" in str(refusal.status()) or "cancel" in str(refusal).lower():
            with self.lock:
                self.outcomes["cancelled"] += 1
        else:
            self.refuse(event, f"{refusal.status()} {refusal.message()}")

    def run_hang_up(self, event, name, x, number, client):
        """A client that goes in the middle, of its request or of the wait."""
        request = rest_request(name, x)
        connection = self.server.connect()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(request if number % 2 else request[:len(request) // 2])
        time.sleep((number % 5) / 1000)
        connection.close()
        with self.lock:
            self.outcomes["hung up"] += 1

    def run_kill(self, event, name, x, number, client):
        victim = subprocess.Popen([sys.executable, "-S", "-E", "-c", VICTIM, self.server.path("http")],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        victim.stdin.write(rest_request(name, x))
        victim.stdin.close()
        victim.stdout.readline()
        time.sleep((number % 5) / 1000)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
        with self.lock:
            self.outcomes["killed"] += 1

    # ---- the whole ----

    def check_ledger(self, limit):
        memory = self.memory()
        if (memory["reserved_bytes"] > limit or sum(memory["kinds"].values()) != memory["reserved_bytes"] or
                memory["allocated_bytes"] + memory["cached_bytes"] != memory["reserved_bytes"]):
            self.overdrawn.append(memory)

    def work(self, events, limit, failures):
        client = grpcclient.InferenceServerClient("unix://" + self.server.path("grpc"))
        try:
            while True:
                with self.lock:
                    if not events:
                        break
                    event = events.pop()
                self.run_event(event, client)
                if event[3] % 10 == 0:
                    self.check_ledger(limit)
        except Exception as failure:  # noqa: BLE001 - shown by the test
            failures.append((event, repr(failure)))
        client.close()

    def make_events(self, more):
        dice = random.Random(SEED)
        kinds, weights = zip(*WEIGHTS_OF_EVENTS.items(), *more.items())
        return [(dice.choices(kinds, weights)[0], dice.choice(list(MODELS)), dice.randint(1, 8), number)
                for number in range(EVENTS)]

    def await_calm(self):
        """The level comes down by itself, nobody is said to wait, and HostCache= is kept."""
        harness.wait_for("the level falls", lambda: self.memory()["level"] in ("normal", "trim") or
                         self.memory()["pinned"], seconds=60)
        harness.wait_for("no stall", lambda: self.memory()["pressure"]["stall_share"] == 0, seconds=60)
        harness.wait_for("the host cache is kept", lambda: sum(
            row.get("host_bytes", 0) for row in self.admin("GET", "models")[1]["models"]) <= HOST_CACHE)

    def test_random_events(self):
        self.run_events({})

    def test_random_events_beside_a_hog(self):
        self.hog, self.rules = harness.temporary_file(self, "0"), RULES + HOG_RULES
        self.run_events({"hog": 5}, ["Memory.Headroom=1M", "Memory.MemoryWait=5s"])

    def run_events(self, kinds, more=()):
        limit = int(self.sum_of_models() * SHARE) // 4096 * 4096
        self.start(limit, more=more)
        before = self.memory()
        self.assertEqual(before["reserved_bytes"], 0)
        for name in MODELS:
            self.assertEqual(self.admin("POST", f"models/{name}/load")[0], 200)
        events, failures, began = self.make_events(kinds)[::-1], [], time.monotonic()
        threads = [threading.Thread(target=self.work, args=(events, limit, failures)) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
        harness.wait_for("nothing in flight", lambda: self.admin("GET", "status")[1]["requests_in_flight"] == 0,
                         seconds=60)
        left, back = (self.server.log().count(words) for words in (" left the device: ", " is back on the device: "))
        print(f"\n{EVENTS} events of seed {SEED} in {took:.1f} s under {limit} bytes: {dict(self.outcomes)}; "
              f"models left {left} times and came back {back} times", flush=True)
        self.assertEqual(failures, [])
        self.assertEqual(self.wrong, [])
        self.assertEqual(self.refused, [])
        self.assertEqual(self.overdrawn, [])
        self.assertGreater(self.outcomes["right"], EVENTS // 8 if self.hog else EVENTS // 4)
        self.assertGreater(back, EVENTS // 40 if self.hog else EVENTS // 20)
        self.await_calm()
        for name in MODELS:
            self.admin("POST", f"models/{name}/unload")
        self.admin("POST", "empty-cache", {"forced": True})
        after = self.memory()
        self.assertEqual(after["kinds"], before["kinds"])
        self.assertEqual((after["reserved_bytes"], after["planned_bytes"], after["host"]["in_use_bytes"]),
                         (0, 0, 0))
        self.assertEqual(after["plan_violations_total"], 0)
        self.server.stop()


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
