"""`billow top` and `billow watch` in real terminals (tmux): what they show, what they change, and that
they give the terminal back."""

import itertools
import os
import re
import shutil
import signal
import subprocess
import unittest

from rig import BILLOW, Rig, poll

CHATTY = "i=0; while true; do i=$((i+1)); echo step $i/1000 needle-$((i%7)); sleep 0.2; done"


class Terminal:
    """A screen of tmux on a server of its own."""

    number = itertools.count()

    def __init__(self, rig, cols=80, rows=24, **env):
        # A socket of its own: the server of the last one may still be about to end.
        self.socket = os.path.join(rig.root, f"tmux-{next(self.number)}")
        self.environment = {**rig.environment, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        self.environment.pop("TMUX", None)
        settings = " ".join(f"{k}={v}" for k, v in env.items())
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", cols, "-y", rows, "-s", "t", "sh")
        self.tmux("set", "-g", "status", "off")
        self.tmux("set", "-g", "window-size", "manual")
        self.resize(cols, rows)
        self.settings = settings
        self.type("PS1='ready> '\n")
        self.at_prompt()

    def tmux(self, *args):
        done = subprocess.run(
            ["tmux", "-u", "-S", self.socket, *map(str, args)],
            env=self.environment,
            capture_output=True,
            timeout=20,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"tmux {args}: {done.stderr!r}")
        return done.stdout.decode(errors="replace")

    def resize(self, cols, rows):
        self.tmux("resize-window", "-t", "t", "-x", cols, "-y", rows)

    def run(self, *words):
        self.type(f"env {self.settings} {BILLOW} {' '.join(map(str, words))}")
        self.keys("Enter")

    def type(self, text):
        self.tmux("send-keys", "-t", "t", "-l", text)

    def keys(self, *names):
        self.tmux("send-keys", "-t", "t", *names)

    def click(self, row, col):
        self.type(f"\x1b[<0;{col + 1};{row + 1}M")

    def lines(self, *options):
        return self.tmux("capture-pane", "-p", "-t", "t", *options).split("\n")[:-1]

    def text(self):
        return "\n".join(self.lines())

    def shows(self, what, seconds=30):
        """Waits until the screen has this text, or all of these."""
        wanted = [what] if isinstance(what, str) else what

        def found():
            seen = self.text()
            return all(re.search(w, seen) for w in wanted)

        try:
            poll(found, f"{wanted} on the screen", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}") from None
        return self.lines()

    def at_prompt(self):
        """The program has left, and the shell is back."""
        try:
            poll(lambda: self.text().rstrip().endswith("ready>"), "the prompt", 30)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}") from None

    def pane_pid(self):
        return int(self.tmux("list-panes", "-t", "t", "-F", "#{pane_pid}").strip())

    def program_pid(self):
        """The program that runs in the shell of this terminal."""
        shell = self.pane_pid()
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as f:
                        if int(f.read().rsplit(")", 1)[1].split()[1]) == shell:
                            return int(name)
                except OSError:
                    continue
        return 0

    def close(self):
        self.tmux("kill-server")


@unittest.skipUnless(shutil.which("tmux"), "needs tmux")
class Screen(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(sim="8xH100")
        cls.chatty = cls.rig.submit("--gpus", 1, "--name", "chatty", "--", "sh", "-c", CHATTY)
        cls.big = cls.rig.submit("--gpus", 4, "--name", "big", "--", "sleep", 3000)
        for job in (cls.chatty, cls.big):
            cls.rig.wait_for(job, "running")
        cls.waiting = cls.rig.submit("--gpus", 8, "--name", "patient", "--", "true")

    @classmethod
    def tearDownClass(cls):
        cls.rig.close()

    def terminal(self, *size, **env):
        terminal = Terminal(self.rig, *size, **env)
        self.addCleanup(terminal.close)
        return terminal

    def test_tabs_cursor_describe_and_log(self):
        t = self.terminal()
        t.run("top")
        lines = t.shows(["3 of 8 GPUs free", "2 running, 1 waiting", "8 GPUs"])
        self.assertEqual(len(lines), 24)
        self.assertTrue(all(len(line) <= 80 for line in lines), lines)
        t.type("3")
        t.shows(["patient", "job .* is queued", "1 waiting job"])
        t.keys("Tab")
        t.shows("there are no endpoints")
        t.type("2/chatty")
        t.keys("Enter")
        t.shows(["1 job, active", "2 hidden"])
        t.keys("Enter")
        t.shows(["GPU use", "command", "submitted"])
        t.keys("Escape")
        t.shows("2 Jobs 3")
        t.type("l")
        t.shows(["log of job", r"step \d+/1000", "following"])
        t.type("k")
        t.shows(r"line \d+ of \d+")
        t.type("/needle-3")
        t.keys("Enter")
        t.shows('search "needle-3"')
        t.type("q")
        t.shows("Enter describe")
        t.type("?")
        t.shows("press any key to continue")
        t.type("xq")
        t.at_prompt()
        self.assertNotIn("GPUs free", t.text(), "the screen of before is back")

    def test_a_click_chooses_and_the_size_changes_live(self):
        t = self.terminal()
        t.run("top")
        lines = t.shows("2 Jobs 3")
        t.click(1, lines[1].index("2 Jobs"))
        lines = t.shows(["patient", "chatty"])
        row = next(i for i, line in enumerate(lines) if " big " in line)
        t.click(row, 5)
        t.click(row, 5)
        t.shows(f"job {self.big} big")
        t.keys("Escape")
        t.resize(200, 50)
        lines = t.shows(["PROJECT", "WHERE", "LAST MINUTES"])
        self.assertEqual(len(lines), 50)
        t.resize(80, 24)
        lines = t.shows("q quit")
        self.assertTrue(all(len(line) <= 80 for line in lines), lines)
        t.keys("C-c")
        t.at_prompt()

    def test_stop_asks_first_and_shows_the_answer(self):
        victim = self.rig.submit("--name", "victim", "--", "sleep", 3000)
        self.rig.wait_for(victim, "running")
        t = self.terminal()
        t.run("top", "--tab", "jobs")
        t.shows("victim")
        t.type("/victim")
        t.keys("Enter")
        t.type("s")
        t.shows(f"Stop job {victim} victim.*y yes")
        t.type("n")
        t.shows("nothing was changed")
        self.assertEqual(self.rig.job(victim)["state"], "running")
        t.type("sy")
        t.shows(f"job {victim} (is being|was) stopped")
        self.rig.wait_for(victim, "stopped")
        t.shows("no job matches")
        t.type("q")

    def test_drain_and_undrain(self):
        t = self.terminal()
        t.run("top")
        t.shows("8 GPUs")
        t.type("Gd")
        t.shows("Drain GPU 7 of ")
        t.type("y")
        t.shows(["takes no new jobs", "2 of 8 GPUs free, 1 drained", "drained: drained by"])
        t.type("d")
        t.shows("Let GPU 7 of .* take jobs again")
        t.type("y")
        t.shows(["takes new jobs again", "3 of 8 GPUs free"])
        t.type("q")

    def test_viewers_are_refused_and_offered_nothing(self):
        self.rig.ok("user", "create", "vera", "--role", "viewer")
        token = self.rig.token_for("vera")
        host, port = self.rig.address()
        t = self.terminal(80, 24, BILLOW_HEAD=f"http://{host}:{port}", BILLOW_TOKEN=token)
        t.run("top")
        lines = t.shows(["8 GPUs", "q quit"])
        poll(lambda: "drain" not in t.lines()[-1], "no drain for a viewer")
        self.assertNotIn("drain", t.lines()[-1], lines)
        t.type("d")
        t.shows("you cannot drain nodes")
        t.type("q")

    def test_plain_terminals(self):
        t = self.terminal(80, 24, LC_ALL="C", NO_COLOR="1")
        t.run("top")
        t.shows(["8 GPUs", "big"])
        text = "\n".join(t.lines("-e"))
        self.assertTrue(text.isascii(), text)
        self.assertFalse(re.search(r"\x1b\[[0-9;]*3[0-7]m", text), "no colours")
        t.type("q")

    def test_a_signal_gives_the_terminal_back(self):
        t = self.terminal()
        t.type("stty -a | md5sum\n")
        t.shows("-")
        before = re.search(r"[0-9a-f]{32}", t.text()).group()
        t.run("top")
        t.shows("8 GPUs")
        os.kill(poll(t.program_pid, "the program"), signal.SIGTERM)
        t.at_prompt()
        t.type("echo code $?; stty -a | md5sum\n")
        t.shows("code 143")
        self.assertEqual(set(re.findall(r"[0-9a-f]{32}", t.text())), {before})

    def test_once(self):
        text = self.rig.ok("top", "--once").text
        for what in ("patient", "3 of 8 GPUs free", "3 jobs"):
            self.assertIn(what, text)
        self.assertNotIn("\x1b", text)
        text = self.rig.ok("watch", "chatty", "--once").text
        self.assertRegex(text, r"progress .*%")
        self.assertIn("step ", text)
        waiting = self.rig.ok("watch", "patient", "--once").text
        self.assertRegex(waiting, "GPUs? (is|are) free|place in the queue")
        self.assertIn("reason", self.rig.ok("top", "--once", "--tab", "queue").text.lower())
        self.assertEqual(self.rig.cli("top", "--tab", "cpus").code, 2)
        self.assertEqual(self.rig.cli("watch", "99999").code, 1)

    def test_watch(self):
        t = self.terminal()
        t.run("watch", self.chatty)
        t.shows(["running", "progress", r"step \d+/1000 needle", "GPU use", r"\$\d"])
        first = int(re.findall(r"step (\d+)/1000", t.text())[-1])
        poll(lambda: int(re.findall(r"step (\d+)/1000", t.text())[-1]) > first, "it follows")
        t.type("q")
        t.at_prompt()


@unittest.skipUnless(shutil.which("tmux"), "needs tmux")
class HeadAway(unittest.TestCase):
    def test_a_head_that_dies_is_said_and_found_again(self):
        rig = Rig(sim="2xH100")
        try:
            job = rig.submit("--gpus", 1, "--name", "steady", "--", "sleep", 3000)
            rig.wait_for(job, "running")
            t = Terminal(rig)
            try:
                t.run("top", "--tab", "jobs")
                t.shows(["steady", "1 of 2 GPUs free"])
                rig.kill(rig.head_pid())
                t.shows(["the head has not answered", "steady"])
                rig.up()
                t.shows(["steady", "1 of 2 GPUs free"], 60)
                t.type("q")
                t.at_prompt()
            finally:
                t.close()
        finally:
            rig.close()
