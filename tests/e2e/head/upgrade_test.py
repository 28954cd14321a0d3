"""Head and agents are replaced by another version while jobs run, and back.

`LastRelease` uses the programs of the last release: BILLOW_LAST_RELEASE names their folder, and `./dev upgrade-test` builds them.
Without that folder it is skipped; tests/golden then covers that the old data is read. `Upgrade` runs this program under another
version number and protocol (BILLOW_TEST_VERSION, BILLOW_TEST_PROTOCOL), which tests the negotiation of a future protocol."""
import json
import os
import signal
import struct
import subprocess
import unittest

from rig import BILLOW, MARK, Rig, WebSocket, agent_frame, alive, poll

RELEASE = os.environ.get("BILLOW_LAST_RELEASE", "")
OLD, NEW = {}, {"BILLOW_TEST_VERSION": "9.9.9", "BILLOW_TEST_PROTOCOL": "2"}


class UpgradeRig(Rig):
    """A head without a machine of its own, and one that joined it, kept running by what stands for
    its systemd unit."""

    def __init__(self, program=BILLOW):
        self.program = program  # of the head and of the commands
        super().__init__(sim="1xH100", args=("--no-agent",))
        self.listen = self.json("status")["addresses"][0].split("//")[1]
        self.node_data = os.path.join(self.root, "node")
        self.agent = None

    def command(self, *args):
        return [self.program, *map(str, args)]

    def run_agent(self, version, program=BILLOW):
        token = (
            []
            if os.path.exists(os.path.join(self.node_data, "node/credential"))
            else ["--token", self.ok("token", "create", "--node").text.strip()]
        )
        unit = 'while [ ! -e "$STOP" ]; do "$@"; done'
        log = open(os.path.join(self.root, "node.log"), "a", encoding="utf-8")
        self.stop = os.path.join(self.root, "stop-agent")
        if os.path.exists(self.stop):
            os.unlink(self.stop)
        self.agent = subprocess.Popen(
            [
                "sh",
                "-c",
                unit,
                "unit",
                program,
                "join",
                f"http://{self.listen}",
                *token,
                "--node-name",
                "box",
                "--data",
                self.node_data,
                "--sim",
                "2xH100",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**self.plain(), **version, "STOP": self.stop},
        )
        log.close()
        self.started.append(self.agent)

    def plain(self):
        return {
            k: v
            for k, v in self.environment.items()
            if k == MARK or not k.startswith("BILLOW_TEST_")
        }

    def end_agent(self):
        with open(self.stop, "w", encoding="ascii"):
            pass
        with open(os.path.join(self.node_data, "node/lock"), encoding="ascii") as f:
            pid = int(f.read())
        os.kill(pid, signal.SIGTERM)
        self.agent.wait(30)
        poll(lambda: not alive(pid), "the agent's end")

    def node(self):
        return next(
            (
                n
                for n in self.json("nodes")["nodes"]
                if n["name"] == "box" and n["state"] == "ready"
            ),
            None,
        )

    def speaks(self, version, protocol):
        """That the last hello which this life of the head took was of that version, and what was
        agreed on."""
        hellos = lambda: [
            line
            for line in self.head_log().rsplit(" is up: ", 1)[-1].splitlines()
            if "node box connected" in line
        ]
        poll(
            lambda: hellos() and hellos()[-1].endswith(f"billow {version}, protocol {protocol}"),
            f"an agent of {version} that speaks {protocol}",
            60,
        )
        poll(lambda: (self.node() or {}).get("version") == version, f"the agent of {version}", 60)
        return True

    def exchange_head(self, version, program=BILLOW):
        self.ok("down")
        self.program = program
        self.environment = {**self.plain(), **version}
        self.up(listen=self.listen)


@unittest.skipUnless(
    os.path.isfile(os.path.join(RELEASE, "billow")),
    (
        "BILLOW_LAST_RELEASE does not name a folder with the last release's programs (./dev"
        " upgrade-test builds them)"
    ),
)
class LastRelease(unittest.TestCase):
    """Data, protocol and running jobs of the last release under today's program, and back:
    docs/install.md promises that agents go back at any time, and a head with its backup."""

    def setUp(self):
        self.release = os.path.join(os.path.abspath(RELEASE), "billow")
        self.rig = UpgradeRig(self.release)
        self.addCleanup(self.rig.close)
        self.rig.run_agent({}, self.release)
        poll(self.rig.node, "the agent of the last release", 60)

    def start_work(self):
        """A job that runs across all changes, and one that has ended before them."""
        rig = self.rig
        self.gate = rig.file("gate")
        self.job = rig.submit(
            "--gpus",
            1,
            "--name",
            "across",
            "--label",
            "team=vision",
            "--",
            "sh",
            "-c",
            f"i=0; until [ -e {self.gate} ]; do echo line $i; i=$((i+1)); sleep 0.02; done; exit 3",
        )
        rig.wait_for(self.job, "running")
        self.ended = rig.submit("--retries", 1, "--", "sh", "-c", "exit 4")
        self.assertEqual(rig.cli("wait", self.ended, timeout=60).code, 4)
        self.before = self.how_it_ended()

    def how_it_ended(self):
        job = self.rig.job(self.ended)
        return {k: job[k] for k in ("state", "attempt", "exit_code") if k in job}

    def work_goes_on(self, after):
        rig = self.rig
        poll(rig.node, f"the node after {after}", 60)
        seen = len(rig.ok("logs", self.job).out)
        poll(lambda: len(rig.ok("logs", self.job).out) > seen, f"more output after {after}", 30)
        now = rig.job(self.job)
        self.assertEqual(
            (now["state"], now["attempt"], now["name"]), ("running", 1, "across"), after
        )
        self.assertEqual(self.how_it_ended(), self.before, after)
        self.assertEqual(
            rig.ok("run", "--gpus", 1, "--", "echo", "new", timeout=60).out, b"new\n", after
        )

    def end_work(self):
        rig = self.rig
        with open(self.gate, "w", encoding="ascii"):
            pass
        self.assertEqual(rig.cli("wait", self.job, timeout=60).code, 3)
        lines = rig.ok("logs", self.job).text.splitlines()
        self.assertEqual(lines, [f"line {i}" for i in range(len(lines))])
        rig.end_agent()

    def test_agents_there_and_back_and_a_head_there_with_a_job_running(self):
        self.start_work()
        for what, program in (
            ("agent", BILLOW),
            ("agent", self.release),
            ("head", BILLOW),
            ("agent", BILLOW),
            ("agent", self.release),
            ("agent", BILLOW),
        ):
            if what == "agent":
                self.rig.end_agent()
                self.rig.run_agent({}, program)
            else:
                self.rig.exchange_head({}, program)
            self.work_goes_on(f"the {what} became {program}")
        self.end_work()

    def test_a_head_goes_back_with_the_backup_made_before(self):
        rig = self.rig
        self.start_work()
        backup = rig.file("before-the-upgrade")
        rig.ok("store", "backup", backup, timeout=60)
        rig.exchange_head({}, BILLOW)
        self.work_goes_on("the head became today's")
        rig.ok("down")
        # The older program says what is wrong and changes nothing, unless both store alike.
        rig.program = self.release
        refused = rig.cli("up", "--background", "--listen", rig.listen, "--no-agent", timeout=60)
        if refused.code == 0:
            rig.ok("down")
        else:
            self.assertIn("was written by a newer Billow", refused.err.decode())
            os.rename(rig.data, rig.data + ".newer")
            rig.ok("store", "restore", backup, "--data", rig.data, timeout=60)
        rig.up(listen=rig.listen)
        self.work_goes_on("the head went back")
        self.end_work()


class Upgrade(unittest.TestCase):
    def test_there_and_back_with_a_job_running(self):
        rig = UpgradeRig()
        try:
            own = rig.ok("version").text.split()[1]
            rig.run_agent(OLD)
            self.assertTrue(rig.speaks(own, 1), rig.head_log())
            gate = rig.file("gate")
            work = (
                f"i=0; until [ -e {gate} ]; do echo line $i; i=$((i+1)); sleep 0.02; done; echo end"
                " $i; exit 3"
            )
            job = rig.submit("--gpus", 1, "--", "sh", "-c", work)
            rig.wait_for(job, "running")

            def goes_on():
                seen = len(rig.ok("logs", job).out)
                poll(lambda: len(rig.ok("logs", job).out) > seen, "more output", 30)
                self.assertEqual((rig.job(job)["state"], rig.job(job)["attempt"]), ("running", 1))

            goes_on()
            agent = None
            for what, version, protocol in (
                ("agent", NEW, 1),
                ("head", NEW, 2),
                ("agent", OLD, 1),
                ("head", OLD, 1),
            ):
                if what == "agent":
                    agent = version
                    rig.end_agent()
                    rig.run_agent(version)
                else:
                    rig.exchange_head(version)
                self.assertTrue(
                    rig.speaks(agent.get("BILLOW_TEST_VERSION", own), protocol),
                    (what, version, rig.head_log()[-2000:]),
                )
                goes_on()
                # And what is new begins there as well.
                self.assertEqual(
                    rig.ok("run", "--gpus", 1, "--", "echo", "new", timeout=60).out, b"new\n"
                )
            with open(gate, "w", encoding="ascii"):
                pass
            self.assertEqual(rig.cli("wait", job, timeout=60).code, 3)
            lines = rig.ok("logs", job).text.splitlines()
            self.assertEqual(lines[:-1], [f"line {i}" for i in range(len(lines) - 1)])
            self.assertEqual(lines[-1], f"end {len(lines) - 1}")
            rig.end_agent()
        finally:
            rig.close()

    def test_a_hello_that_names_no_version_is_of_the_first(self):
        # As every agent of the first protocol says it, to a head that speaks the second.
        rig = Rig(sim="1xH100", args=("--no-agent",), **NEW)
        try:
            peer = WebSocket(rig, "/v1/agent", rig.node_token("old"))
            peer.send(
                agent_frame(
                    {
                        "type": "hello",
                        "offer": {
                            "name": "old",
                            "boot_id": "x",
                            "version": "0",
                            "cpu_milli": 1000,
                            "mem_mib": 1000,
                        },
                    }
                )
            )
            _, data = peer.receive()
            answer = json.loads(data[4 : 4 + struct.unpack("<I", data[:4])[0]])
            self.assertEqual((answer["type"], answer.get("version", 1)), ("welcome", 1), answer)
            poll(
                lambda: "node old connected: 0 GPUs, 0 tasks, billow 0, protocol 1\n"
                in rig.head_log(),
                "the agreed version in the log",
            )
            peer.close()
        finally:
            rig.close()

    def test_maintenance_of_a_node(self):
        rig = UpgradeRig()
        try:
            rig.run_agent(OLD)
            poll(rig.node, "the node", 30)
            gate = rig.file("gate")
            job = rig.submit(
                "--gpus",
                1,
                "--",
                "sh",
                "-c",
                f"until [ -e {gate} ]; do sleep 0.05; done; echo done",
            )
            rig.wait_for(job, "running")
            rig.ok("cordon", "box", "--reason", "new power supply")
            waits = rig.submit("--gpus", 1, "--", "echo", "after")
            self.assertIn("new power supply", rig.ok("nodes").text)
            self.assertEqual(rig.job(waits)["state"], "queued")
            with open(gate, "w", encoding="ascii"):
                pass
            self.assertEqual(
                rig.cli("wait", job, timeout=60).code, 0
            )  # what runs goes on to its end
            self.assertEqual(rig.job(waits)["state"], "queued")
            rig.end_agent()  # the machine is worked on
            rig.run_agent(NEW)
            poll(
                lambda: (rig.json("nodes")["nodes"][0] or {}).get("version") == "9.9.9",
                "the agent back",
                60,
            )
            self.assertEqual(rig.job(waits)["state"], "queued")
            rig.ok("uncordon", "box")
            self.assertEqual(rig.cli("wait", waits, timeout=60).code, 0)
            rig.end_agent()
        finally:
            rig.close()


if __name__ == "__main__":
    unittest.main()
