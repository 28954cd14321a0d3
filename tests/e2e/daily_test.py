"""Small things of a day's work: why a job waits, arrays that failed in part, errors for programs, slices."""
import json

from rig import RigTest, poll


class Daily(RigTest):
    options = {"sim": "2xH100"}

    def tearDown(self):
        for job in self.rig.json("ps")["jobs"]:
            self.rig.ok("stop", job["id"])

    def test_explain_begins_with_a_sentence_and_names_the_holders(self):
        big = self.rig.submit("--name", "big", "--gpus", 2, "--time", "10m", "--", "sleep", 600)
        self.rig.wait_for(big, "running")
        small = self.rig.submit("--gpus", 1, "--", "true")
        lines = self.rig.ok("explain", small).text.splitlines()
        self.assertRegex(lines[0], rf"^job {small} is queued and should start in ")
        self.assertIn("  No GPU is free: all 2 are in use.", lines[1])
        text = "\n".join(lines)
        self.assertRegex(
            text, rf"GPUs in use by job {big} \(big\) of \S+: 2 GPUs, ends at the latest in"
        )
        self.assertIn("place in the queue: first", text)
        second = self.rig.submit("--gpus", 1, "--", "true")
        self.assertIn("1 waiting job", self.rig.ok("explain", second).text)
        why = self.rig.json("explain", second)
        self.assertEqual(why["ahead"], 1)
        self.assertEqual([h["job"] for h in why["holders"]], [big])

    def test_a_job_names_what_it_waits_for(self):
        first = self.rig.submit("--name", "prepare", "--", "sleep", 600)
        done = self.rig.ok("submit", "--name", "report", "--after", "prepare", "--", "true")
        self.assertIn(f"waits for job {first} (prepare), which is", done.text)
        self.assertIn(f"job {first} (prepare)", self.rig.ok("explain", "report").text)

    def test_a_job_that_guarantees_would_keep_waiting_is_refused(self):
        self.rig.ok("project", "create", "vision")
        self.rig.ok("project", "set", "vision", "--guarantee", 1)
        try:
            done = self.rig.cli("submit", "--gpus", 2, "--", "true")
            self.assertEqual(done.code, 1, done)
            self.assertIn("guaranteed to other projects", done.errors)
            self.assertIn("--spot", done.errors)
        finally:
            self.rig.ok("project", "set", "vision", "--guarantee", 0)

    def test_failed_elements_of_an_array_run_again(self):
        script = "test $BILLOW_ARRAY_INDEX -lt 2 || test -e again"
        array = self.rig.submit("--name", "sweep", "--array", "0-3", "--", "sh", "-c", script)
        self.rig.cli("wait", array)
        with open(self.rig.file("again"), "w", encoding="ascii"):
            pass
        done = self.rig.ok("rerun", "sweep")
        self.assertIn("2 failed elements", done.text)
        jobs = [word.strip(",") for word in done.text.split("jobs ")[1].split()]
        self.assertEqual(len(jobs), 2, done)
        for job in jobs:
            poll(lambda job=job: self.rig.job(job)["state"] == "succeeded", "its success")

    def test_errors_are_json_where_json_is_asked_for(self):
        done = self.rig.cli("describe", "nosuch", "--json")
        self.assertEqual(done.code, 1)
        self.assertEqual(json.loads(done.errors)["code"], "not_found")
        done = self.rig.cli("ps", "--json", "--nonsense")
        self.assertEqual(done.code, 2)
        self.assertIn("nonsense", json.loads(done.errors)["error"])

    def test_a_slice_that_is_charged_more_says_so(self):
        done = self.rig.ok(
            "submit", "--gpus", 0.1, "--gpu-mem", "40G", "--name", "fat", "--", "sleep", 60
        )
        self.assertIn("is charged 0.503 GPU, not 0.1", done.errors)
        self.rig.wait_for(int(done.text.split()[1]), "running")
        self.assertRegex(self.rig.ok("ps").text, r"fat .* running +0\.503 ")
        self.assertIn("is charged 0.503 GPU", self.rig.ok("describe", "fat").text)

    def test_an_unknown_state_is_an_error_with_the_nearest_name(self):
        done = self.rig.cli("ps", "-s", "qeued")
        self.assertEqual(done.code, 1, done)
        self.assertIn("did you mean queued?", done.errors)
