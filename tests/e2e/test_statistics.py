"""Statistics and forensics of memory from outside: sluicectl, REST, Prometheus and the pickle that PyTorch's
memory_viz reads.  The pickle's form is checked against what torch.cuda.memory._snapshot() documents."""
import json
import os
import pickle
import random
import signal
import subprocess
import tempfile
import time
import unittest

import harness

try:
    import small_models
except ImportError as error:
    harness.need_packages(error)

PROGRAM = None
LIMIT = 64 << 20

MEASURES = {"reserved_bytes", "allocated_bytes", "active_bytes", "requested_bytes", "inactive_bytes"}
KINDS = {"weights", "activation", "workspace", "io", "fixed"}
COUNTS = {"num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"}
SEGMENT = {"address": int, "total_size": int, "stream": int, "segment_type": str, "segment_pool_id": tuple,
           "allocated_size": int, "active_size": int, "requested_size": int, "device": int, "blocks": list,
           "is_expandable": bool, "frames": list}
BLOCK = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
STATES = {"active_allocated", "active_pending_free", "inactive"}
ACTIONS = {"alloc", "free_requested", "free_completed", "segment_map", "segment_unmap", "oom"}


class Case(harness.Ctl, unittest.TestCase):
    settings = ["Device.Device=cpu", "Models.ControlMode=explicit", f"Memory.Limit={LIMIT}", "Memory.IdleAfter=0",
                "Models.PlanCache=1M", "Device.InlineLimit=0"]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-memory-")
        self.addCleanup(self.folder.cleanup)
        repository = os.path.join(self.folder.name, "models")
        small_models.write(repository, "hungry", small_models.hungry(64, 4096))
        small_models.write(repository, "wide", small_models.hungry(64, 16384))
        small_models.write(repository, "waves", small_models.waves())
        self.start(self.settings)
        self.addCleanup(lambda: self.server.stop())

    def start(self, settings, *more):
        self.server = harness.Server(PROGRAM, settings, as_daemon=True,
                                     more=["--model-repository", self.file("models"), *more])
        # Tests stop and start it: before that line it knows no SIGTERM.
        harness.wait_for("ready", lambda: "ready after" in self.server.log())

    def file(self, name):
        return os.path.join(self.folder.name, name)

    def rest(self, method, path, body=None):
        status, _, answer = self.server.request(method, "/sluice/v1/" + path, body, role="admin")
        return status, json.loads(answer)

    def infer_hungry(self, rows=2):
        self.ctl("infer", "hungry", "-i", f"x=random:{rows}x64")


class Statistics(Case):
    def check_stat(self, stat, where):
        self.assertEqual(set(stat), {"current", "peak", "allocated", "freed"}, where)
        self.assertEqual(stat["current"], stat["allocated"] - stat["freed"], where)
        self.assertLessEqual(stat["current"], stat["peak"], where)
        self.assertLessEqual(stat["peak"], stat["allocated"], where)

    def test_every_measure_adds_up_for_device_pools_and_models(self):
        self.ctl("load", "hungry")
        self.infer_hungry()
        answer, memory = self.ctl("memory", "--stats"), self.ctl("memory")
        stats = answer["stats"]
        self.assertEqual(MEASURES | COUNTS, set(stats))
        for measure in MEASURES:
            self.assertEqual(set(stats[measure]), KINDS | {"all"})
            for pool, stat in stats[measure].items():
                self.check_stat(stat, (measure, pool))
            self.assertEqual(sum(stats[measure][kind]["current"] for kind in KINDS), stats[measure]["all"]["current"])
            self.assertEqual(sum(pool["stats"][measure]["current"] for pool in answer["pools"]),
                             stats[measure]["all"]["current"])
        current = {measure: stats[measure]["all"]["current"] for measure in MEASURES}
        self.assertEqual(current["reserved_bytes"], memory["reserved_bytes"])
        self.assertEqual(current["allocated_bytes"], memory["allocated_bytes"])
        self.assertEqual(current["inactive_bytes"], memory["cached_bytes"])
        self.assertEqual(current["reserved_bytes"], current["allocated_bytes"] + current["inactive_bytes"])
        self.assertLessEqual(current["requested_bytes"], current["allocated_bytes"])
        peak = {measure: stats[measure]["all"]["peak"] for measure in MEASURES}
        self.assertLessEqual(peak["requested_bytes"], peak["allocated_bytes"])
        self.assertLessEqual(peak["allocated_bytes"], peak["reserved_bytes"])
        model, = answer["models"]
        self.assertEqual(model["name"], "hungry/1")
        for measure in MEASURES:
            self.check_stat(model["stats"][measure], measure)
        # What the model shows in neither input nor output: 64 x 4096 floats a row.
        self.assertGreaterEqual(model["largest_use_bytes"], 2 * 64 * 4096 * 4)
        self.assertGreaterEqual(model["stats"]["allocated_bytes"]["peak"], model["largest_use_bytes"])

    def test_peaks_begin_anew_over_every_way(self):
        self.ctl("load", "hungry")
        self.infer_hungry()
        self.assertEqual(self.ctl("memory", "--reset-peaks", "lane 0"), {"pool": "lane 0"})
        pools = {pool["name"]: pool for pool in self.ctl("memory", "--stats")["pools"]}
        self.assertEqual(pools["lane 0"]["stats"]["allocated_bytes"]["peak"], 0)
        model, = self.ctl("memory", "--stats")["models"]
        self.assertGreater(model["stats"]["allocated_bytes"]["peak"], model["stats"]["allocated_bytes"]["current"])
        self.assertEqual(self.rest("POST", "memory/reset-peaks", '{"pool": "hungry"}'), (200, {"pool": "hungry"}))
        model, = self.ctl("memory", "--stats")["models"]
        self.assertEqual(model["stats"]["allocated_bytes"]["peak"], model["stats"]["allocated_bytes"]["current"])
        self.assertEqual(self.rest("POST", "memory/reset-peaks"), (200, {"pool": "all"}))
        stats = self.ctl("memory", "--stats")["stats"]
        self.assertEqual(stats["allocated_bytes"]["all"]["peak"], stats["allocated_bytes"]["all"]["current"])
        self.assertIn("'nobody'", self.ctl("memory", "--reset-peaks", "nobody", expect=1))
        self.assertEqual(self.rest("POST", "memory/reset-peaks", '{"pool": "nobody"}')[0], 404)

    def test_rest_and_prometheus_tell_the_same(self):
        self.ctl("load", "hungry")
        self.infer_hungry()
        stats = self.ctl("memory", "--stats")
        self.assertEqual(self.rest("GET", "memory/stats"), (200, stats))
        families = {"current": "sluice_memory_stat_current_bytes", "peak": "sluice_memory_stat_peak_bytes",
                    "allocated": "sluice_memory_stat_allocated_bytes_total",
                    "freed": "sluice_memory_stat_freed_bytes_total"}
        for measure in MEASURES:
            for pool, stat in stats["stats"][measure].items():
                for key, family in families.items():
                    name = f'{family}{{pool="{pool}",measure="{measure[:-6]}"}}'
                    self.assertEqual(self.server.metric(name), stat[key], name)
            name = f'sluice_model_memory_peak_bytes{{model="hungry",version="1",measure="{measure[:-6]}"}}'
            self.assertEqual(self.server.metric(name), stats["models"][0]["stats"][measure]["peak"])
        self.assertEqual(self.server.metric("sluice_memory_ooms_total"), stats["stats"]["num_ooms"])
        self.assertGreater(self.server.metric('sluice_plan_cache_bytes{model="hungry",version="1"}'), 0)

    def test_a_batch_that_never_fits_is_an_oom_of_its_model(self):
        self.ctl("load", "wide")
        before = self.ctl("memory", "--stats")
        self.ctl("infer", "wide", "-i", "x=random:32x64", expect=1)  # 128 MiB
        after = self.ctl("memory", "--stats")
        self.assertEqual(after["stats"]["num_ooms"], before["stats"]["num_ooms"] + 1)
        self.assertEqual(after["models"][0]["num_ooms"], before["models"][0]["num_ooms"] + 1)
        self.ctl("memory", "--snapshot", self.file("s.json"))
        with open(self.file("s.json")) as file:
            oom, = [event for event in json.load(file)["sluice"]["history"] if event["kind"] == "oom"]
        self.assertEqual(oom["model"], "wide/1")
        self.assertGreater(oom["bytes"], LIMIT)

    def test_the_tables_are_pytorch_s(self):
        self.ctl("load", "hungry")
        self.infer_hungry()
        summary = self.table("memory", "--summary")
        self.assertIn("|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |", summary)
        self.assertRegex(summary, r"\| Allocated memory      \| +\d+ (B  |KiB|MiB) \|")
        flat = dict(line.rsplit("  ", 1) for line in self.table("memory", "--stats").splitlines())
        self.assertGreater(int(flat["reserved_bytes.all.current"]), 0)
        self.assertGreater(int(flat["hungry/1: allocated_bytes.all.peak"]), 0)


class Snapshot(Case):
    def take(self):
        self.ctl("memory", "--snapshot", self.file("snapshot.pickle"))
        with open(self.file("snapshot.pickle"), "rb") as file:
            return pickle.load(file)

    def check_form(self, value, form, where):
        for key, kind in form.items():
            self.assertIsInstance(value[key], kind, (where, key))

    def test_the_pickle_has_the_form_that_memory_viz_reads(self):
        self.ctl("load", "hungry")
        self.infer_hungry()
        snapshot, memory = self.take(), self.ctl("memory")
        self.assertLessEqual({"segments", "device_traces", "allocator_settings", "external_annotations"},
                             set(snapshot))
        self.assertIsInstance(snapshot["allocator_settings"]["expandable_segments"], bool)
        end = 0
        for segment in sorted(snapshot["segments"], key=lambda one: one["address"]):
            self.check_form(segment, SEGMENT, "segment")
            self.assertGreaterEqual(segment["address"], end)  # none overlaps
            at = segment["address"]
            for block in segment["blocks"]:
                self.check_form(block, BLOCK, "block")
                self.assertIn(block["state"], STATES)
                self.assertEqual(block["address"], at)  # no gaps
                self.assertLessEqual(block["requested_size"], block["size"])
                at += block["size"]
            end = segment["address"] + segment["total_size"]
            self.assertEqual(at, end)
            active = [block for block in segment["blocks"] if block["state"] == "active_allocated"]
            self.assertEqual(sum(block["size"] for block in active), segment["allocated_size"])
            self.assertTrue(all(set(frame) == {"name", "filename", "line"} for block in active
                                for frame in block["frames"]))
        self.assertEqual(sum(one["total_size"] for one in snapshot["segments"]), memory["reserved_bytes"])
        self.assertEqual(sum(one["allocated_size"] for one in snapshot["segments"]), memory["allocated_bytes"])

    def test_the_trace_tells_batches_and_who_they_were_of(self):
        self.ctl("load", "hungry")
        self.infer_hungry()
        snapshot = self.take()
        trace, = snapshot["device_traces"]
        self.assertLessEqual({event["action"] for event in trace}, ACTIONS)
        self.assertEqual(sorted(event["time_us"] for event in trace), [event["time_us"] for event in trace])
        self.assertLess(abs(trace[-1]["time_us"] / 1e6 - time.time()), 300)
        batch = [event for event in trace if event["frames"][0]["filename"] == "lane 0"
                 and event["action"] == "alloc"][-1]
        self.assertEqual(batch["frames"][0]["name"], "hungry/1")
        lane, = [one for one in snapshot["segments"] if one["frames"][0]["filename"] == "lane 0"]
        self.assertEqual(batch["addr"], lane["address"])
        self.assertLessEqual(batch["size"], lane["total_size"])

    def test_an_unloaded_model_leaves_no_segment(self):
        self.ctl("load", "hungry")
        self.ctl("unload", "hungry")
        self.ctl("empty-cache", "--force")
        snapshot = self.take()
        self.assertEqual(snapshot["segments"], [])
        opened, names = {}, set()
        for event in snapshot["device_traces"][0]:
            names.add(event["action"])
            if event["action"] == "alloc":
                opened[event["addr"]] = event["size"]
            elif event["action"] == "free_completed":
                self.assertEqual(opened.pop(event["addr"], event["size"]), event["size"])
        self.assertEqual(opened, {})
        self.assertIn("segment_unmap", names)

    def test_json_and_pickle_are_one_document(self):
        self.ctl("load", "hungry")
        self.ctl("memory", "--snapshot", self.file("snapshot.json"))
        snapshot = self.take()
        with open(self.file("snapshot.json")) as file:
            document = json.load(file)
        self.assertEqual(set(document), set(snapshot))
        self.assertEqual([one["address"] for one in document["segments"]],
                         [one["address"] for one in snapshot["segments"]])
        kinds = {event["kind"] for event in document["sluice"]["history"]}
        self.assertLessEqual({"reserve", "unreserve", "map", "alloc", "free"}, kinds)

    def test_a_file_that_cannot_be_written_is_told(self):
        done = self.run_ctl("memory", "--snapshot", "/nowhere/x.pickle")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/x.pickle", done.stderr)

    def test_history_off_leaves_the_trace_empty(self):
        self.server.stop()
        config = harness.temporary_file(self, "[Memory]\nHistory=0\n")
        self.start(self.settings, "--config", config)
        self.ctl("load", "hungry")
        self.infer_hungry()
        self.assertEqual(self.take()["device_traces"], [[]])
        with open(config, "w") as file:
            file.write("[Memory]\nHistory=16\n")
        self.ctl("reload")
        for _ in range(20):
            self.infer_hungry()
        trace, = self.take()["device_traces"]
        self.assertEqual(len([event for event in trace if event["action"] == "alloc"]), 4)  # of 16: 4 a batch


class Reasons(Case):
    def test_why_names_use_and_remedy(self):
        self.ctl("load", "hungry")
        self.infer_hungry()
        text = self.table("memory", "--why")
        self.assertRegex(text, r"(?m)^lane 0 +cached .*empty-cache")
        self.assertRegex(text, r"(?m)^hungry/1 +weights .*evictable now.*unload hungry")
        for owner in self.ctl("memory")["owners"]:
            self.assertTrue(owner["held_for"] and owner["freed_by"], owner)

    def test_tune_answers_as_text_and_json(self):
        self.ctl("load", "wide")
        for _ in range(3):
            self.ctl("infer", "wide", "-i", "x=random:12x64")  # 48 of 64 MiB: at the low mark
        answer = self.ctl("tune")
        low, = [row for row in answer["proposals"] if row["key"] == "LowWatermark"]
        self.assertGreater(float(low["proposed"]), float(low["now"]))
        self.assertIn("[Memory]\nLowWatermark=" + low["proposed"], answer["snippet"])
        self.assertIn("LowWatermark", self.table("tune"))
        config = harness.temporary_file(self, answer["snippet"])
        checked = subprocess.run([PROGRAM, "--check-config", "--config", config], capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_a_load_warns_of_marks_that_cannot_work(self):
        config = harness.temporary_file(self, f"[Memory]\nLimit={LIMIT}\nFloor=60M\n")
        self.server.stop()
        self.start([one for one in self.settings if "Limit=" not in one], "--config", config)
        self.ctl("load", "hungry")
        harness.wait_for("a warning", lambda: "Memory.Floor= is 60.0 MiB" in self.server.log())


class Watch(Case):
    def test_without_a_terminal_it_prints_a_line_an_interval(self):
        lines = self.table("memory", "--watch", "--interval", "50ms", "--count", "3").splitlines()
        self.assertEqual(len(lines), 3)
        for line in lines:
            self.assertRegex(line, r"^\d\d:\d\d:\d\d  reserved .* of 64.0 MiB, allocated .*, level normal")

    def test_it_tells_what_happened_between(self):
        watch = subprocess.Popen(self.ctl_command("memory", "--watch", "--interval", "100ms"),
                                 stdout=subprocess.PIPE, text=True)
        self.addCleanup(watch.stdout.close)
        self.assertIn("reserved", watch.stdout.readline())
        self.ctl("load", "hungry")
        self.ctl("empty-cache", "--force")
        for line in watch.stdout:
            if "empty_cache" in line:
                break
        watch.send_signal(signal.SIGINT)
        self.assertEqual(watch.wait(harness.PATIENCE), 0)

    def test_a_terminal_gets_a_chart_and_its_cursor_back(self):
        main, child = os.openpty()
        self.addCleanup(os.close, main)
        watch = subprocess.Popen(self.ctl_command("memory", "--watch", "--interval", "50ms", "--count", "2"), stdout=child)
        os.close(child)
        text = b""
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:  # the other end is gone
                break
            if not part:
                break
            text += part
        self.assertEqual(watch.wait(harness.PATIENCE), 0)
        self.assertEqual(text.count(b"\033[H\033[J"), 2)
        self.assertTrue(text.endswith(b"\033[?25h"), text[-40:])
        self.assertRegex(text.decode(), r"\|-+ C\r\n")

    def test_bad_words_are_refused(self):
        for words in (("--interval", "0"), ("--count", "x"), ("--interval",), ("--sometimes", "1")):
            self.assertEqual(self.run_ctl("memory", "--watch", *words).returncode, 2, words)
        self.assertEqual(self.run_ctl("memory", "--snapshot").returncode, 2)


class Shapes(Case):
    """The short form of `./dev bench shapes`."""

    def test_many_shapes_stay_within_budget_and_plan_cache(self):
        self.ctl("load", "waves")
        lengths = random.Random(3).sample(range(16, 4096), 300)
        for length in lengths:
            data = [0.5] * length
            status, _, body = self.server.request(
                "POST", "/v2/models/waves/infer",
                json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1, length], "data": data}]}))
            self.assertEqual(status, 200, body)
        model, = [one for one in self.ctl("models")["models"] if one["name"] == "waves"]
        memory = self.ctl("memory")
        self.assertLessEqual(model["plan_bytes"], 1 << 20)
        self.assertGreater(model["plan_bytes"], 0)
        self.assertLessEqual(memory["peak_reserved_bytes"], LIMIT)
        # The lane holds what the longest row needs, not what all of them need together.
        self.assertLess(memory["cached_bytes"], 2 * 8 * 4096 * 4 + (64 << 10))


if __name__ == "__main__":
    import sys
    harness.main(sys.modules[__name__])
