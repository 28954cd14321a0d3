"""Machines that join a head over a real network with real TLS, and everything that must not be let
in."""
import datetime
import json
import os
import struct
import unittest

import net
from far import FarCase, FarRig
from node_key import Key
from rig import WebSocket, agent_frame, poll


class Join(FarCase):
    hosts = ("head", "a", "b", "far")

    @classmethod
    def prepare(cls):
        cls.token = cls.rig.join_token()
        cls.rig.join("a", cls.token, "--label", "zone=z1", "--label", "rack=r7")
        cls.rig.join("b", cls.token, "--label", "zone=z2")
        cls.rig.node_here("a")
        cls.rig.node_here("b")

    def test_work_runs_on_joined_machines_and_its_output_comes_back(self):
        nodes = self.rig.nodes()
        self.assertEqual(nodes["a"]["labels"].get("zone"), "z1")
        self.assertEqual(nodes["a"]["labels"].get("rack"), "r7")
        done = self.rig.ok(
            "run", "--nodes", 2, "--gpus", 4, "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE"
        )
        self.assertIn("rank 0 of 2", done.text)
        # Nothing of the tokens lies around readable, or in a log.
        mode = os.stat(os.path.join(self.rig.node_dir("a"), "node/credential")).st_mode & 0o777
        self.assertEqual(mode, 0o600)
        secret = self.token.split(".")[0]
        for text in (self.rig.head_log(), self.rig.log_of("a")):
            self.assertNotIn(secret, text)

    def test_a_token_of_another_head_is_no_use_here(self):
        # "far" runs a head of its own, with an authority of its own; somebody mixes up the
        # addresses.
        other = FarRig(self.net, "far")
        try:
            done = self.rig.on(
                "b",
                "join",
                other.url,
                "--token",
                self.token,
                "--node-name",
                "lost",
                "--data",
                self.rig.file("lost"),
                "--register-only",
            )
            self.assertEqual(done.returncode, 69, done)
            self.assertIn("created by another head", done.stderr)
            self.assertEqual(other.nodes(), {})
            self.assertFalse(os.path.exists(self.rig.file("lost/node/credential")))
            # Without a fingerprint the private authority is not trusted either.
            done = self.rig.on(
                "b",
                "join",
                other.url,
                "--token",
                self.token.split(".")[0],
                "--node-name",
                "lost",
                "--data",
                self.rig.file("lost"),
                "--register-only",
            )
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("self-signed", done.stderr)
        finally:
            other.close()

    def test_expired_revoked_and_wrong_tokens_are_refused_with_what_to_do(self):
        expired = self.rig.join_token("--expires", "1s")
        tries = iter(
            range(1000)
        )  # a machine that has joined needs no token any more, so each try is another machine

        def join(token):
            number = next(tries)
            return self.rig.on(
                "far",
                "join",
                self.rig.url,
                "--token",
                token,
                "--node-name",
                f"late{number}",
                "--data",
                self.rig.file(f"late{number}"),
                "--register-only",
            )

        done = poll(
            lambda: (lambda d: d if d.returncode and "expired" in d.stderr else None)(
                join(expired)
            ),
            "the token's end",
            15,
        )
        self.assertIn("billow token create --node", done.stderr)
        pin = self.token.split(".")[1]
        wrong = join("bwj_" + "x" * 40 + "." + pin)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("not valid", wrong.stderr)
        # A person's token lets no machine join, and a join token lets nobody look or work.
        self.assertNotEqual(self.rig.api("POST", "/v1/join", {"name": "x"}).status, 201)
        self.assertEqual(self.rig.api("GET", "/v1/jobs", token=self.token).status, 403)
        self.assertEqual(
            self.rig.api("POST", "/v1/jobs", self.rig.spec("true"), token=self.token).status, 403
        )

    def test_a_name_that_is_taken_is_refused(self):
        done = self.rig.on(
            "far",
            "join",
            self.rig.url,
            "--token",
            self.token,
            "--node-name",
            "a",
            "--data",
            self.rig.file("again"),
            "--register-only",
        )
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("has already joined", done.stderr)
        self.assertIn("--node-name", done.stderr)

    def credential(self, host):
        return Key(os.path.join(self.rig.node_dir(host), "node/credential"))

    def hello(self, key, **offer):
        peer = WebSocket(self.rig, "/v1/agent", None, authorization=key.authorization())
        self.assertEqual(peer.status, 101)
        peer.send(
            agent_frame(
                {
                    "type": "hello",
                    "version": 1,
                    "offer": {
                        "boot_id": "x",
                        "version": "0",
                        "cpu_milli": 1000,
                        "mem_mib": 1000,
                        **offer,
                    },
                }
            )
        )
        frame = peer.receive()
        if frame is None or frame[0] == 8:
            return peer, {"type": "closed", "message": ""}
        (length,) = struct.unpack("<I", frame[1][:4])
        return peer, json.loads(frame[1][4 : 4 + length])

    def test_a_stolen_credential_speaks_for_no_other_node(self):
        job = self.rig.submit("--gpus", 4, "--", "sleep", "600")
        node = self.rig.wait_for(job, "running")["tasks"][0]["node"]
        thief = {"a": "b", "b": "a"}[node]
        peer, answer = self.hello(self.credential(thief), name=node)
        self.assertEqual(answer["type"], "refused")
        self.assertIn(f"this credential is for node {thief}", answer["message"])
        peer.close()
        # Its own name from another machine while it is connected: refused too, and nobody is thrown
        # out.
        peer, answer = self.hello(self.credential(thief), name=thief)
        self.assertEqual(answer["type"], "refused")
        self.assertIn("already connected", answer["message"])
        peer.close()
        self.assertEqual(self.rig.job(job)["state"], "running")
        self.assertEqual(self.rig.nodes()[node].get("state", "ready"), "ready")
        self.rig.ok("stop", "--force", "--wait", job)

    def test_an_agent_that_lies_is_not_believed(self):
        done = self.rig.on(
            "far",
            "join",
            self.rig.url,
            "--token",
            self.token,
            "--node-name",
            "liar",
            "--data",
            self.rig.file("liar"),
            "--register-only",
        )
        self.assertEqual(done.returncode, 0, done)
        credential = Key(self.rig.file("liar/node/credential"))
        gpu = lambda i, uuid: {
            "index": i,
            "uuid": uuid,
            "vendor": "nvidia",
            "type": "H100",
            "mem_mib": 81559,
        }
        for gpus, word in (
            ([gpu(i, f"GPU-{i}") for i in range(65)], "65 GPUs"),
            ([gpu(0, "GPU-0"), gpu(1, "GPU-0")], "twice"),
            ([{**gpu(0, "GPU-0"), "mem_mib": -5}], "negative"),
        ):
            peer, answer = self.hello(credential, name="liar", gpus=gpus)
            self.assertEqual(answer["type"], "refused", answer)
            self.assertIn(word, answer["message"])
            peer.close()
        # Let in with what can be, it reports the end of somebody else's job, and claims a card that
        # is in another machine.
        job = self.rig.submit("--gpus", 1, "--", "sleep", "600")
        task = self.rig.wait_for(job, "running")["tasks"][0]["id"]
        peer, answer = self.hello(credential, name="liar", cpu_milli=0, gpus=[gpu(0, "GPU-real-1")])
        self.assertEqual(answer["type"], "welcome")
        peer.send(
            agent_frame(
                {
                    "type": "report",
                    "number": 1,
                    "status": {
                        "task": task,
                        "state": "ended",
                        "exit": {"kind": "exited", "code": 0},
                    },
                }
            )
        )
        peer.receive()
        self.assertEqual(self.rig.job(job)["state"], "running")
        self.rig.on(
            "far",
            "join",
            self.rig.url,
            "--token",
            self.token,
            "--node-name",
            "liar2",
            "--data",
            self.rig.file("liar2"),
            "--register-only",
        )
        other = Key(self.rig.file("liar2/node/credential"))
        second, answer = self.hello(other, name="liar2", gpus=[gpu(0, "GPU-real-1")])
        self.assertEqual(answer["type"], "refused", answer)
        self.assertIn("node liar already offers", answer["message"])
        second.close()
        peer.close()
        self.rig.ok("stop", "--force", "--wait", job)
        poll(lambda: self.rig.cli("node", "rm", "liar").code == 0, "the liar forgotten", 40)

    def test_a_revoked_credential_is_thrown_out_and_stays_out(self):
        self.rig.join("far", self.token)
        self.rig.node_here("far")
        token = next(
            t["id"] for t in self.rig.json("token", "list")["tokens"] if t["name"] == "node-far"
        )
        self.rig.ok("token", "revoke", token)
        poll(lambda: "revoked" in self.rig.log_of("far"), "the refusal in the agent's log")
        poll(lambda: self.rig.nodes()["far"].get("state") != "ready", "far unreachable", 30)
        self.rig.ok("node", "rm", "far")
        self.assertNotIn("far", self.rig.nodes())

    def test_an_older_and_a_newer_agent_are_told_what_to_do(self):
        for version, word in ((0, "install billow"), (99, "upgrade the head")):
            proof = self.credential("a").authorization()
            peer = WebSocket(self.rig, "/v1/agent", None, authorization=proof)
            peer.send(
                agent_frame(
                    {
                        "type": "hello",
                        "version": version,
                        "version_min": version,
                        "offer": {"name": "a", "boot_id": "x"},
                    }
                )
            )
            frame = peer.receive()
            (length,) = struct.unpack("<I", frame[1][:4])
            answer = json.loads(frame[1][4 : 4 + length])
            self.assertEqual(answer["type"], "refused")
            self.assertIn(word, answer["hint"])
            peer.close()

    def test_a_laptop_logs_in_and_works(self):
        token = self.rig.ok("token", "create", "laptop").text.strip()
        self.assertRegex(token, r"^bw_[^.]+\.[0-9a-f]{64}$")
        home = self.rig.home("laptop")
        wrong = self.rig.on(
            "far",
            "login",
            self.rig.url,
            home=home,
            stdin=token.split(".")[0] + "." + "0" * 64 + "\n",
        )
        self.assertNotEqual(wrong.returncode, 0)
        self.assertIn("certificate", wrong.stderr)
        done = self.rig.on("far", "login", self.rig.url, home=home, stdin=token + "\n")
        self.assertEqual(done.returncode, 0, done)
        contexts = os.path.join(home, ".config/billow/contexts.json")
        self.assertEqual(os.stat(contexts).st_mode & 0o777, 0o600)
        ran = self.rig.on("far", "run", "--gpus", "1", "--", "echo", "from afar", home=home)
        self.assertEqual((ran.returncode, ran.stdout), (0, "from afar\n"), ran)
        listed = self.rig.on("far", "context", "list", home=home)
        self.assertIn(self.rig.url, listed.stdout)
        self.assertEqual(self.rig.on("far", "logout", home=home).returncode, 0)
        self.assertNotIn("bw_", open(contexts, encoding="utf-8").read())

    def test_a_plain_connection_is_not_answered(self):
        done = self.rig.on(
            "far",
            "status",
            "--head",
            self.rig.url.replace("https", "http"),
            env={"BILLOW_TOKEN": self.token},
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("Traceback", done.stderr)


class Trouble(FarCase):
    """The network fails in its ways; work goes on, and nothing is given out twice."""

    hosts = ("head", "a", "b", "c")

    @classmethod
    def prepare(cls):
        cls.token = cls.rig.join_token()
        cls.rig.join("a", cls.token)
        cls.rig.node_here("a")

    def test_a_cut_machine_keeps_its_lease_and_its_job_goes_on(self):
        gate = self.rig.file("gate")
        job = self.rig.submit(
            "--gpus",
            4,
            "--",
            "sh",
            "-c",
            f"until [ -e {gate} ]; do sleep 0.05; done; echo done; exit 7",
        )
        self.rig.wait_for(job, "running")
        self.net.cut("a")
        poll(lambda: self.rig.nodes()["a"].get("state") != "ready", "a unreachable", 40)
        # Its GPUs are promised: whoever wants them waits, although nobody can say whether they are
        # used.
        second = self.rig.submit("--gpus", 4, "--", "true")
        self.assertEqual(self.rig.job(second)["state"], "queued")
        self.assertEqual(self.rig.job(job)["state"], "running")
        with open(gate, "w", encoding="ascii"):
            pass
        self.net.mend("a")
        self.assertEqual(self.rig.cli("wait", job, timeout=90).code, 7)
        self.assertEqual(self.rig.cli("wait", second, timeout=90).code, 0)
        self.assertEqual(self.rig.ok("logs", job).out, b"done\n")
        self.assertEqual(self.rig.job(job)["attempt"], 1)
        # The ledger: one lease for each, the time without a head paid for like any other, and
        # neither in the other's time.
        first, after = self.leases(job), self.leases(second)
        self.assertEqual((len(first), len(after)), (1, 1), (first, after))
        # No node is called unreachable before; the times are whole seconds.
        self.assertGreaterEqual(self.seconds(first[0]["to"], first[0]["from"]), 10)
        self.assertGreaterEqual(self.seconds(after[0]["from"], first[0]["to"]), 0)

    def leases(self, job):
        return self.rig.json("cost", "--job", job)["leases"]

    @staticmethod
    def seconds(later, earlier):
        read = lambda text: datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        return (read(later) - read(earlier)).total_seconds()

    def test_a_job_that_may_run_again_moves_only_after_its_node_has_let_go(self):
        token = self.rig.join_token()
        self.rig.join("c", token)
        self.rig.node_here("c", 60)
        beats, gate = self.rig.file("beats"), self.rig.file("fence-gate")
        # The network is cut, the file system is not: both attempts write down when they live.
        work = (
            f'until [ -e {gate} ]; do echo "$BILLOW_ATTEMPT $(date +%s%N)" >> {beats}; sleep 0.1;'
            " done"
        )
        job = self.rig.submit("--gpus", 4, "--rerun-if-lost", "--", "sh", "-c", work)
        node = self.rig.wait_for(job, "running")["tasks"][0]["node"]
        poll(lambda: os.path.exists(beats), "a first beat")
        self.net.cut(node)
        try:
            poll(lambda: self.rig.job(job)["attempt"] == 2, "the second attempt", 150)
            self.rig.wait_for(job, "running", 60)
            self.assertNotEqual(self.rig.job(job)["tasks"][-1]["node"], node)
        finally:
            self.net.mend(node)
        self.rig.node_here(node, 60)
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0)
        with open(beats, encoding="ascii") as f:
            lines = [tuple(map(int, line.split())) for line in f]
        ends, begins = max(at for attempt, at in lines if attempt == 1), min(
            at for attempt, at in lines if attempt == 2
        )
        self.assertLess(ends, begins, "two attempts lived at once")
        leases = self.leases(job)
        self.assertEqual(len(leases), 2, leases)
        self.assertGreaterEqual(self.seconds(leases[1]["from"], leases[0]["to"]), 0)

    def test_loss_slows_and_breaks_nothing(self):
        if not self.net.lose("a", 0.15):
            self.skipTest("this kernel has no statistic match")
        try:
            lines = self.rig.ok(
                "run",
                "--gpus",
                1,
                "--",
                "sh",
                "-c",
                "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done",
                timeout=120,
            ).text.splitlines()
            self.assertEqual(lines, [f"line {i}" for i in range(2000)])
        finally:
            self.net.lose("a", 0)

    def test_a_long_way_between(self):
        namespace = self.net.hosts["b"][0]
        proxy = net.SlowProxy(
            namespace, (self.net.address("b"), 7070), (self.net.address("head"), 7070), 0.1
        )
        try:
            # The certificate must hold for the name dialled: the head is told of the other address
            # it is known by.
            self.rig.ok("down")
            self.rig.up("--tls-name", self.net.address("b"))
            self.rig.join("b", self.token, url=f"https://{self.net.address('b')}:7070", sim="2xL4")
            self.rig.node_here("b", 60)
            done = self.rig.ok(
                "run", "--gpus", 1, "--gpu-type", "L4", "--", "echo", "far away", timeout=60
            )
            self.assertEqual(done.out, b"far away\n")
        finally:
            proxy.close()


if __name__ == "__main__":
    unittest.main()
