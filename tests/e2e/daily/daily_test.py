"""Small things of a day's work: why a job waits, arrays that failed in part, errors for programs, slices."""
import json
import os
import subprocess
import time
import unittest

from rig import MARK, Rig, RigTest, poll


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
        self.assertRegex(
            lines[0],
            rf"^job {small} is queued and should start in (19|20) min, at .*, at the latest; "
            r"probably in (9|10) min, at ",
        )
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
        self.assertRegex(done.text, r"^array \d+ runs 2 failed elements of array \d+ again \(2-3\)")
        again = int(done.text.split()[1])
        self.rig.ok("wait", again)
        listed = self.rig.json("ps", "-a", "--array", again)["jobs"]
        self.assertEqual(sorted(j["array"]["index"] for j in listed), [2, 3])

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

    def test_a_number_for_a_name_says_which_option_limits_the_lines(self):
        self.rig.ok("run", "-q", "--", "true")
        done = self.rig.cli("ps", "-a", "-n", 3)
        self.assertEqual(done.code, 0)
        self.assertIn("no job matches --name 3", done.errors)
        self.assertIn("--limit 3 limits the lines", done.errors)
        self.assertIn(
            "no live job matches --name nosuch", self.rig.cli("ps", "-n", "nosuch").errors
        )

    def test_a_script_of_this_directory_needs_no_dot_and_slash(self):
        script = self.rig.file("job.sh")
        with open(script, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\necho from the script $1\n")
        job = self.rig.ok("submit", "--json", "job.sh", "with words").json["id"]
        self.assertEqual(self.rig.cli("wait", job).code, 0)
        self.assertEqual(self.rig.ok("logs", job).text, "from the script with words\n")
        with open(script, "w", encoding="ascii") as f:
            f.write("echo no interpreter\n")
        done = self.rig.cli("submit", "job.sh")
        self.assertEqual(done.code, 2)
        self.assertIn("its first line names no interpreter", done.errors)
        self.assertIn("`sh job.sh`", done.errors)
        os.unlink(script)

    def test_an_array_costs_what_its_elements_cost(self):
        array = self.rig.submit("--gpus", 1, "--array", "0-2", "--", "sleep", 1.2)
        self.rig.cli("wait", array)
        cost = self.rig.json("cost", "--job", array)
        self.assertEqual([e["label"] for e in cost["elements"]], [f"{array}.{i}" for i in range(3)])
        charges = [e["total"]["charge_nano_usd"] for e in cost["elements"]]
        self.assertTrue(all(charge > 0 for charge in charges), charges)
        self.assertEqual(cost["total"]["charge_nano_usd"], sum(charges))
        one = self.rig.json("cost", "--job", f"{array}.1")
        self.assertEqual(one["total"]["charge_nano_usd"], charges[1])
        text = self.rig.ok("cost", "--job", array).text
        self.assertIn(f"{array}.2", text)
        self.assertNotIn("total $0 ", text)

    def test_an_array_that_runs_has_a_cost_already(self):
        array = self.rig.submit("--gpus", 1, "--array", "0-3", "--", "sleep", 600)
        poll(
            lambda: self.rig.json("cost", "--job", array)["total"]["charge_nano_usd"] > 0, "a cost"
        )
        states = [e["state"] for e in self.rig.json("cost", "--job", array)["elements"]]
        self.assertEqual(sorted(states), ["queued", "queued", "running", "running"])
        self.rig.ok("stop", array)

    def test_members_have_a_cap_on_priority(self):
        self.rig.ok("user", "create", "ida", "--unix-name", "nobody")
        self.rig.ok("project", "member", "default", "ida")
        self.rig.ok("quota", "set", "--project", "default", "priority", 50)
        self.addCleanup(self.rig.cli, "quota", "rm", "--project", "default", "priority")
        mine = {"BILLOW_TOKEN": self.rig.token_for("ida")}

        def as_member(*args):
            return self.rig.cli(*args, env=mine)

        done = as_member("submit", "--priority", 51, "--", "true")
        self.assertEqual(done.code, 1, done)
        self.assertIn("priority 51 exceeds the limit of project default, which is 50", done.errors)
        self.assertIn("between -1000 and 50", done.errors)
        self.assertEqual(as_member("submit", "--priority", 50, "--cwd", "/", "--", "true").code, 0)
        # An admin of the installation is not held to it.
        self.rig.submit("--priority", 5000, "--", "true")
        self.rig.ok("quota", "rm", "--project", "default", "priority")
        done = as_member("submit", "--priority", 1001, "--", "true")
        self.assertIn("which is 1000", done.errors)

    def test_the_run_time_is_the_jobs_also_if_the_head_was_down(self):
        job = self.rig.submit("--name", "short", "--", "sleep", 2)
        self.rig.wait_for(job, "running")
        began = time.monotonic()
        self.rig.kill(self.rig.head_pid())
        time.sleep(max(0, 8 - (time.monotonic() - began)))  # the job ends, and nobody hears of it
        self.rig.up()
        poll(lambda: self.rig.job(job)["final"], "its end")
        self.assertLessEqual(self.rig.job(job)["ran_s"], 4)
        self.assertRegex(self.rig.ok("ps", "-a", "-n", "short").text, r" [1-4]s ")

    def test_a_virtual_environment_follows_the_job(self):
        place = self.rig.file("project")
        os.makedirs(place)
        venv = os.path.join(place, ".venv")
        subprocess.run(["python3", "-m", "venv", "--without-pip", venv], check=True)
        packages = subprocess.run(
            [
                os.path.join(venv, "bin/python"),
                "-c",
                "import sysconfig; print(sysconfig.get_path('purelib'))",
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        with open(os.path.join(packages, "only_here.py"), "w", encoding="ascii") as f:
            f.write("answer = 42\n")
        with open(os.path.join(place, "train.py"), "w", encoding="ascii") as f:
            f.write(
                "import only_here, os\nos.makedirs('results')\n"
                "open('results/answer', 'w').write(str(only_here.answer))\n"
                "print(only_here.__file__)\n"
            )
        done = self.rig.cli(
            "run", "-q", "--output", "results", "--", ".venv/bin/python", "train.py", cwd=place
        )
        self.assertEqual(done.code, 0, done)
        self.assertNotIn(place, done.text, "it ran in a copy")
        self.assertNotIn("left out", done.errors)
        # An interpreter that the node does not have is named.
        os.unlink(os.path.join(venv, "bin/python3"))
        os.symlink("/nowhere/bin/python3", os.path.join(venv, "bin/python3"))
        done = self.rig.cli(
            "run", "-q", "--output", "results", "--", ".venv/bin/python3", "train.py", cwd=place
        )
        self.assertEqual(done.code, 127, done)
        self.assertIn("a link to /nowhere/bin/python3, which this node does not have", done.errors)


class Moving(unittest.TestCase):
    def test_the_data_directory_can_be_moved(self):
        rig = Rig(sim="1xH100")
        self.addCleanup(rig.close)
        job = rig.submit("--gpus", 1, "--name", "before", "--", "echo", "written before")
        self.assertEqual(rig.cli("wait", job).code, 0)
        rig.ok("secret", "set", "KEY", stdin=b"kept value")
        rig.ok("down")
        moved = os.path.join(rig.root, "somewhere", "else")
        os.makedirs(os.path.dirname(moved))
        os.rename(rig.data, moved)
        rig.data = moved
        rig.environment.update({"BILLOW_DATA": moved, MARK: moved})
        rig.up()
        self.assertEqual(rig.ok("logs", job).text, "written before\n")
        self.assertEqual(rig.job(job)["name"], "before")
        done = rig.ok(
            "run", "-q", "--gpus", 1, "--secret", "KEY", "--", "sh", "-c", "echo ${KEY#kept}"
        )
        self.assertEqual(done.text, "value\n")
