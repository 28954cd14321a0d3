"""Two heads on one PostgreSQL: the standby takes over from a leader that dies or sleeps, under
load, and nothing accepted is lost."""
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import net
import postgres
from ports import free_port
from rig import BILLOW, Answer, Rig, UnixConnection, poll


class Pair:
    """Two heads on one store, each with a data directory of its own, and a node that knows both."""

    def __init__(self, url):
        self.rig = Rig(up=False)
        self.url, self.heads, self.addresses = url, {}, {}
        self.places = {}  # what a process runs behind: nsenter to its machine

    def dir(self, name):
        return os.path.join(self.rig.root, f"head-{name}")

    def log(self, name):
        with open(os.path.join(self.rig.root, f"{name}.log"), encoding="utf-8") as f:
            return f.read()

    def spawn(self, name, *command, **environment):
        with open(os.path.join(self.rig.root, f"{name}.log"), "a", encoding="utf-8") as log:
            process = subprocess.Popen(
                [*self.places.get(name, ()), BILLOW, *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self.rig.environment, **environment},
            )
        self.rig.started.append(process)
        return process

    def start(self, name, *more, listen="127.0.0.1:0"):
        os.makedirs(self.dir(name), exist_ok=True)
        # The URL comes by the environment, as somebody with a password in it would do; jobs must
        # not see it.
        self.heads[name] = self.spawn(
            name,
            "up",
            "--data",
            self.dir(name),
            "--listen",
            self.addresses.get(name, listen),
            "--tls",
            "--no-agent",
            *more,
            BILLOW_STORE=self.url,
        )
        return self.heads[name]

    def cli(self, name, *args, timeout=60):
        return subprocess.run(
            [BILLOW, *map(str, args)],
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=self.rig.files,
            stdin=subprocess.DEVNULL,
            env={**self.rig.environment, "BILLOW_DATA": self.dir(name)},
            check=False,
        )

    def api(self, name, method, path, body=None):
        with open(os.path.join(self.dir(name), "token"), encoding="ascii") as f:
            token = f.read().strip()
        connection = UnixConnection(os.path.join(self.dir(name), "head.sock"), 15)
        try:
            connection.request(
                method,
                path,
                json.dumps(body).encode() if body else None,
                {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            )
            response = connection.getresponse()
            return Answer(response.status, {}, response.read())
        finally:
            connection.close()

    def leads(self, name):
        return self.cli(name, "status", "--json").returncode == 0

    def close(self):
        for head in self.heads.values():
            if head.poll() is None:
                head.send_signal(signal.SIGCONT)
                head.kill()
                head.wait()
        for pid in self.rig.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.rig.close()


class Failover(postgres.PostgresTest):
    def pair(self, name, *more):
        pair = Pair(self.pg.database(name))
        self.addCleanup(pair.close)
        pair.addresses = {"a": f"127.0.0.1:{free_port()}", "b": f"127.0.0.1:{free_port()}"}
        pair.start("a", *more)
        poll(lambda: pair.leads("a"), "the first head", 60)
        token = pair.cli("a", "token", "create", "--node").stdout.strip()
        both = ",".join(f"https://{address}" for address in pair.addresses.values())
        pair.spawn(
            "node",
            "join",
            both,
            "--token",
            token,
            "--node-name",
            "box",
            "--data",
            os.path.join(pair.rig.root, "box"),
            "--sim",
            "4xH100",
        )
        poll(lambda: "box" in pair.cli("a", "nodes").stdout, "the node", 60)
        pair.start("b", "--standby", *more)
        poll(lambda: "standing by" in pair.log("b"), "the standby", 60)
        # What the database does not hold is said while the one that has it still lives.
        self.assertEqual("--files-dir DIR" in pair.log("b"), "--files-dir" not in more)
        self.assertIn("copy secrets.key", pair.log("b"))
        return pair

    def test_a_job_that_waits_has_its_files_when_another_head_starts_it(self):
        shared = tempfile.mkdtemp(prefix="billow-shared-files-")
        self.addCleanup(shutil.rmtree, shared, ignore_errors=True)
        pair = self.pair("withfiles", "--files-dir", shared)
        with open(pair.rig.file("train.txt"), "w", encoding="ascii") as f:
            f.write("what the job came with")
        gate = pair.rig.file("not-yet")
        blocker = json.loads(
            pair.cli(
                "a",
                "submit",
                "--json",
                "--gpus",
                4,
                "--",
                "sh",
                "-c",
                f"until [ -e {gate} ]; do sleep 0.05; done",
            ).stdout
        )["id"]
        waiting = json.loads(
            pair.cli(
                "a",
                "submit",
                "--json",
                "--gpus",
                4,
                "--sync",
                "--output",
                "out",
                "--",
                "sh",
                "-c",
                "cp train.txt out; cat train.txt",
            ).stdout
        )["id"]
        pair.heads["a"].kill()
        poll(lambda: pair.leads("b"), "the takeover", 30)
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(pair.cli("b", "wait", blocker, timeout=60).returncode, 0)
        self.assertEqual(pair.cli("b", "wait", waiting, timeout=60).returncode, 0)
        self.assertEqual(pair.cli("b", "logs", waiting).stdout, "what the job came with")
        back = pair.rig.file("came-back")
        self.assertEqual(pair.cli("b", "cp", f"{waiting}:", back).returncode, 0)
        with open(os.path.join(back, "out"), encoding="ascii") as f:
            self.assertEqual(f.read(), "what the job came with")

    def load(self, pair, threads=4):
        """Submits to whoever answers, as fast as it does; the ids that were accepted, with who
        accepted them."""
        accepted, over = [], threading.Event()

        def submit():
            while not over.is_set():
                for name in ("a", "b"):
                    try:
                        answer = pair.api(name, "POST", "/v1/jobs", pair.rig.spec("true"))
                    except (OSError, http.client.HTTPException):
                        over.wait(0.02)
                        continue
                    if answer.status in (200, 201):
                        accepted.append((name, answer.json["id"]))

        workers = [threading.Thread(target=submit) for _ in range(threads)]
        for worker in workers:
            worker.start()

        def stop():
            over.set()
            for worker in workers:
                worker.join()

        self.addCleanup(stop)
        return accepted, stop

    def check_nothing_is_lost(self, pair, accepted, database):
        ids = [job for _, job in accepted]
        self.assertEqual(len(ids), len(set(ids)), "no id is given twice")
        states = {}

        def all_done():
            for job in ids:
                if states.get(job) != "succeeded":
                    answer = pair.api("b", "GET", f"/v1/jobs/{job}")
                    self.assertEqual(
                        answer.status, 200, f"job {job} was accepted, and nobody knows it: {answer}"
                    )
                    states[job] = answer.json["state"]
                    if states[job] != "succeeded":
                        return False
            return True

        poll(all_done, "every accepted job runs to its end", 240)
        # Two leaders, one after the other: epochs never go back, and no seq is missing.
        self.assertEqual(
            self.pg.psql(
                "SELECT count(DISTINCT epoch), count(*) = max(seq) FROM billow.events", database
            ),
            "2|t",
        )
        self.assertEqual(
            self.pg.psql(
                (
                    "SELECT count(*) FROM billow.events a JOIN billow.events b ON b.seq = a.seq + 1"
                    " WHERE b.epoch < a.epoch"
                ),
                database,
            ),
            "0",
        )

    def test_nothing_accepted_is_lost_when_the_leader_dies(self):
        pair = self.pair("dies")
        gate = pair.rig.file("gate")
        past = json.loads(
            pair.cli(
                "a",
                "submit",
                "--json",
                "--no-sync",
                "--cwd",
                "/",
                "--env-var",
                "WHO=only the journal knows",
                "--",
                "sh",
                "-c",
                "echo $WHO",
            ).stdout
        )["id"]
        self.assertEqual(pair.cli("a", "wait", past, timeout=60).returncode, 0)
        held = json.loads(
            pair.cli(
                "a",
                "submit",
                "--json",
                "--gpus",
                1,
                "--",
                "sh",
                "-c",
                f"env > {gate}.env; until [ -e {gate} ]; do sleep 0.05; done; exit 6",
            ).stdout
        )["id"]
        accepted, stop = self.load(pair)
        poll(lambda: sum(name == "a" for name, _ in accepted) > 100, "some load", 120)
        poll(
            lambda: '"running"' in pair.cli("a", "describe", held, "--json").stdout,
            "the long job",
            30,
        )
        pair.heads["a"].kill()
        died = time.monotonic()
        poll(lambda: pair.leads("b"), "the takeover", 30)
        took = time.monotonic() - died
        before = sum(name == "a" for name, _ in accepted)
        poll(
            lambda: sum(name == "b" for name, _ in accepted) > 30,
            "submissions to the new leader",
            60,
        )
        stop()
        self.assertLess(took, 10, "takeover")
        self.check_nothing_is_lost(pair, accepted, "dies")
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(
            pair.cli("b", "wait", held, timeout=60).returncode, 6, "the job that ran through it all"
        )
        # What ended with the old leader runs again with the new one, as it ran: the two share no
        # directory.
        again = pair.cli("b", "rerun", past, "--json")
        self.assertEqual(again.returncode, 0, again)
        again = json.loads(again.stdout)["id"]
        self.assertEqual(pair.cli("b", "wait", again, timeout=60).returncode, 0)
        self.assertEqual(pair.cli("b", "logs", again).stdout, "only the journal knows\n")
        # A client that knows both heads asks the one that leads.
        both = ",".join(f"https://{address}" for address in pair.addresses.values())
        login = pair.cli(
            "b", "login", both, "--token", pair.cli("b", "token", "create", "laptop").stdout.strip()
        )
        self.assertEqual(login.returncode, 0, login)
        self.assertEqual(pair.cli("b", "describe", held, "--head", both).returncode, 0)
        with open(f"{gate}.env", encoding="utf-8") as f:
            self.assertNotIn("postgres://", f.read(), "the store's URL is nobody's but the head's")
        print(
            f"takeover in {took:.1f} s; {before} submissions accepted before it,"
            f" {len(accepted) - before} after, none lost"
        )
        # The old leader comes back as the standby, and leads again when the other ends.
        pair.start("a", "--standby")
        poll(lambda: pair.log("a").count("standing by") == 1, "the old leader stands by", 30)
        pair.cli("b", "down")
        poll(lambda: pair.leads("a"), "the old leader leads again", 30)
        self.assertEqual(pair.cli("a", "run", "--", "true").returncode, 0)
        # A head that stands by says so, and ends without a word to the others.
        pair.start("b", "--standby")
        poll(lambda: pair.log("b").count("standing by") == 2, "the other one stands by", 30)
        self.assertIn("is a standby", pair.cli("b", "run", "--", "true").stderr)
        self.assertIn("stopped the standby head", pair.cli("b", "down").stdout)
        self.assertIsNotNone(pair.heads["b"].wait(10))
        self.assertEqual(pair.cli("a", "run", "--", "true").returncode, 0)

    def test_an_old_leader_that_wakes_up_is_fenced(self):
        pair = self.pair("sleeps")
        accepted, stop = self.load(pair)
        poll(lambda: len(accepted) > 50, "some load", 120)
        pair.heads["a"].send_signal(signal.SIGSTOP)  # at any moment, also in the middle of a commit
        slept = time.monotonic()
        poll(lambda: pair.leads("b"), "the takeover", 30)
        took = time.monotonic() - slept
        # A connection to a head that is only stopped stays open; its agents must not wait for it.
        # They ask each head in turn, three seconds each; the rest is room for a busy machine.
        poll(lambda: self.node_is_ready(pair, "b"), "the node at the new leader", 30)
        moved = time.monotonic() - slept - took
        self.assertLess(moved, 9, "seconds until the node was at the new leader")
        pair.heads["a"].send_signal(signal.SIGCONT)
        poll(lambda: pair.heads["a"].poll() is not None, "the old leader's end", 30)
        stop()
        self.assertLess(took, 10, "takeover")
        self.assertNotEqual(pair.heads["a"].returncode, 0)
        self.assertIn("taken over", pair.log("a"))
        self.check_nothing_is_lost(pair, accepted, "sleeps")
        print(
            f"takeover in {took:.1f} s, its node after {moved:.1f} s more; {len(accepted)}"
            " submissions accepted, none lost"
        )

    @staticmethod
    def node_is_ready(pair, head):
        nodes = json.loads(pair.cli(head, "nodes", "--json").stdout)["nodes"]
        return [node["state"] for node in nodes] == ["ready"]


# Forty connections that never send anything and are never closed.
IDLE = """
import socket, sys, time
held = [socket.create_connection((sys.argv[1], 7070)) for _ in range(40)]
time.sleep(600)
"""


@unittest.skipIf(net.usable(), net.usable())
class Door(postgres.PostgresTest):
    """Connections to a head that stands by are passed on, over a network between machines."""

    def setUp(self):
        self.net = net.Net("a", "b", "box")
        self.addCleanup(self.net.close)
        self.pg.psql("CREATE DATABASE door")
        self.pair = Pair(f"postgres://billow@/door?host={self.pg.dir}&port={self.pg.port}")
        self.addCleanup(self.pair.close)
        for name in ("a", "b", "box"):
            self.pair.places[name] = self.net.inside(name)

    def start(self, name, *more):
        names = (("--tls-name", self.net.address(head)) for head in ("a", "b"))
        words = (word for pair in names for word in pair)
        self.pair.start(name, *words, *more, listen="0.0.0.0:7070")

    def test_every_head_can_be_used(self):
        pair = self.pair
        self.start("a")
        poll(lambda: pair.leads("a"), "the first head", 60)
        self.start("b", "--standby")
        poll(lambda: "forwarding connections" in pair.log("b"), "the standby", 60)
        token = pair.cli("a", "token", "create", "--node").stdout.strip()
        pair.spawn(
            *("box", "join", f"https://{self.net.address('b')}:7070", "--token", token),
            *("--node-name", "box", "--data", os.path.join(pair.rig.root, "box")),
            *("--sim", "1xH100"),
        )
        # All of its traffic, a long output included, goes by way of the standby.
        done = pair.cli("a", "run", "--gpus", 1, "--", "seq", 200000)
        self.assertEqual(done.stdout.split()[-1], "200000", done.stderr)
        gate = os.path.join(pair.rig.root, "gate")
        script = f"while [ ! -e {gate} ]; do sleep 0.1; done; exit 6"
        job = json.loads(
            pair.cli("a", "submit", "--gpus", 1, "--json", "--", "sh", "-c", script).stdout
        )["id"]
        poll(lambda: "running" in pair.cli("a", "describe", job).stdout, "the job", 60)

        # The standby takes over at the same address; the old leader comes back as its standby.
        pair.heads["a"].kill()
        pair.heads["a"].wait()
        poll(lambda: pair.leads("b"), "the takeover", 30)
        self.start("a", "--standby")
        poll(lambda: "forwarding connections" in pair.log("a"), "the other standby", 60)
        poll(lambda: Failover.node_is_ready(pair, "b"), "the node at the new leader", 30)
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(pair.cli("b", "wait", job).returncode, 6)

        # Whoever connects and sends nothing does not stay when the leader has ended it.
        files = f"/proc/{pair.heads['a'].pid}/fd"
        before = len(os.listdir(files))
        idle = subprocess.Popen(
            [*self.net.inside("box"), sys.executable, "-c", IDLE, self.net.address("a")]
        )
        self.addCleanup(idle.wait)
        self.addCleanup(idle.kill)
        poll(lambda: len(os.listdir(files)) > before + 60, "the connections", 20)
        poll(lambda: len(os.listdir(files)) <= before + 4, "their end", 60)
        self.assertIsNone(idle.poll(), "the client has not closed them")

        # A laptop that knows only the standby.
        token = pair.cli("b", "token", "create", "laptop").stdout.strip()
        laptop = {"PATH": os.environ["PATH"], "HOME": pair.rig.files, "BILLOW_TOKEN": token}
        asked = subprocess.run(
            [
                *(*self.net.inside("box"), BILLOW, "describe", str(job)),
                *("--head", f"https://{self.net.address('a')}:7070"),
            ],
            **{"env": laptop, "capture_output": True, "text": True, "check": False},
        )
        self.assertEqual(asked.returncode, 0, asked)

        pair.heads["a"].send_signal(signal.SIGTERM)
        self.assertEqual(pair.heads["a"].wait(10), 0, pair.log("a"))


if __name__ == "__main__":
    unittest.main()
