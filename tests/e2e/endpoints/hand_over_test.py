"""A gateway is replaced while clients call: no connection is refused and no answer is lost."""

import http.client
import http.server
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from endpoints_test import EndpointTest
from rig import BILLOW, poll


class Application(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path.startswith("/events"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            while not self.server.stop_events.is_set():
                self.wfile.write(b"data: x\n\n")
                self.wfile.flush()
                time.sleep(0.05)
            self.wfile.write(b"data: end\n\n")
            self.close_connection = True
            return
        self.answer(b"ok")

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True


class Callers:
    """Clients that never try again: whatever goes wrong once is counted. A client that is told
    `Connection: close` connects anew, as the protocol asks."""

    def __init__(self, address, name, keep=8, fresh=4, echo=True):
        host, port = address.rsplit(":", 1)
        self.at, self.name, self.echo = (host, int(port)), name, echo
        self.stop, self.failed, self.answered, self.closed = threading.Event(), [], 0, 0
        self.lock = threading.Lock()
        self.threads = [
            threading.Thread(target=self.run, args=(i < keep, i)) for i in range(keep + fresh)
        ]
        for thread in self.threads:
            thread.start()

    def run(self, keep, number):
        connection = None
        turn = 0
        while not self.stop.is_set():
            turn += 1
            try:
                connection = connection or http.client.HTTPConnection(*self.at, timeout=30)
                body = f"{number}-{turn}" if number % 2 else None
                connection.request("POST" if body else "GET", f"/f/{self.name}/", body)
                answer = connection.getresponse()
                got = answer.read()
                assert answer.status == 200, answer.status
                assert not (self.echo and body) or got == body.encode(), got
                told = answer.getheader("Connection") == "close"
                with self.lock:
                    self.answered += 1
                    self.closed += told
                if told or not keep:
                    connection.close()
                    connection = None
            except (OSError, http.client.HTTPException, AssertionError) as e:
                with self.lock:
                    self.failed.append(repr(e))
                connection = None

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()


class Successors(unittest.TestCase):
    def setUp(self):
        self.server = Server(("127.0.0.1", 0), Application)
        self.server.stop_events = threading.Event()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.server.stop_events.set)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.data = tempfile.mkdtemp(prefix="billow-hand-over-")
        self.addCleanup(shutil.rmtree, self.data, True)
        self.first = self.start()
        self.address = poll(lambda: self.read("address").strip(), "the gateway")
        poll(lambda: self.get("/f/app/").startswith(b"HTTP/1.1 200"), "the endpoint")

    def start(self, *options):
        log = open(os.path.join(self.data, "log"), "ab")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [BILLOW, "gateway", "--listen", "127.0.0.1:0", "--data", self.data]
            + ["--serve", f"app=127.0.0.1:{self.server.server_port}", *options],
            stdout=log,
            stderr=log,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def read(self, name):
        try:
            with open(os.path.join(self.data, name), encoding="utf-8") as f:
                return f.read()
        except OSError:
            return ""

    def connect(self):
        host, port = self.address.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=30)

    def get(self, path):
        with self.connect() as s:
            s.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            got = b""
            while piece := s.recv(65536):
                got += piece
            return got

    def successions(self):
        return self.read("log").count("the gateway listens on")

    def replace(self, before):
        began = self.successions()
        after = self.start("--take-over")
        poll(lambda: self.successions() > began, "the successor", 30)
        return after

    def test_three_successors_under_load_and_no_failed_request(self):
        callers = Callers(self.address, "app")
        self.addCleanup(callers.end)
        process = self.first
        for _ in range(3):
            answered = callers.answered
            poll(lambda: callers.answered > answered + 200, "requests", 60)
            successor = self.replace(process)
            self.assertEqual(process.wait(30), 0, "it ends with its last request")
            process = successor
        answered = callers.answered
        poll(lambda: callers.answered > answered + 200, "requests at the last one", 60)
        callers.end()
        self.assertEqual(callers.failed, [])
        self.assertGreater(callers.closed, 0, "some were told to connect again")
        self.assertEqual(self.read("address").strip(), self.address)

    def test_a_stream_goes_on_at_the_old_one_and_its_replica_counts_as_busy(self):
        with self.connect() as stream:
            stream.sendall(b"GET /f/app/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            got = b""
            while b"data: x" not in got:
                got += stream.recv(65536)
            self.replace(self.first)

            def in_flight():
                line = next(
                    l
                    for l in self.get("/metrics").decode().split("\n")
                    if l.startswith('billow_endpoint_in_flight{endpoint="app"}')
                )
                return int(line.split()[1])

            poll(lambda: in_flight() == 1, "the successor knows of the stream", 30)
            self.assertIsNone(self.first.poll())
            self.server.stop_events.set()
            while b"data: end" not in got:
                piece = stream.recv(65536)
                self.assertTrue(piece, "the stream was cut")
                got += piece
        self.assertEqual(self.first.wait(30), 0)
        poll(lambda: in_flight() == 0, "and of its end", 30)

    def test_without_the_word_a_second_gateway_is_refused_and_a_dead_successor_changes_nothing(self):
        second = self.start()
        self.assertNotEqual(second.wait(30), 0)
        self.assertIn("a gateway already runs on", self.read("log"))
        # One that asks for the sockets and dies before it confirms.
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(os.path.join(self.data, "hand-over.sock"))
            self.assertTrue(s.recv(4096).endswith(b"\n"))
        self.assertIn(b"200 OK", self.get("/f/app/"))
        self.replace(self.first)
        self.assertEqual(self.first.wait(30), 0)
        self.assertIn(b"200 OK", self.get("/f/app/"))

    def test_a_gateway_that_died_leaves_nothing_in_the_way(self):
        self.first.send_signal(signal.SIGKILL)
        self.first.wait()
        began = self.successions()
        self.start("--take-over")
        poll(lambda: self.successions() > began, "another one", 30)


class SuccessorsWithOtherThreads(Successors):
    """The same between gateways with several loops, each with another number of them."""

    def start(self, *options):
        self.threads = {0: 3, 3: 1, 1: 2, 2: 3}[getattr(self, "threads", 0)]
        return super().start("--threads", str(self.threads), *options)


class Upgrades(EndpointTest):
    def up_with(self, *options):
        """Starts the head with other options; returns the gateway that has them."""
        self.rig.args = (*self.rig.args, *options)
        self.rig.up()
        return poll(
            lambda: next(
                (
                    pid
                    for pid, line in self.rig.processes().items()
                    if " gateway --head" in line and options[-1] in line
                ),
                0,
            ),
            "a gateway with the new option",
            60,
        )

    def test_a_head_with_other_options_replaces_its_gateway_and_no_request_fails(self):
        self.deploy("app", "--min", 1, "--access", "open")
        old = self.gateway_pid()
        host, port = self.gateway()
        callers = Callers(f"{host}:{port}", "app", keep=3, fresh=1, echo=False)
        self.addCleanup(callers.end)
        poll(lambda: callers.answered > 50, "requests", 60)
        args = self.rig.args
        self.addCleanup(setattr, self.rig, "args", args)
        self.rig.kill(self.rig.head_pid())
        new = self.up_with("--webhook-host", "hooks.example")
        middle = new
        said = self.rig.ok("down").text
        self.assertIn("1 endpoint is still served", said)
        new = self.up_with("--webhook-host", "others.example")
        self.assertNotEqual(new, middle)
        os.kill(self.rig.head_pid(), signal.SIGTERM)
        poll(lambda: not self.rig.head_pid(), "the head has ended", 30)
        middle = new
        new = self.up_with("--webhook-host", "third.example")
        self.assertNotEqual(new, middle)
        poll(lambda: middle not in self.rig.processes(), "the one before has ended", 60)
        self.assertNotEqual(new, old)
        poll(lambda: old not in self.rig.processes(), "the old one has ended", 60)
        answered = callers.answered
        poll(lambda: callers.answered > answered + 50, "requests at the new one", 60)
        callers.end()
        self.assertEqual(callers.failed, [])
        self.assertEqual(self.gateway(), (host, port))
        # The head knows the new one: a deployment reaches it.
        self.deploy("app", version="2")


if __name__ == "__main__":
    unittest.main()
