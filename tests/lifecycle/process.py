"""process.py SLUICED: the daemon as its surroundings see it: exit codes, systemd's protocol, signals.

Standard library only.  Every test has a folder, sockets and a notify socket of its own.
"""
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SLUICED = None
PATIENCE = 30  # seconds until an event that must come counts as missing


class Daemon:
    """sluiced in a folder of its own, with a notify socket that listens."""

    def __init__(self, folder, config="", args=(), environment=None, listen=None):
        self.folder = folder
        self.config = os.path.join(folder, "sluice.conf")
        os.makedirs(os.path.join(folder, "models"), exist_ok=True)
        self.write_config(config)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(os.path.join(folder, "notify"))
        self.notify.settimeout(0.2)  # how soon a dead daemon is noticed
        self.messages = []
        self.log = open(os.path.join(folder, "log"), "w+")
        env = {"PATH": os.environ["PATH"], "NOTIFY_SOCKET": os.path.join(folder, "notify")}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                env[name] = os.environ[name]
        env.update(environment or {})
        command = [SLUICED, "--config", self.config, *args]
        keep = ()
        if listen is not None:  # as systemd does: descriptors from 3 on
            env.update({"LISTEN_FDS": "1", "LISTEN_FDNAMES": listen[0]})
            keep = (listen[1].fileno(),)
            script = f'exec 3<&{keep[0]}; export LISTEN_PID=$$; exec "$@"'
            command = ["bash", "-c", script, "bash", *command]
        self.process = subprocess.Popen(command, env=env, stderr=self.log, stdout=self.log,
                                        pass_fds=keep)

    def write_config(self, more):
        with open(self.config, "w") as file:
            file.write(f"""[Server]
GrpcListen=unix:{self.folder}/grpc.sock
HttpListen=unix:{self.folder}/http.sock
MetricsListen=unix:{self.folder}/metrics.sock
AdminListen=unix:{self.folder}/admin.sock
[Models]
Repository={self.folder}/models
[Device]
Device=null
{more}""")

    def wait_for(self, field):
        """The next message that has this field, as a dictionary; earlier ones are dropped."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                message = self.notify.recv(4096).decode()
            except TimeoutError:
                if self.process.poll() is None and time.monotonic() < until:
                    continue
                raise AssertionError(f"{field} never came; the log:\n{self.text()}") from None
            fields = dict(line.split("=", 1) for line in message.splitlines())
            self.messages.append(fields)
            if field in fields:
                return fields

    def text(self):
        self.log.flush()
        with open(self.log.name) as file:
            return file.read()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.notify.close()
        self.log.close()


class ProcessTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-")
        self.daemons = []

    def tearDown(self):
        for daemon in self.daemons:
            daemon.close()
        self.folder.cleanup()

    def start(self, name="", **options):
        folder = os.path.join(self.folder.name, name)
        os.makedirs(folder, exist_ok=True)
        daemon = Daemon(folder, **options)
        self.daemons.append(daemon)
        return daemon

    def wait_until(self, condition, daemon):
        until = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > until:
                raise AssertionError(f"it never happened; the log:\n{daemon.text()}")
            time.sleep(0.001)

    def run_once(self, *args, **environment):
        return subprocess.run([SLUICED, *args], capture_output=True, text=True, timeout=PATIENCE,
                              env={**os.environ, **environment})

    # ---- systemd's protocol ----

    def test_ready_comes_when_listeners_are_open_and_stopping_when_it_drains(self):
        daemon = self.start()
        ready = daemon.wait_for("READY")
        self.assertRegex(ready["STATUS"], r"^Serving 0 models \| memory .* \| level normal$")
        for name in ("grpc", "http", "metrics", "admin"):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(f"{self.folder.name}/{name}.sock")
        daemon.process.send_signal(signal.SIGTERM)
        stopping = daemon.wait_for("STOPPING")
        self.assertGreaterEqual(int(stopping["EXTEND_TIMEOUT_USEC"]), 30_000_000)
        self.assertEqual(daemon.process.wait(PATIENCE), 0, daemon.text())

    def test_the_watchdog_is_fed_several_times_an_interval(self):
        daemon = self.start(environment={"WATCHDOG_USEC": "400000"})
        daemon.wait_for("READY")
        began = time.monotonic()
        for _ in range(6):
            daemon.wait_for("WATCHDOG")
        self.assertLess(time.monotonic() - began, 6 * 0.4)
        self.assertEqual(daemon.stop(), 0, daemon.text())

    def test_nobody_is_fed_without_a_watchdog(self):
        daemon = self.start()
        daemon.wait_for("READY")
        self.assertEqual(daemon.stop(), 0, daemon.text())
        with self.assertRaisesRegex(AssertionError, "WATCHDOG never came"):
            daemon.wait_for("WATCHDOG")

    def test_a_folder_for_a_socket_is_not_made_anywhere(self):
        folder = os.path.join(self.folder.name, "slip")
        daemon = self.start(args=("--set", f"Server.HttpListen=unix:{folder}/http.sock"))
        self.assertNotEqual(daemon.process.wait(PATIENCE), 0)
        self.assertIn("folders are made below /run/ only", daemon.text())
        self.assertFalse(os.path.exists(folder))

    def test_hangup_reloads(self):
        daemon = self.start()
        daemon.wait_for("READY")
        daemon.write_config("[Memory]\nHighWatermark=0.9\nDwell=3s\n[Device]\nLanes=2\n")
        daemon.process.send_signal(signal.SIGHUP)
        reloading = daemon.wait_for("RELOADING")
        self.assertGreater(int(reloading["MONOTONIC_USEC"]), 0)
        daemon.wait_for("READY")
        self.assertIn("only a restart applies: Device.Lanes", daemon.text())
        self.assertEqual(daemon.stop(), 0, daemon.text())

    def test_a_bad_configuration_is_refused_on_reload_and_the_old_one_stays(self):
        daemon = self.start()
        daemon.wait_for("READY")
        daemon.write_config("[Memory]\nHihgWatermark=0.9\n")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for("RELOADING")
        daemon.wait_for("READY")
        self.assertRegex(daemon.text(), r"reload refused.*sluice\.conf:\d+: unknown key "
                                        r"'HihgWatermark'.*nearest is Memory\.HighWatermark")
        self.assertIsNone(daemon.process.poll())
        self.assertEqual(daemon.stop(), 0, daemon.text())

    def test_sockets_that_systemd_passed_are_served(self):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self.folder.name}/passed.sock")
        listener.listen()
        daemon = self.start(listen=("grpc", listener))
        daemon.wait_for("READY")
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE)
            client.connect(f"{self.folder.name}/passed.sock")
            client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            self.assertEqual(client.recv(9)[3], 4)  # a SETTINGS frame
        self.assertFalse(os.path.exists(f"{self.folder.name}/grpc.sock"))
        self.assertEqual(daemon.stop(), 0, daemon.text())
        self.assertTrue(os.path.exists(f"{self.folder.name}/passed.sock"))
        listener.close()

    def test_it_leaves_when_nobody_comes_and_the_next_connection_starts_it_again(self):
        # The test is systemd: it holds the socket, and starts a daemon when somebody connects.
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self.folder.name}/passed.sock")
        listener.listen()
        self.addCleanup(listener.close)

        def connect():
            client = socket.socket(socket.AF_UNIX)
            self.addCleanup(client.close)
            client.settimeout(PATIENCE)
            client.connect(f"{self.folder.name}/passed.sock")
            client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            return client

        waiting = connect()
        for number in range(3):
            self.assertTrue(select.select([listener], [], [], PATIENCE)[0])
            daemon = self.start(args=("--set", "Server.ExitIdle=1s"), listen=("http", listener),
                                name=str(number))
            self.assertIn(b"200 OK", waiting.recv(4096))
            waiting.close()
            if number == 2:
                break
            # Comes while the daemon is about to go: it is not lost, the next one answers it.
            self.wait_until(lambda: "nobody came for 1 s" in daemon.text(), daemon)
            waiting = connect()
            self.assertEqual(daemon.process.wait(PATIENCE), 0, daemon.text())
        self.assertEqual(daemon.stop(), 0, daemon.text())

    def test_a_connection_keeps_it_from_leaving(self):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self.folder.name}/passed.sock")
        listener.listen()
        self.addCleanup(listener.close)
        daemon = self.start(args=("--set", "Server.ExitIdle=1s"), listen=("http", listener))
        daemon.wait_for("READY")
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE)
            client.connect(f"{self.folder.name}/passed.sock")
            for _ in range(4):  # answers for longer than ExitIdle=, and nobody leaves
                client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertIn(b"200 OK", client.recv(4096))
                self.assertFalse(select.select([client], [], [], 0.7)[0])
        self.assertEqual(daemon.process.wait(PATIENCE), 0, daemon.text())

    def test_exit_idle_is_ignored_without_socket_activation(self):
        daemon = self.start(args=("--set", "Server.ExitIdle=1s"))
        daemon.wait_for("READY")
        self.assertIn("ExitIdle= is for daemons that systemd starts on a connection, ignoring", daemon.text())
        self.assertEqual(daemon.stop(), 0, daemon.text())

    def test_unknown_sockets_are_ignored_with_a_warning(self):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self.folder.name}/passed.sock")
        listener.listen()
        daemon = self.start(listen=("telnet", listener))
        daemon.wait_for("READY")
        self.assertIn("socket named 'telnet'", daemon.text())
        self.assertEqual(daemon.stop(), 0, daemon.text())
        listener.close()

    def test_interrupt_drains_too(self):
        daemon = self.start()
        daemon.wait_for("READY")
        self.assertEqual(daemon.stop(signal.SIGINT), 0, daemon.text())

    def test_a_signal_while_it_starts_is_kept_for_when_it_runs(self):
        for attempt in range(5):
            daemon = self.start(f"attempt{attempt}")
            socket_path = os.path.join(daemon.folder, "grpc.sock")
            self.wait_until(lambda: os.path.exists(socket_path), daemon)
            self.assertEqual(daemon.stop(signal.SIGTERM), 0, daemon.text())

    def test_an_address_in_use_is_named(self):
        other = socket.socket()
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = "127.0.0.1:%d" % other.getsockname()[1]
        daemon = self.start(args=("--set", f"Server.GrpcListen={address}"))
        self.assertEqual(daemon.process.wait(PATIENCE), 1)
        self.assertRegex(daemon.text(), "cannot start: .*" + re.escape(address))
        other.close()

    def test_an_unknown_device_is_refused_with_the_known_ones(self):
        daemon = self.start(args=("--set", "Device.Device=tpu"))
        self.assertEqual(daemon.process.wait(PATIENCE), 78)
        self.assertIn("Device.Device=tpu", daemon.text())
        self.assertIn("allowed are auto, cpu, null", daemon.text())

    def test_a_device_that_is_not_there_is_refused_with_what_is_missing(self):
        daemon = self.start(args=("--set", "Device.Device=cuda:99"))
        self.assertEqual(daemon.process.wait(PATIENCE), 1)
        self.assertRegex(daemon.text(), "libsluice-cuda.so|no NVIDIA driver|GPU")

    def test_a_lost_device_ends_the_daemon_with_75(self):
        models = os.path.join(os.path.dirname(__file__), "../../models")
        daemon = self.start(args=("--set", "Device.Device=null:40", "--set", f"Models.Repository={models}"))
        daemon.wait_for("READY")
        raw = bytes(2048 * 4)
        head = ('{"inputs":[{"name":"bytes","datatype":"INT32","shape":[1,2048],'
                f'"parameters":{{"binary_data_size":{len(raw)}}}}}]}}').encode()
        request = (b"POST /v2/models/magika/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                   b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
                   % (len(head), len(head) + len(raw)) + head + raw)
        answers = []
        while len(answers) < 50 and not (answers and b" 503 " in answers[-1]):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(f"{self.folder.name}/http.sock")
                client.sendall(request)
                answers.append(client.recv(4096))
        self.assertIn(b" 503 ", answers[-1], answers[-1])
        self.assertIn(b" 200 ", answers[0], answers[0])
        self.assertEqual(daemon.process.wait(PATIENCE), 75, daemon.text())
        self.assertIn("the device is lost", daemon.text())

    # ---- without serving ----

    def test_a_bad_configuration_exits_with_78(self):
        path = os.path.join(self.folder.name, "bad.conf")
        with open(path, "w") as file:
            file.write("[Memory]\nLimit=much\n")
        for args in ((), ("--check-config",), ("--dump-config",)):
            done = self.run_once("--config", path, *args)
            self.assertEqual(done.returncode, 78)
            self.assertIn(f"{path}:2: Memory.Limit: found 'much', allowed: ", done.stderr)

    def test_check_config_is_silent_when_all_is_well(self):
        done = self.run_once("--check-config", "--set", "Memory.Limit=1G")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_check_config_warns_of_marks_that_cannot_work(self):
        done = self.run_once("--check-config", "--set", "Device.Device=cpu", "--set", "Memory.Limit=100M",
                             "--set", "Memory.Headroom=1M", "--set", "Memory.Floor=90M")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertRegex(done.stderr, r"^sluiced: warning: Memory.Floor= is 90.0 MiB, .* 75.0 MiB.* at most "
                                      r"75.0 MiB is allowed\n$")

    def test_check_config_names_the_model_that_cannot_fit(self):
        folder = os.path.join(self.folder.name, "repository", "big", "1")
        os.makedirs(folder)
        with open(os.path.join(folder, "model.onnx"), "wb") as file:
            file.truncate(2 << 20)
        done = self.run_once("--check-config", "--set", "Memory.Limit=1M", "--model-repository",
                             os.path.join(self.folder.name, "repository"))
        self.assertEqual(done.returncode, 0)
        self.assertIn("model 'big' alone takes 2.0 MiB", done.stderr)

    def test_check_config_refuses_a_headroom_larger_than_the_device(self):
        no_driver = not os.path.exists("/dev/nvidiactl") and not os.path.exists("/dev/dxg")
        for device in ("cpu", "auto") if no_driver else ("cpu",):  # auto is the CPU then
            done = self.run_once("--check-config", "--set", f"Device.Device={device}", "--set",
                                 "Memory.Headroom=1000T")
            self.assertEqual(done.returncode, 78, device)
            self.assertIn("Memory.Headroom leaves nothing of the device's", done.stderr)

    def test_check_config_refuses_a_precision_that_the_device_has_not(self):
        no_driver = not os.path.exists("/dev/nvidiactl") and not os.path.exists("/dev/dxg")
        refused = [("cpu", "tf32", "precision 'tf32' is not for the CPU"),
                   ("cpu", "bf16", "allowed are default, strict and int8")]
        if no_driver:  # auto is the CPU then
            refused.append(("auto", "fp16", "precision 'fp16' is not for the CPU"))
        for device, precision, why in refused:
            done = self.run_once("--check-config", "--set", f"Device.Device={device}", "--set",
                                 f"Device.Precision={precision}")
            self.assertEqual(done.returncode, 78, (device, precision))
            self.assertIn(why, done.stderr)
        for device, precision in (("cpu", "default"), ("cpu", "int8"), ("cuda", "tf32"), ("cuda:0", "bf16"),
                                  ("cuda:1", "int8"), ("auto", "int8")):
            done = self.run_once("--check-config", "--set", f"Device.Device={device}", "--set",
                                 f"Device.Precision={precision}")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""), (device, precision))

    def test_check_config_adds_up_the_host_s_memory(self):
        done = self.run_once("--check-config", "--set", "Memory.HostLimit=0.0001%")
        self.assertEqual(done.returncode, 78)
        self.assertIn("Memory.HostLimit is ", done.stderr)
        self.assertIn("(Server.MaxMessageBytes)", done.stderr)

    def test_dump_config_reads_back(self):
        done = self.run_once("--dump-config", SLUICE_MEMORY_LOW_WATERMARK="0.5")
        self.assertEqual(done.returncode, 0)
        self.assertIn("# from: environment\nLowWatermark=0.5\n", done.stdout)
        path = os.path.join(self.folder.name, "dump.conf")
        with open(path, "w") as file:
            file.write(done.stdout)
        again = self.run_once("--config", path, "--check-config")
        self.assertEqual(again.returncode, 0, again.stderr)

    def test_a_bad_command_line_exits_with_64(self):
        done = self.run_once("--frobnicate")
        self.assertEqual(done.returncode, 64)
        self.assertEqual(done.stderr, "sluiced: unknown option '--frobnicate'; see sluiced --help\n")

    def test_listings_and_help(self):
        self.assertRegex(self.run_once("--version").stdout, r"^sluiced \d+\.\d+\.\d+$")
        self.assertIn("--model-repository DIR", self.run_once("--help").stdout)
        self.assertRegex(self.run_once("--list-ops").stdout, r"(?m)^conv +Conv, form of opset \d+$")
        kernels = self.run_once("--list-kernels", "--set", "Device.Device=cpu").stdout
        self.assertRegex(kernels, r"^cpu: ")
        self.assertRegex(kernels, r"(?m)^conv +cpu:")

    def test_explain_plan_names_the_file_that_is_no_model(self):
        done = self.run_once("--explain-plan", "/dev/null")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/dev/null", done.stderr)


if __name__ == "__main__":
    SLUICED = sys.argv.pop(1)
    unittest.main(verbosity=2)
