"""Canaries: a part of the requests for a new revision, copies of requests, and the end of a canary
that is worse than the old revision. Keys of callers: limits, and what they have used."""

import json
import shutil
import subprocess
import threading
import time
import unittest

import replica
from endpoints_test import EndpointTest
from rig import poll

SERVER = replica.program(
    """
VERSION = sys.argv[1]
def answer(self):
    body = self.body()
    if VERSION == "slow":
        time.sleep(0.2)
    if self.headers.get("X-Billow-Mirror"):
        with open(os.environ["COPIES"], "a") as f:
            f.write(self.command + " " + self.path + " " + str(len(body)) + "\\n")
    broken = VERSION == "broken" and self.path != "/health"
    self.say({"version": VERSION, "usage": {"prompt_tokens": 300, "completion_tokens": 700}}, 500 if broken else 200)
"""
)


class ReleaseTest(EndpointTest):
    server = SERVER

    def version(self, name, **more):
        status, _, body = self.call(name, "/", **more)
        return json.loads(body)["version"] if status == 200 else status

    def shown(self, *args):
        return self.rig.ok(*args).text

    def fails(self, *args):
        done = self.rig.cli(*args)
        self.assertNotEqual(done.code, 0)
        return done.errors

    def revision(self, name, number):
        return next(r for r in self.endpoint(name)["revisions"] if r["number"] == number)


class Canaries(ReleaseTest):
    def test_a_canary_gets_its_part_and_takes_over_when_promoted(self):
        self.deploy("app", "--min", 1, "--max", 2)
        self.deploy("app", "--traffic", "20%", version="2")
        self.assertEqual(self.endpoint("app")["status"], "canary")
        self.assertEqual(self.revision("app", 1)["state"], "serving")
        got = [self.version("app") for _ in range(50)]
        self.assertEqual((got.count("1"), got.count("2")), (40, 10))
        self.rig.ok("traffic", "app", "50%")
        poll(lambda: self.revision("app", 2)["release"]["traffic_pct"] == 50, "the changed part")
        poll(lambda: {self.version("app"), self.version("app")} == {"1", "2"}, "half to each")
        got = [self.version("app") for _ in range(40)]
        self.assertEqual((got.count("1"), got.count("2")), (20, 20))
        self.assertIn("50 % of the requests", self.shown("describe", "app"))
        self.rig.ok("promote", "app", timeout=90)
        self.assertEqual(self.revision("app", 2)["state"], "serving")
        self.assertEqual({self.version("app") for _ in range(10)}, {"2"})

    def test_a_client_stays_with_its_revision(self):
        self.deploy("sticky", "--min", 1, "--max", 2, "--sticky", "header:X-User")
        self.deploy("sticky", "--traffic", "50%", version="2")
        versions = {}
        for _ in range(3):
            for user in range(30):
                seen = self.version("sticky", headers={"X-User": f"user-{user}"})
                self.assertEqual(versions.setdefault(user, seen), seen)
        self.assertEqual(set(versions.values()), {"1", "2"})

    def test_rollback_ends_a_canary_and_nothing_else_is_deployed_beside_it(self):
        self.deploy("back", "--min", 1)
        self.deploy("back", "--traffic", "50%", version="2")
        refused = self.fails("deploy", "back", "--", "python3", self.rig.file("serve.py"), "3")
        self.assertIn("is a canary", refused)
        self.assertIn("revision 2", self.shown("rollback", "back"))
        self.assertEqual(self.revision("back", 2)["state"], "rolled_back")
        poll(lambda: {self.version("back") for _ in range(4)} == {"1"}, "only the old revision")
        self.assertIn("no canary", self.fails("promote", "back"))

    def test_rollback_restores_the_program_but_neither_opens_nor_shrinks_the_endpoint(self):
        self.deploy("shut", "--access", "open", "--health", "/health")
        self.deploy("shut", "--access", "key", "--max", 2, "--health", "/", version="2")
        self.rig.ok("scale", "shut", "--min", 1, "--max", 3)
        said = self.rig.ok("rollback", "shut").errors
        self.assertIn("as revision 1", said)
        self.assertIn("its --health /health", said)
        self.assertIn("access key", said)
        self.assertIn("--min 1, --max 3", said)
        self.assertEqual(self.call("shut", "/")[0], 401)
        key = self.rig.ok("endpoint-key", "shut").text.strip()
        sent = {"Authorization": f"Bearer {key}"}
        poll(lambda: self.version("shut", headers=sent) == "1", "the old program")
        shut = self.endpoint("shut")
        self.assertEqual((shut["access"], shut["min"], shut["max"]), ("key", 1, 3))

    def test_a_canary_that_fails_under_load_is_rolled_back_by_itself(self):
        self.deploy("hurt", "--min", 2, "--max", 4, "--health", "/health")
        stop, statuses, lock = threading.Event(), [], threading.Lock()

        def client():
            while not stop.is_set():
                status, _, _ = self.call("hurt", "/")
                with lock:
                    statuses.append(status)

        clients = [threading.Thread(target=client) for _ in range(4)]
        for each in clients:
            each.start()
        try:
            self.deploy("hurt", "--traffic", "10%", version="broken")
            poll(lambda: self.revision("hurt", 2)["state"] == "rolled_back", "the rollback", 60)
            time.sleep(0.5)
        finally:
            stop.set()
            for each in clients:
                each.join()
        hurt = [s for s in statuses if s != 200]
        print(f"hurt requests: {len(hurt)} of {len(statuses)}")
        self.assertGreaterEqual(len(hurt), 10)
        self.assertEqual(set(hurt), {500})
        self.assertLess(len(hurt), 60)
        self.assertEqual({self.version("hurt") for _ in range(10)}, {"1"})
        reason = self.revision("hurt", 2)["reason"]
        self.assertIn("requests failed", reason)
        self.assertIn(reason, self.shown("describe", "hurt"))
        self.assertIn("rolled back", self.shown("endpoints"))

    @unittest.skipUnless(shutil.which("curl"), "curl is not installed")
    def test_a_canary_that_fails_over_http2_is_rolled_back_too(self):
        self.deploy("two", "--access", "open", "--min", 1, "--health", "/health")
        self.deploy("two", "--traffic", "50%", version="broken")
        host, port = self.gateway()
        calls = 0
        while self.revision("two", 2)["state"] == "canary" and calls < 200:
            subprocess.run(
                ["curl", "-s", "--http2-prior-knowledge", f"http://{host}:{port}/f/two/"],
                stdout=subprocess.DEVNULL,
                check=True,
            )
            calls += 1
        self.assertEqual(self.revision("two", 2)["state"], "rolled_back", f"after {calls} calls")

    def test_a_slow_canary_is_rolled_back_and_an_equal_one_is_not(self):
        self.deploy("pace", "--min", 1, "--max", 2)
        self.deploy("pace", "--traffic", "50%", version="2")
        for _ in range(250):
            self.version("pace")
        self.assertEqual(self.revision("pace", 2)["state"], "canary")
        self.rig.ok("rollback", "pace")
        poll(lambda: self.endpoint("pace")["canary"] == 0, "its end")
        self.deploy("pace", "--traffic", "50%", version="slow")
        for _ in range(250):
            self.version("pace")
        poll(lambda: self.revision("pace", 3)["state"] == "rolled_back", "the rollback")
        self.assertIn("slower", self.revision("pace", 3)["reason"])

    def test_copies_go_to_the_canary_and_their_answers_nowhere(self):
        copies = self.rig.file("copies")
        env = ("--env-var", f"COPIES={copies}")
        self.deploy("mirror", "--min", 1, "--max", 2, *env)
        self.deploy("mirror", "--mirror", "50%", *env, version="2")
        self.assertEqual({self.version("mirror") for _ in range(20)}, {"1"})
        self.call("mirror", "/post", "POST", "x" * 100)
        self.call("mirror", "/post", "POST", "x" * 100)
        lines = poll(lambda: (l := self.lines(copies)) and len(l) >= 10 and l, "ten copies")
        self.assertEqual(lines, ["GET / 0"] * 10)
        self.rig.ok("rollback", "mirror")
        poll(lambda: self.endpoint("mirror")["canary"] == 0, "its end")
        self.deploy("mirror", "--mirror", "100%", "--mirror-post", *env, version="3")
        self.call("mirror", "/post", "POST", "x" * 100_000)
        poll(lambda: "POST /post 100000" in self.lines(copies), "the copy of a POST")
        self.assertGreaterEqual(self.figure("mirror", "mirrored"), 1)

    def lines(self, path):
        try:
            with open(path, encoding="utf-8") as f:
                return f.read().splitlines()
        except FileNotFoundError:
            return []


class Keys(ReleaseTest):
    def key(self, name, key, *options):
        return self.shown("endpoint-key", name, "--name", key, *options).split()[0]

    def status(self, name, key, path="/"):
        status, headers, body = self.call(name, path, headers={"Authorization": f"Bearer {key}"})
        return status, headers, body

    def test_a_key_stops_at_its_dollars_to_the_cent(self):
        self.deploy("paid", "--access", "key", "--price", "0.01/request")
        key = self.key("paid", "app", "--limit", "usd=0.25/day")
        other = self.key("paid", "other")
        results = []
        lock = threading.Lock()

        def client():
            for _ in range(10):
                status, headers, body = self.status("paid", key)
                with lock:
                    results.append((status, headers, body))

        clients = [threading.Thread(target=client) for _ in range(4)]
        for each in clients:
            each.start()
        for each in clients:
            each.join()
        statuses = [status for status, _, _ in results]
        self.assertEqual((statuses.count(200), statuses.count(429)), (25, 15))
        _, headers, body = next(r for r in results if r[0] == 429)
        self.assertGreater(int(headers["retry-after"]), 0)
        self.assertIn("$0.25 per day", json.loads(body)["detail"])
        self.assertEqual(self.status("paid", other)[0], 200)
        # The gateway reports every second, perhaps in the middle of the refusals.
        poll(
            lambda: self.line("app").get("charge_nano_usd") == 250_000_000
            and self.line("app")["refused"] == 15,
            "a quarter of a dollar and the refusals in the ledger",
            30,
        )
        self.assertEqual(self.line("app")["requests"], 25)
        self.assertIn(",paid,app,25,15,", self.shown("cost", "--by", "key", "--csv"))
        self.assertIn("$0.25", self.shown("cost", "--by", "key"))
        self.assertIn("$0.25 per day", self.shown("describe", "paid"))
        log = poll(
            lambda: (t := self.rig.read("gateway/access.log")) and "key=app" in t and t, "it"
        )
        self.assertNotIn(key, log)
        self.assertEqual(self.status("paid", key)[0], 429)

    def line(self, key):
        lines = self.rig.json("cost", "--by", "key")["lines"]
        return next((line for line in lines if line["key"] == key), {})

    def test_limits_of_requests_and_tokens_and_an_expiry(self):
        self.deploy(
            "limits", "--access", "key", "--price", "in=1/Mtoken", "--price", "out=2/Mtoken"
        )
        few = self.key("limits", "few", "--limit", "3/day", "--project", "default")
        self.assertEqual([self.status("limits", few)[0] for _ in range(5)], [200] * 3 + [429] * 2)
        tokens = self.key("limits", "tokens", "--limit", "2500tokens/day")
        # Each answer reports 1,000 tokens: a third one could exceed the limit.
        self.assertEqual([self.status("limits", tokens)[0] for _ in range(3)], [200, 200, 429])
        poll(lambda: self.line("tokens").get("tokens_out") == 1400, "its tokens", 30)
        self.assertEqual(self.line("tokens")["charge_nano_usd"], 2 * (300 + 2 * 700) * 1000)
        short = self.key("limits", "short", "--expires", "2s")
        self.assertEqual(self.status("limits", short)[0], 200)
        poll(lambda: self.status("limits", short)[0] == 401, "its expiry", 10)
        self.assertIn("expired", json.loads(self.status("limits", short)[2])["detail"])
        self.assertIn("has no prices", self.no_prices())

    def no_prices(self):
        self.deploy("free", "--access", "key")
        return self.fails("endpoint-key", "free", "--limit", "usd=1/day")


if __name__ == "__main__":
    unittest.main()
