"""Attacks by --input: the agent fetches inputs as root and in the node's network. It must not reach
for a job what the job itself may not reach, not after the job has started, and not as root."""
import json
import os
import signal
import subprocess
import unittest

import world as around
from attacks_internet_test import STRICT, OnANode
from attacks_neighbour_test import NEEDS_ROOT
from rig import alive, poll

PORT = 8099
# Notes for each request who asked: the user of the socket at the other end, if it is on this
# machine.
SERVER = """
import http.server, json, sys
def user_of(port):
    for line in open("/proc/net/tcp6").readlines()[1:] + open("/proc/net/tcp").readlines()[1:]:
        words = line.split()
        if int(words[1].split(":")[1], 16) == port:
            return int(words[7])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open(sys.argv[2], "a") as f:
            f.write(json.dumps({"path": self.path, "method": self.command,
                                "user": user_of(self.client_address[1]),
                                "token": self.headers["X-Amz-Security-Token"]}) + "\\n")
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path[4:])
            self.end_headers()
            return
        body = f"from {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
    do_HEAD = do_GET
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler)
print("ready", flush=True)
server.serve_forever()
"""

# Asks the socket for files for its own input again, with what it likes as credentials.
ASKS_AGAIN = """
import json, os, socket, sys, time
def ask(token):
    s = socket.socket(socket.AF_UNIX)
    s.connect(os.environ["BILLOW_FILES_SOCKET"])
    text = json.dumps({"url": "s3://bucket/key", "path": "got", "AWS_ACCESS_KEY_ID": "k",
                       "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": token})
    s.sendall(f"input {len(text)}\\n{text}".encode())
    return s.makefile().readline().strip()
while True:
    try:
        print(json.dumps([ask("what the job computed"), ask("")]), flush=True)
    except OSError as e:
        print(e, flush=True)
    time.sleep(0.5)
"""
KEYS = ("AWS_ACCESS_KEY_ID=k", "AWS_SECRET_ACCESS_KEY=s")


@NEEDS_ROOT
class Inputs(OnANode):
    network = "none"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rig.ok("project", "create", "visitors")
        cls.rig.ok("project", "set", "visitors", "--isolation", "strict")
        cls.rig.ok("project", "member", "visitors", "eve")
        cls.logs = {}
        for name, pid in (("node", cls.world.node), ("world", cls.world.world)):
            cls.logs[name] = cls.rig.file(f"asked-{name}")
            server = subprocess.Popen(
                cls.world.enter(pid, around.PYTHON, "-c", SERVER, str(PORT), cls.logs[name]),
                stdout=subprocess.PIPE,
            )
            cls.addClassCleanup(lambda s=server: (s.kill(), s.wait(), s.stdout.close()))
            server.stdout.readline()

    def setUp(self):
        for log in self.logs.values():
            with open(log, "w", encoding="ascii"):
                pass

    def asked(self, name):
        with open(self.logs[name], encoding="ascii") as f:
            return [json.loads(line) for line in f]

    def get(self, url, *options, user="bo"):
        where = self.directory(script="")
        words = ("run", "--gpus", "0", *options, "--input", f"{url}:got", "--", "cat", "got")
        return self.cli(*words, user=user, cwd=where)

    def test_a_project_without_the_internet_has_no_inputs_either(self):
        for network in ("none", "project"):
            self.rig.ok("project", "set", "visitors", "--network", network)
            done = self.get(
                f"http://{around.INTERNET}:{PORT}/x", *STRICT, "--project", "visitors", user="eve"
            )
            self.assertNotEqual(done.code, 0, done)
            self.assertIn("must not fetch inputs", done.errors)
            self.assertIn("billow project set visitors --network internet", done.errors)
        self.rig.ok("project", "set", "visitors", "--network", "internet")
        done = self.get(
            f"http://{around.INTERNET}:{PORT}/x", *STRICT, "--project", "visitors", user="eve"
        )
        self.assertEqual((done.code, done.text), (0, "from /x"), done)

    def test_a_strict_job_gets_inputs_from_the_internet_only(self):
        done = self.get(f"http://{around.INTERNET}:{PORT}/model", *STRICT)
        self.assertEqual((done.code, done.text), (0, "from /model"), done)
        closed = {
            "the node's loopback": f"http://127.0.0.1:{PORT}/x",
            "the node's loopback by any address": f"http://0.0.0.0:{PORT}/x",
            "the node's loopback by its name": f"http://localhost:{PORT}/x",
            "the node's loopback, mapped": f"http://[::ffff:127.0.0.1]:{PORT}/x",
            "the node's public address": f"http://{around.NODE_PUBLIC}:{PORT}/x",
            "the node's private address": f"http://{around.NODE_PRIVATE}:{PORT}/x",
            "a name of the node": f"http://node.test:{PORT}/x",
            "a private network": f"http://{around.PRIVATE}:{PORT}/x",
            "a name of a private network": f"http://rebind.test:{PORT}/x",
            "the metadata service": f"http://{around.METADATA}:{PORT}/x",
            "the head": "http://{}:{}/v1/routes".format(*self.rig.address()),
        }
        for what, url in closed.items():
            with self.subTest(what):
                done = self.get(url, *STRICT)
                self.assertEqual(done.code, 125, done)
                self.assertEqual(done.text, "")
        self.assertEqual(self.asked("node"), [])
        self.assertEqual({a["path"] for a in self.asked("world")}, {"/model"})

    def test_neither_a_redirect_nor_a_store_leads_inwards(self):
        inward = f"http://127.0.0.1:{PORT}/x"
        done = self.get(f"http://{around.INTERNET}:{PORT}/to/{inward}", *STRICT)
        self.assertEqual(done.code, 125, done)
        store = ("--env-var", f"AWS_ENDPOINT_URL=http://127.0.0.1:{PORT}")
        keys = [word for key in KEYS for word in ("--env-var", key)]
        done = self.get("s3://bucket/key", *STRICT, *store, *keys)
        self.assertEqual(done.code, 125, done)
        self.assertIn("127.0.0.1 is not a public address", done.errors)
        self.assertEqual(self.asked("node"), [])

    def test_allowed_private_networks_are_open(self):
        url = f"http://{around.PRIVATE}:{PORT}/data"
        done = self.get(url, *STRICT, "--network", "internet")
        self.assertEqual(done.code, 125, done)
        done = self.get(url, *STRICT, "--network", "internet", "--allow", "10.20.0.0/16")
        self.assertEqual((done.code, done.text), (0, "from /data"), done)

    def test_a_started_job_has_no_way_out_by_its_inputs(self):
        store = ("--env-var", f"AWS_ENDPOINT_URL=http://{around.INTERNET}:{PORT}")
        keys = [word for key in KEYS for word in ("--env-var", key)]
        job = self.submit(ASKS_AGAIN, *store, *keys, "--input", "s3://bucket/key:got")
        self.logged(job, "fetched once, before it starts")
        before = len(self.asked("world"))
        agent = self.rig.agent_pid()
        os.kill(agent, signal.SIGKILL)
        poll(lambda: not alive(agent), "the agent's end")
        seen = len(self.rig.cli("logs", job).text.splitlines())
        self.rig.up()
        self.rig.wait_for(job, "running", 60)
        poll(
            lambda: len(self.rig.cli("logs", job).text.splitlines()) > seen + 10,
            "tries after the agent's restart",
            60,
        )
        lines = self.rig.cli("logs", job).text
        self.assertNotIn('"ok ', lines)
        asked = self.asked("world")
        self.assertEqual(len(asked), before)
        self.assertGreater(before, 0)
        self.assertEqual({a["token"] for a in asked}, {None})

    def test_a_plain_job_is_not_taken_for_root(self):
        done = self.get(f"http://127.0.0.1:{PORT}/mine", "--sync")
        self.assertEqual((done.code, done.text), (0, "from /mine"), done)
        self.assertEqual({a["user"] for a in self.asked("node")}, {65534})


if __name__ == "__main__":
    unittest.main()
