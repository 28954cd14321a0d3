"""Attacks on identity: stolen join tokens and node credentials, impersonation, other people's names."""
import concurrent.futures
import hashlib
import http.server
import json
import os
import re
import struct
import subprocess
import threading
import time
import unittest

from node_key import Key
from pool_test import PoolRig
from rig import RigTest, WebSocket, agent_frame, poll


def hello(name, boot_id="b", sent_at=0):
    offer = {"name": name, "boot_id": boot_id, "version": "0", "cpu_milli": 0, "mem_mib": 0}
    return agent_frame({"type": "hello", "version": 1, "offer": offer, "sent_at_ns": sent_at})


def answer(peer):
    frame = peer.receive()
    if frame is None or frame[0] == 8:
        return None
    (length,) = struct.unpack("<I", frame[1][:4])
    return json.loads(frame[1][4 : 4 + length])["type"]


class Joining(RigTest):
    def setUp(self):
        # A head accepts no signature from the second in which it started; agents try again.
        started = os.stat(os.path.join(self.rig.data, "head.json")).st_mtime
        poll(lambda: int(time.time()) > int(started), "the second after the head's start")

    def join(self, token, name, key):
        body = {"name": name, "version": "0", "key": key}
        return self.rig.api("POST", "/v1/join", body, token=token)

    def join_token(self, *options):
        return self.rig.ok("token", "create", "--node", *options).text.strip().split(".")[0]

    def connect(self, key, **options):
        return WebSocket(self.rig, "/v1/agent", None, authorization=key.authorization(**options))

    def test_of_many_that_present_a_join_token_at_once_one_joins(self):
        token = self.join_token()
        keys = [Key().public for _ in range(12)]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda key: self.join(token, "prize", key), keys))
        won = [key for key, one in zip(keys, answers) if one.status == 201]
        self.assertEqual(len(won), 1, [one.status for one in answers])
        # Its answer was lost: it asks again, and nobody else gets in.
        self.assertEqual(self.join(token, "prize", won[0]).status, 201)
        self.assertEqual(self.join(token, "prize", Key().public).status, 401)
        self.assertEqual(self.join(token, "another", Key().public).status, 401)

    def test_a_join_token_is_no_credential(self):
        token = self.join_token()
        self.assertEqual(WebSocket(self.rig, "/v1/agent", token).status, 403)
        for path in ("/v1/jobs", "/v1/status", "/v1/files/trees/" + "0" * 64):
            self.assertEqual(self.rig.api("GET", path, token=token).status, 403, path)

    def test_a_token_for_one_name_gives_no_other(self):
        token = self.join_token("--node-name", "mine")
        self.assertEqual(self.join(token, "yours", Key().public).status, 403)
        self.assertEqual(self.join(token, "mine", Key().public).status, 201)

    def test_a_signature_is_good_once_fresh_and_for_its_own_request(self):
        key = Key()
        self.assertEqual(self.join(self.join_token(), "signed", key.public).status, 201)
        proof = key.authorization()
        first = WebSocket(self.rig, "/v1/agent", None, authorization=proof)
        self.assertEqual(first.status, 101)
        self.assertEqual(WebSocket(self.rig, "/v1/agent", None, authorization=proof).status, 401)
        self.assertEqual(self.connect(Key()).status, 401, "a key that nobody knows")
        now = int(time.time())
        self.assertEqual(self.connect(key, at=now - 3600).status, 400, "an old signature")
        self.assertEqual(self.connect(key, at=now + 3600).status, 400)
        self.assertEqual(self.connect(key, target="/v1/other").status, 401)
        first.close()

    def test_a_signature_is_not_good_for_the_next_head(self):
        """Which ones were used is in the head's memory alone."""
        key = Key()
        self.assertEqual(self.join(self.join_token(), "again", key.public).status, 201)
        proof = key.authorization()
        first = WebSocket(self.rig, "/v1/agent", None, authorization=proof)
        self.assertEqual(first.status, 101)
        first.close()
        self.assertEqual(self.connect(key, at=int(time.time()) + 60).status, 400, "of the future")
        self.rig.kill(self.rig.head_pid())
        self.rig.connections.clear()
        self.rig.up()
        self.assertIn(
            WebSocket(self.rig, "/v1/agent", None, authorization=proof).status, (400, 401)
        )
        fresh = poll(lambda: self.connect(key).status == 101, "a fresh one is accepted")
        self.assertTrue(fresh)

    def test_a_node_reads_no_content_by_its_digest_alone(self):
        secret = os.path.join(self.rig.files, "secret")
        os.makedirs(secret, exist_ok=True)
        text = f"only for this job {os.urandom(8).hex()}\n".encode()
        with open(secret + "/data", "wb") as f:
            f.write(text)
        self.rig.ok("run", "--cpus", "0.1", "--", "cat", "data", cwd=secret)
        digest = hashlib.sha256(text).digest()
        node = self.rig.node_token("curious")
        peer = WebSocket(self.rig, "/v1/agent", node)
        peer.send(hello("curious"))
        self.assertEqual(answer(peer), "welcome")
        asked = self.rig.api("POST", "/v1/files/pieces", digest, token=node)
        self.assertEqual(asked.status, 404, asked)
        peer.close()

    def test_the_boot_id_and_name_of_a_node_do_not_take_it_over(self):
        key = Key()
        self.assertEqual(self.join(self.join_token(), "taken", key.public).status, 201)
        agent = self.connect(key)
        agent.send(hello("taken"))
        self.assertEqual(answer(agent), "welcome")
        # An admin's mistake: a second credential for the same node.
        thief = WebSocket(self.rig, "/v1/agent", self.rig.node_token("taken"))
        thief.send(hello("taken", sent_at=10**17))
        self.assertEqual(answer(thief), "refused")
        # A hello from the future locks nobody out.
        agent.close()
        future = self.connect(key)
        future.send(hello("taken", sent_at=10**18))
        self.assertEqual(answer(future), "welcome")
        future.close()
        again = self.connect(key)
        again.send(hello("taken", sent_at=10**9))
        self.assertEqual(answer(again), "welcome")
        again.close()

    def test_a_node_cannot_speak_for_another(self):
        node = self.rig.node_token("single")
        peer = WebSocket(self.rig, "/v1/agent", node)
        peer.send(hello("other-one"))
        self.assertEqual(answer(peer), "refused")
        peer.close()
        job = self.rig.submit("--cpus", "0.1", "--", "sleep", 600)
        task = self.rig.wait_for(job, "running")["tasks"][0]["id"]
        for path in (f"/v1/tasks/{task}/outputs", f"/v1/tasks/{task}/image"):
            self.assertEqual(self.rig.api("PUT", path, b"0" * 64, token=node).status, 403, path)
        self.assertEqual(
            self.rig.api("GET", "/v1/files/trees/" + "0" * 64, token=node).status // 100, 4
        )
        answered = self.rig.api("POST", "/v1/tokens", {"name": "n", "scope": "node"})
        self.assertEqual(answered.status, 400, "for which node?")
        self.rig.ok("stop", "--force", "--wait", job)

    def test_tokens_are_not_sent_in_clear_to_other_machines(self):
        for command in (
            ("login", "http://192.0.2.1:7070", "--token", "bw_secret"),
            ("join", "http://192.0.2.1:7070", "--token", "bwj_secret", "--data", self.rig.root),
        ):
            began = time.monotonic()
            done = self.rig.cli(*command)
            self.assertNotEqual(done.code, 0)
            self.assertIn("--insecure", done.errors, command)
            self.assertLess(time.monotonic() - began, 4, "nobody was called")


class PoolMachines(unittest.TestCase):
    def test_user_data_is_worthless_once_the_machine_has_joined(self):
        rig = PoolRig()
        try:
            create = rig.tool(
                "create-keeps",
                """
[ -e "$cloud/$BILLOW_MACHINE.pid" ] && exit 0
cp "$BILLOW_USER_DATA" "$cloud/user-data"
umask 077; printf "%s" "$BILLOW_TOKEN" > "$cloud/$BILLOW_MACHINE.token"
BILLOW_TEST_RIG="""
                + rig.data
                + " setsid "
                + os.path.join(os.path.abspath(os.environ["BILLOW_BIN"]), "billow")
                + """ join "$BILLOW_HEAD" --token-file "$cloud/$BILLOW_MACHINE.token" \\
  --node-name "$BILLOW_MACHINE" --data "$cloud/$BILLOW_MACHINE" --sim 2xL4 \\
  > "$cloud/$BILLOW_MACHINE.log" 2>&1 < /dev/null &
echo $! > "$cloud/$BILLOW_MACHINE.pid"
""",
            )
            rig.add_pool("cloud", "--max", 1, create=create)
            job = rig.submit("--gpus", 1, "--gpu-type", "L4", "--", "sleep", 600)
            rig.wait_for(job, "running", 60)
            with open(os.path.join(rig.cloud, "user-data"), encoding="utf-8") as f:
                stolen = re.search(r"bwj?_[A-Za-z0-9_-]+", f.read()).group(0)
            self.assertEqual(WebSocket(rig, "/v1/agent", stolen).status, 403)
            machine = next(iter(rig.machines()))
            body = {"name": machine, "version": "0", "key": Key().public}
            self.assertEqual(rig.api("POST", "/v1/join", body, token=stolen).status, 401)
            kept = os.path.join(rig.cloud, machine, "node", "credential")
            self.assertEqual(os.stat(kept).st_mode & 0o777, 0o600)
            rig.ok("stop", "--force", "--wait", job)
        finally:
            rig.close()


@unittest.skipUnless(os.geteuid() == 0, "needs root, to run jobs as somebody else")
class People(RigTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rig = cls.rig
        for name, account in (("ops", "games"), ("ana", "nobody"), ("mal", "daemon")):
            rig.ok("user", "create", name, "--unix-name", account)
        rig.ok("user", "set", "ops", "--role", "admin")
        for project, member in (("vision", "ana"), ("audio", "mal")):
            rig.ok("project", "create", project)
            rig.ok("project", "member", project, member)
        cls.tokens = {name: rig.token_for(name) for name in ("ops", "ana", "mal")}

    def call(self, who, method, path, body=None):
        return self.rig.api(method, path, body, token=self.tokens[who])

    def cli(self, who, *args, **options):
        return self.rig.cli(*args, env={"BILLOW_TOKEN": self.tokens[who]}, **options)

    def events(self, kind):
        found = self.rig.api("GET", f"/v1/events?limit=1000&kind={kind}").json["events"]
        return [e for e in found if e["kind"] == kind]

    def test_a_later_admin_does_not_become_root(self):
        for path in ("/v1/users/root/tokens", "/v1/tokens"):
            self.assertEqual(
                self.call("ops", "POST", path, {"name": "steal", "user": "root"}).status, 403, path
            )
        self.assertEqual(
            self.call("mal", "POST", "/v1/users/ana/tokens", {"name": "steal"}).status, 403
        )
        pool = {
            "name": "evil",
            "kind": "command",
            "gpu_type": "L4",
            "gpus": 1,
            "machines_max": 1,
            "create_command": "id > /tmp/x",
            "list_command": "true",
            "delete_command": "true",
        }
        self.assertEqual(self.call("ops", "POST", "/v1/pools", pool).status, 403)
        for account in ("root", "0"):
            body = {"name": "r", "unix_name": account}
            self.assertEqual(self.call("ops", "POST", "/v1/users", body).status, 400, account)
        # Neither an account of the system, nor one that somebody has.
        for account in ("postgres", "daemon", "nobody", "games", "www-data", "bin"):
            body = {"name": "evil", "unix_name": account}
            self.assertEqual(self.call("ops", "POST", "/v1/users", body).status, 403, account)
        self.rig.ok("user", "create", "person", "--unix-name", "some-person")
        body = {"name": "evil", "unix_name": "some-person"}
        self.assertEqual(self.call("ops", "POST", "/v1/users", body).status, 403)
        self.assertEqual(self.call("ops", "POST", "/v1/users", {"name": "new-one"}).status, 201)
        # For somebody else it works, and says who did it.
        made = self.call("ops", "POST", "/v1/users/mal/tokens", {"name": "helped"}).json["id"]
        token = next(t for t in self.rig.api("GET", "/v1/tokens").json["tokens"] if t["id"] == made)
        self.assertEqual((token["user"], token["made_by"]), ("mal", "ops"))

    def test_what_a_member_shares_is_not_run_by_others_unawares(self):
        folder = os.path.join(self.rig.files, "venv")
        os.makedirs(folder + "/bin", exist_ok=True)
        with open(folder + "/bin/python", "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\necho evil\n")
        done = self.cli("mal", "env", "save", "torch", folder, "--shared", "--project", "audio")
        self.assertEqual(done.code, 0, done)
        done = self.cli("ana", "run", "--env", "torch", "--", "python")
        self.assertNotEqual(done.code, 0)
        self.assertIn("audio/torch", done.errors)
        # An admin publishes; neither a member of its project nor another admin can change that.
        self.rig.ok("env", "save", "base", folder, "--shared", "--project", "audio")
        for who in ("mal", "ops"):
            done = self.cli(who, "env", "save", "base", folder, "--project", "audio", "--shared")
            self.assertNotEqual(done.code, 0)
            self.assertIn("only that admin", done.errors)
            self.assertNotEqual(self.cli(who, "env", "rm", "base", "--project", "audio").code, 0)
        self.rig.ok("run", "--env", "base", "--", "true")
        # What somebody else published root runs only by its digest.
        done = self.cli("ops", "env", "save", "tools", folder, "--project", "audio", "--shared")
        self.assertEqual(done.code, 0, done)
        done = self.rig.cli("run", "--env", "tools", "--", "true")
        self.assertNotEqual(done.code, 0)
        named = re.search(r"--env (tools@[0-9a-f]+)", done.errors)
        self.assertTrue(named, done)
        self.rig.ok("run", "--env", named.group(1), "--", "true")

    def test_a_projects_admin_enters_no_members_job(self):
        job = self.cli("ana", "submit", "--json", "--cwd", "/", "--", "sleep", "600").json["id"]
        self.rig.wait_for(job, "running")
        path = f"/v1/jobs/{job}/tunnel?port=22"
        self.assertEqual(WebSocket(self.rig, path, self.tokens["ops"]).status, 403)
        copy = self.call("ops", "POST", f"/v1/jobs/{job}/files", {"path": "."})
        self.assertEqual(copy.status, 403, copy)
        self.assertEqual(self.cli("ops", "logs", str(job)).code, 0)
        # Even if the project lets admins in: ops would act as another account of the nodes.
        self.rig.ok("project", "set", "vision", "--enter", "admins")
        self.assertEqual(WebSocket(self.rig, path, self.tokens["ops"]).status, 403)
        copy = self.call("ops", "POST", f"/v1/jobs/{job}/files", {"path": "."})
        self.assertEqual(copy.status, 403, copy)
        # Who started the head could do that anyway.
        peer = WebSocket(self.rig, path, self.rig.token())
        self.assertEqual(peer.status, 101)
        peer.close()
        entry = poll(
            lambda: [e for e in self.events("job_entered") if e["event"]["job"] == job], "a record"
        )[0]
        self.assertEqual(entry["actor"], "user:root")
        self.assertEqual(entry["event"]["how"], "port 22")
        self.rig.ok("project", "set", "vision", "--enter", "owner")
        self.assertEqual(self.cli("ops", "stop", "--force", str(job)).code, 0)

    def test_a_later_admin_does_not_enter_roots_jobs(self):
        job = self.rig.submit("--cpus", "0.1", "--", "sleep", 600)
        self.rig.wait_for(job, "running")
        done = self.cli("ops", "project", "set", "default", "--enter", "admins")
        self.assertEqual(done.code, 0, done)
        path = f"/v1/jobs/{job}/tunnel?port=22"
        self.assertEqual(WebSocket(self.rig, path, self.tokens["ops"]).status, 403)
        copy = self.call("ops", "POST", f"/v1/jobs/{job}/files", {"path": "."})
        self.assertEqual(copy.status, 403, copy)
        self.assertNotEqual(self.cli("ops", "ssh", str(job), "--", "id", timeout=30).code, 0)
        self.rig.ok("project", "set", "default", "--enter", "owner")
        self.rig.ok("stop", "--force", "--wait", job)

    def test_jobs_are_not_drawn_into_another_project(self):
        submit = ("submit", "--json", "--cwd", "/", "--cpus", "0.1", "--", "true")
        self.rig.ok("user", "create", "dan", "--unix-name", "mail")
        self.rig.ok("project", "create", "home")
        self.rig.ok("project", "member", "home", "dan")
        self.tokens["dan"] = self.rig.token_for("dan")
        # "vision" is older: its admin adds dan unasked.
        self.rig.ok("project", "member", "vision", "ana", "--role", "admin")
        self.assertEqual(self.cli("ana", "project", "member", "vision", "dan").code, 0)
        job = self.cli("dan", *submit).json["id"]
        self.assertEqual(self.rig.job(job)["project"], "home")
        self.assertEqual(self.cli("dan", "project", "default").text.strip(), "home")
        self.assertNotEqual(self.cli("dan", "project", "default", "audio").code, 0)
        self.assertEqual(self.cli("dan", "project", "default", "vision").code, 0)
        job = self.cli("dan", *submit).json["id"]
        self.assertEqual(self.rig.job(job)["project"], "vision")
        self.rig.ok("project", "remove", "vision", "dan")
        done = self.cli("dan", *submit)
        self.assertIn("billow project default", done.errors)
        self.rig.ok("project", "member", "vision", "ana")

    def test_what_an_admin_made_ends_with_the_role(self):
        rig = self.rig
        rig.ok("user", "create", "tmp", "--unix-name", "news")
        rig.ok("user", "set", "tmp", "--role", "admin")
        mine = self.tokens["tmp"] = rig.token_for("tmp")
        make = lambda path, **body: self.call("tmp", "POST", path, {"name": "x", **body}).json
        other = make("/v1/users/mal/tokens")["token"]
        gateway = make("/v1/tokens", scope="gateway")["token"]
        join = make("/v1/tokens", scope="join")["token"].split(".")[0]
        child = make("/v1/tokens")["token"]
        hook = self.call("tmp", "POST", "/v1/webhooks", {"url": "https://example.org/"}).json["id"]
        status = lambda token: rig.api("GET", "/v1/status", token=token).status
        self.assertEqual((status(other), status(child)), (200, 200))
        done = rig.ok("user", "set", "tmp", "--role", "member")
        self.assertIn("mal", done.errors)
        self.assertEqual((status(mine), status(child)), (200, 200))
        self.assertEqual((status(other), status(gateway), status(join)), (401, 401, 401))
        hooks = rig.api("GET", "/v1/webhooks").json["webhooks"]
        self.assertNotIn(hook, [h["id"] for h in hooks])
        # A token takes along what was made with it.
        number = next(
            t["id"]
            for t in rig.api("GET", "/v1/tokens", token=mine).json["tokens"]
            if t["name"] == "t"
        )
        self.assertIn("created with it", rig.ok("token", "revoke", number).text)
        self.assertEqual((status(mine), status(child)), (401, 401))

    def test_a_later_admins_webhook_does_not_lead_inwards(self):
        class Inside(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Inside)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/"
            hook = self.call("ops", "POST", "/v1/webhooks", {"url": url}).json["id"]
            tried = self.call("ops", "POST", f"/v1/webhooks/{hook}/test", {})
            self.assertNotEqual(tried.status, 200, tried)
            self.assertIn(b"private networks", tried.body)
            hook = self.rig.api("POST", "/v1/webhooks", {"url": url}).json["id"]
            tried = self.rig.api("POST", f"/v1/webhooks/{hook}/test", {})
            self.assertEqual(tried.status, 200, tried)
        finally:
            server.shutdown()
            server.server_close()

    def test_refusals_are_recorded_and_bounded(self):
        for _ in range(200):
            self.assertEqual(self.rig.api("GET", "/v1/jobs", token="bw_wrong").status, 401)
        self.assertEqual(self.call("mal", "POST", "/v1/shutdown", {}).status, 403)
        by = lambda user: [
            e for e in self.events("access_denied") if e["event"].get("user") == user
        ]
        poll(lambda: by("mal"), "a record")
        self.assertEqual(by("mal")[0]["event"].get("count", 1), 1)
        found = self.events("access_denied")
        self.assertLess(len(found), 30)
        self.assertTrue(all(e["event"]["peer"].startswith("unix") for e in found), found)
        self.assertIn("refused", self.rig.ok("events", "--limit", 2000).text)
        # What the core refuses is recorded like what a route refuses.
        refused = self.call("ops", "POST", "/v1/users", {"name": "e", "unix_name": "some-one"})
        self.assertEqual(refused.status, 201)
        refused = self.call("ops", "POST", "/v1/users", {"name": "f", "unix_name": "some-one"})
        self.assertEqual(refused.status, 403)
        poll(lambda: by("ops"), "a record")

    def test_members_see_the_names_of_their_projects_only(self):
        seen = {u["name"]: u for u in self.call("mal", "GET", "/v1/users").json["users"]}
        self.assertNotIn("ana", seen)
        self.assertNotIn("ops", seen)
        self.assertIn("role", seen["mal"])
        self.rig.ok("project", "member", "audio", "ana")
        seen = {u["name"]: u for u in self.call("mal", "GET", "/v1/users").json["users"]}
        self.assertEqual(set(seen["ana"]), {"id", "name"})
        self.rig.ok("project", "remove", "audio", "ana")

    def test_a_browsers_session_makes_no_token_that_outlives_it(self):
        answer = self.rig.api("POST", "/v1/session", {"token": self.tokens["ana"]}, token="")
        cookie = answer.headers["set-cookie"].split(";")[0]
        headers = {"Cookie": cookie, "X-Billow-Request": "1"}

        def make(**fields):
            body = {"name": "t", **fields}
            return self.rig.api("POST", "/v1/tokens", body, token="", headers=headers)

        made = make()
        self.assertEqual(made.status, 201, made)
        ends = time.mktime(time.strptime(made.json["expires_at"][:19], "%Y-%m-%dT%H:%M:%S"))
        self.assertLess(ends - time.mktime(time.gmtime()), 12 * 3600 + 60)
        for life in (-1, 86400):
            self.assertEqual(make(life_s=life).status, 403, life)
        made = self.rig.api("POST", "/v1/tokens", {"name": "t"}).json
        self.assertTrue(made["expires_at"], "tokens end by default")


@unittest.skipUnless(os.geteuid() == 0, "needs root, to run jobs as somebody else")
class Leaving(RigTest):
    def test_a_user_who_leaves_takes_nothing_along(self):
        rig = self.rig
        for n, name in enumerate(("bo", "cy")):
            rig.ok("user", "create", name, "--unix-name", "nobody")
            rig.ok("project", "member", "default", name)
            token = rig.token_for(name)
            env = {"BILLOW_TOKEN": token}
            job = rig.cli("submit", "--json", "--cwd", "/", "--", "sleep", 600, env=env).json["id"]
            rig.wait_for(job, "running")
            stream = WebSocket(rig, f"/v1/jobs/{job}/attach", token)
            self.assertEqual(stream.status, 101)
            rig.ok("user", *(("set", name, "--disable") if n == 0 else ("rm", name)))
            self.assertEqual(rig.api("GET", "/v1/status", token=token).status, 401)
            began = time.monotonic()
            while (frame := stream.receive()) and frame[0] != 8:
                pass
            self.assertLess(time.monotonic() - began, 10, "its streams end")
            rig.wait_for(job, "stopped")
        rig.ok("user", "set", "bo", "--enable")
        self.assertEqual(rig.api("GET", "/v1/status", token=rig.token_for("bo")).status, 200)
        self.assertNotIn("cy", rig.ok("user", "list").text)
        done = rig.cli("user", "rm", "root")
        self.assertNotEqual(done.code, 0)


@unittest.skipUnless(os.geteuid() == 0, "needs root, to run jobs as somebody else")
class NodePolicy(RigTest):
    """What the owner of a machine forbids no head can order."""

    def end_of(self, who, *command):
        env = {"BILLOW_TOKEN": self.tokens[who]} if who else None
        return self.rig.cli("run", "--cwd", "/", "--cpus", "0.1", "--", *command, env=env)

    def test_the_owner_of_the_machine_decides_who_runs_on_it(self):
        rig = self.rig
        self.tokens = {}
        for name, account in (("ana", "games"), ("mal", "daemon")):
            rig.ok("user", "create", name, "--unix-name", account)
            rig.ok("project", "member", "default", name)
            self.tokens[name] = rig.token_for(name)
        self.assertEqual(self.end_of("mal", "id", "-un").text.strip(), "daemon")
        # The file counts from the next job on.
        forbidden = f"/tmp/must-not-run-{os.getpid()}"
        rig.node_policy("allow games\nroot none")
        self.assertEqual(self.end_of("ana", "id", "-un").text.strip(), "games")
        for who, account in (("mal", "daemon"), (None, "root")):
            done = self.end_of(who, "touch", forbidden)
            self.assertEqual(done.code, 126, done)
            self.assertIn("this node's policy", done.errors)
            self.assertIn(account, done.errors)
        self.assertFalse(os.path.exists(forbidden))
        # Without a policy of its own, a node runs no account of the system.
        rig.node_policy("# nothing said")
        self.assertEqual(self.end_of(None, "id", "-un").text.strip(), "root")
        self.assertEqual(self.end_of("ana", "true").code, 126)
        # One that others can write is none.
        os.chmod(rig.environment["BILLOW_NODE_POLICY"], 0o666)
        self.assertIn("users other than root", self.end_of(None, "true").errors)
        rig.node_policy("nonsense")
        self.assertIn("line 1", self.end_of(None, "true").errors)
        rig.node_policy("allow 0-4294967294")
        self.assertEqual(self.end_of("mal", "true").code, 0)


class Programs(unittest.TestCase):
    def test_the_supervisor_is_position_independent(self):
        """It is static and runs as root: its addresses must not be known."""
        with open(os.path.join(os.environ["BILLOW_BIN"], "billow-supervise"), "rb") as f:
            head = f.read(18)
        self.assertEqual(struct.unpack("<H", head[16:18])[0], 3, "ET_DYN")


@unittest.skipUnless(os.geteuid() == 0, "needs root, to run the gateway as somebody else")
class Gateways(RigTest):
    def test_a_gateway_is_neither_root_nor_admin(self):
        rig = self.rig
        serve = 'cd / && exec python3 -m http.server --bind 127.0.0.1 "$PORT"'
        rig.ok("deploy", "hello", "--", "sh", "-c", serve, timeout=120)
        address = poll(lambda: rig.read("gateway/address").strip(), "a gateway", 60)
        self.assertTrue(address)

        def gateways():
            found = []
            for pid in rig.processes():
                try:
                    with open(f"/proc/{pid}/cmdline", encoding="utf-8") as f:
                        words = f.read().split("\0")
                    if "gateway" in words[1:2]:
                        found.append((pid, words))
                except OSError:
                    pass
            return found

        pid, words = poll(gateways, "its process")[0]
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            ids = {line[:3]: int(line.split()[1]) for line in f if line[1:4] == "id:"}
        uid = ids["Uid"]
        self.assertNotEqual(uid, 0)
        self.assertNotIn(rig.data + "/token", words)
        # Other programs of its account lack its capability, so the kernel does not let them in.
        got = subprocess.run(
            ["sh", "-c", f"cd /proc/{pid} && cat fd/3/token environ maps; head -c1 mem"],
            **{"user": uid, "group": ids["Gid"], "extra_groups": []},
            capture_output=True,
            check=False,
        )
        self.assertEqual(got.stdout, b"", got.stderr)
        self.assertIn(b"Permission denied", got.stderr)
        token = rig.read("gateway-token").strip()
        for path in ("/v1/jobs", "/v1/status", "/v1/tokens", "/v1/secrets"):
            self.assertEqual(rig.api("GET", path, token=token).status, 403, path)
        poll(lambda: rig.api("GET", "/v1/endpoints/hello").json, "the endpoint")
        rig.ok("delete", "hello")

    def test_the_gateways_account_is_not_the_endpoints_owner(self):
        """It is nobody, and so are others."""
        rig = self.rig
        serve = 'cd / && exec python3 -m http.server --bind 127.0.0.1 "$PORT"'
        rig.ok("deploy", "mine", "--access", "local", "--", "sh", "-c", serve, timeout=120)
        url = poll(lambda: rig.api("GET", "/v1/endpoints/mine").json["urls"], "its address")[0]
        ask = (
            "import sys, urllib.request, urllib.error\n"
            "try: print(urllib.request.urlopen(sys.argv[1]).status)\n"
            "except urllib.error.HTTPError as e: print(e.code)"
        )

        def status(user):
            done = subprocess.run(
                ["/usr/bin/python3", "-c", ask, url],
                user=user,
                capture_output=True,
                timeout=60,
                cwd="/",
                check=True,
            )
            return int(done.stdout)

        self.assertEqual(status("root"), 200)
        for user in ("nobody", "daemon"):
            self.assertEqual(status(user), 401, user)
        rig.ok("delete", "mine")


if __name__ == "__main__":
    unittest.main()
