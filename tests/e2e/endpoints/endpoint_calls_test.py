"""What callers of endpoints cannot do to others: floods of asynchronous calls, keys of somebody else's calls, bytes that are no text, and
the dashboard's cookie."""
import concurrent.futures
import http.client
import http.server
import json
import os
import socket
import threading

from endpoints_test import EndpointTest
from rig import poll

ECHO = """
import http.server, json, os
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        out = json.dumps({"headers": [[k, v] for k, v in self.headers.items()], "length": len(body)}).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "billow_session=stolen; Path=/")
        self.send_header("Set-Cookie", "=billow_session=stolen; Path=/")
        self.send_header("Set-Cookie", "theme=dark; Path=/")
        self.send_header("Service-Worker-Allowed", "/")
        if self.path == "/two":
            self.send_header("Set-Cookie", "lang=en; Expires=Wed, 21 Oct 2099 07:28:00 GMT")
            self.send_header("Vary", "A")
            self.send_header("Vary", "B")
        self.send_header("X-Odd", "caf\\xe9")
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)
    do_GET = do_POST = answer
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


class CallsTest(EndpointTest):
    def echo(self, name, *options):
        with open(self.rig.file("echo.py"), "w", encoding="ascii") as f:
            f.write(ECHO)
        return self.rig.json(
            "deploy", name, *options, "--", "python3", self.rig.file("echo.py"), timeout=90
        )

    def later(self, name, path, body, headers=None):
        return self.call(
            name, path, "POST", body, {"Prefer": "respond-async", **(headers or {})}, timeout=120
        )

    def result(self, url):
        """(status, headers, body) of a call, once it is over."""

        def done():
            status, headers, body = self.call(None, url)
            return (status, headers, body) if headers.get("x-billow-call") == "done" else None

        return poll(done, f"the answer at {url}", 60)

    def connections(self):
        return self.rig.head_log().count("a gateway connected")


class Floods(CallsTest):
    def test_a_flood_of_one_endpoint_stops_no_other(self):
        self.deploy("slow", "--access", "open", "--max", 1, "--timeout", "10m")
        self.rig.ok("project", "create", "calm")
        self.deploy("calm", "--project", "calm", "--max", 1)
        self.assertEqual(self.call("calm")[0], 200)
        before = self.connections()
        body = os.urandom(1 << 20)
        with concurrent.futures.ThreadPoolExecutor(15) as pool:
            answers = list(
                pool.map(lambda i: self.later("slow", f"/slow=900&{i}", body), range(60))
            )
        self.assertEqual({a[0] for a in answers}, {202, 429}, "taken, or told to come back")
        for status, headers, text in answers:
            if status == 429:
                self.assertTrue(int(headers["retry-after"]) > 0)
                self.assertEqual(
                    (headers["content-type"], json.loads(text)["code"]),
                    ("application/problem+json", "exhausted"),
                )
        # The other tenant's endpoint answers, takes calls for later and gets them done; a new one
        # is served.
        self.assertEqual(self.call("calm", timeout=20)[0], 200)
        status, headers, text = self.later("calm", "/x", b"y" * 1000)
        self.assertEqual(status, 202, text)
        self.assertEqual(json.loads(self.result(headers["location"])[2])["length"], 1000)
        self.deploy("fresh", "--project", "calm", "--max", 1)
        self.assertEqual(self.again("fresh")[0], 200)
        self.assertEqual(self.connections(), before, "the line between head and gateway has held")
        # Calls that were taken are still there after a restart of both.
        taken = [headers["location"] for status, headers, _ in answers if status == 202]
        self.rig.kill(self.gateway_pid())
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        for url in taken:
            self.assertEqual(json.loads(self.again(None, url)[2])["status"], "waiting")
        self.assertEqual(self.again("calm")[0], 200)

    def test_many_who_ask_for_large_answers_do_not_cut_the_line(self):
        self.deploy("big", "--max", 1)
        url = self.later("big", "/size=1000000", b"")[1]["location"]
        self.assertEqual(len(self.result(url)[2]), 1000000)
        before = self.connections()
        # More than the line may have queued, all at once.
        with concurrent.futures.ThreadPoolExecutor(60) as pool:
            answers = list(pool.map(lambda i: self.call(None, url, timeout=200), range(60)))
        self.assertEqual({(a[0], len(a[2])) for a in answers}, {(200, 1000000)})
        self.assertEqual(self.connections(), before)


class Callers(CallsTest):
    def test_an_idempotency_key_is_its_callers_and_of_one_request(self):
        self.deploy("app", "--access", "key")
        mine, theirs = (
            self.rig.json("endpoint-key", "app", "--name", name)["key"]
            for name in ("mine", "theirs")
        )

        def order(key, body, path="/order"):
            status, headers, text = self.again(
                "app",
                path,
                "POST",
                body,
                {
                    "Prefer": "respond-async",
                    "Idempotency-Key": "order-1",
                    "Authorization": f"Bearer {key}",
                },
            )
            return status, headers.get("location"), text

        poll(lambda: order(mine, b"one")[0] == 202, "the key known to the gateway")
        first = order(mine, b"one")[1]
        self.assertEqual(order(mine, b"one")[1], first)
        status, _, text = order(mine, b"two")
        self.assertEqual((status, "Idempotency-Key" in json.loads(text)["detail"]), (422, True))
        self.assertEqual(order(mine, b"one", "/other")[0], 422)
        status, second, _ = order(theirs, b"one")
        self.assertEqual(status, 202)
        self.assertNotEqual(second, first, "another caller's key is another call")

    def test_without_a_key_another_request_is_another_call(self):
        self.deploy("app", "--access", "open")
        headers = {"Idempotency-Key": "k"}
        one, again, two = (
            self.later("app", "/x", body, headers)[1]["location"]
            for body in (b"one", b"one", b"two")
        )
        self.assertEqual(one, again)
        self.assertNotEqual(one, two)

    def test_any_header_byte_is_kept_and_cuts_no_line(self):
        self.echo("echo", "--access", "open")
        self.again("echo")
        before = self.connections()
        host, port = self.gateway()
        with socket.create_connection((host, port), timeout=30) as s:
            s.sendall(
                b"POST /f/echo/x HTTP/1.1\r\nHost: x\r\nPrefer: respond-async\r\nX-Bytes:"
                b" a\xff\xfeb\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
            )
            answer = http.client.HTTPResponse(s)
            answer.begin()
            self.assertEqual(answer.status, 202)
            url = answer.headers["Location"]
        status, headers, body = self.result(url)
        self.assertEqual(status, 200)
        self.assertIn(["X-Bytes", "a\xff\xfeb"], json.loads(body)["headers"])
        self.assertEqual(headers["x-odd"], "caf\xe9")
        self.assertEqual(self.connections(), before)


class Cookies(CallsTest):
    def test_the_dashboards_cookie_reaches_no_replica_and_none_sets_it(self):
        self.echo("echo", "--access", "open")
        status, headers, body = self.again(
            "echo", "/", headers={"Cookie": "a=1; billow_session=bw_secret; b=2"}
        )
        self.assertEqual([v for k, v in json.loads(body)["headers"] if k == "Cookie"], ["a=1; b=2"])
        self.assertEqual(headers["set-cookie"], "theme=dark; Path=/")
        body = self.call("echo", "/", headers={"Cookie": "billow_session=bw_secret"})[2]
        self.assertNotIn(b"bw_secret", body)
        self.assertNotIn(b"Cookie", body)
        # A WebSocket's beginning is a request like any other.
        body = self.call(
            "echo",
            "/",
            headers={
                "Cookie": "billow_session=bw_secret; c=3",
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            },
        )[2]
        self.assertIn(["Cookie", "c=3"], json.loads(body)["headers"])
        self.assertNotIn(b"bw_secret", body)
        body = self.result(
            self.later("echo", "/", b"", {"Cookie": "billow_session=bw_secret"})[1]["location"]
        )[2]
        self.assertNotIn(b"bw_secret", body)

    def test_an_asynchronous_answer_keeps_all_its_cookies(self):
        self.echo("echo", "--access", "open")
        self.again("echo")
        url = self.later("echo", "/two", b"")[1]["location"]
        self.result(url)
        host, port = self.gateway()
        connection = http.client.HTTPConnection(host, port, timeout=30)
        self.addCleanup(connection.close)
        connection.request("GET", url)
        headers = connection.getresponse().headers
        self.assertEqual(
            headers.get_all("Set-Cookie"),
            ["theme=dark; Path=/", "lang=en; Expires=Wed, 21 Oct 2099 07:28:00 GMT"],
        )
        self.assertEqual(headers.get_all("Vary"), ["A, B"])
        # The name of the gateway is that of all endpoints: no page acts there.
        self.assertEqual(headers.get("Content-Security-Policy"), "sandbox")
        self.assertEqual(headers.get("X-Content-Type-Options"), "nosniff")
        self.assertNotIn("Service-Worker-Allowed", headers)
        status, _, body = self.call("echo", "/", "PROPFIND", b"", {"Prefer": "respond-async"})
        self.assertEqual(status, 405, body)


class Webhooks(CallsTest):
    def test_a_webhook_does_not_lead_into_the_gateways_machine(self):
        called = []

        class Hook(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                called.append(self.path)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args):
                pass

        hook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
        threading.Thread(target=hook.serve_forever, daemon=True).start()
        self.addCleanup(hook.server_close)
        self.addCleanup(hook.shutdown)
        for i, host in enumerate(("127.0.0.1", "localhost", "[::ffff:127.0.0.1]")):
            self.deploy(f"app{i}", "--webhook", f"http://{host}:{hook.server_port}/over")
            self.result(
                self.again(f"app{i}", "/x", "POST", b"", {"Prefer": "respond-async"})[1]["location"]
            )
            poll(
                lambda: f"endpoint app{i}: the webhook host" in self.rig.read("gateway.log"),
                "the refusal in the gateway's log",
            )
        self.assertIn("billow up --webhook-host 127.0.0.1", self.rig.read("gateway.log"))
        self.assertEqual(called, [])
