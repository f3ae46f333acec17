#!/usr/bin/env python3
"""The demo's memory story: drives a daemon through load, burst, empty_cache and unload, and draws it.

    memory_story.py SLUICECTL ADMIN-ADDRESS MODEL ROWS
"""
import json
import subprocess
import sys
import time

WIDTH = 44
MiB = 2 ** 20


class Story:
    def __init__(self, program, address, model, rows):
        self.command = [program, "--server", address]
        self.model, self.rows = model, rows
        self.points = []

    def ctl(self, *arguments):
        done = subprocess.run([*self.command, "--json", *arguments], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def memory(self):
        return self.ctl("memory")

    def note(self, label, memory=None):
        self.points.append((label, memory or self.memory()))

    def burst(self):
        """Sends large batches and keeps the sample with the most bytes and the first one above a mark."""
        bench = subprocess.Popen([*self.command, "bench", self.model, "-b", str(self.rows), "-c", "2", "-t", "3"],
                                 stdout=subprocess.DEVNULL)
        most, crossed = None, None
        while bench.poll() is None:
            sample = self.memory()
            if most is None or sample["reserved_bytes"] > most["reserved_bytes"]:
                most = sample
            if crossed is None and sample["level"] != "normal":
                crossed = sample
            time.sleep(0.02)
        self.note(f"burst of {self.rows}-row batches", most)
        if crossed:
            self.note(f"watermark crossed: {crossed['level']}", crossed)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:  # until the governor has given the cache back
            sample = self.memory()
            if sample["empty_cache_freed_bytes_total"] > most["empty_cache_freed_bytes_total"]:
                break
            time.sleep(0.05)
        self.note("the governor trimmed", self.memory())

    def draw(self):
        budget = self.points[0][1]["budget_bytes"]
        scale = max(max(m["reserved_bytes"], m["resident_bytes"]) for _, m in self.points)
        print(f"\n{'':<28}{'reserved':>10}{'cached':>10}{'resident':>10}   # in use  + cached  (budget {budget / MiB:.0f} MiB)")
        for label, m in self.points:
            used = round(m["allocated_bytes"] / scale * WIDTH)
            held = round(m["reserved_bytes"] / scale * WIDTH)
            print(f"{label:<28}{m['reserved_bytes'] / MiB:>6.1f} MiB{m['cached_bytes'] / MiB:>6.1f} MiB"
                  f"{m['resident_bytes'] / MiB:>6.1f} MiB  {'#' * used}{'+' * (held - used)}")

    def run(self):
        self.note("before load")
        self.ctl("load", self.model)
        self.note("loaded")
        self.burst()
        answer = self.ctl("empty-cache", "--force")
        self.note("after empty_cache")
        freed = self.ctl("unload", self.model)["freed_bytes"]
        time.sleep(0.2)
        self.note("after unload")
        self.draw()
        first, last = self.points[0][1], self.points[-1][1]
        print(f"\nempty_cache gave back {answer['freed_bytes']} bytes in {answer['microseconds']} us; unload freed {freed} bytes;"
              f"\nthe ledger stands at {last['reserved_bytes']} bytes, as before the load ({first['reserved_bytes']}).")
        return 0 if last["reserved_bytes"] == first["reserved_bytes"] else 1


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(Story(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])).run())
