"""Models that leave the device and come back: by word, by time, for want of room, for another program."""
import json
import os
import signal
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
SLUICECTL = os.environ.get("SLUICECTL", "sluicectl")
DEVICE = os.environ.get("RESIDENCY_DEVICE", "cpu")  # cuda: the simulated one
MIB = 1 << 20
WIDTH = 512  # a MiB of weights a layer
# A lane of the GPU takes two pages of 2 MiB for what a batch needs, the CPU a few KiB: a model outweighs it.
LAYERS = 2 if DEVICE == "cpu" else 6
MODEL = LAYERS * MIB
AWAY = "dropped" if DEVICE == "cpu" else "host"  # as far as it goes to make room on the device


def inputs(array):
    tensor = grpcclient.InferInput("x", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    return [tensor]


def random_rows(count, width=WIDTH, seed=7):
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


class Case(unittest.TestCase):
    """Models of LAYERS MiB each: red (1), green (2), blue (3); slow needs long to come back."""

    settings = ["Memory.IdleAfter=0", "Models.ControlMode=explicit", "Models.Load=*"]
    configs = {}
    more = ()
    environment = None

    @classmethod
    def make_models(cls, folder):
        cls.weights = {}
        for seed, name in enumerate(("red", "green", "blue"), 1):
            cls.weights[name] = small_models.product_weights(seed, WIDTH, LAYERS)
            small_models.write(folder, name, small_models.product(seed, WIDTH, LAYERS),
                               "max_batch_size: 8 dynamic_batching { } " + cls.configs.get(name, ""))

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-e2e-")
        self.addCleanup(self.folder.cleanup)
        self.make_models(self.folder.name)
        self.server = harness.Server(PROGRAM, [*self.settings, f"Device.Device={DEVICE}"], as_daemon=True,
                                     more=["--model-repository", self.folder.name, *self.more],
                                     environment=self.environment)
        self.client = self.connect()
        harness.wait_for("the models", self.client.is_server_ready, seconds=60)

    def tearDown(self):
        self.client.close()
        self.server.stop()

    def connect(self):
        return grpcclient.InferenceServerClient("unix://" + self.server.path("grpc"))

    def admin(self, method, path, body=None, expect=200):
        status, _, answer = self.server.request(method, "/sluice/v1/" + path,
                                                None if body is None else json.dumps(body), role="admin")
        self.assertEqual(status, expect, answer)
        return json.loads(answer)

    def model(self, name):
        return next(row for row in self.admin("GET", "models")["models"] if row["name"] == name)

    def where(self, name):
        return self.model(name)["residency"]

    def memory(self):
        return self.admin("GET", "memory")

    def await_where(self, name, where):
        harness.wait_for(f"{name} is {where}", lambda: self.where(name) == where)

    def check(self, name, count=2, seed=7, client=None, **more):
        """One request, its answer compared with numpy's."""
        x = random_rows(count, seed=seed)
        y = (client or self.client).infer(name, inputs(x), **more).as_numpy("y")
        right = x.astype(np.float64)
        for weight in self.weights[name]:
            right = right @ weight
        np.testing.assert_allclose(y, right, rtol=1e-3, atol=1e-4)
        return y


class Verbs(Case):
    def test_a_sleeping_model_answers_the_same_bits_again(self):
        before = self.check("red")
        for level, where in (("weights", "host"), ("all", "dropped")):
            held = self.memory()["kinds"]["weights"]
            answer = self.admin("POST", "models/red/sleep", {"level": level})
            self.assertEqual((answer["models"], answer["busy"], answer["pinned"]), (1, 0, 0))
            self.assertEqual(self.where("red"), where)
            self.assertEqual(self.client.is_model_ready("red"), True)
            self.assertLess(self.memory()["kinds"]["weights"], held - MODEL + 4096)
            np.testing.assert_array_equal(self.check("red"), before)
            row = self.model("red")
            self.assertEqual(row["residency"], "resident")
            self.assertGreater(row["reload_us"], 0)
            self.assertEqual(row["device_bytes"], row["resident_bytes"])
        self.assertEqual((row["evictions"], row["reloads"], row["failed_reloads"]), (2, 2, 0))

    def test_all_sleep_to_the_byte_and_all_wake(self):
        for name in self.weights:
            self.check(name)
        answer = self.admin("POST", "sleep", {"level": "all"})
        self.assertEqual(answer["models"], 3)
        self.assertGreaterEqual(answer["freed_bytes"], 3 * MODEL)
        memory = self.memory()
        self.assertEqual(memory["reserved_bytes"], 0, memory)
        self.assertEqual(self.admin("POST", "wake")["models"], 3)
        self.assertEqual({self.where(name) for name in self.weights}, {"resident"})
        for name in self.weights:
            self.check(name)
            self.assertEqual(self.model(name)["reloads"], 1)

    def test_requests_at_once_cause_one_reload(self):
        self.check("red")
        self.admin("POST", "models/red/sleep", {"level": "all"})
        failures, clients = [], [self.connect() for _ in range(4)]

        def ask(index):
            try:
                for turn in range(4):
                    self.check("red", client=clients[index], seed=10 * index + turn)
            except Exception as failure:  # noqa: BLE001 - shown below
                failures.append(failure)
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client in clients:
            client.close()
        self.assertEqual(failures, [])
        self.assertEqual(self.model("red")["reloads"], 1)

    def test_sleep_and_wake_by_sluicectl(self):
        def ctl(*words, expect=0):
            done = subprocess.run([SLUICECTL, "--server", "unix:" + self.server.path("admin"), *words],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
            return done.stdout + done.stderr
        self.assertIn("1 models left the device", ctl("sleep", "red", "--level", "all"))
        self.assertRegex(ctl("models"), r"(?m)^red .* dropped ")
        self.assertIn("1 models are back", ctl("wake", "red"))
        self.assertRegex(ctl("models"), r"(?m)^red .* resident ")
        self.assertIn("given back", ctl("make-room", "1M", "--within", "500ms", "--hold", "0"))
        self.assertIn("not found", ctl("sleep", "nobody", expect=1))
        self.assertIn("level", ctl("sleep", "red", "--level", "deep", expect=1))
        for words in (("sleep",), ("sleep", "--none"), ("wake",), ("make-room",), ("make-room", "much"),
                      ("make-room", "1M", "--within", "soon")):
            ctl(*words, expect=2)

    def test_counts_are_in_metrics_and_statistics(self):
        self.admin("POST", "models/red/sleep", {})
        labels = '{model="red",version="1"'
        self.assertEqual(self.server.metric('sluice_model_residency' + labels + ',where="host"}'), 1)
        self.check("red")
        self.assertEqual(self.server.metric("sluice_model_evictions_total" + labels + "}"), 1)
        self.assertEqual(self.server.metric("sluice_model_reloads_total" + labels + ',outcome="ok"}'), 1)
        self.assertGreater(self.server.metric("sluice_model_reload_seconds_total" + labels + "}"), 0)
        stats = json.loads(self.server.request("GET", "/v2/models/red/stats")[2])["model_stats"][0]
        self.assertEqual(stats["residency_stats"]["residency"], "resident")
        self.assertEqual(int(stats["residency_stats"]["evictions"]), 1)

    def test_a_plan_is_told_of_what_is_on_the_device_only(self):
        self.admin("POST", "models/red/sleep", {})
        answer = self.admin("GET", "models/red/plan", expect=400)
        self.assertIn("wake", answer["error"])
        self.assertEqual(self.where("red"), "host")

    def test_an_unload_of_a_sleeping_model_leaves_no_byte(self):
        for name in self.weights:
            self.admin("POST", f"models/{name}/sleep", {"level": "all" if name == "red" else "weights"})
            self.admin("POST", f"models/{name}/unload")
        self.assertEqual(self.memory()["reserved_bytes"], 0)


class Times(Case):
    configs = {"green": 'parameters { key: "sluice.keep_alive" value { string_value: "0" } }',
               "blue": 'parameters { key: "sluice.keep_alive" value { string_value: "-1" } }'}
    settings = Case.settings + ["Models.ModelIdle=1s", "Models.ModelDrop=2s"]

    def test_idle_models_leave_step_by_step_unless_kept(self):
        self.check("red")
        self.await_where("red", "host")
        self.await_where("red", "dropped")
        self.assertEqual(self.where("blue"), "resident")
        self.check("red")
        self.assertEqual(self.model("red")["reloads"], 1)

    def test_keep_alive_of_the_model_and_of_the_request(self):
        self.await_where("green", "host")  # at once
        self.check("green", parameters={"keep_alive": "1h"})
        time.sleep(0.3)
        self.assertEqual(self.where("green"), "resident")
        self.assertEqual(self.model("green")["keep_alive_us"], 3600 * 10 ** 6)
        self.check("green")  # its own again
        self.await_where("green", "host")
        self.check("blue", parameters={"keep_alive": 0})
        self.await_where("blue", "host")
        self.check("red", parameters={"keep_alive": "-1"})
        self.assertEqual(self.model("red")["keep_alive_us"], -1)

    def test_keep_alive_over_rest(self):
        def infer(keep_alive):
            body = {"parameters": {"keep_alive": keep_alive}, "inputs": [
                {"name": "x", "datatype": "FP32", "shape": [1, WIDTH], "data": [0.0] * WIDTH}]}
            return self.server.request("POST", "/v2/models/blue/infer", json.dumps(body))
        self.assertEqual(infer("0")[0], 200)
        self.await_where("blue", "host")
        self.assertEqual(infer(90.5)[0], 200)
        self.assertEqual(self.model("blue")["keep_alive_us"], 90500000)
        self.assertEqual(infer("1h30m")[0], 200)
        self.assertEqual(self.model("blue")["keep_alive_us"], 5400 * 10 ** 6)
        for wrong in ("soon", "5x", True, [5]):
            self.assertEqual(infer(wrong)[0], 400, wrong)
        with self.assertRaisesRegex(InferenceServerException, "keep_alive"):
            self.check("blue", parameters={"keep_alive": "soon"})

    def test_bad_parameters_of_a_model_are_refused_at_load(self):
        config = {"name": "red", "parameters": {"sluice.keep_alive": {"string_value": "soon"}}}
        answer = self.admin("POST", "models/red/load", {"config": json.dumps(config)}, expect=400)
        self.assertIn("sluice.keep_alive", answer["error"])
        config["parameters"] = {"sluice.pinned": {"string_value": "true"}}
        self.assertIn("sluice.pinned", self.admin("POST", "models/red/load", {"config": json.dumps(config)},
                                                  expect=400)["error"])
        config["parameters"] = {"sluice.pin": {"string_value": "perhaps"}}
        self.assertIn("sluice.pin", self.admin("POST", "models/red/load", {"config": json.dumps(config)},
                                               expect=400)["error"])


class Room(Case):
    """A budget for two of the three."""

    configs = {"red": 'parameters { key: "sluice.pin" value { string_value: "true" } }'}
    settings = ["Memory.IdleAfter=0", "Models.ControlMode=explicit", f"Memory.Limit={MODEL * 14 // 5 >> 10}K"]

    def load(self, name, expect=200):
        return self.admin("POST", f"models/{name}/load", expect=expect)

    def test_a_load_lets_idle_models_leave_but_no_pinned_one(self):
        self.load("red")
        self.load("green")
        self.load("blue")
        self.assertEqual([self.where(name) for name in ("red", "green", "blue")],
                         ["resident", "host", "resident"])
        for name in ("green", "blue", "red", "green", "blue"):
            self.check(name)
            self.assertLessEqual(self.memory()["reserved_bytes"], MODEL * 14 // 5)
        self.assertEqual(self.model("red")["evictions"], 0)
        answer = self.admin("POST", "sleep", {"level": "all"})
        self.assertEqual((answer["pinned"], self.where("red")), (1, "resident"))

    def test_a_load_that_does_not_fit_names_what_is_in_the_way(self):
        small_models.write(self.folder.name, "large", small_models.product(9, WIDTH, 2 * LAYERS), "max_batch_size: 8")
        self.load("red")
        self.load("green")
        before = self.memory()["kinds"]["weights"]
        answer = self.load("large", expect=429)
        self.assertRegex(answer["error"], r"'red' \d+ bytes \(pinned\)")
        self.assertLessEqual(self.memory()["kinds"]["weights"], before)
        self.check("green")
        self.check("red")

    def test_a_reload_that_can_never_fit_says_so(self):
        self.load("green")
        self.load("blue")
        self.admin("POST", "models/green/sleep", {})
        pin = {"name": "blue", "max_batch_size": 8,
               "parameters": {"sluice.pin": {"string_value": "true"}}}
        self.admin("POST", "models/blue/load", {"config": json.dumps(pin)})
        self.load("red")
        with self.assertRaisesRegex(InferenceServerException, r"RESOURCE_EXHAUSTED.*pinned"):
            self.check("green")
        self.assertIn("pinned", self.model("green")["reason"])
        self.admin("POST", "models/red/unload")
        self.check("green")
        self.assertEqual(self.model("green")["reason"], "")


class MakeRoom(Case):
    def test_the_ladder_gives_what_is_asked_cheapest_first(self):
        for name in self.weights:
            self.check(name, 8)
        before = self.memory()
        answer = self.admin("POST", "make-room", {"bytes": 4096})
        self.assertTrue(answer["enough"])
        self.assertGreater(answer["freed"]["activations"] + answer["freed"]["plans"], 0)
        self.assertEqual({self.where(name) for name in self.weights}, {"resident"})
        answer = self.admin("POST", "make-room", {"bytes": 3 * MIB})
        self.assertTrue(answer["enough"])
        self.assertEqual(sorted(self.where(name) for name in self.weights), ["host", "resident", "resident"]
                         if answer["freed"]["weights"] < 2 * MODEL else ["host", "host", "resident"])
        self.assertEqual(sum(answer["freed"].values()), answer["freed_bytes"])
        answer = self.admin("POST", "make-room", {"bytes": 1 << 40, "within_us": 2000000})
        self.assertFalse(answer["enough"])
        self.assertEqual(answer["left"], [])
        self.assertEqual(self.memory()["reserved_bytes"], 0)
        self.assertEqual({self.where(name) for name in self.weights}, {AWAY})
        for name in self.weights:
            self.check(name, 8)
        self.assertEqual(self.memory()["kinds"]["weights"], before["kinds"]["weights"])

    def test_what_was_given_back_is_held_for_the_time_asked(self):
        budget = self.memory()["budget_bytes"]
        self.admin("POST", "make-room", {"bytes": 2 * MIB, "hold_us": 400000})
        self.assertEqual(self.memory()["budget_bytes"], budget - 2 * MIB)
        harness.wait_for("the budget is whole again", lambda: self.memory()["budget_bytes"] == budget)

    def test_pinned_and_used_models_stay_and_are_named(self):
        config = {"name": "red", "max_batch_size": 8,
                  "parameters": {"sluice.pin": {"string_value": "true"}}}
        self.admin("POST", "models/red/load", {"config": json.dumps(config)})
        answer = self.admin("POST", "make-room", {"bytes": 1 << 40})
        self.assertEqual([(left["model"], left["why"]) for left in answer["left"]], [("red", "pinned")])
        self.assertEqual(self.where("red"), "resident")

    def test_nonsense_is_refused(self):
        for body in ({}, {"bytes": 0}, {"bytes": 1, "within_us": -1}, {"bytes": 1, "hold_us": -1}):
            self.admin("POST", "make-room", body, expect=400)


class Holds(Case):
    settings = Case.settings + [f"Memory.Limit={4 * LAYERS}M"]

    def test_requests_outlive_holds_that_come_and_go(self):
        failures, until, clients = [], time.monotonic() + 3, [self.connect() for _ in range(2)]

        def ask(index):
            while time.monotonic() < until and not failures:
                try:
                    self.check("red" if index else "green", 1 + index, client=clients[index])
                except Exception as failure:  # noqa: BLE001 - shown below
                    failures.append(failure)
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for turn in range(20):
            self.admin("POST", "make-room", {"bytes": 1 << 40 if turn % 2 else 2 * MIB, "within_us": 20000,
                                             "hold_us": (1, 1000, 20000)[turn % 3]})
            time.sleep((turn % 4) / 40)
        for thread in threads:
            thread.join()
        for client in clients:
            client.close()
        self.assertEqual(failures, [])


class Refusing(Case):
    """A device of which somebody else takes nearly all, though the budget would allow more."""

    def setUp(self):
        self.hog = harness.temporary_file(self, "0")
        self.environment = {"SLUICE_FAULT": f"size=64M hog={self.hog}"}
        super().setUp()

    def test_a_model_that_the_device_has_no_room_for_is_not_packed_again_and_again(self):
        self.admin("POST", "models/red/sleep", {})
        with open(self.hog, "w") as file:
            file.write(str(64 * MIB))
        done = []
        self.client.async_infer("red", inputs(random_rows(1)), lambda result, error: done.append(error))
        harness.wait_for("the first attempts", lambda: self.model("red")["reload_attempts"] > 0)
        time.sleep(2)
        self.assertLess(self.model("red")["reload_attempts"], 40)
        self.assertEqual(self.model("red")["failed_reloads"], 0)  # nobody has given up
        self.assertEqual(done, [])
        with open(self.hog, "w") as file:
            file.write("0")
        harness.wait_for("the answer", lambda: done)
        self.assertEqual(done, [None])


class Impatient(Case):
    """Clients without a deadline, on a device that somebody else fills."""

    more = ["--set", "Server.RequestTimeout=0", "--set", "Memory.MemoryWait=1s"]

    def setUp(self):
        self.hog = harness.temporary_file(self, "0")
        self.environment = {"SLUICE_FAULT": f"size=64M hog={self.hog}"}
        super().setUp()

    def test_a_request_without_a_deadline_does_not_wait_for_ever_for_memory_that_others_hold(self):
        self.admin("POST", "models/red/sleep", {})
        with open(self.hog, "w") as file:
            file.write(str(64 * MIB))
        for attempt in (1, 2):
            with self.assertRaisesRegex(InferenceServerException,
                                        r"RESOURCE_EXHAUSTED.*needs \d+ bytes, \d+ are available"):
                self.client.infer("red", inputs(random_rows(1)))
            harness.wait_for("the outcome", lambda: self.model("red")["failed_reloads"] == attempt)
        with open(self.hog, "w") as file:
            file.write("0")
        self.check("red")


class Reconfigured(Case):
    def setUp(self):
        self.file = harness.temporary_file(self, "")
        self.more = ["--config", self.file]
        super().setUp()

    def test_a_lower_host_cache_drops_what_is_over(self):
        self.admin("POST", "sleep", {"level": "weights"})
        self.assertEqual({self.where(name) for name in self.weights}, {"host"})
        with open(self.file, "w") as file:
            file.write("[Memory]\nHostCache=1\n")
        self.admin("POST", "reload")
        for name in self.weights:
            self.await_where(name, "dropped")
            self.check(name)


class Slow(Case):
    """A model of 64 MiB in 64 layers, which takes a while to come back."""

    @classmethod
    def make_models(cls, folder):
        super().make_models(folder)
        small_models.write(folder, "large", small_models.product(5, WIDTH, 64), "max_batch_size: 8")
        cls.weights["large"] = small_models.product_weights(5, WIDTH, 64)

    def ask(self, timeout=None):
        return self.client.infer("large", inputs(random_rows(1)), client_timeout=timeout)

    def test_a_deadline_shorter_than_the_reload_is_kept_and_the_reload_ends_well(self):
        self.ask()
        self.admin("POST", "models/large/sleep", {"level": "all"})
        for attempt in range(1, 50):  # long enough to arrive, and shorter than the reload
            with self.assertRaisesRegex(InferenceServerException, "DEADLINE|Deadline"):
                self.ask(timeout=0.002 * attempt)
            row = self.model("large")
            if row["moving"] or row["residency"] == "resident":
                break
        self.await_where("large", "resident")
        self.check("large", 1)
        row = self.model("large")
        self.assertEqual((row["reloads"], row["failed_reloads"]), (1, 0))

    def test_a_model_told_to_sleep_on_its_way_back_answers_and_leaves_again(self):
        self.ask()
        self.admin("POST", "models/large/sleep", {"level": "all"})
        done = []
        self.client.async_infer("large", inputs(random_rows(1)), lambda result, error: done.append(error))
        harness.wait_for("the reload has begun", lambda: self.model("large")["moving"] or done)
        answer = self.admin("POST", "models/large/sleep", {"level": "all"})
        harness.wait_for("the answer", lambda: done)
        self.assertEqual(done, [None])
        self.assertEqual(answer["busy"], 1)
        self.await_where("large", "dropped")
        self.ask()
        time.sleep(0.1)
        self.assertEqual(self.where("large"), "resident")

    def test_others_are_served_while_a_model_comes_back(self):
        self.ask()
        self.admin("POST", "models/large/sleep", {"level": "all"})
        done = []
        client = self.connect()
        client.async_infer("large", inputs(random_rows(1)), lambda result, error: done.append(error))
        served = 0
        while not done and served < 10000:
            self.check("red", 1)
            served += 1
        harness.wait_for("the large model's answer", lambda: done)
        self.assertEqual(done, [None])
        client.close()
        self.assertGreater(served, 0)

    def test_a_client_killed_while_its_request_waits_leaves_nothing_behind(self):
        self.ask()
        self.admin("POST", "models/large/sleep", {"level": "all"})
        program = ("import sys; sys.path.insert(0, sys.argv[1])\n"
                   "import numpy as np, tritonclient.grpc as g\n"
                   "c = g.InferenceServerClient(sys.argv[2]); i = g.InferInput('x', [1, 512], 'FP32')\n"
                   "i.set_data_from_numpy(np.ones((1, 512), np.float32)); print('ready', flush=True)\n"
                   "c.infer('large', [i])\n")
        client = subprocess.Popen([sys.executable, "-c", program, os.path.dirname(__file__),
                                   "unix://" + self.server.path("grpc")], stdout=subprocess.PIPE)
        self.assertEqual(client.stdout.readline(), b"ready\n")
        harness.wait_for("the reload has begun",
                         lambda: self.model("large")["moving"] or self.where("large") == "resident")
        client.send_signal(signal.SIGKILL)
        client.wait()
        client.stdout.close()
        self.await_where("large", "resident")
        harness.wait_for("nothing in flight",
                         lambda: self.admin("GET", "status")["requests_in_flight"] == 0)
        self.check("large", 1)
        memory = self.memory()
        self.assertEqual(memory["kinds"]["activation"] + memory["kinds"]["io"], 0)
        self.assertEqual(memory["host"]["in_use_bytes"], 0)


class SlowDevice(Case):
    """Every map takes a while, so that loads and ways back can be met."""

    environment = {"SLUICE_FAULT": "map:slow=100ms"}

    def plan(self):
        status, _, answer = self.server.request("GET", "/sluice/v1/models/red/plan", role="admin")
        return status, json.loads(answer).get("error")

    def begin(self, path, begun):
        """A command under way, when it has begun."""
        thread = threading.Thread(target=self.admin, args=("POST", path))
        thread.start()
        harness.wait_for("it has begun", lambda: begun(self.model("red")))
        return thread

    def test_of_a_model_that_is_being_loaded_there_is_no_plan_yet(self):
        self.admin("POST", "models/red/unload")
        load = self.begin("models/red/load", lambda row: row["state"] == "LOADING")
        self.assertEqual(self.plan(), (503, "model 'red' is being loaded, it is not ready yet"))
        load.join()
        self.assertEqual(self.plan(), (200, None))

    def test_a_plan_waits_for_a_model_on_its_way_back(self):
        self.check("red")
        self.admin("POST", "models/red/sleep", {})
        wake = self.begin("models/red/wake", lambda row: row["moving"])
        self.assertEqual(self.plan(), (200, None))
        wake.join()


class Changed(Case):
    def rewrite(self, seed):
        """Another file in its place, by a rename."""
        path = os.path.join(self.folder.name, "red/1/model.onnx")
        with open(path + ".new", "wb") as file:
            file.write(small_models.product(seed, WIDTH, LAYERS).SerializeToString())
        os.rename(path + ".new", path)

    def test_a_file_that_changed_is_refused_until_it_is_loaded(self):
        self.check("red")
        self.admin("POST", "models/red/sleep", {"level": "all"})
        self.rewrite(11)
        for _ in range(2):
            with self.assertRaisesRegex(InferenceServerException, "changed on disk.*load the model again"):
                self.check("red")
        self.assertEqual(self.model("red")["failed_reloads"], 2)
        self.admin("POST", "models/red/load")
        self.weights["red"] = small_models.product_weights(11, WIDTH, LAYERS)
        self.check("red")

    def test_a_request_that_waits_meets_the_version_that_is_loaded_meanwhile(self):
        """One request after the other while the model is put away and loaded again."""
        self.check("red")
        stop, failures = threading.Event(), []
        client = self.connect()

        def ask():
            while not stop.is_set():
                try:
                    client.infer("red", inputs(random_rows(1)))
                except InferenceServerException as error:
                    failures.append(str(error))

        thread = threading.Thread(target=ask)
        thread.start()
        for _ in range(12):
            self.admin("POST", "models/red/sleep", {"level": "weights"})
            self.admin("POST", "models/red/load")
        stop.set()
        thread.join()
        client.close()
        self.assertEqual(failures, [])

    def test_why_there_is_no_plan_is_told_in_one_sentence(self):
        self.admin("POST", "models/red/sleep", {"level": "all"})
        answer = self.admin("GET", "models/red/plan", expect=400)
        self.assertIn("is not on the device", answer["error"])
        self.admin("POST", "models/red/unload")
        answer = self.admin("GET", "models/red/plan", expect=404)
        self.assertIn("has no available versions", answer["error"])
        process = subprocess.run([SLUICECTL, "--server", "unix:" + self.server.path("admin"), "plan", "red"],
                                 capture_output=True, text=True)
        self.assertEqual(process.returncode, 1, process.stderr)

    def test_the_log_says_what_a_model_left(self):
        self.admin("POST", "models/red/sleep", {"level": "weights"})
        self.admin("POST", "models/red/sleep", {"level": "all"})
        log = self.server.log()
        self.assertRegex(log, r"'red' version 1 left the device: \d+ bytes, now host")
        self.assertRegex(log, r"'red' version 1 left host memory: \d+ bytes, now dropped")
        self.assertNotIn(": 0 bytes", log)

    def test_what_stays_in_host_memory_is_the_version_that_was_loaded(self):
        self.admin("POST", "models/red/sleep", {"level": "weights"})
        self.rewrite(12)
        self.check("red")

    def test_a_file_that_went_and_came_back_the_same_is_served_again(self):
        self.admin("POST", "models/red/sleep", {"level": "all"})
        path = os.path.join(self.folder.name, "red/1/model.onnx")
        os.rename(path, path + ".away")
        with self.assertRaises(InferenceServerException):
            self.check("red")
        os.rename(path + ".away", path)
        self.check("red")


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
