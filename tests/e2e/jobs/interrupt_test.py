"""Ctrl-C at every place where a command waits: the terminal is as before, one sentence says what became of the job, the
exit code is that of the signal, and nothing stays behind."""
import os
import pty
import random
import re
import signal
import termios
import unittest

from rig import Rig, poll
from terminal_test import Screen

ENDED_BY_CTRL_C = -signal.SIGINT  # a shell says 130


def usual_terminal():
    master, slave = pty.openpty()
    try:
        return termios.tcgetattr(slave)
    finally:
        os.close(master)
        os.close(slave)


class Interrupts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.usual = usual_terminal()

    def setUp(self):
        self.rig = Rig(sim="1xH100")
        self.rig.environment["XDG_CACHE_HOME"] = os.path.join(self.rig.root, "cache")
        self.screens = []
        self.paused = 0

    def tearDown(self):
        self.resume_head()
        for screen in self.screens:
            screen.close()
        self.rig.close()

    def screen(self, *args, **options):
        self.screens.append(Screen(self.rig, *args, cols=200, **options))
        return self.screens[-1]

    def interrupt(self, screen, sentence, code=ENDED_BY_CTRL_C, as_key=False):
        """Ctrl-C once the command hears it, and what must hold afterwards."""
        if not as_key:
            poll(lambda: self.hears(screen.process.pid), "the command to wait")
        screen.type("\x03")
        self.assertEqual(screen.end(), code, screen.text)
        self.assertRegex(screen.text, sentence)
        self.assertEqual(termios.tcgetattr(screen.master), self.usual, "the terminal")

    @staticmethod
    def hears(pid):
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            masks = re.findall(r"^Sig(?:Blk|Cgt):\s*(\w+)", f.read(), re.M)
        return any(int(mask, 16) & 1 << (signal.SIGINT - 1) for mask in masks)

    def running(self, *options):
        job = self.rig.submit("--name", "long", *options, "--", "sh", "-c", "echo up; sleep 600")
        self.rig.wait_for(job, "running")
        return job

    def pause_head(self):
        """The head does not answer from now on; what asks it waits."""
        self.paused = self.rig.head_pid()
        os.kill(self.paused, signal.SIGSTOP)

    def resume_head(self):
        if self.paused:
            os.kill(self.paused, signal.SIGCONT)
        self.paused = 0

    # ---- jobs that go on
    def test_wait(self):
        job = self.running()
        waits = self.screen("wait", "long")
        waits.expect("running")
        self.interrupt(
            waits, rf"billow: no longer waiting; job {job} continues \(`billow stop {job}`"
        )
        self.assertEqual(self.rig.job(job)["state"], "running")

    def test_submit_and_wait(self):
        waits = self.screen("submit", "--wait", "--", "sh", "-c", "echo up; sleep 600")
        waits.expect("job 1 ")
        waits.expect("running")
        self.interrupt(waits, "(no longer waiting|submitted); job 1 continues")
        self.assertFalse(self.rig.job(1)["final"])
        done = self.rig.cli("submit", "--wait", "--", "sh", "-c", "exit 7")
        self.assertEqual(done.code, 7, done)
        self.assertRegex(done.text, r"^job 2 \w+\njob 2 failed")

    def test_logs(self):
        job = self.running()
        follows = self.screen("logs", "-f", "long")
        follows.expect("up")
        self.interrupt(follows, f"billow: no longer following; job {job} continues")
        self.assertEqual(self.rig.job(job)["state"], "running")

    def test_attach(self):
        job = self.running()
        attached = self.screen("attach", "long")
        attached.expect("Ctrl-C detaches")
        self.interrupt(attached, f"detached from job {job}, which keeps running", 0)

    def test_watch_and_top(self):
        job = self.running()
        watches = self.screen("watch", "long")
        watches.expect("running")
        self.interrupt(watches, f"no longer watching; job {job} continues", 0)
        top = self.screen("top")
        top.expect("GPU")
        self.interrupt(top, ".", 0)

    def test_port_forward(self):
        job = self.running()
        forwards = self.screen("port-forward", "long", "0:8888")
        forwards.expect("→")
        self.interrupt(forwards, f"no longer forwarding; job {job} continues", 0)

    def test_stop_asks_and_waits(self):
        job = self.running("--sync")
        asks = self.screen("stop", "long")
        asks.expect("Stop it now? [y/N]")
        self.interrupt(asks, f"job {job} was not stopped")
        self.assertEqual(self.rig.job(job)["state"], "running")
        stubborn = self.rig.submit("--", "sh", "-c", "trap '' TERM; echo up; sleep 600")
        poll(lambda: "up" in self.rig.cli("logs", stubborn).text, "its output")
        waits = self.screen("stop", "--wait", str(stubborn))
        poll(lambda: self.rig.job(stubborn)["tasks"][0]["state"] == "stopping", "the signal")
        self.interrupt(waits, f"no longer waiting; job {stubborn} is being stopped")

    # ---- jobs that do not start
    def test_run_while_the_job_waits(self):
        self.running("--gpus", 1)
        waits = self.screen("run", "--gpus", "1", "--", "true")
        waits.expect("is queued")
        self.interrupt(waits, "billow: job 2 was cancelled", 130)
        self.assertEqual(self.rig.job(2)["state"], "stopped")

    def test_before_and_while_the_job_is_submitted(self):
        job = self.running()
        self.pause_head()
        for words in (
            ("run", "--after", job, "--", "true"),
            ("submit", "--after", job, "--", "true"),
        ):
            before = self.screen(*words)
            self.interrupt(before, "billow: nothing was submitted")
        while_ = self.screen("submit", "--", "true")
        self.interrupt(
            while_,
            "billow: (nothing was submitted|the job may have been submitted; see `billow ps`)",
        )
        self.resume_head()
        self.assertLessEqual(len(self.rig.json("ps", "-a")["jobs"]), 2)

    def test_while_a_head_is_started(self):
        elsewhere = {"BILLOW_DATA": os.path.join(self.rig.root, "elsewhere")}
        starts = self.screen("run", "--", "true", env=elsewhere)
        starts.expect("starting one in the background")
        # On a busy machine the head may be there before the key.
        self.interrupt(
            starts,
            "billow: (nothing was submitted|the job may have been submitted; see `billow ps`)",
        )
        # The head runs or does not; in neither case is anything half done.
        self.rig.ok("up", "--background", "--listen", "127.0.0.1:0", env=elsewhere)
        jobs = self.rig.json("ps", "-a", env=elsewhere)["jobs"]
        self.assertLessEqual(len(jobs), "may have been submitted" in starts.text)
        self.rig.ok("down", "--stop-jobs", env=elsewhere)

    def test_deploy(self):
        waits = self.screen("deploy", "slow", "--", "sleep", "600")
        waits.expect("slow")
        waits.expect("does not answer its health check")
        self.interrupt(waits, r"slow is still starting \(`billow delete slow` would remove it\)")
        self.rig.ok("delete", "slow")

    # ---- files
    def test_a_copy_from_a_job_leaves_no_part_of_a_file(self):
        job = self.running("--sync")
        with open(self.rig.file("large"), "wb") as f:
            f.write(random.Random(3).randbytes(48 << 20))
        self.rig.ok("cp", "large", "long:large", timeout=120)
        into = os.path.join(self.rig.files, "into")
        os.makedirs(into)
        copies = self.screen("cp", f"{job}:large", "into/")
        poll(lambda: os.listdir(into), "the part of a file")
        self.pause_head()
        copies.type("\x03")
        code = copies.end()
        left = os.listdir(into)
        if code != 0:  # else it was complete before
            self.assertEqual((code, left), (ENDED_BY_CTRL_C, []), copies.text)
            self.assertIn("the copy was interrupted; only the files that are complete", copies.text)
        self.assertNotIn(".billow-", " ".join(left))

    def test_a_copy_into_a_job(self):
        job = self.running("--sync")
        with open(self.rig.file("small"), "wb") as f:
            f.write(b"x" * 1000)
        self.pause_head()
        waits = self.screen("cp", "small", f"{job}:small")
        self.interrupt(waits, f"nothing was copied into job {job}")

    def test_an_environment_that_was_not_saved_leaves_no_copy(self):
        place = os.path.join(self.rig.files, "venv")
        os.makedirs(place)
        with open(os.path.join(place, "data"), "wb") as f:
            f.write(random.Random(4).randbytes(8 << 20))
        cache = os.path.join(self.rig.root, "cache", "billow")
        staged = lambda: [n for n in os.listdir(cache) if n.startswith("env-")]
        saves = self.screen("env", "save", "torch", "venv")
        poll(lambda: os.path.isdir(cache) and staged(), "the staging directory")
        self.pause_head()
        saves.type("\x03")
        code = saves.end()
        if code != 0:
            self.assertEqual(code, ENDED_BY_CTRL_C, saves.text)
            self.assertIn("billow: the environment was not saved", saves.text)
        self.assertEqual(staged(), [])

    # ---- questions
    def test_a_token_that_is_not_given(self):
        asks = self.screen("login", "http://127.0.0.1:1")
        asks.expect("token: ")
        poll(
            lambda: not termios.tcgetattr(asks.master)[3] & termios.ECHO,
            "the terminal to hide what is typed",
        )
        self.interrupt(asks, "no token was given; nothing was changed")

    def test_a_secret_that_is_not_given(self):
        asks = self.screen("secret", "set", "KEY")
        asks.expect("(not shown): ")
        asks.type("abc")
        self.interrupt(asks, "nothing was changed", as_key=True)
        self.assertNotIn("abc", asks.text)
        self.assertEqual(self.rig.json("secret", "list")["secrets"], [])

    def test_a_program_that_ignores_it_goes_on(self):
        self.running()
        waits = self.rig.start("wait", "long", preexec_fn=lambda: signal.signal(2, signal.SIG_IGN))
        waits.send_signal(signal.SIGINT)
        self.rig.ok("stop", "long")
        self.assertEqual(waits.wait(30), 143)


if __name__ == "__main__":
    unittest.main()
