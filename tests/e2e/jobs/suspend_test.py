"""Suspend and resume through the whole product: by hand and by preemption, plain programs and CUDA
ones, with what it costs."""
import glob
import os
import subprocess
import sys
import unittest

from rig import BIN, SOURCE, RigTest, poll

BUILD = os.path.dirname(os.path.abspath(BIN))
SIM_CUDA = os.path.join(BUILD, "sim-cuda")
COUNT = "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.02; done"


def number(path):
    try:
        with open(path, encoding="ascii") as f:
            return int(f.read() or 0)
    except OSError:
        return 0


class Suspend(RigTest):
    """On one simulated GPU, with programs that do not use it: freezing is all there is to do."""

    options = {"sim": "1xH100"}

    def counting(self, *options):
        if os.path.exists(self.rig.file("count")):
            os.remove(self.rig.file("count"))  # of the case before
        job = self.rig.submit(*options, "--", "sh", "-c", COUNT)
        poll(
            lambda: [t["state"] for t in self.rig.job(job)["tasks"]] == ["running"],
            "the job to run",
        )
        poll(lambda: number(self.rig.file("count")) > 3, "the job to count")
        return job

    def stands_still(self, path):
        """Whether the count is the same over many times the span of one step. A job that runs would
        be seen to."""
        first = number(path)
        subprocess.run(
            ["sleep", "0.4"], check=True
        )  # not a wait for a condition: the span to look over
        return number(path) == first

    def test_by_hand(self):
        job = self.counting("--gpus", 1)
        self.rig.ok("suspend", "--wait", job)
        doc = self.rig.job(job)
        self.assertEqual(
            (doc["state"], doc["suspension"]["cause"], doc["tasks"][0]["gpu_milli"]),
            ("suspended", "request", 0),
        )
        self.assertTrue(self.stands_still(self.rig.file("count")))
        self.assertEqual(self.rig.json("nodes")["nodes"][0]["gpus"][0]["used_milli"], 0)
        self.assertIn("billow resume", self.rig.ok("describe", job).text)
        ran = doc["ran_s"]
        poll(lambda: self.rig.job(job)["suspended_s"] >= 2, "time suspended is counted")
        self.assertEqual(self.rig.job(job)["ran_s"], ran, "time suspended is not time run")
        self.assertRegex(
            self.rig.ok("describe", job).text, r"suspended +for \d+s in total, not included above"
        )
        before = number(self.rig.file("count"))
        self.rig.ok("resume", "--wait", job)
        poll(lambda: number(self.rig.file("count")) > before, "the job to go on")
        self.assertEqual(self.rig.job(job)["attempt"], 1)
        self.assertRegex(self.rig.ok("describe", job).text, "suspendable  yes")
        self.rig.ok("stop", "--force", "--wait", job)
        for order in ("suspend", "resume"):
            done = self.rig.cli(order, job)
            self.assertNotEqual(done.code, 0)
            self.assertRegex(done.errors, rf"job {job} has ended: it was stopped \d+ s ago")
            self.assertIn("no job 999", self.rig.cli(order, 999).errors)

    def test_a_suspended_job_survives_agent_and_head(self):
        job = self.counting("--gpus", 1)
        self.rig.ok("suspend", "--wait", job)
        self.rig.kill(self.rig.agent_pid())
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        poll(lambda: self.rig.json("nodes")["nodes"][0]["state"] == "ready", "the node to be back")
        self.assertEqual(self.rig.job(job)["state"], "suspended")
        self.assertTrue(self.stands_still(self.rig.file("count")))
        before = number(self.rig.file("count"))
        self.rig.ok("resume", "--wait", job)
        poll(lambda: number(self.rig.file("count")) > before, "the job to go on")
        self.rig.ok("stop", "--force", "--wait", job)

    def test_a_suspended_job_can_be_stopped(self):
        job = self.counting("--gpus", 1)
        self.rig.ok("suspend", "--wait", job)
        self.rig.ok("stop", "--wait", job)
        self.assertEqual(self.rig.job(job)["state"], "stopped")

    def test_what_cannot_be_suspended_says_so(self):
        job = self.counting("--gpus", 1, "--suspendable", "no")
        done = self.rig.cli("suspend", job)
        self.assertNotEqual(done.code, 0)
        self.assertIn("--suspendable no", done.errors)
        self.assertEqual(self.rig.job(job)["state"], "running")
        self.assertIn(
            "no: it was submitted with --suspendable no", self.rig.ok("describe", job).text
        )
        self.rig.ok("stop", "--force", "--wait", job)

    def test_hooks_run_before_and_after_as_the_user(self):
        out = self.rig.file("hooks")
        job = self.counting(
            "--gpus",
            1,
            "--suspend-hook",
            f"echo before $BILLOW_JOB_ID >> {out}",
            "--resume-hook",
            f"echo after $BILLOW_JOB_ID >> {out}",
        )
        self.rig.ok("suspend", "--wait", job)
        self.rig.ok("resume", "--wait", job)

        def ran():
            with open(out, encoding="ascii") as f:
                return f.read()

        poll(lambda: os.path.exists(out) and ran() == f"before {job}\nafter {job}\n", "both hooks")
        self.rig.ok("stop", "--force", "--wait", job)

    def test_a_hook_that_fails_keeps_the_job_running(self):
        job = self.counting("--gpus", 1, "--suspend-hook", "echo not now; exit 3")
        done = self.rig.cli("suspend", "--wait", job)
        self.assertEqual(done.code, 1)
        doc = self.rig.job(job)
        self.assertEqual(doc["state"], "running")
        self.assertIn("not now", doc["reason"])
        self.rig.ok("stop", "--force", "--wait", job)


@unittest.skipUnless(
    os.path.exists(SIM_CUDA + "/libcuda.so.1"), "the simulated driver is not built"
)
class SuspendCuda(RigTest):
    """On one simulated GPU with a simulated driver behind the real shim and the real GPU memory
    service."""

    options = {"sim": "1xH100", "BILLOW_CUDA": SIM_CUDA + "/libcuda.so.1"}

    def cuda(self, name, *options, mib=64):
        done, count = self.rig.file(name + ".done"), self.rig.file(name + ".count")
        job = self.rig.submit(
            *options,
            "--env-var",
            f"LD_LIBRARY_PATH={SIM_CUDA}",
            "--",
            sys.executable,
            os.path.join(SOURCE, "tests/support/cuda_loop.py"),
            done,
            count,
            mib,
        )
        return job, done, count

    def test_a_slice_sees_its_memory_and_no_more(self):
        job, done, count = self.cuda("slice", "--gpu-mem", "1G")
        poll(lambda: number(count) > 2, "the slice to run")
        self.assertIn("total 1024 MiB", self.rig.ok("logs", job).text)
        open(done, "w").close()
        self.rig.ok("wait", job)
        job, done, count = self.cuda("greedy", "--gpu-mem", "32M")
        self.assertNotEqual(self.rig.cli("wait", job).code, 0)
        self.assertIn(
            "cuMemAlloc_v2 failed with 2", self.rig.ok("logs", job).text
        )  # CUDA's own word for it

    def test_a_slice_that_holds_more_by_another_way_is_stopped(self):
        # The simulated card counts what BILLOW_SIM_GPU_MEM says, up to what the agent wrote down;
        # here that is made more
        job, _, count = self.cuda("sly", "--gpu-mem", "1G", "--env-var", "BILLOW_SIM_GPU_MEM=16G")
        poll(lambda: number(count) > 0, "it to run")
        (hold,) = glob.glob(self.rig.data + "/agent/sim/hold/*")
        with open(hold, encoding="utf-8") as f:
            words = f.read().split()
        words[2] = "20000"
        with open(hold + ".new", "w", encoding="utf-8") as f:
            f.write(" ".join(words) + "\n")
        os.replace(hold + ".new", hold)
        self.assertNotEqual(self.rig.cli("wait", job).code, 0)
        self.assertIn("more GPU memory than its slice", self.rig.ok("describe", job).text)

    def test_a_spot_job_gives_way_and_comes_back(self):
        spot, spot_done, spot_count = self.cuda("spot", "--gpus", 1, "--spot")
        poll(
            lambda: number(spot_count) > 3 and self.rig.job(spot)["tasks"][0]["state"] == "running",
            "the spot job to run",
        )
        other, other_done, other_count = self.cuda("demand", "--gpus", 1)
        poll(lambda: number(other_count) > 3, "the on-demand job to run")
        doc = self.rig.job(spot)
        self.assertEqual(
            (doc["state"], doc["suspension"]["cause"], doc["suspension"]["resumes_by_itself"]),
            ("suspended", "preempted", True),
        )
        self.assertGreaterEqual(
            doc["tasks"][0]["ram_mib"], 64
        )  # its device memory lies in the GPU memory service
        before = number(spot_count)
        open(other_done, "w").close()
        self.rig.ok("wait", other)
        poll(lambda: number(spot_count) > before + 3, "the spot job to go on")
        self.assertEqual(self.rig.job(spot)["attempt"], 1)
        open(spot_done, "w").close()
        self.assertEqual(self.rig.cli("wait", spot).code, 0)
        self.assertIn("all right", self.rig.ok("logs", spot).text)
        self.check_cost(spot)

    def check_cost(self, job):
        """The job cost what its leases say: GPU time at the spot price while it ran, memory while
        it was suspended."""
        events = [
            e
            for e in self.rig.api("GET", "/v1/events?limit=1000").json["events"]
            if e["kind"] in ("job_placed", "task_suspended", "job_resuming", "task_ended")
        ]
        task = next(e for e in events if e["kind"] == "job_placed" and e["event"]["job"] == job)[
            "event"
        ]["tasks"][0]
        mine = [e for e in events if e["event"].get("task") == task["id"]]
        self.assertEqual(
            [e["kind"] for e in mine], ["task_suspended", "job_resuming", "task_ended"]
        )
        suspended, resuming, ended = (e["event"] for e in mine)
        ran = task["rate"] * (suspended["lease_to_ns"] - task["lease_from_ns"]) // 10**9
        kept = (
            suspended["rate"]
            * (resuming["lease_to_ns"] - suspended["lease_to_ns"])
            * (suspended["ram_mib"] * 1000 // 1024)
            // 1000
            // 10**9
        )
        again = resuming["rate"] * (ended["lease_to_ns"] - resuming["lease_to_ns"]) // 10**9
        self.assertGreater(ran, 0)
        for said, held in (
            (suspended["cost"], ran),
            (resuming["cost"], kept),
            (ended["cost"], again),
        ):
            self.assertAlmostEqual(said, held, delta=2)
        self.assertEqual(
            self.rig.job(job)["cost_nano_usd"], suspended["cost"] + resuming["cost"] + ended["cost"]
        )
        # A second of the card costs more than a second of the little memory this job holds.
        self.assertLess(suspended["rate"] * suspended["ram_mib"] // 1024, task["rate"])

    def test_by_hand_cold_and_back(self):
        job, done, count = self.cuda("cold", "--gpus", 1, "--suspendable", "yes")
        poll(
            lambda: number(count) > 3 and self.rig.job(job)["tasks"][0]["state"] == "running",
            "the job to run",
        )
        for mode in ([], ["--cold"]):
            self.rig.ok("suspend", "--wait", *mode, job)
            before = number(count)
            asleep = poll(lambda: self.rig.job(job).get("asleep"), "where it sleeps")
            self.assertRegex(asleep, r"[0-9.]+ MiB in pinned memory; resuming takes about ")
            self.assertIn(asleep, self.rig.ok("describe", job).text)
            self.rig.ok("resume", "--wait", job)
            poll(lambda: number(count) > before + 2, "the job to go on")
            self.assertNotIn("asleep", self.rig.job(job))
        open(done, "w").close()
        self.assertEqual(self.rig.cli("wait", job).code, 0)
        self.assertIn("all right", self.rig.ok("logs", job).text)


if __name__ == "__main__":
    unittest.main()
