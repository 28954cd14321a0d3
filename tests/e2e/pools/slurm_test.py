"""The Slurm pool on a real Slurm: one slurmctld, four slurmd with eight GPUs each, started here
from Debian's packages."""
import glob
import os
import re
import shutil
import signal
import sys
import tempfile
import unittest

from ports import free_port
from rig import SOURCE, Rig, poll

sys.path.insert(0, os.path.join(SOURCE, "tools/bench"))
from slurm import Slurm

WHY_NOT = (
    ""
    if os.geteuid() == 0 and Slurm.installed()
    else "this needs root and the packages slurmctld, slurmd, slurm-client, munge"
)


class SlurmRig(Rig):
    def __init__(self, slurm):
        self.slurm = slurm
        self.listen = f"127.0.0.1:{free_port()}"  # the same after `down`
        self.nodes_tmp = os.path.join(slurm.dir, "nodes-tmp")  # TMPDIR of the allocations
        os.makedirs(self.nodes_tmp)
        super().__init__(
            sim="8xH100",
            args=("--no-agent", "--tls"),
            SLURM_CONF=slurm.env["SLURM_CONF"],
            TMPDIR=self.nodes_tmp,
        )

    def up(self, *more, listen=None):
        return super().up(*more, listen=listen or self.listen)

    def node_dirs(self):
        """Directories that allocations have made on the nodes."""
        return glob.glob(os.path.join(self.nodes_tmp, "billow-*"))

    def add_pool(self, name="fast", *options):
        self.ok(
            "pool",
            "add",
            "slurm",
            name,
            "--partition",
            "all",
            "--gres",
            "gpu:h100:8",
            "--max",
            4,
            "--idle",
            "3s",
            "--time",
            "1h",
            "--sim",
            "8xH100",
            *options,
        )

    def machines(self):
        return {
            m["name"]: m for pool in self.json("pool", "list")["pools"] for m in pool["machines"]
        }

    def allocations(self):
        """What Slurm has, as (name, state) in the order of numbers."""
        out = self.slurm.run(["squeue", "-h", "-a", "-o", "%j %T %b"]).stdout
        return [line.split() for line in out.splitlines() if line.startswith("billow-")]


@unittest.skipIf(WHY_NOT, WHY_NOT)
class SlurmPool(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="billow-slurm-")
        cls.slurm = Slurm(cls.dir, gpus=8)
        try:
            cls.slurm.start(cpus=32)
            cls.rig = SlurmRig(cls.slurm)
        except BaseException:
            cls.slurm.stop()
            raise
        cls.rig.add_pool()

    @classmethod
    def tearDownClass(cls):
        try:
            cls.rig.ok("pool", "rm", "fast")
            poll(lambda: not cls.rig.allocations(), "every allocation given back", 90)
            poll(lambda: not cls.rig.json("pool", "list")["pools"], "the pool gone", 60)
            cls.rig.close()
        finally:
            cls.slurm.stop()
            shutil.rmtree(cls.dir, ignore_errors=True)

    def tearDown(self):
        for job in self.rig.json("ps")["jobs"]:
            self.rig.cli("stop", "--force", job["id"])

    def empty(self):
        poll(
            lambda: not self.rig.allocations() and not self.rig.machines(), "nothing allocated", 90
        )

    def test_an_allocation_of_just_the_size_comes_and_goes(self):
        done = self.rig.ok(
            "run",
            "--gpus",
            2,
            "--",
            "sh",
            "-c",
            "echo gpus=$CUDA_VISIBLE_DEVICES; echo node=$(hostname)",
            timeout=90,
        )
        self.assertIn("gpus=", done.text)
        self.assertEqual(len(done.text.splitlines()[0].split("=")[1].split(",")), 2)
        machine = self.rig.machines()
        self.assertEqual([m["gpus"] for m in machine.values()], [2], machine)
        nodes = self.rig.json("nodes")["nodes"]
        self.assertEqual([len(n["gpus"]) for n in nodes], [2])
        self.assertEqual(nodes[0]["labels"]["pool"], "fast")
        self.empty()
        self.assertEqual(self.rig.json("nodes")["nodes"], [])

    def test_an_allocation_has_the_cpus_and_the_memory_of_its_jobs(self):
        gate = self.rig.file("cpus-gate")
        wait = f"while [ ! -e {gate} ]; do sleep 0.05; done"
        job = self.rig.submit("--gpus", 1, "--cpus", 2, "--mem", "200M", "--", "sh", "-c", wait)
        self.rig.wait_for(job, "running", 60)
        out = self.slurm.run(["squeue", "-h", "-a", "-o", "%j %C %m"]).stdout
        sizes = [line.split()[1:] for line in out.splitlines() if line.startswith("billow-")]
        self.assertEqual(sizes, [["2", "200M"]], out)
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0)
        self.empty()

    def test_a_job_that_no_node_can_hold_asks_once(self):
        before = self.ordered()
        job = self.rig.submit("--gpus", 1, "--cpus", 64, "--", "true")
        poll(lambda: self.ordered() > before, "an allocation for it", 30)
        self.empty()
        poll(lambda: "could not run it" in self.rig.ok("explain", job).text, "the reason", 30)
        self.assertEqual(self.ordered(), before + 1)
        self.rig.ok("stop", job)

    def ordered(self):
        return self.rig.ok("events", "--limit", 1000, "--json").text.count('"machine_wanted"')

    def test_a_killed_agent_starts_nothing_twice(self):
        beats, gate = self.rig.file("beats"), self.rig.file("twice-gate")
        work = (
            f'until [ -e {gate} ]; do echo "$BILLOW_ATTEMPT $(date +%s%N)" >> {beats}; sleep 0.1;'
            " done"
        )
        job = self.rig.submit("--gpus", 1, "--rerun-if-lost", "--", "sh", "-c", work)
        node = self.rig.wait_for(job, "running", 60)["tasks"][0]["node"]
        poll(lambda: os.path.exists(beats), "a first beat")
        (agent,) = self.agents_of(node)
        os.kill(agent, signal.SIGKILL)
        poll(lambda: self.rig.job(job)["attempt"] == 2, "the second attempt", 180)
        poll(lambda: any(attempt == 2 for attempt, _ in self.beats(beats)), "its first beat", 60)
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0)
        lines = self.beats(beats)
        first = max(at for attempt, at in lines if attempt == 1)
        second = min(at for attempt, at in lines if attempt == 2)
        self.assertGreater(second, first, "the first copy still wrote")
        self.empty()

    @staticmethod
    def beats(path):
        with open(path, encoding="ascii") as f:
            return [tuple(map(int, line.split())) for line in f if line.endswith("\n")]

    @staticmethod
    def agents_of(node):
        """The processes that run `billow join` for this node."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    argv = f.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if argv[0].endswith("billow") and "join" in argv[1:3] and node in argv:
                found.append(int(pid))
        return found

    def test_down_leaves_allocations_and_their_jobs(self):
        gate = self.rig.file("down-gate")
        script = f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3"
        job = self.rig.submit("--gpus", 1, "--", "sh", "-c", script)
        node = self.rig.wait_for(job, "running", 60)["tasks"][0]["node"]
        agents, before = self.agents_of(node), self.rig.allocations()
        self.assertEqual((len(agents), len(before)), (1, 1))
        (log,) = [os.path.join(path, "log") for path in self.rig.node_dirs()]
        size = os.path.getsize(log)
        self.rig.ok("down")
        # It tries to reach the head again, so it knows that the head has ended.
        poll(lambda: os.path.getsize(log) > size, "the agent notices")
        self.assertEqual(self.agents_of(node), agents)
        self.assertEqual(self.rig.allocations(), before)
        self.rig.up()
        poll(
            lambda: [n["state"] for n in self.rig.json("nodes")["nodes"]] == ["ready"],
            "the node at the new head",
            60,
        )
        self.assertEqual(self.agents_of(node), agents)
        self.assertEqual(self.rig.allocations(), before)
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 3)
        self.assertEqual(self.rig.job(job)["attempt"], 1)
        self.empty()

    def test_allocations_leave_no_directories_on_their_nodes(self):
        self.empty()
        poll(lambda: not self.rig.node_dirs(), "what earlier allocations left", 30)
        # Allocations that end by themselves, of several nodes too, one that nobody wants any more
        # when it has begun, and one that is cancelled.
        self.rig.ok("run", "--gpus", 1, "--", "true", timeout=90)
        self.rig.ok("run", "--nodes", 2, "--gpus", 8, "--", "true", timeout=90)
        self.empty()
        job = self.rig.submit("--gpus", 1, "--", "sleep", 600)
        poll(self.rig.allocations, "an allocation", 60)
        self.rig.ok("stop", "--force", job)
        self.empty()
        job = self.rig.submit("--gpus", 1, "--", "sleep", 600)
        self.rig.wait_for(job, "running", 60)
        self.slurm.run(["scancel", "--user=root"])
        self.rig.ok("stop", "--force", job)
        self.empty()
        poll(lambda: not self.rig.node_dirs(), f"directories left: {self.rig.node_dirs()}", 60)
        # One whose script is killed leaves its directory; the next on that node removes it.
        job = self.rig.submit("--gpus", 1, "--", "sleep", 600)
        node = self.rig.wait_for(job, "running", 60)["tasks"][0]["node"]
        (left,) = self.rig.node_dirs()
        (agent,) = self.agents_of(node)
        with open(f"/proc/{agent}/stat", encoding="ascii") as f:
            script = int(f.read().rsplit(")", 1)[1].split()[1])
        self.rig.ok("stop", "--force", job)
        for pid in (script, agent):
            os.kill(pid, signal.SIGKILL)
        self.empty()
        self.assertEqual(self.rig.node_dirs(), [left])
        self.rig.ok("run", "--gpus", 1, "--", "true", timeout=90)
        self.empty()
        poll(lambda: not self.rig.node_dirs(), f"directories left: {self.rig.node_dirs()}", 60)

    def test_a_gang_gets_whole_nodes_at_once(self):
        done = self.rig.ok(
            "run",
            "--nodes",
            2,
            "--gpus",
            8,
            "--",
            "sh",
            "-c",
            "echo $WORLD_SIZE $CUDA_VISIBLE_DEVICES",
            timeout=120,
        )
        world, gpus = done.text.splitlines()[0].split()[-2:]
        self.assertEqual((world, len(set(gpus.split(",")))), ("2", 8))
        self.assertEqual([(m["nodes"], m["gpus"]) for m in self.rig.machines().values()], [(2, 8)])
        self.empty()

    def test_a_gang_on_a_cold_pool_prints_every_rank(self):
        for _ in range(3):
            self.empty()
            done = self.rig.ok(
                *("run", "--nodes", 2, "--gpus", 8, "--procs", 2, "--"),
                *("sh", "-c", "sleep 2; echo rank $RANK; sleep 1"),
                timeout=120,
            )
            ranks = re.findall(r"rank (\d+)$", done.text, re.MULTILINE)
            self.assertEqual(sorted(ranks), ["0", "1", "2", "3"], done)
        self.empty()

    def test_an_allocation_taken_away_sends_its_work_elsewhere(self):
        gate = self.rig.file("gate")
        job = self.rig.submit(
            "--gpus",
            1,
            "--",
            "sh",
            "-c",
            f"trap 'exit 9' TERM; while [ ! -e {gate} ]; do sleep 0.05; done; echo finished",
        )
        node = self.rig.wait_for(job, "running", 60)["tasks"][0]["node"]
        number = poll(lambda: self.rig.machines()[node]["external"], "Slurm's number of it", 30)
        self.slurm.run(["scancel", number], check=True)
        # Whatever order the signals arrive in, the job is taken away and has not failed.
        self.assertIn(
            "second",
            poll(
                lambda: (
                    lambda j: (
                        "second"
                        if j["attempt"] >= 2
                        else j if j["state"] in ("failed", "lost", "stopped") else None
                    )
                )(self.rig.job(job)),
                "the second attempt",
                90,
            ),
        )
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(self.rig.cli("wait", job, timeout=90).code, 0)
        self.empty()

    def test_a_controller_that_restarts_loses_nothing(self):
        gate = self.rig.file("gate2")
        job = self.rig.submit(
            "--gpus",
            1,
            "--",
            "sh",
            "-c",
            f"while [ ! -e {gate} ]; do sleep 0.05; done; echo went on",
        )
        self.rig.wait_for(job, "running", 60)
        self.slurm.stop_controller()
        second = self.rig.submit(
            "--gpus", 8, "--", "echo", "later"
        )  # wants an allocation while nobody can give one
        poll(
            lambda: "squeue" in self.rig.head_log() or "sbatch" in self.rig.head_log(),
            "the complaint in the log",
            30,
        )
        self.assertEqual(self.rig.job(job)["state"], "running")
        self.slurm.start_controller()
        self.assertEqual(self.rig.cli("wait", second, timeout=120).code, 0)
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0)
        self.assertEqual(self.rig.job(job)["attempt"], 1)
        self.empty()

    def test_a_stray_allocation_under_our_name_is_cancelled(self):
        with open(os.path.join(self.rig.data, "installation"), encoding="ascii") as f:
            installation = f.read().strip()
        self.slurm.run(
            [
                "sbatch",
                "--parsable",
                f"--job-name=billow-{installation}-fast-9999",
                "--partition=all",
                "--output=/dev/null",
                "--wrap",
                "sleep 600",
            ]
        )
        self.slurm.run(
            [
                "sbatch",
                "--parsable",
                "--job-name=billow-other-fast-9999",
                "--partition=all",
                "--output=/dev/null",
                "--wrap",
                "sleep 600",
            ]
        )
        self.assertTrue(poll(lambda: len(self.rig.allocations()) == 2, "both listed", 20))
        poll(
            lambda: [a[0] for a in self.rig.allocations() if a[1] != "COMPLETING"]
            == ["billow-other-fast-9999"],
            "the stray cancelled, the other's left alone",
            60,
        )
        self.slurm.run(["scancel", "--name=billow-other-fast-9999"])
        self.empty()

    def test_an_allocation_is_extended_while_its_job_runs(self):
        self.empty()
        pool = ["pool", "add", "slurm", "long", "--partition", "all", "--gres", "gpu:h100:8"]
        pool += ["--gpu", "8xH100", "--max", 1, "--sim", "8xH100", "--order", -1, "--idle", "5s"]
        self.rig.ok(*pool, "--time", "8m", "--option", "extend=1h")
        try:
            gate = self.rig.file("extend-gate")
            wait = f"while [ ! -e {gate} ]; do sleep 0.05; done"
            job = self.rig.submit("--gpus", 1, "--pool", "long", "--", "sh", "-c", wait)
            self.rig.wait_for(job, "running", 60)

            def limits():
                out = self.slurm.run(["squeue", "-h", "-a", "-o", "%j %l"]).stdout
                return [line.split()[1] for line in out.splitlines() if "-long-" in line]

            poll(lambda: limits() == ["1:08:00"], "Slurm's new limit", 60)
            with open(gate, "w", encoding="ascii"):
                pass
            self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0)
        finally:
            self.rig.ok("pool", "rm", "long")
            self.empty()

    def test_a_partition_that_refuses_is_explained(self):
        self.empty()
        self.rig.ok(
            "pool",
            "add",
            "slurm",
            "nowhere",
            "--partition",
            "nosuch",
            "--gres",
            "gpu:h100:8",
            "--gpu",
            "8xH100",
            "--max",
            2,
            "--order",
            -1,
        )
        try:
            job = self.rig.submit("--gpus", 1, "--", "echo", "ran")
            self.assertEqual(self.rig.cli("wait", job, timeout=90).code, 0)  # by the other pool
            denied = [
                p["denied"]
                for p in self.rig.json("pool", "list")["pools"]
                if p["name"] == "nowhere"
            ]
            self.assertIn("nvalid partition", denied[0] or "", denied)
        finally:
            self.rig.ok("pool", "rm", "nowhere")


if __name__ == "__main__":
    unittest.main()
