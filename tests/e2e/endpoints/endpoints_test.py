"""Serverless endpoints with the real binaries: deploying, sleeping and waking, updates without a failed request, faults, keys, and
asynchronous calls that survive whatever dies."""
import http.client
import http.server
import json
import os
import socket
import threading
import unittest

from rig import RigTest, poll

SERVER = """
import base64, hashlib, http.server, json, os, sys, time
VERSION = sys.argv[1] if len(sys.argv) > 1 else "1"
COUNT = {}
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline() or b"0", 16):
                body += self.rfile.read(size + 2)[:-2]
            self.rfile.readline()
        if self.path.startswith("/slow"):
            time.sleep(float(self.path.split("=")[1].split("&")[0]))
        if self.path == "/events":
            return self.events()
        if self.path == "/ws":
            return self.websocket()
        if self.path == "/fail":
            self.send_response(500)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        key = self.headers.get("Idempotency-Key")
        if key:
            with open("calls.log", "a") as f:
                f.write(key + "\\n")
        out = b"x" * int(self.path.split("=")[1]) if self.path.startswith("/size") else json.dumps({"version": VERSION, "pid": os.getpid(), "job": os.environ.get("BILLOW_JOB_ID"), "from": self.headers.get("X-Forwarded-For"), "peer": self.headers.get("X-Billow-Peer"), "path": self.path, "length": len(body), "usage": {"prompt_tokens": 3, "completion_tokens": 7}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)
    do_GET = do_POST = answer
    def events(self):
        # One at once, the rest when it is told to: a proxy that gathers an answer would show
        # nothing of the first. Ends by itself when
        # its client has gone, and leaves a note.
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        number = 0
        try:
            while not os.path.exists("go"):
                self.wfile.write(f"data: {number}\\n\\n".encode())
                self.wfile.flush()
                number += 1
                time.sleep(0.02)
            self.wfile.write(b"data: [DONE]\\n\\n")
        except OSError:
            open("gone", "w").close()
        self.close_connection = True
    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                return
            mask = self.rfile.read(4)
            text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(head[1] & 127)))
            self.wfile.write(bytes([0x81, len(text) + 5]) + b"echo " + text)
            self.wfile.flush()
    def log_message(self, *args):
        print("request", self.path, flush=True)
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
Server(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


class EndpointTest(RigTest):
    server = SERVER  # what the replicas run

    def setUp(self):
        super().setUp()
        with open(self.rig.file("serve.py"), "w", encoding="utf-8") as f:
            f.write(self.server)
        self.addCleanup(self.clear)

    def clear(self):
        for name in os.listdir(self.rig.files):
            os.unlink(self.rig.file(name))
        for e in self.rig.api("GET", "/v1/endpoints").json["endpoints"]:
            self.rig.ok("delete", e["name"])
        poll(lambda: self.rig.json("ps")["jobs"] == [], "all replicas gone")

    def deploy(self, name, *options, version="1", **more):
        return self.rig.json(
            "deploy",
            name,
            *options,
            "--",
            "python3",
            self.rig.file("serve.py"),
            version,
            timeout=90,
            **more,
        )

    def call(self, name, path="/", method="GET", body=None, headers=None, timeout=60):
        """(status, headers, body) through the gateway, wherever it is just now."""
        host, port = self.gateway()
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
        try:
            connection.request(
                method, path if name is None else f"/f/{name}{path}", body, headers or {}
            )
            answer = connection.getresponse()
            return (
                answer.status,
                dict((k.lower(), v) for k, v in answer.getheaders()),
                answer.read(),
            )
        finally:
            connection.close()

    def gateway(self):
        text = poll(lambda: self.rig.read("gateway/address").strip(), "a gateway")
        host, port = text.split(",")[0].rsplit(":", 1)
        return host, int(port)

    def gateway_pid(self):
        return next(
            (pid for pid, line in self.rig.processes().items() if " gateway --head" in line), 0
        )

    def endpoint(self, name):
        return self.rig.api("GET", f"/v1/endpoints/{name}").json

    def figure(self, name, figure):
        return self.endpoint(name).get("figures", {}).get(figure, 0)

    def again(self, *args, **options):
        """What a client that retries sees: the answer, once somebody takes the call."""

        def once():
            try:
                status, headers, body = self.call(*args, **options)
            except (OSError, http.client.HTTPException):
                return None
            return (status, headers, body) if status < 500 else None

        return poll(once, "an answer", 60)


class Serving(EndpointTest):
    def test_deploy_call_look_and_delete(self):
        made = self.deploy("hello", "--max", 2)
        self.assertEqual(made["revision"], 1)
        self.assertEqual(
            made["figures"]["ready"], 1, "who waited for it is not told that none is ready"
        )
        status, headers, body = self.call("hello", "/a/b?c=d", "POST", b"12345")
        self.assertEqual(status, 200)
        self.assertEqual((json.loads(body)["path"], json.loads(body)["length"]), ("/a/b?c=d", 5))
        self.assertTrue(headers["x-request-id"])
        self.assertIn("hello", self.rig.ok("endpoints").text)
        self.assertIn("serving", self.rig.ok("describe", "hello").text)
        poll(
            lambda: "request /a/b" in self.rig.ok("logs", "hello").text,
            "the replica's log by the endpoint's name",
        )
        poll(lambda: self.figure("hello", "tokens_out") >= 7, "tokens read from the answer")
        poll(
            lambda: self.endpoint("hello").get("usd_per_1000_tokens", -1) >= 0,
            "a price for a thousand tokens",
        )
        self.assertEqual(self.call("nobody")[0], 404)
        self.rig.ok("delete", "hello")
        poll(lambda: self.call("hello")[0] == 404, "the endpoint gone")
        poll(lambda: self.rig.json("ps")["jobs"] == [], "its replicas gone")
        for verb in ("describe", "explain"):
            gone = self.rig.cli(verb, "hello")
            self.assertNotEqual(gone.code, 0, gone)
            self.assertIn("endpoint hello no longer exists", gone.errors)

    def test_asleep_it_holds_no_gpu_and_wakes_as_the_same_process(self):
        self.deploy("sleepy", "--gpus", 1, "--idle", "1s")
        before = json.loads(self.call("sleepy")[2])["pid"]
        poll(lambda: self.figure("sleepy", "sleeping") == 1, "sleep")
        self.assertEqual(self.rig.json("status")["gpus"]["free"], 8)
        status, _, body = self.call("sleepy", "/again")
        self.assertEqual((status, json.loads(body)["pid"]), (200, before))
        poll(lambda: self.figure("sleepy", "wakes") == 1, "a wake counted")
        self.assertEqual(self.figure("sleepy", "cold_starts"), 1)

    def test_requests_are_held_and_replicas_added_up_to_the_maximum(self):
        self.deploy("busy", "--max", 3, "--concurrency", 1, "--slo", "100ms")
        results = []

        def one():
            results.append(self.call("busy", "/slow=1.5"))

        threads = [threading.Thread(target=one) for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual([r[0] for r in results], [200] * 6)
        self.assertLessEqual(len({json.loads(r[2])["pid"] for r in results}), 3)
        self.assertGreaterEqual(self.figure("busy", "cold_starts"), 2)

    def test_keys(self):
        self.deploy("secret", "--access", "key")
        self.assertEqual(self.call("secret")[0], 401)
        key = self.rig.ok("endpoint-key", "secret", "--name", "ci").text.strip()
        poll(
            lambda: self.call("secret", headers={"Authorization": f"Bearer {key}"})[0] == 200,
            "the key to be known",
        )
        self.assertEqual(self.call("secret", headers={"Authorization": "Bearer wrong"})[0], 401)
        self.assertNotIn(
            key,
            self.rig.read("gateway/access.log")
            + self.rig.read("gateway/table.json")
            + self.rig.read("gateway.log"),
        )
        self.rig.ok("endpoint-key", "secret", "--name", "ci", "--remove")
        poll(
            lambda: self.call("secret", headers={"Authorization": f"Bearer {key}"})[0] == 401,
            "the key to be forgotten",
        )

    def test_a_new_revision_keeps_whom_it_serves_and_how_it_scales(self):
        self.deploy("private", "--access", "key", "--slo", "3s")
        self.rig.ok("scale", "private", "--max", 3)
        again = self.rig.cli(
            "deploy",
            "private",
            "--concurrency",
            2,
            "--",
            "python3",
            self.rig.file("serve.py"),
            "2",
            timeout=90,
        )
        self.assertEqual(again.code, 0, again)
        self.assertIn("private keeps its settings: --max 3, --slo 3s", again.errors)
        policy = self.rig.json("describe", "private")["policy"]
        self.assertEqual(
            (policy["access"], policy["max"], policy["concurrency"], policy["wait_target_ns"]),
            ("key", 3, 2, 2_000_000_000),
        )
        self.assertEqual(self.call("private")[0], 401)
        shown = self.rig.ok("describe", "private").text
        self.assertIn("access  key", shown)
        self.assertIn("settings  --concurrency 2, --slo 3s", shown)
        self.deploy("private", "--access", "local", version="3")
        self.assertEqual(self.call("private")[0], 200)

    def test_bad_words(self):
        for args, want in (
            (("deploy", "x"), "no command given"),
            (("deploy", "x", "--max", "0", "--", "true"), "--max must be at least 1"),
            (("deploy", "bad name", "--", "true"), "name"),
            (("deploy", "x", "--min", "3", "--max", "2", "--", "true"), "--min 3 --max 3"),
            (("deploy", "x", "--time", "3s", "--", "true"), "omit it"),
            (("deploy", "x", "--keep", "1h", "--", "true"), "suspended="),
            (("scale", "nobody", "--max", "2"), "no endpoint"),
            (("rollback", "nobody"), "no endpoint"),
            (("delete", "nobody"), "no endpoint"),
        ):
            done = self.rig.cli(*args)
            self.assertNotEqual(done.code, 0, done)
            self.assertIn(want, done.errors)

    def test_scaling_says_what_is_in_force(self):
        self.deploy("app", "--max", 2)
        self.assertIn(
            "app: 0 to 4 replicas, 8 concurrent requests each",
            self.rig.ok("scale", "app", "--max", 4).text,
        )
        self.assertIn(
            "app is unchanged: 0 to 4 replicas", self.rig.ok("scale", "app", "--max", 4).text
        )
        self.assertIn("--min 5 --max 5", self.rig.cli("scale", "app", "--min", 5).errors)


class Wire(EndpointTest):
    """What goes over the wire, through the gateway that `up` starts, to a replica that it woke."""

    def connect(self):
        host, port = self.gateway()
        s = socket.create_connection((host, port), timeout=60)
        self.addCleanup(s.close)
        return s

    def read_until(self, s, what, got=b""):
        while what not in got:
            piece = s.recv(65536)
            self.assertTrue(piece, got)
            got += piece
        return got

    def test_events_stream_and_a_client_that_goes_ends_them(self):
        self.deploy("app")
        s = self.connect()
        s.sendall(b"GET /f/app/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.read_until(s, b"data: 3\n\n")  # while the answer is far from its end
        s.close()
        poll(
            lambda: os.path.exists(self.rig.file("gone")),
            "the replica to learn that its client went",
        )
        poll(lambda: self.figure("app", "cancelled") == 1, "it to be counted")
        again = self.connect()
        again.sendall(b"GET /f/app/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        got = self.read_until(again, b"data: 1\n\n")
        open(self.rig.file("go"), "w").close()
        self.assertIn(b"text/event-stream", self.read_until(again, b"[DONE]", got))

    def test_a_websocket_passes_through_both_ways(self):
        self.deploy("app")
        s = self.connect()
        s.sendall(
            b"GET /f/app/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade:"
            b" websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key:"
            b" dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        head = self.read_until(s, b"\r\n\r\n")
        self.assertIn(b" 101 ", head)
        self.assertIn(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", head)
        for word in (b"one", b"two"):
            s.sendall(bytes([0x81, 0x80 | len(word), 0, 0, 0, 0]) + word)
            self.assertIn(b"echo " + word, self.read_until(s, b"echo " + word))

    def test_a_full_queue_is_429_and_says_when_to_come_back(self):
        self.deploy("app", "--concurrency", 1, "--queue", 1, "--max", 1)
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(self.call("app", "/slow=3")))
            for _ in range(5)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(a[0] for a in answers), [200, 200, 429, 429, 429])
        for status, headers, body in answers:
            if status == 429:
                self.assertGreaterEqual(int(headers["retry-after"]), 1)
                self.assertIn("wait for endpoint app", json.loads(body)["detail"])
        poll(lambda: self.figure("app", "refused") == 3, "them to be counted")

    def test_pages_of_other_sites(self):
        self.deploy("app", "--cors", "https://good.example")
        ask = {
            "Origin": "https://good.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type",
        }
        status, headers, _ = self.call("app", method="OPTIONS", headers=ask)
        self.assertEqual(
            (
                status,
                headers["access-control-allow-origin"],
                headers["access-control-allow-headers"],
            ),
            (204, "https://good.example", "content-type"),
        )
        self.assertEqual(
            self.call("app", method="OPTIONS", headers=ask | {"Origin": "https://bad.example"})[0],
            403,
        )
        self.assertEqual(
            self.call("app", headers={"Origin": "https://good.example"})[1][
                "access-control-allow-origin"
            ],
            "https://good.example",
        )
        self.assertEqual(self.call("app", headers={"Origin": "https://bad.example"})[0], 403)

    def test_too_slow_is_504_and_the_application_s_own_500_is_its_answer(self):
        self.deploy("app", "--timeout", "2s")
        self.assertEqual(self.call("app", "/fail")[0], 500)
        status, headers, body = self.call("app", "/slow=20")
        self.assertEqual(status, 504, body)
        self.assertIn("--timeout", body.decode())
        self.assertTrue(headers["x-request-id"])

    def test_metrics_and_the_access_log_name_the_endpoint(self):
        self.deploy("app")
        request_id = self.call("app", "/seen?secret=1", headers={"X-Request-Id": "mine-1"})[1][
            "x-request-id"
        ]
        self.assertEqual(request_id, "mine-1")
        text = poll(
            lambda: (
                lambda t: t if 'billow_endpoint_requests_total{endpoint="app"} 1' in t else ""
            )(self.call(None, "/metrics")[2].decode()),
            "the request counted",
        )
        for name in (
            "held",
            "in_flight",
            "cold_starts_total",
            "wakes_total",
            "first_byte_seconds_count",
            "replicas_ready",
        ):
            self.assertIn(f'billow_endpoint_{name}{{endpoint="app"}}', text)
        poll(lambda: "mine-1" in self.rig.read("gateway/access.log"), "a line of the access log")


class Updates(EndpointTest):
    def stream(self, name):
        """Requests without pause until told to stop; (answers by version, failures)."""
        state = {"stop": False, "versions": [], "failures": []}

        def run():
            while not state["stop"]:
                try:
                    status, _, body = self.call(name, "/slow=0.01")
                    if status == 200:
                        state["versions"].append(json.loads(body)["version"])
                    else:
                        state["failures"].append((status, body[:300]))
                except (OSError, http.client.HTTPException) as e:
                    state["failures"].append(repr(e))

        threads = [threading.Thread(target=run) for _ in range(4)]

        def end():
            state["stop"] = True
            for t in threads:
                t.join()

        for t in threads:
            t.start()
        self.addCleanup(end)
        return state, end

    def test_a_new_revision_takes_over_without_a_failed_request_and_a_broken_one_does_not(self):
        self.deploy("app", "--max", 2, version="1")
        state, end = self.stream("app")
        poll(lambda: len(state["versions"]) > 20, "traffic")
        self.deploy("app", "--max", 2, version="2")
        poll(lambda: state["versions"][-1] == "2", "version 2")
        broken = self.rig.cli(
            "deploy",
            "app",
            "--max",
            2,
            "--",
            "sh",
            "-c",
            "echo cannot start >&2; exit 3",
            timeout=90,
        )
        self.assertEqual(broken.code, 1, broken)
        self.assertIn("exit code 3", broken.errors)
        self.assertIn("keeps serving", broken.errors)
        failed = next(r for r in self.endpoint("app")["revisions"] if r["state"] == "failed")[
            "failed_job"
        ]
        self.assertIn(f"billow logs {failed}`", broken.errors)
        self.assertIn("cannot start", self.rig.cli("logs", failed).text)
        seen = len(state["versions"])
        poll(lambda: len(state["versions"]) > seen + 20, "traffic after the broken revision")
        self.rig.ok("rollback", "app", timeout=90)
        poll(lambda: state["versions"][-1] == "1", "version 1 again")
        end()
        self.assertEqual(state["failures"], [])
        self.assertEqual(
            [r["state"] for r in self.endpoint("app")["revisions"]],
            ["retired", "retired", "failed", "serving"],
        )
        poll(lambda: len(self.endpoint("app")["replicas"]) <= 2, "old replicas ended")

    def test_a_spent_budget_is_503_with_the_reason_until_there_is_money(self):
        self.deploy("app", "--gpus", 1, "--idle", "1s")
        poll(lambda: self.endpoint("app")["cost_usd"] > 0.0001, "some cost")
        poll(
            lambda: [r.get("task_state") for r in self.endpoint("app")["replicas"]]
            == ["suspended"],
            "sleep",
        )
        self.rig.ok("budget", "set", "0.0001", "--project", "default")
        self.addCleanup(self.rig.cli, "budget", "rm", "--project", "default")
        status, _, body = self.call("app")
        self.assertEqual(status, 503, body)
        self.assertIn("budget", json.loads(body)["detail"])
        self.rig.ok("budget", "rm", "--project", "default")
        poll(lambda: self.call("app")[0] == 200, "an answer, now that there is money")

    def test_a_first_revision_that_cannot_start_says_why(self):
        done = self.rig.cli("deploy", "never", "--", "sh", "-c", "exit 7", timeout=90)
        self.assertEqual(done.code, 1)
        self.assertIn("exit code 7", done.errors)
        status, headers, body = self.call("never")
        self.assertEqual(status, 503)
        self.assertIn("exit code 7", json.loads(body)["detail"])
        self.assertIn("retry-after", headers)
        self.deploy(
            "never", "--access", "local", version="2"
        )  # mended: the old failure is no longer held against it
        self.assertEqual(json.loads(self.call("never")[2])["version"], "2")
        self.assertNotIn("last_failure", self.endpoint("never"))


if __name__ == "__main__":
    unittest.main()
