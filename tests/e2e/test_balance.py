"""Two daemons behind HAProxy and behind nginx, as in deploy/: both protocols, one daemon after the other
drained, killed and started anew under load.

    test_balance.py PROGRAM"""
import csv
import io
import json
import os
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import harness

# Daemons are started while clients run; gRPC's own care for forks gets in the way of that.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
try:
    import numpy as np
    import tritonclient.grpc as grpcclient
    import tritonclient.http as httpclient

    import balancers
    import small_models
except ImportError as error:
    harness.need_packages(error)

PROGRAM = None
COLUMNS = 4
LARGE = 1 << 20  # elements: 4 MiB, more than any buffer of a balancer
CLIENTS = 3      # of each protocol
ROUNDS = 10      # requests that each client makes before something counts as survived


def inputs(module, array):
    tensor = module.InferInput("x", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    return [tensor]


class Load(threading.Thread):
    """One client that asks without pause, checks each answer, and notes when each failure began and ended."""

    def __init__(self, module, address):
        super().__init__(daemon=True)
        self.module = module
        self.client = module.InferenceServerClient(address)
        self.done = 0
        self.failures = []
        self.over = threading.Event()
        self.array = np.arange(COLUMNS, dtype=np.float32).reshape(1, COLUMNS)

    def run(self):
        # Nobody else may close a client: tritonclient's HTTP one belongs to its thread.
        while not self.over.is_set():
            began = time.monotonic()
            try:
                answer = self.client.infer("double", inputs(self.module, self.array)).as_numpy("y")
                if not np.array_equal(answer, 2 * self.array):
                    raise AssertionError(f"a wrong answer: {answer}")
            except Exception as error:  # whatever it was, it is what the test is about
                self.failures.append((began, time.monotonic(), str(error)))
            self.done += 1
        self.client.close()


class Cases:
    """What holds behind either balancer."""
    name = None

    @classmethod
    def setUpClass(cls):
        cls.models = tempfile.TemporaryDirectory(prefix="sluice-e2e-")
        small_models.write(cls.models.name, "double", small_models.times(2, columns="m"), "max_batch_size: 64")

    @classmethod
    def tearDownClass(cls):
        cls.models.cleanup()

    def setUp(self):
        self.balancer = balancers.Balancer(self.name)
        self.addCleanup(self.balancer.stop)
        self.servers = [None, None]
        for instance in (0, 1):
            self.start_server(instance)
        self.addCleanup(self.stop_servers)
        self.balancer.start()
        self.loads = []
        self.addCleanup(self.stop_load)

    def start_server(self, instance):
        server = harness.Server(PROGRAM, as_daemon=True, settings=["Device.Device=cpu"],
                                more=["--instance", str(instance), "--model-repository", self.models.name])
        harness.wait_for("the model", lambda: server.request("GET", "/v2/health/ready")[0] == 200)
        self.servers[instance] = server
        self.balancer.point(instance, server)

    def stop_servers(self):
        for server in self.servers:
            if server.process.poll() is None:
                server.stop()

    def start_load(self):
        for module, role in ((grpcclient, "grpc"), (httpclient, "http")):
            self.loads += [Load(module, self.balancer.address(role)) for _ in range(CLIENTS)]
        for load in self.loads:
            load.start()
        harness.wait_for("both to be asked", lambda: all(self.answered(each) > ROUNDS for each in (0, 1)))

    def stop_load(self):
        for load in self.loads:
            load.over.set()
        for load in self.loads:
            load.join(30)

    def more_rounds(self):
        """Waits until every client has had so many more answers."""
        targets = [load.done + ROUNDS for load in self.loads]
        harness.wait_for("answers go on", lambda: all(
            load.done >= target for load, target in zip(self.loads, targets)))

    def failures(self):
        return [(load.module.__name__, *failure) for load in self.loads for failure in load.failures]

    def answered(self, instance):
        body = self.servers[instance].request("GET", "/v2/models/double/stats")[2]
        return json.loads(body)["model_stats"][0]["inference_count"]

    def test_large_tensors_pass_over_both_protocols(self):
        array = np.arange(LARGE, dtype=np.float32).reshape(1, LARGE)
        for module, role in ((grpcclient, "grpc"), (httpclient, "http")):
            client = module.InferenceServerClient(self.balancer.address(role))
            self.assertTrue(client.is_server_ready())
            answer = client.infer("double", inputs(module, array)).as_numpy("y")
            np.testing.assert_array_equal(answer, 2 * array)
            client.close()

    def test_each_instance_shows_its_metrics(self):
        for instance in (0, 1):
            url = f"http://{self.balancer.address('metrics')}/{instance}/metrics"
            with urllib.request.urlopen(url, timeout=10) as answer:
                self.assertIn(b"sluice_memory_bytes", answer.read())

    def test_draining_one_loses_no_request(self):
        self.start_load()
        for instance in (0, 1):
            self.servers[instance].stop()  # its exit status is 0: what it had was answered
            self.more_rounds()
            self.start_server(instance)
            harness.wait_for("it to be asked again", lambda: self.answered(instance) > ROUNDS)
        self.stop_load()
        self.assertEqual(self.failures(), [], self.balancer.log())

    def test_killing_one_fails_at_most_what_it_had(self):
        self.start_load()
        self.servers[0].process.kill()
        self.servers[0].process.wait()
        killed = time.monotonic()  # dying takes a moment, in which it still accepts and answers nobody
        self.more_rounds()
        self.stop_load()
        later = [failure for failure in self.failures() if failure[1] > killed]
        self.assertEqual(later, [])
        self.servers[0].folder.cleanup()


class BehindHaproxy(Cases, unittest.TestCase):
    name = "haproxy"

    def state(self, backend, server):
        """The first word: "DOWN (tracked)" is down."""
        answer = balancers.haproxy_says(self.balancer.folder.name, "show stat").lstrip("# ")
        for row in csv.DictReader(io.StringIO(answer)):
            if (row["pxname"], row["svname"]) == (backend, server):
                return row["status"].split(" ")[0]
        raise KeyError(server)

    def test_one_that_is_not_ready_gets_nothing(self):
        with tempfile.TemporaryDirectory(prefix="sluice-e2e-") as models:
            os.makedirs(os.path.join(models, "broken", "1"))
            with open(os.path.join(models, "broken", "1", "model.onnx"), "wb") as file:
                file.write(b"none")
            small_models.write(models, "double", small_models.times(2, columns="m"), "max_batch_size: 64")
            unready = harness.Server(PROGRAM, as_daemon=True, settings=["Device.Device=cpu"],
                                     more=["--model-repository", models])
            self.addCleanup(unready.process.wait)
            self.addCleanup(unready.process.kill)
            self.balancer.point(1, unready)
            self.servers[1].stop()
            self.servers[1] = unready
            harness.wait_for("its check to fail", lambda: self.state("sluice_grpc", "gpu1") == "DOWN")
            client = grpcclient.InferenceServerClient(self.balancer.address("grpc"))
            array = np.zeros((1, COLUMNS), np.float32)
            for _ in range(3 * ROUNDS):
                client.infer("double", inputs(grpcclient, array))
            self.assertEqual(self.answered(1), 0)
            client.close()


class BehindNginx(Cases, unittest.TestCase):
    name = "nginx"




if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
