"""Real HAProxy and nginx over the shipped files of deploy/, with sockets and ports of the test's own."""
import itertools
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile

import harness

DEPLOY = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../deploy"))
# ./dev test unpacks them there: packages that are installed would start services on this machine.
UNPACKED = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.cache/balancers/usr/sbin"))
PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}


def find(program):
    path = os.pathsep.join([UNPACKED, os.environ.get("PATH", ""), "/usr/sbin"])
    return shutil.which(program, path=path) or sys.exit(f"no {program} here; ./dev test unpacks one")


def is_free(port):
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def free_ports(count):
    """Ports that nobody has, outside of those that the kernel gives to whoever connects meanwhile."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first, last = map(int, file.read().split())
    outside = [port for port in range(10000, 65536) if not first <= port <= last]
    return list(itertools.islice(filter(is_free, random.sample(outside, len(outside))), count))


def haproxy_command(folder, path):
    return [find("haproxy"), "-W", "-db", "-f", path, "-p", os.path.join(folder, "pid")]


def haproxy_text(folder, text):
    return text.replace("/run/haproxy/", folder + "/")


def haproxy_says(folder, command):
    """The answer of HAProxy's own socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(os.path.join(folder, "admin.sock"))
        connection.sendall(command.encode() + b"\n")
        return connection.makefile().read()


def nginx_command(folder, path):
    user = "user root; " if os.getuid() == 0 else ""
    return [find("nginx"), "-p", folder, "-c", path, "-e", "stderr",
            "-g", f"{user}daemon off; pid {folder}/pid; error_log stderr;"]


def nginx_text(folder, text):
    """Debian's folders for temporary files are not ours to write to."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return text.replace("http {", "http {\n" + "".join(
        f"    {kind}_temp_path {folder}/{kind};\n" for kind in kinds), 1)


BALANCERS = {
    "haproxy": ("haproxy.cfg", haproxy_command, haproxy_text),
    "nginx": ("nginx.conf", nginx_command, nginx_text),
}


class Balancer:
    """One of BALANCERS over daemons whose sockets are found through FOLDER/0/ and FOLDER/1/."""

    def __init__(self, name):
        file, command, more = BALANCERS[name]
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-e2e-")
        self.ports = dict(zip(PORTS, free_ports(len(PORTS))))
        with open(os.path.join(DEPLOY, file)) as source:
            text = source.read()
        for role, shipped in PORTS.items():
            text, found = re.subn(rf"127\.0\.0\.1:{shipped}\b", f"127.0.0.1:{self.ports[role]}", text)
            assert found == 1, f"{file}: {found} times port {shipped}"
        text = more(self.folder.name, text.replace("/run/sluice/", self.folder.name + "/"))
        self.path = os.path.join(self.folder.name, file)
        with open(self.path, "w") as target:
            target.write(text)
        self.command = command(self.folder.name, self.path)
        self.process = None

    def point(self, instance, server):
        """From now on `server` is that instance."""
        link = os.path.join(self.folder.name, str(instance))
        new = link + ".new"
        os.symlink(server.folder.name, new)
        os.replace(new, link)

    def start(self):
        self.log_path = os.path.join(self.folder.name, "log")
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log,
                                            preexec_fn=harness.die_with_parent)
        harness.wait_for("the balancer's ports", self.is_listening)

    def is_listening(self):
        if self.process.poll() is not None:
            raise AssertionError("the balancer ended:\n" + self.log())
        for port in self.ports.values():
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
            except ConnectionRefusedError:
                return False
        return True

    def log(self):
        with open(self.log_path) as log:
            return log.read()

    def address(self, role):
        return "127.0.0.1:%d" % self.ports[role]

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.folder.cleanup()
