"""HTTP/2 and gRPC through the gateway with clients and servers that others wrote: curl, nghttp2's tools, and gRPC's own library."""
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import unittest

from rig import BILLOW, SOURCE, poll



class Application(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(self.path.encode())

    def do_POST(self):
        digest = hashlib.sha256()
        for piece in self.body():
            digest.update(piece)
        self.answer(digest.hexdigest().encode())

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length", 0))
        while left > 0:
            piece = self.rfile.read(min(left, 65536))
            left -= len(piece)
            yield piece

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512  # many streams become as many connections at once


class Gateway(unittest.TestCase):
    """A gateway with fixed endpoints, and what runs beside it."""

    @classmethod
    def beside(cls, command, **more):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **more)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.kill)
        return process

    @classmethod
    def start(cls, serve, *options):
        data = tempfile.mkdtemp(prefix="billow-http2-")
        cls.addClassCleanup(shutil.rmtree, data, True)
        command = [BILLOW, "gateway", "--listen", "127.0.0.1:0", "--data", data, *options]
        cls.process = cls.beside(command + ["--serve", serve], stdout=subprocess.DEVNULL)

        def address():
            try:
                with open(os.path.join(data, "address"), encoding="ascii") as f:
                    return f.read().strip()
            except OSError:
                return ""

        return data, poll(address, "the gateway")


class Clients(Gateway):
    @classmethod
    def setUpClass(cls):
        server = Server(("127.0.0.1", 0), Application)
        cls.addClassCleanup(server.server_close)
        cls.addClassCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # Without a certificate of its own, the gateway also serves TLS on the same port.
        cls.data, cls.address = cls.start(f"app=127.0.0.1:{server.server_port}")
        poll(lambda: cls.curl("/f/app/up").endswith("/up 2 200"), "the endpoint")

    @classmethod
    def curl(cls, path, *options, scheme="http", version="--http2-prior-knowledge"):
        done = subprocess.run(
            ["curl", "-sk", version, "-w", " %{http_version} %{http_code}", *options]
            + [f"{scheme}://{cls.address}{path}"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout

    def test_curl_with_prior_knowledge_and_by_alpn(self):
        self.assertEqual(self.curl("/f/app/a?b=c"), "/a?b=c 2 200")
        self.assertEqual(self.curl("/f/app/a", scheme="https", version="--http2"), "/a 2 200")
        self.assertEqual(self.curl("/f/app/a", scheme="https", version="--http1.1"), "/a 1.1 200")
        self.assertEqual(self.curl("/f/app/a", version="--http1.1"), "/a 1.1 200")
        self.assertIn(" 2 404", self.curl("/f/none/a"))

    def test_the_access_log_names_each_stream(self):
        self.curl("/f/app/for-the-log")
        path = os.path.join(self.data, "access.log")
        poll(lambda: '"GET /f/app/for-the-log" 200' in open(path).read(), "the line")

    def test_a_large_upload_arrives_whole_and_fills_no_memory(self):
        body = os.urandom(1 << 20) * 48
        with tempfile.NamedTemporaryFile() as file:
            file.write(body)
            file.flush()
            before = self.memory_kib()
            # With a length, and without one.
            for option in (["--data-binary", f"@{file.name}"], ["-X", "POST", "-T", file.name]):
                with self.subTest(option[0]):
                    answer = self.curl("/f/app/up", *option)
                    self.assertEqual(answer, hashlib.sha256(body).hexdigest() + " 2 200")
            self.assertLess(self.memory_kib() - before, 8 << 10)

    def memory_kib(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))

    def test_many_streams_of_nghttp2(self):
        if not shutil.which("h2load"):
            self.skipTest("nghttp2-client is not installed")
        done = subprocess.run(
            ["h2load", "-n", "2000", "-c", "8", "-m", "16", f"http://{self.address}/f/app/x"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertIn("2000 succeeded, 0 failed, 0 errored", done.stdout)
        self.assertIn("2000 2xx", done.stdout)

    def test_nghttp_sees_the_limits_and_no_error(self):
        if not shutil.which("nghttp"):
            self.skipTest("nghttp2-client is not installed")
        done = subprocess.run(
            ["nghttp", "-nv", "--no-dep", f"http://{self.address}/f/app/x"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertIn("SETTINGS_MAX_CONCURRENT_STREAMS(0x03):100", done.stdout)
        self.assertIn("SETTINGS_MAX_HEADER_LIST_SIZE(0x06):32768", done.stdout)
        self.assertIn(":status: 200", done.stdout)
        self.assertNotIn("[ERROR]", done.stdout + done.stderr)


class Grpc(Gateway):
    @classmethod
    def setUpClass(cls):
        cls.folder = os.path.join(SOURCE, "tests/grpc")
        if not os.path.isdir(os.path.join(cls.folder, "node_modules/@grpc/grpc-js")):
            raise unittest.SkipTest("the packages of tests/grpc are not installed")
        server = cls.beside(["node", "server.mjs"], cwd=cls.folder, stdout=subprocess.PIPE)
        cls.addClassCleanup(server.stdout.close)
        port = int(server.stdout.readline())
        cls.data, cls.address = cls.start(f"echo=grpc://127.0.0.1:{port}")

    def test_calls_of_every_kind(self):
        done = subprocess.run(
            ["node", "ask.mjs", self.address, "echo"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        out = json.loads(done.stdout)
        self.assertEqual(out["unary"], {"answer": "hello there 0", "sum": "5"})
        self.assertEqual(out["failure"], {"code": 9, "details": "not now: é"})
        self.assertEqual(out["deadline"], 4)
        self.assertEqual(out["missing"]["code"], 12)
        self.assertIn('no endpoint is named "none"', out["missing"]["details"])
        self.assertEqual(out["listed"], 1000)
        self.assertEqual(out["collected"], 16 << 20)
        self.assertEqual(out["heard"], [f"you said {w}" for w in ("one", "two", "three")])


class GrpcOverSeveralLoops(Gateway):
    """Six clients of gRPC's own library over two loops, while gateways with other numbers of loops
    take over: streams that are open go on at the old one, later calls reach the new one."""

    CONNECTIONS = 6

    @classmethod
    def setUpClass(cls):
        cls.folder = os.path.join(SOURCE, "tests/grpc")
        if not os.path.isdir(os.path.join(cls.folder, "node_modules/@grpc/grpc-js")):
            raise unittest.SkipTest("the packages of tests/grpc are not installed")
        server = cls.beside(["node", "server.mjs"], cwd=cls.folder, stdout=subprocess.PIPE)
        cls.addClassCleanup(server.stdout.close)
        cls.serve = f"echo=grpc://127.0.0.1:{int(server.stdout.readline())}"
        cls.data, cls.address = cls.start(cls.serve, "--threads", "2")

    def setUp(self):
        self.state = {"calls": 0, "words": 0, "failed": []}
        self.client = subprocess.Popen(
            ["node", "stream.mjs", self.address, "echo", str(self.CONNECTIONS)],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        self.addCleanup(self.end)

    def read(self):
        for line in self.client.stdout:
            self.state = json.loads(line)

    def end(self):
        self.client.stdin.close()
        self.reader.join()
        self.client.stdout.close()
        self.client.wait()

    def more(self, calls):
        before = dict(self.state)
        poll(
            lambda: self.state["calls"] >= before["calls"] + calls
            and self.state["words"] >= before["words"] + 2 * self.CONNECTIONS,
            "calls and words",
            60,
        )

    def take_over(self, threads):
        command = [BILLOW, "gateway", "--listen", "127.0.0.1:0", "--data", self.data, "--take-over"]
        path = os.path.join(self.data, f"log-{threads}")
        with open(path, "wb") as log:
            process = subprocess.Popen(
                command + ["--serve", self.serve, "--threads", str(threads)], stdout=log, stderr=log
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        poll(lambda: "the gateway listens on" in open(path).read(), "the successor", 30)
        return process

    def test_streams_go_on_while_gateways_take_over(self):
        self.more(200)
        old = self.process
        successors = []
        for threads in (3, 1, 2):
            successors.append(self.take_over(threads))
            self.more(200)
            self.assertIsNone(old.poll(), "its streams are open")
        self.end()
        self.assertTrue(self.state.get("over"), self.state)
        self.assertEqual(self.state["failed"], [])
        self.assertEqual(self.state["wrong"], 0)
        for process in [old, *successors[:-1]]:
            self.assertEqual(process.wait(30), 0, "it ends with its last stream")


if __name__ == "__main__":
    unittest.main()
