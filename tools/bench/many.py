#!/usr/bin/env python3
"""Figures of many machines: a Slurm pool against Slurm itself, a head with thousands of agents, and a directory that follows a job.

Timings on a shared machine mean little by themselves: each stands beside the same work done by Slurm's own tools in the same run.
"""
import argparse
import base64
import http.client
import json
import os
import resource
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from environment import environment_figures  # noqa: E402
from slurm import Slurm  # noqa: E402


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))]


class Head:
    def __init__(self, billow, *options, agent=False, **environment):
        self.billow = billow
        self.data = tempfile.mkdtemp(prefix="billow-bench-")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("BILLOW_")}
        self.env.update({"BILLOW_DATA": self.data}, **environment)
        if not agent:
            options = ("--no-agent", *options)
        self.run("up", "--background", "--listen", "127.0.0.1:0", *options)

    def run(self, *args, check=True):
        return subprocess.run(
            [self.billow, *map(str, args)],
            env=self.env,
            check=check,
            text=True,
            capture_output=True,
        )

    def node_token(self, node):
        """A new token that speaks for this node: the head refuses another node with it."""
        door = http.client.HTTPConnection("head")
        door.sock = socket.socket(socket.AF_UNIX)
        door.sock.connect(f"{self.data}/head.sock")
        with open(f"{self.data}/token", encoding="ascii") as f:
            headers = {"Authorization": f"Bearer {f.read().strip()}"}
        body = json.dumps({"name": node, "scope": "node", "node": node})
        door.request("POST", "/v1/tokens", body, headers)
        answer = door.getresponse()
        text = answer.read()
        door.close()
        if answer.status != 200 and answer.status != 201:
            raise SystemExit(f"no token for {node}: {answer.status} {text[:300]}")
        return json.loads(text)["token"]

    def pid(self):
        with open(f"{self.data}/head.json", encoding="utf-8") as f:
            return json.load(f)["pid"]

    def close(self):
        self.run("down", "--stop-jobs", check=False)
        shutil.rmtree(self.data, ignore_errors=True)


def until(condition, what, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def pools(head):
    return json.loads(head.run("pool", "list", "--json").stdout)["pools"]


def add_pool(head, name, *options):
    """A pool of the bench's Slurm; each machine has eight simulated GPUs."""
    slurm = ("--partition", "all", "--gres", "gpu:h100:8", "--sbatch=--cpus-per-task=32")
    head.run("pool", "add", "slurm", name, *slurm, "--max", 4, "--sim", "8xH100", *options)


def remove_pool(head, name):
    head.run("pool", "rm", name)
    until(lambda: not pools(head), "the pool gone")


def first_job(slurm, head):
    """A first job, each way, on an idle cluster."""
    bare, pooled = [], []
    add_pool(head, "fast", "--idle", "2s")
    for _ in range(5):
        begin = time.perf_counter()
        slurm.run(["srun", "--gres=gpu:h100:1", "true"], check=True)
        bare.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        head.run("run", "--gpus", 1, "--", "true")
        pooled.append(time.perf_counter() - begin)
        until(lambda: not slurm.run(["squeue", "-h"]).stdout.strip(), "the allocation given back")
    print(
        f"first job on an idle Slurm: srun {percentile(bare, 50):.2f} s, through the pool"
        f" {percentile(pooled, 50):.2f} s"
        f" (+{percentile(pooled, 50) - percentile(bare, 50):.2f} s; {min(pooled):.2f} to"
        f" {max(pooled):.2f} s in {len(pooled)} tries)",
        flush=True,
    )
    remove_pool(head, "fast")


def timed(script, over, env):
    """The seconds until a script has submitted its jobs, and until they are over."""
    begin = time.perf_counter()
    subprocess.run(["sh", "-ec", script], env=env, check=True, stdout=subprocess.DEVNULL)
    submitted = time.perf_counter() - begin
    until(over, "the end of the jobs", 300)
    return submitted, time.perf_counter() - begin


def speed(jobs, tool, way, submitted, took):
    return (
        f"{jobs} short jobs, {tool}, {way}: {jobs / took:.1f}/s (submitted in"
        f" {submitted:.2f} s, over after {took:.2f} s)"
    )


def short_jobs(slurm, head, jobs):
    """The same short jobs: as people submit them by hand (a command each, in a loop of the shell),
    and each tool's way for many. Leaves the pool `warm` with four nodes."""

    def idle():
        return not slurm.run(["squeue", "-h", "-t", "PENDING,RUNNING,COMPLETING"]).stdout.strip()

    def empty():
        return not any(json.loads(head.run("status", "--json").stdout)["jobs"].values())

    sbatch = "sbatch --parsable --output=/dev/null"
    bare = {
        "a command each": timed(
            f"for i in $(seq {jobs}); do {sbatch} --wrap true; done", idle, slurm.env
        ),
        "one array": timed(f"{sbatch} --array=1-{jobs} --wrap true", idle, slurm.env),
    }
    add_pool(head, "warm", "--min", 4)
    until(
        lambda: [m["state"] for p in pools(head) for m in p["machines"]].count("here") == 4,
        "four nodes",
    )
    for way, (submitted, took) in bare.items():
        print(speed(jobs, "sbatch", way, submitted, took), flush=True)
    billow = head.billow
    for way, script in (
        ("a command each", f"for i in $(seq {jobs}); do {billow} submit -q -- true; done"),
        ("one list of commands", f"yes true | head -n {jobs} | {billow} submit -q --lines -"),
        ("one array", f"{billow} submit -q --array 1-{jobs} -- true"),
    ):
        submitted, took = timed(script, empty, head.env)
        print(
            f"{speed(jobs, 'pool', way, submitted, took)}:"
            f" x{bare['a command each'][1] / took:.1f} of sbatch a command each,"
            f" x{bare['one array'][1] / took:.1f} of sbatch's array",
            flush=True,
        )


def warm_runs(head):
    """Thirty times `billow run -- true`, in milliseconds."""
    out = []
    for _ in range(30):
        begin = time.perf_counter()
        head.run("run", "--", "true")
        out.append((time.perf_counter() - begin) * 1e3)
    return out


def slurm_figures(billow, jobs):
    if os.geteuid() != 0 or not Slurm.installed():
        print("skipped: Slurm needs root and its packages")
        return
    directory = tempfile.mkdtemp(prefix="billow-bench-slurm-")
    slurm = Slurm(directory, gpus=8)
    head = single = None
    try:
        slurm.start(cpus=64)
        head = Head(billow, "--tls", SLURM_CONF=slurm.env["SLURM_CONF"])
        first_job(slurm, head)
        short_jobs(slurm, head, jobs)
        warm = warm_runs(head)
        single = Head(billow, "--sim", "8xH100", agent=True)
        local = warm_runs(single)
        print(
            f"warm run: p50 {percentile(warm, 50):.1f} ms in an allocation,"
            f" {percentile(local, 50):.1f} ms on one machine"
            f" (x{percentile(warm, 50) / percentile(local, 50):.2f})"
        )
        remove_pool(head, "warm")
    finally:
        for started in (single, head):
            if started:
                started.close()
        slurm.stop()
        shutil.rmtree(directory, ignore_errors=True)


class FakeAgent:
    """As much of an agent as a head needs to believe in: hello, and a heartbeat every two seconds."""

    def __init__(self, path, token, number):
        self.name = f"n{number}"
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        key = base64.b64encode(os.urandom(16)).decode()
        self.sock.sendall(
            (
                "GET /v1/agent HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade:"
                " websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key:"
                f" {key}\r\nAuthorization: Bearer {token}\r\n\r\n"
            ).encode()
        )
        self.gpus = [
            {
                "index": i,
                "uuid": f"{self.name}-{i}",
                "vendor": "nvidia",
                "type": "H100",
                "mem_mib": 81559,
            }
            for i in range(8)
        ]
        self.beat = self.frame(
            {
                "type": "heartbeat",
                "gpus": [{"gpu": i, "util_pct": 50, "power_mw": 300000} for i in range(8)],
            }
        )
        self.buffer = b""

    @staticmethod
    def frame(message):
        text = json.dumps(message).encode()
        data = struct.pack("<I", len(text)) + text
        length = (
            bytes([0x80 | len(data)])
            if len(data) < 126
            else bytes([0x80 | 126]) + struct.pack(">H", len(data))
        )
        return bytes([0x82]) + length + b"\0\0\0\0" + data  # a mask of zeros: the same bytes

    def hello(self):
        self.sock.sendall(
            self.frame(
                {
                    "type": "hello",
                    "version": 1,
                    "sent_at_ns": time.monotonic_ns(),
                    "offer": {
                        "name": self.name,
                        "boot_id": f"b-{self.name}",
                        "version": "bench",
                        "cpu_milli": 64000,
                        "mem_mib": 512000,
                        "simulated": True,
                        "gpus": self.gpus,
                    },
                }
            )
        )


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


class Fleet:
    """Fake agents of one head. Those that have joined go on living while others come, because a
    head cuts off whoever is silent for ten seconds."""

    def __init__(self, head, count):
        self.path = f"{head.data}/head.sock"
        self.tokens = [head.node_token(f"n{number}") for number in range(count)]
        self.agents, self.poller = {}, select.epoll()
        self.welcomed = set()
        self.beaten = time.monotonic()

    def beat_due(self):
        if time.monotonic() - self.beaten < 2:
            return
        self.beaten = time.monotonic()
        for agent in self.agents.values():
            if agent.name in self.welcomed:  # before it is welcomed an agent says nothing but hello
                agent.sock.send(agent.beat)

    def add(self, number):
        self.beat_due()
        while True:
            try:
                agent = FakeAgent(self.path, self.tokens[number], number)
                break
            except BlockingIOError:
                self.pump(0.01)  # the socket's queue is full: the head is busy with the others
        self.agents[agent.sock.fileno()] = agent
        self.poller.register(agent.sock.fileno(), select.EPOLLIN)
        agent.hello()

    def pump(self, seconds):
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            for fd, _ in self.poller.poll(max(0, left), 512):
                data = self.agents[fd].sock.recv(65536)
                if not data:
                    raise SystemExit(f"{self.agents[fd].name} was cut off")
                if b'"welcome"' in data:
                    self.welcomed.add(self.agents[fd].name)
            if left <= 0:
                return

    def join(self, numbers, count):
        """Adds agents until `count` are welcome; returns the seconds that it took."""
        begin = time.perf_counter()
        for number in numbers:
            self.add(number)
        while len(self.welcomed) < count:
            self.pump(0.05)
            self.beat_due()
            if time.perf_counter() - begin > 300:
                raise SystemExit(f"only {len(self.welcomed)} of {count} joined")
        return time.perf_counter() - begin

    def beats(self, seconds):
        """Everybody's heartbeat every two seconds, spread evenly."""
        slot = 0
        seconds = max(seconds, 2.2)  # a whole round, or the same ones would be left out each time
        end = time.monotonic() + seconds
        everybody = list(self.agents.values())
        while time.monotonic() < end:
            for agent in everybody[slot::40]:
                agent.sock.send(agent.beat)
            slot = (slot + 1) % 40
            self.pump(0.05)

    def silence(self, agent):
        self.poller.unregister(agent.sock.fileno())
        del self.agents[agent.sock.fileno()]
        agent.sock.close()
        self.welcomed.discard(agent.name)

    def close(self):
        for agent in self.agents.values():
            agent.sock.close()


def lose_a_quarter(head, fleet, count):
    """A quarter of the agents falls silent at once, and comes back after the head has given them
    up."""
    quiet = [a for i, a in enumerate(fleet.agents.values()) if i % 4 == 0]
    for agent in quiet:
        fleet.silence(agent)

    def nodes():
        return [n["state"] for n in json.loads(head.run("nodes", "--json").stdout)["nodes"]]

    def seq():
        return json.loads(head.run("status", "--json").stdout)["seq"]

    deadline = time.monotonic() + 90
    while sum(s != "ready" for s in nodes()) != len(quiet):
        fleet.beats(1)
        if time.monotonic() > deadline:
            raise SystemExit("the silent ones were not noticed")
    before = seq()
    back = fleet.join([int(agent.name[1:]) for agent in quiet], count)
    fleet.beats(25)  # longer than silence is tolerated: nobody may flap
    ready = nodes().count("ready")
    changed = seq() - before
    print(
        f"{len(quiet)} lost at once and back: {back:.1f} s; {ready} of {count} ready, {changed}"
        f" events ({changed / len(quiet):.2f} each)"
    )


def agent_figures(billow, count):
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2
    )
    head = Head(billow)
    fleet = None
    try:
        fleet = Fleet(head, count)
        took = fleet.join(range(count), count)
        print(f"{count} agents at once: all joined in {took:.1f} s")
        pid = head.pid()
        before, at = cpu_seconds(pid), time.monotonic()
        fleet.beats(10)
        print(
            f"at rest: head {rss_mib(pid):.0f} MiB,"
            f" {(cpu_seconds(pid) - before) / (time.monotonic() - at) * 100:.0f} % of a core for"
            f" {count} heartbeats in two seconds"
        )
        lose_a_quarter(head, fleet, count)
    finally:
        if fleet:
            fleet.close()
        head.close()


def sync_figures(billow, count, megabytes):
    """The working directory's way to the head, beside rsync over a socket on the same machine (its
    daemon: no ssh in either)."""
    if not shutil.which("rsync"):
        print("skipped: rsync is not installed")
        return
    root = tempfile.mkdtemp(prefix="billow-bench-sync-")
    head = Head(billow)
    daemon = None
    try:
        source, size = f"{root}/source", megabytes * 1_000_000 // count
        for number in range(count):
            folder = f"{source}/d{number % 100}"
            os.makedirs(folder, exist_ok=True)
            with open(f"{folder}/f{number}", "wb") as f:
                f.write(os.urandom(size))
        old = time.time() - 3600
        for folder, _, names in os.walk(source):
            for name in names:
                os.utime(f"{folder}/{name}", (old, old))
        os.makedirs(f"{root}/copy")
        port = 20000 + os.getpid() % 20000
        with open(f"{root}/rsyncd.conf", "w", encoding="ascii") as f:
            f.write(
                f"use chroot = no\nuid = root\ngid = root\nlog file = {root}/rsyncd.log\npid file ="
                f" {root}/rsyncd.pid\n[copy]\npath = {root}/copy\nread only = no\n"
            )
        daemon = subprocess.Popen(
            [
                "rsync",
                "--daemon",
                "--no-detach",
                f"--config={root}/rsyncd.conf",
                "--address=127.0.0.1",
                f"--port={port}",
            ]
        )
        until(
            lambda: subprocess.run(
                ["rsync", f"rsync://127.0.0.1:{port}/"], capture_output=True, check=False
            ).returncode
            == 0,
            "rsync's daemon",
        )
        head.env["HOME"] = root
        head.env["XDG_CACHE_HOME"] = f"{root}/cache"

        def by_rsync():
            begin = time.perf_counter()
            subprocess.run(
                ["rsync", "-a", f"{source}/", f"rsync://127.0.0.1:{port}/copy/"], check=True
            )
            return time.perf_counter() - begin

        def by_billow():
            begin = time.perf_counter()
            subprocess.run(
                [billow, "submit", "--sync", "--quiet", "--", "true"],
                cwd=source,
                env=head.env,
                check=True,
                capture_output=True,
            )
            return time.perf_counter() - begin

        def touch():
            for number in range(10):
                with open(f"{source}/d{number}/f{number}", "ab") as f:
                    f.write(b"more")

        first = (by_rsync(), by_billow())
        touch()
        again = (by_rsync(), by_billow())
        print(
            f"{count} files, {megabytes} MB: rsync {first[0]:.2f} s, billow {first[1]:.2f} s"
            f" (x{first[1] / first[0]:.2f})"
        )
        print(
            f"after a change of ten: rsync {again[0] * 1e3:.0f} ms, billow {again[1] * 1e3:.0f} ms"
            " (a whole `billow submit`)"
        )
    finally:
        if daemon:
            daemon.terminate()
            daemon.wait()
        head.close()
        shutil.rmtree(root, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--billow", required=True)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("only", nargs="?", choices=("slurm", "agents", "sync", "env"))
    options = parser.parse_args()
    if options.only in (None, "slurm"):
        slurm_figures(options.billow, options.jobs)
    if options.only in (None, "agents"):
        agent_figures(options.billow, options.agents)
    if options.only in (None, "sync"):
        sync_figures(options.billow, 10_000, 200)
    if options.only in (None, "env"):
        head = Head(options.billow)
        try:
            environment_figures(head, options.billow)
        finally:
            head.close()


if __name__ == "__main__":
    main()
