"""GPUs: what jobs see, what is shared and what is not, how busy they look, and what happens when
one breaks."""
import os
import re
import unittest

from rig import Rig, RigTest, poll


def write(path, text):
    with open(path + ".new", "w", encoding="ascii") as f:
        f.write(text)
    os.replace(path + ".new", path)


class Visibility(RigTest):
    def gpus(self):
        return self.rig.json("nodes")["nodes"][0]["gpus"]

    def seen(self, job):
        """What the job was told, once it runs."""
        path = self.rig.file(f"seen-{job}")
        return poll(
            lambda: (
                open(path, encoding="ascii").read().strip().split(",")
                if os.path.exists(path)
                else None
            ),
            f"job {job}'s GPUs",
        )

    HOLD = "echo $CUDA_VISIBLE_DEVICES > seen.$$ && mv seen.$$ seen-$BILLOW_JOB_ID; exec sleep 600"

    def hold(self, *options):
        job = self.rig.submit(*options, "--", "sh", "-c", self.HOLD)
        self.rig.wait_for(job, "running")
        return job

    def stop(self, *jobs):
        self.rig.ok("stop", "--force", "--wait", *jobs)

    def test_a_job_sees_exactly_what_it_was_given(self):
        uuids = {g["index"]: g["uuid"] for g in self.gpus()}
        jobs = [self.hold("--gpus", n) for n in (1, 2, 4)]
        for job in jobs:
            granted = self.rig.job(job)["tasks"][0]["gpus"]
            self.assertEqual(self.seen(job), [uuids[i] for i in granted])
        self.stop(*jobs)

    def test_without_gpus_it_sees_none(self):
        done = self.rig.ok(
            "run",
            "--",
            "sh",
            "-c",
            'echo "[$CUDA_VISIBLE_DEVICES]"',
            env={"CUDA_VISIBLE_DEVICES": "0,1,2"},
        )
        self.assertIn(done.text.strip(), ("[]", "[-1]", "[NoDevFiles]"))

    def test_whole_gpus_are_never_shared(self):
        jobs = [self.hold("--gpus", 1) for _ in range(8)]
        seen = [uuid for job in jobs for uuid in self.seen(job)]
        self.assertEqual((len(seen), len(set(seen))), (8, 8))
        waiting = self.rig.submit("--gpus", "0.1", "--", "true")
        self.assertEqual(self.rig.job(waiting)["state"], "queued")
        self.assertIn("in use", self.rig.job(waiting)["reason"])
        self.stop(jobs[0])
        self.rig.ok("wait", waiting)
        self.stop(*jobs[1:])

    def test_fractions_share_one(self):
        jobs = [self.hold("--gpus", "0.25") for _ in range(4)]
        self.assertEqual(len({self.seen(job)[0] for job in jobs}), 1)
        used = [g for g in self.gpus() if g["used_milli"]]
        self.assertEqual(
            [(g["used_milli"], sorted(g["jobs"])) for g in used], [(1000, sorted(jobs))]
        )
        self.stop(*jobs)
        self.assertEqual([g["used_milli"] for g in self.gpus()], [0] * 8)

    def test_what_a_job_costs_is_said(self):
        job = self.rig.submit("--gpus", 1, "--", "sleep", "2")
        # Nothing is charged before its process has begun.
        poll(
            lambda: re.fullmatch(r"\$\d+\.\d+/h", self.rig.job(job)["rate"]),
            "the job costs something",
        )
        self.rig.ok("wait", job)
        document = self.rig.job(job)
        self.assertGreater(document["cost_nano_usd"], 0)
        self.assertRegex(document["cost"], r"^\$0\.00\d+$")


class Load(RigTest):
    def util(self, job):
        (node,) = self.rig.json("nodes")["nodes"]
        return [g.get("util_pct", -1) for g in node["gpus"] if job in g["jobs"]]

    def test_a_busy_loop_looks_busy_and_a_sleep_idle(self):
        busy = self.rig.submit("--gpus", 1, "--", "sh", "-c", "while :; do :; done")
        idle = self.rig.submit("--gpus", 1, "--", "sleep", "600")
        self.rig.wait_for(busy, "running")
        self.rig.wait_for(idle, "running")
        poll(lambda: (self.util(busy) or [0])[0] > 50, "a busy GPU", 30)
        self.assertIn(self.util(idle)[0], range(5))
        self.rig.ok("stop", "--force", "--wait", busy)
        poll(
            lambda: max(g["util_pct"] for g in self.rig.json("nodes")["nodes"][0]["gpus"]) < 5,
            "idle GPUs",
            30,
        )
        self.rig.ok("stop", "--force", "--wait", idle)


class Faults(unittest.TestCase):
    def test_a_broken_gpu_takes_no_work_and_says_why(self):
        rig = Rig(sim="2xH100")
        try:

            def gpu(index):
                return rig.json("nodes")["nodes"][0]["gpus"][index]

            for fault in ("lost 0", "xid 0 79"):
                write(os.path.join(rig.data, "agent/sim/faults"), fault + "\n")
                poll(lambda: gpu(0)["unhealthy"], f"notice of '{fault}'", 30)
                self.assertFalse(gpu(1)["unhealthy"])
                done = rig.cli("submit", "--gpus", 2, "--", "true")
                if done.code == 0:
                    job = rig.json("ps")["jobs"][0]
                    self.assertEqual(job["state"], "queued")
                    rig.ok("stop", job["id"])
                one = rig.submit("--gpus", 1, "--", "true")
                rig.ok("wait", one)
                self.assertEqual(rig.job(one)["tasks"][0]["gpus"], [1])
                self.assertIn("1", rig.ok("nodes").text)
                os.unlink(os.path.join(rig.data, "agent/sim/faults"))
                # It answers again, and stays drained until a person says that it is mended.
                poll(
                    lambda: gpu(0)["unhealthy"] and "does not answer" not in gpu(0)["unhealthy"],
                    "its repair",
                    30,
                )
                rig.ok("undrain", rig.json("nodes")["nodes"][0]["name"], "--gpu", 0)
                self.assertFalse(gpu(0)["unhealthy"])
                both = rig.submit("--gpus", 2, "--", "true")
                rig.ok("wait", both)
        finally:
            rig.close()


class Mig(RigTest):
    """Instances that exist are used, one task each, and accounted for."""

    options = {"sim": "1xH100+mig=1g.10gb/1g.10gb"}

    def test_each_job_gets_an_instance_of_its_own(self):
        jobs = [
            self.rig.submit(
                "--mig", "1g.10gb", "--", "sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]; exec sleep 600"
            )
            for _ in range(2)
        ]
        seen = [
            poll(lambda job=job: self.rig.ok("logs", job).text.strip(), f"job {job}'s instance")
            for job in jobs
        ]
        self.assertEqual(len(set(seen)), 2)
        for text in seen:
            self.assertTrue(text.startswith("[MIG-"), text)
        self.assertIn("MIG 1g.10gb", self.rig.ok("describe", jobs[0]).text)
        done = self.rig.cli("suspend", jobs[0])
        self.assertIn("MIG", done.errors)
        # Where they lie and who has them is seen: by node, by card, by job.
        self.assertIn("2 of 2 MIG instances in use", self.rig.ok("nodes").text)
        self.assertIn("MIG  2 of 2 instances in use", self.rig.ok("status").text)
        held = self.rig.json("nodes")["nodes"][0]["gpus"][0]["mig_instances"]
        self.assertEqual(
            sorted((i["profile"], i["job"]) for i in held), [("1g.10gb", j) for j in sorted(jobs)]
        )
        for i in held:
            self.assertIn(f"1g.10gb@{i['start']} job {i['job']}", self.rig.ok("nodes", "-g").text)
            self.assertIn(f"1g.10gb@{i['start']}", self.rig.ok("ps").text)
        # Nobody allowed Billow to make a third one: who asks for it waits for one of the two, and
        # other sizes are refused.
        third = self.rig.submit("--mig", "1g.10gb", "--", "true")
        poll(lambda: self.rig.json("explain", third)["reasons"], "why it waits")
        self.assertEqual(self.rig.job(third)["state"], "queued")
        other = self.rig.cli("submit", "--mig", "3g.40gb", "--", "true")
        self.assertNotEqual(other.code, 0)
        self.assertIn("3g.40gb", other.errors)
        self.assertIn("existing instances: 2 × 1g.10gb", other.errors)
        self.assertIn("--allow-mig-changes", other.errors)
        self.rig.ok("stop", "--force", "--wait", jobs[0])
        self.rig.ok("wait", third)
        self.rig.ok("stop", "--force", "--wait", jobs[1])


class MigMade(RigTest):
    """With an administrator's word for it, instances are made where jobs need them, and taken down
    when they end."""

    options = {"sim": "1xH100+mig=1g.10gb", "args": ("--allow-mig-changes",)}

    def instances(self):
        path = self.rig.data + "/agent/mig-made"
        return open(path, encoding="utf-8").read().split("\n")[:-1] if os.path.exists(path) else []

    def test_instances_come_and_go_with_jobs(self):
        big, small = (
            self.rig.submit(
                "--mig", size, "--", "sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]; exec sleep 600"
            )
            for size in ("3g.40gb", "2g.20gb")
        )
        seen = [
            poll(lambda job=job: self.rig.ok("logs", job).text.strip(), f"job {job}'s instance")
            for job in (big, small)
        ]
        self.assertEqual(len(set(seen)), 2)
        self.assertTrue(all(text.startswith("[MIG-") for text in seen), seen)
        self.assertEqual(len(self.instances()), 2)
        # What was there before stays, and is used before another is made.
        own = self.rig.submit("--mig", "1g.10gb", "--", "true")
        self.rig.ok("wait", own)
        self.assertEqual(len(self.instances()), 2)
        # Four slices are where the old one lies, which nobody takes down for a job.
        self.assertIn("4g.40gb", self.rig.cli("submit", "--mig", "4g.40gb", "--", "true").errors)
        # A second of two slices may lie at 0, 2 or 4, and all of these are taken.
        full = self.rig.submit("--mig", "2g.20gb", "--", "true")
        poll(lambda: self.rig.json("explain", full)["reasons"], "why it waits")
        self.assertEqual(self.rig.job(full)["state"], "queued")
        self.rig.ok("stop", "--force", "--wait", small)
        self.rig.ok("stop", "--force", "--wait", big)
        self.rig.ok("wait", full)
        poll(lambda: not self.instances(), "the instances to be taken down", 20)

    def test_an_agent_that_died_takes_down_what_it_made(self):
        job = self.rig.submit("--mig", "2g.20gb", "--", "sleep", "600")
        poll(lambda: len(self.instances()) == 1, "its instance")
        poll(lambda: self.rig.job(job)["state"] == "running", "it to run")
        self.rig.kill(self.rig.agent_pid())
        self.rig.ok("stop", "--force", "--wait", job)
        poll(lambda: not self.instances(), "the instance to be taken down", 30)


class OtherVendors(unittest.TestCase):
    def test_an_amd_node_runs_jobs_too(self):
        rig = Rig(sim="8xMI300X")
        try:
            (node,) = rig.json("nodes")["nodes"]
            self.assertEqual({(g["vendor"], g["type"]) for g in node["gpus"]}, {("amd", "MI300X")})
            done = rig.ok(
                "run",
                "--gpus",
                "2",
                "--gpu-type",
                "MI300X",
                "--",
                "sh",
                "-c",
                'echo $ROCR_VISIBLE_DEVICES; echo "[$CUDA_VISIBLE_DEVICES]"',
            )
            lines = done.text.splitlines()
            job = rig.json("ps", "-a")["jobs"][0]
            granted = job["tasks"][0]["gpus"]
            self.assertEqual(len(lines[0].split(",")), 2)
            self.assertIn(
                lines[0].split(","),
                [[str(i) for i in granted], [node["gpus"][i]["uuid"] for i in granted]],
            )
            self.assertIn(lines[1], ("[]", "[-1]"))
            self.assertGreater(job["cost_nano_usd"] + 1, 0)
        finally:
            rig.close()

    def test_mixed_nodes_give_what_was_asked_for(self):
        rig = Rig(sim="2xA100-40,4xL4")
        try:
            job = rig.submit("--gpus", 1, "--gpu-type", "L4", "--", "true")
            rig.ok("wait", job)
            self.assertEqual(rig.job(job)["tasks"][0]["gpu_type"], "L4")
            done = rig.cli("submit", "--gpus", 3, "--gpu-type", "A100-40", "--", "true")
            self.assertIn("the largest has 2", done.errors)
        finally:
            rig.close()
