#!/usr/bin/env python3
"""The foundation's figures: latency of a warm `run`, the rate of a large array, a long queue, many log followers, a large log.

Timings on a shared machine mean little by themselves, so a real Slurm runs the same work in the same run where it is installed.
"""
import argparse
import http.client
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from slurm import Slurm  # noqa: E402


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))]


def timed(argv, n, env=None):
    out = []
    for _ in range(n):
        begin = time.perf_counter()
        subprocess.run(
            argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
        )
        out.append((time.perf_counter() - begin) * 1e3)
    return out


class UnixHttp(http.client.HTTPConnection):
    def __init__(self, path, token):
        super().__init__("localhost")
        self.path, self.token = path, token

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def call(self, method, target, body=None):
        self.request(
            method,
            target,
            body,
            {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        response = self.getresponse()
        data = response.read()
        if response.status >= 400:
            raise RuntimeError(f"{response.status} {data[:300]}")
        return json.loads(data)


class Head:
    def __init__(self, billow, sim="8xH100"):
        self.billow = billow
        self.data = tempfile.mkdtemp(prefix="billow-bench-")
        self.env = dict(os.environ, BILLOW_DATA=self.data)
        self.env.pop("BILLOW_HEAD", None)
        subprocess.run(
            [billow, "up", "--background", "--sim", sim, "--listen", "127.0.0.1:0"],
            env=self.env,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self.token = open(f"{self.data}/token", encoding="utf-8").read().strip()
        self.pid = json.load(open(f"{self.data}/head.json", encoding="utf-8"))["pid"]

    def http(self):
        return UnixHttp(f"{self.data}/head.sock", self.token)

    def rss_mb(self):
        for line in open(f"/proc/{self.pid}/status", encoding="utf-8"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0

    def threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def stop(self):
        subprocess.run(
            [self.billow, "down", "--stop-jobs"], env=self.env, stdout=subprocess.DEVNULL
        )
        shutil.rmtree(self.data, ignore_errors=True)


def bench_run(head, slurm, rows):
    timed([head.billow, "run", "--", "true"], 20, head.env)
    ours = timed([head.billow, "run", "--", "true"], 200, head.env)
    rows.append(
        (
            "warm `billow run -- true`, 200 runs",
            f"p50 {percentile(ours, 50):.1f} ms, p99 {percentile(ours, 99):.1f} ms",
            "p50 ≤ 10, p99 ≤ 30 ms",
        )
    )
    if slurm:
        timed(["srun", "true"], 3, slurm.env)
        theirs = timed(["srun", "true"], 30, slurm.env)
        rows.append(("Slurm `srun true`, same run", f"p50 {percentile(theirs, 50):.1f} ms", ""))
        rows.append(("ratio at p50", f"{percentile(theirs, 50) / percentile(ours, 50):.1f}", "≥ 3"))


def bench_array(head, slurm, rows):
    def ours(n):
        begin = time.perf_counter()
        out = subprocess.run(
            [head.billow, "submit", "--array", f"0-{n - 1}", "--json", "--", "true"],
            env=head.env,
            check=True,
            capture_output=True,
            text=True,
        )
        job = str(json.loads(out.stdout)["id"])
        subprocess.run(
            [head.billow, "wait", job],
            env=head.env,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return n / (time.perf_counter() - begin)

    ours(50)
    rate = max(ours(1000) for _ in range(2))
    rows.append(
        (
            "array of 1,000 `true` jobs, submitted to finished, every event durable",
            f"{rate:.0f} jobs/s",
            "",
        )
    )
    if not slurm:
        return
    script = f"{slurm.dir}/true.sh"
    with open(script, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\nexec true\n")
    begin = time.perf_counter()
    slurm.run(
        ["sbatch", "--parsable", "--wait", "-o", "/dev/null", "--array", "0-999", script],
        check=True,
    )
    theirs = 1000 / (time.perf_counter() - begin)
    rows.append(("Slurm, the same array, same run", f"{theirs:.0f} jobs/s", ""))
    rows.append(("ratio", f"{rate / theirs:.1f}", "≥ 20"))


def bench_queue(head, rows):
    http = head.http()
    spec = {"argv": ["true"], "resources": {"gpus": 8, "share": {"milli": 1000}}}
    hold = http.call("POST", "/v1/jobs", json.dumps({"spec": dict(spec, argv=["sleep", "3600"])}))[
        "id"
    ]
    env = {"PATH": os.environ["PATH"], "HOME": "/root", "FILLER": "x" * 2000}
    begin = time.perf_counter()
    for i in range(
        20000
    ):  # separate submissions, each with its environment, and the rest as arrays
        http.call(
            "POST", "/v1/jobs", json.dumps({"spec": dict(spec, argv=["true", str(i)]), "env": env})
        )
    single = time.perf_counter() - begin
    for _ in range(8):
        http.call(
            "POST",
            "/v1/jobs",
            json.dumps(
                {"spec": dict(spec, array={"first": 0, "last": 9999, "step": 1}), "env": env}
            ),
        )
    queued = http.call("GET", "/v1/status")["jobs"]["queued"]
    rows.append((f"{queued:,} queued jobs: RSS of the head", f"{head.rss_mb():.0f} MB", "< 400 MB"))
    rows.append(
        (
            "of them 20,000 submitted one by one",
            f"{20000 / single:.0f} submits/s on one connection",
            "",
        )
    )
    submits, pages = [], []
    for i in range(300):
        begin = time.perf_counter()
        http.call(
            "POST",
            "/v1/jobs",
            json.dumps({"spec": dict(spec, argv=["true", f"late{i}"]), "env": env}),
        )
        submits.append((time.perf_counter() - begin) * 1e3)
        begin = time.perf_counter()
        http.call("GET", "/v1/jobs?limit=100")
        pages.append((time.perf_counter() - begin) * 1e3)
    rows.append(
        (
            "submit with that queue",
            f"p50 {percentile(submits, 50):.1f}, p99 {percentile(submits, 99):.1f} ms",
            "p99 < 20 ms",
        )
    )
    rows.append(
        (
            "a page of 100 with that queue",
            f"p50 {percentile(pages, 50):.1f}, p99 {percentile(pages, 99):.1f} ms",
            "p99 < 20 ms",
        )
    )
    cli = timed([head.billow, "ps"], 30, head.env)
    rows.append(
        (
            "`billow ps` with that queue",
            f"p50 {percentile(cli, 50):.1f}, p99 {percentile(cli, 99):.1f} ms",
            "p99 < 20 ms",
        )
    )
    http.call("POST", f"/v1/jobs/{hold}/stop", json.dumps({"force": True}))


def bench_followers(billow, rows):
    head = Head(billow)
    try:
        http = head.http()
        job = http.call(
            "POST",
            "/v1/jobs",
            json.dumps(
                {
                    "spec": {
                        "argv": [
                            "sh",
                            "-c",
                            (
                                "while [ ! -e go ]; do sleep 0.05; done; i=0; while [ $i -lt 50 ];"
                                " do echo line $i; i=$((i+1)); sleep 0.02; done"
                            ),
                        ],
                        "cwd": head.data,
                    },
                    "env": {"PATH": os.environ["PATH"]},
                }
            ),
        )["id"]
        before = head.rss_mb()
        sockets = []
        for _ in range(1000):
            s = socket.socket(socket.AF_UNIX)
            s.connect(f"{head.data}/head.sock")
            s.sendall(
                f"GET /v1/jobs/{job}/logs?follow=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer"
                f" {head.token}\r\n\r\n".encode()
            )
            s.setblocking(False)
            sockets.append(s)
        open(f"{head.data}/go", "w", encoding="utf-8").close()
        data = {s: b"" for s in sockets}
        poller = select.epoll()
        by_fd = {s.fileno(): s for s in sockets}
        for fd in by_fd:
            poller.register(fd, select.EPOLLIN)
        left, deadline = set(sockets), time.monotonic() + 60
        threads = head.threads()
        while left and time.monotonic() < deadline:
            for fd, _ in poller.poll(1):
                s = by_fd[fd]
                chunk = s.recv(65536)
                data[s] += chunk
                if not chunk or data[s].endswith(b"\r\n0\r\n\r\n"):
                    poller.unregister(fd)
                    left.discard(s)
        whole = sum(1 for d in data.values() if b"line 0\n" in d and b"line 49\n" in d)
        rows.append(
            (
                "1,000 log followers of one job at once",
                (
                    f"{whole} got every line; {threads} threads;"
                    f" {(head.rss_mb() - before) / 1000 * 1024:.0f} kB each"
                ),
                "no thread each",
            )
        )
        for s in sockets:
            s.close()
    finally:
        head.stop()


LINES = r"""
import os
for i in range(1_200_000):
    os.write(1, b"step %8d loss 0.%06d tokens/s 123456 grad 0.%07d and the rest of a line of training\n"
             % (i, i * 7919 % 1000000, i * 104729 % 10000000))
"""


def ssh_cat(place, path):
    """Seconds of `ssh HOST cat FILE` over pipes, without a network; None: OpenSSH is missing."""
    sshd = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
    if not sshd or not shutil.which("ssh"):
        return None
    for key in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{place}/{key}"], check=True
        )
    with open(f"{place}/sshd_config", "w", encoding="utf-8") as f:
        f.write(
            f"HostKey {place}/host\nAuthorizedKeysFile {place}/user.pub\nStrictModes no\n"
            "UsePAM no\nPermitRootLogin yes\n"
        )
    os.makedirs("/run/sshd", exist_ok=True)
    words = ["ssh", "-q", "-F", "/dev/null", "-i", f"{place}/user"]
    for option in (
        f"ProxyCommand={sshd} -i -f {place}/sshd_config",
        "StrictHostKeyChecking=no",
        f"UserKnownHostsFile={place}/known",
        "IdentitiesOnly=yes",
    ):
        words += ["-o", option]
    begin = time.perf_counter()
    with open(f"{place}/by-ssh", "wb") as out:
        done = subprocess.run([*words, "bench", "cat", path], stdout=out, check=False)
    return time.perf_counter() - begin if done.returncode == 0 else None


# The two ends of `cat` through a Unix socket: what a log server must do at the least.
SERVE = r"""
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
peer, _ = server.accept()
with open(sys.argv[2], "rb") as f:
    while piece := f.read(65536):
        peer.sendall(piece)
"""
FETCH = r"""
import os, socket, sys, time
peer = socket.socket(socket.AF_UNIX)
while True:
    try:
        peer.connect(sys.argv[1])
        break
    except OSError:
        time.sleep(0.001)
while piece := peer.recv(65536):
    os.write(1, piece)
"""


def socket_cat(place, path):
    """Seconds of reading a file through a Unix socket, from a process that reads it."""
    address, best = f"{place}/cat.sock", None
    for _ in range(3):
        server = subprocess.Popen([sys.executable, "-c", SERVE, address, path])
        begin = time.perf_counter()
        with open(f"{place}/by-socket", "wb") as out:
            subprocess.run([sys.executable, "-c", FETCH, address], stdout=out, check=True)
        took = time.perf_counter() - begin
        server.wait()
        os.unlink(address)
        best = took if best is None else min(best, took)
    return best


def bench_large_log(billow, rows):
    """A log of 120 MB, written line by line, beside `cat`, `cat` through a Unix socket and `ssh cat` of the same
    bytes."""
    head = Head(billow)
    try:
        done = subprocess.run(
            [billow, "submit", "--json", "--", sys.executable, "-c", LINES],
            env=head.env,
            check=True,
            capture_output=True,
            cwd=head.data,
        )
        job = str(json.loads(done.stdout)["id"])
        subprocess.run([billow, "wait", "-q", job], env=head.env, check=True)
        text, copy = f"{head.data}/text", f"{head.data}/copy"

        def seconds(words, to):
            best = None
            for _ in range(3):
                begin = time.perf_counter()
                with open(to, "wb") as out:
                    subprocess.run(words, stdout=out, env=head.env, check=True)
                took = time.perf_counter() - begin
                best = took if best is None else min(best, took)
            return best

        ours = seconds([billow, "logs", job], text)
        size = os.path.getsize(text) / 1e6
        cat = seconds(["sh", "-c", f"cat {text} | cat"], copy)
        rows.append((f"`billow logs` of {size:.0f} MB in lines", f"{ours:.2f} s", "≤ 3 s"))
        rows.append(("beside `cat | cat`", f"{ours / cat:.1f} times", ""))
        by_socket = socket_cat(head.data, text)
        rows.append(("beside `cat` through a Unix socket", f"{ours / by_socket:.1f} times", "≤ 5"))
        if by_ssh := ssh_cat(head.data, text):
            rows.append(("beside `ssh cat`", f"{ours / by_ssh:.1f} times", ""))
        search = seconds(["sh", "-c", f"{billow} logs --search nowhere {job} || true"], copy)
        rows.append(("`billow logs --search` over it", f"{search:.2f} s", ""))
    finally:
        head.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--billow", required=True)
    parser.add_argument("--only", default="run,array,queue,followers,log")
    args = parser.parse_args()
    only = args.only.split(",")
    rows = []
    slurm = None
    slurm_dir = tempfile.mkdtemp(prefix="billow-bench-slurm-")
    if Slurm.installed() and ({"run", "array"} & set(only)):
        slurm = Slurm(slurm_dir)
        slurm.start()
    else:
        print("Slurm is not installed: its figures are left out", file=sys.stderr)
    try:
        if {"run", "array"} & set(only):
            head = Head(args.billow)
            try:
                if "run" in only:
                    bench_run(head, slurm, rows)
                if "array" in only:
                    bench_array(head, slurm, rows)
            finally:
                head.stop()
        if "queue" in only:
            head = Head(args.billow)
            try:
                bench_queue(head, rows)
            finally:
                head.stop()
        if "followers" in only:
            bench_followers(args.billow, rows)
        if "log" in only:
            bench_large_log(args.billow, rows)
    finally:
        if slurm:
            slurm.stop()
        shutil.rmtree(slurm_dir, ignore_errors=True)
    width = max(len(r[0]) for r in rows)
    middle = max(len(r[1]) for r in rows)
    for what, figure, bar in rows:
        print(f"{what:<{width}}  {figure:<{middle}}  {bar}")


if __name__ == "__main__":
    main()
