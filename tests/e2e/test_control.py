"""sluicectl and the demo's client against a running daemon, on the demo's model."""
import json
import os
import subprocess
import sys
import unittest

import harness

PROGRAM = None
FILETYPE = os.environ.get("FILETYPE", "filetype")
EXAMPLES = os.path.join(os.path.dirname(harness.MODELS), "examples")

MEMORY = {"device", "budget_bytes", "reserved_bytes", "allocated_bytes", "cached_bytes",
          "peak_allocated_bytes", "level", "kinds", "watermarks", "transitions_total",
          "empty_cache_total", "empty_cache_freed_bytes_total"}


class Case(harness.Ctl, unittest.TestCase):
    """A daemon with nothing loaded; each test begins and ends with that."""

    settings = ["Models.ControlMode=explicit", "Memory.Limit=256M", "Memory.IdleAfter=0"]

    def setUp(self):
        self.server = harness.Server(PROGRAM, self.settings, as_daemon=True,
                                     more=["--model-repository", harness.MODELS])

    def tearDown(self):
        self.server.stop()


class Control(Case):
    def test_a_model_comes_serves_and_goes_to_the_byte(self):
        before = self.ctl("memory")
        loaded = self.ctl("load", "magika")
        self.assertGreater(loaded["resident_bytes"], 1 << 20)
        model, = self.ctl("models")["models"]
        self.assertEqual((model["name"], model["version"], model["state"], model["batching"]),
                         ("magika", "1", "READY", "on"))
        self.assertEqual(model["resident_bytes"], loaded["resident_bytes"])
        self.assertLessEqual({"reason"}, set(model))
        answer = self.ctl("infer", "magika", "-i", "bytes=zeros")
        self.assertEqual(answer["outputs"][0]["shape"], [1, 214])
        self.ctl("empty-cache", "--force")
        held = self.ctl("memory")["reserved_bytes"]
        freed = self.ctl("unload", "magika")["freed_bytes"]
        after = self.ctl("memory")
        self.assertEqual(freed, held - after["reserved_bytes"])
        self.assertEqual(after["reserved_bytes"], before["reserved_bytes"])
        self.assertEqual(after["kinds"], before["kinds"])

    def test_unload_of_what_is_not_there_is_refused(self):
        self.assertIn("nothing", self.ctl("unload", "nothing", expect=1))

    def test_memory_has_the_names_that_scripts_rely_on(self):
        self.ctl("load", "magika")
        memory = self.ctl("memory")
        self.assertEqual(MEMORY - set(memory), set())
        self.assertEqual(set(memory["kinds"]),
                         {"weights", "activation", "workspace", "io", "fixed", "cached"})
        self.assertEqual(set(memory["watermarks"]), {"low", "high", "critical"})
        self.assertEqual(sum(memory["kinds"].values()), memory["reserved_bytes"])
        self.assertEqual(memory["allocated_bytes"] + memory["cached_bytes"], memory["reserved_bytes"])
        self.assertEqual(memory["budget_bytes"], 256 << 20)
        self.assertEqual(sum(owner["bytes"] for owner in memory["owners"]), memory["reserved_bytes"])

    def test_empty_cache_says_what_it_freed_and_kept(self):
        self.ctl("load", "magika")
        self.ctl("infer", "magika", "-i", "bytes=random:4x2048")
        before = self.ctl("memory")
        self.assertGreater(before["cached_bytes"], 0)
        emptied = self.ctl("empty-cache", "--force")
        after = self.ctl("memory")
        self.assertEqual(emptied["freed_bytes"], before["cached_bytes"])
        self.assertEqual(set(emptied["kept"]), {"alive", "pending", "floor", "graph"})
        self.assertGreaterEqual(emptied["microseconds"], 0)
        self.assertEqual(after["cached_bytes"], 0)
        self.assertEqual(after["empty_cache_total"], before["empty_cache_total"] + 1)
        self.assertEqual(after["empty_cache_freed_bytes_total"],
                         before["empty_cache_freed_bytes_total"] + emptied["freed_bytes"])

    def test_a_plan_lists_its_steps_and_its_peak(self):
        self.ctl("load", "magika")
        one, eight = (self.ctl("plan", "magika", "--batch", str(rows)) for rows in (1, 8))
        for plan in (one, eight):
            self.assertGreaterEqual(plan["peak_bytes"], plan["lower_bound_bytes"])
            self.assertEqual(sum(step["peak"] for step in plan["steps"]), 1)
        self.assertGreater(eight["peak_bytes"], one["peak_bytes"])
        self.assertRegex(self.table("plan", "magika"), "(?s)Conv.*MatMul")
        self.assertIn("nothing", self.ctl("plan", "nothing", expect=1))
        self.assertEqual(self.ctl("plan", "magika", "--shape", "bytes=8x2048")["peak_bytes"],
                         eight["peak_bytes"])

    def test_a_profile_measures_every_step_and_leaves_no_trace(self):
        self.ctl("load", "magika")
        before = self.ctl("stats", "magika")
        plan, profile = self.ctl("plan", "magika", "--batch", "2"), self.ctl("plan", "magika", "--batch", "2", "--profile")
        self.assertGreaterEqual(profile["runs"], 3)
        steps = [step for part in profile["plans"] for step in part["steps"]]
        self.assertEqual([step["name"] for step in steps], [step["name"] for step in plan["steps"]])
        for step in steps:
            self.assertGreater(step["us"], 0, step)
            self.assertGreater(step["read_bytes"] + step["written_bytes"], 0, step)
        self.assertGreater(profile["steps"]["flops"], 0)
        self.assertGreater(profile["peak_flops_per_second"], 0)
        self.assertGreaterEqual(profile["run_us"] * 1.001, profile["steps"]["us"])
        self.assertGreaterEqual(profile["between_us"], 0)
        self.assertRegex(self.table("plan", "magika", "--profile"), r"(?s)GF/s.*MatMul.*runs, median .* ms")
        self.assertEqual(self.ctl("stats", "magika"), before)
        self.assertEqual(self.ctl("memory")["planned_bytes"], 0)

    def test_a_file_is_profiled_without_a_daemon(self):
        file = os.path.join(harness.MODELS, "magika", "1", "model.onnx")
        done = subprocess.run([PROGRAM, "--explain-plan", file, "--profile", "--json", "--batch", "2", "--set",
                               "Device.Device=cpu"], capture_output=True, text=True, timeout=harness.PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        profile = json.loads(done.stdout)
        self.assertGreaterEqual(profile["runs"], 3)
        self.assertTrue(all(step["us"] > 0 for step in profile["plans"][0]["steps"]))

    def test_statistics_count_what_was_asked(self):
        self.ctl("load", "magika")
        for _ in range(3):
            self.ctl("infer", "magika", "-i", "bytes=zeros:2x2048")
        row, = self.ctl("stats", "magika")["model_stats"]
        self.assertEqual((row["inference_count"], row["inference_stats"]["success"]["count"]), (6, 3))
        self.assertIn("6 rows", self.table("stats", "magika"))
        for rows in (7, 1, 16, 5, 3):
            self.ctl("infer", "magika", "-i", "bytes=zeros:%dx2048" % rows)
        row, = self.ctl("stats", "magika")["model_stats"]
        self.assertEqual([batch["batch_size"] for batch in row["batch_stats"]], [1, 2, 3, 5, 7, 16])

    def test_bench_counts_its_requests(self):
        self.ctl("load", "magika")
        result = self.ctl("bench", "magika", "-n", "40", "-c", "4", "-t", "200")
        self.assertEqual((result["requests"], result["failed"]), (40, 0))
        self.assertLessEqual(result["p50_us"], result["p99_us"])
        row, = self.ctl("stats", "magika")["model_stats"]
        self.assertEqual(row["inference_count"], 40)

    def test_configuration_shows_values_and_origins(self):
        entries = {(e["section"], e["key"]): e for e in self.ctl("config", "show")["entries"]}
        self.assertEqual(entries["Memory", "Limit"]["value"], "256M")
        self.assertNotEqual(entries["Memory", "Limit"]["origin"], entries["Memory", "Floor"]["origin"])
        self.assertTrue(entries["Memory", "HighWatermark"]["live"])
        self.assertFalse(entries["Device", "Lanes"]["live"])

    def test_tables_are_for_people(self):
        self.ctl("load", "magika")
        self.assertRegex(self.table("status"), r"(?s)sluiced \d.*1 ready, 0 not")
        self.assertRegex(self.table("models"), r"(?m)^magika +1 +READY +on ")
        self.assertRegex(self.table("memory"), r"(?s)reserved, level normal.*magika/1 +weights")

    def test_a_failed_load_leaves_its_reason_and_no_byte(self):
        before = self.ctl("memory")["reserved_bytes"]
        config = json.dumps({"name": "magika", "input": [{"name": "nobody", "data_type": "TYPE_INT32",
                                                          "dims": [2048]}]})
        self.assertIn("nobody", self.ctl("load", "magika", config, expect=1))
        model, = self.ctl("models")["models"]
        self.assertEqual(model["state"], "UNAVAILABLE")
        self.assertIn("nobody", model["reason"])
        self.assertEqual(self.ctl("memory")["reserved_bytes"], before)

    def test_health_status_and_drain(self):
        self.assertEqual(self.ctl("health"), {"live": True, "ready": True})
        status = self.ctl("status")
        self.assertEqual((status["ready"], status["draining"], status["requests_in_flight"]),
                         (True, False, 0))
        self.assertEqual(status["pid"], self.server.process.pid)
        self.ctl("drain")
        self.assertEqual(self.server.process.wait(30), 0)
        self.assertEqual(self.run_ctl("health").returncode, 3)

    def test_a_bad_command_line_exits_with_2(self):
        for words in ((), ("frobnicate",), ("unload",), ("plan", "magika", "--batch", "0"),
                      ("plan", "magika", "--shape", "bytes=8,2048"), ("drain", "later"),
                      ("status", "magika"), ("--timeout", "soon", "status"), ("--timeout", "-1", "status"),
                      ("bench", "magika", "-n", "-5"), ("bench", "magika", "-c", "2x")):
            self.assertEqual(self.run_ctl(*words).returncode, 2, words)
        self.assertEqual(self.run_ctl("health").returncode, 0)

    def test_help_is_a_verb_too(self):
        whole = self.run_ctl("help")
        self.assertEqual((whole.returncode, whole.stdout), (0, self.run_ctl("--help").stdout))
        self.assertIn("sluicectl reload [--wait]", self.run_ctl("help", "reload").stdout)
        self.assertEqual(self.run_ctl("help", "frobnicate").returncode, 2)

    def test_the_daemon_that_checks_a_configuration_is_found_without_a_path(self):
        file = harness.temporary_file(self, "[Memory]\nLimit=1G\n")
        done = subprocess.run(self.ctl_command("config", "check", file), stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.PIPE, env={"PATH": "/nonexistent"}, timeout=harness.PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_number_that_is_none_is_named(self):
        self.ctl("load", "magika")
        for value, wanted in (("1,true,3", "'true' is no INT32"), ("7,,3", "'' is no INT32")):
            count = value.count(",") + 1
            done = self.run_ctl("infer", "magika", "-i", "bytes=" + value + ",0" * (2048 - count))
            self.assertEqual(done.returncode, 2)
            self.assertIn(wanted, done.stderr[-200:])
        self.ctl("unload", "magika")

    def test_who_names_no_input_is_told_which_there_are(self):
        self.ctl("load", "magika")
        done = self.run_ctl("infer", "magika")
        self.assertEqual(done.returncode, 1)
        self.assertIn("'magika' has the input 'bytes', INT32 [-1,2048]", done.stderr)
        for words in (("bytes=text:abc",), ("byte=zeros",), ("bytes=zeros", "-i", "byte=zeros")):
            self.assertEqual(self.run_ctl("infer", "magika", "-i", *words).returncode, 2, words)
        self.assertEqual(self.run_ctl("bench", "magika", "-t", "0.1", "-i", "byte=zeros").returncode, 2)
        self.ctl("unload", "magika")

    def test_an_answer_that_cannot_be_written_is_no_success(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run(self.ctl_command("status"), stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=harness.PATIENCE)
        self.assertEqual(done.returncode, 1)
        self.assertIn("could not be written", done.stderr)


class Reload(Case):
    settings = Case.settings

    def setUp(self):
        super().setUp()
        self.server.stop()
        self.file = harness.temporary_file(self, "[Memory]\nHighWatermark=0.9\n")
        self.server = harness.Server(PROGRAM, self.settings, as_daemon=True,
                                     more=["--config", self.file, "--model-repository", harness.MODELS])

    def rewrite(self, text):
        with open(self.file, "w") as file:
            file.write(text)

    def test_watermarks_change_live(self):
        self.assertEqual(self.ctl("memory")["watermarks"]["high"], int(0.9 * (256 << 20)))
        self.rewrite("[Memory]\nHighWatermark=0.8\n[Device]\nLanes=2\n")
        self.assertEqual(self.ctl("reload", "--wait")["needs_restart"], "Device.Lanes")
        self.assertEqual(self.ctl("memory")["watermarks"]["high"], int(0.8 * (256 << 20)))

    def test_what_waits_for_a_restart_is_told_until_it_is_as_it_runs(self):
        def lanes():
            entries = self.ctl("config", "show")["entries"]
            return next(entry for entry in entries if entry["key"] == "Lanes")

        self.rewrite("[Device]\nLanes=4\n")
        for _ in range(2):
            self.assertEqual(self.ctl("reload", "--wait")["needs_restart"], "Device.Lanes")
            self.assertEqual((lanes()["value"], lanes()["waiting"]), ("1", "4"))
        self.rewrite("")
        self.assertEqual(self.ctl("reload", "--wait")["needs_restart"], "")
        self.assertEqual(lanes()["value"], "1")
        self.assertNotIn("waiting", lanes())

    def test_a_bad_file_is_refused_and_changes_nothing(self):
        self.rewrite("[Memory]\nHighWatermark=0.1\n")
        self.assertIn("Watermark", self.ctl("reload", expect=1))
        self.rewrite("[Memory]\nHostLimit=100M\n")  # less than MaxMessageBytes
        self.assertIn("MaxMessageBytes", self.ctl("reload", expect=1))
        self.rewrite("[Memory]\nHostLimit=0.0001%\n")
        self.assertIn("MaxMessageBytes", self.ctl("reload", expect=1))
        self.assertEqual(self.ctl("memory")["host"]["limit_bytes"], 1 << 30)
        self.assertEqual(self.ctl("memory")["watermarks"]["high"], int(0.9 * (256 << 20)))


class Demo(Case):
    def test_all_53_files_are_told_with_the_reference_s_scores(self):
        self.ctl("load", "magika")
        files = sorted(os.path.join(EXAMPLES, "files", name)
                       for name in os.listdir(os.path.join(EXAMPLES, "files")))
        self.assertEqual(len(files), 53)
        done = subprocess.run([FILETYPE, "--server", "unix:" + self.server.path("grpc"), "--labels",
                               os.path.join(harness.MODELS, "magika/labels.txt"), "--expected",
                               os.path.join(EXAMPLES, "expected.tsv"), *files],
                              capture_output=True, text=True, timeout=harness.PATIENCE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("53 of 53", done.stdout)


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
