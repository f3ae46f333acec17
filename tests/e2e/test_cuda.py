"""The daemon on the simulated GPU: it serves, it says when the device is lost, it does not hide a hang."""
import json
import os
import socket
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
WIDTH = 32
LOST = 75  # on which systemd starts the daemon again


def rows(count, seed=3):
    return np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)


def product(array, seed=1):
    return array @ small_models.product_weights(seed, WIDTH, 1)[0]


class Case(unittest.TestCase):
    def start(self, environment=None, device="cuda", settings=()):
        folder = tempfile.TemporaryDirectory(prefix="sluice-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        small_models.write(folder.name, "red", small_models.product(1, WIDTH, 1),
                           "max_batch_size: 8 dynamic_batching { }")
        self.server = harness.Server(PROGRAM, [f"Device.Device={device}", "Models.ControlMode=explicit",
                                               *settings],
                                     as_daemon=True, more=["--model-repository", folder.name],
                                     environment=environment)
        self.client = grpcclient.InferenceServerClient("unix://" + self.server.path("grpc"))
        self.addCleanup(self.client.close)

    def infer(self, array, timeout=None):
        tensor = grpcclient.InferInput("x", list(array.shape), "FP32")
        tensor.set_data_from_numpy(array)
        return self.client.infer("red", [tensor], client_timeout=timeout).as_numpy("y")


class Serving(Case):
    def check(self, mode):
        self.start({"SLUICE_SIM_MODE": mode, "SLUICE_SIM_LEAKS": "1"}, settings=["Device.Lanes=2"])
        self.client.load_model("red")
        for count in (1, 3, 8, 1, 1, 1):
            array = rows(count, count)
            np.testing.assert_allclose(self.infer(array), product(array), rtol=1e-4, atol=1e-4)
        self.assertGreater(self.server.metric('sluice_memory_bytes{kind="weights"}'), 0)
        self.client.unload_model("red")
        harness.wait_for("the model to leave", lambda: self.server.metric('sluice_memory_bytes{kind="weights"}') == 0)
        log = self.server.log()
        self.server.stop()
        self.assertNotIn("sim: still open", log)

    def test_answers_are_right_with_eager_streams(self):
        self.check("eager")

    def test_answers_are_right_with_lazy_streams(self):
        self.check("lazy")

    def test_clients_at_once_get_their_own_rows(self):
        self.start({"SLUICE_SIM_MODE": "async"}, settings=["Device.Lanes=2"])
        self.client.load_model("red")
        failures = []

        def ask(seed):
            array = rows(1 + seed % 3, seed)
            try:
                np.testing.assert_allclose(self.infer(array), product(array), rtol=1e-4, atol=1e-4)
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.server.stop()


class Residency(Case):
    def model(self):
        return next(row for row in self.admin("GET", "models")["models"] if row["name"] == "red")

    def admin(self, method, path, body=None):
        status, _, answer = self.server.request(method, "/sluice/v1/" + path,
                                                None if body is None else json.dumps(body), role="admin")
        self.assertEqual(status, 200, answer)
        return json.loads(answer)

    def away_and_back(self):
        """The row of the model while it was away."""
        array = rows(3)
        before = self.infer(array)
        self.admin("POST", "models/red/sleep", {"level": "weights"})
        away = self.model()
        np.testing.assert_array_equal(self.infer(array), before)
        self.assertEqual(self.model()["residency"], "resident")
        self.assertEqual(self.model()["device_bytes"], away["device_bytes"])
        return away

    def test_packed_weights_stay_in_host_memory_and_are_copied_back(self):
        self.start({"SLUICE_SIM_LEAKS": "1"})
        self.client.load_model("red")
        away = self.away_and_back()
        self.assertEqual(away["residency"], "host")
        self.assertGreater(away["host_bytes"], WIDTH * WIDTH * 4)
        self.assertRegex(self.server.log(), r"back on the device: \d+ bytes, \d+ ms \(from %d bytes in host memory\)" %
                         away["host_bytes"])
        self.client.unload_model("red")
        log = self.server.log()
        self.server.stop()
        self.assertNotIn("sim: still open", log)

    def test_a_host_cache_without_room_for_the_copy_keeps_the_rest(self):
        self.start(settings=["Memory.HostCache=4000"])
        self.client.load_model("red")
        away = self.away_and_back()
        self.assertEqual(away["residency"], "dropped" if away["host_bytes"] == 0 else "host")
        self.assertLessEqual(away["host_bytes"], 4000)
        self.server.stop()


class Absence(Case):
    def test_auto_serves_on_the_cpu_and_says_why(self):
        self.start({"SLUICE_SIM_ABSENT": "driver"}, device="auto")
        self.assertIn("using the CPU", self.server.log())
        self.client.load_model("red")
        np.testing.assert_allclose(self.infer(rows(2)), product(rows(2)), rtol=1e-4, atol=1e-4)
        self.server.stop()


class Loss(Case):
    def lose(self):
        """Asks until a kernel breaks; the error that the client in flight got."""
        for _ in range(200):
            try:
                self.infer(rows(1))
            except InferenceServerException as error:
                return error
        self.fail("no kernel broke")

    def test_a_broken_kernel_is_unavailable_and_ends_the_daemon_for_a_new_start(self):
        self.start({"SLUICE_SIM_BREAK": "60"})
        self.client.load_model("red")
        self.assertIn("UNAVAILABLE", str(self.lose().status()))
        self.assertEqual(self.server.process.wait(30), LOST, self.server.log())
        self.assertIn("the device is lost", self.server.log())

    def test_a_load_that_loses_the_device_fails_and_ends_the_daemon(self):
        self.start({"SLUICE_SIM_BREAK": "1"})
        with self.assertRaisesRegex(InferenceServerException, "the device is lost"):
            self.client.load_model("red")
        self.assertEqual(self.server.process.wait(30), LOST, self.server.log())

    def test_a_device_that_is_lost_while_nobody_asks_ends_the_daemon(self):
        """The governor looks at what is free; 719: cudaErrorLaunchFailure."""
        self.start({"SLUICE_SIM_FAIL": "cudaMemGetInfo:12:719"})
        self.assertEqual(self.server.process.wait(30), LOST, self.server.log())


class Memory(Case):
    COLUMNS = 64

    def ask(self, count):
        array = np.random.default_rng(count).random((count, self.COLUMNS), np.float32)
        tensor = grpcclient.InferInput("x", list(array.shape), "FP32")
        tensor.set_data_from_numpy(array)
        answer = self.client.infer("hungry", [tensor]).as_numpy("y")
        waves = np.sin(array[:, :, None] * np.linspace(0, 1, 4096, dtype=np.float32))
        np.testing.assert_allclose(answer, waves.max(axis=2), rtol=1e-4, atol=1e-4)

    def test_a_batch_that_the_device_refuses_is_that_batchs_error(self):
        """The budget has room, the device has not: another process holds it."""
        self.start({"SLUICE_SIM_MEMORY": "400M", "SLUICE_SIM_OTHERS": "100M"},
                   settings=["Memory.Headroom=1M", "Memory.Limit=300M"])
        small_models.write(self.folder, "hungry", small_models.hungry(self.COLUMNS, 4096), "max_batch_size: 64")
        self.client.load_model("hungry")
        self.ask(1)
        for _ in range(2):
            with self.assertRaises(InferenceServerException) as caught:
                self.ask(64)
            self.assertIn("RESOURCE_EXHAUSTED", str(caught.exception.status()))
            self.ask(2)
        self.server.stop()


class Hang(Case):
    def test_a_kernel_that_never_ends_starves_the_watchdog(self):
        notify = tempfile.TemporaryDirectory(prefix="sluice-e2e-")
        self.addCleanup(notify.cleanup)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(listener.close)
        listener.bind(os.path.join(notify.name, "notify"))
        self.start({"SLUICE_SIM_MODE": "async", "SLUICE_SIM_HANG": "60",
                    "NOTIFY_SOCKET": os.path.join(notify.name, "notify"), "WATCHDOG_USEC": "400000"})
        self.client.load_model("red")
        with self.assertRaises(InferenceServerException):
            for _ in range(200):
                self.infer(rows(1), timeout=2)
        # Health is told by the I/O thread, and stays true until somebody ends the process.
        listener.settimeout(1.5)  # several intervals of the watchdog
        fed = 0
        with self.assertRaises(TimeoutError):
            while fed < 40:
                fed += b"WATCHDOG=1" in listener.recv(4096)
        self.server.process.kill()
        self.server.process.wait()


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
