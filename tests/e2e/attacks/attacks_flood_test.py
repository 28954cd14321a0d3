"""Attacks on the head's time, memory and room: by strangers without a token, by another account of
the machine, and by an ordinary member. Each test says who must not notice."""
import concurrent.futures
import json
import os
import socket
import subprocess
import sys
import threading
import time
import unittest

from rig import RigTest, poll

# Opens connections as another account, sends what it is told on each, and holds them.
HOLDER = """
import os, resource, select, socket, sys, time
address, count = (sys.argv[1], int(sys.argv[2])), int(sys.argv[3])
sent = bytes.fromhex(sys.argv[4])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
os.setgid(65534)
os.setuid(65534)
held = []
for _ in range(count):
    s = socket.socket()
    s.settimeout(10)
    try:
        s.connect(address)
        if sent:
            s.sendall(sent)
    except OSError:
        pass
    held.append(s)
print("held", flush=True)
sys.stdin.read()
"""


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


class Attack(RigTest):
    def hold(self, count, sent=b""):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, *map(str, self.rig.address()), str(count), sent.hex()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

        def end():
            process.stdin.close()
            process.stdout.close()
            process.wait()

        self.addCleanup(end)
        self.assertEqual(process.stdout.readline(), b"held\n")

    def metric(self, name):
        text = self.rig.api("GET", "/metrics").body.decode()
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name)
        )

    def health_s(self, while_running):
        """How long /healthz took while the function ran, in ascending order."""
        took = []
        thread = threading.Thread(target=while_running)
        thread.start()
        while thread.is_alive():
            began = time.monotonic()
            self.assertEqual(self.rig.api("GET", "/healthz").status, 200)
            took.append(time.monotonic() - began)
            time.sleep(0.02)
        thread.join()
        return sorted(took)


class Strangers(Attack):
    def test_bodies_without_a_token_cost_no_memory(self):
        pid = self.rig.head_pid()
        self.rig.api("GET", "/v1/status")
        before = resident_kib(pid)
        sockets = []
        head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n"
        piece = b"x" * 65536
        answers = []
        for _ in range(150):
            s = socket.create_connection(self.rig.address(), timeout=30)
            sockets.append(s)
            s.sendall(head)
            try:
                for _ in range(120):
                    s.sendall(piece)
            except OSError:
                pass
        grown = resident_kib(pid) - before
        for s in sockets:
            try:
                answers.append(s.recv(12))
            except OSError:
                answers.append(b"")
            s.close()
        self.assertLess(grown, 20_000, f"150 connections cost {grown} KiB")
        self.assertNotIn(b"HTTP/1.1 201", answers)
        self.assertIn(b"HTTP/1.1 401", answers)

    def test_a_large_sign_in_is_refused_before_it_is_parsed(self):
        body = json.dumps({"token": "x", "more": [1] * 2_000_000}).encode()

        def attack():
            for _ in range(3):
                answer = None
                try:
                    answer = self.rig.api("POST", "/v1/session", body, token="", tcp=True)
                except OSError:  # cut while it was still sending
                    continue
                self.assertEqual(answer.status, 413)

        self.assertLess(self.health_s(attack)[-1], 2)
        small = self.rig.api("POST", "/v1/session", {"token": "wrong"}, token="", tcp=True)
        self.assertEqual(small.status, 401)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to attack as somebody else")
    def test_idle_connections_of_one_account_lock_nobody_out(self):
        self.hold(16_400)
        self.assertEqual(self.rig.api("GET", "/v1/status").status, 200)
        self.assertEqual(self.rig.api("GET", "/v1/status", tcp=True).status, 200)
        done = self.rig.cli("run", "--", "true")
        self.assertEqual(done.code, 0, done)
        nodes = self.rig.json("nodes")["nodes"]
        self.assertEqual([n["state"] for n in nodes], ["ready"] * len(nodes))
        self.assertLess(self.metric('billow_http_connections{caller="stranger"}'), 300)
        self.assertGreater(self.metric('billow_http_refused_total{limit="displaced"}'), 15_000)
        self.assertIn("waiting connections were dropped", self.rig.head_log())
        lines = self.rig.head_log().count("waiting connections were dropped")
        self.assertLess(lines, 10, "refusals are summed up")

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to attack as somebody else")
    def test_heads_that_never_end_lock_nobody_out(self):
        self.hold(2_000, b"GET / HTTP/1.1\r\nX-Slow:")
        self.assertEqual(self.rig.api("GET", "/v1/status", tcp=True).status, 200)
        self.assertLess(self.metric('billow_http_connections{caller="stranger"}'), 300)


class Members(Attack):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = {}
        for name, project in (("mallory", "audio"), ("alice", "vision")):
            cls.rig.ok("user", "create", name, "--unix-name", "nobody")
            cls.rig.ok("project", "create", project)
            cls.rig.ok("project", "member", project, name)
            token = cls.rig.json("token", "create", f"{name}-token", "--user", name)
            cls.tokens[name] = token["token"]

    def submit(self, who, **fields):
        body = self.rig.spec("sleep", 1000, **fields)
        return self.rig.api("POST", "/v1/jobs", body, token=self.tokens[who], timeout=120)

    def test_one_member_cannot_fill_the_queue(self):
        gpus = {"resources": {"gpus": 8, "share": {"milli": 1000}}}
        array = {"array": {"first": 0, "last": 99_999}, **gpus}
        first = [self.submit("mallory", **array) for _ in range(2)]
        self.assertEqual([a.status for a in first], [201, 201], first)
        refused = self.submit("mallory", **array)
        self.assertEqual(refused.status, 429, refused)
        problem = refused.json
        self.assertIn("the quota queued-jobs of user mallory is 200000", problem["detail"])
        self.assertIn("billow quota set --user mallory queued-jobs", problem["hint"])
        self.assertEqual(self.submit("alice", **gpus).status, 201)

        with self.subTest("listing with a filter that matches nothing stalls nobody"):

            def walk():
                with concurrent.futures.ThreadPoolExecutor(15) as pool:
                    answers = pool.map(
                        lambda _: self.rig.api(
                            "GET",
                            "/v1/jobs?label=a=b&expand=1",
                            token=self.tokens["mallory"],
                            timeout=300,
                        ),
                        range(15),
                    )
                    self.assertEqual({a.status for a in answers}, {200})

            self.assertLess(self.health_s(walk)[-1], 1.5)

        with self.subTest("stopping an array stalls nobody"):

            def stop():
                answer = self.rig.api(
                    "POST",
                    f"/v1/jobs/{first[0].json['id']}/stop",
                    {},
                    token=self.tokens["mallory"],
                    timeout=300,
                )
                self.assertEqual(answer.status, 200, answer)

            took = self.health_s(stop)
            # A snapshot of 200,000 jobs falls into this time and holds the head, once or twice.
            self.assertGreater(len(took), 20)
            self.assertLess(took[int(len(took) * 0.9)], 1)

        listed = self.rig.api("GET", "/v1/quotas", token=self.tokens["mallory"]).json["quotas"]
        own = {q["kind"]: q for q in listed if q["scope"] == "user"}
        self.assertEqual({q["of"] for q in listed if q["scope"] == "user"}, {"mallory"})
        poll(
            lambda: self.rig.api("GET", "/v1/quotas", token=self.tokens["mallory"]).json["quotas"][
                0
            ]["used"]
            <= 100_008,
            "the stopped elements to be given back",
        )
        self.assertEqual(own["queued-jobs"]["limit"], 200_000)

    def test_quotas_are_set_shown_and_removed(self):
        self.rig.ok("quota", "set", "--user", "alice", "queued-jobs", "1")
        self.rig.ok("quota", "set", "--project", "vision", "spec-bytes", "1M")
        rows = self.rig.json("quota", "list")["quotas"]
        alice = next(q for q in rows if q["of"] == "alice" and q["kind"] == "queued-jobs")
        self.assertEqual((alice["limit"], alice["set"]), (1, True))
        self.assertIn("user alice", self.rig.ok("quota", "list").text)
        self.submit("alice")
        self.assertEqual(self.submit("alice").status, 429)
        self.rig.ok("quota", "rm", "--user", "alice", "queued-jobs")
        self.assertEqual(self.submit("alice").status, 201)
        by_member = self.rig.api(
            "PUT",
            "/v1/quotas",
            {"scope": "user", "of": "alice", "kind": "queued-jobs", "limit": -1},
            token=self.tokens["alice"],
        )
        self.assertEqual(by_member.status, 403)
        self.assertEqual(self.rig.cli("quota", "set", "--user", "x", "nonsense", "1").code, 2)

    def test_a_users_requests_are_limited_and_others_are_not(self):
        self.rig.ok("quota", "set", "--user", "mallory", "requests-per-s", "5")
        self.addCleanup(self.rig.cli, "quota", "rm", "--user", "mallory", "requests-per-s")
        statuses = [
            self.rig.api("GET", "/v1/jobs", token=self.tokens["mallory"], tcp=True).status
            for _ in range(60)
        ]
        self.assertIn(429, statuses)
        self.assertEqual(
            self.rig.api("GET", "/v1/jobs", token=self.tokens["alice"], tcp=True).status, 200
        )


if __name__ == "__main__":
    unittest.main()
