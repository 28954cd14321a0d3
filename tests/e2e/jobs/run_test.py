"""`billow run` as a person uses it: streams, stdin, signals, exit codes, limits, and heads that
come and go under it."""
import hashlib
import json
import os
import random
import signal
import subprocess
import threading
import time
import unittest

from rig import Rig, RigTest, poll


class Streams(RigTest):
    def test_keeps_output_and_errors_apart(self):
        done = self.rig.cli("run", "--", "sh", "-c", "echo to-out; echo to-err >&2")
        self.assertEqual((done.code, done.out, done.err), (0, b"to-out\n", b"to-err\n"))

    def test_passes_bytes_as_they_are(self):
        data = bytes(range(256)) * 8
        done = self.rig.cli("run", "--", "cat", stdin=data)
        self.assertEqual((done.code, done.out), (0, data))

    def test_pipes_20_mb_through_cat(self):
        data = random.Random(5).randbytes(20 << 20)
        done = self.rig.cli("run", "--", "cat", stdin=data, timeout=120)
        self.assertEqual(done.code, 0, done.errors)
        self.assertEqual(len(done.out), len(data))
        self.assertEqual(hashlib.sha256(done.out).digest(), hashlib.sha256(data).digest())

    def test_a_slow_reader_gets_every_byte_of_its_input(self):
        # Reads nothing until all of the input had to wait somewhere: 3 MB is more than every buffer
        # on the way.
        gate = self.rig.file("gate")
        process = self.rig.start(
            "run",
            "--",
            "sh",
            "-c",
            f"until [ -e {gate} ]; do sleep 0.05; done; sha256sum",
            stdin=subprocess.PIPE,
        )
        data = random.Random(6).randbytes(3 << 20)
        os.set_blocking(process.stdin.fileno(), False)
        sent = 0

        def pump():
            nonlocal sent
            try:
                sent += os.write(process.stdin.fileno(), data[sent : sent + 65536])
            except BlockingIOError:
                return True
            return sent == len(data)

        poll(pump, "input that has to wait")
        open(gate, "w", encoding="ascii").close()
        os.set_blocking(process.stdin.fileno(), True)
        out, _ = process.communicate(data[sent:], timeout=60)
        self.assertEqual(out.split()[0].decode(), hashlib.sha256(data).hexdigest())

    def test_a_job_without_input_sees_its_end(self):
        self.assertEqual(self.rig.cli("run", "--no-stdin", "--", "cat", stdin=b"unseen").out, b"")
        self.assertEqual(self.rig.cli("run", "--", "cat").out, b"")

    def test_a_reader_that_leaves_ends_the_job(self):
        process = self.rig.start(
            "run", "--", "sh", "-c", f"echo $$ > {self.rig.file('yes.pid')}; exec yes"
        )
        process.stdout.read(100)
        process.stdout.close()
        self.assertEqual(process.wait(30), 128 + signal.SIGPIPE)
        with open(self.rig.file("yes.pid"), encoding="ascii") as f:
            pid = int(f.read())
        poll(lambda: not os.path.exists(f"/proc/{pid}"), "the end of yes")


class ExitCodes(RigTest):
    def run_sh(self, text, *options):
        return self.rig.cli("run", *options, "--", "sh", "-c", text)

    def test_are_the_jobs(self):
        for code in (0, 1, 3, 126, 255):
            self.assertEqual(self.run_sh(f"exit {code}").code, code)

    def test_of_signals_are_128_and_the_number(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
            done = self.run_sh(f"kill -{int(number)} $$")
            self.assertEqual(done.code, 128 + number)
            self.assertIn(number.name, done.errors)

    def test_of_a_command_not_found_is_127(self):
        done = self.rig.cli("run", "--", "no-such-command-here")
        self.assertEqual(done.code, 127)
        self.assertIn("no-such-command-here", done.errors)
        self.assertIn("No such file", done.errors)

    def test_of_a_file_that_may_not_run_is_126(self):
        path = self.rig.script("exit 0", "locked.sh")
        os.chmod(path, 0o644)
        done = self.rig.cli("run", "--", path)
        self.assertEqual(done.code, 126)
        self.assertIn("Permission denied", done.errors)

    def test_of_a_time_limit_is_124(self):
        done = self.rig.cli("run", "--time", "1s", "--", "sleep", "60")
        self.assertEqual(done.code, 124)
        self.assertIn("time limit", done.errors)


class Surroundings(RigTest):
    def test_the_working_directory_follows(self):
        self.assertEqual(
            self.rig.cli("run", "--", "pwd").text.strip(), os.path.realpath(self.rig.files)
        )
        self.assertEqual(
            self.rig.cli("run", "-C", "/usr/bin", "--", "pwd").text.strip(),
            os.path.realpath("/usr/bin"),
        )

    def test_a_directory_that_is_not_there_is_an_error(self):
        done = self.rig.cli("run", "--cwd", "/no/such/place", "--", "true")
        self.assertNotEqual(done.code, 0)
        self.assertIn("/no/such/place", done.errors)

    def test_the_environment_follows_without_secrets(self):
        env = {"COLOUR": "blue and green", "MY_SECRET_TOKEN": "hidden", "WANTED_TOKEN": "given"}
        done = self.rig.cli(
            "run", "--env-var", "WANTED_TOKEN", "-e", "EXTRA=1", "--", "env", env=env
        )
        lines = done.text.splitlines()
        self.assertIn("COLOUR=blue and green", lines)
        self.assertIn("WANTED_TOKEN=given", lines)
        self.assertIn("EXTRA=1", lines)
        self.assertNotIn("hidden", done.text)
        self.assertRegex(done.text, r"(?m)^BILLOW_JOB_ID=\d+$")
        bare = self.rig.cli("run", "--no-env", "-e", "EXTRA=2", "--", "env", env=env).text
        self.assertIn("EXTRA=2", bare)
        self.assertNotIn("COLOUR", bare)


class Signals(RigTest):
    def begin(self, text):
        process = self.rig.start("run", "--", "sh", "-c", text)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def test_reach_the_job(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = self.begin(
                f"trap 'echo caught; exit 40' {number.name[3:]}; echo ready; while :; do sleep"
                " 0.05; done"
            )
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
            self.assertEqual((out, process.returncode), (b"caught\n", 40), err)

    def test_the_second_ends_it_at_once(self):
        process = self.begin(
            "trap 'echo one' INT; trap '' TERM; echo ready; while :; do sleep 0.05; done"
        )
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.stdout.readline(), b"one\n")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 128 + signal.SIGKILL)

    def test_in_the_queue_cancel_it(self):
        keeper = self.rig.submit("--gpus", 8, "--", "sleep", "600")
        self.rig.wait_for(keeper, "running")
        process = self.rig.start("run", "--gpus", "1", "--", "true")
        line = process.stderr.readline().decode()
        self.assertIn("queued", line)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(30), 130)
        self.assertEqual([j["id"] for j in self.rig.json("ps")["jobs"]], [keeper])
        self.rig.ok("stop", "--force", "--wait", keeper)


class Restarts(unittest.TestCase):
    def setUp(self):
        self.rig = Rig()

    def tearDown(self):
        self.rig.close()

    def test_run_goes_on_over_a_new_head(self):
        gate = self.rig.file("gate")
        process = self.rig.start(
            "run",
            "--",
            "sh",
            "-c",
            f"seq 1 20000; until [ -e {gate} ]; do sleep 0.05; done; seq 20001 40000; exit 7",
        )
        read = b""
        while not read.endswith(b"\n20000\n"):
            read += os.read(process.stdout.fileno(), 65536)
        for _ in range(3):
            self.rig.kill(self.rig.head_pid())
            self.rig.up()
        open(gate, "w", encoding="ascii").close()
        rest, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 7, err)
        self.assertEqual((read + rest).split(), [str(i).encode() for i in range(1, 40001)])

    def test_run_goes_on_over_a_new_agent(self):
        gate = self.rig.file("gate")
        process = self.rig.start(
            "run",
            "--",
            "sh",
            "-c",
            f"echo before; until [ -e {gate} ]; do sleep 0.05; done; echo after; exit 5",
        )
        self.assertEqual(process.stdout.readline(), b"before\n")
        agent = self.rig.agent_pid()
        self.rig.kill(agent)
        open(gate, "w", encoding="ascii").close()
        out, err = process.communicate(timeout=60)
        self.assertEqual((out, process.returncode), (b"after\n", 5), err)
        self.assertNotEqual(self.rig.agent_pid(), agent)

    def test_input_goes_on_over_a_new_head(self):
        process = self.rig.start("run", "--", "cat", stdin=subprocess.PIPE)
        process.stdin.write(b"one\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), b"one\n")
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        out, err = process.communicate(b"two\n", timeout=60)
        self.assertEqual((out, process.returncode), (b"two\n", 0), err)

    def test_no_input_is_lost_or_doubled_whoever_dies(self):
        data = random.Random(7).randbytes(6 << 20)
        slow = "i=0; while [ $i -lt 60 ]; do head -c 65536; i=$((i + 1)); sleep 0.02; done; cat"
        process = self.rig.start(
            "run", "--", "sh", "-c", slow, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        got = []
        reader = threading.Thread(target=lambda: got.append(process.stdout.read()))

        def write():
            process.stdin.write(data)
            process.stdin.close()

        writer = threading.Thread(target=write)
        reader.start()
        writer.start()
        chance = random.Random(8)
        for _ in range(2):
            for target in ("head", "agent"):
                time.sleep(chance.uniform(0.05, 0.3))  # a random moment
                if target == "head":
                    self.rig.kill(self.rig.head_pid())
                    self.rig.up()
                else:
                    before = self.rig.agent_pid()
                    self.rig.kill(before)
                    poll(lambda: self.rig.agent_pid() not in (0, before), "a new agent")
        self.assertEqual(process.wait(60), 0)
        writer.join()
        reader.join()
        self.assertEqual(len(got[0]), len(data))
        self.assertTrue(got[0] == data)

    def test_followers_of_logs_go_on(self):
        gate = self.rig.file("gate")
        job = self.rig.submit(
            "--", "sh", "-c", f"seq 1 1000; until [ -e {gate} ]; do sleep 0.05; done; seq 1001 2000"
        )
        follower = self.rig.start("logs", "-f", job)
        read = b""
        while not read.endswith(b"\n1000\n"):
            read += os.read(follower.stdout.fileno(), 65536)
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        open(gate, "w", encoding="ascii").close()
        rest, err = follower.communicate(timeout=60)
        self.assertEqual(follower.returncode, 0, err)
        self.assertEqual((read + rest).split(), [str(i).encode() for i in range(1, 2001)])

    def test_wait_goes_on_over_a_new_head(self):
        gate = self.rig.file("gate")
        job = self.rig.submit("--", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done; exit 9")
        before = self.rig.submit("--", "true")
        waiter = self.rig.start("wait", before, job)
        self.assertIn(b"succeeded", waiter.stdout.readline())  # it has a head, and waits on
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        open(gate, "w", encoding="ascii").close()
        out, err = waiter.communicate(timeout=60)
        self.assertEqual(waiter.returncode, 9, (out, err))

    def test_jobs_outlive_down_and_up(self):
        gate = self.rig.file("gate")
        job = self.rig.submit(
            "--", "sh", "-c", f"echo a; until [ -e {gate} ]; do sleep 0.05; done; echo b; exit 4"
        )
        self.rig.wait_for(job, "running")
        self.assertIn("1 running job goes on", self.rig.ok("down").text)
        self.assertEqual(
            [line for line in self.rig.processes().values() if line.split()[1] in ("up", "agent")],
            [],
        )
        open(gate, "w", encoding="ascii").close()
        self.rig.up()
        self.assertEqual(self.rig.cli("wait", job).code, 4)
        self.assertEqual(self.rig.ok("logs", job).out, b"a\nb\n")


class AutoStart(unittest.TestCase):
    def test_run_starts_a_head_when_none_runs(self):
        rig = Rig(up=False)
        try:
            done = rig.cli("run", "--gpus", "1", "--", "echo", "hello")
            self.assertEqual((done.code, done.out), (0, b"hello\n"), done.errors)
            self.assertIn("starting one", done.errors)
            self.assertEqual(rig.cli("run", "--", "echo", "again").errors, "")
        finally:
            rig.close()

    def test_looking_starts_nothing(self):
        rig = Rig(up=False)
        try:
            done = rig.cli("ps")
            self.assertNotEqual(done.code, 0)
            self.assertIn("billow up", done.errors)
            self.assertEqual(rig.processes(), {})
        finally:
            rig.close()

    def test_many_at_once_start_one_head(self):
        rig = Rig(up=False)
        try:
            runs = [rig.start("run", "--", "echo", str(i)) for i in range(6)]
            for i, run in enumerate(runs):
                out, err = run.communicate(timeout=60)
                self.assertEqual((run.returncode, out), (0, f"{i}\n".encode()), err)
            heads = [line for line in rig.processes().values() if " up " in line]
            self.assertEqual(len(heads), 1, heads)
        finally:
            rig.close()


class FoundAgain(unittest.TestCase):
    """Heads whose data lies elsewhere, and commands that are not told where."""

    def setUp(self):
        self.rig = Rig(up=False)
        self.home = os.path.join(self.rig.root, "home")
        self.plain = {
            "BILLOW_DATA": "",
            "HOME": self.home,
            "XDG_DATA_HOME": os.path.join(self.home, "share"),
        }

    def tearDown(self):
        for data in (os.path.join(self.rig.root, name) for name in ("a", "b", "home/share/billow")):
            if os.path.exists(data):
                self.rig.cli("down", "--stop-jobs", "--data", data, timeout=60)
        self.rig.close()

    def up(self, name):
        data = os.path.join(self.rig.root, name)
        done = self.rig.cli(
            "up",
            "--background",
            "--listen",
            "127.0.0.1:0",
            "--sim",
            "2xH100",
            "--data",
            data,
            env=self.plain,
            timeout=60,
        )
        self.assertEqual(done.code, 0, done)
        return data

    def cli(self, *args):
        return self.rig.cli(*args, env=self.plain, timeout=60)

    def test_plain_commands_find_the_head(self):
        data = self.up("a")
        done = self.cli("run", "--gpus", 1, "--", "echo", "hello")
        self.assertEqual((done.code, done.out, done.errors), (0, b"hello\n", ""), done)
        self.assertIn("already running: ", self.cli("up", "--background").text)
        self.assertIn(data, self.cli("down").text)
        self.assertEqual(self.rig.processes(), {})
        self.assertEqual(self.cli("ps").code, 69)

    def test_of_several_one_must_be_named(self):
        a, b = self.up("a"), self.up("b")
        for command in (("run", "--", "true"), ("ps",), ("down",)):
            done = self.cli(*command)
            self.assertNotEqual(done.code, 0)
            self.assertIn("2 of your heads", done.errors)
            self.assertIn(a, done.errors)
            self.assertIn("--data", done.errors)
        self.assertEqual(self.cli("down", "--data", b).code, 0)
        self.assertEqual(self.cli("run", "--", "true").code, 0)

    def test_one_that_was_killed_comes_back_where_it_was(self):
        data = self.up("a")
        with open(os.path.join(data, "head.json"), encoding="utf-8") as f:
            os.kill(json.load(f)["pid"], signal.SIGKILL)
        poll(lambda: self.cli("ps").code == 69, "nobody answers")
        done = self.cli("run", "--", "echo", "back")
        self.assertEqual((done.code, done.out), (0, b"back\n"), done)
        self.assertIn(f"data in {data}", done.errors)

    def test_down_ends_an_agent_that_has_just_died_or_begun(self):
        for _ in range(3):
            data = self.up("a")
            job = self.cli("submit", "-q", "--", "sleep", "100").text.strip()
            poll(
                lambda: json.loads(self.cli("describe", job, "--json").text)["state"] == "running",
                "it runs",
            )
            with open(os.path.join(data, "agent/lock"), encoding="ascii") as f:
                os.kill(int(f.read()), signal.SIGKILL)
            self.assertEqual(self.cli("down", "--stop-jobs").code, 0)
            poll(lambda: self.rig.processes() == {}, "nothing is left")


class Memory(RigTest):
    def test_more_than_asked_for_is_the_end(self):
        report = " ".join(f["text"] for f in self.rig.cli("doctor", "--json").json["findings"])
        if (
            "memory" not in report
            or "memory limits: not available" in report
            or "memory: not available" in report
        ):
            self.skipTest("control groups for memory are not available here: " + report)
        hog = (
            "x = []\nfor i in range(400): x.append(bytearray(b'1' * (1 << 20)))\nprint('got it"
            " all')"
        )
        done = self.rig.cli("run", "--mem", "64M", "--", "python3", "-c", hog, timeout=120)
        self.assertEqual(done.code, 137, done)
        self.assertIn("memory", done.errors)
        self.assertEqual(self.rig.cli("run", "--mem", "64M", "--", "echo", "small").out, b"small\n")
