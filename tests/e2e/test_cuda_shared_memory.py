"""Tensors in CUDA shared memory, on the simulated GPU: this process exports, the daemon takes in."""
import base64
import ctypes
import json
import sys
import tempfile
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


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
