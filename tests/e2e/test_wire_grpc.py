"""gRPC as grpcio speaks it: streams, deadlines, cancels, limits, health, reflection, drain."""
import struct
import sys
import threading
import time
import unittest

import harness

try:
    import grpc
except ImportError as error:
    harness.need_packages(error)

PROGRAM = None
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def request(model="ident", raw=struct.pack("<2f", 1, 2), request_id=b""):
    tensor = field(1, b"INPUT0") + field(2, b"FP32") + field(3, varint(1) + varint(len(raw) // 4))
    return (field(1, model.encode()) + (field(3, request_id) if request_id else b"") +
            field(5, tensor) + field(7, raw))


def same(message):
    return message


def unary(channel, path, message, timeout=10, **more):
    return channel.unary_unary(path, request_serializer=same, response_deserializer=same)(
        message, timeout=timeout, **more)


def stream(channel, path, messages, timeout=10, **more):
    return channel.stream_stream(path, request_serializer=same, response_deserializer=same)(
        messages, timeout=timeout, **more)


class Case(unittest.TestCase):
    settings = []

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM, cls.settings)
        cls.channel = grpc.insecure_channel("unix://" + cls.server.path("grpc"), OPTIONS)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.server.stop()

    def fails(self, code, call):
        with self.assertRaises(grpc.RpcError) as caught:
            call()
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        return caught.exception.details()


class Wire(Case):
    settings = ["Server.MaxMessageBytes=8M", "Server.MaxStreams=32"]

    def test_tensors_of_all_sizes_come_back(self):
        for target in ("unix://" + self.server.path("grpc"),
                       "127.0.0.1:%d" % self.server.port("grpc")):
            with grpc.insecure_channel(target, OPTIONS) as channel:
                for size in (0, 4, 4096, 65536, 262144, 600000, 4000000):
                    raw = bytes(range(256)) * (size // 256) + bytes(size % 256)
                    self.assertTrue(unary(channel, INFER, request(raw=raw)).endswith(raw))

    def test_many_large_calls_at_once_do_not_mix(self):
        calls = []
        for i in range(16):
            raw = struct.pack("<f", i) * 150000
            call = self.channel.unary_unary(INFER, request_serializer=same, response_deserializer=same)
            calls.append((raw, call.future(request(raw=raw), timeout=20)))
        for raw, future in calls:
            self.assertTrue(future.result().endswith(raw))

    def test_an_unknown_method_is_unimplemented(self):
        self.fails(grpc.StatusCode.UNIMPLEMENTED, lambda: unary(self.channel, "/a.B/C", b""))
        self.fails(grpc.StatusCode.UNIMPLEMENTED,
                   lambda: unary(self.channel, "/sluice.v1.Admin/Memory", b""))

    def test_a_message_that_is_none_is_an_error(self):
        self.fails(grpc.StatusCode.INTERNAL, lambda: unary(self.channel, INFER, b"\xff\xff\xff"))

    def test_too_large_a_message_is_refused_by_its_prefix(self):
        text = self.fails(grpc.StatusCode.RESOURCE_EXHAUSTED,
                          lambda: unary(self.channel, INFER, request(raw=bytes(9 << 20))))
        self.assertIn("MaxMessageBytes", text)

    def test_too_large_a_head_is_refused(self):
        self.assertTrue(unary(self.channel, INFER, request(), metadata=[("x", "y" * 15000)]))
        text = self.fails(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: unary(
            self.channel, INFER, request(), metadata=[("x", "y" * 17000)]))
        self.assertIn("larger than the limit of 16384", text)
        self.assertTrue(unary(self.channel, INFER, request()))

    def raw_call(self, *headers):
        """What a call of ServerLive with these headers brings, in bytes; short values are not packed."""
        block = b"".join(b"\0" + bytes([len(part[0])]) + part[0] + bytes([len(part[1])]) + part[1] for part in
                         ((b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x"),
                          (b":path", b"/inference.GRPCInferenceService/ServerLive"), *headers))

        def frame(kind, flags, stream_id, data):
            return len(data).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + data

        answer = b""
        with self.server.connect("grpc") as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") +
                               frame(1, 4, 1, block) + frame(0, 1, 1, bytes(5)) +
                               frame(7, 0, 0, bytes(8)))  # GOAWAY: the end, once it is answered
            while piece := connection.recv(65536):
                answer += piece
        return answer

    def test_a_timeout_that_cannot_be_read_is_refused(self):
        grpc_type = (b"content-type", b"application/grpc")
        for timeout in (b"abc", b"-1S", b"123456789S", b"5", b"5s"):
            self.assertIn(b"\x013", self.raw_call(grpc_type, (b"grpc-timeout", timeout)), timeout)
        self.assertIn(b"\x010", self.raw_call(grpc_type, (b"grpc-timeout", b"5S")))

    def test_other_framings_are_no_grpc(self):
        for kind in (b"application/grpc-web", b"application/grpc-web+proto", b"application/grpcx", b"text/plain"):
            self.assertIn(b"\x03415", self.raw_call((b"content-type", kind)), kind)
        for kind in (b"application/grpc+proto", b"application/grpc;charset=utf-8"):
            self.assertIn(b"\x010", self.raw_call((b"content-type", kind)), kind)

    def test_a_parameter_out_of_range_names_what_is_allowed(self):
        def with_parameter(name, value):
            return request() + field(4, field(1, name) + field(2, value))

        minus = b"\x10" + varint((1 << 64) - 1)  # int64_param: -1
        for name, value, words in ((b"timeout", minus, "'timeout' is -1, allowed are 0 to"),
                                   (b"timeout", b"\x28" + varint(1 << 63), "is 9223372036854775808, allowed"),
                                   (b"priority", minus, "'priority' is -1, allowed are 0 to")):
            text = self.fails(grpc.StatusCode.INVALID_ARGUMENT,
                              lambda: unary(self.channel, INFER, with_parameter(name, value)))
            self.assertIn(words, text)
        self.assertTrue(unary(self.channel, INFER, with_parameter(b"priority", b"\x28" + varint(1 << 63))))

    def test_compressed_messages_are_read(self):
        for coding in (grpc.Compression.Gzip, grpc.Compression.Deflate):
            raw = bytes(100000)
            self.assertTrue(unary(self.channel, INFER, request(raw=raw), compression=coding)
                            .endswith(raw))

    def test_the_deadline_is_exact_and_cancels(self):
        name = 'sluice_requests_total{model="held",version="1",outcome="cancel"}'
        before = self.server.metric(name)
        started = time.monotonic()
        self.fails(grpc.StatusCode.DEADLINE_EXCEEDED,
                   lambda: unary(self.channel, INFER, request("held"), timeout=0.3))
        self.assertLess(time.monotonic() - started, 2)
        harness.wait_for("the cancel", lambda: self.server.metric(name) > before)

    def test_a_cancelled_call_cancels_its_request(self):
        name = 'sluice_requests_total{model="held",version="1",outcome="cancel"}'
        held = 'sluice_requests_total{model="held",version="1",outcome="success"}'
        before, started = self.server.metric(name), self.server.metric(held)
        call = self.channel.unary_unary(INFER, request_serializer=same, response_deserializer=same)
        future = call.future(request("held"))
        harness.wait_for("the request runs", lambda: self.server.metric(held) > started)
        future.cancel()
        harness.wait_for("the cancel", lambda: self.server.metric(name) > before)

    def test_a_channel_that_closes_cancels_its_requests(self):
        name = 'sluice_requests_total{model="held",version="1",outcome="cancel"}'
        held = 'sluice_requests_total{model="held",version="1",outcome="success"}'
        before, started = self.server.metric(name), self.server.metric(held)
        channel = grpc.insecure_channel("unix://" + self.server.path("grpc"), OPTIONS)
        call = channel.unary_unary(INFER, request_serializer=same, response_deserializer=same)
        future = call.future(request("held"))  # kept: one that is thrown away cancels itself
        harness.wait_for("the request runs", lambda: self.server.metric(held) > started)
        channel.close()
        harness.wait_for("the cancel", lambda: self.server.metric(name) > before)
        self.assertTrue(future.done())

    def test_a_stream_answers_in_the_order_of_its_requests(self):
        messages = [request("slow" if i % 3 else "ident", request_id=b"%d" % i) for i in range(200)]
        answers = list(stream(self.channel, STREAM, iter(messages)))
        self.assertEqual(len(answers), 200)
        for i, answer in enumerate(answers):
            self.assertIn(field(3, b"%d" % i), answer)

    def test_a_failed_message_of_a_stream_is_a_message(self):
        messages = [request("nope", request_id=b"bad"), request("ident", request_id=b"good")]
        answers = list(stream(self.channel, STREAM, iter(messages)))
        self.assertEqual(len(answers), 2)
        self.assertIn(b"unknown model: 'nope'", answers[0])
        self.assertIn(field(3, b"bad"), answers[0])

    def test_a_stream_that_wants_plain_errors_ends_with_one(self):
        self.fails(grpc.StatusCode.NOT_FOUND,
                   lambda: list(stream(self.channel, STREAM, iter([request("nope")]),
                                       metadata=(("triton_grpc_error", "true"),))))

    def test_large_messages_go_through_a_stream(self):
        raw = [struct.pack("<f", i) * 200000 for i in range(6)]
        answers = list(stream(self.channel, STREAM, iter([request(raw=r) for r in raw])))
        for answer, expected in zip(answers, raw):
            self.assertTrue(answer.endswith(expected))

    def test_health_says_who_serves(self):
        check = "/grpc.health.v1.Health/Check"
        self.assertEqual(unary(self.channel, check, b""), b"\x08\x01")
        self.assertEqual(unary(self.channel, check, field(1, b"ident")), b"\x08\x01")
        self.fails(grpc.StatusCode.NOT_FOUND,
                   lambda: unary(self.channel, check, field(1, b"nothing")))

    def test_watch_begins_with_the_state_of_things(self):
        call = self.channel.unary_stream("/grpc.health.v1.Health/Watch", request_serializer=same,
                                         response_deserializer=same)(b"", timeout=10)
        self.assertEqual(next(call), b"\x08\x01")
        call.cancel()
        unknown = self.channel.unary_stream("/grpc.health.v1.Health/Watch", request_serializer=same,
                                            response_deserializer=same)(field(1, b"x"), timeout=10)
        self.assertEqual(next(unknown), b"\x08\x03")
        unknown.cancel()

    def test_reflection_lists_services_and_gives_their_files(self):
        for version in ("v1", "v1alpha"):
            path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
            answers = list(stream(self.channel, path, iter([
                field(7, b""), field(4, b"inference.GRPCInferenceService.ModelInfer"),
                field(3, b"health.proto"), field(4, b"no.such.Symbol")])))
            self.assertIn(b"inference.GRPCInferenceService", answers[0])
            self.assertNotIn(b"sluice.v1.Admin", answers[0])
            self.assertIn(b"grpc_service.proto", answers[1])
            self.assertIn(b"model_config.proto", answers[1])
            self.assertIn(b"HealthCheckRequest", answers[2])
            self.assertIn(b"no such file or symbol", answers[3])

    def test_thousands_of_cancels_do_not_end_the_connection(self):
        call = self.channel.unary_unary(INFER, request_serializer=same, response_deserializer=same)
        for _ in range(2000):
            call.future(request("slow")).cancel()
        self.assertTrue(unary(self.channel, INFER, request()))


class Drip(Case):
    """Frames by hand: a client that sends its message in pieces, never too slowly for ReceiveTimeout."""
    settings = ["Server.RequestTimeout=1s", "Server.ReceiveTimeout=5s"]

    def frame(self, kind, payload, flags=0, on=1):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", on) + payload

    def drip(self, path):
        """Sends a byte of a message of 1000 each tenth of a second; what kinds of frames came for it."""
        def text(name, value):  # a literal without indexing, not compressed
            return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
        connection = self.server.connect("grpc")
        connection.settimeout(0.1)
        head = (b"\x83\x86" + text(b":path", path.encode()) + text(b":authority", b"x") +
                text(b"content-type", b"application/grpc") + text(b"te", b"trailers"))
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(4, b"", on=0) +
                           self.frame(1, head, flags=4) + self.frame(0, b"\0\0\0\3\xe8"))
        came, kinds = b"", set()
        for _ in range(40):
            connection.sendall(self.frame(0, b"x"))
            try:
                came += connection.recv(1000)
            except TimeoutError:
                continue
            while len(came) >= 9 and len(came) >= 9 + int.from_bytes(came[:3], "big"):
                if came[5:9] == b"\0\0\0\1":
                    kinds.add(came[3])
                came = came[9 + int.from_bytes(came[:3], "big"):]
            if kinds & {1, 3}:
                break
        connection.close()
        return kinds

    def test_a_message_that_drips_past_its_deadline_is_answered(self):
        self.assertIn(1, self.drip(INFER))  # headers: the status

    def test_one_of_a_stream_ends_its_stream(self):
        self.assertIn(3, self.drip(STREAM))  # RST_STREAM


class Idle(Case):
    settings = ["Server.GrpcIdleTimeout=1s"]

    def test_a_connection_without_calls_is_told_to_go_and_closed(self):
        connection = self.server.connect("grpc")
        connection.settimeout(30)
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        came, kinds = b"", []
        while piece := connection.recv(4096):
            came += piece
        while len(came) >= 9:
            kinds.append(came[3])
            came = came[9 + int.from_bytes(came[:3], "big"):]
        self.assertEqual((kinds[0], kinds[-1]), (4, 7))  # SETTINGS first, GOAWAY last

    def test_a_client_that_was_told_to_go_comes_again(self):
        self.assertTrue(unary(self.channel, INFER, request()))
        connection = self.server.connect("grpc")  # idle for longer than the channel when it is closed
        connection.settimeout(30)
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        while connection.recv(4096):
            pass
        connection.close()
        self.assertTrue(unary(self.channel, INFER, request()))

    def test_an_open_stream_is_no_idleness(self):
        watch = self.channel.unary_stream("/grpc.health.v1.Health/Watch", request_serializer=same,
                                          response_deserializer=same)(b"", timeout=3)
        self.assertEqual(next(watch), b"\x08\x01")
        with self.assertRaises(grpc.RpcError) as caught:
            next(watch)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)


class HostMemory(Case):
    settings = ["Memory.HostLimit=8M", "Server.MaxMessageBytes=6M", "Server.RequestTimeout=2s"]

    def test_all_go_through_when_they_have_time(self):
        raw = bytes(3000000)
        call = self.channel.unary_unary(INFER, request_serializer=same, response_deserializer=same)
        futures = [call.future(request(raw=raw), timeout=20) for _ in range(12)]
        for future in futures:
            self.assertTrue(future.result().endswith(raw))

    def test_what_does_not_fit_in_time_is_refused(self):
        raw = bytes(5000000)
        call = self.channel.unary_unary(INFER, request_serializer=same, response_deserializer=same)
        holder = call.future(request("held", raw), timeout=20)
        harness.wait_for("the budget is taken", lambda: self.server.metric(
            'sluice_host_bytes{state="in_use"}') > 5000000)
        text = self.fails(grpc.StatusCode.RESOURCE_EXHAUSTED,
                          lambda: unary(self.channel, INFER, request(raw=raw), timeout=None))
        self.assertIn("HostLimit", text)
        # With a deadline of its own the client learns the reason too: the answer comes before it.
        text = self.fails(grpc.StatusCode.RESOURCE_EXHAUSTED,
                          lambda: unary(self.channel, INFER, request(raw=raw), timeout=3))
        self.assertIn("did not fit within its deadline", text)
        text = self.fails(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: list(stream(
            self.channel, STREAM, iter([request(raw=raw)]), timeout=3, metadata=[("triton_grpc_error", "true")])))
        self.assertIn("did not fit within its deadline", text)
        self.assertTrue(unary(self.channel, INFER, request()))  # small ones still go through
        holder.cancel()
        self.assertTrue(unary(self.channel, INFER, request(raw=raw)).endswith(raw))


class Drain(unittest.TestCase):
    def test_no_call_is_lost_while_the_server_drains(self):
        server = harness.Server(PROGRAM)
        failures, answered = [], [0]
        stopped = threading.Event()

        def work():
            with grpc.insecure_channel("unix://" + server.path("grpc"), OPTIONS) as channel:
                while not stopped.is_set():
                    try:
                        unary(channel, INFER, request("slow"))
                        answered[0] += 1
                    except grpc.RpcError as error:
                        # A connection that could not be made any more is no lost call.
                        if "connect" not in error.details().lower():
                            failures.append(error.details())
                        return

        workers = [threading.Thread(target=work) for _ in range(8)]
        for worker in workers:
            worker.start()
        harness.wait_for("some calls", lambda: answered[0] > 100)
        try:
            server.stop()
        finally:
            stopped.set()
            for worker in workers:
                worker.join()
        self.assertEqual(failures, [])

    def test_health_says_not_serving_first(self):
        server = harness.Server(PROGRAM)
        with grpc.insecure_channel("unix://" + server.path("grpc"), OPTIONS) as channel:
            watch = channel.unary_stream("/grpc.health.v1.Health/Watch", request_serializer=same,
                                         response_deserializer=same)(b"", timeout=10)
            self.assertEqual(next(watch), b"\x08\x01")
            server.drain()
            self.assertEqual(next(watch), b"\x08\x02")
        server.stop()


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
