"""How an endpoint is operated: probes for readiness, liveness and the start; rollouts on a full
machine and times to drain; ways to balance; and replicas by the clock, by money, by tokens and by a
query to Prometheus."""
import http.server
import json
import os
import threading
import time
import unittest
import urllib.parse

import replica
from endpoints_test import EndpointTest
from rig import poll

SERVER = replica.program(
    """
VERSION, FILES = sys.argv[1], os.path.dirname(os.path.abspath(sys.argv[0]))
def told(what):
    return any(os.path.exists(os.path.join(FILES, what + "." + who)) for who in (str(os.getpid()), VERSION))
def answer(self):
    self.body()
    status = 200
    if self.path in ("/ready", "/live", "/started"):
        with open(os.path.join(FILES, "asked" + self.path.replace("/", ".") + "." + str(os.getpid())), "a") as f:
            f.write("x")
        status = 503 if told("not" + self.path.replace("/", ".")) else 200
    if self.path.startswith("/slow="):
        time.sleep(float(self.path.split("=")[1]))
    if self.path == "/drag" and told("drags"):
        time.sleep(0.3)
    self.say({"version": VERSION, "pid": os.getpid(), "usage": {"prompt_tokens": 300, "completion_tokens": 700}}, status)
"""
)


class OperationTest(EndpointTest):
    server = SERVER

    def tell(self, what):
        with open(self.rig.file(what), "w", encoding="utf-8"):
            pass

    def answer(self, name, path="/"):
        status, _, body = self.call(name, path)
        return json.loads(body) if status == 200 else {"status": status}

    def pids(self, name, path="/", clients=6, each=10):
        """The replicas that answered so many clients at once."""
        got, lock = [], threading.Lock()

        def one():
            for _ in range(each):
                pid = self.answer(name, path).get("pid")
                with lock:
                    got.append(pid)

        threads = [threading.Thread(target=one) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return got

    def notes(self, name):
        return " ".join(self.endpoint(name).get("notes", []))

    def refused(self, *options):
        done = self.rig.cli("deploy", "wrong", *options, "--", "true")
        self.assertNotEqual(done.code, 0, done)
        return done.errors


class Probes(OperationTest):
    def test_readiness_takes_out_and_liveness_replaces(self):
        self.deploy(
            "app", "--min", 2, "--max", 2, "--health", "/ready", "--live", "/live",
            "--health-period", "200ms", "--health-timeout", "1s", "--health-threshold", 2,
        )  # fmt: skip
        both = set(self.pids("app", "/slow=0.05"))
        self.assertEqual(len(both), 2)
        unready, other = both
        self.tell(f"not.ready.{unready}")
        poll(lambda: self.figure("app", "left_out") == 1, "the replica that is not ready left out")
        self.assertEqual(set(self.pids("app")), {other})
        self.assertTrue(os.path.exists(f"/proc/{unready}"))
        os.unlink(self.rig.file(f"not.ready.{unready}"))
        poll(lambda: self.figure("app", "ready") == 2, "its return", 60)
        self.assertEqual(set(self.pids("app", "/slow=0.05")), both, "it was not restarted")
        self.tell(f"not.live.{other}")
        poll(lambda: not os.path.exists(f"/proc/{other}"), "the dead replica replaced", 60)
        poll(lambda: self.figure("app", "ready") == 2, "two replicas again", 60)
        now = set(self.pids("app", "/slow=0.05"))
        self.assertIn(unready, now)
        self.assertNotIn(other, now)

    def test_a_start_probe_comes_before_the_others(self):
        self.tell("not.started.1")
        deploying = self.rig.start(
            "deploy", "app", "--access", "local", "--min", 1, "--health", "/ready", "--start-probe",
            "/started", "--", "python3", self.rig.file("serve.py"), "1",
        )  # fmt: skip

        def asked(what):
            return [n for n in os.listdir(self.rig.files) if n.startswith("asked." + what)]

        poll(lambda: asked("started"), "the start-up probe")
        self.assertEqual(asked("ready"), [], "readiness is asked after the start")
        os.unlink(self.rig.file("not.started.1"))
        self.assertEqual(deploying.wait(60), 0, deploying.stderr.read())
        self.assertTrue(asked("ready"))

    def test_mistakes_are_named(self):
        self.assertIn("--live must be a path", self.refused("--live", "alive"))
        self.assertIn("--health-period must be between", self.refused("--health-period", "2ms"))
        self.assertIn("--health-threshold must be", self.refused("--health-threshold", 0))
        self.assertIn("--strategy must be", self.refused("--strategy", "blue"))
        self.assertIn('--min-at "Mon 8-9=1"', self.refused("--min-at", "Mon 8-9=1"))
        self.assertIn("--max-spend 5 is not valid", self.refused("--max-spend", "5"))
        self.assertIn("--query needs --prometheus", self.refused("--query", "up"))


class Rollouts(OperationTest):
    def test_a_revision_that_fills_the_machine_is_replaced_in_its_place(self):
        self.deploy("full", "--gpus", 8, "--min", 1)
        self.assertEqual(self.answer("full")["version"], "1")
        deploying = self.rig.start(
            "deploy", "full", "--gpus", 8, "--", "python3", self.rig.file("serve.py"), "2"
        )
        self.assertEqual(self.again("full")[0], 200, "requests wait meanwhile")
        errors = deploying.stderr.read().decode()
        self.assertEqual(deploying.wait(90), 0, errors)
        self.assertIn("revision 2 does not fit beside revision 1", errors)
        self.assertEqual(self.answer("full")["version"], "2")

    def test_an_old_revision_returns_if_the_new_one_fails_in_its_place(self):
        self.deploy("full", "--gpus", 8, "--min", 1)
        done = self.rig.cli(
            "deploy", "full", "--gpus", 8, "--", "sh", "-c", "sleep 1; exit 3", timeout=90
        )
        self.assertNotEqual(done.code, 0, done)
        self.assertIn("did not become healthy", done.errors)
        self.assertEqual(json.loads(self.again("full")[2])["version"], "1")

    def test_rolling_waits_and_recreate_never_runs_both(self):
        self.deploy("full", "--gpus", 8, "--min", 1, "--strategy", "rolling")
        done = self.rig.cli(
            "deploy", "full", "--gpus", 8, "--start-timeout", "5s", "--", "python3",
            self.rig.file("serve.py"), "2", timeout=90,
        )  # fmt: skip
        self.assertNotEqual(done.code, 0, done)
        self.assertEqual(self.answer("full")["version"], "1")
        self.deploy("small", "--min", 1, "--strategy", "recreate")
        first = self.answer("small")["pid"]
        seen, stop = [], threading.Event()

        def watch():
            while not stop.is_set():
                running = [
                    r["revision"]
                    for r in self.endpoint("small")["replicas"]
                    if r.get("task_state") in ("starting", "running")
                ]
                seen.append(set(running))

        watcher = threading.Thread(target=watch)
        watcher.start()
        self.deploy("small", version="2")
        stop.set()
        watcher.join()
        self.assertNotIn({1, 2}, seen)
        self.assertFalse(os.path.exists(f"/proc/{first}"))
        self.assertEqual(self.answer("small")["version"], "2")

    def test_a_replica_that_leaves_gets_its_time_to_drain(self):
        self.deploy("app", "--min", 1, "--max", 1, "--drain", "2s", "--timeout", "5m")
        got = []
        for path in ("/slow=1", "/slow=600"):
            threading.Thread(
                target=lambda p=path: got.append((p, self.call("app", p, "POST")[0])), daemon=True
            ).start()
        poll(lambda: self.figure("app", "in_flight") == 2, "both requests")
        self.deploy("app", version="2")
        poll(lambda: len(got) == 2, "both ended", 60)
        self.assertEqual(dict(got), {"/slow=1": 200, "/slow=600": 502})


class Balance(OperationTest):
    def test_pack_fills_one_and_spread_uses_all(self):
        self.deploy("app", "--min", 3, "--max", 3, "--balance", "pack", "--concurrency", 8)
        self.assertEqual(len(set(self.pids("app", "/slow=0.02"))), 1)
        self.deploy("app", "--balance", "spread")
        poll(lambda: self.figure("app", "ready") == 3, "three replicas of the new revision")
        self.assertEqual(len(set(self.pids("app", "/slow=0.02"))), 3)

    def test_least_latency_avoids_a_slow_replica(self):
        self.deploy("app", "--min", 2, "--max", 2, "--balance", "least-latency")
        both = set(self.pids("app", "/slow=0.02"))
        self.assertEqual(len(both), 2)
        slow = both.pop()
        self.tell(f"drags.{slow}")
        self.pids("app", "/drag", clients=4, each=5)
        got = self.pids("app", "/drag", clients=2, each=20)
        self.assertLess(got.count(slow), 10, got)


class Scaling(OperationTest):
    options = {"args": ("--webhook-host", "127.0.0.1")}

    def test_replicas_by_the_clock(self):
        day = time.strftime("%a", time.gmtime(time.time() + 3 * 86400))
        self.deploy("app", "--max", 3, "--idle", "1s", "--min-at", f"{day} 00:00-24:00=3")
        poll(lambda: self.figure("app", "sleeping") == 1, "sleep on other days")
        self.deploy("app", "--min-at", "00:00-24:00=2")
        poll(lambda: self.figure("app", "ready") == 2, "two by the clock")
        self.assertIn("--min-at", self.rig.ok("deploy", "app", "--", "python3",
            self.rig.file("serve.py"), "1", timeout=90).errors)  # fmt: skip
        poll(lambda: self.figure("app", "ready") == 2, "two again")
        self.deploy("app", "--min-at", "none")
        poll(lambda: self.figure("app", "ready") == 0, "sleep without it")

    def test_a_limit_of_spending(self):
        self.rig.ok("price", "set", "H100", "--charge", "2")
        self.deploy("app", "--gpus", 1, "--max", 4, "--min", 3, "--max-spend", "4.50/h")
        poll(lambda: self.figure("app", "ready") == 2, "two replicas")
        poll(lambda: "--max-spend $4.50/h pays for 2 replicas" in self.notes("app"), "why")
        shown = self.rig.ok("describe", "app").text
        self.assertIn("--max-spend $4.50/h pays for 2", shown)
        self.assertIn("--max-spend 4.50/h\n", shown)
        self.assertIn("--max-spend", self.rig.ok("explain", "app").text)
        self.assertEqual(len(self.rig.json("ps")["jobs"]), 2)
        self.deploy("app", "--gpus", 1, "--max-spend", "1/h")
        poll(lambda: "does not pay for a replica" in self.notes("app"), "why none")

    def test_tokens_in_flight(self):
        self.deploy(
            "app", "--max", 3, "--concurrency", 16, "--target-tokens", 2000, "--slo", "100ms"
        )
        self.assertEqual(self.answer("app")["version"], "1")
        poll(lambda: self.figure("app", "tokens_out") >= 700, "its tokens")
        threads = [
            threading.Thread(target=self.call, args=("app", "/slow=8"), daemon=True)
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        poll(lambda: self.figure("app", "ready") == 3, "6,000 tokens at 2,000 each")
        for thread in threads:
            thread.join()

    def test_a_query_to_prometheus(self):
        value, asked = ["30"], []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                result = [{"metric": {}, "value": [time.time(), value[0]]}]
                body = {"status": "success", "data": {"resultType": "vector", "result": result}}
                if value[0] == "":
                    body = {"status": "error", "error": "no such metric"}
                out = json.dumps(body).encode()
                self.send_response(200 if value[0] else 400)
                self.send_header("Content-Length", str(len(out)))
                self.end_headers()
                self.wfile.write(out)

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.deploy(
            "app", "--max", 5, "--idle", "1s", "--prometheus",
            f"http://127.0.0.1:{server.server_port}/", "--query", "sum(queue) + 0",
            "--query-target", "10",
        )  # fmt: skip
        poll(lambda: self.figure("app", "ready") == 3, "30 at 10 each")
        self.assertEqual(urllib.parse.unquote(asked[0]), "/api/v1/query?query=sum(queue) + 0")
        value[0] = "0"
        poll(lambda: self.figure("app", "ready") == 0, "sleep when nothing is queued", 60)
        value[0] = ""
        poll(lambda: "no such metric" in self.notes("app"), "why it is ignored", 60)


class Reports(OperationTest):
    def test_what_an_endpoint_has_cost(self):
        self.rig.ok("price", "set", "H100", "--charge", "3600")
        self.deploy("app", "--gpus", 1, "--min", 1)
        job = self.rig.submit("--gpus", 1, "--", "sleep", "1")
        self.rig.wait_for(job, "succeeded")
        poll(lambda: self.endpoint("app")["cost_usd"] > 1, "a dollar")
        self.rig.ok("delete", "app")
        poll(lambda: self.rig.json("ps")["jobs"] == [], "its replica gone")
        lines = self.rig.json("cost", "--by", "endpoint")["lines"]
        by = {line.get("endpoint", ""): line["charge_nano_usd"] for line in lines}
        self.assertEqual(set(by), {"app", ""})
        self.assertGreater(by["app"], 1_000_000_000)
        self.assertIn("app,", self.rig.ok("cost", "--by", "endpoint", "--csv").text)

    def test_samples_without_a_bucket_are_no_secret(self):
        done = self.rig.ok(
            "deploy", "app", "--sample", "1%", "--", "python3", self.rig.file("serve.py"), "1",
            timeout=90,
        )  # fmt: skip
        self.assertIn("--sample 1%: no request is kept, because no bucket is set", done.errors)
        self.assertIn("--sample-to s3://", self.rig.ok("describe", "app").text)


if __name__ == "__main__":
    unittest.main()
