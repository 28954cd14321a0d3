"""Terminals through a real PTY pair: echo, size, Ctrl-C, leaving and coming back."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from rig import Rig, poll


class Screen:
    """A terminal with a command of ours in it."""

    def __init__(self, rig, *args, rows=24, cols=80, env=None):
        self.master, slave = pty.openpty()
        self.resize(rows, cols)
        self.process = subprocess.Popen(
            rig.command(*args),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=rig.files,
            start_new_session=True,
            env={**rig.environment, "TERM": "xterm", "PS1": "$ ", **(env or {})},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        rig.started.append(self.process)
        os.close(slave)
        self.text = ""

    def resize(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def expect(self, wanted, seconds=30):
        """Reads until `wanted` is seen; what came before it is returned and forgotten."""
        deadline = time.monotonic() + seconds
        while wanted not in self.text:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"{wanted!r} was not shown, only {self.text!r}")
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            if not data:
                raise AssertionError(f"{wanted!r} was not shown before the end, only {self.text!r}")
            self.text += data.decode(errors="replace")
        before, _, self.text = self.text.partition(wanted)
        return before

    def end(self, seconds=30):
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read_on(0.01)
        while self.read_on(0):  # what it wrote last
            pass
        return self.process.wait(1)

    def read_on(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.text += data.decode(errors="replace")
        return bool(data)

    def close(self):
        os.close(self.master)


class Terminal(unittest.TestCase):
    def setUp(self):
        self.rig = Rig(SHELL="/bin/sh")
        self.screens = []

    def tearDown(self):
        for screen in self.screens:
            screen.close()
        self.rig.close()

    def screen(self, *args, **options):
        self.screens.append(Screen(self.rig, *args, **options))
        return self.screens[-1]

    def test_a_shell_echoes_and_exits_with_its_code(self):
        shell = self.screen("shell")
        shell.type("echo $((6 * 7))\n")
        shell.expect("42")
        shell.type("tty && exit 6\n")
        shell.expect("/dev/pts/")
        self.assertEqual(shell.end(), 6)

    def test_a_shell_finds_the_programs_that_a_job_finds(self):
        path = self.rig.ok("run", "--gpus", 1, "--", "sh", "-c", "echo $PATH").text.strip()
        shell = self.screen("shell", "--gpus", 1)
        shell.type('nvidia-smi -L; echo "<$PATH>"; exit 0\n')
        shell.expect("GPU 0: NVIDIA H100")
        shell.expect(f"<{path}>")
        self.assertEqual(shell.end(), 0)

    def test_the_size_is_that_of_the_window_and_follows_it(self):
        shell = self.screen("shell", rows=31, cols=101)
        shell.type("stty size; echo o''k\n")
        self.assertIn("31 101", shell.expect("ok"))
        shell.resize(40, 120)
        os.kill(shell.process.pid, signal.SIGWINCH)
        # The size travels beside the input; ask until it is there.
        shell.type("until [ \"$(stty size)\" = '40 120' ]; do sleep 0.05; done; echo res''ized\n")
        shell.expect("resized")
        shell.type("exit\n")
        self.assertEqual(shell.end(), 0)

    def test_two_windows_show_what_fits_the_smaller_one(self):
        def size_becomes(screen, rows, cols):
            wanted = f"{rows} {cols}"
            screen.type(
                f"until [ \"$(stty size)\" = '{wanted}' ]; do sleep 0.05; done; echo f''its\n"
            )
            screen.expect("fits")

        first = self.screen("run", "-t", "--", "sh", rows=24, cols=90)
        first.type("echo on''e\n")
        first.expect("one")
        (job,) = self.rig.json("ps")["jobs"]
        second = self.screen("attach", job["id"], rows=30, cols=120)
        second.type("echo be''side\n")
        first.expect("beside")
        size_becomes(first, 24, 90)
        # Rows of one and columns of the other: each window shows the whole terminal.
        second.resize(20, 130)
        os.kill(second.process.pid, signal.SIGWINCH)
        size_becomes(first, 20, 90)
        second.type("\x10\x11")
        self.assertEqual(second.end(), 0)
        size_becomes(first, 24, 90)
        # A head that restarts learns the sizes again.
        third = self.screen("attach", job["id"], rows=22, cols=70)
        third.type("echo be''side again\n")
        first.expect("beside again")
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        third.resize(40, 200)
        os.kill(third.process.pid, signal.SIGWINCH)
        size_becomes(first, 24, 90)
        third.resize(21, 69)
        os.kill(third.process.pid, signal.SIGWINCH)
        size_becomes(first, 21, 69)
        first.type("exit 4\n")
        self.assertEqual((first.end(), third.end()), (4, 4))

    def test_ctrl_c_reaches_the_program_and_not_us(self):
        shell = self.screen("shell")
        shell.type(
            "sh -c 'echo be\"\"gin; exec sleep 600'\n"
        )  # what says so has the terminal by then
        shell.expect("begin")
        shell.type("\x03")
        shell.type("echo still $((1 + 1)) here\n")
        shell.expect("still 2 here")
        shell.type("exit 3\n")
        self.assertEqual(shell.end(), 3)

    def test_leave_and_come_back(self):
        shell = self.screen("run", "-t", "--", "sh")
        shell.type("x=kept; echo on''e\n")
        shell.expect("one")
        shell.type("\x10\x11")
        shell.expect("billow attach")
        self.assertEqual(shell.end(), 0)
        (job,) = self.rig.json("ps")["jobs"]
        self.assertEqual(job["state"], "running")
        again = self.screen("attach", job["id"])
        again.type("echo $x and back\n")
        again.expect("kept and back")
        again.type("exit 11\n")
        self.assertEqual(again.end(), 11)
        self.assertEqual(self.rig.cli("wait", job["id"]).code, 11)

    def test_one_terminal_is_shared_and_others_watch(self):
        shell = self.screen("run", "-t", "--", "sh")
        shell.type("echo on''e\n")
        shell.expect("one")
        (job,) = self.rig.json("ps")["jobs"]
        second = self.screen("attach", job["id"])
        watcher = self.screen("attach", "--watch", job["id"])
        self.rig.ok("user", "create", "mia", "--unix-name", "nobody")
        self.rig.ok("project", "member", "default", "mia")
        self.rig.environment["BILLOW_TOKEN"] = self.rig.json(
            "token", "create", "mia-watches", "--user", "mia"
        )["token"]
        member = self.screen("attach", job["id"])
        del self.rig.environment["BILLOW_TOKEN"]
        member.expect("you can watch")
        second.type("echo fr''om the second\n")
        for screen in (shell, second, watcher, member):
            screen.expect("from the second")
        # What those that watch type reaches nobody, and their Ctrl-C ends their own looking alone.
        for screen in (watcher, member):
            screen.type("echo fr''om a watcher\n")
        shell.type("echo st''ill here\n")
        for screen in (shell, second, watcher, member):
            self.assertNotIn("from a watcher", screen.expect("still here"))
        for screen in (watcher, member):
            screen.type("\x03")
            self.assertEqual(screen.end(), 0, screen.text)
        shell.type("exit 5\n")
        self.assertEqual((shell.end(), second.end()), (5, 5))

    def test_a_terminal_survives_its_head(self):
        shell = self.screen("shell")
        shell.type("echo on''e\n")
        shell.expect("one")
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        shell.type("echo tw''o\n")
        shell.expect("two")
        shell.type("exit 2\n")
        self.assertEqual(shell.end(), 2)

    def test_a_suspended_shell_says_so_and_a_key_wakes_it(self):
        shell = self.screen("shell", "--gpus", 1, "--name", "dev")
        shell.type("echo be''gun\n")
        shell.expect("begun")
        self.rig.ok("suspend", "--wait", "--reason", "lunch", "dev")
        shell.expect("suspended: lunch; press a key to resume it")
        shell.type("echo a''wake\n")
        shell.expect("awake")
        shell.type("exit 3\n")
        self.assertEqual(shell.end(), 3)

    def test_an_idle_shell_is_warned_in_its_terminal_before_it_is_suspended(self):
        self.rig.ok("idle", "set", "--warn", "5s", "--suspend", "2m", "--stop", "1h")
        shell = self.screen("shell", "--gpus", 1, "--name", "dev")
        shell.type("echo be''gun\n")
        shell.expect("begun")
        self.assertIn("idle ", shell.expect("; suspending in ", 90))
        shell.type("exit 3\n")
        self.assertEqual(shell.end(), 3)

    def test_attach_says_how_to_leave_and_ctrl_c_leaves(self):
        job = self.rig.submit("--", "sh", "-c", "echo ready; exec sleep 600")
        watcher = self.screen("attach", job)
        watcher.expect(f"attached to job {job}; Ctrl-C detaches, and the job keeps running")
        watcher.type("\x03")
        watcher.expect("keeps running; reattach with")
        self.assertEqual(watcher.end(), 0)
        self.assertEqual(self.rig.job(job)["state"], "running")
        self.rig.ok("stop", "--force", "--wait", job)

    def test_suspend_waits_for_a_job_that_is_just_starting(self):
        job = self.rig.submit("--gpus", 1, "--", "sleep", 600)
        self.rig.ok("suspend", "--wait", job)
        self.assertEqual(self.rig.job(job)["state"], "suspended")
        self.rig.ok("stop", "--force", "--wait", job)

    def test_a_run_that_is_ended_was_not_cancelled_while_waiting(self):
        for _ in range(5):
            mark = self.rig.file("began")
            run = self.rig.start("run", "--", "sh", "-c", f"touch {mark}; exec sleep 600")
            poll(lambda: os.path.exists(mark), "its start")
            run.send_signal(signal.SIGTERM)
            run.wait(30)
            os.unlink(mark)
        jobs = self.rig.json("ps", "-a")["jobs"]
        poll(lambda: all(self.rig.job(j["id"])["final"] for j in jobs), "their ends")
        for job in jobs:
            self.assertNotIn("while waiting", self.rig.job(job["id"])["reason"])

    def test_colours_only_on_a_terminal(self):
        self.rig.ok("run", "--", "true")
        table = self.screen("ps", "-a")
        self.assertEqual(table.end(), 0)
        self.assertIn("\x1b[", table.text)
        self.assertNotIn(b"\x1b[", self.rig.ok("ps", "-a").out)
