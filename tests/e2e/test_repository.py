"""The model repository as the daemon follows it: at start, on demand, by polling; and what is broken."""
import json
import os
import shutil
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


class Case(harness.Ctl, unittest.TestCase):
    settings = []

    def start(self, *settings):
        self.server = harness.Server(PROGRAM, [*self.settings, *settings], as_daemon=True,
                                     more=["--model-repository", self.folder.name])
        self.client = grpcclient.InferenceServerClient("unix://" + self.server.path("grpc"))

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-e2e-")
        self.server = None

    def tearDown(self):
        if self.server:
            self.client.close()
            self.server.stop()
        self.folder.cleanup()

    def write(self, name, factor=2, config="", version=1):
        small_models.write(self.folder.name, name, small_models.times(factor), config, version)

    def ask(self, name, version=""):
        x = np.arange(4, dtype=np.float32).reshape(1, 4)
        tensor = grpcclient.InferInput("x", [1, 4], "FP32")
        tensor.set_data_from_numpy(x)
        y = self.client.infer(name, [tensor], model_version=version).as_numpy("y")
        return float(y[0, 1])

    def is_ready(self, name, version=""):
        """False also for what the repository does not know."""
        try:
            return self.client.is_model_ready(name, version)
        except InferenceServerException as error:
            self.assertIn("NOT_FOUND", str(error.status()))
            return False

    def index(self):
        return {(row.name, row.version): row for row in self.client.get_model_repository_index().models}

    def reserved(self):
        return json.loads(self.server.request("GET", "/sluice/v1/memory", role="admin")[2])["reserved_bytes"]


class AtStart(Case):
    def test_a_model_of_many_inputs_is_served_to_sluicectl_too(self):
        small_models.write(self.folder.name, "sum", small_models.sum_of(200))
        self.start()
        harness.wait_for("ready", self.client.is_server_ready)
        ones = [word for i in range(200) for word in ("-i", f"x{i}=ones")]
        for words in (("bench", "sum", "-n", "3"), ("infer", "sum", *ones)):
            done = self.ctl(*words)
        self.assertEqual(done["outputs"][0]["data"], [200] * 4)

    def test_all_models_of_the_folder_are_served(self):
        self.write("two")
        self.write("three", 3, "max_batch_size: 4")
        self.start()
        harness.wait_for("ready", self.client.is_server_ready)
        self.assertEqual((self.ask("two"), self.ask("three")), (2, 3))

    def test_one_broken_model_does_not_keep_the_others_from_serving(self):
        self.write("two")
        small_models.write(self.folder.name, "garbage", b"\x08\x07not a model at all")
        self.write("misspelt", config="max_batch_sise: 4")
        os.makedirs(os.path.join(self.folder.name, "empty"))
        self.start("Models.StrictReadiness=false")
        harness.wait_for("the model", lambda: self.is_ready("two"))
        harness.wait_for("the failures", lambda: all(
            row.state == "UNAVAILABLE" for (name, _), row in self.index().items() if name != "two"))
        self.assertEqual(self.ask("two"), 2)
        reasons = {name: row.reason for (name, _), row in self.index().items()}
        self.assertIn("model.onnx", reasons["garbage"])
        self.assertIn("max_batch_sise", reasons["misspelt"])
        self.assertNotEqual(reasons["empty"], "")

    def test_a_folder_whose_name_is_no_text_spoils_no_list(self):
        self.write("two")
        self.write(os.fsdecode(b"\xff\xfe"))
        self.start()
        harness.wait_for("ready", self.client.is_server_ready)
        self.assertEqual([name for name, _ in self.index()], ["two"])
        self.assertEqual(len(json.loads(self.server.request("POST", "/v2/repository/index")[2])), 1)

    def test_a_bool_is_0_or_1(self):
        small_models.write(self.folder.name, "truths", small_models.truths())
        self.start()
        harness.wait_for("ready", self.client.is_server_ready)
        tensor = grpcclient.InferInput("x", [1, 4], "BOOL")
        tensor.set_data_from_numpy(np.array([[True, False, True, False]]))
        np.testing.assert_array_equal(self.client.infer("truths", [tensor]).as_numpy("y"), [[1, 0, 1, 0]])
        tensor._raw_content = b"\0\1\2\1"
        with self.assertRaisesRegex(InferenceServerException, "a BOOL of 2, allowed are 0 and 1"):
            self.client.infer("truths", [tensor])

    def test_a_model_that_can_never_run_is_refused_at_load(self):
        for name, model in (("axis", small_models.softmax(axis=7)), ("strides", small_models.conv(strides=[0, 0])),
                            ("groups", small_models.conv(group=0))):
            small_models.write(self.folder.name, name, model)
        os.makedirs(os.path.join(self.folder.name, "empty"))
        self.start("Models.StrictReadiness=false")
        harness.wait_for("the failures", lambda: len(self.index()) == 4 and all(
            row.state == "UNAVAILABLE" for row in self.index().values()))
        reasons = {name: row.reason for (name, _), row in self.index().items()}
        self.assertIn("axis 7 is outside rank 2", reasons["axis"])
        self.assertIn("strides", reasons["strides"])
        self.assertIn("group", reasons["groups"])
        self.assertIn("model 'empty' is not loaded: model 'empty' has no version", self.server.log())

    def test_version_policies_choose(self):
        for name, policy in (("latest", ""), ("all", "version_policy { all { } }"),
                             ("specific", "version_policy { specific { versions: 1 } }")):
            for version in (1, 2, 3):
                self.write(name, version, policy, version)
        self.start()
        harness.wait_for("ready", self.client.is_server_ready)
        self.assertEqual(self.ask("latest"), 3)
        self.assertEqual([self.ask("all", str(version)) for version in (1, 2, 3)], [1, 2, 3])
        self.assertEqual(self.ask("specific"), 1)
        for name, version in (("latest", "1"), ("specific", "3")):
            with self.assertRaises(InferenceServerException):
                self.ask(name, version)

    def test_a_folder_that_is_none_stops_the_start(self):
        with self.assertRaisesRegex(RuntimeError, "is no folder"):
            harness.Server(PROGRAM, as_daemon=True, more=["--model-repository", self.folder.name + "/no"])


    def test_models_whose_rows_see_each_other_are_served_one_by_one(self):
        config = "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 20000 }"
        for name, model in (("third", small_models.neighbour(2)), ("sixth", small_models.branches(5)),
                            ("plain", small_models.times(2))):
            small_models.write(self.folder.name, name, model, config)
        self.start()
        harness.wait_for("ready", self.client.is_server_ready)
        models = json.loads(self.server.request("GET", "/sluice/v1/models", role="admin")[2])["models"]
        batching = {model["name"]: model["batching"] for model in models}
        self.assertEqual(batching["plain"], "on")
        for name in ("third", "sixth"):
            self.assertEqual(batching[name], "off: rows together differ from rows apart in output 'y'")


class Explicit(Case):
    settings = ["Models.ControlMode=explicit"]

    def test_only_what_is_named_is_loaded_and_clients_ask_for_more(self):
        self.write("two")
        self.write("three", 3)
        self.start("Models.Load=two")
        harness.wait_for("ready", self.client.is_server_ready)
        self.assertEqual(self.ask("two"), 2)
        self.assertFalse(self.is_ready("three"))
        self.client.load_model("three")
        self.assertEqual(self.ask("three"), 3)

    def test_a_reload_takes_the_new_file_at_once_and_a_bad_one_leaves_the_old(self):
        self.write("m")
        self.start("Models.Load=m")
        harness.wait_for("ready", self.client.is_server_ready)
        held = self.reserved()
        shutil.rmtree(os.path.join(self.folder.name, "m", "1"))
        self.write("m", 5)
        self.client.load_model("m")
        self.assertEqual(self.ask("m"), 5)
        shutil.rmtree(os.path.join(self.folder.name, "m", "1"))
        small_models.write(self.folder.name, "m", b"garbage")
        with self.assertRaises(InferenceServerException) as caught:
            self.client.load_model("m")
        self.assertIn("model.onnx", str(caught.exception))
        for config in ("{bad", '{"max_batch_sise": 4}'):
            with self.assertRaises(InferenceServerException):
                self.client.load_model("m", config=config)
        self.assertEqual(self.ask("m"), 5)
        self.assertTrue(self.client.is_server_ready())
        self.server.request("POST", "/sluice/v1/empty-cache", b'{"forced": true}', role="admin")
        self.assertLessEqual(self.reserved(), held)

    def test_a_failed_load_leaves_its_reason_and_no_byte(self):
        small_models.write(self.folder.name, "bad", b"garbage")
        self.start()
        before = self.reserved()
        with self.assertRaises(InferenceServerException) as caught:
            self.client.load_model("bad")
        self.assertIn("model.onnx", str(caught.exception))
        (_, row), = self.index().items()
        self.assertEqual(row.state, "UNAVAILABLE")
        self.assertIn("model.onnx", row.reason)
        self.assertEqual(self.reserved(), before)


    def test_what_a_configuration_asks_for_in_vain_is_warned_of_by_name(self):
        self.write("m", config="max_batch_size: 0 dynamic_batching { } instance_group { kind: KIND_GPU }")
        self.start("Models.Load=m")
        harness.wait_for("ready", lambda: self.is_ready("m"))
        self.assertIn("model 'm': field 'dynamic_batching' batches nothing (its configuration says max_batch_size: 0), "
                      "ignoring", self.server.log())
        self.assertIn("model 'm': instance_group kind KIND_GPU has no effect, the model runs on the device 'cpu', "
                      "ignoring", self.server.log())

    def test_each_model_of_the_start_that_is_not_there_has_a_line(self):
        self.write("two")
        self.start("Models.Load=nope two foo")
        harness.wait_for("ready", lambda: self.is_ready("two"))
        for name in ("nope", "foo"):
            self.assertIn(f"model '{name}', which Load= names, is not loaded: there is no such folder in the "
                          "repository", self.server.log())
            with self.assertRaises(InferenceServerException) as caught:
                self.ask(name)
            self.assertIn("NOT_FOUND", str(caught.exception.status()))

    def test_a_failed_reload_says_that_the_old_version_serves(self):
        self.write("m")
        self.start("Models.Load=m")
        harness.wait_for("ready", self.client.is_server_ready)
        with self.assertRaises(InferenceServerException):
            self.client.load_model("m", config='{"max_batch_size": -1}')
        self.assertIn("model 'm' is not loaded anew, what was loaded before still serves: max_batch_size is -1",
                      self.server.log())
        with self.assertRaises(InferenceServerException):
            self.client.load_model("m", config='{"input": [{"name": "no"}]}')
        self.assertIn("model 'm' version 1 is not loaded anew, the one from before still serves: the model has no "
                      "input 'no'", self.server.log())
        self.assertEqual(self.ask("m"), 2)


class Stop(Case):
    """A load that takes minutes: its warm-up asks for a thousand large batches."""
    settings = ["Models.ControlMode=explicit"]

    def write_endless(self):
        small_models.write(self.folder.name, "endless", small_models.slow(width=256), """max_batch_size: 1024
            model_warmup { name: "w" batch_size: 1024 count: 1000
                           inputs { key: "x" value { data_type: TYPE_FP32 dims: 256 zero_data: true } } }""")

    def await_loading(self, name):
        harness.wait_for("the load", lambda: any(
            row.state == "LOADING" for (known, _), row in self.index().items() if known == name))

    def stop_at_once(self):
        self.client.close()
        began = time.monotonic()
        self.server.stop()  # exit status 0, or it fails
        self.server = None
        self.assertLess(time.monotonic() - began, 8)  # as a watchdog of 10 s would end it

    def assert_is_coming(self, *names):
        for name in names:
            self.assertFalse(self.client.is_model_ready(name))
            for call in (self.ask, self.client.get_model_metadata, self.client.get_model_config):
                with self.assertRaises(InferenceServerException) as caught:
                    call(name)
                self.assertIn("UNAVAILABLE", str(caught.exception.status()), name)
                self.assertEqual(caught.exception.message(), f"model '{name}' is being loaded, it is not ready yet")
            status, _, body = self.server.request("GET", f"/v2/models/{name}")
            self.assertEqual(status, 503, body)
        with self.assertRaises(InferenceServerException) as caught:
            self.ask("unwanted")
        self.assertIn("NOT_FOUND", str(caught.exception.status()))

    def test_models_of_the_start_are_unavailable_until_their_loads_end(self):
        self.write_endless()
        self.write("later")
        self.write("unwanted")
        self.start("Models.Load=endless later")
        self.await_loading("endless")
        self.assert_is_coming("endless", "later")
        self.stop_at_once()

    def test_a_model_is_unavailable_while_it_is_loaded_for_the_first_time(self):
        self.write_endless()
        self.write("unwanted")
        self.start()
        with grpcclient.InferenceServerClient("unix://" + self.server.path("grpc")) as other:
            def load():
                with self.assertRaises(InferenceServerException):
                    other.load_model("endless")

            loader = threading.Thread(target=load)
            loader.start()
            self.await_loading("endless")
            self.assert_is_coming("endless")
            self.stop_at_once()
            loader.join()

    def test_a_load_of_the_start_is_given_up(self):
        self.write_endless()
        self.write("later")
        self.start("Models.Load=*")
        self.await_loading("endless")
        self.stop_at_once()

    def test_a_load_that_somebody_waits_for_is_refused(self):
        self.write_endless()
        self.start()
        answers = []
        with grpcclient.InferenceServerClient("unix://" + self.server.path("grpc")) as other:
            def load():
                try:
                    answers.append(other.load_model("endless"))
                except InferenceServerException as error:
                    answers.append(str(error.status()) + error.message())
            asker = threading.Thread(target=load)
            asker.start()
            self.await_loading("endless")
            self.server.drain()
            asker.join(20)
        self.assertIn("UNAVAILABLE", answers[0])
        self.assertIn("the daemon is stopping", answers[0])
        self.stop_at_once()


class Poll(Case):
    settings = ["Models.ControlMode=poll", "Models.PollInterval=50ms"]

    def test_models_appear_change_and_go_with_their_folders(self):
        self.write("m")
        self.start()
        harness.wait_for("ready", self.client.is_server_ready)
        self.assertEqual(self.ask("m"), 2)
        self.write("new", 7)
        harness.wait_for("the new model", lambda: self.is_ready("new"))
        self.assertEqual(self.ask("new"), 7)
        self.write("m", 3, version=2)
        harness.wait_for("the newer version", lambda: self.is_ready("m", "2"))
        self.assertEqual(self.ask("m"), 3)
        shutil.rmtree(os.path.join(self.folder.name, "new"))
        harness.wait_for("its end", lambda: not self.is_ready("new"))
        self.assertEqual(self.ask("m"), 3)

    def test_clients_may_not_load_or_unload(self):
        self.write("m")
        self.start()
        harness.wait_for("ready", self.client.is_server_ready)
        for call in (self.client.load_model, self.client.unload_model):
            with self.assertRaises(InferenceServerException) as caught:
                call("m")
            self.assertIn("polling is enabled", str(caught.exception))


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
