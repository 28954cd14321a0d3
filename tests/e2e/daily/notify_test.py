"""Notices to persons: mail, Slack, Discord, ntfy and webhooks, against real servers on loopback that
check what each service documents."""
import hashlib
import hmac
import http.server
import json
import re
import threading
import unittest

import cloud_keys
from mail_server import MailServer
from rig import Rig, poll


class Service:
    """An HTTP receiver. `answers` are the statuses of the next answers, then 200."""

    def __init__(self):
        self.messages, self.answers = [], []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = outer.answers.pop(0) if outer.answers else 200
                outer.messages.append((status, self.path, dict(self.headers), body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def first(self, text, seconds=60):
        """The first accepted message that contains the text."""
        return poll(
            lambda: [m for m in self.messages if m[0] == 200 and text.encode() in m[3]],
            f"a message with {text}",
            seconds,
        )[0]


class Base(unittest.TestCase):
    ARGS = ()

    @classmethod
    def setUpClass(cls):
        cls.mail = MailServer(
            certificate=cloud_keys.certificate(), login=("billow@example.org", "mail-pass-word")
        )
        cls.addClassCleanup(cls.mail.close)
        password = cloud_keys.path("mail-password")
        with open(password, "w", encoding="utf-8") as file:
            file.write("mail-pass-word\n")
        cls.rig = Rig(
            args=(
                *("--smtp", f"smtp://billow@example.org@127.0.0.1:{cls.mail.port}"),
                *("--smtp-password-file", password, "--smtp-ca", cloud_keys.path("cert.pem")),
            )
        )
        cls.addClassCleanup(cls.rig.close)

    def service(self):
        service = Service()
        self.addCleanup(service.close)
        return service

    def add(self, via, address=None, *options):
        made = self.rig.json(
            "notify", "add", via, *options, stdin=address.encode() if address else None
        )
        self.addCleanup(self.rig.cli, "notify", "rm", made["id"])
        return made

    def end_a_job(self, *options, code=0):
        job = self.rig.submit(*options, "--", "sh", "-c", f"exit {code}")
        self.rig.cli("wait", job)
        return job


class Services(Base):
    def test_slack_gets_text_in_which_names_mean_nothing(self):
        service = self.service()
        self.add("slack", f"{service.url}/services/T000/B000/secret-part", "--on", "ends")
        job = self.end_a_job("--name", "a.b", "--label", "x=1")
        status, path, headers, body = service.first(f"(job {job})")
        self.assertEqual(path, "/services/T000/B000/secret-part")
        self.assertEqual(headers["Content-Type"], "application/json")
        message = json.loads(body)
        self.assertEqual(set(message), {"text"})
        self.assertTrue(message["text"].startswith(f"*a.b (job {job}) succeeded*\n"), message)
        self.assertIn("it ran for", message["text"])
        self.assertNotIn("<", message["text"])

    def test_a_target_is_tried_and_changed(self):
        service = self.service()
        made = self.add("slack", f"{service.url}/s", "--on", "ends")
        self.rig.ok("notify", "test", made["id"])
        service.first("Test notice from Billow")
        self.rig.ok("notify", "set", made["id"], "--on", "fails")
        fine, failed = self.end_a_job("--name", "fine"), self.end_a_job("--name", "bad", code=3)
        service.first(f"(job {failed})")
        self.assertFalse([m for m in service.messages if f"(job {fine})".encode() in m[3]])

    def test_discord_gets_content_that_mentions_nobody(self):
        service = self.service()
        self.add("discord", f"{service.url}/api/webhooks/1/token", "--on", "fails")
        self.end_a_job("--name", "fine")
        job = self.end_a_job("--name", "under_scored", code=3)
        message = json.loads(service.first(f"(job {job})")[3])
        self.assertEqual(message["allowed_mentions"], {"parse": []})
        self.assertIn(r"under\_scored", message["content"])
        self.assertIn("exit code 3", message["content"])
        self.assertLessEqual(len(message["content"]), 2000)
        self.assertFalse(
            [m for m in service.messages if b"fine" in m[3]], "only failures were asked for"
        )

    def test_ntfy_gets_json_at_its_root_with_the_token(self):
        service = self.service()
        token = self.rig.file("ntfy-token")
        with open(token, "w", encoding="utf-8") as file:
            file.write("tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2\n")
        self.add("ntfy", f"{service.url}/my-topic", "--on", "ends", "--token-file", token)
        job = self.end_a_job("--name", "phone")
        status, path, headers, body = service.first(f"(job {job})")
        message = json.loads(body)
        self.assertEqual((path, message["topic"]), ("/", "my-topic"))
        self.assertEqual(message["title"], f"phone (job {job}) succeeded")
        self.assertEqual(headers["Authorization"], "Bearer tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2")
        self.assertIn(message["priority"], (1, 2, 3, 4, 5))
        self.assertEqual(message["tags"], ["ends"])

    def test_a_webhook_is_signed_and_retried_with_the_same_id(self):
        service = self.service()
        made = self.add("webhook", f"{service.url}/hook", "--on", "ends")
        service.answers = [503]
        job = self.end_a_job()
        status, path, headers, body = service.first(f'"job":{job}')
        signed = f"{headers['Billow-Id']}.{headers['Billow-Timestamp']}.".encode() + body
        self.assertEqual(
            headers["Billow-Signature"],
            "v1=" + hmac.new(made["secret"].encode(), signed, hashlib.sha256).hexdigest(),
        )
        self.assertEqual([m[0] for m in service.messages], [503, 200])
        self.assertEqual(len({m[2]["Billow-Id"] for m in service.messages}), 1)
        notice = json.loads(body)["data"]["notices"][0]
        self.assertEqual((notice["on"], notice["job"]), ("ends", job))

    def test_a_mail_address_is_confirmed_and_then_gets_mail_over_tls(self):
        added = self.rig.json("notify", "add", "email", "ana@example.org", "--on", "ends")
        self.addCleanup(self.rig.cli, "notify", "rm", added["id"])
        self.assertTrue(added["code_sent"], added)
        unheard = self.end_a_job("--name", "unheard")
        first = poll(lambda: self.mail.to("ana@example.org"), "the mail with the code")[0]
        code = re.search(rf"notify confirm {added['id']} (\w+)", first["text"])[1]
        wrong = self.rig.cli("notify", "confirm", added["id"], "0000000000")
        self.assertNotEqual(wrong.code, 0)
        self.assertIn("the code is wrong", wrong.errors)
        self.rig.ok("notify", "confirm", added["id"], code)
        job = self.end_a_job("--name", "greet")
        mail = poll(
            lambda: [m for m in self.mail.to("ana@example.org") if f"job {job}" in m["subject"]],
            "the mail",
            60,
        )[0]
        self.assertEqual(mail["subject"], f"greet (job {job}) succeeded")
        self.assertTrue(mail["secure"])
        self.assertEqual(mail["envelope_from"], "billow@example.org")
        self.assertEqual(mail["headers"]["Auto-Submitted"], "auto-generated")
        self.assertIn("it ran for", mail["text"])
        self.assertFalse(
            [m for m in self.mail.to("ana@example.org") if f"job {unheard}" in m["subject"]],
            "nothing before the address was confirmed",
        )
        self.assertFalse([l for l in self.mail.lines if l.startswith("AUTH")], "login in plain")

    def test_many_notices_come_in_one_message(self):
        service = self.service()
        self.add("slack", f"{service.url}/s", "--on", "ends")
        jobs = [self.rig.submit("--name", f"n{i}", "--", "true") for i in range(8)]
        for job in jobs:
            self.rig.ok("wait", job)
        for job in jobs:
            service.first(f"(job {job})")
        self.assertLess(len(service.messages), 4, [m[3] for m in service.messages])

    def test_an_array_is_told_once(self):
        service = self.service()
        self.add("slack", f"{service.url}/s", "--on", "ends")
        array = self.rig.json("submit", "--array", "0-4", "--", "sh", "-c", "exit 0")["id"]
        self.rig.ok("wait", array)
        text = json.loads(service.first(f"array {array}")[3])["text"]
        self.assertIn("5 of 5 jobs succeeded", text)
        self.assertEqual(len(service.messages), 1)

    def test_a_job_that_waits_is_told_once(self):
        service = self.service()
        self.add("slack", f"{service.url}/s", "--on", "waits", "--wait", "1m")
        holder = self.rig.submit("--gpus", 8, "--", "sleep", 600)
        waiting = self.rig.submit("--gpus", 8, "--name", "patient", "--", "true")
        try:
            text = json.loads(service.first(f"(job {waiting})", 150)[3])["text"]
            self.assertIn("still waits", text)
            self.assertIn("queued for more than 60 s", text)
        finally:
            self.rig.ok("stop", "--force", waiting, holder)
        self.assertEqual(len(service.messages), 1)

    def test_a_budget_that_passes_its_percentage(self):
        service = self.service()
        self.add("slack", f"{service.url}/s", "--on", "budget", "--budget", "50")
        self.rig.ok("price", "set", "H100", "--cost", "36000")  # ten dollars a second
        self.addCleanup(self.rig.cli, "price", "rm", "H100")
        self.rig.ok("project", "create", "tight")
        you = self.rig.json("status")["you"]["user"]
        self.rig.ok("project", "member", "tight", you, "--role", "admin")
        self.rig.ok("budget", "set", "20", "--project", "tight", "--total", "--warn-only")
        job = self.rig.submit("--project", "tight", "--gpus", 1, "--", "sleep", 600)
        text = json.loads(service.first("tight")[3])["text"]
        self.assertRegex(text, r"Budget of project tight passed (50|80|100) %")
        self.rig.ok("stop", "--force", job)


class Safety(Base):
    def test_a_secret_is_kept_and_never_shown_again(self):
        service = self.service()
        made = self.add("slack", f"{service.url}/services/very-secret-path", "--on", "ends")
        self.assertNotIn("very-secret-path", json.dumps(made))
        self.assertEqual(made["to"], "127.0.0.1")
        shown = self.rig.ok("notify", "list").text + self.rig.ok("notify", "list", "--json").text
        self.assertNotIn("very-secret-path", shown)
        self.assertIn("slack", shown)
        events = self.rig.api("GET", "/v1/events?after=0&limit=1000").body.decode()
        self.assertIn("notice_target_set", events)
        self.assertNotIn("very-secret-path", events)
        self.assertNotIn("very-secret-path", self.rig.head_log())
        with open(f"{self.rig.data}/billow.db", "rb") as db:
            self.assertNotIn(b"very-secret-path", db.read())
        refused = self.rig.cli("notify", "add", "slack", f"{service.url}/on-the-command-line")
        self.assertNotEqual(refused.code, 0)
        self.assertIn("secret", refused.errors)

    def test_targets_belong_to_their_person_and_lead_outwards(self):
        service = self.service()
        self.rig.ok("user", "create", "ben")
        ben = self.rig.token_for("ben")
        mine = self.add("slack", f"{service.url}/s", "--on", "ends")
        self.assertEqual(self.rig.api("GET", "/v1/notify", token=ben).json["targets"], [])
        for method, path in (("DELETE", ""), ("POST", "/test"), ("POST", "/confirm")):
            answer = self.rig.api(
                method, f"/v1/notify/{mine['id']}{path}", {"code": "x"}, token=ben
            )
            self.assertEqual(answer.status, 404, (method, path))
        made = self.rig.api(
            "POST",
            "/v1/notify",
            {"via": "slack", "address": f"{service.url}/inside", "on": ["ends"]},
            token=ben,
        ).json
        tried = self.rig.api("POST", f"/v1/notify/{made['id']}/test", {}, token=ben)
        self.assertNotEqual(tried.status, 200)
        self.assertIn(b"private networks", tried.body)
        self.assertFalse([m for m in service.messages if m[1] == "/inside"])
        # A user who leaves takes the own targets along.
        self.rig.ok("user", "rm", "ben")
        events = self.rig.api("GET", "/v1/events?after=0&limit=5000").body.decode()
        self.assertIn("notice_target_removed", events)

    def test_a_crash_loses_no_notice(self):
        service = self.service()
        self.add("webhook", f"{service.url}/h", "--on", "ends")
        service.answers = [503] * 1000
        job = self.end_a_job()
        poll(lambda: service.messages, "a try")
        self.rig.kill(self.rig.head_pid())
        service.answers = []
        self.rig.up()
        service.first(f'"job":{job}')
        poll(
            lambda: all(t["waiting"] == 0 for t in self.rig.json("notify", "list")["targets"]),
            "nothing waits",
        )

    def test_bad_targets_are_refused_with_a_remedy(self):
        for body, word in (
            ({"via": "pigeon", "address": "x", "on": ["ends"]}, "use email"),
            ({"via": "slack", "address": "ftp://x", "on": ["ends"]}, "https://"),
            ({"via": "slack", "address": "https://u:p@x/", "on": ["ends"]}, "password"),
            ({"via": "ntfy", "address": "https://ntfy.sh/", "on": ["ends"]}, "topic"),
            ({"via": "email", "address": "a b@x", "on": ["ends"]}, "mail address"),
            ({"via": "email", "address": "a@x\r\nRCPT TO:<b@x>", "on": ["ends"]}, "mail address"),
            ({"via": "browser", "on": []}, "at least one"),
            ({"via": "browser", "on": ["sings"]}, "kind of notice"),
            ({"via": "browser", "on": ["waits"], "wait_s": 1}, "one minute"),
            ({"via": "browser", "on": ["budget"], "budget_pct": 81}, "50, 80 or 100"),
        ):
            answer = self.rig.api("POST", "/v1/notify", body)
            self.assertEqual(answer.status, 400, body)
            self.assertIn(word, answer.body.decode(), body)


class Labels(Base):
    def test_labels_of_live_and_ended_jobs_change_and_are_found(self):
        live = self.rig.submit("--label", "team=nlp", "--", "sleep", 600)
        ended = self.end_a_job("--name", "old")
        array = self.rig.json("submit", "--array", "0-1", "--", "sleep", "600")["id"]
        self.rig.ok("label", live, ended, array, "stage=paper", "team-")
        for job in (live, ended, array):
            self.assertEqual(self.rig.job(job)["labels"], {"stage": "paper"}, job)
        self.assertEqual(self.rig.job(f"{array}.1")["labels"], {"stage": "paper"})
        found = self.rig.json("ps", "-a", "--label", "stage=paper")["jobs"]
        self.assertTrue({live, ended} <= {j["id"] for j in found}, found)
        # Also by words, after a restart of the head, and when the live one has ended.
        self.rig.ok("stop", "--force", "--wait", live, array)
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        search = self.rig.api("GET", "/v1/jobs?state=all&search=paper").json["jobs"]
        self.assertTrue({live, ended} <= {j["id"] for j in search}, search)
        self.assertEqual(self.rig.job(live)["labels"], {"stage": "paper"})
        self.rig.ok("label", ended, "stage-")
        self.assertEqual(self.rig.job(ended)["labels"], {})
        for bad in ("billow.endpoint=x", f"long={'v' * 300}", "sp ace=1"):
            self.assertNotEqual(self.rig.cli("label", ended, bad).code, 0, bad)


if __name__ == "__main__":
    unittest.main()
