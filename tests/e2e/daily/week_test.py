"""A newcomer's first week: one case for each thing that stopped one, where no other test shows it."""
import os
import re
import signal
import unittest

from rig import Rig, RigTest, poll
from terminal_test import Screen


class Week(RigTest):
    options = {"sim": "2xH100"}

    def test_stopping_an_ended_job_is_a_sentence(self):
        job = self.rig.submit("--", "false")
        self.rig.cli("wait", job)
        self.assertEqual(self.rig.ok("stop", job).text, f"job {job} has failed\n")

    def test_help_lists_what_people_use(self):
        text = self.rig.ok("help").text
        listed = set(re.findall(r"(?m)^  ([a-z-]+)", text))
        self.assertLessEqual({"run", "submit", "ps", "logs", "explain", "stop"}, listed)
        self.assertLessEqual(len(text.splitlines()), 60)
        whole = self.rig.ok("help", "--all").text
        listed |= set(re.findall(r"(?m)^  ([a-z-]+)", whole))
        self.assertIn("quota set ", whole)
        models = self.rig.ok("help", "model").text
        for command in ("model set", "model list", "model rm"):
            self.assertIn(command, models)
        plumbing = {"box", "stage", "ranks", "rsh", "ssh-proxy", "agent"}
        self.assertFalse(plumbing & listed)
        for command in plumbing:
            self.assertIn("usage:", self.rig.ok(command, "--help").text.lower(), command)

    def test_every_variable_of_a_job_is_documented(self):
        job = ("--name", "v", "--array", "0-0", "--gpus", 1, "--", "env")
        array = self.rig.submit(*job)
        self.rig.ok("wait", array)
        found = set(re.findall(r"(?m)^(BILLOW_\w+)=", self.rig.ok("logs", f"{array}.0").text))
        page = self.rig.ok("docs", "environment-variables").text
        # Some belong to Billow itself, as the page says; these are for people.
        every = page[: page.index("In some jobs")]
        promised = set(re.findall(r"`(BILLOW_\w+)`  ", every))
        self.assertLessEqual({"BILLOW_JOB_ID", "BILLOW_ATTEMPT", "BILLOW_GPUS"}, promised)
        self.assertLessEqual(promised, found)
        self.assertLessEqual({"BILLOW_ARRAY_INDEX", "BILLOW_ARRAY_ID"}, found)
        self.assertIn("`BILLOW_ARRAY_INDEX`", page)

    def test_variables_that_are_held_back_are_named(self):
        keys = {"WANDB_API_KEY": "w", "HF_TOKEN": "h"}
        show = ("run", "--", "sh", "-c", "echo ${WANDB_API_KEY:-none} ${HF_TOKEN:-none}")
        done = self.rig.ok(*show, env=keys)
        self.assertEqual(done.text, "none none\n")
        self.assertRegex(done.errors, r"HF_TOKEN, WANDB_API_KEY .*--env-var .*config set pass-env")
        done = self.rig.ok("run", "--env-var", "HF_TOKEN", *show[1:], env=keys)
        self.assertEqual(done.text, "none h\n")

    def test_a_job_file_and_what_is_none(self):
        with open(self.rig.file("j.yaml"), "w", encoding="ascii") as f:
            f.write("command: [true]\n")
        done = self.rig.cli("submit", "j.yaml")
        self.assertEqual(done.code, 2, done)
        self.assertIn("job files are TOML", done.errors)
        with open(self.rig.file("job.toml"), "w", encoding="ascii") as f:
            f.write('[job]\ncommand = ["echo", "from a file"]\n')
        self.assertEqual(self.rig.ok("run", "job.toml").text, "from a file\n")

    def test_a_rerun_says_how_to_watch_it_safely(self):
        job = self.rig.submit("--", "true")
        self.rig.ok("wait", job)
        self.assertRegex(self.rig.ok("rerun", job).text, r"watch it with `billow logs -f \d+`")

    def test_a_job_that_a_budget_stopped_is_not_said_to_resume(self):
        job = self.rig.submit("--gpus", 2, "--", "sleep", 600)
        self.rig.wait_for(job, "running")
        self.rig.ok("budget", "set", "0.005", "--job", job, "--grace", "1s")
        poll(lambda: self.rig.job(job)["final"], "the end of its money", 90)
        text = self.rig.ok("describe", job).text
        self.assertIn("budget: job", text)
        self.assertNotIn("billow resume", text)

    def test_simulated_gpus_say_so_where_money_is_shown(self):
        self.rig.ok("wait", self.rig.submit("--gpus", 1, "--", "sleep", 1))
        self.assertIn("the GPUs are simulated", self.rig.ok("cost").errors)
        done = self.rig.ok("profile", "-q", "--gpus", 1, "--for", "2s", "--", "sleep", 4)
        self.assertIn("the GPUs are simulated", done.errors)

    def test_kept_logs_show_in_the_quota(self):
        job = self.rig.submit("--", "sh", "-c", "head -c 300000 /dev/urandom | base64")
        self.rig.ok("wait", job)

        def used():
            return next(
                q["used"]
                for q in self.rig.json("quota", "list")["quotas"]
                if q["kind"] == "kept-log-bytes" and q["of"] == "default"
            )

        poll(lambda: used() > 100_000, "the kept log", 60)
        self.assertRegex(
            self.rig.ok("quota", "list").text, r"project default +kept-log-bytes +\d[\d.]* [KM]i?B"
        )

    def test_one_table_of_job_options_in_the_reference(self):
        page = self.rig.ok("help", "--markdown").text
        for command in ("run", "submit", "shell", "schedule add", "deploy", "profile", "compare"):
            section = page.split(f"### billow {command}\n")[1].split("\n### ")[0]
            self.assertNotIn("--checkpoint-every", section, command)


class Interrupted(unittest.TestCase):
    """At a terminal, where people press Ctrl-C and read what to do next."""

    def setUp(self):
        self.rig = Rig(sim="1xH100")

    def tearDown(self):
        self.rig.close()

    def test_the_first_ctrl_c_says_what_the_second_does(self):
        screen = Screen(self.rig, "run", "--", "sh", "-c", "trap '' INT; echo up; sleep 600")
        screen.expect("up")
        os.kill(screen.process.pid, signal.SIGINT)
        screen.expect("press Ctrl-C again within 2 s to end it")
        os.kill(screen.process.pid, signal.SIGINT)
        screen.expect("killing job 1")
        self.assertNotEqual(screen.end(), 0)
        screen.close()

    def test_submit_says_what_to_do_next(self):
        screen = Screen(self.rig, "submit", "--", "true")
        screen.expect("output: billow logs -f 1")
        screen.end()
        screen.close()


class Endpoints(RigTest):
    options = {"sim": "1xH100"}

    def test_an_endpoint_that_failed_shows_its_last_words(self):
        done = self.rig.cli(
            "deploy", "bad", "--max", 2, "--", "sh", "-c", "echo last words; exit 3", timeout=120
        )
        self.assertNotEqual(done.code, 0, done)
        poll(
            lambda: self.rig.json("explain", "bad")["status"] == "failed",
            "the endpoint to fail",
            90,
        )
        self.assertEqual(self.rig.ok("logs", "bad").text, "last words\n")
        self.assertIn("of at most 2", self.rig.ok("explain", "bad").text.splitlines()[0])
        self.rig.ok("delete", "bad")


if __name__ == "__main__":
    unittest.main()
