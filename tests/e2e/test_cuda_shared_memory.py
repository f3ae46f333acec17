"""Tensors in CUDA shared memory, on the simulated GPU: this process exports, the daemon takes in."""
import base64
import ctypes
import json
import subprocess
import sys
import tempfile
import threading
import unittest

import harness

try:
    import numpy as np
    import tritonclient.grpc as grpcclient
    import tritonclient.http as httpclient
    from tritonclient.utils import InferenceServerException

    import small_models
    import test_shared_memory
except ImportError as error:
    harness.need_packages(error)

PROGRAM = None
TO_DEVICE, TO_HOST = 1, 2
HANDLE_BYTES = 64


class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * HANDLE_BYTES)]


class Memory:
    """Device memory of this process."""

    runtime = None

    def __init__(self, size):
        Memory.runtime = Memory.runtime or ctypes.CDLL("libcudart.so.13")
        self.size = size
        self.address = ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(self.address), ctypes.c_size_t(size))

    def call(self, name, *arguments):
        code = getattr(self.runtime, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: {code}")

    def at(self, offset):
        return ctypes.c_void_p(self.address.value + offset)

    def put(self, array, offset=0):
        self.call("cudaMemcpy", self.at(offset), array.ctypes.data_as(ctypes.c_void_p),
                  ctypes.c_size_t(array.nbytes), TO_DEVICE)

    def get(self, shape, offset=0):
        array = np.zeros(shape, np.float32)
        self.call("cudaMemcpy", array.ctypes.data_as(ctypes.c_void_p), self.at(offset),
                  ctypes.c_size_t(array.nbytes), TO_HOST)
        return array

    def handle(self):
        handle = Handle()
        self.call("cudaIpcGetMemHandle", ctypes.byref(handle), self.address)
        return base64.b64encode(ctypes.string_at(ctypes.byref(handle), HANDLE_BYTES))


class Case(unittest.TestCase):
    def start(self, mode="eager"):
        folder = tempfile.TemporaryDirectory(prefix="sluice-e2e-")
        self.addCleanup(folder.cleanup)
        batching = "max_batch_size: 8 dynamic_batching { }"
        small_models.write(folder.name, "red", small_models.product(1, 32, 1), batching)
        small_models.write(folder.name, "two", test_shared_memory.two_outputs(), batching)
        small_models.write(folder.name, "truths", small_models.truths(), batching)
        small_models.write(folder.name, "lookup", test_shared_memory.lookup())
        self.server = harness.Server(PROGRAM, ["Device.Device=cuda"], as_daemon=True,
                                     more=["--model-repository", folder.name],
                                     environment={"SLUICE_SIM_MODE": mode, "SLUICE_SIM_LEAKS": "1"})
        self.grpc = grpcclient.InferenceServerClient("unix://" + self.server.path("grpc"))
        self.http = httpclient.InferenceServerClient("127.0.0.1:%d" % self.server.port("http"))
        self.addCleanup(self.grpc.close)
        self.addCleanup(self.http.close)
        harness.wait_for("the models", self.grpc.is_server_ready, seconds=60)

    def both(self):
        return (self.grpc, grpcclient), (self.http, httpclient)

    def infer(self, client, module, name, inputs, outputs):
        return test_shared_memory.Case.infer(self, client, module, name, inputs, outputs)

    def fails(self, words, call, *arguments, **more):
        with self.assertRaises(InferenceServerException) as caught:
            call(*arguments, **more)
        self.assertIn(words, str(caught.exception))

    def serve(self, mode):
        self.start(mode)
        memory = Memory(4096)
        x = np.random.default_rng(1).standard_normal((2, 32)).astype(np.float32)
        expected = x @ small_models.product_weights(1, 32, 1)[0]
        for client, module in self.both():
            client.register_cuda_shared_memory("c", memory.handle(), 0, 4096)
            for offset in (1024, 1028, 0):  # in place, at an odd address, over the input
                memory.put(x)
                for _ in range(3):  # recorded and replayed, where it is in place
                    if offset == 0:
                        memory.put(x)
                    self.infer(client, module, "red", {"x": ("FP32", [2, 32], "c", x.nbytes, 0)},
                               {"y": ("c", x.nbytes, offset)})
                    np.testing.assert_allclose(memory.get((2, 32), offset), expected, rtol=1e-4, atol=1e-4)
            memory.put(x)
            answer = self.infer(client, module, "red", {"x": ("FP32", [2, 32], "c", x.nbytes, 0)}, {})
            np.testing.assert_allclose(answer.as_numpy("y"), expected, rtol=1e-4, atol=1e-4)
            memory.put(np.array([3, 1, 63], np.int64), 512)  # looked at twice: copied first
            self.infer(client, module, "lookup", {"x": ("INT64", [3], "c", 24, 512)}, {"y": ("c", 12, 2048)})
            np.testing.assert_array_equal(memory.get(3, 2048), test_shared_memory.TABLE[[3, 1, 63]])
            client.unregister_cuda_shared_memory()
        self.assertEqual(self.server.stop(), None)

    def test_inputs_and_outputs_lie_on_the_device(self):
        self.serve("eager")

    def test_nothing_depends_on_when_the_stream_gets_to_it(self):
        self.serve("lazy")

    def test_two_names_of_one_handle_are_the_same_bytes(self):
        self.start()
        memory = Memory(4096)
        x = np.random.default_rng(2).standard_normal((2, 32)).astype(np.float32)
        expected = x @ small_models.product_weights(1, 32, 1)[0]
        for client, module in self.both():
            client.register_cuda_shared_memory("one", memory.handle(), 0, 4096)
            self.fails("already in manager", client.register_cuda_shared_memory, "one", memory.handle(), 0, 4096)
            client.register_cuda_shared_memory("two", memory.handle(), 0, 2048)
            for offset in (1024, 64):  # beside the input, over its end
                memory.put(x)
                self.infer(client, module, "red", {"x": ("FP32", [2, 32], "one", x.nbytes, 0)},
                           {"y": ("two", x.nbytes, offset)})
                np.testing.assert_allclose(memory.get((2, 32), offset), expected, rtol=1e-4, atol=1e-4)
            client.unregister_cuda_shared_memory("one")
            memory.put(x)  # the other name still leads there
            self.infer(client, module, "red", {"x": ("FP32", [2, 32], "two", x.nbytes, 0)}, {"y": ("two", x.nbytes, 1024)})
            np.testing.assert_allclose(memory.get((2, 32), 1024), expected, rtol=1e-4, atol=1e-4)
            client.unregister_cuda_shared_memory()
        self.server.stop()

    def test_regions_go_with_the_process_that_registered_them(self):
        self.start()
        client = subprocess.Popen([sys.executable, __file__, "--register", self.server.path("grpc")],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(client.stdout.readline(), b"registered\n")
        self.assertIn("gone", self.grpc.get_cuda_shared_memory_status().regions)
        answer = self.infer(self.grpc, grpcclient, "red", {"x": ("FP32", [2, 32], "gone", 256, 0)}, {})
        np.testing.assert_allclose(answer.as_numpy("y"), np.ones((2, 32), np.float32) @
                                   small_models.product_weights(1, 32, 1)[0], rtol=1e-4, atol=1e-4)
        client.kill()
        client.communicate()
        harness.wait_for("the region to go", lambda: not self.grpc.get_cuda_shared_memory_status().regions)
        self.fails("Unable to find shared memory region", self.infer, self.grpc, grpcclient, "red",
                   {"x": ("FP32", [2, 32], "gone", 256, 0)}, {})
        self.server.stop()

    def test_requests_and_registrations_of_others_leave_each_other_alone(self):
        self.start("async")
        memory, over = Memory(4096), threading.Event()
        x = np.random.default_rng(3).standard_normal((2, 32)).astype(np.float32)
        expected = x @ small_models.product_weights(1, 32, 1)[0]
        memory.put(x)
        handle = memory.handle()

        def come_and_go():
            with grpcclient.InferenceServerClient("unix://" + self.server.path("grpc")) as client:
                while not over.is_set():
                    client.register_cuda_shared_memory("s", handle, 0, 4096)
                    client.unregister_cuda_shared_memory("s")

        other = threading.Thread(target=come_and_go)
        other.start()
        outcomes = {True: 0, False: 0}
        for _ in range(100000):  # until both have been seen
            try:
                self.infer(self.grpc, grpcclient, "red", {"x": ("FP32", [2, 32], "s", 256, 0)}, {"y": ("s", 256, 1024)})
                np.testing.assert_allclose(memory.get((2, 32), 1024), expected, rtol=1e-4, atol=1e-4)
                outcomes[True] += 1
            except InferenceServerException as error:
                self.assertIn("Unable to find shared memory region", str(error))
                outcomes[False] += 1
            if min(outcomes.values()) > 20:
                break
        over.set()
        other.join()
        self.assertGreater(min(outcomes.values()), 20)
        log = self.server.log()
        self.server.stop()
        self.assertNotIn("sim:", log)

    def test_wrong_regions_are_refused(self):
        self.start()
        memory = Memory(4096)
        for client, module in self.both():
            self.fails("device_id 1 is not the daemon's", client.register_cuda_shared_memory, "c", memory.handle(), 1, 64)
            self.fails("the imported memory has", client.register_cuda_shared_memory, "c", memory.handle(), 0, 1 << 22)
            self.fails("cannot be opened", client.register_cuda_shared_memory, "c",
                       base64.b64encode(b"x" * HANDLE_BYTES), 0, 64)
            self.fails("its handle has 3 bytes", client.register_cuda_shared_memory, "c", base64.b64encode(b"abc"), 0, 64)
            client.register_cuda_shared_memory("c", memory.handle(), 0, 4096)
            status = client.get_cuda_shared_memory_status("c")
            told = status[0] if module is httpclient else status.regions["c"]
            self.assertIn("4096", str(told))
            self.fails("registered as CUDA shared memory, not system", client.get_system_shared_memory_status, "c")
            self.fails("Invalid offset", self.infer, client, module, "red", {"x": ("FP32", [1, 32], "c", 128, 4000)}, {})
            self.fails("should be at least 128 bytes", self.infer, client, module, "red",
                       {"x": ("FP32", [1, 32], "c", 128, 0)}, {"y": ("c", 64, 512)})
            self.fails("is BOOL, which cannot lie in CUDA", self.infer, client, module, "truths",
                       {"x": ("BOOL", [1, 4], "c", 4, 0)}, {})
            client.unregister_cuda_shared_memory("c")
        status, _, body = self.server.request("POST", "/v2/cudasharedmemory/region/c/register", json.dumps(
            {"raw_handle": {"b64": "not base64!"}, "device_id": 0, "byte_size": 64}))
        self.assertEqual(status, 400)
        self.assertIn(b"no base64", body)
        self.server.stop()


def register(socket):
    """Of another process, which holds the memory until it is ended."""
    memory = Memory(4096)
    memory.put(np.ones((2, 32), np.float32))
    client = grpcclient.InferenceServerClient("unix://" + socket)
    client.register_cuda_shared_memory("gone", memory.handle(), 0, 4096)
    print("registered", flush=True)
    sys.stdin.read()


if __name__ == "__main__" and sys.argv[1:2] == ["--register"]:
    register(sys.argv[2])
elif __name__ == "__main__":
    harness.main(sys.modules["__main__"])
