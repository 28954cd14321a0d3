"""Checkpoints through the whole product: a node is killed or taken away, and the job goes on
elsewhere from its newest files."""
import os
import signal
import subprocess
import unittest

from rig import RigTest, poll
from suspend_test import number

COUNTER = r"""
# Counts, and leaves the count in $BILLOW_CHECKPOINT_DIR when asked; goes on from
# $BILLOW_CHECKPOINT.
i=0
[ -n "$BILLOW_CHECKPOINT" ] && i=$(cat "$BILLOW_CHECKPOINT/count")
echo "from $i" >> starts
save() { echo $i > "$BILLOW_CHECKPOINT_DIR/count.new"; mv "$BILLOW_CHECKPOINT_DIR/count.new" "$BILLOW_CHECKPOINT_DIR/count"; }
trap save USR1
while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.1; done
"""


SAVES = r"""
# Handles USR1 only after a while, as a program that imports much does.
import os, signal, subprocess, sys, time
helper = subprocess.Popen(["sleep", "600"])
time.sleep(float(sys.argv[1]))
step = 0
start = os.environ.get("BILLOW_CHECKPOINT")
if start:
    step = int(open(start + "/step").read())
def save(*_):
    with open(os.environ["BILLOW_CHECKPOINT_DIR"] + "/step.new", "w") as f:
        f.write(str(step))
    os.rename(f.name, os.environ["BILLOW_CHECKPOINT_DIR"] + "/step")
signal.signal(signal.SIGUSR1, save)
print("from", step, flush=True)
until = step + int(sys.argv[2])
while step < until:
    step += 1
    time.sleep(0.1)
print("helper", "lives" if helper.poll() is None else "died", flush=True)
helper.kill()
"""


# A worker of a launcher: each rank saves its own file.
WORKER = r"""
import os, signal, time
rank = os.environ["RANK"]
def save(*_):
    path = os.environ["BILLOW_CHECKPOINT_DIR"] + "/rank" + rank
    with open(path + ".new", "w") as f:
        f.write("1")
    os.rename(path + ".new", path)
    print("saved", rank, flush=True)
signal.signal(signal.SIGUSR1, save)
print("ready", rank, flush=True)
while not os.path.exists("enough"):
    time.sleep(0.1)
print("ended well", rank, flush=True)
"""

# Starts its workers as accelerate's launcher does: they are its children, and it waits for them.
LAUNCHER = r"""
import os, subprocess, sys
workers = [
    subprocess.Popen([sys.executable, sys.argv[1]], env={**os.environ, "RANK": str(rank)})
    for rank in range(2)
]
sys.exit(max(worker.wait() for worker in workers))
"""


class Signals(RigTest):
    """The signal reaches those that handle it, and nobody else."""

    options = {"sim": "1xH100"}

    def arguments(self, signal_name, *command):
        self.script = self.rig.script(SAVES)
        return (
            "--checkpoint-every",
            "1s",
            "--checkpoint-signal",
            signal_name,
            "--checkpoint-dir",
            self.rig.file("kept"),
            "--",
            *command,
        )

    def test_a_wrapper_a_helper_and_a_slow_start_survive_the_signal(self):
        for to in ("USR1", "USR1:group", "USR1:all"):
            with self.subTest(to=to):
                line = f"python3 {self.rig.script(SAVES)} 3 40; echo wrapper continues"
                job = self.rig.submit(*self.arguments(to, "sh", "-c", line))
                self.assertEqual(self.rig.cli("wait", job).code, 0, self.rig.ok("describe", job))
                log = self.rig.ok("logs", job).text
                self.assertEqual(log, "from 0\nhelper lives\nwrapper continues\n")
                self.assertTrue(self.rig.job(job)["checkpoint"]["path"], "it wrote checkpoints")
        wrong = self.rig.cli("submit", *self.arguments("USR1:everyone", "true"))
        self.assertIn("main, group or all", wrong.errors)

    def test_torchrun_and_its_workers_survive_the_signal(self):
        """Launchers of many processes handle other signals, and die of this one by default."""
        torch = "/usr/bin/python3"
        if subprocess.run([torch, "-c", "import torch.distributed.run"], check=False).returncode:
            self.skipTest("python3-torch is not installed")
        worker = self.rig.script(WORKER, "worker.py")
        launch = (
            [
                torch,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--redirects",
                "1",
                "--tee",
                "1",
                "--nproc_per_node",
                "2",
                worker,
            ],
            ["sh", "-c", f"{torch} {self.rig.script(LAUNCHER, 'launcher.py')} {worker}; exit $?"],
        )
        for command in launch:
            with self.subTest(command=command[-2:]):
                done = self.rig.file("enough")
                job = self.rig.submit(*self.arguments("USR1", *command))
                log = lambda: self.rig.cli("logs", job).text
                poll(lambda: log().count("ready") == 2, "both workers", 120)
                poll(lambda: self.rig.job(job)["checkpoint"]["path"], "a checkpoint", 60)
                with open(done, "w", encoding="ascii"):
                    pass
                self.assertEqual(self.rig.cli("wait", job, timeout=120).code, 0, log())
                self.assertEqual(log().count("ended well"), 2, log())
                self.assertGreaterEqual(log().count("saved"), 1, log())
                os.unlink(done)

    def test_a_rerun_starts_from_the_newest_checkpoint(self):
        job = self.rig.submit(
            *self.arguments("USR1", "python3", self.rig.script(SAVES), "0", "6000")
        )
        poll(lambda: self.rig.job(job)["checkpoint"]["path"], "a checkpoint")
        self.rig.ok("stop", "--wait", job)
        kept = number(self.rig.job(job)["checkpoint"]["path"] + "/step")
        self.assertGreater(kept, 0)
        again = self.rig.json("rerun", job)
        self.assertEqual(again["from_checkpoint"], self.rig.job(job)["checkpoint"]["path"])
        poll(lambda: f"from {kept}\n" in self.rig.cli("logs", again["id"]).text, "its start")
        self.assertIn(again["from_checkpoint"], self.rig.ok("describe", again["id"]).text)
        self.rig.ok("stop", "--force", "--wait", again["id"])
        fresh = self.rig.json("rerun", "--from-scratch", job)["id"]
        poll(lambda: "from 0\n" in self.rig.cli("logs", fresh).text, "a start from nothing")
        self.rig.ok("stop", "--force", "--wait", fresh)

    def test_a_failed_jobs_checkpoint_is_where_its_rerun_starts(self):
        job = self.rig.submit(
            *self.arguments(
                "USR1",
                "sh",
                "-c",
                f"python3 {self.rig.script(SAVES)} 0 6000 & sleep 4; kill -KILL $!; exit 9",
            )
        )
        self.assertEqual(self.rig.cli("wait", job).code, 9)
        kept = self.rig.job(job)["checkpoint"]["path"]
        self.assertGreater(number(kept + "/step"), 0)
        again = self.rig.json("rerun", job)
        self.assertEqual(again["from_checkpoint"], kept)
        poll(
            lambda: f"from {number(kept + '/step')}\n" in self.rig.cli("logs", again["id"]).text,
            "a start from there",
        )
        self.rig.ok("stop", "--force", "--wait", again["id"])


class Checkpoints(RigTest):
    """Files that outlive the node, and a restart that goes on from the newest."""

    options = {"sim": "1xH100"}

    def agent(self, name):
        """One more node on this machine, started by hand."""
        data = os.path.join(self.rig.root, name)
        return (
            self.rig.start(
                "agent",
                "--head",
                f"unix:{self.rig.data}/head.sock",
                "--token-file",
                self.rig.node_token_file(name),
                "--data",
                data,
                "--sim",
                "1xH100",
                "--node-name",
                name,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ),
            data,
        )

    def node(self, name):
        return next((n for n in self.rig.json("nodes")["nodes"] if n["name"] == name), None)

    def here(self):
        """The node of this machine's own agent."""
        return next(
            n["name"]
            for n in self.rig.json("nodes")["nodes"]
            if n["name"] not in ("goes", "leased")
        )

    def power_off(self, data):
        """Ends the agent of that data directory, its supervisors and their jobs at once, as a power
        cut does."""
        while found := processes_under(data):
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def test_killing_the_node_loses_at_most_one_interval(self):
        _, data = self.agent("goes")
        poll(lambda: self.node("goes"), "the second node")
        script, shared = self.rig.script(COUNTER), self.rig.file("shared")
        self.rig.ok("drain", self.here())
        job = self.rig.submit(
            "--gpus",
            1,
            "--checkpoint-every",
            "1s",
            "--checkpoint-signal",
            "USR1",
            "--checkpoint-dir",
            shared,
            "--",
            "sh",
            script,
        )
        self.rig.wait_for(job, "running")
        first = poll(lambda: self.rig.job(job)["checkpoint"]["path"], "a first checkpoint")
        poll(lambda: self.rig.job(job)["checkpoint"]["path"] not in ("", first), "a second one")
        self.assertIn("would lose the least", self.rig.ok("describe", job).text)
        self.power_off(data)
        lost_at, kept = number(self.rig.file("count")), self.rig.job(job)["checkpoint"]["path"]
        poll(lambda: self.node("goes")["state"] == "unreachable", "the node to be missed", 60)
        self.rig.ok("undrain", self.here())
        self.assertEqual(self.rig.api("DELETE", "/v1/nodes/goes").status, 200)
        poll(
            lambda: len(text_of(self.rig.file("starts")).splitlines()) == 2, "the second start", 60
        )
        resumed = int(text_of(self.rig.file("starts")).split()[-1])
        self.assertGreaterEqual(resumed, number(kept + "/count"))
        # Ten counts a second and one second between checkpoints; the rest is what this machine may
        # be late.
        self.assertGreater(resumed, 0)
        self.assertLessEqual(lost_at - resumed, 60)
        self.rig.ok("stop", "--force", "--wait", job)

    def test_a_reclaimed_node_is_left_with_a_last_checkpoint(self):
        _, data = self.agent("leased")
        poll(lambda: self.node("leased"), "the second node")
        here = self.here()
        self.rig.ok("drain", here)
        shared, counted = self.rig.file("shared2"), self.rig.file("by-command")
        work = (
            f'[ -n "$BILLOW_CHECKPOINT" ] && cat "$BILLOW_CHECKPOINT/state" > {counted}; echo'
            " begun; exec sleep 600"
        )
        job = self.rig.submit(
            "--gpus",
            1,
            "--checkpoint-every",
            "1h",
            "--checkpoint-cmd",
            "echo saved > $BILLOW_CHECKPOINT_DIR/state",
            "--checkpoint-dir",
            shared,
            "--",
            "sh",
            "-c",
            work,
        )
        self.rig.wait_for(job, "running")
        poll(lambda: "begun" in self.rig.ok("logs", job).text, "the job to begin")
        self.rig.ok("undrain", here)
        self.rig.ok("drain", "--reclaim", "leased")
        poll(
            lambda: text_of(counted) == "saved\n",
            "the restart elsewhere, from the last checkpoint",
            60,
        )
        doc = self.rig.job(job)
        self.assertEqual((doc["attempt"], doc["tasks"][0]["node"]), (2, here))
        self.rig.ok("stop", "--force", "--wait", job)
        self.power_off(data)

    def test_without_a_place_to_keep_them_it_is_refused(self):
        done = self.rig.cli(
            "submit", "--checkpoint-every", "20m", "--checkpoint-signal", "USR1", "--", "true"
        )
        self.assertNotEqual(done.code, 0)
        self.assertIn("--checkpoint-dir", done.errors)


def processes_under(data):
    """Processes whose command line names that directory, and everything that descends from them."""
    parents, named = {}, set()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                state, parent = f.read().rsplit(")", 1)[1].split()[:2]
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read()
        except OSError:
            continue
        if state == "Z" or pid == os.getpid():
            continue
        parents[pid] = int(parent)
        if data.encode() in line:
            named.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in named} - named:
        named |= more
    return named


def text_of(path):
    try:
        with open(path, encoding="ascii") as f:
            return f.read()
    except OSError:
        return ""


if __name__ == "__main__":
    unittest.main()
