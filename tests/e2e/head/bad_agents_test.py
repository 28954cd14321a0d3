"""Agents that speak wrongly, or for others, change nothing."""
import json
import os
import sqlite3
import struct

from rig import Rig, RigTest, WebSocket, agent_frame, poll


class Agents(RigTest):
    options = {"args": ("--node-name", "box")}

    def connect(self, node="other"):
        peer = WebSocket(self.rig, "/v1/agent", self.rig.node_token(node))
        self.assertEqual(peer.status, 101)
        return peer

    def offer(self, **fields):
        return {
            "name": "other",
            "boot_id": "b",
            "version": "0",
            "cpu_milli": 1000,
            "mem_mib": 1000,
            **fields,
        }

    def answer(self, peer):
        """The first message, as (type, document)."""
        frame = peer.receive()
        if frame is None or frame[0] == 8:
            return None
        (length,) = struct.unpack("<I", frame[1][:4])
        document = json.loads(frame[1][4 : 4 + length])
        return document["type"], document

    def test_garbage_closes_the_connection_and_nothing_else(self):
        for noise in (
            b"",
            b"\x00",
            b"\xff" * 100,
            struct.pack("<I", 1 << 30) + b"{}",
            struct.pack("<I", 5) + b"{not}",
            agent_frame({"type": "nonsense"}),
            agent_frame({"type": "hello", "version": "one"}),
            agent_frame({"type": "report", "number": 1, "status": {"task": 1}}),
            os.urandom(5000),
        ):
            peer = self.connect()
            peer.send(noise)
            answered = self.answer(peer)
            self.assertTrue(answered is None or answered[0] == "refused", answered)
            while (frame := peer.receive()) and frame[0] != 8:
                pass
            peer.close()
        peer = self.connect()
        peer.send(b"text, of all things", opcode=1)
        peer.close()
        self.assertEqual(
            self.rig.cli("run", "--cpus", "0.1", "--", "echo", "still here").out, b"still here\n"
        )
        self.assertLessEqual(
            {n["name"] for n in self.rig.json("nodes")["nodes"]}, {"box", "stranger"}
        )

    def test_other_versions_epochs_and_names_are_refused(self):
        for hello, word in (
            ({"version": 99, "offer": self.offer()}, "protocol"),
            ({"version": 1, "epoch_seen": 10**9, "offer": self.offer()}, "newer head"),
            ({"version": 1, "offer": self.offer(name="box")}, "named box"),
            ({"version": 1, "offer": self.offer(name="../etc")}, "../etc"),
        ):
            peer = self.connect("box" if word == "named box" else "other")
            peer.send(agent_frame({"type": "hello", **hello}))
            kind, document = self.answer(peer)
            self.assertEqual(kind, "refused", document)
            self.assertIn(word, document["message"])
            peer.close()

    def test_a_node_says_nothing_about_tasks_of_others(self):
        job = self.rig.json("submit", "--cpus", "0.1", "--", "sleep", "600")["id"]
        poll(lambda: self.rig.json("ps")["jobs"][0]["state"] == "running", "the job running")
        peer = self.connect("stranger")
        peer.send(
            agent_frame(
                {"type": "hello", "version": 1, "offer": self.offer(name="stranger", cpu_milli=0)}
            )
        )
        self.assertEqual(self.answer(peer)[0], "welcome")
        task = self.rig.api("GET", f"/v1/jobs/{job}").json["tasks"][0]["id"]
        peer.send(
            agent_frame(
                {
                    "type": "report",
                    "number": 1,
                    "status": {"task": task, "state": "starting", "waits_for": "SEND 1 BTC"},
                }
            )
        )
        while self.answer(peer)[0] != "ack":
            pass
        peer.close()
        self.assertNotIn(b"SEND 1 BTC", self.rig.api("GET", f"/v1/jobs/{job}").body)
        self.assertNotIn("SEND 1 BTC", self.rig.ok("ps").text)
        self.rig.ok("stop", str(job))

    def test_an_agent_obeys_no_head_of_a_lower_epoch(self):
        # The agent has seen this head's epoch; one that comes back from the past (a restored
        # backup) is told to go.
        rig = Rig()
        try:
            rig.ok("down")
            backup = rig.file("backup.db")
            with sqlite3.connect(os.path.join(rig.data, "billow.db")) as db:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            db.close()
            with open(os.path.join(rig.data, "billow.db"), "rb") as f, open(backup, "wb") as g:
                g.write(f.read())
            for _ in range(3):
                rig.up()
                rig.ok("down")
            os.replace(backup, os.path.join(rig.data, "billow.db"))
            for name in ("billow.db-wal", "billow.db-shm"):
                if os.path.exists(os.path.join(rig.data, name)):
                    os.unlink(os.path.join(rig.data, name))
            rig.cli("up", "--background", "--listen", "127.0.0.1:0", timeout=60)
            poll(lambda: "newer head" in rig.head_log(), "the refusal in the head's log")
            rig.ok("down")
        finally:
            rig.close()

    def test_a_stranger_cannot_speak_for_another_nodes_task(self):
        job = self.rig.submit("--", "sleep", "600")
        task = self.rig.wait_for(job, "running")["tasks"][0]["id"]
        peer = self.connect("stranger")
        peer.send(
            agent_frame(
                {"type": "hello", "version": 1, "offer": self.offer(name="stranger", cpu_milli=0)}
            )
        )
        self.assertEqual(self.answer(peer)[0], "welcome")
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
        while (got := self.answer(peer)) and got[0] != "ack":
            pass
        self.assertEqual(self.rig.job(job)["state"], "running")
        self.rig.ok("stop", "--force", "--wait", job)
        peer.close()

    def test_nothing_that_is_said_of_anothers_task_counts(self):
        """A hostile agent with a credential of its own: meter marks, idleness, input and logs of a
        task it was never given."""
        job = self.rig.submit("--gpus", 1, "--", "sleep", "600")
        task = self.rig.wait_for(job, "running")["tasks"][0]["id"]
        peer = self.connect("stranger")
        peer.send(
            agent_frame(
                {"type": "hello", "version": 1, "offer": self.offer(name="stranger", cpu_milli=0)}
            )
        )
        self.assertEqual(self.answer(peer)[0], "welcome")
        hour = 3600 * 10**9
        for message in (
            {
                "type": "meter_mark",
                "marks": [
                    {
                        "task": task,
                        "meter": {
                            "active_ns": 10**6 * hour,
                            "energy_mj": 10**15,
                            "gpu_mem_peak_mib": 10**9,
                            "measured": True,
                        },
                    }
                ],
            },
            {"type": "meter_mark", "marks": [{"task": 10**9, "meter": {"active_ns": -hour}}]},
            {
                "type": "idle_note",
                "task": task,
                "state": "idle",
                "action": "stop",
                "text": "forged",
            },
            {"type": "keep_alive_asked", "task": task, "lasts_ns": 1000 * hour, "reason": "forged"},
            {
                "type": "input_taken",
                "task": task,
                "bytes": 10**12,
                "accepted": 10**12,
                "received": 10**12,
            },
            {"type": "log_chunk", "subscription": 1, "offset": 0, "next_offset": 99, "end": True},
            {"type": "report", "number": 7, "status": {"task": 10**9, "state": "running"}},
            {"type": "reclaimed", "reason": "forged"},
        ):
            peer.send(agent_frame(message))
        for kind in (
            b'{"type":"tunnel_data","tunnel":1}',
            b'{"type":"tunnel_end","tunnel":1,"cut":true}',
            b"{",
        ):
            peer.send(b"\xfe\xff\xff\xff" + struct.pack("<I", len(kind)) + kind + b"bytes")
        peer.send(
            agent_frame(
                {
                    "type": "report",
                    "number": 8,
                    "status": {
                        "task": task,
                        "state": "ended",
                        "exit": {"kind": "exited", "code": 0},
                    },
                }
            )
        )
        while (got := self.answer(peer)) and not (got[0] == "ack" and got[1]["number"] == 8):
            pass
        document = self.rig.job(job)
        self.assertEqual(document["state"], "running")
        self.assertNotIn("forged", json.dumps(document))
        leases = self.rig.api("GET", f"/v1/jobs/{job}/cost").json
        self.assertNotIn(str(10**15), json.dumps(leases))
        self.assertEqual(
            self.rig.cli("run", "--cpus", "0.1", "--", "echo", "still here").out, b"still here\n"
        )
        poll(
            lambda: f"task {10 ** 9}" in self.rig.head_log() or "stranger" in self.rig.head_log(),
            "the head's log names the liar",
        )
        self.rig.ok("stop", "--force", "--wait", job)
        peer.close()
