"""The front door of the endpoints: host names, certificates, TLS, proxies, limits, and ACME."""
import http.client
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import unittest

import net
from endpoints_test import EndpointTest
from rig import BILLOW, poll


ECHO = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        out = json.dumps({"path": self.path, "headers": dict((k.lower(), v) for k, v in self.headers.items()), "length": len(body)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)
    do_GET = do_POST = do_HEAD = answer
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def certificate(directory, stem, *names, days=90):
    """A self-signed certificate and its key, written as the gateway reads them."""
    path = os.path.join(directory, stem)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-days", str(days), "-subj", "/CN=test", "-keyout", path + ".key.new"]
        + ["-addext", "subjectAltName=" + ",".join("DNS:" + name for name in names)]
        + ["-out", path + ".pem.new"],
        check=True,
        capture_output=True,
    )
    for kind in (".key", ".pem"):
        os.replace(path + kind + ".new", path + kind)
    return path + ".pem", path + ".key"


class Fixed(unittest.TestCase):
    """A gateway with one fixed endpoint, in front of a server that says what it got."""

    inside = []

    def setUp(self):
        self.data = tempfile.mkdtemp(prefix="billow-door-")
        self.addCleanup(shutil.rmtree, self.data, True)
        echo = self.process([*self.inside, sys.executable, "-c", ECHO], stdout=subprocess.PIPE)
        self.upstream = int(echo.stdout.readline())

    def process(self, command, **more):
        process = subprocess.Popen(command, **more)
        self.addCleanup(lambda: process.stdout and process.stdout.close())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def start(self, *options, listen="127.0.0.1:0"):
        log = open(os.path.join(self.data, "log"), "a", encoding="utf-8")
        self.addCleanup(log.close)
        process = self.process(
            [*self.inside, BILLOW, "gateway", "--listen", listen, "--data", self.data]
            + ["--serve", f"chat=127.0.0.1:{self.upstream}", *options],
            stdout=log,
            stderr=log,
        )
        address = poll(lambda: process.poll() or self.read("address").strip(), "the gateway")
        self.assertIsInstance(address, str, self.read("log"))
        self.port = int(address.rsplit(":", 1)[1])
        poll(lambda: self.ask("/f/chat/")[0] in (200, 308, 421), "its endpoint")

    def read(self, name):
        try:
            with open(os.path.join(self.data, name), encoding="utf-8") as f:
                return f.read()
        except OSError:
            return ""

    def ask(self, path, method="GET", body=None, headers=None, tls=None, preface=b""):
        """(status, headers, body)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.connect()
        if preface:
            connection.sock.sendall(preface)
        if tls is not None:
            context = ssl._create_unverified_context()
            connection.sock = context.wrap_socket(connection.sock, server_hostname=tls or None)
            self.shown = connection.sock.getpeercert(True)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return (
                answer.status,
                dict((k.lower(), v) for k, v in answer.getheaders()),
                answer.read(),
            )
        finally:
            connection.close()

    def names_shown(self, server_name):
        """The names of the certificate that the gateway shows for this name."""
        with socket.create_connection(("127.0.0.1", self.port), 20) as plain:
            context = ssl._create_unverified_context()
            with context.wrap_socket(plain, server_hostname=server_name) as secure:
                pem = ssl.DER_cert_to_PEM_cert(secure.getpeercert(True))
        done = subprocess.run(
            ["openssl", "x509", "-noout", "-ext", "subjectAltName"],
            input=pem,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def seen(self, *args, **more):
        status, _, body = self.ask(*args, **more)
        self.assertEqual(status, 200, body)
        return json.loads(body)


class HostNames(Fixed):
    def test_a_name_below_the_domain_leads_to_its_endpoint(self):
        self.start("--domain", "example.org")
        seen = self.seen("/a/b?c", headers={"Host": "CHAT.example.org:7071"})
        self.assertEqual(seen["path"], "/a/b?c")
        self.assertNotIn("x-forwarded-prefix", seen["headers"])
        self.assertEqual(self.seen("/f/chat/x", headers={"Host": "example.org"})["path"], "/x")
        self.assertEqual(self.seen("/f/chat/x")["path"], "/x")
        self.assertEqual(self.ask("/", headers={"Host": "nosuch.example.org"})[0], 404)
        for other in ("evil.org", "chat.example.org.evil.org", "notexample.org"):
            self.assertEqual(self.ask("/f/chat/", headers={"Host": other})[0], 421, other)

    def test_nested_domains_and_case_lead_to_no_other_endpoint(self):
        served = [f"{name}=127.0.0.1:{self.upstream}" for name in ("chat.apps", "LLama", "Llama")]
        self.start(
            *("--domain", "example.org", "--domain", "apps.example.org"),
            *(word for each in served for word in ("--serve", each)),
        )
        for host, expected in (
            ("chat.apps.example.org", 200),
            ("other.apps.example.org", 404),
            ("chat.apps.apps.example.org", 421),
            ("llama.example.org", 404),
        ):
            self.assertEqual(self.ask("/", headers={"Host": host})[0], expected, host)
        self.assertEqual(self.ask("/f/LLama/")[0], 200)

    def test_certificates_are_chosen_by_name_and_read_again(self):
        certs = os.path.join(self.data, "certs")
        os.mkdir(certs)
        certificate(certs, "chat", "chat.example.org")
        certificate(certs, "all", "*.example.org")
        self.start("--domain", "example.org", "--certs", certs)
        self.assertIn("DNS:chat.example.org", self.names_shown("chat.example.org"))
        self.assertIn("DNS:*.example.org", self.names_shown("other.example.org"))
        self.assertNotIn("DNS:gateway.billow", self.names_shown("other.example.org"))
        self.assertIn("DNS:gateway.billow", self.names_shown("a.b.example.org"))
        self.assertEqual(
            self.seen("/", headers={"Host": "chat.example.org"}, tls="chat.example.org")["path"],
            "/",
        )
        certificate(certs, "chat", "chat.example.org", "fresh.example.org")
        poll(
            lambda: "fresh.example.org" in self.names_shown("chat.example.org"),
            "the new certificate",
        )
        with open(os.path.join(certs, "chat.pem"), "w", encoding="ascii") as f:
            f.write("nonsense")
        poll(lambda: "stays in use" in self.read("log"), "a word about the wrong file")
        self.assertIn("fresh.example.org", self.names_shown("chat.example.org"))


class Secure(Fixed):
    def test_a_gateway_with_a_certificate_serves_nothing_without_tls(self):
        pem, key = certificate(self.data, "own", "localhost")
        self.start("--cert", pem, "--key", key)
        status, headers, _ = self.ask("/f/chat/a?b=c", headers={"Host": "gate.example.org"})
        self.assertEqual(
            (status, headers["location"]), (308, "https://gate.example.org/f/chat/a?b=c")
        )
        status, _, body = self.ask("/f/chat/", "POST", b"x")
        self.assertEqual(status, 403, body)
        self.assertIn("https", json.loads(body)["detail"])
        seen = self.seen("/f/chat/", tls="localhost")
        self.assertEqual(seen["headers"]["x-forwarded-proto"], "https")

    @unittest.skipIf(net.usable(), net.usable())
    def test_other_machines_need_tls(self):
        network = net.Net("gate", "client")
        self.addCleanup(network.close)
        self.inside = network.inside("gate")
        self.upstream = int(
            self.process(
                [*self.inside, sys.executable, "-c", ECHO], stdout=subprocess.PIPE
            ).stdout.readline()
        )
        log = open(os.path.join(self.data, "log"), "a", encoding="utf-8")
        self.addCleanup(log.close)
        command = [*self.inside, BILLOW, "gateway", "--listen", "0.0.0.0:7071"]
        command += ["--serve", f"chat=127.0.0.1:{self.upstream}"]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("no certificate", refused.stderr)
        self.process([*command, "--data", self.data], stdout=log, stderr=log)
        where = f"{network.address('gate')}:7071"

        def curl(host, *words):
            done = subprocess.run(
                [*network.inside(host), "curl", "-sk", "-o", "/dev/null", "-m", "20"]
                + ["-w", "%{http_code} %{redirect_url}", *words],
                capture_output=True,
                text=True,
                check=False,
            )
            return done.stdout

        poll(lambda: curl("gate", "http://127.0.0.1:7071/f/chat/") == "200 ", "the endpoint")
        self.assertEqual(
            curl("client", f"http://{where}/f/chat/a"), f"308 https://{where}/f/chat/a"
        )
        self.assertEqual(curl("client", "-d", "x", f"http://{where}/f/chat/"), "403 ")
        self.assertEqual(
            curl("client", "--http2-prior-knowledge", "-d", "x", f"http://{where}/f/chat/"), "403 "
        )
        # Without a key: the endpoint is for users of the gateway's machine. But it was asked.
        self.assertEqual(curl("client", f"https://{where}/f/chat/"), "401 ")


class NoHead(Fixed):
    def run_alone(self, *options):
        """A gateway of a head that it does not reach; its address is known."""
        log = open(os.path.join(self.data, "log"), "a", encoding="utf-8")
        self.addCleanup(log.close)
        self.process(
            [BILLOW, "gateway", "--listen", "127.0.0.1:0", "--data", self.data, *options],
            stdout=log,
            stderr=log,
        )
        self.port = int(poll(lambda: self.read("address").strip(), "it").rsplit(":", 1)[1])

    def test_what_is_not_known_yet_is_not_called_absent(self):
        self.run_alone("--head", "http://127.0.0.1:1")
        status, _, body = self.ask("/f/chat/")
        self.assertEqual(status, 503, body)
        self.assertIn("has not reached its head", body.decode())
        # Models and domains are not known either, nor which endpoints gRPC may name.
        ask = json.dumps({"model": "chat"})
        for path, method, sent, headers in (
            ("/v1/chat/completions", "POST", ask, {}),
            ("/v1/models", "GET", None, {"Authorization": "Bearer nothing"}),
            ("/", "GET", None, {"Host": "chat.example.org"}),
            ("/p.S/M", "POST", b"", {"Content-Type": "application/grpc"}),
        ):
            status, fields, body = self.ask(path, method, sent, headers)
            self.assertEqual((path, status), (path, 503), body)
            self.assertIn("has not reached its head", body.decode(), path)
            self.assertIn("retry-after", fields, path)
        done = subprocess.run(
            ["curl", "-s", "--http2-prior-knowledge", "-D", "-", "-d", ""]
            + ["-H", "Content-Type: application/grpc", "-H", "TE: trailers"]
            + ["-H", "billow-endpoint: chat", f"http://127.0.0.1:{self.port}/p.S/M"],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertIn("grpc-status: 14", done.stdout, "UNAVAILABLE")
        self.assertIn("has not reached its head", done.stdout)
        poll(lambda: "cannot reach the head" in self.read("log"), "a word in its log")

    def test_a_token_that_cannot_be_read_is_named(self):
        missing = os.path.join(self.data, "no-such-token")
        self.run_alone("--head", "http://127.0.0.1:1", "--token-file", missing)
        poll(lambda: missing in self.read("log"), "the file's name")


class Bodies(Fixed):
    def test_bodies_that_are_read_whole_share_memory_from_their_first_byte(self):
        """Many short beginnings are much memory, too."""
        self.start()
        head = b"POST /v1/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65000\r\n\r\n"
        clients = []
        for _ in range(700):  # 45 MB; one client gets half of what is left for the known
            s = socket.create_connection(("127.0.0.1", self.port), 20)
            self.addCleanup(s.close)
            s.sendall(head + b"x" * 64000)
            clients.append(s)
        refused = set()

        def some_are_refused():
            for s in clients:
                s.settimeout(0.001)
                try:
                    if b" 503 " in s.recv(64):
                        refused.add(s)
                except OSError:
                    pass
            return refused

        poll(some_are_refused, "a refusal")
        self.assertLess(len(refused), 500, "many are taken")
        for s in clients:
            s.close()
        poll(lambda: self.ask("/f/chat/")[0] == 200, "others are served")


class Proxies(Fixed):
    def test_only_trusted_proxies_name_clients(self):
        self.start()
        spoofed = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}
        self.assertEqual(self.ask("/f/chat/", headers=spoofed)[0], 401, "never local")

    def log_of(self, path):
        return poll(
            lambda: [line for line in self.read("access.log").splitlines() if path in line],
            "the access log",
        )[0]

    def test_the_real_client_is_logged(self):
        self.start("--trusted-proxy", "127.0.0.0/8,10.0.0.0/8")
        chain = {"X-Forwarded-For": "6.6.6.6, 203.0.113.7, 10.0.0.2"}
        self.ask("/f/chat/chain", headers=chain)
        self.assertIn(" 203.0.113.7:0 ", self.log_of("/f/chat/chain"))

    def test_the_proxy_protocol(self):
        self.start("--trusted-proxy", "127.0.0.1")
        header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + struct.pack(">H", 12)
        header += socket.inet_aton("203.0.113.7") + socket.inet_aton("10.0.0.1")
        header += struct.pack(">HH", 4711, 443)
        status, _, _ = self.ask("/f/chat/plain", preface=header)
        self.assertEqual(status, 401, "the proxy's user is not the client")
        self.assertIn(" 203.0.113.7:4711 ", self.log_of("/f/chat/plain"))
        status, _, _ = self.ask("/f/chat/secure", preface=header, tls="")
        self.assertEqual(status, 401)
        self.assertIn(" 203.0.113.7:4711 ", self.log_of("/f/chat/secure"))

    def test_the_proxy_protocol_as_nginx_speaks_it(self):
        self.start("--trusted-proxy", "127.0.0.1")
        header = b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n"
        status, _, _ = self.ask("/f/chat/plain", preface=header)
        self.assertEqual(status, 401, "the proxy's user is not the client")
        self.assertIn(" 203.0.113.7:4711 ", self.log_of("/f/chat/plain"))
        status, _, _ = self.ask("/f/chat/secure", preface=header, tls="")
        self.assertEqual(status, 401)
        self.assertIn(" 203.0.113.7:4711 ", self.log_of("/f/chat/secure"))
        self.assertEqual(self.ask("/f/chat/post", method="POST")[0], 200, "no header: no proxy")

    def test_the_proxy_protocol_of_others_is_refused(self):
        self.start("--trusted-proxy", "10.0.0.0/8")
        for header in (
            b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0",
            b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n",
        ):
            with socket.create_connection(("127.0.0.1", self.port), timeout=20) as s:
                s.sendall(header + b"GET /f/chat/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answer = b""
                while piece := s.recv(65536):
                    answer += piece
            self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)
            self.assertIn(b"--trusted-proxy", answer)


class AnyValue:
    def __contains__(self, value):
        return True


class OwnDomain(EndpointTest):
    options = {"args": ("--domain", "example.org")}

    def test_names_of_the_gateway_are_not_given_away(self):
        self.deploy("chat", "--access", "open")
        for name in ("example.org", "EXAMPLE.org.", "chat.example.org", "a.b.example.org"):
            refused = self.rig.cli("domain", "add", name, "chat")
            self.assertNotEqual(refused.code, 0, name)
            self.assertIn("example.org is the gateway's own domain", refused.errors)
        self.assertNotEqual(self.rig.cli("domain", "add", "localhost", "chat").code, 0)
        self.rig.ok("domain", "add", "example.org.acme.org", "chat")


class Domains(EndpointTest):
    """Domains and limits through a real head."""

    def test_only_admins_give_a_project_a_name(self):
        self.deploy("chat", "--access", "open")
        self.deploy("chat-b", "--access", "open")
        self.rig.ok("user", "create", "eve", "--unix-name", "nobody")
        self.rig.ok("project", "member", "default", "eve", "--role", "admin")
        eve = self.rig.token_for("eve")

        def add(name, endpoint):
            body = {"name": name, "endpoint": endpoint}
            return self.rig.api("POST", "/v1/domains", body, token=eve)

        refused = add("gw.corp.example", "chat")
        self.assertEqual(refused.status, 403, refused)
        self.assertIn("billow domain add gw.corp.example chat", refused.json["hint"])
        status, _, _ = self.call("chat", "/", headers={"Host": "gw.corp.example"})
        self.assertEqual(status, 200, "the gateway itself")
        self.rig.ok("domain", "add", "eve.example", "chat")
        moved = add("Eve.example.", "chat-b")
        self.assertEqual((moved.status, moved.json["endpoint"]), (200, "chat-b"), moved)
        self.rig.ok("domain", "rm", "eve.example")

    def test_a_domain_leads_to_its_endpoint_and_stays_with_its_project(self):
        self.deploy("chat", "--access", "open")
        self.assertEqual(
            self.rig.ok("domain", "add", "API.Acme.org", "chat").text,
            "api.acme.org now serves endpoint chat\n",
        )
        status, _, body = self.call(None, "/x/y", headers={"Host": "api.acme.org"})
        self.assertEqual((status, json.loads(body)["path"]), (200, "/x/y"))
        self.assertIn("api.acme.org", self.rig.ok("domain", "list").text)
        status, headers, _ = self.call(
            None, "/later", "POST", b"x", {"Host": "api.acme.org", "Prefer": "respond-async"}
        )
        self.assertEqual(status, 202)
        self.assertTrue(headers["location"].startswith("/.well-known/billow/calls/"), headers)
        poll(
            lambda: self.call(None, headers["location"], headers={"Host": "api.acme.org"})[1].get(
                "x-billow-call"
            )
            == "done",
            "the answer of the call",
        )
        # Its answer is none of another application: browsers would take it for a part of that one.
        self.deploy("bank", "--access", "open")
        self.rig.ok("domain", "add", "bank.example", "bank")
        for method in ("DELETE", "GET"):
            status, _, body = self.call(
                None, headers["location"], method, headers={"Host": "bank.example"}
            )
            self.assertEqual(status, 404, (method, body))
            # Whatever cannot be the id of a call does not go to the head.
            for wrong in ("x" * 30000, "no such id"[:2], headers["location"][-24:] + "x"):
                status, _, _ = self.call(None, "/calls/" + wrong, method)
                self.assertEqual(status, 404, (method, wrong[:40]))
        self.rig.ok("domain", "rm", "bank.example")
        self.rig.ok("delete", "chat")
        kept = self.rig.json("domain", "list")["domains"]
        self.assertEqual([(d["name"], d["endpoint"]) for d in kept], [("api.acme.org", "")])
        poll(
            lambda: self.call(None, "/x", headers={"Host": "api.acme.org"})[0] == 404,
            "no endpoint at the name",
        )
        self.rig.ok("domain", "rm", "api.acme.org")
        self.assertEqual(self.rig.json("domain", "list")["domains"], [])

    def test_the_name_of_a_deleted_endpoint_stays_with_its_project(self):
        self.deploy("pay", "--access", "open")
        self.rig.ok("project", "create", "other")
        self.rig.ok("delete", "pay")

        def take():
            words = ("--project", "other", "--access", "open", "--no-wait")
            done = self.rig.cli("deploy", "pay", *words, "--", "sleep", "600", timeout=90)
            return None if "still ending" in done.errors else done

        refused = poll(take, "the end of the replicas", 60)
        self.assertNotEqual(refused.code, 0, refused)
        self.assertIn("is held for that project", refused.errors)
        self.assertIn("billow model rm pay", refused.errors)
        self.assertEqual(self.rig.json("domain", "list")["domains"], [])
        self.rig.ok("model", "rm", "pay")
        self.assertNotEqual(self.rig.cli("model", "rm", "pay").code, 0, "it is free")
        self.assertEqual(take().code, 0)
        self.rig.ok("delete", "pay")

    def test_limits_of_sizes(self):
        self.deploy("chat", "--access", "open")
        said = self.rig.ok("endpoint-limits", "chat", "--body", "1KiB", "--headers", "2KiB").text
        self.assertEqual(said, "chat: body 1 KiB, header fields 2 KiB\n")
        # The gateway learns of it a moment later.
        poll(lambda: self.call("chat", "/", "POST", b"x" * 1025)[0] == 413, "the limit")
        self.assertEqual(self.call("chat", "/", "POST", b"x" * 1024)[0], 200)
        self.assertEqual(
            self.call("chat", "/", "POST", iter([b"x" * 800, b"x" * 800]))[0],
            413,
        )
        self.assertEqual(self.call("chat", "/", headers={"X-Long": "x" * 3000})[0], 431)
        self.rig.ok("endpoint-limits", "chat", "--body", "none")
        poll(lambda: self.call("chat", "/", "POST", b"x" * 5000)[0] == 200, "no limit")
        self.assertEqual(self.call("chat", "/", headers={"X-Long": "x" * 3000})[0], 431)


if __name__ == "__main__":
    unittest.main()
