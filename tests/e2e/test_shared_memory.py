"""Tensors in shared memory: Triton's own clients, unmodified, and clients that mean no good."""
import base64
import json
import mmap
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
    import tritonclient.http as httpclient
    import tritonclient.utils.shared_memory as shm
    from onnx import TensorProto, helper, numpy_helper
    from tritonclient.utils import InferenceServerException, serialize_byte_tensor

    import small_models
except ImportError as error:
    harness.need_packages(error)

PROGRAM = None
PAGE = mmap.PAGESIZE
TABLE = 1000 + np.arange(64, dtype=np.float32)


def model(nodes, inputs, outputs, constants=()):
    ports = [[helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in list_]
             for list_ in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *ports, [numpy_helper.from_array(value, name)
                                                   for name, value in dict(constants).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def two_outputs():
    """sum = a + b, difference = a - b"""
    ports = [("a", TensorProto.FLOAT, ["n", 4]), ("b", TensorProto.FLOAT, ["n", 4])]
    return model([helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Sub", ["a", "b"], ["difference"])],
                 ports, [(name, TensorProto.FLOAT, ["n", 4]) for name in ("sum", "difference")])


def texts():
    return model([helper.make_node("Identity", ["x"], ["y"])], [("x", TensorProto.STRING, ["n", 2])],
                 [("y", TensorProto.STRING, ["n", 2])])


def lookup():
    """y[i] = TABLE[x[i]]"""
    return model([helper.make_node("Gather", ["table", "x"], ["y"])], [("x", TensorProto.INT64, ["n"])],
                 [("y", TensorProto.FLOAT, ["n"])], {"table": TABLE})


class Case(harness.Ctl, unittest.TestCase):
    settings = []

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="sluice-e2e-")
        cls.make_models(cls.folder.name)
        cls.server = harness.Server(PROGRAM, cls.settings, as_daemon=True,
                                    more=["--model-repository", cls.folder.name])
        cls.grpc = grpcclient.InferenceServerClient("unix://" + cls.server.path("grpc"))
        cls.http = httpclient.InferenceServerClient("127.0.0.1:%d" % cls.server.port("http"))
        harness.wait_for("the models", cls.grpc.is_server_ready, seconds=60)

    @classmethod
    def tearDownClass(cls):
        cls.grpc.close()
        cls.http.close()
        cls.server.stop()
        cls.folder.cleanup()

    @classmethod
    def make_models(cls, where):
        batching = "max_batch_size: 8 dynamic_batching { }"
        small_models.write(where, "times", small_models.times(3), batching)
        small_models.write(where, "wide", small_models.times(3, 1 << 16), batching)
        small_models.write(where, "two", two_outputs(), batching)
        small_models.write(where, "texts", texts(), batching)
        small_models.write(where, "truths", small_models.truths(), batching)
        small_models.write(where, "lookup", lookup())
        small_models.write(where, "slow", small_models.slow(layers=64), batching)

    def setUp(self):
        self.handles = []
        self.number = 0
        self.addCleanup(self.forget_all)

    def forget_all(self):
        for client, _ in self.both():
            client.unregister_system_shared_memory()
        for handle in self.handles:
            shm.destroy_shared_memory_region(handle)
        harness.wait_for("the last use", lambda: self.memory()["shared_memory"]["system_bytes"] == 0)

    def both(self):
        return (self.grpc, grpcclient), (self.http, httpclient)

    def memory(self):
        return json.loads(self.server.request("GET", "/sluice/v1/memory", role="admin")[2])

    def create(self, size, values=None):
        """A new object: its handle and key."""
        self.number += 1
        key = f"/sluice-test-{os.getpid()}-{self._testMethodName[:40]}-{self.number}"
        handle = shm.create_shared_memory_region(f"r{self.number}", key, size)
        self.handles.append(handle)
        if values is not None:
            shm.set_shared_memory_region(handle, values)
        return handle, key

    def region(self, client, size, values=None, name=None):
        """A new object, registered: its handle and name."""
        handle, key = self.create(size, values)
        name = name or f"r{self.number}"
        client.register_system_shared_memory(name, key, size)
        return handle, name

    def infer(self, client, module, name, inputs, outputs, **more):
        """inputs: {name: (datatype, shape, region, bytes, offset)}, outputs: {name: (region, bytes, offset)}"""
        tensors, wanted = [], []
        for port, (datatype, shape, region, size, offset) in inputs.items():
            tensors.append(module.InferInput(port, list(shape), datatype))
            tensors[-1].set_shared_memory(region, size, offset=offset)
        for port, place in outputs.items():
            wanted.append(module.InferRequestedOutput(port))
            if place is not None:
                wanted[-1].set_shared_memory(place[0], place[1], offset=place[2])
        return client.infer(name, tensors, outputs=wanted or None, **more)

    def fails(self, words, call, *arguments, **more):
        with self.assertRaises(InferenceServerException) as caught:
            call(*arguments, **more)
        self.assertIn(words, str(caught.exception))

    def still_serves(self):
        x = np.ones((1, 4), np.float32)
        tensor = grpcclient.InferInput("x", [1, 4], "FP32")
        tensor.set_data_from_numpy(x)
        np.testing.assert_array_equal(self.grpc.infer("times", [tensor]).as_numpy("y"), 3 * x)


def times_input(region, rows=1, offset=0):
    return {"x": ("FP32", [rows, 4], region, 16 * rows, offset)}


class Clients(Case):
    def test_the_extensions_are_told(self):
        self.assertIn("system_shared_memory", self.http.get_server_metadata()["extensions"])
        self.assertIn("cuda_shared_memory", self.grpc.get_server_metadata().extensions)

    def test_inputs_and_outputs_lie_in_regions(self):
        for client, module in self.both():
            x = np.arange(8, dtype=np.float32).reshape(2, 4)
            _, source = self.region(client, x.nbytes, [x])
            target, place = self.region(client, x.nbytes)
            result = self.infer(client, module, "times", times_input(source, 2), {"y": (place, x.nbytes, 0)})
            np.testing.assert_array_equal(shm.get_contents_as_numpy(target, np.float32, [2, 4]), 3 * x)
            output = result.get_output("y")
            if module is httpclient:
                self.assertEqual(output["parameters"], {"shared_memory_region": place, "shared_memory_byte_size": 32})
                self.assertEqual(output["shape"], [2, 4])
            else:
                self.assertEqual(output.parameters["shared_memory_region"].string_param, place)
                self.assertEqual(output.parameters["shared_memory_byte_size"].int64_param, 32)
                self.assertEqual(list(result.get_response().raw_output_contents), [b""])

    def test_one_region_holds_several_tensors_at_offsets(self):
        for client, module in self.both():
            a, b = np.arange(4, dtype=np.float32), np.full(4, 2, np.float32)
            handle, name = self.region(client, 4 * 64)
            for i, values in enumerate((a, b)):
                shm.set_shared_memory_region(handle, [values], offset=64 * i)
            self.infer(client, module, "two", {"a": ("FP32", [1, 4], name, 16, 0), "b": ("FP32", [1, 4], name, 16, 64)},
                       {"sum": (name, 64, 128), "difference": (name, 16, 192)})
            np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, [4], 128), a + b)
            np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, [4], 192), a - b)

    def test_an_output_may_take_the_place_of_an_input(self):
        for client, module in self.both():
            a, b = np.arange(4, dtype=np.float32), np.full(4, 2, np.float32)
            handle, name = self.region(client, 128)
            for i, values in enumerate((a, b)):
                shm.set_shared_memory_region(handle, [values], offset=64 * i)
            self.infer(client, module, "two", {"a": ("FP32", [1, 4], name, 16, 0), "b": ("FP32", [1, 4], name, 16, 64)},
                       {"sum": (name, 16, 0), "difference": (name, 16, 64)})
            np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, [4]), a + b)
            np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, [4], 64), a - b)

    def test_two_names_of_one_object_are_the_same_bytes(self):
        x = np.arange(4, dtype=np.float32)
        handle, key = self.create(64, [x])
        self.grpc.register_system_shared_memory("one", key, 64)
        self.grpc.register_system_shared_memory("two", key, 64)
        self.infer(self.grpc, grpcclient, "two", {"a": ("FP32", [1, 4], "one", 16, 0), "b": ("FP32", [1, 4], "one", 16, 0)},
                   {"sum": ("two", 16, 0), "difference": ("two", 16, 32)})
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, [4]), x + x)
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, [4], 32), x - x)

    def test_odd_addresses_do(self):
        for client, module in self.both():
            x = np.arange(4, dtype=np.float32)
            source, name = self.region(client, 128)
            memory = np.frombuffer(source._mpsm_handle.buf, np.uint8)
            memory[3:19] = np.frombuffer(x.tobytes(), np.uint8)
            self.infer(client, module, "times", times_input(name, 1, 3), {"y": (name, 16, 65)})
            np.testing.assert_array_equal(np.frombuffer(memory[65:81].tobytes(), np.float32), 3 * x)
            del memory

    def test_regions_need_not_begin_with_the_object(self):
        for client, module in self.both():
            x = np.arange(4, dtype=np.float32)
            handle, key = self.create(3 * PAGE)
            shm.set_shared_memory_region(handle, [x], offset=PAGE + 256)
            client.register_system_shared_memory("part" + module.__name__, key, 512, offset=PAGE + 256)
            self.infer(client, module, "times", times_input("part" + module.__name__),
                       {"y": ("part" + module.__name__, 16, 256)})
            np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, [4], PAGE + 512), 3 * x)

    def test_some_tensors_may_come_with_the_request(self):
        a, b = np.arange(4, dtype=np.float32).reshape(1, 4), np.full((1, 4), 2, np.float32)
        for client, module in self.both():
            _, name = self.region(client, 16, [b])
            target, place = self.region(client, 16)
            first = module.InferInput("a", [1, 4], "FP32")
            first.set_data_from_numpy(a)
            second = module.InferInput("b", [1, 4], "FP32")
            second.set_shared_memory(name, 16)
            sum_, difference = module.InferRequestedOutput("sum"), module.InferRequestedOutput("difference")
            difference.set_shared_memory(place, 16)
            for inputs in ([first, second], [second, first]):
                result = client.infer("two", inputs, outputs=[sum_, difference])
                np.testing.assert_array_equal(result.as_numpy("sum"), a + b)
                np.testing.assert_array_equal(shm.get_contents_as_numpy(target, np.float32, [1, 4]), a - b)

    def test_text_lies_in_regions(self):
        for client, module in self.both():
            x = np.array([[b"one", b""], [b"three \xff", b"four" * 100]], np.object_)
            wire = serialize_byte_tensor(x).item()
            source, name = self.region(client, len(wire))
            shm.set_shared_memory_region(source, [serialize_byte_tensor(x)])
            target, place = self.region(client, 4096)
            self.infer(client, module, "texts", {"x": ("BYTES", [2, 2], name, len(wire), 0)}, {"y": (place, 4096, 0)})
            np.testing.assert_array_equal(shm.get_contents_as_numpy(target, np.object_, [2, 2]), x)
            self.fails("should be at least", self.infer, client, module, "texts",
                       {"x": ("BYTES", [2, 2], name, len(wire), 0)}, {"y": (place, 8, 0)})

    def test_truth_values_and_indices_lie_in_regions(self):
        for client, module in self.both():
            _, name = self.region(client, 4, [np.array([0, 1, 1, 0], np.uint8)])
            target, place = self.region(client, 4096)
            self.infer(client, module, "truths", {"x": ("BOOL", [1, 4], name, 4, 0)}, {"y": (place, 4096, 0)})
            np.testing.assert_array_equal(shm.get_contents_as_numpy(target, np.float32, [4]), [0, 1, 1, 0])
            _, name = self.region(client, 24, [np.array([5, 0, 63], np.int64)])
            self.infer(client, module, "lookup", {"x": ("INT64", [3], name, 24, 0)}, {"y": (place, 2048, 64)})
            np.testing.assert_array_equal(shm.get_contents_as_numpy(target, np.float32, [3], 64), TABLE[[5, 0, 63]])
            _, name = self.region(client, 8, [np.array([64], np.int64)])
            self.fails("out of range", self.infer, client, module, "lookup", {"x": ("INT64", [1], name, 8, 0)}, {})

    def test_batches_of_several_requests_go_to_each_ones_region(self):
        places = []
        for i in range(16):
            x = np.full((1, 4), i, np.float32)
            source, name = self.region(self.grpc, 64, [x])
            places.append((x, self.region(self.grpc, 64), name))
        answers = [None] * len(places)

        def ask(i):
            client = grpcclient.InferenceServerClient("unix://" + self.server.path("grpc"))
            for _ in range(20):
                answers[i] = self.infer(client, grpcclient, "times", times_input(places[i][2]),
                                        {"y": (places[i][1][1], 16, 0)})
            client.close()

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(places))]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        for x, (target, _), _ in places:
            np.testing.assert_array_equal(shm.get_contents_as_numpy(target, np.float32, [1, 4]), 3 * x)

    def test_streams_use_regions(self):
        x = np.arange(4, dtype=np.float32)
        _, source = self.region(self.grpc, 16, [x])
        target, place = self.region(self.grpc, 16)
        answered, seen = threading.Event(), []

        def on_answer(result, error):
            seen.append((result, error))
            answered.set()

        self.grpc.start_stream(on_answer)
        tensor = grpcclient.InferInput("x", [1, 4], "FP32")
        tensor.set_shared_memory(source, 16)
        output = grpcclient.InferRequestedOutput("y")
        output.set_shared_memory(place, 16)
        self.grpc.async_stream_infer("times", [tensor], outputs=[output])
        self.assertTrue(answered.wait(20))
        self.grpc.stop_stream()
        self.assertIsNone(seen[0][1])
        np.testing.assert_array_equal(shm.get_contents_as_numpy(target, np.float32, [4]), 3 * x)

    def test_the_status_lists_what_is_registered(self):
        for client, module in self.both():
            for name, offset, size in (("first", 0, 64), ("second", 64, 128)):
                _, key = self.create(256)
                client.register_system_shared_memory(name, key, size, offset=offset)
            status = client.get_system_shared_memory_status()
            if module is httpclient:
                self.assertEqual([(r["name"], r["offset"], r["byte_size"]) for r in status],
                                 [("first", 0, 64), ("second", 64, 128)])
                self.assertEqual(client.get_system_shared_memory_status("second")[0]["key"], key)
                self.assertEqual(client.get_cuda_shared_memory_status(), [])
            else:
                self.assertEqual(sorted(status.regions), ["first", "second"])
                self.assertEqual(client.get_system_shared_memory_status("second").regions["second"].key, key)
            told = self.memory()["shared_memory"]
            self.assertEqual([(r["name"], r["bytes"]) for r in told["regions"]], [("first", 64), ("second", 128)])
            self.assertEqual(told["system_bytes"], 2 * PAGE)
            self.assertEqual(self.server.metric('sluice_shared_memory_bytes{kind="system"}'), 2 * PAGE)
            self.assertEqual(self.server.metric('sluice_shared_memory_regions{kind="system"}'), 2)
            self.assertRegex(self.table("memory"), r"second +system +128")
            self.fails("Unable to find system shared memory region: 'third'",
                       client.get_system_shared_memory_status, "third")
            self.fails("not CUDA shared memory", client.get_cuda_shared_memory_status, "first")
            client.unregister_cuda_shared_memory()
            client.unregister_system_shared_memory("first")
            client.unregister_system_shared_memory("third")
            self.assertIn("second", str(client.get_system_shared_memory_status()))
            client.unregister_system_shared_memory()
            self.assertFalse(client.get_system_shared_memory_status() if module is httpclient else
                             client.get_system_shared_memory_status().regions)

    def test_cuda_regions_are_refused_where_there_is_no_cuda(self):
        for client, _ in self.both():
            self.fails("CUDA shared memory is not supported: the daemon runs on the device 'cpu'",
                       client.register_cuda_shared_memory, "c", base64.b64encode(b"x" * 64), 0, 64)

    def test_a_key_or_name_with_a_nul_is_refused(self):
        _, key = self.create(64)
        for name, wanted in (("nul", key + "\0x"), ("nul\0x", key)):
            for client, _ in self.both():
                with self.assertRaises(InferenceServerException):
                    client.register_system_shared_memory(name, wanted, 64)
            self.fails("holds a NUL character", self.grpc.register_system_shared_memory, name, wanted, 64)
        self.assertFalse(self.grpc.get_system_shared_memory_status().regions)

    def test_a_name_is_taken_once(self):
        for client, _ in self.both():
            _, key = self.create(64)
            client.register_system_shared_memory("name", key, 64)
            self.fails("shared memory region 'name' already in manager",
                       client.register_system_shared_memory, "name", key, 64)
            client.unregister_system_shared_memory("name")
            client.register_system_shared_memory("name", key, 64)
            client.unregister_system_shared_memory("name")


class Refusals(Case):
    settings = ["Memory.SharedMemoryLimit=1M", "Memory.SharedMemoryRegions=4"]

    def test_keys_are_names_of_objects(self):
        for client, _ in self.both():
            for key in ("", "/", "..", "/..", ".", "/../etc/passwd", "a/b", "//a", "/dev/shm/a", "x" * 300):
                self.fails("the key is no name", client.register_system_shared_memory, "r", key, 64)
            self.fails("Unable to open shared memory region: '/nothing-of-that-name'",
                       client.register_system_shared_memory, "r", "nothing-of-that-name", 64)
            self.fails("1 to 255 bytes", client.register_system_shared_memory, "n" * 256, "/a", 64)

    def test_what_is_no_object_is_not_opened(self):
        path = f"/dev/shm/sluice-test-{os.getpid()}-odd"
        for make in (os.mkfifo, lambda where: os.symlink("/etc/passwd", where), os.mkdir):
            make(path)
            try:
                self.fails("Unable to open", self.grpc.register_system_shared_memory, "r", os.path.basename(path), 64)
            finally:
                os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)

    def test_parts_lie_inside_the_object(self):
        _, key = self.create(8192)
        huge = 2 ** 64 - 1
        for client, _ in self.both():
            for offset, size in ((0, 8193), (8192, 1), (8191, 2), (huge, 1), (huge - 4096, 8192), (4096, 2 ** 63), (1, 8192)):
                with self.assertRaises(InferenceServerException):
                    client.register_system_shared_memory("r", key, size, offset=offset)
            self.fails("it has no bytes", client.register_system_shared_memory, "r", key, 0)
            self.assertEqual(self.memory()["shared_memory"]["regions"], [])

    def test_number_and_bytes_are_limited(self):
        _, key = self.create(4 << 20)
        for client, _ in self.both():
            self.fails("SharedMemoryLimit", client.register_system_shared_memory, "r", key, (1 << 20) + 1)
            client.register_system_shared_memory("r0", key, 1 << 20)
            self.fails("SharedMemoryLimit", client.register_system_shared_memory, "r", key, 1)
            client.unregister_system_shared_memory("r0")
            for i in range(4):
                client.register_system_shared_memory(f"r{i}", key, 64)
            self.fails("SharedMemoryRegions", client.register_system_shared_memory, "r4", key, 64)
            client.unregister_system_shared_memory()

    def test_places_of_tensors_lie_inside_the_region(self):
        huge = 2 ** 63 - 1
        for client, module in self.both():
            _, name = self.region(client, 64)
            for offset, size in ((64, 16), (49, 16), (0, 65), (huge, 16), (0, huge), (huge, huge)):
                for inputs, outputs in (({"x": ("FP32", [1, 4], name, size, offset)}, {}),
                                        (times_input(name), {"y": (name, size, offset)})):
                    self.fails("Invalid offset", self.infer, client, module, "times", inputs, outputs)
            self.fails("Unable to find shared memory region: 'no'", self.infer, client, module, "times",
                       times_input("no"), {})
            self.fails("byte size", self.infer, client, module, "times", {"x": ("FP32", [1, 4], name, 32, 0)}, {})
            self.fails("should be at least 16 bytes", self.infer, client, module, "times", times_input(name),
                       {"y": (name, 15, 0)})
            client.unregister_system_shared_memory()

    def post(self, tensor, outputs=()):
        body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], **tensor}],
                           "outputs": [{"name": "y", "parameters": o} for o in outputs]})
        status, _, text = self.server.request("POST", "/v2/models/times/infer", body)
        return status, text.decode()

    def test_parameters_belong_together(self):
        _, name = self.region(self.grpc, 64)
        region, size = {"shared_memory_region": name}, {"shared_memory_byte_size": 16}
        data = {"data": [1, 2, 3, 4]}
        for parameters in (region, size, {"shared_memory_offset": 0}, {**region, "shared_memory_offset": 4}):
            self.assertIn("needs both", self.post({"parameters": parameters})[1])
            self.assertIn("needs both", self.post(data, [parameters])[1])
        for wrong in ({**region, "shared_memory_byte_size": -1}, {**region, "shared_memory_byte_size": 1.5},
                      {**region, **size, "shared_memory_offset": "0"}, {**size, "shared_memory_region": 7},
                      {**region, **size, "shared_memory_offset": -64}):
            self.assertEqual(self.post({"parameters": wrong})[0], 400)
            self.assertEqual(self.post(data, [wrong])[0], 400)
        self.assertIn("although it lies in shared memory", self.post({**data, "parameters": {**region, **size}})[1])
        self.assertIn("although it lies in shared memory",
                      self.post({"parameters": {**region, **size, "binary_data_size": 0}})[1])
        self.assertIn("cannot be classified", self.post(data, [{**region, **size, "classification": 1}])[1])
        self.assertEqual(self.post(data, [{**region, **size}])[0], 200)

    def test_an_output_is_asked_for_once(self):
        for client, module in self.both():
            _, name = self.region(client, 64)
            shared, plain = module.InferRequestedOutput("y"), module.InferRequestedOutput("y")
            shared.set_shared_memory(name, 16)
            tensor = module.InferInput("x", [1, 4], "FP32")
            tensor.set_shared_memory(name, 16)
            for outputs in ([shared, plain], [plain, shared], [shared, shared], [plain, plain]):
                self.fails("output 'y' is asked for twice", client.infer, "times", [tensor], outputs=outputs)
            client.unregister_system_shared_memory()
        self.still_serves()


class Off(Case):
    settings = ["Memory.SharedMemory=off"]

    def test_nothing_is_registered(self):
        _, key = self.create(64)
        for client, _ in self.both():
            self.fails("SharedMemory=off", client.register_system_shared_memory, "r", key, 64)
            client.unregister_system_shared_memory()


# What a hostile client runs as: a process of its own that registers and then goes.
GONE = """
import sys, os
import tritonclient.grpc as grpcclient
client = grpcclient.InferenceServerClient("unix://" + sys.argv[1])
client.register_system_shared_memory("of a process", sys.argv[2], 64)
print("registered", flush=True)
sys.stdin.read()
os._exit(0)
"""


class Hostile(Case):
    def test_an_object_that_shrinks_fails_its_requests_only(self):
        for client, module in self.both():
            for inputs, outputs in ((True, False), (False, True), (True, True)):
                count = 1 << 16
                x = np.ones((1, count), np.float32)
                source, name = self.region(client, x.nbytes, [x])
                target, place = self.region(client, x.nbytes)
                for handle in [source] * inputs + [target] * outputs:
                    os.truncate("/dev/shm" + handle._shm_key, PAGE)
                for _ in range(2):
                    self.fails("is broken", self.infer, client, module, "wide",
                               {"x": ("FP32", [1, count], name, x.nbytes, 0)}, {"y": (place, x.nbytes, 0)})
                self.still_serves()
                client.unregister_system_shared_memory()

    def test_shrunken_text_and_truths_and_indices_fail_too(self):
        for model_, datatype, element in (("texts", "BYTES", 4), ("truths", "BOOL", 1), ("lookup", "INT64", 8)):
            size = 4 * PAGE
            handle, name = self.region(self.grpc, size)
            shape = {"texts": [PAGE // 2, 2], "truths": [4, 4], "lookup": [size // 8]}[model_]
            used = {"texts": size, "truths": 16, "lookup": size}[model_]
            os.truncate("/dev/shm" + handle._shm_key, 0)
            self.fails("", self.infer, self.grpc, grpcclient, model_, {"x": (datatype, shape, name, used, 0)}, {})
            self.still_serves()
            self.grpc.unregister_system_shared_memory()

    def test_shrinking_and_rewriting_while_requests_run_hurts_nobody_else(self):
        count = 1 << 16
        x = np.ones((1, count), np.float32)
        stop = threading.Event()
        source, key = self.create(x.nbytes, [x])

        def shrink():
            while not stop.is_set():
                os.truncate("/dev/shm" + key, 0)
                os.truncate("/dev/shm" + key, x.nbytes)

        indices, index_key = self.create(8 * 4096, [np.zeros(4096, np.int64)])
        memory = np.frombuffer(indices._mpsm_handle.buf, np.int64)

        def rewrite():
            while not stop.is_set():
                memory[:] = -2 ** 62
                memory[:] = 63

        threads = [threading.Thread(target=shrink), threading.Thread(target=rewrite)]
        [thread.start() for thread in threads]
        until, asked = time.monotonic() + 3, 0
        while time.monotonic() < until:
            try:
                self.grpc.register_system_shared_memory("racy", key, x.nbytes)
                self.infer(self.grpc, grpcclient, "wide", {"x": ("FP32", [1, count], "racy", x.nbytes, 0)},
                           {"y": ("racy", x.nbytes, 0)})
            except InferenceServerException:
                pass
            self.grpc.unregister_system_shared_memory("racy")
            try:
                self.grpc.register_system_shared_memory("indices", index_key, 8 * 4096)
                self.infer(self.grpc, grpcclient, "lookup", {"x": ("INT64", [4096], "indices", 8 * 4096, 0)}, {})
            except InferenceServerException:
                pass
            self.grpc.unregister_system_shared_memory("indices")
            asked += 1
        stop.set()
        [thread.join() for thread in threads]
        del memory
        self.assertGreater(asked, 3)
        self.still_serves()

    def test_unregistering_lets_requests_in_flight_finish(self):
        x = np.random.default_rng(1).standard_normal((8, 512)).astype(np.float32)
        _, source = self.region(self.grpc, x.nbytes, [x])
        target, place = self.region(self.grpc, x.nbytes)
        tensor = grpcclient.InferInput("x", [8, 512], "FP32")
        tensor.set_shared_memory(source, x.nbytes)
        output = grpcclient.InferRequestedOutput("y")
        output.set_shared_memory(place, x.nbytes)
        expected = self.grpc.infer("slow", [self.sent(x)]).as_numpy("y")
        done = threading.Semaphore(0)
        seen = []

        def on_answer(result, error):
            seen.append(error)
            done.release()

        for _ in range(4):
            self.grpc.async_infer("slow", [tensor], on_answer, outputs=[output])
        harness.wait_for("the requests", lambda: len(seen) > 0 or any(
            region["uses"] > 0 for region in self.memory()["shared_memory"]["regions"]))
        self.grpc.unregister_system_shared_memory()
        self.assertEqual(self.memory()["shared_memory"]["regions"], [])
        for _ in range(4):
            self.assertTrue(done.acquire(timeout=60))
        self.assertIn(None, seen)
        np.testing.assert_array_equal(shm.get_contents_as_numpy(target, np.float32, [8, 512]), expected)

    @staticmethod
    def sent(x):
        tensor = grpcclient.InferInput("x", list(x.shape), "FP32")
        tensor.set_data_from_numpy(x)
        return tensor

    def test_regions_go_with_the_process_that_registered_them_over_a_unix_socket(self):
        _, key = self.create(64)
        child = subprocess.Popen([sys.executable, "-c", GONE, self.server.path("grpc"), key], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        self.assertEqual(child.stdout.readline(), b"registered\n")
        regions = self.memory()["shared_memory"]["regions"]
        self.assertEqual([(region["name"], region["owner_pid"]) for region in regions], [("of a process", child.pid)])
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
        harness.wait_for("the region to go", lambda: not self.memory()["shared_memory"]["regions"])

    def test_signals_from_elsewhere_still_end_the_daemon(self):
        server = harness.Server(PROGRAM, [], as_daemon=True, more=["--model-repository", self.folder.name])
        client = grpcclient.InferenceServerClient("unix://" + server.path("grpc"))
        _, key = self.create(64)
        client.register_system_shared_memory("r", key, 64)
        client.close()
        server.process.send_signal(signal.SIGBUS)
        self.assertIn(server.process.wait(20), (-signal.SIGBUS, 1, 66))  # 1, 66: of the sanitizers' own handlers
        server.folder.cleanup()


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
