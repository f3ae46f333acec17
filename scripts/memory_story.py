#!/usr/bin/env python3
"""The demo's memory story: drives a daemon through load, bursts, empty_cache and unload, and draws it.

    memory_story.py SLUICECTL ADMIN-ADDRESS MODEL ROWS FEW-ROWS

ROWS are as many as cross a watermark in one batch, FEW-ROWS as many as do not.
"""
import json
import subprocess
import sys
import time

WIDTH = 30
MiB = 2 ** 20


class Story:
    def __init__(self, program, address, model):
        self.command = [program, "--server", address]
        self.model = model
        self.points = []

    def ctl(self, *arguments):
        done = subprocess.run([*self.command, "--json", *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"memory_story: sluicectl {' '.join(arguments)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def memory(self):
        return self.ctl("memory")

    def note(self, label, memory=None):
        self.points.append((label, memory or self.memory()))

    def samples(self, rows, seconds):
        """Sends batches of so many rows; yields what the daemon says of its memory meanwhile."""
        bench = subprocess.Popen([*self.command, "bench", self.model, "-b", str(rows), "-c", "2", "-t", str(seconds)],
                                 stdout=subprocess.DEVNULL)
        try:
            while bench.poll() is None:
                yield self.memory()
                time.sleep(0.01)
        finally:
            bench.terminate()
            bench.wait()

    def burst(self, rows):
        """The first sample above a mark, the one with the most bytes, and what the governor makes of it."""
        most, crossed = None, None
        for sample in self.samples(rows, 3):
            if most is None or sample["reserved_bytes"] > most["reserved_bytes"]:
                most = sample
            if crossed is None and sample["level"] != "normal":
                crossed = sample
        if crossed:
            self.note(f"a mark is crossed: {crossed['level']}", crossed)
        self.note(f"batches of {rows} rows", most)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            sample = self.memory()
            if sample["level"] == "normal" and sample["allocated_bytes"] <= self.points[1][1]["allocated_bytes"]:
                break
            time.sleep(0.05)
        self.note("the governor has trimmed", sample)

    def few(self, rows):
        """Below the marks nothing is given back unasked."""
        for _ in self.samples(rows, 1):
            pass
        self.note(f"after batches of {rows} rows")

    def draw(self):
        budget = self.points[0][1]["budget_bytes"]
        marks = self.points[0][1]["watermarks"]
        scale = max(m["reserved_bytes"] for _, m in self.points) or 1
        print(f"  budget {budget / MiB:.0f} MiB; marks: " +
              ", ".join(f"{name} {marks[name] / MiB:.0f}" for name in ("low", "high", "critical")) +
              " MiB; # in use, + cached\n")
        print(f"  {'':<26}{'reserved bytes':>15}{'cached bytes':>14}{'resident':>11}")
        for label, m in self.points:
            used = round(m["allocated_bytes"] / scale * WIDTH)
            held = round(m["reserved_bytes"] / scale * WIDTH)
            print(f"  {label:<26}{m['reserved_bytes']:>15,}{m['cached_bytes']:>14,}{m['resident_bytes'] / MiB:>7.1f} MiB"
                  f" {'#' * used}{'+' * (held - used)}".rstrip())

    def run(self, rows, few_rows):
        self.note("before the load")
        self.ctl("load", self.model)
        self.note("loaded")
        self.burst(rows)
        self.few(few_rows)
        answer = self.ctl("empty-cache", "--force")
        self.note("after empty_cache")
        freed = self.ctl("unload", self.model)["freed_bytes"]
        self.note("after the unload")
        self.draw()
        first, last = self.points[0][1], self.points[-1][1]
        print(f"\n  empty_cache gave back {answer['freed_bytes']:,} bytes in {answer['microseconds']} us, "
              f"the unload {freed:,} bytes;\n  the ledger stands at {last['reserved_bytes']:,} bytes "
              f"({first['reserved_bytes']:,} before the load).")
        return 0 if last["reserved_bytes"] == first["reserved_bytes"] else 1


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    try:
        sys.exit(Story(*sys.argv[1:4]).run(int(sys.argv[4]), int(sys.argv[5])))
    except KeyboardInterrupt:
        sys.exit(130)
