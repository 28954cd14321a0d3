"""Logs: kept when their node is gone, in the order written, with times, searched over arrays and
jobs."""
import json
import os
import re
import signal
import subprocess
import unittest

from checkpoint_test import processes_under
from pool_test import PoolRig
from rig import BILLOW, RigTest, poll

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z "


class Kept(unittest.TestCase):
    """Machines of a pool go; what jobs wrote there stays."""

    def tearDown(self):
        self.rig.close()

    def test_a_log_outlives_its_machine(self):
        self.rig = rig = PoolRig()
        rig.add_pool("cloud", "--max", 1, "--idle", "1s")
        job = rig.submit("--gpus", 1, "--", "sh", "-c", "seq 1 200000; echo failed >&2; exit 3")
        silent = rig.submit("--gpus", 1, "--", "true")
        self.assertEqual(rig.cli("wait", job, timeout=90).code, 3)
        poll(lambda: not rig.rented() and not rig.machines(), "the machine given back", 90)
        poll(lambda: rig.json("nodes")["nodes"] == [], "no node left", 30)
        whole = "".join(f"{i}\n" for i in range(1, 200001)) + "failed\n"
        self.assertEqual(rig.ok("logs", job).text, whole)
        self.assertEqual(rig.ok("logs", "-n", 2, job).text, "200000\nfailed\n")
        self.assertEqual(rig.ok("logs", "-f", "--tail", "7B", job).text[-7:], "failed\n")
        self.assertEqual(rig.ok("logs", job, "--grep", "19999").text.count("\n"), 12)
        self.assertEqual(rig.ok("logs", silent).text, "")
        # Another head on the same files has it too.
        rig.kill(rig.head_pid())
        rig.up()
        self.assertEqual(rig.ok("logs", job).text, whole)

    def test_a_machine_that_vanishes_leaves_what_was_copied(self):
        self.rig = rig = PoolRig()
        rig.add_pool("cloud", "--max", 1, "--idle", "60s")
        job = rig.submit(
            "--gpus",
            1,
            "--",
            "sh",
            "-c",
            "i=0; while :; do i=$((i+1)); echo line $i; sleep 1; done",
        )
        poll(lambda: "line 3" in rig.cli("logs", job).text, "its first lines", 60)
        kept = os.path.join(rig.data, "files", "logs")
        poll(lambda: any(sizes(kept)), "a copy of a log that is still written", 60)
        (machine,) = rig.rented()
        # Stopped first: the agent must not report what happens to the others.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in processes_under(os.path.join(rig.cloud, machine)):
                os.kill(pid, number)
        os.unlink(os.path.join(rig.cloud, machine + ".pid"))
        poll(lambda: rig.job(job)["final"] or rig.json("nodes")["nodes"] == [], "its loss", 120)
        poll(lambda: rig.json("nodes")["nodes"] == [], "the node gone", 120)
        text = poll(lambda: rig.cli("logs", job).text, "what was copied")
        self.assertTrue(text.startswith("line 1\nline 2\n"), text)
        self.assertIn("the rest of this log was lost with its node", text)

    def test_beyond_the_limit_the_oldest_log_goes_and_says_so(self):
        self.rig = rig = PoolRig()
        rig.ok("quota", "set", "--project", "default", "kept-log-bytes", "1M")
        rig.add_pool("cloud", "--max", 1, "--idle", "1s")
        command = "head -c 450000 /dev/urandom | base64"
        jobs = [rig.submit("--gpus", 1, "--", "sh", "-c", command) for _ in range(3)]
        for job in jobs:
            self.assertEqual(rig.cli("wait", job, timeout=90).code, 0)
        poll(lambda: rig.json("nodes")["nodes"] == [], "no node left", 90)
        self.assertGreater(len(rig.ok("logs", jobs[2]).out), 600_000)
        done = rig.cli("logs", jobs[0])
        self.assertNotEqual(done.code, 0)
        self.assertIn(
            "its log was removed: the head keeps the newest 1 MiB of the logs of project default",
            done.errors,
        )
        self.assertIn("quota set --project default kept-log-bytes", done.errors)
        kept = next(q for q in rig.json("quota", "list")["quotas"] if q["kind"] == "kept-log-bytes")
        self.assertEqual((kept["limit"], kept["set"]), (1 << 20, True))
        # A smaller limit applies at once.
        rig.ok("quota", "set", "--all-projects", "kept-log-bytes", "10K")
        rig.ok("quota", "rm", "--project", "default", "kept-log-bytes")
        poll(lambda: rig.cli("logs", jobs[2]).code != 0, "the last one to go")

    def test_the_log_of_every_attempt_outlives_its_machine(self):
        self.rig = rig = PoolRig()
        rig.add_pool("cloud", "--max", 1, "--idle", "1s")
        script = "echo attempt $BILLOW_ATTEMPT; exit 7"
        job = rig.submit("--gpus", 1, "--retries", 2, "--backoff", "0s", "--", "sh", "-c", script)
        self.assertEqual(rig.cli("wait", job, timeout=120).code, 7)
        poll(lambda: rig.json("nodes")["nodes"] == [], "no node left", 90)
        for attempt in (1, 2, 3):
            text = rig.ok("logs", "--attempt", attempt, job).text
            self.assertEqual(text, f"attempt {attempt}\n")


def sizes(directory):
    """Of the files below it."""
    return [
        os.path.getsize(os.path.join(folder, name))
        for folder, _, names in os.walk(directory)
        for name in names
    ]


class Reading(RigTest):
    options = {"sim": "2xH100"}

    def wait(self, job, code=0):
        self.assertEqual(self.rig.cli("wait", job).code, code)

    def test_both_streams_come_in_the_order_written(self):
        script = "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo E$i >&2; echo O$i; done"
        whole = "".join(f"E{i}\nO{i}\n" for i in range(1, 201))
        job = self.rig.submit("--", "sh", "-c", script)
        self.wait(job)
        self.assertEqual(self.rig.ok("logs", job).text, whole)
        # As in a terminal: both of `run`'s own streams are one.
        run = subprocess.run(
            [BILLOW, "run", "-q", "--", "sh", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=self.rig.environment,
            cwd=self.rig.files,
            check=True,
            timeout=60,
        )
        self.assertEqual(run.stdout.decode(), whole)
        # Apart, they stay apart.
        apart = self.rig.ok("run", "-q", "--", "sh", "-c", "echo E >&2; echo O")
        self.assertEqual((apart.text, apart.errors), ("O\n", "E\n"))

    def test_times_and_since(self):
        job = self.rig.submit("--", "sh", "-c", "echo old; sleep 4; echo new; printf end")
        self.wait(job)
        lines = self.rig.ok("logs", "--timestamps", job).text.splitlines()
        self.assertEqual([re.sub(STAMP, "", line) for line in lines], ["old", "new", "end"])
        self.assertTrue(all(re.match(STAMP, line) for line in lines), lines)
        self.assertLess(lines[0], lines[1])
        self.assertEqual(self.rig.ok("logs", "--since", "2500ms", job).text, "new\nend")
        self.assertEqual(self.rig.ok("logs", "--since", "1h", job).text, "old\nnew\nend")
        last = self.rig.ok("logs", "-t", "-n", 1, job).text
        self.assertRegex(last, f"^{STAMP}end\n$")
        bare = self.rig.cli("logs", "--since", "10", job)
        self.assertEqual(bare.code, 2, bare)

    def test_the_log_of_every_attempt_can_be_read(self):
        script = "echo attempt $BILLOW_ATTEMPT; sleep 0.2; exit 7"
        job = self.rig.submit("--retries", 2, "--backoff", "0s", "--", "sh", "-c", script)
        self.wait(job, 7)
        self.assertEqual(self.rig.ok("logs", job).text, "attempt 3\n")
        for attempt in (1, 2, 3):
            for more in ((), ("-f",), ("-n", 1), ("--search", "attempt")):
                done = self.rig.ok("logs", "--attempt", attempt, *more, job)
                self.assertEqual(done.text, f"attempt {attempt}\n", more)
        missing = self.rig.cli("logs", "--attempt", 4, job)
        self.assertEqual(missing.code, 1)
        self.assertIn(f"job {job} has had 3 attempts, and no attempt 4", missing.errors)
        self.assertEqual(self.rig.cli("logs", "--attempt", 0, job).code, 2)

    def test_a_log_keeps_as_much_as_its_project_may_and_says_what_is_missing(self):
        self.rig.ok("quota", "set", "--project", "default", "task-log-bytes", "1M")
        self.addCleanup(self.rig.cli, "quota", "rm", "--project", "default", "task-log-bytes")
        job = self.rig.submit("--", "sh", "-c", "seq 1 1000000")
        self.wait(job)
        first, rest = self.rig.ok("logs", job).text.split("\n", 1)
        self.assertRegex(
            first,
            r"^billow: \S+ MiB of earlier output were removed here: a log keeps its newest 1 MiB",
        )
        self.assertIn("billow quota set --project default task-log-bytes SIZE", first)
        self.assertTrue(rest.endswith("999999\n1000000\n"))
        self.assertGreater(len(rest), 700_000)
        self.assertLess(len(rest), 1_100_000)
        # What is asked for from the end on is whole.
        self.assertEqual(self.rig.ok("logs", "-n", 1, job).text, "1000000\n")
        for size in ("10K", "1000G", "none"):
            wrong = self.rig.cli("quota", "set", "--project", "default", "task-log-bytes", size)
            self.assertIn("between 1M and 64G", wrong.errors)

    def test_a_search_finds_what_lies_across_its_own_cut(self):
        # One line of 3 MiB, searched in parts of 1 MiB: the text lies across the first boundary.
        program = self.rig.script(
            "import sys\n"
            "sys.stdout.write('x' * ((1 << 20) - 5) + 'needle-4712' + 'y' * (2 << 20) + '\\n')\n"
            "sys.stdout.write('short needle-4712\\n')\n"
        )
        job = self.rig.submit("--", "python3", program)
        self.wait(job)
        found = self.rig.ok("logs", "--search", "needle-4712", job)
        self.assertEqual(found.text.count("needle-4712"), 2)
        self.assertTrue(found.text.endswith("short needle-4712\n"))
        self.assertEqual(self.rig.cli("logs", "--search", "needle-4713", job).code, 1)

    def test_an_array_is_one_log_and_its_elements_have_names(self):
        array = self.rig.submit(
            "--name",
            "sweep",
            "--array",
            "0-2",
            "--",
            "sh",
            "-c",
            "echo first of $BILLOW_ARRAY_INDEX; sleep 1.5; echo CUDA error in $BILLOW_ARRAY_INDEX",
        )
        self.rig.cli("wait", array)
        lines = self.rig.ok("logs", "sweep").text.splitlines()
        self.assertEqual(sorted(lines[:3]), [f"sweep.{i}: first of {i}" for i in range(3)], lines)
        self.assertEqual(
            sorted(lines[3:]), [f"sweep.{i}: CUDA error in {i}" for i in range(3)], lines
        )
        self.assertEqual(self.rig.ok("logs", "sweep.1", "-n", 1).text, "CUDA error in 1\n")
        found = self.rig.ok("logs", "sweep", "--search", "cuda error in 2", "-i")
        self.assertEqual(found.text, "sweep.2: CUDA error in 2\n")
        self.assertIn("you have no job called sweeps.1", self.rig.cli("logs", "sweeps.1").errors)

    def test_a_search_over_all_jobs(self):
        word = "needle-4711"
        one = self.rig.submit("--", "sh", "-c", f"echo hay; echo here is {word}; echo hay")
        two = self.rig.submit("--name", "other", "--", "echo", f"{word} again")
        three = self.rig.submit("--", "echo", "hay")
        for job in (one, two, three):
            self.wait(job)
        done = self.rig.ok("logs", "--search", word, "--since", "1d")
        self.assertEqual(
            sorted(done.text.splitlines()),
            sorted([f"{one}: here is {word}", f"{two}: {word} again"]),
        )
        rows = [
            line["line"]
            for line in map(
                json.loads, self.rig.ok("logs", "--search", word, "--json").text.splitlines()
            )
        ]
        self.assertEqual(len(rows), 2)
        self.assertEqual(self.rig.cli("logs", "--search", "nowhere-to-be-found").code, 1)
        self.assertEqual(self.rig.cli("logs").code, 2)


class Gang(RigTest):
    options = {"sim": "1xH100"}

    def test_no_rank_of_a_gang_that_ends_at_once_is_missing(self):
        self.rig.start(
            "agent",
            "--head",
            f"unix:{self.rig.data}/head.sock",
            "--token-file",
            self.rig.node_token_file("second"),
            "--data",
            os.path.join(self.rig.root, "second"),
            "--sim",
            "1xH100",
            "--node-name",
            "second",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        poll(lambda: len(self.rig.json("nodes")["nodes"]) == 2, "the second node")
        for _ in range(10):
            done = self.rig.ok(
                "run", "-q", "--nodes", 2, "--gpus", 1, "--", "sh", "-c", "echo rank $RANK"
            )
            self.assertEqual(sorted(done.text.splitlines()), ["[0] rank 0", "[1] rank 1"], done)


if __name__ == "__main__":
    unittest.main()
