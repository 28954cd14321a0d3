"""What a week's trial reported, line by line, where no other test shows that it holds."""
import json
import os
import re
import shutil
import signal
import subprocess
import unittest

from rig import BIN, SOURCE, Rig, RigTest, alive, poll
from terminal_test import Screen


# What only tests need, and what starts a service once it is installed.
NOT_FOR_RUNNING = re.compile(
    r"slurm|munge|chromium|prometheus|nginx|torch|podman|registry|mpi|swift|rapidcheck|gtest|"
    r"openssh|postgresql|jupyter|benchmark"
)


class DevRun(unittest.TestCase):
    """`./dev run` on a machine without any package: the package manager and the compiler write down
    what they are asked for, and the program that was built is this one."""

    PROGRAMS = {
        "dpkg-query": "exit 1\n",  # nothing is installed
        "apt-get": 'echo "apt-get $*" >>"$CALLS"\n',
        "sudo": 'exec "$@"\n',
        "npm": 'echo "npm $*" >>"$CALLS"\n',
        "cmake": 'echo "cmake $*" >>"$CALLS"\n',
        "ninja": (
            'echo "ninja $*" >>"$CALLS"\n'
            "echo '@ 50%|1|2|Building CXX object src/one.cpp.o'\n"
            "echo 'warning: of a compiler'\n"
            "echo '@100%|2|2|Linking CXX executable bin/billow'\n"
        ),
    }

    def setUp(self):
        self.rig = Rig(up=False)
        self.addCleanup(self.rig.close)
        copy = os.path.join(self.rig.root, "clone")
        os.makedirs(os.path.join(copy, "web"))
        shutil.copy(os.path.join(SOURCE, "dev"), copy)
        shutil.copytree(os.path.join(SOURCE, "tools/dev"), os.path.join(copy, "tools/dev"))
        shutil.copy(os.path.join(SOURCE, "web/package-lock.json"), os.path.join(copy, "web"))
        build = os.path.join(self.rig.root, "build")
        os.makedirs(build)
        for name in ("bin", "lib"):
            os.symlink(os.path.join(os.path.abspath(BIN), "..", name), os.path.join(build, name))
        programs = os.path.join(self.rig.root, "programs")
        os.makedirs(programs)
        for name, text in self.PROGRAMS.items():
            path = os.path.join(programs, name)
            with open(path, "w", encoding="ascii") as f:
                f.write("#!/bin/sh\n" + text)
            os.chmod(path, 0o755)
        self.calls = os.path.join(self.rig.root, "calls")
        self.copy = copy
        self.environment = {
            **self.rig.environment,
            "CALLS": self.calls,
            "PATH": programs + ":" + self.rig.environment["PATH"],
            "BILLOW_BUILD_DIR": build,
            "BILLOW_SIM": "",
        }

    def dev(self, *args):
        return subprocess.run(
            [os.path.join(self.copy, "dev"), *args],
            env=self.environment,
            cwd=self.rig.files,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )

    def test_it_installs_what_running_needs_and_says_one_line_per_step(self):
        done = self.dev("run")
        shown = done.stderr.decode()
        self.assertEqual(done.returncode, 0, shown)
        with open(self.calls, encoding="utf-8") as f:
            calls = f.read().splitlines()
        installs = [call for call in calls if call.startswith("apt-get install")]
        self.assertTrue(installs, calls)
        for call in installs:
            self.assertNotRegex(call, NOT_FOR_RUNNING)
            self.assertIn("--no-install-recommends", call)
        (built,) = [call for call in calls if call.startswith("ninja")]
        self.assertTrue(built.endswith(" billow billow-supervise billow_nvml_sim"), built)
        self.assertFalse([call for call in calls if "BILLOW_TESTS=on" in call.lower()], calls)
        # Progress, without a word of the compiler's; then the sample job.
        before, job = shown.split("\n\n", 1)
        for line in before.splitlines():
            self.assertRegex(line, r"^(dev: \d+:\d\d |billow is running: )", shown)
        self.assertIn("compiled (", before)
        self.assertNotIn("warning: of a compiler", shown)
        self.assertIn("hello from GPU 0", done.stdout.decode())
        self.assertRegex(job, r"dev: starting Billow and running the job took \d+ ms\n")
        self.assertIn("./dev stop", job)
        ended = self.dev("stop")
        self.assertEqual(ended.returncode, 0, ended)

    def test_a_build_that_fails_shows_its_errors(self):
        path = os.path.join(self.rig.root, "programs", "ninja")
        with open(path, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\necho 'one.cpp:3: error: expected a name'\nexit 1\n")
        done = self.dev("run")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("one.cpp:3: error: expected a name", done.stderr.decode())
        self.assertIn("the build failed; the whole output is in .dev/build.log", str(done.stderr))


class Copies(unittest.TestCase):
    """A job that works in a copy of its directory: nothing is deleted without a word."""

    def setUp(self):
        self.rig = Rig(sim="1xH100", SHELL="/bin/sh")
        self.screens = []
        self.addCleanup(self.rig.close)

    def screen(self, *args):
        screen = Screen(self.rig, *args)
        self.addCleanup(screen.close)
        return screen

    def copied(self, *more):
        """A job that has written a file into its copy."""
        script = "mkdir -p results; echo 1 > results/a; echo wrote; exec sleep 600"
        job = self.rig.submit("--sync", *more, "--", "sh", "-c", script)
        poll(lambda: "wrote" in self.rig.cli("logs", job).text, "its file")
        return job

    def test_stop_asks_before_a_directory_is_deleted(self):
        job = self.copied()
        self.assertRegex(
            self.rig.ok("describe", job).text,
            r"a copy of \S+, deleted when the job ends; nothing is kept \(no --output\)",
        )
        asked = self.screen("stop", job)
        asked.expect("works in a copy of its directory, which is deleted when it ends")
        asked.expect("Stop it now? [y/N]")
        asked.type("n\n")
        asked.expect("was not stopped")
        self.assertEqual(asked.end(), 1)
        self.assertEqual(self.rig.job(job)["state"], "running")
        self.rig.ok("cp", f"{job}:results", ".")
        with open(self.rig.file("results/a"), encoding="ascii") as f:
            self.assertEqual(f.read(), "1\n")
        again = self.screen("stop", job)
        again.expect("[y/N]")
        again.type("y\n")
        again.expect("is being stopped")
        self.assertEqual(again.end(), 0)
        self.rig.wait_for(job, "stopped")

    def test_stop_asks_nothing_where_nothing_is_lost(self):
        for more in ((), ("--output", "results")):
            job = (
                self.copied(*more) if more else self.rig.submit("--", "sh", "-c", "exec sleep 600")
            )
            self.rig.wait_for(job, "running")
            stopped = self.screen("stop", job)
            self.assertNotIn("[y/N]", stopped.expect("is being stopped"))
            self.assertEqual(stopped.end(), 0)
            self.rig.wait_for(job, "stopped")
        self.rig.ok("cp", f"{job}:results/a", "kept")
        # Scripts are asked nothing, and --force is an answer.
        self.rig.ok("stop", "--wait", self.copied())
        forced = self.screen("stop", "--force", self.copied())
        self.assertNotIn("[y/N]", forced.expect("is being stopped"))

    def test_a_terminal_says_that_it_works_in_a_copy(self):
        shell = self.screen("shell", "--sync")
        shell.expect("works in a copy of the directory, which is deleted when the job ends")
        shell.type("exit\n")
        self.assertEqual(shell.end(), 0)


class Screens(unittest.TestCase):
    """What is longer than a screen, and columns of dollars."""

    def setUp(self):
        self.rig = Rig(sim="2xH100")
        self.addCleanup(self.rig.close)

    def test_long_help_goes_through_the_pager(self):
        for words in (("help",), ("help", "run"), ("run", "--help"), ("docs", "start")):
            screen = Screen(self.rig, *words, env={"PAGER": "sed s/^/paged:/"})
            self.addCleanup(screen.close)
            self.assertEqual(screen.end(), 0)
            lines = screen.text.replace("\r", "").strip("\n").split("\n")
            self.assertGreater(len(lines), 30, words)
            self.assertTrue(all(line.startswith("paged:") for line in lines), words)
            plain = Screen(self.rig, *words, env={"PAGER": ""})
            self.addCleanup(plain.close)
            self.assertEqual(plain.end(), 0)
            self.assertNotIn("paged:", plain.text)
            self.assertNotIn("paged:", self.rig.ok(*words, env={"PAGER": "sed s/^/paged:/"}).text)

    def test_amounts_of_one_column_have_the_same_decimals(self):
        self.rig.ok("run", "-q", "--gpus", 0.1, "--name", "tiny", "--", "true")
        self.rig.ok("run", "-q", "--gpus", 2, "--name", "more", "--", "sleep", 12)
        self.rig.ok("run", "-q", "--name", "free", "--", "true")
        for words in (("ps", "-a"), ("cost", "--by", "job")):
            rows = [row for row in self.rig.ok(*words).text.splitlines() if re.match(r"\d+ ", row)]
            amounts = [re.findall(r"(?<![\w(])<?\$(\d+\.\d+)(?!\S)", row) for row in rows]
            columns = list(zip(*[row for row in amounts if len(row) == len(amounts[0])]))
            self.assertTrue(columns, rows)
            for column in columns:
                self.assertEqual(len({len(a.split(".")[1]) for a in column}), 1, rows)


class AgentLog(unittest.TestCase):
    """`up` says why this machine's agent does not answer, in the words of this start."""

    def test_an_agent_that_cannot_start_says_why(self):
        rig = Rig(up=False)
        self.addCleanup(rig.close)
        nowhere = {"BILLOW_NVML": "/nonexistent/libnvidia-ml.so.1"}
        words = ("up", "--background", "--listen", "127.0.0.1:0", "--sim", "1xH100")
        done = rig.cli(*words, env=nowhere)
        self.assertIn("no job can run here:\nbillow: no NVML: /nonexistent/", done.errors)
        self.assertIn("hint:", done.errors)

    def test_an_old_line_is_not_the_reason_for_what_happens_now(self):
        rig = Rig(sim="1xH100")
        self.addCleanup(rig.close)
        agent = rig.agent_pid()
        os.kill(agent, signal.SIGSTOP)
        self.addCleanup(lambda: alive(agent) and os.kill(agent, signal.SIGCONT))
        rig.kill(rig.head_pid())
        with open(os.path.join(rig.data, "agent.log"), "a", encoding="utf-8") as f:
            f.write("2026-01-02T03:04:05Z warn agent: task 53: no checkpoint\n")
        done = rig.up()
        os.kill(agent, signal.SIGCONT)
        shown = done.text + done.errors
        self.assertIn("the agent of this machine has not answered yet", shown)
        self.assertIn("agent.log", shown)
        self.assertNotIn("no checkpoint", shown)


class Advice(RigTest):
    options = {"sim": "4xH100,2xL4"}

    def advise(self, *words):
        return self.rig.ok("advise", *words)

    def test_models_are_known_by_their_names(self):
        text = self.advise("--model", "Llama-3.1-70B", "--ttft", "500ms", "--rps", 2).text
        # Its own shape, not one of that size: 80 layers, and a cache of 320 KiB per token.
        self.assertIn("70.55 B parameters", text)
        self.assertIn("80 full attention", text)
        self.assertIn("KV cache 320.0 KiB per token", text)
        asked = json.loads(
            self.advise("--model", "meta-llama/Llama-3.1-70B", "--rps", 2, "--json").text
        )
        self.assertTrue(asked, asked)
        wrong = self.rig.cli("advise", "--model", "Llama-3.1-71B")
        self.assertEqual(wrong.code, 1, wrong)
        self.assertIn("not among the", wrong.errors)
        self.assertIn("did you mean llama-3.1-70b? Otherwise give the path", wrong.errors)

    def test_the_answer_repeats_the_service_level(self):
        text = self.advise("--model", "Llama-3.1-8B", "--ttft", "700ms", "--rps", 2).text
        self.assertIn("service level: first token within 700 ms on average", text)
        self.assertRegex(text, r"\d+ % chance of meeting the service level")
        self.assertRegex(text, r"time to first token \d+ ms \(\d+–\d+\).* means with 80 % intervals")

    def test_a_short_comparison_is_no_verdict(self):
        work = "for i in 1 2 3; do echo step $i; sleep 0.3; done"
        done = self.rig.ok("compare", "--gpu-types", "H100,L4", "--", "sh", "-c", work)
        self.assertRegex(done.text, r"note: this is one short run of each \(\d+ s")


class Clumsy(RigTest):
    """Mistakes that cost nothing."""

    options = {"sim": "1xH100"}

    def into(self, path, *args):
        with open(path, "wb") as out:
            return subprocess.run(
                self.rig.command(*args),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                env=self.rig.environment,
                cwd=self.rig.files,
                timeout=60,
                check=False,
            )

    def test_a_full_disk_for_the_output_ends_no_job(self):
        mark = self.rig.file("go-on")
        script = f"echo first; until [ -e {mark} ]; do sleep 0.05; done; echo last"
        run = self.into("/dev/full", "run", "--name", "long", "--", "sh", "-c", script)
        self.assertEqual(run.returncode, 1, run)
        self.assertIn(b"cannot write the output", run.stderr)
        self.assertIn(b"No space left on device", run.stderr)
        self.assertIn(b"keeps running: billow logs -f", run.stderr)
        self.assertEqual(self.rig.job("long")["state"], "running")
        with open(mark, "w", encoding="ascii"):
            pass
        self.rig.ok("wait", "long")
        self.assertEqual(self.rig.ok("logs", "long").text, "first\nlast\n")
        listed = self.into("/dev/full", "ps", "-a")
        self.assertEqual(listed.returncode, 1, listed)
        self.assertIn(b"cannot write the output", listed.stderr)

    def test_an_array_of_one_is_said_as_one(self):
        self.assertIn("(1 element) ", self.rig.ok("submit", "--array", "3-3", "--", "true").text)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be another user")
    def test_a_home_that_cannot_be_written_is_said_once(self):
        home = os.path.join(self.rig.root, "read-only")
        os.makedirs(home, mode=0o555)
        env = {
            "HOME": home,
            "BILLOW_DATA": "",
            "XDG_DATA_HOME": "",
            "XDG_STATE_HOME": "",
            "XDG_CONFIG_HOME": "",
        }
        done = self.rig.cli("run", "--", "true", env=env, user=65534, cwd="/")
        self.assertEqual(done.code, 1, done)
        self.assertEqual(done.errors.count("starting one in the background"), 1, done)
        self.assertIn("Permission denied", done.errors)
        self.assertIn("--data DIR", done.errors)


class Lists(RigTest):
    options = {"sim": "1xH100"}

    def test_several_labels_must_all_match(self):
        both = self.rig.submit("-l", "a=1", "-l", "b=2", "--", "true")
        self.rig.submit("-l", "a=1", "--", "true")
        self.rig.ok("wait", both)
        listed = self.rig.ok("ps", "-aq", "-l", "a=1", "-l", "b=2").text.split()
        self.assertEqual(listed, [str(both)])

    def test_people_see_no_codes(self):
        self.rig.wait_for(self.rig.submit("--gpus", 1, "--", "sleep", 600), "running")
        waits = self.rig.submit("--gpus", 1, "--", "true")
        self.rig.ok("project", "create", "small")
        self.rig.ok("project", "set", "small", "--max", 1)
        first = self.rig.submit("-p", "small", "--gpus", 1, "--", "true")
        for words in (("explain", waits), ("explain", first), ("ps",), ("describe", waits)):
            text = self.rig.ok(*words).text
            self.assertNotRegex(text, r"no_room|project_limit|[a-z]+_[a-z]+:", words)
            self.assertNotRegex(text, r"\d{4}-\d\d-\d\dT", words)
        jobs = [job["id"] for job in self.rig.json("ps")["jobs"]]
        self.rig.ok("stop", "--force", "--wait", *jobs)

    def test_a_month_without_gpu_hours_is_not_paid_for(self):
        self.rig.ok("wait", self.rig.submit("--gpus", 1, "--", "sleep", 2))
        done = self.rig.cli("plan", "--review")
        self.assertNotRegex(done.text, r"for 0 GPU-hours")


if __name__ == "__main__":
    unittest.main()
