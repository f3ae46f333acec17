"""The daemon on devices that refuse memory, are slow with it or lose it to others (SLUICE_FAULT)."""
import json
import os
import sys
import tempfile
import threading
import unittest

import harness
try:
    import numpy as np
    import small_models
except ImportError as error:
    harness.need_packages(error)

PROGRAM = None
MiB = 2 ** 20
COLUMNS, WIDTH = 4, 65536  # 1 MiB of activations a row and value
SIZE = 256 * MiB
HOG = 8 * MiB  # somebody else's share of the device, so that a byte too few shows like one too many


def answer(rows):
    return np.sin(rows[:, :, None] * np.linspace(0, 1, WIDTH, dtype=np.float32)).max(axis=2)


class Faults(unittest.TestCase):
    """Each test starts a daemon of its own, on a device of 256 MiB that misbehaves."""

    def start(self, faults, device="cpu", settings=(), hog=HOG):
        folder = tempfile.TemporaryDirectory(prefix="sluice-e2e-")
        self.addCleanup(folder.cleanup)
        small_models.write(folder.name, "hungry", small_models.hungry(COLUMNS, WIDTH), "max_batch_size: 16")
        self.device = device
        self.server = harness.Server(
            PROGRAM, [f"Models.Repository={folder.name}", f"Device.Device={device}", "Device.Lanes=2",
                      "Device.Threads=1", "Memory.Limit=200M", "Memory.Headroom=16M", "Memory.Dwell=200ms",
                      *settings],
            as_daemon=True, environment={"SLUICE_FAULT": f"size={SIZE} hog={hog} {faults}"})
        self.addCleanup(self.server.stop)
        harness.wait_for("the model", lambda: self.server.request("GET", "/v2/models/hungry/ready")[0] == 200, 60)
        self.others = self.server.metric("sluice_memory_external_bytes")

    def infer(self, count):
        """Whether a request of so many rows was answered, and rightly."""
        rows = np.linspace(0, 3, count * COLUMNS, dtype=np.float32).reshape(count, COLUMNS)
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [count, COLUMNS],
                            "data": rows.ravel().tolist()}]}
        status, _, text = self.server.request("POST", "/v2/models/hungry/infer", json.dumps(body))
        if status != 200:
            self.assertIn("bytes", json.loads(text)["error"])
            return False
        got = np.array(json.loads(text)["outputs"][0]["data"], np.float32).reshape(count, COLUMNS)
        if self.device == "cpu":
            np.testing.assert_allclose(got, answer(rows), rtol=1e-5, atol=1e-5)
        return True

    def level(self):
        return int(self.server.metric("sluice_memory_level"))

    def wait_for_calm(self):
        harness.wait_for("the level is normal again", lambda: self.level() == 0)

    def assert_no_byte_is_lost(self):
        """What the device gave is what the ledger has, as it was before the first request."""
        harness.wait_for("no batch runs", lambda: self.server.metric(
            'sluice_memory_bytes{kind="activation"}') == 0)
        self.assertEqual(self.server.metric("sluice_memory_external_bytes"), self.others)

    def test_a_refused_map_fails_no_request_but_its_own(self):
        for device in ("cpu", "null"):
            for faults in ("map:n=5", "map:every=3", "map:every=2", "map:above=20M"):
                with self.subTest(device=device, faults=faults):
                    self.start(faults, device, ["Memory.IdleAfter=0"])
                    answered = [self.infer(1 + i * 5 % 13) for i in range(24)]
                    self.assertTrue(answered[0])  # small, and the second try of a map is a map of its own
                    self.assertGreater(sum(answered), 8)
                    if faults == "map:n=5":
                        self.assertEqual(sum(answered), 24)
                    self.assert_no_byte_is_lost()
                    self.wait_for_calm()
                    self.assertTrue(self.infer(1))

    def test_requests_at_once_on_a_device_that_refuses(self):
        self.start("map:every=3", settings=["Memory.LowWatermark=0.1", "Memory.HighWatermark=0.2"])
        answered = []

        def ask(first):
            answered.extend(self.infer(1 + (first + i) % 7) for i in range(10))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(answered), 40)
        self.assertGreater(sum(answered), 20)
        self.assert_no_byte_is_lost()

    def test_a_slow_device_is_only_slow(self):
        self.start("map:slow=20ms")
        self.assertTrue(all(self.infer(rows) for rows in (1, 8, 2, 16)))
        self.assert_no_byte_is_lost()

    def test_a_hog_raises_the_level_and_its_leaving_lowers_it_again(self):
        hog = harness.temporary_file(self, str(HOG))
        self.start("", hog=hog)
        self.assertTrue(self.infer(16))

        def take(bytes_):
            with open(hog + ".new", "w") as file:
                file.write(str(bytes_))
            os.replace(hog + ".new", hog)

        take(SIZE - 12 * MiB)
        harness.wait_for("the level rises", lambda: self.level() >= 2)
        harness.wait_for("cached memory has gone", lambda: self.server.metric(
            'sluice_memory_bytes{kind="cached"}') == 0)
        self.assertTrue(self.infer(1))  # what still fits is served
        self.assertFalse(self.infer(16))  # what does not is refused, and nobody dies
        take(HOG)
        self.wait_for_calm()
        self.assertTrue(self.infer(16))
        self.assert_no_byte_is_lost()

    def test_a_hog_that_comes_and_goes_costs_nobody_an_answer(self):
        self.start("", hog="60M/300ms")
        self.assertTrue(all(self.infer(1 + i % 5) for i in range(60)))

    def test_a_word_that_is_none_is_named(self):
        with self.assertRaisesRegex(RuntimeError, "SLUICE_FAULT has 'map:often'; allowed are map:n=N"):
            harness.Server(PROGRAM, ["Device.Device=null"], as_daemon=True,
                           environment={"SLUICE_FAULT": "map:often"})


class Shapes(unittest.TestCase):
    def test_thousands_of_shapes_stay_within_the_budget_and_the_plan_cache(self):
        shapes, budget, plans = int(os.environ.get("SHAPES", 1500)), 64 * MiB, 512 << 10
        with tempfile.TemporaryDirectory(prefix="sluice-e2e-") as folder:
            small_models.write(folder, "double", small_models.times(2, columns="m"), "max_batch_size: 64")
            server = harness.Server(PROGRAM, [f"Models.Repository={folder}", "Device.Device=cpu", "Device.Lanes=1",
                                              f"Memory.Limit={budget}", f"Models.PlanCache={plans}"], as_daemon=True)
            self.addCleanup(server.stop)
            harness.wait_for("the model", lambda: server.request("GET", "/v2/models/double/ready")[0] == 200, 60)
            connection = harness.UnixHTTPConnection(server.path("http"))
            for number in range(shapes):
                rows, columns = 1 + number % 64, 1 + number // 64 * 7
                values = np.full((rows, columns), number % 97, np.float32)
                head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, columns],
                                               "parameters": {"binary_data_size": values.nbytes}}],
                                   "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
                connection.request("POST", "/v2/models/double/infer", head + values.tobytes(),
                                   {"Inference-Header-Content-Length": str(len(head))})
                response = connection.getresponse()
                text = response.read()
                self.assertEqual(response.status, 200, text[:300])
                self.assertTrue(text.endswith((2 * values).tobytes()))
                if number % 100 == 0:
                    held = sum(server.metric(f'sluice_memory_bytes{{kind="{kind}"}}')
                               for kind in ("weights", "activation", "workspace", "io", "fixed", "cached"))
                    self.assertLessEqual(held, budget)
                    self.assertLessEqual(
                        server.metric('sluice_plan_cache_bytes{model="double",version="1"}'), plans)
            connection.close()


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
