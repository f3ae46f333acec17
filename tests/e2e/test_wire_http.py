"""HTTP/1.1 as it is on the wire: what the server says to good, odd and hostile peers."""
import gzip
import json
import struct
import sys
import time
import unittest
import zlib

import harness

PROGRAM = None


def infer_body(count=4, value=1.5):
    """JSON length and body of a binary request."""
    raw = struct.pack("<%df" % count, *([value] * count))
    head = json.dumps({
        "id": "7",
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, count],
                    "parameters": {"binary_data_size": len(raw)}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }).encode()
    return len(head), head + raw


def infer_request(model="ident", count=4, more=b""):
    size, body = infer_body(count)
    return (b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n"
            b"Inference-Header-Content-Length: %d\r\n%s\r\n" % (model.encode(), len(body), size, more)
            ) + body


def read_answer(connection):
    """Status line, head and body of one answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        body += connection.recv(65536)
    return head.split(b"\r\n")[0].decode(), head, body


class Wire(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM, ["Server.MaxMessageBytes=1M", "Memory.HostLimit=4M"])

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def talk(self, data):
        connection = self.server.connect()
        connection.sendall(data)
        answer = read_answer(connection)
        connection.close()
        return answer

    def test_a_binary_tensor_comes_back(self):
        status, head, body = self.talk(infer_request())
        self.assertEqual(status, "HTTP/1.1 200 OK")
        size = int([l for l in head.split(b"\r\n") if l.startswith(b"Inference-Header")][0].split(b":")[1])
        answer = json.loads(body[:size])
        self.assertEqual(answer["id"], "7")
        self.assertEqual(body[size:], struct.pack("<4f", 1.5, 1.5, 1.5, 1.5))

    def test_a_request_may_come_byte_by_byte(self):
        connection = self.server.connect()
        for byte in infer_request():
            connection.sendall(bytes([byte]))
        self.assertEqual(read_answer(connection)[0], "HTTP/1.1 200 OK")

    def test_pipelined_requests_are_answered_in_order(self):
        connection = self.server.connect()
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 3 + infer_request() +
                           b"GET /v2/nothing HTTP/1.1\r\nHost: x\r\n\r\n")
        answers = [read_answer_from(connection, self) for _ in range(5)]
        self.assertEqual([a[0].split()[1] for a in answers], ["200", "200", "200", "200", "404"])

    def test_an_answer_to_head_has_no_body(self):
        connection = self.server.connect()
        connection.sendall(b"HEAD /v2 HTTP/1.1\r\nHost: x\r\n\r\nGET /v2/health/live HTTP/1.1\r\nHost: x\r\n"
                           b"Connection: close\r\n\r\n")
        data = b""
        while piece := connection.recv(65536):
            data += piece
        first, second, body = data.split(b"\r\n\r\n")
        self.assertTrue(first.startswith(b"HTTP/1.1 405 "), first)
        self.assertIn(b"\r\nAllow: GET\r\n", first)
        self.assertTrue(second.startswith(b"HTTP/1.1 200 "), second)
        self.assertEqual(json.loads(body), {"live": True})

    def test_health_can_be_asked_by_head(self):
        connection = self.server.connect()
        connection.sendall(b"HEAD /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n"
                           b"HEAD /v2/models/nothing/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        data = b""
        while piece := connection.recv(65536):
            data += piece
        ready, nothing, rest = data.split(b"\r\n\r\n")
        self.assertTrue(ready.startswith(b"HTTP/1.1 200 "), ready)
        self.assertRegex(nothing, rb"^HTTP/1.1 4\d\d ")
        self.assertEqual(rest, b"")

    def test_blank_lines_before_a_request_are_let_pass(self):
        request = infer_request()
        connection = self.server.connect()
        for blanks in (b"\r\n", b"\r\n" * 4):
            connection.sendall(blanks + request)
            self.assertEqual(read_answer(connection)[0], "HTTP/1.1 200 OK")
        for byte in b"\r\n\r\n" + request:
            connection.sendall(bytes([byte]))
        self.assertEqual(read_answer(connection)[0], "HTTP/1.1 200 OK")
        connection.sendall(request + b"\r\n" + request)  # as old clients end a body
        answers = [read_answer_from(connection, self) for _ in range(2)]
        self.assertEqual([a[0] for a in answers], ["HTTP/1.1 200 OK"] * 2)

    def test_many_blank_lines_and_halves_of_them_are_refused(self):
        request = infer_request()
        for blanks in (b"\r\n" * 5, b"\n", b"\r", b"\r\r\n", b" \r\n"):
            self.assertEqual(self.talk(blanks + request)[0], "HTTP/1.1 400 Bad Request", blanks)

    def test_chunks_may_be_split_anywhere(self):
        size, body = infer_body()
        head = (b"POST /v2/models/ident/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                b"Inference-Header-Content-Length: %d\r\n\r\n" % size)
        chunks = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7])
                          for i in range(0, len(body), 7)) + b"0\r\nTrailer: x\r\n\r\n"
        connection = self.server.connect()
        for i in range(0, len(head + chunks), 11):
            connection.sendall((head + chunks)[i:i + 11])
        self.assertEqual(read_answer(connection)[0], "HTTP/1.1 200 OK")

    def test_a_bad_chunk_is_refused_and_the_connection_closed(self):
        connection = self.server.connect()
        connection.sendall(b"POST /v2/models/ident/infer HTTP/1.1\r\nHost: x\r\n"
                           b"Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n")
        self.assertIn("400", read_answer(connection)[0])
        self.assertEqual(connection.recv(100), b"")

    def test_expect_continue_is_answered_before_the_body(self):
        size, body = infer_body()
        connection = self.server.connect()
        connection.sendall(b"POST /v2/models/ident/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                           b"Content-Length: %d\r\nInference-Header-Content-Length: %d\r\n\r\n"
                           % (len(body), size))
        self.assertEqual(connection.recv(25), b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.sendall(body)
        self.assertEqual(read_answer(connection)[0], "HTTP/1.1 200 OK")

    def test_too_large_a_body_is_refused_at_its_head(self):
        answer = self.talk(b"POST /v2/models/ident/infer HTTP/1.1\r\nHost: x\r\n"
                           b"Content-Length: 2000000\r\n\r\n")
        self.assertIn("413", answer[0])
        self.assertIn(b"MaxMessageBytes", answer[2])

    def test_too_large_a_head_is_refused(self):
        self.assertIn("431", self.talk(b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20000)[0])

    def test_what_can_become_no_head_is_refused_at_once(self):
        for start, why in ((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"no TLS"),
                           (b"GET /v2 HTTP/1.1\nHost: x\n\n", b"LF without CR")):
            status, _, body = self.talk(start)  # would else hang until the head's time is over
            self.assertIn("400", status)
            self.assertIn(why, body)

    def test_compressed_bodies_are_inflated_and_answers_deflated(self):
        size, body = infer_body(1000)
        for coding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
            status, headers, answer = self.server.request(
                "POST", "/v2/models/ident/infer", pack(body),
                {"Content-Encoding": coding, "Accept-Encoding": coding,
                 "Inference-Header-Content-Length": str(size)})
            self.assertEqual(status, 200, answer)
            self.assertEqual(headers["Content-Encoding"], coding)
            plain = gzip.decompress(answer) if coding == "gzip" else zlib.decompress(answer)
            self.assertTrue(plain.endswith(struct.pack("<f", 1.5) * 1000))

    def test_gzip_of_several_members_is_one_body(self):
        size, body = infer_body(1000)
        pieces = [body[:1], b"", body[1:300], body[300:]]
        for tail, expected in ((b"", 200), (b"x", 400), (gzip.compress(b"")[:15], 400)):
            status, _, answer = self.server.request(
                "POST", "/v2/models/ident/infer", b"".join(map(gzip.compress, pieces)) + tail,
                {"Content-Encoding": "gzip", "Inference-Header-Content-Length": str(size)})
            self.assertEqual(status, expected, answer)
        self.assertIn(b"damaged or cut off", answer)

    def test_so_is_one_of_many_members(self):
        status, _, answer = self.server.request(
            "POST", "/v2/models/ident/infer", gzip.compress(b" " * 100000) * 50,
            {"Content-Encoding": "gzip"})
        self.assertEqual(status, 429)
        self.assertIn(b"MaxMessageBytes", answer)

    def test_a_bomb_is_refused_at_the_limit(self):
        status, _, answer = self.server.request("POST", "/v2/models/ident/infer",
                                                gzip.compress(b" " * 5000000),
                                                {"Content-Encoding": "gzip"})
        self.assertEqual(status, 429)
        self.assertIn(b"MaxMessageBytes", answer)

    def test_a_client_that_leaves_cancels_its_request(self):
        name = 'sluice_requests_total{model="held",version="1",outcome="cancel"}'
        before = self.server.metric(name)
        connection = self.server.connect()
        connection.sendall(infer_request("held"))
        harness.wait_for("the request runs", lambda: json.loads(
            self.server.request("GET", "/sluice/v1/status", role="admin")[2])["requests_in_flight"] > 0)
        connection.close()
        harness.wait_for("the cancel", lambda: self.server.metric(name) > before)

    def test_an_error_is_a_json_sentence(self):
        status, headers, body = self.server.request("GET", "/v2/models/nope")
        self.assertEqual(status, 404)
        self.assertEqual(json.loads(body)["error"], "Request for unknown model: 'nope' is not found")

    def test_names_are_percent_decoded_but_hold_no_slash(self):
        self.assertEqual(self.server.request("GET", "/v2/models/%69dent")[0], 200)
        self.assertEqual(self.server.request("GET", "/v2/models/a%2Fb")[0], 400)
        self.assertEqual(self.server.request("GET", "/v2/models/a%00b")[0], 400)

    def test_admin_and_metrics_are_not_on_the_public_listener(self):
        self.assertEqual(self.server.request("GET", "/sluice/v1/memory")[0], 404)
        self.assertEqual(self.server.request("GET", "/metrics")[0], 404)

    def test_a_raw_request_is_the_only_input(self):
        raw = struct.pack("<3f", 1, 2, 3)
        status, headers, body = self.server.request(
            "POST", "/v2/models/ident/infer", raw, {"Inference-Header-Content-Length": "0"})
        self.assertEqual(status, 200, body)
        self.assertTrue(body.endswith(raw))

    def test_json_carries_every_kind_of_value(self):
        body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 3],
                            "data": [1e-3, -0.1, 16777217]}]}
        status, _, answer = self.server.request("POST", "/v2/models/ident/infer", json.dumps(body))
        self.assertEqual(status, 200, answer)
        self.assertEqual(json.loads(answer)["outputs"][0]["data"], [0.001, -0.1, 16777216.0])


_left = {}


def read_answer_from(connection, test):
    """As read_answer(), but keeps what was read too far."""
    data = _left.pop(connection, b"")
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, rest = data.partition(b"\r\n\r\n")
    length = int([l for l in head.split(b"\r\n") if l.startswith(b"Content-Length")][0].split(b":")[1])
    while len(rest) < length:
        rest += connection.recv(65536)
    _left[connection] = rest[length:]
    return head.split(b"\r\n")[0].decode(), head, rest[:length]


class HostMemory(unittest.TestCase):
    """A budget of 1 MiB: bodies of 600 KB go through one at a time."""

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM, ["Memory.HostLimit=1M", "Server.MaxMessageBytes=1M"])

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_what_can_never_fit_is_refused_at_once(self):
        connection = self.server.connect()
        connection.sendall(b"POST /v2/models/ident/infer HTTP/1.1\r\nHost: x\r\n"
                           b"Content-Length: 1048500\r\n\r\n")
        status, _, body = read_answer(connection)
        self.assertIn("429", status)
        self.assertIn(b"HostLimit", body)

    def test_what_rounds_up_to_more_than_there_is_is_refused_at_once(self):
        server = harness.Server(PROGRAM, ["Memory.HostLimit=1100K", "Server.MaxMessageBytes=1090K"])
        self.addCleanup(server.stop)
        connection = server.connect()
        connection.sendall(b"POST /v2/models/ident/infer HTTP/1.1\r\nHost: x\r\n"
                           b"Content-Length: 1110000\r\n\r\n")
        status, _, body = read_answer(connection)
        self.assertIn("429", status)
        self.assertIn(b"can never be held", body)

    def test_what_does_not_fit_now_waits_and_then_goes_through(self):
        first = self.server.connect()
        request = infer_request(count=150000)
        first.sendall(request[:-1])  # holds its memory until its last byte
        second = self.server.connect()
        second.settimeout(0.2)
        second.sendall(request[:1000])
        with self.assertRaises(TimeoutError):
            second.recv(1)
        first.sendall(request[-1:])
        self.assertEqual(read_answer(first)[0], "HTTP/1.1 200 OK")
        first.close()
        second.settimeout(10)
        second.sendall(request[1000:])
        self.assertEqual(read_answer(second)[0], "HTTP/1.1 200 OK")

    def test_a_client_that_asked_first_is_told_when_there_is_room(self):
        first, second = self.server.connect(), self.server.connect()
        request = infer_request(count=150000, more=b"Expect: 100-continue\r\n")
        head = request.index(b"\r\n\r\n") + 4
        first.sendall(request[:-1])
        self.assertEqual(first.recv(25), b"HTTP/1.1 100 Continue\r\n\r\n")
        second.settimeout(0.2)
        second.sendall(request[:head])
        with self.assertRaises(TimeoutError):
            second.recv(1)
        first.sendall(request[-1:])
        self.assertEqual(read_answer(first)[0], "HTTP/1.1 200 OK")
        first.close()
        second.settimeout(10)
        self.assertEqual(second.recv(25), b"HTTP/1.1 100 Continue\r\n\r\n")
        second.sendall(request[head:])
        self.assertEqual(read_answer(second)[0], "HTTP/1.1 200 OK")


class Deadlines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(
            PROGRAM, ["Memory.HostLimit=1M", "Server.MaxMessageBytes=1M", "Server.RequestTimeout=1s"])

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_what_never_fits_within_its_deadline_is_refused(self):
        server = harness.Server(PROGRAM, ["Memory.HostLimit=1M", "Server.MaxMessageBytes=1M",
                                          "Server.RequestTimeout=1s"], environment={"FAKE_HOLD": "600000"})
        self.addCleanup(server.stop)
        connection = server.connect()
        started = time.monotonic()
        connection.sendall(infer_request(count=150000)[:1000])
        status, _, body = read_answer(connection)
        self.assertIn("429", status)
        self.assertIn(b"HostLimit", body)
        self.assertGreater(time.monotonic() - started, 0.9)

    def test_a_body_that_drips_past_its_deadline_is_cut_off(self):
        for head, drop in ((b"Content-Length: 1000", b"x"), (b"Transfer-Encoding: chunked", b"1\r\nx\r\n")):
            connection = self.server.connect()
            connection.settimeout(0.1)
            connection.sendall(b"POST /v2/models/ident/infer HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n" % head)
            answer = b""
            for _ in range(50):
                connection.sendall(drop)
                try:
                    answer = connection.recv(1000)
                    break
                except TimeoutError:
                    pass
            self.assertTrue(answer.startswith(b"HTTP/1.1 504 "), answer)

    def test_a_request_that_runs_too_long_times_out(self):
        connection = self.server.connect()
        connection.sendall(infer_request("held"))
        self.assertIn("504", read_answer(connection)[0])


class Drain(unittest.TestCase):
    def test_requests_in_flight_are_answered_before_the_end(self):
        server = harness.Server(PROGRAM)
        busy, idle = server.connect(), server.connect()
        busy.sendall(infer_request("held"))
        idle.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertIn("200", read_answer(idle)[0])
        harness.wait_for("the request runs", lambda: json.loads(
            server.request("GET", "/sluice/v1/status", role="admin")[2])["requests_in_flight"] > 0)
        server.drain()
        status, head, _ = read_answer(busy)
        self.assertEqual(status, "HTTP/1.1 200 OK")
        self.assertIn(b"Connection: close", head)
        self.assertEqual(idle.recv(1), b"")
        server.stop()


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
