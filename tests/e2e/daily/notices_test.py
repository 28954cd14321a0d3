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

    def test_a_secret_is_replaced_while_messages_go_on(self):
        receiver = Receiver()
        self.addCleanup(receiver.close)
        made = self.rig.json("webhook", "add", receiver.url)
        self.addCleanup(self.rig.cli, "webhook", "rm", made["id"])

        def signed_with():
            """Which of the secrets so far sign a message now, in the order of its signatures."""
            self.rig.ok("webhook", "test", made["id"])
            _, headers, body = receiver.messages[-1]
            text = f"{headers['Billow-Id']}.{headers['Billow-Timestamp']}.".encode() + body
            known = {
                "v1=" + hmac.new(secret.encode(), text, hashlib.sha256).hexdigest(): number
                for number, secret in enumerate(secrets)
            }
            return [known.get(one) for one in headers["Billow-Signature"].split(",")]

        secrets = [made["secret"]]
        self.assertEqual(signed_with(), [0])
        secrets.append(self.rig.json("webhook", "rotate", made["id"])["secret"])
        self.assertEqual(signed_with(), [1, 0], "both for the grace period")
        # Neither a restart nor a new key of the installation changes it.
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        self.rig.ok("secret", "rotate-key")
        self.assertEqual(signed_with(), [1, 0])
        secrets.append(self.rig.json("webhook", "rotate", made["id"], "--grace", "1s")["secret"])
        poll(lambda: signed_with() == [2], "the end of the old secret")
        secrets.append(self.rig.json("webhook", "rotate", made["id"], "--grace", "0s")["secret"])
        self.assertEqual(signed_with(), [3], "at once")
        self.assertEqual(len(set(secrets)), 4)
        # It is recorded who did it, and the secrets are nowhere.
        events = lambda *more: self.rig.ok("events", "--limit", "1000", *more).text
        said = events().count(f"webhook {made['id']} has a new signing key")
        self.assertEqual(said, 3, events())
        everything = events("--json") + self.rig.head_log()
        self.assertEqual([s for s in secrets if s in everything], [])
        for words in (("99",), (made["id"], "--grace", "31d"), (made["id"], "--grace", "-1s")):
            self.assertNotEqual(self.rig.cli("webhook", "rotate", *words).code, 0, words)
        self.rig.ok("webhook", "rm", made["id"])
        self.assertIn(f"webhook {made['id']} no longer has a signing key", events())

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
