"""The daemon and Triton's own Python clients, unmodified, on Triton's example models."""
import json
import queue
import sys
import unittest

import harness

try:
    import numpy as np
    import tritonclient.grpc as grpcclient
    import tritonclient.http as httpclient
    from tritonclient.utils import InferenceServerException
except ImportError as error:
    harness.need_packages(error)

PROGRAM = None
REPOSITORY = harness.EXAMPLES


def numbers(dtype):
    return np.arange(16, dtype=dtype).reshape(1, 16), np.full((1, 16), 2, dtype)


def texts(array):
    return np.array([[str(value).encode() for value in array[0]]], dtype=np.object_)


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM, as_daemon=True, more=["--model-repository", REPOSITORY])
        cls.grpc = grpcclient.InferenceServerClient("unix://" + cls.server.path("grpc"))
        cls.http = httpclient.InferenceServerClient("127.0.0.1:%d" % cls.server.port("http"))
        harness.wait_for("the models", lambda: cls.grpc.is_model_ready("simple_string"))

    @classmethod
    def tearDownClass(cls):
        cls.grpc.close()
        cls.http.close()
        cls.server.stop()

    def both(self):
        return (self.grpc, grpcclient), (self.http, httpclient)

    def infer(self, client, module, model, datatype, first, second, **more):
        inputs = [module.InferInput("INPUT0", list(first.shape), datatype),
                  module.InferInput("INPUT1", list(second.shape), datatype)]
        binary = more.pop("binary", True)
        for tensor, value in zip(inputs, (first, second)):
            if module is httpclient:
                tensor.set_data_from_numpy(value, binary_data=binary)
            else:
                tensor.set_data_from_numpy(value)
        return client.infer(model, inputs, **more)

    def test_the_server_says_who_it_is(self):
        for client, _ in self.both():
            self.assertTrue(client.is_server_live())
            metadata = client.get_server_metadata()
            extensions = metadata["extensions"] if isinstance(metadata, dict) else metadata.extensions
            self.assertIn("statistics", extensions)

    def test_queries_mean_nothing(self):
        more = {"query_params": {"test_1": 1, "name": "nothing"}}
        self.assertTrue(self.http.is_server_live(**more))
        self.assertTrue(self.http.is_model_ready("simple", **more))
        self.assertEqual(self.http.get_model_metadata("simple", **more)["name"], "simple")
        self.assertEqual(len(self.http.get_inference_statistics("simple", **more)["model_stats"]), 1)
        self.assertTrue(self.http.get_model_repository_index(**more))

    def test_sums_and_differences_are_right(self):
        first, second = numbers(np.int32)
        for client, module in self.both():
            for binary in (True, False):
                result = self.infer(client, module, "simple", "INT32", first, second, binary=binary)
                np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + second)
                np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), first - second)

    def test_narrow_integers_are_right(self):
        first, second = numbers(np.int8)
        for client, module in self.both():
            for binary in (True, False):
                result = self.infer(client, module, "simple_int8", "INT8", first, second, binary=binary)
                np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + second)

    def test_strings_are_right(self):
        first, second = numbers(np.int32)
        for client, module in self.both():
            for binary in (True, False):
                result = self.infer(client, module, "simple_string", "BYTES", texts(first),
                                    texts(second), binary=binary)
                np.testing.assert_array_equal(result.as_numpy("OUTPUT0").astype(np.int32),
                                              first + second)

    def test_batches_up_to_the_largest_are_answered(self):
        first = np.arange(128, dtype=np.int32).reshape(8, 16)
        for client, module in self.both():
            result = self.infer(client, module, "simple", "INT32", first, first)
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first * 2)

    def test_only_the_outputs_asked_for_are_sent(self):
        first, second = numbers(np.int32)
        for client, module in self.both():
            result = self.infer(client, module, "simple", "INT32", first, second,
                                outputs=[module.InferRequestedOutput("OUTPUT1")])
            np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), first - second)
            self.assertIsNone(result.as_numpy("OUTPUT0"))

    def test_classification_gives_values_and_indices(self):
        first, second = numbers(np.int32)
        for client, module in self.both():
            result = self.infer(client, module, "simple", "INT32", first, second,
                                outputs=[module.InferRequestedOutput("OUTPUT0", class_count=2)])
            self.assertEqual([text.decode() for text in result.as_numpy("OUTPUT0").flatten()],
                             ["17:15", "16:14"])

    def test_requests_keep_their_id(self):
        first, second = numbers(np.int32)
        for client, module in self.both():
            result = self.infer(client, module, "simple", "INT32", first, second, request_id="mine")
            response = result.get_response()
            self.assertEqual(response["id"] if isinstance(response, dict) else response.id, "mine")

    def test_wrong_requests_are_refused_with_a_sentence(self):
        first, second = numbers(np.int32)
        wide = np.zeros((1, 17), np.int32)
        many = np.zeros((9, 16), np.int32)
        for client, module in self.both():
            for arguments in (("nothing", "INT32", first, second), ("simple", "INT32", wide, wide),
                              ("simple", "INT32", many, many),
                              ("simple", "FP32", *numbers(np.float32))):
                with self.assertRaises(InferenceServerException) as caught:
                    self.infer(client, module, *arguments)
                self.assertIn(arguments[0] if arguments[0] == "nothing" else "simple",
                              str(caught.exception))

    def test_priority_and_timeout_are_taken(self):
        first, second = numbers(np.int32)
        for client, module in self.both():
            result = self.infer(client, module, "simple", "INT32", first, second, priority=1,
                                timeout=1000000)
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + second)

    def test_compression_works_both_ways(self):
        first, second = numbers(np.int32)
        for coding in ("gzip", "deflate"):
            result = self.infer(self.http, httpclient, "simple", "INT32", first, second,
                                request_compression_algorithm=coding,
                                response_compression_algorithm=coding)
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + second)
            result = self.infer(self.grpc, grpcclient, "simple", "INT32", first, second,
                                compression_algorithm=coding)
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + second)

    def test_metadata_and_configuration_agree(self):
        metadata = self.grpc.get_model_metadata("simple")
        config = self.grpc.get_model_config("simple").config
        self.assertEqual([t.name for t in metadata.inputs], [t.name for t in config.input])
        self.assertEqual(list(metadata.inputs[0].shape), [-1, 16])
        self.assertEqual(config.max_batch_size, 8)
        self.assertEqual(self.http.get_model_config("simple")["max_batch_size"], 8)
        self.assertEqual(self.http.get_model_metadata("simple")["versions"], ["1"])

    def test_statistics_count_requests(self):
        first, second = numbers(np.int32)
        before = self.grpc.get_inference_statistics("simple").model_stats[0]
        for _ in range(5):
            self.infer(self.grpc, grpcclient, "simple", "INT32", first, second)
        after = self.grpc.get_inference_statistics("simple").model_stats[0]
        self.assertEqual(after.inference_stats.success.count - before.inference_stats.success.count, 5)
        self.assertEqual(after.inference_count - before.inference_count, 5)
        self.assertEqual(self.http.get_inference_statistics("simple")["model_stats"][0]["version"], "1")

    def test_the_index_says_why_a_model_is_not_there(self):
        rows = {row.name: row for row in self.grpc.get_model_repository_index().models}
        self.assertEqual(rows["simple"].state, "READY")
        self.assertEqual(rows["simple_sequence"].state, "UNAVAILABLE")
        self.assertIn("sequence_batching", rows["simple_sequence"].reason)

    def test_a_stream_answers_every_request(self):
        first, second = numbers(np.int32)
        answers = queue.Queue()
        client = grpcclient.InferenceServerClient("unix://" + self.server.path("grpc"))
        client.start_stream(lambda result, error: answers.put((result, error)))
        for i in range(50):
            inputs = [grpcclient.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
            inputs[0].set_data_from_numpy(first + i)
            inputs[1].set_data_from_numpy(second)
            client.async_stream_infer("simple", inputs, request_id=str(i))
        for i in range(50):
            result, error = answers.get(timeout=10)
            self.assertIsNone(error)
            self.assertEqual(result.get_response().id, str(i))
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + i + second)
        client.stop_stream()
        client.close()

    def test_shared_memory_can_be_asked_about(self):
        for client, _ in self.both():
            client.unregister_system_shared_memory()
            client.unregister_cuda_shared_memory()
            client.get_system_shared_memory_status()
            client.get_cuda_shared_memory_status()

    def test_settings_can_be_read_and_not_changed(self):
        for client, _ in self.both():
            client.get_trace_settings()
            client.get_log_settings()
            for change in (lambda: client.update_log_settings({"log_verbose_level": 1}),
                           lambda: client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]})):
                with self.assertRaisesRegex(InferenceServerException, "cannot be changed"):
                    change()


class Control(unittest.TestCase):
    """Explicit loads and unloads; the ledger returns to its former value."""

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM, ["Models.ControlMode=explicit"], as_daemon=True,
                                    more=["--model-repository", REPOSITORY])
        cls.grpc = grpcclient.InferenceServerClient("unix://" + cls.server.path("grpc"))
        cls.http = httpclient.InferenceServerClient("127.0.0.1:%d" % cls.server.port("http"))

    @classmethod
    def tearDownClass(cls):
        cls.grpc.close()
        cls.http.close()
        cls.server.stop()

    def memory(self):
        return json.loads(self.server.request("GET", "/sluice/v1/memory", role="admin")[2])

    def test_models_come_and_go(self):
        for client in (self.grpc, self.http):
            before = self.memory()["kinds"]["weights"]
            self.assertFalse(client.is_model_ready("simple"))
            client.load_model("simple")
            self.assertTrue(client.is_model_ready("simple"))
            client.unload_model("simple")
            harness.wait_for("the unload", lambda: not client.is_model_ready("simple"))
            self.assertEqual(self.memory()["kinds"]["weights"], before)

    def test_a_load_that_fails_says_why(self):
        for client in (self.grpc, self.http):
            with self.assertRaises(InferenceServerException) as caught:
                client.load_model("simple_sequence")
            self.assertIn("sequence_batching", str(caught.exception))
            with self.assertRaises(InferenceServerException):
                client.load_model("nothing")


if __name__ == "__main__":
    harness.need_examples()
    harness.main(sys.modules["__main__"])
