"""A node whose agent is not root: jobs of several users, started by the root helper of the node."""
import os
import pwd
import stat
import unittest

from rig import alive, poll
from rootless import AGENT, RootlessRig
from terminal_test import Screen


class RootlessCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, for the root helper")
        cls.rig = RootlessRig()
        cls.tokens = {
            name: cls.rig.add_user(name, unix_name)
            for name, unix_name in (("ana", "games"), ("ben", "daemon"), ("mal", "mail"))
        }

    @classmethod
    def tearDownClass(cls):
        cls.rig.close()

    def cli(self, who, *args, **options):
        env = {**options.pop("env", {}), **({"BILLOW_TOKEN": self.tokens[who]} if who else {})}
        return self.rig.cli(*args, env=env, **options)

    def run_as(self, who, *command, options=(), **more):
        return self.cli(who, "run", "--cwd", "/", "--cpus", "0.4", *options, "--", *command, **more)

    def sh(self, who, script, options=(), **more):
        return self.run_as(who, "sh", "-c", script, options=options, **more)

    def submit(self, who, script, *options):
        done = self.cli(
            who, "submit", "-q", "--cwd", "/", "--cpus", "0.4", *options, "--", "sh", "-c", script
        )
        self.assertEqual(done.code, 0, done)
        job = int(done.text)
        self.rig.wait_for(job, "running")
        return job


def uids(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        return [line.split()[1:] for line in f if line.startswith(("Uid:", "Gid:", "CapEff:"))]


class Jobs(RootlessCase):
    def test_the_agent_is_not_root_and_jobs_are_their_users(self):
        number = str(AGENT)
        self.assertEqual(uids(self.rig.agent.pid)[0], [number] * 4)
        self.assertEqual(int(uids(self.rig.agent.pid)[2][0], 16), 0)
        for who, name in (("ana", "games"), ("ben", "daemon")):
            account = pwd.getpwnam(name)
            done = self.sh(
                who, "id -u; id -g; id -G; echo $HOME $USER; grep NoNewPrivs /proc/self/status"
            )
            self.assertEqual(done.code, 0, done)
            lines = done.text.splitlines()
            self.assertEqual(lines[:2], [str(account.pw_uid), str(account.pw_gid)])
            self.assertNotIn("0", lines[2].split())
            self.assertNotIn(number, lines[2].split())
            self.assertEqual(lines[3], f"{account.pw_dir} {name}")
            self.assertRegex(lines[4], r"1$")

    def test_output_input_and_exit_codes(self):
        done = self.sh("ana", "read line; echo out $line; echo err >&2; exit 7", stdin=b"words\n")
        self.assertEqual((done.code, done.out), (7, b"out words\n"), done)
        self.assertIn("err", done.errors)
        self.assertEqual(self.sh("ben", "kill -9 $$").code, 137)
        self.assertEqual(self.run_as("ben", "/no/such/program").code, 127)
        big = self.sh("ana", "head -c 3000000 /dev/zero | tr '\\0' x")
        self.assertEqual(len(big.out), 3000000)

    def test_a_terminal(self):
        env = {"BILLOW_TOKEN": self.tokens["ana"]}
        screen = Screen(self.rig, "run", "-t", "--cwd", "/", "--", "sh", rows=31, cols=97, env=env)
        screen.expect("$ ", 60)
        screen.type("tty; stty size; id -un\n")
        screen.expect("/dev/pts/")
        screen.expect("31 97")
        screen.expect("games")
        screen.type("exit 4\n")
        self.assertEqual(screen.end(), 4)

    def test_signals_stops_and_time_limits(self):
        script = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
        job = self.submit("ana", script)
        poll(lambda: "ready" in self.cli("ana", "logs", job).text, "its handler")
        self.assertEqual(self.cli("ana", "stop", "--wait", job).code, 0)
        self.assertIn("bye", self.cli("ana", "logs", job).text)
        self.assertEqual(self.rig.job(job)["state"], "stopped")
        done = self.run_as("ben", "sleep", "60", options=("--time", "1s"))
        self.assertNotEqual(done.code, 0)
        self.assertIn("time", done.errors)

    def test_jobs_are_suspended_and_resumed(self):
        job = self.submit("ana", "while :; do echo beat; sleep 0.1; done")

        def beats():
            return len(self.cli("ana", "logs", job).text.splitlines())

        poll(beats, "its first beat")
        self.assertEqual(self.cli("ana", "suspend", job).code, 0)
        self.rig.wait_for(job, "suspended")
        seen = beats()
        self.rig.kill_agent()
        self.rig.start_agent()
        self.assertEqual(self.cli("ana", "resume", job).code, 0)
        poll(lambda: beats() > seen, "it goes on")
        self.assertEqual(self.cli("ana", "stop", "--wait", "-f", job).code, 0)

    def test_whole_gpus(self):
        done = self.run_as("ana", "nvidia-smi", "-L", options=("--gpus", "2"))
        self.assertEqual(done.text.count("L4"), 2, done)

    def test_limits_hold(self):
        allocate = "x = bytearray(400 << 20); print(len(x))"
        done = self.run_as("ana", "python3", "-c", allocate, options=("--mem", "100M"))
        self.assertNotEqual(done.code, 0, done)
        self.assertIn("memory", done.errors)
        fork = "import os\nfor i in range(200):\n  if os.fork() == 0: os.execvp('sleep', ['sleep', '5'])"
        done = self.run_as("ben", "python3", "-c", fork, options=("--max-processes", "64"))
        self.assertIn("BlockingIOError", done.errors, done)

    def test_jobs_do_not_see_each_other(self):
        job = self.submit("ana", "echo secret > /tmp/mine; echo ready; exec sleep 600")
        poll(lambda: "ready" in self.cli("ana", "logs", job).text, "its file")
        done = self.sh("ben", "ls /tmp; ls /proc | grep -c '^[0-9]'; pgrep -f 'sleep 600'")
        self.assertNotIn("mine", done.text)
        self.assertFalse(os.path.exists("/tmp/mine"))
        count = int(next(line for line in done.text.splitlines() if line.isdigit()))
        self.assertLess(count, 10, done)
        # The agent reads logs and records, and writes none of them.
        tasks = os.path.join(self.rig.state, "tasks")
        for folder, names, files in os.walk(tasks):
            for name in (*names, *files):
                info = os.lstat(os.path.join(folder, name))
                self.assertEqual(info.st_uid, 0, name)
                self.assertEqual(stat.S_IMODE(info.st_mode) & 0o027, 0, name)
        self.assertEqual(self.cli("ana", "stop", "--wait", "-f", job).code, 0)

    def test_what_ended_leaves_nothing(self):
        for who in ("ana", "ben"):
            self.assertEqual(self.sh(who, "echo x > /tmp/x; mkdir -p /tmp/a/b").code, 0)

        poll(lambda: not self.rig.places(), "directories of ended jobs", 15)
        poll(lambda: not self.rig.groups_left(), "control groups of ended jobs", 15)

    def test_files_follow_a_job_and_come_back(self):
        folder = os.path.join(self.rig.root, "project")
        os.makedirs(os.path.join(folder, "sub"))
        with open(os.path.join(folder, "sub/words"), "w", encoding="ascii") as f:
            f.write("brought\n")
        with open(os.path.join(folder, "large"), "wb") as f:
            f.write(os.urandom(9 << 20))
        script = "cat sub/words; id -un > made; stat -c %U sub/words large; pwd"
        words = ("--sync", "--output", "made", "--", "sh", "-c", script)
        done = self.cli("ana", "submit", "-q", *words, cwd=folder)
        self.assertEqual(done.code, 0, done)
        job = int(done.text)
        said = self.cli("ana", "wait", job)
        lines = self.cli("ana", "logs", job).text.splitlines()
        self.assertEqual((said.code, lines[:3]), (0, ["brought", "games", "games"]), said)
        got = os.path.join(self.rig.root, "got")
        self.assertEqual(self.cli("ana", "cp", f"{job}:made", got).code, 0)
        with open(got, encoding="ascii") as f:
            self.assertEqual(f.read(), "games\n")
        poll(lambda: not os.path.exists(lines[3]), "its directory is removed")

    def test_secrets(self):
        self.rig.ok("secret", "set", "key", "--project", "default", stdin=b"opensesame")
        done = self.sh(
            "ana",
            'cat "$key_FILE"; stat -c " %a %U" "$key_FILE"; echo "$key_FILE $KEY"',
            options=("--secret", "key:file", "--secret", "key=KEY"),
        )
        self.assertIn("400 games", done.text, done)
        self.assertNotIn("opensesame", done.text)  # its log shows ***
        self.assertIn("***", done.text)
        path = [w for w in done.text.split() if w.startswith("/")][0]
        self.assertIn("secrets-", path)
        poll(lambda: not os.path.exists(os.path.dirname(path)), "the secret is removed")

    def test_what_the_helper_does_not_offer_is_refused_with_what_to_do(self):
        for options, word in (
            (("--image", "docker.io/library/alpine"), "--image"),
            (("--isolation", "strict"), "strict"),
            (("--gpus", "0.5"), "shares of a GPU"),
            (("--disk", "1GB"), "--disk"),
        ):
            done = self.run_as("ana", "true", options=options)
            self.assertNotEqual(done.code, 0, done)
            self.assertIn("agent is not root", done.errors, options)
            self.assertIn(word, done.errors)

    def test_nobody_is_root_and_denied_accounts_stay_denied(self):
        forbidden = f"/tmp/must-not-run-{os.getpid()}"
        for who in (None, "mal"):
            done = self.run_as(who, "touch", forbidden)
            self.assertEqual(done.code, 126, done)
        self.assertFalse(os.path.exists(forbidden))


class Restarts(RootlessCase):
    def test_jobs_survive_agent_and_helper(self):
        job = self.submit("ana", "i=0; while :; do i=$((i+1)); echo beat $i; sleep 0.1; done")

        def beats():
            return len(self.cli("ana", "logs", job).text.splitlines())

        poll(beats, "its first beat")
        self.rig.kill_agent()
        self.rig.start_agent()
        seen = beats()
        poll(lambda: beats() > seen, "the job goes on after the agent was killed")
        self.rig.kill_helper()
        self.rig.start_helper()
        done = self.sh("ben", "echo new")
        self.assertEqual(done.text, "new\n", done)
        self.rig.kill_agent()
        self.rig.kill_helper()
        self.rig.start_helper()
        self.rig.start_agent()
        self.assertEqual(self.cli("ana", "stop", "--wait", job).code, 0)
        self.assertEqual(self.rig.job(job)["state"], "stopped")

    def test_the_end_of_a_job_that_ended_without_an_agent_is_reported(self):
        gate = f"/var/tmp/billow-gate-{os.getpid()}"  # a job's /tmp is its own
        self.addCleanup(os.unlink, gate)
        job = self.submit("ben", f"until [ -e {gate} ]; do sleep 0.1; done; exit 5")
        self.rig.kill_agent()
        with open(gate, "w", encoding="ascii"):
            pass
        poll(lambda: "billow-supervise" not in str(self.rig.processes()), "its end", 20)
        self.rig.start_agent()
        self.rig.wait_for(job, "failed")
        self.assertEqual(self.cli("ben", "wait", job).code, 5)

    def test_without_the_helper_jobs_end_with_a_clear_error(self):
        self.rig.kill_helper()
        try:
            done = self.run_as("ana", "true")
            self.assertNotEqual(done.code, 0)
            self.assertIn("the root helper of this node does not answer", done.errors)
        finally:
            self.rig.start_helper()
        self.assertEqual(self.run_as("ana", "true").code, 0)

    def test_a_supervisor_that_is_killed_takes_its_job_along(self):
        job = self.submit("ana", "exec sleep 600")

        def supervisors():
            return [p for p, line in self.rig.processes().items() if "billow-supervise" in line]

        poll(supervisors, "its supervisor")
        self.rig.kill(supervisors()[0])
        self.rig.wait_for(job, "lost")
        poll(
            lambda: not any("sleep 600" in line for line in self.rig.processes().values()),
            "nothing of the job is left",
        )
        poll(lambda: not self.rig.places(), "its directories are removed")
        self.assertTrue(alive(self.rig.agent.pid))


if __name__ == "__main__":
    unittest.main()
