"""Starts a server program on private sockets and stops it again; every test module uses it."""
import ctypes
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

# gRPC's handlers of fork() close files of a child that is about to become a server.  Read when gRPC
# is imported: import this module first.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

SKIPPED = 77  # what ctest takes as skipped
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../shared/triton-example-repository")
SLUICECTL = os.environ.get("SLUICECTL", "sluicectl")
PATIENCE = 240  # seconds for a command, under a sanitizer on a busy machine
MODELS = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../models"))  # the demo's


class UnixHTTPConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=60):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def die_with_parent():
    """In a child: a test that is killed takes its server with it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Server:
    """One server process.  `arguments(settings)` makes its command line of "Section.Key=VALUE"s."""

    def __init__(self, command, settings=(), as_daemon=False, more=(), environment=None,
                 child=None):
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-e2e-")
        where = self.folder.name
        settings = [
            f"Server.GrpcListen=127.0.0.1:0 unix:{where}/grpc.sock",
            f"Server.HttpListen=127.0.0.1:0 unix:{where}/http.sock",
            f"Server.MetricsListen=127.0.0.1:0 unix:{where}/metrics.sock",
            f"Server.AdminListen=unix:{where}/admin.sock",
            *settings,
        ]
        if as_daemon:
            settings = [word for setting in settings for word in ("--set", setting)]
        self.is_draining = False
        self.log_path = os.path.join(where, "log")
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen([command, *settings, *more], stderr=log,
                                            env={**os.environ, **(environment or {})},
                                            preexec_fn=lambda: (die_with_parent(), child and child()))
        self.wait_until_listening()

    def log(self):
        with open(self.log_path) as log:
            return log.read()

    def wait_until_listening(self):
        for _ in range(1000):
            if "admin: listening" in self.log():
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError("the server did not start:\n" + self.log())

    def path(self, role):
        return os.path.join(self.folder.name, role + ".sock")

    def port(self, role):
        return int(re.search(role + r": listening on 127\.0\.0\.1:(\d+)", self.log()).group(1))

    def connect(self, role="http"):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(10)
        connection.connect(self.path(role))
        return connection

    def request(self, method, path, body=None, headers=None, role="http"):
        """Status, headers and body of one call on a connection of its own."""
        connection = UnixHTTPConnection(self.path(role))
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        answer = response.status, dict(response.getheaders()), response.read()
        connection.close()
        return answer

    def metric(self, name):
        """The value of one series, as text before its value in /metrics."""
        text = self.request("GET", "/metrics", role="admin")[2].decode()
        for line in text.splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        raise KeyError(name)

    def drain(self):
        """SIGTERM, once: a second one would end a daemon that is about to leave by itself."""
        if self.process.poll() is None and not self.is_draining:
            self.process.send_signal(signal.SIGTERM)
        self.is_draining = True

    def stop(self):
        """Drains; the exit status once everything is answered."""
        self.drain()
        try:
            status = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            status = "did not stop"
        log = self.log()
        self.folder.cleanup()
        if status != 0 or "ERROR: " in log or "runtime error" in log:
            raise AssertionError(f"exit status {status}\n{log[-6000:]}")


def wait_for(what, condition, seconds=20):
    """Waits until the condition holds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("never happened: " + what)


class Ctl:
    """For a test case with a `server`: sluicectl asks it."""

    def ctl_command(self, *words):
        return [SLUICECTL, "--server", "unix:" + self.server.path("admin"), *words]

    def run_ctl(self, *words):
        return subprocess.run(self.ctl_command(*words), capture_output=True, text=True, timeout=PATIENCE)

    def ctl(self, *words, expect=0):
        """The answer as JSON; of a command that fails, what it says."""
        done = self.run_ctl("--json", *words)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return json.loads(done.stdout) if done.stdout.strip() else done.stderr

    def table(self, *words):
        done = self.run_ctl(*words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout


def temporary_file(test, text):
    """The path of a file that goes with the test."""
    folder = tempfile.TemporaryDirectory(prefix="sluice-e2e-")
    test.addCleanup(folder.cleanup)
    path = os.path.join(folder.name, "file")
    with open(path, "w") as file:
        file.write(text)
    return path


def main(module):
    """Runs a test module: python test_x.py PROGRAM [unittest's arguments]."""
    if len(sys.argv) < 2:
        sys.exit("usage: " + sys.argv[0] + " PROGRAM")
    module.PROGRAM = sys.argv.pop(1)
    unittest.main(module=module, verbosity=2, warnings="ignore")


def need_packages(error):
    """A missing package is a fault of the set-up, not a reason to skip."""
    sys.exit(f"{sys.executable}: {error}; ./dev test makes an environment (.venv) that has it")


def need_examples():
    """Triton's example models lie beside the repository; without them a module is skipped as a whole."""
    if not os.path.isdir(EXAMPLES):
        print("skipped: no example models in", EXAMPLES)
        sys.exit(SKIPPED)
