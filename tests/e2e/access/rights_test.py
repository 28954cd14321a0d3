"""What a token may do, for how long, and what of others its holder can find out: two people with a
project each, and one machine."""
import hashlib
import http.client
import json
import os
import struct
import threading
import unittest

from rig import MARK, RigTest, UnixConnection, WebSocket, poll, sse_events


MAGIC = b"billow-tree-1\n"
# Leaves a tree as its job's outputs, as the wrapper of a job does: the list, then every piece. What
# is sent need not be what the list says.
PUT = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["BILLOW_FILES_SOCKET"])
listed, content = open(sys.argv[1], "rb").read(), open(sys.argv[2], "rb").read()
s.sendall(b"put %d\\n" % len(listed) + listed + content)
print(s.makefile().readline().strip())
"""


def tree(name, size, digest):
    return (
        MAGIC
        + struct.pack("<I", 1)
        + b"f"
        + struct.pack("<HQH", 0o644, size, len(name))
        + name
        + struct.pack("<H", 0)
        + digest
    )


class TwoPeople(RigTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = {}
        for name, account, project in (("alice", "nobody", "pa"), ("bob", "daemon", "pb")):
            cls.rig.ok("user", "create", name, "--unix-name", account)
            cls.rig.ok("project", "create", project)
            cls.rig.ok("project", "member", project, name, "--role", "admin")
            cls.tokens[name] = cls.rig.json("token", "create", name, "--user", name)["token"]

    def ask(self, who, method, path, body=None, **options):
        return self.rig.api(method, path, body, token=self.tokens.get(who, who), **options)

    def make(self, **fields):
        user = fields.pop("user", None)
        path = f"/v1/users/{user}/tokens" if user else "/v1/tokens"
        answer = self.rig.api("POST", path, {"name": "t", **fields})
        self.assertEqual(answer.status, 201, answer)
        return answer.json

    def submit(self, who, *argv, **fields):
        answer = self.ask(
            who,
            "POST",
            "/v1/jobs",
            {"spec": {"argv": list(argv), "cwd": "/", **fields}, "env": {MARK: self.rig.data}},
        )
        self.assertEqual(answer.status, 201, answer)
        return answer.json["id"]

    def same(self, one, other, *names):
        """Two answers that differ in nothing but what was asked for."""

        def text(answer):
            body = {k: v for k, v in json.loads(answer.body).items() if k != "request_id"}
            out = json.dumps(body, sort_keys=True)
            for name in names:
                out = out.replace(name, "?")
            return answer.status, out

        self.assertEqual(text(one), text(other))


@unittest.skipUnless(os.geteuid() == 0, "needs root, to run jobs as somebody else")
class Tokens(TwoPeople):
    def session(self, token, status=201):
        answer = self.rig.api("POST", "/v1/session", {"token": token}, token="")
        self.assertEqual(answer.status, status, answer)
        return (
            answer.headers["set-cookie"].split(";")[0].split("=", 1)[1] if status == 201 else None
        )

    def by_cookie(self, value, method="GET", path="/v1/status", body=None):
        return self.rig.api(
            method,
            path,
            body,
            token="",
            headers={"Cookie": f"billow_session={value}", "X-Billow-Request": "1"},
        )

    def test_a_session_is_for_the_cookie_and_makes_no_other(self):
        value = self.session(self.tokens["alice"])
        self.assertEqual(self.by_cookie(value).json["you"]["user"], "alice")
        self.assertEqual(self.rig.api("GET", "/v1/status", token=value).status, 401)
        self.session(value, 401)
        self.assertEqual(self.by_cookie(self.tokens["alice"]).status, 401)
        self.assertEqual(self.by_cookie(value, "POST", "/v1/session/codes", {}).status, 403)
        # Another's number before the same secret is nobody's session.
        mark, number, secret = value.split("_", 2)
        self.assertEqual(self.by_cookie(f"{mark}_{int(number) + 1}_{secret}").status, 401)
        # The fingerprint that a head with TLS puts behind a token is for its holder.
        self.assertEqual(self.by_cookie(self.session(self.tokens["alice"] + ".ab12cd")).status, 200)
        self.assertEqual(self.by_cookie(value, "DELETE", "/v1/session").status, 200)
        self.assertEqual(self.by_cookie(value).status, 401)

    def test_a_session_ends_with_its_token(self):
        short = self.make(user="alice", scope="read", life_s=3)
        value = self.session(short["token"])
        self.assertEqual(self.by_cookie(value).status, 200)
        poll(
            lambda: self.rig.api("GET", "/v1/status", token=short["token"]).status == 401,
            "the token's end",
        )
        self.assertEqual(self.by_cookie(value).status, 401)
        sessions = lambda: [
            t["name"] for t in self.rig.json("token", "list")["tokens"] if t["user"] == "alice"
        ].count("dashboard")
        revoked = self.make(user="alice")
        before = sessions()  # without the one that has expired
        value = self.session(revoked["token"])
        self.assertEqual(sessions(), before + 1)
        code = self.rig.api("POST", "/v1/session/codes", {}, token=revoked["token"]).json["code"]
        self.assertEqual(self.rig.api("DELETE", f"/v1/tokens/{revoked['id']}").status, 200)
        self.assertEqual(self.by_cookie(value).status, 401)
        self.assertEqual(self.rig.api("POST", "/v1/session", {"code": code}, token="").status, 401)
        self.assertEqual(sessions(), before)

    def test_a_token_that_ends_makes_none_that_lasts_longer(self):
        short = self.make(user="alice", life_s=600)["token"]
        self.assertEqual(
            self.rig.api(
                "POST", "/v1/tokens", {"name": "long", "life_s": 86400}, token=short
            ).status,
            403,
        )
        self.assertEqual(
            self.rig.api("POST", "/v1/tokens", {"name": "same"}, token=short).status, 201
        )
        ends = {
            t["name"]: t["expires_at"]
            for t in self.ask("alice", "GET", "/v1/tokens").json["tokens"]
        }
        self.assertTrue(ends["same"], ends)

    def test_a_token_for_submitting_does_no_more(self):
        admins = self.make(user="root", scope="submit", project="default")["token"]
        alices = self.make(user="alice", scope="submit", project="pa")["token"]
        victim = self.make(user="bob", name="victim")["id"]
        own = self.make(user="alice", name="own")["id"]
        self.assertEqual(
            self.ask(
                "alice",
                "PUT",
                "/v1/budgets",
                {"scope": "project", "of": "pa", "period": "monthly", "limit_nano_usd": 10**12},
            ).status,
            200,
        )
        for token in (admins, alices):
            for method, path, body in (
                ("GET", "/v1/events", None),
                ("GET", "/v1/events?follow=1", None),
                ("DELETE", f"/v1/tokens/{victim}", None),
                ("DELETE", f"/v1/tokens/{own}", None),
                ("POST", "/v1/tokens", {"name": "more"}),
                ("DELETE", "/v1/budgets/project/pa/monthly", None),
                (
                    "PUT",
                    "/v1/budgets",
                    {"scope": "project", "of": "pa", "period": "daily", "limit_nano_usd": 10**15},
                ),
                ("PUT", "/v1/idle", {"project": "pa", "enabled": False}),
                ("PUT", "/v1/projects/pa/members/bob", {"role": "admin"}),
                ("PUT", "/v1/projects/pa/tags/team", {"value": "x"}),
                ("POST", "/v1/session/codes", {}),
                (
                    "POST",
                    "/v1/reservations",
                    {"resources": {"gpus": 1, "share": {"milli": 1000}}, "until_ns": 1},
                ),
                ("PUT", "/v1/secrets/S", {"value": "x"}),
            ):
                self.assertEqual(
                    self.rig.api(method, path, body, token=token).status, 403, (method, path)
                )
            self.assertNotIn(
                "victim",
                [t["name"] for t in self.rig.api("GET", "/v1/tokens", token=token).json["tokens"]],
            )
        self.assertEqual(
            self.rig.api(
                "POST", "/v1/jobs", {"spec": {"argv": ["true"], "cwd": "/"}}, token=alices
            ).status,
            201,
        )
        self.assertEqual(
            self.rig.api(
                "GET", "/v1/events", token=self.make(user="root", scope="read")["token"]
            ).status,
            200,
        )
        self.assertEqual(self.ask("alice", "DELETE", "/v1/budgets/project/pa/monthly").status, 200)

    def test_what_an_admin_set_as_a_budget_binds_the_project(self):
        budget = {
            "scope": "project",
            "of": "pb",
            "period": "monthly",
            "limit_nano_usd": 5 * 10**9,
        }
        self.assertEqual(self.rig.api("PUT", "/v1/budgets", budget).status, 200)
        answer = self.ask("bob", "DELETE", "/v1/budgets/project/pb/monthly")
        self.assertEqual(answer.status, 403, answer)
        self.assertIn("admin of the installation", answer.json["detail"])
        self.assertEqual(
            self.ask("bob", "PUT", "/v1/budgets", {**budget, "limit_nano_usd": 10**15}).status,
            403,
        )
        # One of their own beside it is theirs.
        self.assertEqual(
            self.ask(
                "bob",
                "PUT",
                "/v1/budgets",
                {**budget, "period": "daily", "limit_nano_usd": 10**9},
            ).status,
            200,
        )
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        self.assertEqual(self.ask("bob", "DELETE", "/v1/budgets/project/pb/daily").status, 200)
        self.assertEqual(self.ask("bob", "DELETE", "/v1/budgets/project/pb/monthly").status, 403)
        self.assertEqual(self.rig.api("DELETE", "/v1/budgets/project/pb/monthly").status, 200)


@unittest.skipUnless(os.geteuid() == 0, "needs root, to run jobs as somebody else")
class Content(TwoPeople):
    def upload(self, who, name, content):
        """A tree of one file, brought by that person; its digest."""
        headers = {"Content-Type": "application/octet-stream"}
        digest = hashlib.sha256(content).digest()
        listed = tree(name, len(content), digest)
        self.assertEqual(
            self.ask(
                who,
                "POST",
                "/v1/files/packs",
                digest + struct.pack("<Q", len(content)) + content,
                headers=headers,
            ).status,
            200,
        )
        self.assertEqual(
            self.ask(who, "POST", "/v1/files/trees", listed, headers=headers).body, b""
        )
        return hashlib.sha256(listed).hexdigest()

    def save(self, who, name, digest, **fields):
        return self.ask(
            who, "PUT", f"/v1/environments/{name}", {"digest": digest, "path": "/opt/env", **fields}
        )

    def test_an_environment_is_not_had_by_its_digest(self):
        digest = self.upload("alice", b"model", b"alice's weights")
        self.assertEqual(self.save("alice", "private", digest).status, 200)
        self.same(
            self.save("bob", "loot", digest), self.save("bob", "loot", "ab" * 32), digest, "ab" * 32
        )
        self.assertEqual(self.save("bob", "loot", digest).status, 404)
        # Nor by way of a schedule that names it.
        own = self.upload("bob", b"own", b"bob's own")
        self.assertEqual(self.save("bob", "own", own).status, 200)
        self.ask(
            "bob",
            "POST",
            "/v1/schedules",
            {
                "name": "thief",
                "cron": "0 3 * * *",
                "spec": {
                    "argv": ["true"],
                    "cwd": "/",
                    "surroundings": {"environment": "own", "environment_digest": digest},
                },
            },
        )
        added = [
            e
            for e in self.rig.api("GET", "/v1/events?limit=1000").json["events"]
            if e["kind"] == "schedule_added"
        ]
        self.assertEqual(
            [e["event"]["schedule"]["spec"]["surroundings"]["environment_digest"] for e in added],
            [own],
        )
        # Who brings the content has it.
        self.assertEqual(
            self.save("bob", "loot", self.upload("bob", b"model", b"alice's weights")).status, 200
        )

    def test_a_shared_name_is_given_once(self):
        first, second = self.upload("alice", b"f", b"one"), self.upload("bob", b"f", b"two")
        self.rig.ok("user", "set", "bob", "--role", "admin")  # publishes for all
        self.assertEqual(self.save("bob", "torch", second, shared=True).status, 200)
        self.rig.ok("user", "set", "alice", "--role", "admin")
        answer = self.save("alice", "torch", first, shared=True)
        self.assertEqual(answer.status, 409, answer)
        self.assertIn("pb", answer.json["detail"])
        for who in ("alice", "bob"):
            self.rig.ok("user", "set", who, "--role", "member")
        # For their own project they may, and for its jobs it is theirs; for everybody else it is
        # the published one, which is an admin's.
        self.assertEqual(self.save("alice", "torch", first).status, 200)
        self.assertEqual(self.save("bob", "torch", second, shared=True).status, 403)
        for who, digest in (("alice", first), ("bob", second)):
            job = self.submit(who, "true", surroundings={"environment": "torch"})
            self.assertEqual(
                self.ask(who, "GET", f"/v1/jobs/{job}").json["environment"]["digest"], digest
            )
            self.ask(who, "POST", f"/v1/jobs/{job}/stop", {"force": True})

    def put(self, who, listed, content):
        """A job of that person that leaves these as its outputs; what it was answered, and the
        trees it has left."""
        script, a, b = (self.rig.file(n) for n in ("put.py", f"{who}.list", f"{who}.content"))
        for path, data in ((script, PUT.encode()), (a, listed), (b, content)):
            with open(path, "wb") as f:
                f.write(data)
        body = {
            "spec": {"argv": ["python3", script, a, b], "cwd": "/"},
            "env": {
                MARK: self.rig.data,
                "BILLOW_FILES": self.upload(who, b"start", b"of " + who.encode()),
            },
        }
        answer = self.ask(who, "POST", "/v1/jobs", body)
        self.assertEqual(answer.status, 201, answer)
        job = answer.json["id"]
        self.ask(who, "GET", f"/v1/jobs/{job}/wait?timeout_s=60")
        said = self.ask(who, "GET", f"/v1/jobs/{job}/logs").body.decode()
        return said, [
            o["tree"] for o in self.ask(who, "GET", f"/v1/jobs/{job}/outputs").json["outputs"]
        ]

    def test_an_output_is_what_its_job_sent(self):
        secret = b"what alice's job has found"
        digest = hashlib.sha256(secret).digest()
        listed = tree(b"result", len(secret), digest)
        said, left = self.put("alice", listed, secret)
        self.assertIn("ok", said)
        self.assertEqual(left, [hashlib.sha256(listed).hexdigest()])
        # The list alone, with anything in the place of the content, gets it for nobody else.
        said, left = self.put("bob", listed, b"x" * len(secret))
        self.assertIn("error", said)
        self.assertEqual(left, [])
        got = self.ask(
            "bob",
            "POST",
            f"/v1/files/pieces?tree={hashlib.sha256(listed).hexdigest()}",
            digest,
            headers={"Content-Type": "application/octet-stream"},
        )
        self.assertEqual(got.status, 404, got)
        # What is sent is kept, though it is there already.
        said, left = self.put("bob", listed, secret)
        self.assertIn("ok", said)
        self.assertEqual(len(left), 1)


@unittest.skipUnless(os.geteuid() == 0, "needs root, to run jobs as somebody else")
class Open(TwoPeople):
    """Streams that are open while rights go."""

    def follow(self, path, token):
        """Reads a stream in the background; its bytes so far, and an event for its end."""
        connection = UnixConnection(self.rig.data + "/head.sock", 60)
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        self.assertEqual(response.status, 200, path)
        seen, ended = bytearray(), threading.Event()

        def pump():
            try:
                while piece := response.read1(65536):
                    seen.extend(piece)
            except (OSError, http.client.HTTPException):
                pass
            ended.set()

        threading.Thread(target=pump, daemon=True).start()
        return seen, ended

    def attach(self, job, token):
        """A terminal; what it was shown, in the background."""
        socket = WebSocket(self.rig, f"/v1/jobs/{job}/attach", token)
        self.assertEqual(socket.status, 101)
        seen, ended = [], threading.Event()

        def pump():
            while frame := socket.receive():
                seen.append(frame)
                if frame[0] == 8:
                    break
            ended.set()

        threading.Thread(target=pump, daemon=True).start()
        return socket, seen, ended

    def test_who_leaves_a_project_sees_no_more_of_its_jobs(self):
        said = self.rig.file("typed")
        job = self.submit(
            "alice",
            "sh",
            "-c",
            f"while read line; do echo got $line; done > {said}.out; sleep 1000",
            use_stdin=True,
        )
        self.rig.wait_for(job, "running")
        # Admins enter jobs of their own account only.
        self.rig.ok("user", "create", "carol", "--unix-name", "nobody")
        self.tokens["carol"] = self.rig.token_for("carol")
        self.rig.ok("project", "member", "pa", "carol", "--role", "admin")
        self.rig.ok("project", "set", "pa", "--enter", "admins")
        socket, seen, ended = self.attach(job, self.tokens["carol"])
        logs, logs_ended = self.follow(
            f"/v1/jobs/{job}/logs?follow=1&format=sse", self.tokens["carol"]
        )
        port = WebSocket(self.rig, f"/v1/jobs/{job}/tunnel?port=1", self.tokens["carol"])
        live, live_ended = self.follow("/v1/live", self.tokens["carol"])
        poll(lambda: f'"id":{job},'.encode() in live, "the job among what is shown")
        poll(
            lambda: any(b'"may_type":true' in data for _, data in seen), "the terminal's beginning"
        )
        self.rig.ok("project", "remove", "pa", "carol")
        self.assertTrue(ended.wait(15), "the terminal ends")
        self.assertTrue(logs_ended.wait(15), "the log ends")
        self.assertTrue(any(b"no longer a member" in data for _, data in seen), seen)
        self.assertIn(
            "no longer a member", dict((e, d) for e, _, d in sse_events(bytes(logs)))["error"]
        )
        poll(
            lambda: any(
                job in json.loads(d).get("gone", [])
                for e, _, d in sse_events(bytes(live[: live.rfind(b"\n\n")]))
                if e == "live"
            ),
            "the job goes from what is shown",
        )
        self.assertFalse(live_ended.is_set())
        port.close()
        socket.close()
        self.rig.ok("stop", "--wait", "-f", job)

    def test_what_a_revoked_token_opened_is_closed(self):
        job = self.submit("alice", "sleep", "1000")
        self.rig.wait_for(job, "running")
        made = self.make(user="alice")
        admin = self.make(user="root")
        socket, seen, ended = self.attach(job, made["token"])
        streams = [
            self.follow(f"/v1/jobs/{job}/logs?follow=1", made["token"]),
            self.follow("/v1/live", made["token"]),
            self.follow("/v1/events?follow=1", admin["token"]),
        ]
        gateway = WebSocket(self.rig, "/v1/gateway", admin["token"])
        self.assertEqual(gateway.status, 101)
        for token in (made, admin):
            self.assertEqual(self.rig.api("DELETE", f"/v1/tokens/{token['id']}").status, 200)
        self.assertTrue(ended.wait(15), "the terminal ends")
        self.assertTrue(any(b"not valid" in data for _, data in seen), seen)
        for _, over in streams:
            self.assertTrue(over.wait(15), "the stream ends")
        self.assertIn(b"not valid", bytes(streams[2][0]))
        while (frame := gateway.receive()) and frame[0] != 8:
            pass
        self.assertTrue(frame, "the gateway is told goodbye")
        socket.close()
        self.rig.ok("stop", "--wait", "-f", job)

    def test_a_tunnel_ends_with_the_right_to_it(self):
        port_file = self.rig.file("port")
        open(port_file, "w", encoding="ascii").close()
        os.chmod(port_file, 0o666)
        server = (
            "import"
            " socket\ns=socket.socket();s.bind(('127.0.0.1',0));s.listen()\nopen(%r,'w').write(str(s.getsockname()[1]))\nwhile"
            " True:\n c=s.accept()[0]\n while d:=c.recv(100): c.sendall(d)\n" % port_file
        )
        job = self.submit("alice", "python3", "-c", server)
        self.rig.wait_for(job, "running")
        poll(lambda: os.path.getsize(port_file) > 0, "its port")
        made = self.make(user="alice")
        with open(port_file, encoding="ascii") as f:
            socket = WebSocket(self.rig, f"/v1/jobs/{job}/tunnel?port={f.read()}", made["token"])
        self.assertEqual(json.loads(socket.receive()[1])["type"], "open")
        socket.send(b"echo")
        self.assertEqual(socket.receive(), (2, b"echo"))
        self.assertEqual(self.rig.api("DELETE", f"/v1/tokens/{made['id']}").status, 200)
        frame = socket.receive()
        self.assertEqual((frame[0], json.loads(frame[1])["type"]), (1, "error"), frame)
        socket.close()
        self.rig.ok("stop", "--wait", "-f", job)
