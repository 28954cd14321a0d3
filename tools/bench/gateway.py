#!/usr/bin/env python3
"""What the gateway costs and what waking takes, measured.

small    small keep-alive requests through the gateway and through nginx, taking turns before one upstream
proxies  the same over HTTP/1.1 and HTTP/2, up to 5,000 connections, beside nginx and HAProxy with one and two threads
streams  1,000 event streams at once: memory of the gateway for each
upload   a large body: the gateway's memory stays flat
zero     the first byte from an endpoint whose only replica sleeps
many     50 endpoints on eight simulated GPUs, each called rarely: what is billed against what was served
replay   recorded request traces in virtual time against a fixed fleet and Knative's algorithm
live     the first minutes of one in real time, through head, agent and gateway, to servers that take as long as a model would

Every figure is printed with what was promised; exits 1 when one is missed. Speed is a ratio against nginx in the same run.
"""
import argparse
import asyncio
import http.client
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import proxies as other_proxies

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../tests/support"))


class Judge:
    def __init__(self):
        self.missed = 0

    def say(self, what, value, promise, holds):
        self.missed += not holds
        print(f"{'ok    ' if holds else 'MISSED'} {what}: {value} (promised {promise})", flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def await_port(port):
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def memory_kib(pid, field="VmRSS"):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(rf"{field}:\s+(\d+)", f.read()).group(1))


class Processes:
    """Processes of a measurement, ended with it."""

    def __init__(self, billow):
        self.billow, self.all = billow, []
        self.dir = tempfile.mkdtemp(prefix="billow-bench-gateway-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.all:
            p.terminate()
        for p in self.all:
            p.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def start(self, *args):
        log = open(os.path.join(self.dir, f"log{len(self.all)}"), "wb")
        self.all.append(subprocess.Popen([str(a) for a in args], stdout=log, stderr=log))
        return self.all[-1].pid

    def nginx(self, name, text):
        path = os.path.join(self.dir, name + ".conf")
        with open(path, "w", encoding="ascii") as f:
            f.write(
                f"daemon off; pid {self.dir}/{name}.pid; error_log {self.dir}/{name}.err;\nevents"
                " { worker_connections 16384; }\n"
                + text
            )
        return self.start("nginx", "-p", self.dir, "-c", path)

    def gateway(self, upstream_port, threads=1):
        port = free_port()
        pid = self.start(
            self.billow,
            "gateway",
            "--serve",
            f"hello=127.0.0.1:{upstream_port}",
            "--listen",
            f"127.0.0.1:{port}",
            "--data",
            os.path.join(self.dir, f"gateway{threads}"),
            *(["--threads", str(threads)] if threads > 1 else []),
        )
        await_port(port)
        deadline = time.monotonic() + 20
        while True:  # until it has found the upstream healthy
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            c.request("GET", "/f/hello/")
            status = c.getresponse().status
            c.close()
            if status == 200:
                return port, pid
            assert time.monotonic() < deadline, status


def wrk(url, connections, seconds):
    """(requests a second, p99 in ms, errors)"""
    out = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", url],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))
    value, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", out).groups()
    return (
        rate,
        float(value) * {"us": 0.001, "ms": 1, "s": 1000}[unit],
        re.findall(r"(?:Socket errors|Non-2xx).*", out),
    )


def small(options, judge):
    with Processes(options.billow) as run:
        up, px = free_port(), free_port()
        run.nginx(
            "upstream",
            (
                "worker_processes 1;\nhttp { access_log off; keepalive_requests 100000000;"
                f" keepalive_timeout 300;\nserver {{ listen 127.0.0.1:{up}; location / {{"
                " default_type application/json; return 200"
                ' \'{"id":"job-1","state":"running","gpus":1,"text":"hello hello hello"}\\n\';'
                " } } }"
            ),
        )
        # As a reverse proxy is set up for this: keep-alive upstream, an access log like the
        # gateway's, one worker for each core.
        run.nginx(
            "proxy",
            (
                f"worker_processes auto;\nhttp {{ access_log {run.dir}/access.log combined"
                " buffer=64k flush=1s; keepalive_requests 100000000; keepalive_timeout"
                f" 300;\nupstream u {{ server 127.0.0.1:{up}; keepalive 256; keepalive_requests"
                f" 100000000; }}\nserver {{ listen 127.0.0.1:{px}; location /f/hello/ {{ proxy_pass"
                ' http://u/; proxy_http_version 1.1; proxy_set_header Connection "";'
                " proxy_set_header Host $host; proxy_set_header X-Forwarded-For"
                " $proxy_add_x_forwarded_for; } } }"
            ),
        )
        await_port(up)
        await_port(px)
        gw, _ = run.gateway(up)
        for connections in options.connections:
            rates, added = [], []
            for _ in range(options.rounds):
                direct = wrk(f"http://127.0.0.1:{up}/", connections, options.seconds)
                nginx = wrk(f"http://127.0.0.1:{px}/f/hello/", connections, options.seconds)
                ours = wrk(f"http://127.0.0.1:{gw}/f/hello/", connections, options.seconds)
                assert not nginx[2] and not ours[2], (nginx, ours)
                rates.append(ours[0] / nginx[0])
                added.append(max(ours[1] - direct[1], 0) / max(nginx[1] - direct[1], 0.001))
                print(
                    (
                        f"       {connections} connections: direct {direct[0]:.0f}/s p99"
                        f" {direct[1]:.2f} ms, nginx {nginx[0]:.0f}/s p99 {nginx[1]:.2f} ms,"
                        f" gateway {ours[0]:.0f}/s p99 {ours[1]:.2f} ms"
                    ),
                    flush=True,
                )
            judge.say(
                f"throughput at {connections} connections",
                f"{statistics.median(rates):.2f} x nginx",
                ">= 0.7",
                statistics.median(rates) >= 0.7,
            )
            judge.say(
                f"p99 added at {connections} connections",
                f"{statistics.median(added):.2f} x nginx's",
                "<= 2",
                statistics.median(added) <= 2,
            )


def proxies(options, judge):
    other_proxies.proxies(options, judge, Processes, free_port, await_port)


class Upstream(threading.Thread):
    """An application for streams and uploads, on a loop of its own."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.taken, self.stop = port, 0, False
        self.start()
        await_port(port)

    def run(self):
        asyncio.run(self.serve())

    async def serve(self):
        async with await asyncio.start_server(self.client, "127.0.0.1", self.port, backlog=4096):
            while not self.stop:
                await asyncio.sleep(0.05)

    async def client(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = re.search(r"(?i)content-length: (\d+)", head)
            if length:
                left = int(length.group(1))
                while left > 0:
                    piece = await reader.read(min(left, 1 << 20))
                    left -= len(piece)
                    self.taken += len(piece)
            if "/events" in head.split("\r\n")[0]:
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection:"
                    b" close\r\n\r\n"
                )
                while not self.stop:
                    writer.write(b'data: {"token": "hello"}\n\n')
                    await writer.drain()
                    await asyncio.sleep(1)
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # its client went, or the measurement is over
        finally:
            writer.close()


def streams(options, judge):
    with Processes(options.billow) as run:
        upstream = Upstream(free_port())
        port, pid = run.gateway(upstream.port)
        before = memory_kib(pid)
        clients = []
        for _ in range(options.streams):
            s = socket.create_connection(("127.0.0.1", port), timeout=60)
            s.sendall(b"GET /f/hello/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            clients.append(s)
        for s in clients:
            got = b""
            while b"data:" not in got:
                piece = s.recv(65536)
                assert piece, got
                got += piece
        for s in clients:  # each is alive: another event comes
            assert b"data:" in s.recv(65536)
        per_stream = (memory_kib(pid) - before) / options.streams
        for s in clients:
            s.close()
        upstream.stop = True
        judge.say(
            f"{options.streams} event streams at once, gateway memory for each",
            f"{per_stream:.1f} KiB",
            "stated; all of them alive",
            True,
        )


def upload(options, judge):
    with Processes(options.billow) as run:
        upstream = Upstream(free_port())
        port, pid = run.gateway(upstream.port)
        before = memory_kib(pid)
        total = options.upload_mib << 20
        piece = bytes(1 << 20)
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=120) as s:
            s.sendall(
                "POST /f/hello/up HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Length: {total}\r\n\r\n".encode()
            )
            for _ in range(options.upload_mib):
                s.sendall(piece)
            answer = s.recv(65536)
        assert b" 200 " in answer and upstream.taken == total, (answer, upstream.taken)
        grown = memory_kib(pid, "VmHWM") - before
        upstream.stop = True
        judge.say(
            (
                f"a body of {options.upload_mib} MiB,"
                f" {options.upload_mib / (time.monotonic() - began):.0f} MiB/s, gateway grew by"
            ),
            f"{grown} KiB",
            "<= 4096 KiB",
            grown <= 4096,
        )


SERVER = """import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
"""


def call(rig, name):
    """Seconds to the first byte of an answer through the gateway."""
    host, port = rig.read("gateway/address").strip().split(",")[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as s:
        began = time.perf_counter()
        s.sendall(f"GET /f/{name}/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        first = s.recv(4096)
        took = time.perf_counter() - began
    assert b" 200 " in first.split(b"\r\n")[0], first
    return took


def server_file(rig):
    with open(rig.file("serve.py"), "w", encoding="ascii") as f:
        f.write(SERVER)
    return rig.file("serve.py")


def zero(options, judge):
    from rig import Rig, poll

    rig = Rig()
    try:
        path = server_file(rig)
        began = time.perf_counter()
        rig.ok("deploy", "cold", "--gpus", 1, "--idle", "0s", "--", "python3", path, timeout=90)
        cold = time.perf_counter() - began
        times = []
        for _ in range(options.wakes):
            poll(
                lambda: [
                    r.get("task_state")
                    for r in rig.api("GET", "/v1/endpoints/cold").json["replicas"]
                ]
                == ["suspended"],
                "sleep",
            )
            times.append(call(rig, "cold") * 1000)
        times.sort()
        p50, p99 = statistics.median(times), times[min(len(times) - 1, int(len(times) * 0.99))]
        judge.say(
            f"first byte from a sleeping replica, p50 of {len(times)}",
            f"{p50:.0f} ms",
            "<= 100 ms",
            p50 <= 100,
        )
        judge.say(
            "p99", f"{p99:.0f} ms (a cold process: {cold * 1000:.0f} ms)", "<= 250 ms", p99 <= 250
        )
    finally:
        rig.close()


def many(options, judge):
    from rig import Rig, poll

    rig = Rig()
    try:
        path = server_file(rig)
        names = [f"e{i}" for i in range(options.endpoints)]
        for name in names:
            rig.ok("deploy", name, "--gpus", 1, "--idle", "1s", "--no-wait", "--", "python3", path)
        seen = lambda: {e["name"]: e for e in rig.api("GET", "/v1/endpoints").json["endpoints"]}
        poll(lambda: all(e["status"] == "serving" for e in seen().values()), "all of them up", 300)
        free = lambda: rig.json("status")["gpus"]["free"]
        poll(lambda: free() == 8, "all of them asleep", 60)
        billed = lambda: sum(
            float(x)
            for x in re.findall(
                r"(?m)^billow_gpu_seconds_total\{[^}]*\} (\S+)",
                rig.api("GET", "/metrics").body.decode(),
            )
        )
        before, served, longest = billed(), 0.0, 0.0
        for _ in range(options.turns):
            for name in names:
                took = call(rig, name)  # from the request to its answer: waking included
                served, longest = served + took, max(longest, took)
        poll(lambda: free() == 8, "all of them asleep again", 60)
        calls = options.turns * len(names)
        seconds, bound = billed() - before, (served + calls) * 1.10
        judge.say(
            (
                f"{len(names)} endpoints on 8 GPUs, {calls} calls, the longest"
                f" {longest * 1000:.0f} ms; billed"
            ),
            (
                f"{seconds:.1f} GPU-s, for {served:.1f} s of waking and service and {calls} s of"
                " idle windows"
            ),
            f"<= {bound:.1f}",
            seconds <= bound,
        )
    finally:
        rig.close()


def replay(options, judge):
    for trace in options.trace:
        out = json.loads(
            subprocess.run(
                [options.billow, "simulate", "endpoints", "--trace", trace, "--json"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        print(json.dumps(out, indent=1), flush=True)
    if not options.trace:
        judge.say("replay", "no --trace was given", "a trace", False)


MODEL = """import http.server, os, time
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        first, rest = (float(x) for x in (self.path[1:] or "0,0").split(","))
        time.sleep(first)
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"o"); self.wfile.flush()
        time.sleep(rest)
        self.wfile.write(b"k")
    def log_message(self, *a): pass
class S(http.server.ThreadingHTTPServer):
    request_queue_size = 256
S(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
"""


def live(options, judge):
    from rig import Rig, poll
    import datetime

    if not options.trace:
        return judge.say("live", "no --trace was given", "a trace", False)
    calls = []
    with open(options.trace[0], encoding="ascii") as f:
        for line in f.read().split("\n")[1:]:
            if line.strip():
                at, context, generated = line.split(",")
                calls.append(
                    (
                        datetime.datetime.fromisoformat(at[:26]).timestamp(),
                        int(context) / 8000,
                        int(generated) * 0.03,
                    )
                )
    calls = [
        (at - calls[0][0], first, rest)
        for at, first, rest in calls
        if at - calls[0][0] < options.minutes * 60
    ]
    rig = Rig(sim="16xH100")
    try:
        with open(rig.file("model.py"), "w", encoding="ascii") as f:
            f.write(MODEL)
        rig.ok(
            "deploy",
            "model",
            "--gpus",
            1,
            "--max",
            16,
            "--concurrency",
            8,
            "--slo",
            "2s",
            "--idle",
            "10s",
            "--",
            "python3",
            rig.file("model.py"),
            timeout=90,
        )
        host, port = rig.read("gateway/address").strip().split(",")[0].rsplit(":", 1)
        firsts, dropped, lock = [], [], threading.Lock()

        def one(first, rest):
            try:
                with socket.create_connection((host, int(port)), timeout=90) as s:
                    began = time.perf_counter()
                    s.sendall(
                        f"GET /f/model/{first},{rest} HTTP/1.1\r\nHost: localhost\r\nConnection:"
                        " close\r\n\r\n".encode()
                    )
                    got = s.recv(4096)
                    took = time.perf_counter() - began
                    while piece := s.recv(4096):
                        got += piece
                assert b" 200 " in got.split(b"\r\n")[0] and got.endswith(b"ok"), got[:200]
                with lock:
                    firsts.append(took)
            except (OSError, AssertionError) as e:
                with lock:
                    dropped.append(repr(e))

        threads, began = [], time.monotonic()
        for at, first, rest in calls:
            time.sleep(max(0, began + at - time.monotonic()))
            threads.append(threading.Thread(target=one, args=(first, rest)))
            threads[-1].start()
        for t in threads:
            t.join()
        in_time = 100 * sum(t <= 2 for t in firsts) / max(len(calls), 1)
        judge.say(
            (
                f"{options.minutes:g} minutes of {os.path.basename(options.trace[0])},"
                f" {len(calls)} requests: dropped"
            ),
            f"{len(dropped)} {dropped[:3] if dropped else ''}",
            "0",
            not dropped,
        )
        poll(
            lambda: rig.json("status")["gpus"]["free"] == 16,
            "all of them asleep after their idle time of 10 s",
            60,
        )
        billed = sum(
            float(x)
            for x in re.findall(
                r"(?m)^billow_gpu_seconds_total\{[^}]*\} (\S+)",
                rig.api("GET", "/metrics").body.decode(),
            )
        )
        print(
            (
                f"       first byte within 2 s: {in_time:.2f} %; {billed:.0f} GPU-s billed,"
                f" {billed / options.minutes / 60:.1f} GPUs on average"
            ),
            flush=True,
        )
    finally:
        rig.close()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", default=[])
    parser.add_argument("--billow", required=True)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument(
        "--proxy-connections", type=int, nargs="+", default=[1, 16, 256, 5000], metavar="N"
    )
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--upload-mib", type=int, default=2048)
    parser.add_argument("--wakes", type=int, default=100)
    parser.add_argument("--endpoints", type=int, default=50)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=10)
    trace = "a CSV for `replay`: TIMESTAMP,ContextTokens,GeneratedTokens"
    parser.add_argument("--trace", action="append", default=[], help=trace)
    options = parser.parse_args()
    options.billow = os.path.abspath(options.billow)
    os.environ["BILLOW_BIN"] = os.path.dirname(options.billow)
    parts = {
        "small": small,
        "proxies": proxies,
        "streams": streams,
        "upload": upload,
        "zero": zero,
        "many": many,
        "replay": replay,
        "live": live,
    }
    judge = Judge()
    for name in options.what or [n for n in parts if n not in ("replay", "live") or options.trace]:
        if name not in parts:
            sys.exit(f"there is no part {name!r}; there are: {' '.join(parts)}")
        print(f"{name}:", flush=True)
        parts[name](options, judge)
    sys.exit(1 if judge.missed else 0)


if __name__ == "__main__":
    main()
