"""What the servers that play a cloud share: a recording HTTP(S) server on loopback with scripted
faults, and the driver that makes one of our pools talk to it."""
import http.server
import json
import os
import ssl
import subprocess
import threading
import time
import urllib.parse

DRIVER = os.environ.get("BILLOW_DRIVE_POOL", "")


def until(condition, what, seconds=20):
    """The first true result of the condition."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


class Request:
    def __init__(self, method, target, headers, body):
        parts = urllib.parse.urlsplit(target)
        self.method, self.target, self.path = method, target, parts.path
        self.query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        self.headers = {k.lower(): v for k, v in headers.items()}
        self.body = body

    def json(self):
        return json.loads(self.body) if self.body else None

    def form(self):
        return dict(urllib.parse.parse_qsl(self.body.decode(), keep_blank_values=True))

    def __repr__(self):
        return f"{self.method} {self.target}"


class Answer:
    def __init__(self, status, body=None, **headers):
        self.status, self.body = status, body
        self.headers = {k.replace("_", "-"): str(v) for k, v in headers.items()}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet, sent at once
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self):
        length = int(self.headers.get("content-length") or 0)
        request = Request(self.command, self.path, self.headers, self.rfile.read(length))
        answer = self.server.cloud.receive(request)
        if answer is None:  # its answer is lost
            self.close_connection = True
            self.connection.close()
            return
        body = answer.body or b""
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.send_response(answer.status)
        for name, value in {"content-type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # clients that go are part of the tests


class CloudServer:
    """`serve(request)` of a subclass returns an Answer. `faults` holds functions that see each
    request first and return None (no fault), an Answer instead of the real one, or "lose" (the
    request is carried out and its answer lost) or "drop" (nothing happens and no answer comes)."""

    def __init__(self, certificate=None):
        self.lock = threading.RLock()
        self.requests, self.faults = [], []
        self.http = Server(("127.0.0.1", 0), Handler)
        self.http.cloud = self
        self.scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
            self.scheme = "https"
        self.address = f"127.0.0.1:{self.http.server_address[1]}"
        self.url = f"{self.scheme}://{self.address}"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def receive(self, request):
        with self.lock:
            self.requests.append(request)
            verdict = None
            for fault in list(self.faults):
                verdict = fault(request)
                if verdict is not None:
                    break
            if verdict == "drop":
                return None
            if isinstance(verdict, Answer):
                return verdict
            answer = self.serve(request)
            return None if verdict == "lose" else answer

    def once(self, wanted, verdict):
        """The next request for which `wanted` holds gets this verdict."""

        def fault(request):
            if not wanted(request):
                return None
            self.faults.remove(fault)
            return verdict

        self.faults.append(fault)

    def close(self):
        self.http.shutdown()
        self.http.server_close()


class Driver:
    """One of our pools, told what to do."""

    def __init__(
        self, kind, options, installation="ab12cd34", spot=False, name="fast", env=None, cache_gib=0
    ):
        surroundings = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("GOOGLE_", "AZURE_", "CLOUDSDK_"))
        }
        self.process = subprocess.Popen(
            [DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**surroundings, "HOME": "/nonexistent", **(env or {})},
        )
        setup = dict(kind=kind, name=name, options=options, installation=installation, spot=spot)
        setup["cache_gib"] = cache_gib
        self.first = self.ask(**setup)

    def ask(self, **document):
        self.process.stdin.write(json.dumps(document).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the driver ended on {document}")
        return json.loads(line)

    def want(self, machine, **more):
        return self.ask(do="want", machine=machine, **more)

    def nodes(self):
        return self.ask(do="nodes")

    def attach(self, machine, disk):
        return self.ask(do="attach", machine=machine, disk=disk)

    def release(self, machine, external):
        return self.ask(do="release", machine=machine, external=external)

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()

    def kill(self):
        self.process.kill()
        self.process.wait(10)
        self.process.stdin.close()
        self.process.stdout.close()
