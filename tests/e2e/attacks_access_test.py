"""Attacks on identity: stolen join tokens and node credentials, impersonation, other people's names."""
import concurrent.futures
import json
import os
import re
import struct
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
        self.assertEqual(
            self.call("ops", "POST", "/v1/users", {"name": "r", "unix_name": "root"}).status, 400
        )
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
        # An admin publishes; a member of its project cannot change that.
        self.rig.ok("env", "save", "base", folder, "--shared", "--project", "audio")
        done = self.cli("mal", "env", "save", "base", folder, "--project", "audio")
        self.assertNotEqual(done.code, 0)
        self.assertIn("admin", done.errors)

    def test_a_projects_admin_enters_no_members_job(self):
        job = self.cli("ana", "submit", "--json", "--cwd", "/", "--", "sleep", "600").json["id"]
        self.rig.wait_for(job, "running")
        path = f"/v1/jobs/{job}/tunnel?port=22"
        self.assertEqual(WebSocket(self.rig, path, self.tokens["ops"]).status, 403)
        copy = self.call("ops", "POST", f"/v1/jobs/{job}/files", {"path": "."})
        self.assertEqual(copy.status, 403, copy)
        self.assertEqual(self.cli("ops", "logs", str(job)).code, 0)
        self.rig.ok("project", "set", "vision", "--enter", "admins")
        peer = WebSocket(self.rig, path, self.tokens["ops"])
        self.assertEqual(peer.status, 101)
        peer.close()
        entry = poll(
            lambda: [e for e in self.events("job_entered") if e["event"]["job"] == job], "a record"
        )[0]
        self.assertEqual(entry["actor"], "user:ops")
        self.assertEqual(entry["event"]["how"], "port 22")
        self.rig.ok("project", "set", "vision", "--enter", "owner")
        self.assertEqual(self.cli("ops", "stop", "--force", str(job)).code, 0)

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
        self.assertNotEqual(os.stat(f"/proc/{pid}").st_uid, 0)
        self.assertNotIn(rig.data + "/token", words)
        token = rig.read("gateway-token").strip()
        for path in ("/v1/jobs", "/v1/status", "/v1/tokens", "/v1/secrets"):
            self.assertEqual(rig.api("GET", path, token=token).status, 403, path)
        poll(lambda: rig.api("GET", "/v1/endpoints/hello").json, "the endpoint")
        rig.ok("delete", "hello")


if __name__ == "__main__":
    unittest.main()
