"""Notices of money: signed webhooks and commands."""
import hashlib
import hmac
import json
import os

from money_test import Receiver
from rig import Rig, RigTest, poll


class Notices(RigTest):
    def test_webhooks_are_signed_retried_and_idempotent(self):
        receiver = Receiver()
        self.addCleanup(receiver.close)
        made = self.rig.json("webhook", "add", receiver.url, "--kinds", "job,budget")
        self.assertIn("delivered", self.rig.ok("webhook", "test", made["id"]).text)
        receiver.refuse = 2
        job = self.rig.submit("--", "sh", "-c", "exit 3")
        message = poll(
            lambda: [m for m in receiver.messages if m[0] == 200 and b"job.failed" in m[2]],
            "the notice",
        )[0]
        status, headers, body = message
        notice = json.loads(body)
        self.assertEqual(notice["data"]["job"], job)
        self.assertEqual(notice["id"], headers["Billow-Id"])
        signed = f"{headers['Billow-Id']}.{headers['Billow-Timestamp']}.".encode() + body
        self.assertEqual(
            headers["Billow-Signature"],
            "v1=" + hmac.new(made["secret"].encode(), signed, hashlib.sha256).hexdigest(),
        )
        tries = [m for m in receiver.messages if b"job.failed" in m[2]]
        self.assertEqual([m[0] for m in tries], [503, 503, 200])
        self.assertEqual(
            len({m[1]["Billow-Id"] for m in tries}), 1, "the same message has the same id"
        )
        # Nothing is lost over a crash of the head, and nothing that was delivered comes again.
        receiver.refuse = 1000
        second = self.rig.submit("--", "sh", "-c", "exit 4")
        poll(
            lambda: [
                m
                for m in receiver.messages
                if f'"job":{second},'.encode() in m[2] or f'"job":{second}}}'.encode() in m[2]
            ],
            "a try",
        )
        self.rig.kill(self.rig.head_pid())
        receiver.refuse = 0
        before = len(receiver.messages)
        self.rig.up()
        poll(
            lambda: [
                m
                for m in receiver.messages[before:]
                if m[0] == 200 and str(second).encode() in m[2]
            ],
            "the notice after the crash",
        )
        self.assertFalse(
            [m for m in receiver.messages[before:] if json.loads(m[2])["id"] == notice["id"]]
        )
        poll(
            lambda: self.rig.json("webhook", "list")["webhooks"][0]["waiting"] == 0,
            "an empty queue",
        )
        self.assertNotIn(made["secret"], self.rig.head_log())
        self.rig.ok("webhook", "rm", made["id"])
        self.assertNotEqual(self.rig.cli("webhook", "add", "ftp://x").code, 0)

    def test_a_command_is_told_too(self):
        path = self.rig.file("notices")
        rig = Rig(args=("--notify-command", f"cat >> {path}"))
        self.addCleanup(rig.close)
        rig.submit("--", "sh", "-c", "exit 5")
        notice = poll(
            lambda: (
                [json.loads(line) for line in open(path, encoding="utf-8")]
                if os.path.exists(path) and os.path.getsize(path)
                else None
            ),
            "the command's input",
        )[0]
        self.assertEqual(notice["kind"], "job.failed")
