"""Requests that do not end well, on a daemon that runs real models: cancelled, expired, abandoned, too
many, too large.  After each of them the daemon answers as before and holds no byte more."""
import json
import re
import signal
import subprocess
import sys
import tempfile
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
WIDTH = 512
MOST_ROWS = 2048


class Case(unittest.TestCase):
    settings = []

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="sluice-e2e-")
        cls.make_models(cls.folder.name)
        cls.server = harness.Server(PROGRAM, cls.settings, as_daemon=True,
                                    more=["--model-repository", cls.folder.name])
        cls.client = cls.connect()
        harness.wait_for("the models", cls.client.is_server_ready, seconds=60)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.stop()
        cls.folder.cleanup()

    @classmethod
    def connect(cls):
        return grpcclient.InferenceServerClient("unix://" + cls.server.path("grpc"))

    def memory(self):
        return json.loads(self.server.request("GET", "/sluice/v1/memory", role="admin")[2])

    def status(self):
        return json.loads(self.server.request("GET", "/sluice/v1/status", role="admin")[2])

    def count(self, model, outcome):
        return self.server.metric(f'sluice_requests_total{{model="{model}",version="1",outcome="{outcome}"}}')

    def await_idle(self):
        harness.wait_for("the daemon is idle", lambda: self.status()["requests_in_flight"] == 0, seconds=60)

    def assert_serves(self):
        """The daemon answers as before, and nothing is kept for requests that are gone."""
        x = np.arange(8, dtype=np.float32).reshape(2, 4)
        y = self.client.infer("double", inputs(x)).as_numpy("y")
        np.testing.assert_array_equal(y, 2 * x)
        self.await_idle()
        memory = self.memory()
        self.assertEqual(memory["host"]["in_use_bytes"], 0)
        self.assertEqual(memory["kinds"]["activation"] + memory["kinds"]["io"], 0)
        self.assertEqual(memory["plan_violations_total"], 0)


def inputs(array):
    tensor = grpcclient.InferInput("x", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    return [tensor]


def rows(count):
    return np.ones((count, WIDTH), np.float32)


def rows_for_a_second(client):
    """So many rows keep the slow model busy for about a second, with a sanitizer and without."""
    took = []
    for count in (2, 2, 34):  # the first one also makes the plan
        began = time.monotonic()
        client.infer("slow", inputs(rows(count)))
        took.append(time.monotonic() - began)
    a_row = max((took[2] - took[1]) / 32, 1e-6)
    return max(2, min(MOST_ROWS, round(1 / a_row)))


class Slow(Case):
    """A model that keeps the only lane busy for a while."""

    settings = ["Device.Lanes=1", "Models.ControlMode=explicit", "Models.Load=*"]

    @staticmethod
    def make_models(folder):
        small_models.write(folder, "double", small_models.times(2), "max_batch_size: 8")
        small_models.write(folder, "slow", small_models.slow(width=WIDTH), "max_batch_size: 2048")
        small_models.write(folder, "queued", small_models.slow(width=WIDTH, layers=16), """
            max_batch_size: 2048
            dynamic_batching { default_queue_policy { max_queue_size: 2 allow_timeout_override: true } }""")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rows = rows_for_a_second(cls.client)

    def start_slow(self, client=None, **more):
        """One slow request; returns when a lane works on it."""
        failures = []
        handle = (client or self.client).async_infer(
            "slow", inputs(rows(self.rows)), lambda result, error: failures.append(error), **more)
        harness.wait_for("the request is there", lambda: self.status()["requests_in_flight"] > 0)
        return handle, failures

    def http_request(self):
        """A slow request as bytes, for sockets that are dropped."""
        raw = rows(self.rows).tobytes()
        head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [self.rows, WIDTH],
                                       "parameters": {"binary_data_size": len(raw)}}]}).encode()
        return (b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: %d\r\n"
                b"Content-Length: %d\r\n\r\n" % (len(head), len(head) + len(raw))) + head + raw

    def test_a_name_is_not_over_at_a_nul(self):
        tensor = grpcclient.InferInput("x" + "\0" * 1000000, [1, 4], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
        wanted = grpcclient.InferRequestedOutput("y" + "\0" * 1000000)
        for arguments, word in (([tensor], {}), "input"), ((inputs(np.ones((1, 4), np.float32)), {"outputs": [wanted]}), "output"):
            with self.assertRaisesRegex(InferenceServerException, "unexpected inference " + word):
                self.client.infer("double", arguments[0], **arguments[1])
        self.assert_serves()

    def test_a_cancelled_request_stops(self):
        before = self.count("slow", "cancel")
        handle, failures = self.start_slow()
        handle.cancel()
        harness.wait_for("the cancel", lambda: self.count("slow", "cancel") > before, seconds=60)
        harness.wait_for("the client knows", lambda: failures)
        self.assertIn("CANCELLED", str(failures[0].status()))
        self.assert_serves()

    def test_a_deadline_ends_a_running_request(self):
        success = self.count("slow", "success")
        began = time.monotonic()
        with self.assertRaises(InferenceServerException) as caught:
            self.client.infer("slow", inputs(rows(self.rows)), client_timeout=0.05)
        self.assertIn("DEADLINE_EXCEEDED", str(caught.exception.status()))
        self.assertLess(time.monotonic() - began, 10)
        self.await_idle()
        self.assertEqual(self.count("slow", "success"), success)
        self.assert_serves()

    def test_a_timeout_of_the_protocol_ends_one_that_waits(self):
        handle, failures = self.start_slow()
        with self.assertRaises(InferenceServerException) as caught:
            self.client.infer("queued", inputs(rows(self.rows)), timeout=1000)
        self.assertIn("timeout expired", str(caught.exception))
        self.assertEqual(failures, [])  # at its time: the lane is still busy with the other
        handle.cancel()
        self.assert_serves()

    def test_an_http_client_that_leaves_cancels_its_request(self):
        before = self.count("slow", "cancel")
        connection = self.server.connect("http")
        connection.sendall(self.http_request())
        harness.wait_for("the request is there", lambda: self.status()["requests_in_flight"] > 0)
        connection.close()
        harness.wait_for("the cancel", lambda: self.count("slow", "cancel") > before, seconds=60)
        self.assert_serves()

    def test_a_client_that_is_killed_cancels_its_requests(self):
        before = self.count("slow", "cancel")
        script = ("import sys, numpy as np, tritonclient.grpc as g\n"
                  "t = g.InferInput('x', [%d, %d], 'FP32'); t.set_data_from_numpy(np.ones((%d, %d), 'f4'))\n"
                  "g.InferenceServerClient('unix://' + sys.argv[1]).infer('slow', [t])" % ((self.rows, WIDTH) * 2))
        client = subprocess.Popen([sys.executable, "-c", script, self.server.path("grpc")])
        harness.wait_for("the request is there", lambda: self.status()["requests_in_flight"] > 0, seconds=60)
        client.send_signal(signal.SIGKILL)
        client.wait()
        harness.wait_for("the cancel", lambda: self.count("slow", "cancel") > before, seconds=60)
        self.assert_serves()

    def test_a_client_that_is_killed_in_the_middle_of_its_bytes_leaves_nothing(self):
        request = self.http_request()
        script = ("import socket, sys, time\n"
                  "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
                  "s.sendall(sys.stdin.buffer.read()); print('sent', flush=True); time.sleep(600)")
        client = subprocess.Popen([sys.executable, "-c", script, self.server.path("http")],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        client.stdin.write(request[:len(request) // 2])
        client.stdin.close()
        self.assertEqual(client.stdout.readline(), b"sent\n")
        harness.wait_for("half of it is there", lambda: self.memory()["host"]["in_use_bytes"] > 0)
        client.kill()
        client.wait()
        client.stdout.close()
        harness.wait_for("it is given back", lambda: self.memory()["host"]["in_use_bytes"] == 0)
        self.assert_serves()

    def test_a_full_queue_turns_requests_away(self):
        refused, right = [], []

        def answer(result, error):
            (right if error is None else refused).append(error)

        for _ in range(12):
            self.client.async_infer("queued", inputs(rows(self.rows)), answer)
        harness.wait_for("all answers", lambda: len(refused) + len(right) == 12, seconds=120)
        self.assertGreaterEqual(len(refused), 1)
        self.assertGreaterEqual(len(right), 2)
        for error in refused:
            self.assertIn("UNAVAILABLE", str(error.status()))
            self.assertIn("maximum queue size", str(error))
        self.assertEqual(self.count("queued", "rejected"), len(refused))
        self.assert_serves()

    def test_unloading_waits_for_the_request_in_flight(self):
        self.client.unload_model("slow")
        harness.wait_for("the unload", lambda: not self.client.is_model_ready("slow"))
        before = self.memory()["kinds"]["weights"]
        self.client.load_model("slow")
        held = self.memory()["kinds"]["weights"]
        answers = []
        self.client.async_infer("slow", inputs(rows(self.rows)), lambda result, error: answers.append(error))
        harness.wait_for("the request is there", lambda: self.status()["requests_in_flight"] > 0)
        status, _, body = self.server.request("POST", "/sluice/v1/models/slow/unload", role="admin")
        self.assertEqual(status, 200, body)
        harness.wait_for("its answer", lambda: answers)
        self.assertEqual(answers, [None])
        self.assertEqual(json.loads(body)["freed_bytes"], held - before)
        self.assertEqual(self.memory()["kinds"]["weights"], before)
        self.client.load_model("slow")


class Drain(Case):
    @staticmethod
    def make_models(folder):
        small_models.write(folder, "slow", small_models.slow(width=WIDTH), "max_batch_size: 2048")

    def test_work_in_flight_is_answered_before_the_end(self):
        answers = []
        self.client.async_infer("slow", inputs(rows(rows_for_a_second(self.client))),
                                lambda result, error: answers.append(error))
        harness.wait_for("the request is there", lambda: self.status()["requests_in_flight"] > 0)
        self.server.drain()
        self.assertEqual(self.server.process.wait(60), 0)
        harness.wait_for("its answer", lambda: answers)
        self.assertEqual(answers, [None])


class Budget(Case):
    """64 MiB, and a model that wants 4 MiB a row."""

    settings = ["Memory.Limit=64M", "Device.Lanes=1"]

    @staticmethod
    def make_models(folder):
        small_models.write(folder, "double", small_models.times(2), "max_batch_size: 8")
        small_models.write(folder, "hungry", small_models.hungry(256, 4096), "max_batch_size: 64")
        small_models.write(folder, "whole", small_models.hungry(8192, 4096))
        small_models.write(folder, "spread", small_models.spread())

    def test_the_impossible_is_refused_with_both_numbers(self):
        for model, x in (("hungry", np.zeros((64, 256), np.float32)),
                         ("whole", np.zeros((1, 8192), np.float32))):
            with self.assertRaises(InferenceServerException) as caught:
                self.client.infer(model, inputs(x))
            self.assertIn("RESOURCE_EXHAUSTED", str(caught.exception.status()))
            self.assertRegex(str(caught.exception), r"needs \d+ bytes, \d+ are available")
            needed, available = map(int, re.findall(r"(\d+) (?:bytes|are)", str(caught.exception))[:2])
            self.assertGreater(needed, available)
            self.assertLessEqual(available, 64 << 20)
            self.assert_serves()

    def test_so_is_an_answer_whose_size_the_request_decides(self):
        before = self.memory()
        tensors = [grpcclient.InferInput("x", [1], "FP32"), grpcclient.InferInput("shape", [1], "INT64")]
        tensors[0].set_data_from_numpy(np.zeros(1, np.float32))
        tensors[1].set_data_from_numpy(np.array([1 << 40], np.int64))
        with self.assertRaises(InferenceServerException) as caught:
            self.client.infer("spread", tensors)
        self.assertIn("RESOURCE_EXHAUSTED", str(caught.exception.status()))
        self.assertRegex(str(caught.exception), r"needs 4398046511104 bytes, \d+ are available")
        self.assertEqual(self.memory()["host"]["refused_total"], before["host"]["refused_total"] + 1)
        self.assert_serves()

    def test_over_http_it_is_429(self):
        raw = np.zeros((64, 256), np.float32).tobytes()
        head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [64, 256],
                                       "parameters": {"binary_data_size": len(raw)}}]}).encode()
        status, _, body = self.server.request("POST", "/v2/models/hungry/infer", head + raw,
                                              {"Inference-Header-Content-Length": str(len(head))})
        self.assertEqual(status, 429)
        self.assertRegex(json.loads(body)["error"], r"needs \d+ bytes, \d+ are available")
        self.assert_serves()

    def test_many_that_fit_one_by_one_are_all_answered(self):
        answers = []
        for _ in range(40):
            self.client.async_infer("hungry", inputs(np.ones((4, 256), np.float32)),
                                    lambda result, error: answers.append(error))
        harness.wait_for("all answers", lambda: len(answers) == 40, seconds=120)
        self.assertEqual(answers, [None] * 40)
        self.assertLessEqual(self.memory()["peak_reserved_bytes"], 64 << 20)
        self.assert_serves()


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
